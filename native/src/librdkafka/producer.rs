//! A producer of librdkafka, also a transactional one.
//!
//! What it reports comes by callbacks, which librdkafka calls within `poll`, `flush` and `abort_transaction`. They only put
//! it into an `Inbox`, from where `take_reports` and `take_failures` fetch it. With the property `delivery.report.only.error`
//! librdkafka calls nothing for a record that is acknowledged.
//!
//! Why this is sound, besides what `librdkafka` says: the callbacks get the `Inbox` by its address. It lives until the
//! handle is destroyed, and librdkafka has ended its threads by then. Keys, values and headers are copied by the calls.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{
    Api, Error, Failure as RawFailure, Flags, Handle, INVALID_ARG, Metadata, PRODUCER, RawMessage, Report, TEXT_BYTES,
    Token, Topic, bytes, c_text, configured, give_token, loaded, milliseconds, text,
};

const COPY: c_int = 0x2;
const FATAL: c_int = -150;
const PURGED: [i32; 2] = [-152, -151]; // _PURGE_QUEUE, _PURGE_INFLIGHT
/// The partitioner that gives a record with a key the partition that Java's does.
const MURMUR2: &str = "murmur2_random";
/// The most bytes of a record by librdkafka's default, and more than it adds to a record's own bytes.
const LARGEST: usize = 1_000_000;
const OVERHEAD: usize = 100;
const PURGE_ALL: c_int = 0x1 | 0x2; // what is queued, and what is in flight
/// The most reports that are kept until somebody takes them. Behind them, lines of the log are dropped.
const MOST_REPORTS: usize = 10_000;

/// The types of a `ProduceField`, from librdkafka's header.
mod field {
    use std::ffi::c_int;

    pub const RKT: c_int = 2;
    pub const PARTITION: c_int = 3;
    pub const VALUE: c_int = 4;
    pub const KEY: c_int = 5;
    pub const OPAQUE: c_int = 6;
    pub const MSGFLAGS: c_int = 7;
    pub const TIMESTAMP: c_int = 8;
    pub const HEADERS: c_int = 10;
}

/// `rd_kafka_vu_t`: an argument of `rd_kafka_produceva`.
#[repr(C)]
pub(super) struct ProduceField {
    kind: c_int,
    value: FieldValue,
}

#[repr(C)]
union FieldValue {
    topic: *mut Topic,
    int: c_int,
    int32: i32,
    int64: i64,
    bytes: FieldBytes,
    headers: *mut super::Headers,
    opaque: *mut c_void,
    padding: [u8; 64],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct FieldBytes {
    start: *const c_void,
    length: usize,
}

impl FieldBytes {
    fn of(bytes: Option<&[u8]>) -> Self {
        bytes.map_or(Self { start: null(), length: 0 }, |bytes| Self {
            start: bytes.as_ptr().cast(),
            length: bytes.len(),
        })
    }
}

/// A record to produce.
pub struct Record<'a> {
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The value; None is a tombstone.
    pub value: Option<&'a [u8]>,
    /// The partition; -1 lets the partitioner choose.
    pub partition: i32,
    /// The time in milliseconds; 0 is the time of the call.
    pub timestamp_ms: i64,
}

/// A record that was not acknowledged.
#[derive(Debug, Clone)]
pub struct Failure {
    /// librdkafka's code of the error.
    pub code: i32,
    /// The topic.
    pub topic: String,
    /// The partition; -1 if it is not known.
    pub partition: i32,
    /// The size of the key; None if it has none.
    pub key_bytes: Option<usize>,
}

/// The records of one task that were not acknowledged.
#[derive(Debug, Clone)]
pub struct Failures {
    /// The number of the task, which the caller has chosen.
    pub task: u32,
    /// How many records there are.
    pub count: u64,
    /// The first one. One that was only dropped because of another error does not count if there is another one.
    pub first: Failure,
}

#[derive(Default)]
struct Contents {
    reports: Vec<Report>,
    statistics: Option<String>,
    is_token_wanted: bool,
    failures: Vec<Failures>,
    fatal: Option<Error>,
}

#[derive(Default)]
struct Inbox(Mutex<Contents>);

impl Inbox {
    fn open(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, report: Report) {
        let mut contents = self.open();
        if contents.reports.len() < MOST_REPORTS || matches!(report, Report::Failed(_)) {
            contents.reports.push(report);
        }
    }
}

/// SAFETY: for librdkafka, with a message that it is done with, and the address of an `Inbox`.
unsafe extern "C" fn on_delivery(_: *mut Handle, message: *const RawMessage, inbox: *mut c_void) {
    let (Ok(api), false, false) = (loaded(), message.is_null(), inbox.is_null()) else { return };
    let (message, inbox) = unsafe { (&*message, &*inbox.cast::<Inbox>()) };
    if message.err == 0 {
        return;
    }
    let task = message.private as usize as u32;
    let mut contents = inbox.open();
    let known = contents.failures.iter_mut().find(|found| found.task == task);
    if let Some(found) = known {
        found.count += 1;
        if !PURGED.contains(&found.first.code) || PURGED.contains(&message.err) {
            return;
        }
        found.first = unsafe { failure(api, message) };
    } else {
        let first = unsafe { failure(api, message) };
        contents.failures.push(Failures { task, count: 1, first });
    }
}

/// SAFETY: the message is one of librdkafka.
unsafe fn failure(api: &Api, message: &RawMessage) -> Failure {
    Failure {
        code: message.err,
        topic: if message.rkt.is_null() { String::new() } else { unsafe { text((api.topic_name)(message.rkt)) } },
        partition: message.partition,
        key_bytes: (!message.key.is_null()).then_some(message.key_len),
    }
}

/// SAFETY: for librdkafka, with a text and the address of an `Inbox`.
unsafe extern "C" fn on_error(handle: *mut Handle, code: c_int, reason: *const c_char, inbox: *mut c_void) {
    let (Ok(api), false) = (loaded(), inbox.is_null()) else { return };
    let inbox = unsafe { &*inbox.cast::<Inbox>() };
    if code == FATAL {
        let mut said: [c_char; TEXT_BYTES] = [0; TEXT_BYTES];
        let code = unsafe { (api.fatal_error)(handle, said.as_mut_ptr(), TEXT_BYTES) };
        let flags = Flags { fatal: true, ..Flags::default() };
        inbox.open().fatal = Some(Error { code, text: unsafe { text(said.as_ptr()) }, flags });
    } else {
        inbox.report(Report::Failed(Error::new(code, unsafe { text(reason) })));
    }
}

/// SAFETY: for librdkafka, with its handle and two texts.
unsafe extern "C" fn on_log(handle: *const Handle, level: c_int, facility: *const c_char, line: *const c_char) {
    let (Ok(api), false) = (loaded(), handle.is_null()) else { return };
    let inbox = unsafe { (api.opaque)(handle) };
    if !inbox.is_null() {
        let inbox = unsafe { &*inbox.cast::<Inbox>() };
        inbox.report(Report::Logged(level, unsafe { text(facility) }, unsafe { text(line) }));
    }
}

/// SAFETY: for librdkafka, with a text of so many bytes, and the address of an `Inbox`.
unsafe extern "C" fn on_statistics(_: *mut Handle, json: *mut c_char, length: usize, inbox: *mut c_void) -> c_int {
    if !inbox.is_null() {
        let inbox = unsafe { &*inbox.cast::<Inbox>() };
        let json = unsafe { bytes(json.cast(), length) }.unwrap_or_default();
        inbox.open().statistics = Some(String::from_utf8_lossy(json).into_owned());
    }
    0 // the text stays librdkafka's, which releases it
}

/// SAFETY: for librdkafka, with the address of an `Inbox`.
unsafe extern "C" fn on_token_wanted(_: *mut Handle, _: *const c_char, inbox: *mut c_void) {
    if !inbox.is_null() {
        unsafe { &*inbox.cast::<Inbox>() }.open().is_token_wanted = true;
    }
}

/// A producer.
pub struct Producer {
    api: &'static Api,
    handle: *mut Handle,
    inbox: Arc<Inbox>,
    murmur2: bool,
    largest: usize,
    partition_counts: Mutex<HashMap<String, i32>>,
}

// SAFETY: librdkafka's handles may be used by several threads at a time, and the inbox is locked.
unsafe impl Send for Producer {}
// SAFETY: as above.
unsafe impl Sync for Producer {}

impl Producer {
    /// Make a producer. With `wants_tokens` it reports when it wants a token, and waits until it is given one.
    ///
    /// # Errors
    /// If librdkafka does not accept the properties.
    pub fn new(properties: &[(String, String)], wants_tokens: bool) -> Result<Self, Error> {
        let api = loaded()?;
        let inbox = Arc::new(Inbox::default());
        let conf = configured(api, properties)?;
        let mut problem: [c_char; TEXT_BYTES] = [0; TEXT_BYTES];
        // SAFETY: `new` takes the configuration, unless it fails. The inbox lives as long as the handle.
        unsafe {
            (api.conf_set_opaque)(conf, Arc::as_ptr(&inbox).cast_mut().cast());
            (api.conf_set_dr_msg_cb)(conf, Some(on_delivery));
            (api.conf_set_error_cb)(conf, Some(on_error));
            (api.conf_set_log_cb)(conf, Some(on_log));
            (api.conf_set_stats_cb)(conf, Some(on_statistics));
            if wants_tokens {
                (api.conf_set_oauthbearer_token_refresh_cb)(conf, Some(on_token_wanted));
            }
            let handle = (api.new)(PRODUCER, conf, problem.as_mut_ptr(), TEXT_BYTES);
            if handle.is_null() {
                (api.conf_destroy)(conf);
                return Err(Error::new(INVALID_ARG, text(problem.as_ptr())));
            }
            (api.set_log_queue)(handle, null_mut()); // its main queue
            let last = |wanted: &str| properties.iter().rev().find(|(name, _)| name == wanted).map(|(_, value)| value);
            let murmur2 = last("partitioner").is_some_and(|value| value == MURMUR2);
            let number = |wanted| last(wanted).and_then(|value| value.parse::<usize>().ok());
            let queue = number("queue.buffering.max.kbytes").map_or(usize::MAX, |kbytes| kbytes.saturating_mul(1024));
            let largest = number("message.max.bytes").unwrap_or(LARGEST).min(queue);
            Ok(Self { api, handle, inbox, murmur2, largest, partition_counts: Mutex::default() })
        }
    }

    /// Return a topic to produce to.
    ///
    /// # Errors
    /// If it is not the name of a topic.
    pub fn topic(&self, name: &str) -> Result<ProducerTopic<'_>, Error> {
        let name = c_text(name)?;
        // SAFETY: the result belongs to the new value.
        let raw = unsafe { (self.api.topic_new)(self.handle, name.as_ptr(), null_mut()) };
        if raw.is_null() {
            return Err(Error::new(INVALID_ARG, "not the name of a topic"));
        }
        Ok(ProducerTopic { producer: self, raw })
    }

    /// Ask a broker about a topic. Return the number of its partitions, and the code of the error that the broker has with it.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn look_up(&self, name: &str, timeout: Duration) -> Result<(usize, i32), Error> {
        let topic = self.topic(name)?;
        let mut answer: *const Metadata = null();
        // SAFETY: the answer belongs to this function, and has so many topics.
        unsafe {
            let code = (self.api.metadata)(self.handle, 0, topic.raw, &raw mut answer, milliseconds(timeout));
            if code != 0 || answer.is_null() {
                return Err(self.api.error(code));
            }
            let found = if (*answer).topic_cnt == 1 {
                let topic = &*(*answer).topics;
                (usize::try_from(topic.partition_cnt).unwrap_or(0), topic.err)
            } else {
                (0, 0)
            };
            (self.api.metadata_destroy)(answer);
            if let ((1.., 0), Ok(count)) = (found, i32::try_from(found.0)) {
                self.partition_counts.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), count);
            }
            Ok(found)
        }
    }

    /// Return the number of partitions of which murmur2 of a key chooses one, as the last look-up found it. None if the topic
    /// was not looked up, or if the user wants another partitioner.
    pub fn murmur2_partitions(&self, topic: &str) -> Option<i32> {
        let counts = self.partition_counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(topic).copied().filter(|_| self.murmur2)
    }

    /// Return whether a record of so many bytes may be too large for librdkafka. The size that it compares with its limit is
    /// not more than `OVERHEAD` above that.
    pub fn may_refuse(&self, bytes: usize) -> bool {
        bytes.saturating_add(OVERHEAD) > self.largest
    }

    /// Return how many records and reports are waiting.
    pub fn waiting(&self) -> usize {
        // SAFETY: the handle is valid.
        usize::try_from(unsafe { (self.api.outq_len)(self.handle) }).unwrap_or(0)
    }

    /// Take what librdkafka reports; wait for it up to a time.
    ///
    /// # Errors
    /// If the producer has failed for good. It is told once.
    pub fn poll(&self, timeout: Duration) -> Result<(), Error> {
        // SAFETY: the handle is valid, and so is the inbox of the callbacks.
        unsafe { (self.api.poll)(self.handle, milliseconds(timeout)) };
        self.not_fatal()
    }

    /// Wait for acknowledgements up to a time, and return how many records and reports are left.
    ///
    /// # Errors
    /// As `poll`.
    pub fn flush(&self, timeout: Duration) -> Result<usize, Error> {
        // SAFETY: as in `poll`.
        unsafe { (self.api.flush)(self.handle, milliseconds(timeout)) };
        self.not_fatal().map(|()| self.waiting())
    }

    /// Drop all records that are not acknowledged; they are reported as failures.
    pub fn purge(&self) {
        // SAFETY: the handle is valid.
        unsafe { (self.api.purge)(self.handle, PURGE_ALL) };
    }

    /// Have the cluster fence earlier producers of the transactional id.
    ///
    /// # Errors
    /// As librdkafka says.
    pub fn init_transactions(&self, timeout: Duration) -> Result<(), Error> {
        // SAFETY: the handle is valid.
        self.accepted(unsafe { (self.api.init_transactions)(self.handle, milliseconds(timeout)) })
    }

    /// Begin a transaction.
    ///
    /// # Errors
    /// As librdkafka says, for example because one is open: then with the reason why it has failed, if it has.
    pub fn begin_transaction(&self) -> Result<(), Error> {
        // SAFETY: the handle is valid.
        self.accepted(unsafe { (self.api.begin_transaction)(self.handle) })
    }

    /// Abort the transaction.
    ///
    /// # Errors
    /// As librdkafka says.
    pub fn abort_transaction(&self, timeout: Duration) -> Result<(), Error> {
        // SAFETY: as in `poll`.
        self.accepted(unsafe { (self.api.abort_transaction)(self.handle, milliseconds(timeout)) })
    }

    /// Return the errors and the lines of the log since the last call, the last statistics if there are new ones, and
    /// whether a token is wanted.
    pub fn take_reports(&self) -> Vec<Report> {
        let mut contents = self.inbox.open();
        let statistics = contents.statistics.take().map(Report::Statistics);
        let token = std::mem::take(&mut contents.is_token_wanted).then_some(Report::TokenWanted);
        std::mem::take(&mut contents.reports).into_iter().chain(statistics).chain(token).collect()
    }

    /// Give the producer the token that it wants, or the reason why there is none.
    ///
    /// # Errors
    /// If librdkafka does not accept the token.
    pub fn give_token(&self, token: Result<&Token, &str>) -> Result<(), Error> {
        // SAFETY: the handle is valid.
        unsafe { give_token(self.api, self.handle, token) }
    }

    /// Return the records that were not acknowledged, since the last call.
    pub fn take_failures(&self) -> Vec<Failures> {
        std::mem::take(&mut self.inbox.open().failures)
    }

    fn not_fatal(&self) -> Result<(), Error> {
        self.inbox.open().fatal.take().map_or(Ok(()), Err)
    }

    fn accepted(&self, failure: *mut RawFailure) -> Result<(), Error> {
        if failure.is_null() {
            return Ok(());
        }
        // SAFETY: the failure belongs to this function.
        unsafe {
            let flags = Flags {
                fatal: (self.api.error_is_fatal)(failure) != 0,
                retriable: (self.api.error_is_retriable)(failure) != 0,
                requires_abort: (self.api.error_txn_requires_abort)(failure) != 0,
            };
            let (code, text) = ((self.api.error_code)(failure), text((self.api.error_string)(failure)));
            (self.api.error_destroy)(failure);
            Err(Error { code, text, flags })
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // SAFETY: made in `new`; no topic is left, because `ProducerTopic` borrows the producer. The inbox goes afterwards.
        unsafe { (self.api.destroy_flags)(self.handle, 0) };
    }
}

/// A topic of a producer.
pub struct ProducerTopic<'a> {
    producer: &'a Producer,
    raw: *mut Topic,
}

impl ProducerTopic<'_> {
    /// Produce a record: copy it into the queue. `task` is in the report if it fails.
    ///
    /// # Errors
    /// The code of the error, for example that the queue is full.
    pub fn produce<'h>(
        &self,
        record: &Record<'_>,
        headers: impl ExactSizeIterator<Item = (&'h [u8], Option<&'h [u8]>)>,
        task: u32,
    ) -> Result<(), i32> {
        let api = self.producer.api;
        let headers = if headers.len() == 0 { null_mut() } else { self.headers(headers) };
        let fields = [
            ProduceField { kind: field::RKT, value: FieldValue { topic: self.raw } },
            ProduceField { kind: field::PARTITION, value: FieldValue { int32: record.partition } },
            ProduceField { kind: field::MSGFLAGS, value: FieldValue { int: COPY } },
            ProduceField { kind: field::VALUE, value: FieldValue { bytes: FieldBytes::of(record.value) } },
            ProduceField { kind: field::KEY, value: FieldValue { bytes: FieldBytes::of(record.key) } },
            ProduceField { kind: field::TIMESTAMP, value: FieldValue { int64: record.timestamp_ms } },
            ProduceField { kind: field::OPAQUE, value: FieldValue { opaque: task as usize as *mut c_void } },
            ProduceField { kind: field::HEADERS, value: FieldValue { headers } },
        ];
        let count = if headers.is_null() { fields.len() - 1 } else { fields.len() };
        // SAFETY: all fields are valid during the call. It takes the headers, unless it fails.
        unsafe {
            let failure = (api.produceva)(self.producer.handle, fields.as_ptr(), count);
            if failure.is_null() {
                return Ok(());
            }
            let code = (api.error_code)(failure);
            (api.error_destroy)(failure);
            if !headers.is_null() {
                (api.headers_destroy)(headers);
            }
            Err(code)
        }
    }

    fn headers<'h>(&self, headers: impl ExactSizeIterator<Item = (&'h [u8], Option<&'h [u8]>)>) -> *mut super::Headers {
        let api = self.producer.api;
        // SAFETY: names and values are copied by the calls.
        unsafe {
            let made = (api.headers_new)(headers.len());
            for (name, value) in headers {
                let value = FieldBytes::of(value);
                let (start, length) = (value.start, value.length as isize);
                (api.header_add)(made, name.as_ptr().cast(), name.len() as isize, start, length);
            }
            made
        }
    }

    /// Produce records without headers and times to one partition, or to those that librdkafka's partitioner chooses (-1), in
    /// order; quicker than one by one. Return the first that is refused, with the code of the error. After it, some may have
    /// been taken unless the queue is full: so a record that may be too large (see `may_refuse`) comes alone.
    pub fn produce_all<'r>(
        &self,
        partition: i32,
        records: impl ExactSizeIterator<Item = (Option<&'r [u8]>, Option<&'r [u8]>)>,
        task: u32,
    ) -> Option<(usize, i32)> {
        let mut raw: Vec<RawMessage> = records
            .map(|(key, value)| {
                let (key, value) = (FieldBytes::of(key), FieldBytes::of(value));
                RawMessage {
                    err: 0,
                    rkt: null_mut(),
                    partition,
                    payload: value.start.cast_mut(),
                    len: value.length,
                    key: key.start.cast_mut(),
                    key_len: key.length,
                    offset: 0,
                    private: task as usize as *mut c_void,
                }
            })
            .collect();
        let count = c_int::try_from(raw.len()).unwrap_or(c_int::MAX);
        // SAFETY: so many messages are valid during the call; it only reads keys and values.
        let good = unsafe { (self.producer.api.produce_batch)(self.raw, partition, COPY, raw.as_mut_ptr(), count) };
        if good == count {
            return None;
        }
        raw.iter().enumerate().find(|(_, message)| message.err != 0).map(|(place, message)| (place, message.err))
    }
}

impl Drop for ProducerTopic<'_> {
    fn drop(&mut self) {
        // SAFETY: made in `Producer::topic`, used nowhere else.
        unsafe { (self.producer.api.topic_destroy)(self.raw) };
    }
}
