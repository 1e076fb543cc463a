//! A consumer of librdkafka, and the messages that it returns.

use std::ffi::{CStr, c_char, c_int};
use std::marker::PhantomData;
use std::ptr::{null, null_mut};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use super::{
    Api, CONSUMER, EVENT_ERROR, EVENT_LOG, EVENT_STATS, EVENT_TOKEN_WANTED, Error, Failure, Handle, Headers,
    INVALID_ARG, Metadata, NO_CONSUMER_CLOSE, Queue, RawMessage, RawPartitions, Report, TEXT_BYTES, Token, bytes,
    c_text, configured, give_token, loaded, milliseconds, text,
};

/// The code for something that is not there: a record without headers.
const NO_ENTRY: c_int = -156;

/// A partition of a topic with an offset.
pub type Partition<'a> = (&'a str, i32, i64);

struct List {
    api: &'static Api,
    raw: *mut RawPartitions,
}

impl List {
    fn of(api: &'static Api, partitions: &[Partition<'_>]) -> Result<Self, Error> {
        // SAFETY: the list belongs to this value.
        let list = Self { api, raw: unsafe { (api.topic_partition_list_new)(partitions.len() as c_int) } };
        for (topic, partition, offset) in partitions {
            let topic = c_text(topic)?;
            // SAFETY: the list copies the name, and returns its new element.
            unsafe { (*(api.topic_partition_list_add)(list.raw, topic.as_ptr(), *partition)).offset = *offset };
        }
        Ok(list)
    }

    fn offsets(&self) -> Vec<i64> {
        // SAFETY: the list is valid. Without elements it has no memory for them.
        if unsafe { (*self.raw).elems.is_null() } {
            return Vec::new();
        }
        // SAFETY: the list has so many elements.
        let elements = unsafe { slice::from_raw_parts((*self.raw).elems, (*self.raw).cnt as usize) };
        elements.iter().map(|element| element.offset).collect()
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: made in `of`, used nowhere else.
        unsafe { (self.api.topic_partition_list_destroy)(self.raw) };
    }
}

/// A consumer: it is assigned what to fetch, joins no group, and calls nothing back.
pub struct Client {
    api: &'static Api,
    handle: *mut Handle,
    messages: *mut Queue,
    reports: *mut Queue,
}

// SAFETY: librdkafka's handles and queues may be used by several threads at a time.
unsafe impl Send for Client {}
// SAFETY: as above.
unsafe impl Sync for Client {}

impl Client {
    /// Make a consumer. With `wants_tokens` it reports when it wants a token, and waits until it is given one.
    ///
    /// # Errors
    /// If librdkafka does not accept the properties.
    pub fn new(properties: &[(String, String)], wants_tokens: bool) -> Result<Self, Error> {
        let api = loaded()?;
        let conf = configured(api, properties)?;
        let mut problem: [c_char; TEXT_BYTES] = [0; TEXT_BYTES];
        // SAFETY: `new` takes the configuration, unless it fails. The queues belong to this value.
        unsafe {
            let events = EVENT_LOG | EVENT_ERROR | EVENT_STATS;
            (api.conf_set_events)(conf, if wants_tokens { events | EVENT_TOKEN_WANTED } else { events });
            let handle = (api.new)(CONSUMER, conf, problem.as_mut_ptr(), TEXT_BYTES);
            if handle.is_null() {
                (api.conf_destroy)(conf);
                return Err(Error::new(INVALID_ARG, text(problem.as_ptr())));
            }
            (api.set_log_queue)(handle, null_mut()); // its main queue
            let (messages, reports) = ((api.queue_get_consumer)(handle), (api.queue_get_main)(handle));
            if messages.is_null() {
                (api.queue_destroy)(reports);
                (api.destroy_flags)(handle, NO_CONSUMER_CLOSE);
                return Err(Error::new(INVALID_ARG, "a consumer needs a group.id"));
            }
            Ok(Self { api, handle, messages, reports })
        }
    }

    /// Fetch these partitions from these offsets on, and no others.
    ///
    /// # Errors
    /// If librdkafka refuses it.
    pub fn assign(&self, partitions: &[Partition<'_>]) -> Result<(), Error> {
        let list = List::of(self.api, partitions)?;
        // SAFETY: both live during the call, which copies the list.
        self.checked(unsafe { (self.api.assign)(self.handle, list.raw) })
    }

    /// Fetch these partitions too.
    ///
    /// # Errors
    /// If librdkafka refuses it, for example because one is fetched already.
    pub fn add(&self, partitions: &[Partition<'_>]) -> Result<(), Error> {
        let list = List::of(self.api, partitions)?;
        // SAFETY: as in `assign`.
        self.accepted(unsafe { (self.api.incremental_assign)(self.handle, list.raw) })
    }

    /// Fetch these partitions no more.
    ///
    /// # Errors
    /// If librdkafka refuses it, for example because one is not fetched.
    pub fn remove(&self, partitions: &[Partition<'_>]) -> Result<(), Error> {
        let list = List::of(self.api, partitions)?;
        // SAFETY: as in `assign`.
        self.accepted(unsafe { (self.api.incremental_unassign)(self.handle, list.raw) })
    }

    /// Return the offset behind the last record or transaction marker that was consumed; below 0 if there was none.
    ///
    /// # Errors
    /// If librdkafka refuses it.
    pub fn positions(&self, partitions: &[Partition<'_>]) -> Result<Vec<i64>, Error> {
        let list = List::of(self.api, partitions)?;
        // SAFETY: both live during the call, which writes the offsets into the list.
        self.checked(unsafe { (self.api.position)(self.handle, list.raw) })?;
        Ok(list.offsets())
    }

    /// Ask a broker about a topic, which the client then knows.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn look_up(&self, topic: &str, timeout: Duration) -> Result<(), Error> {
        let name = c_text(topic)?;
        // SAFETY: topic and answer belong to this function.
        unsafe {
            let topic = (self.api.topic_new)(self.handle, name.as_ptr(), null_mut());
            if topic.is_null() {
                return Err(Error::new(INVALID_ARG, "not the name of a topic"));
            }
            let mut answer: *const Metadata = null();
            let code = (self.api.metadata)(self.handle, 0, topic, &raw mut answer, milliseconds(timeout));
            if !answer.is_null() {
                (self.api.metadata_destroy)(answer);
            }
            (self.api.topic_destroy)(topic);
            self.checked(code)
        }
    }

    /// Return up to `count` messages; wait for the last of them up to a time.
    pub fn consume(self: &Arc<Self>, count: usize, timeout: Duration) -> Messages {
        let mut raw: Vec<*mut RawMessage> = Vec::with_capacity(count);
        // SAFETY: there is room for so many pointers; the messages belong to the result from here on.
        unsafe {
            let found = (self.api.consume_batch_queue)(self.messages, milliseconds(timeout), raw.as_mut_ptr(), count);
            raw.set_len(usize::try_from(found).unwrap_or(0)); // -1 is an error that only a wrong queue has
        }
        Messages { client: Arc::clone(self), raw, released: 0 }
    }

    /// Return what the client has to report, without waiting. It also does what librdkafka leaves to the owner of a client,
    /// as asking for a new token.
    pub fn reports(&self) -> Vec<Report> {
        let mut found = Vec::new();
        loop {
            // SAFETY: the event belongs to this function.
            unsafe {
                let event = (self.api.queue_poll)(self.reports, 0);
                if event.is_null() {
                    return found;
                }
                match (self.api.event_type)(event) {
                    EVENT_ERROR => found.push(Report::Failed(Error::new(
                        (self.api.event_error)(event),
                        text((self.api.event_error_string)(event)),
                    ))),
                    EVENT_LOG => {
                        let (mut facility, mut line, mut level) = (null(), null(), 0);
                        if (self.api.event_log)(event, &raw mut facility, &raw mut line, &raw mut level) == 0 {
                            found.push(Report::Logged(level, text(facility), text(line)));
                        }
                    }
                    EVENT_STATS => found.push(Report::Statistics(text((self.api.event_stats)(event)))),
                    EVENT_TOKEN_WANTED => found.push(Report::TokenWanted),
                    _ => (),
                }
                (self.api.event_destroy)(event);
            }
        }
    }

    /// Give the client the token that it wants, or the reason why there is none.
    ///
    /// # Errors
    /// If librdkafka does not accept the token.
    pub fn give_token(&self, token: Result<&Token, &str>) -> Result<(), Error> {
        // SAFETY: the handle is valid.
        unsafe { give_token(self.api, self.handle, token) }
    }

    fn checked(&self, code: c_int) -> Result<(), Error> {
        if code == 0 {
            return Ok(());
        }
        Err(self.api.error(code))
    }

    fn accepted(&self, failure: *mut Failure) -> Result<(), Error> {
        if failure.is_null() {
            return Ok(());
        }
        // SAFETY: the failure belongs to this function.
        unsafe {
            let error = Error::new((self.api.error_code)(failure), text((self.api.error_string)(failure)));
            (self.api.error_destroy)(failure);
            Err(error)
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: made in `new`; no message is left, because `Messages` keeps its client.
        unsafe {
            (self.api.queue_destroy)(self.messages);
            (self.api.queue_destroy)(self.reports);
            (self.api.destroy_flags)(self.handle, NO_CONSUMER_CLOSE);
        }
    }
}

/// Records and errors, in the order of their arrival.
pub struct Messages {
    client: Arc<Client>,
    raw: Vec<*mut RawMessage>,
    released: usize,
}

// SAFETY: nobody else has the messages, and librdkafka does not care which thread reads and releases them.
unsafe impl Send for Messages {}

impl Messages {
    /// Return no messages.
    pub fn none(client: &Arc<Client>) -> Self {
        Self { client: Arc::clone(client), raw: Vec::new(), released: 0 }
    }

    /// Return whether none is left.
    pub fn is_empty(&self) -> bool {
        self.released == self.raw.len()
    }

    /// Return those that are left.
    pub fn iter(&self) -> impl Iterator<Item = Message<'_>> {
        // SAFETY: the messages are valid until they are released, for which this value must not be borrowed.
        self.raw[self.released..].iter().map(|raw| Message {
            api: self.client.api,
            raw: unsafe { &**raw },
            messages: PhantomData,
        })
    }

    /// Release those of a partition.
    pub fn forget(&mut self, topic: &str, partition: i32) {
        let mut left = Vec::new();
        for raw in self.raw.drain(self.released..) {
            // SAFETY: as in `iter`.
            let message = Message { api: self.client.api, raw: unsafe { &*raw }, messages: PhantomData };
            if message.partition() == partition && message.topic() == topic {
                // SAFETY: as in `release`. The message is not used any more.
                unsafe { (self.client.api.message_destroy)(raw) };
            } else {
                left.push(raw);
            }
        }
        (self.raw, self.released) = (left, 0);
    }

    /// Release the first ones of those that are left.
    pub fn release(&mut self, count: usize) {
        let end = self.raw.len().min(self.released + count);
        for raw in &self.raw[self.released..end] {
            // SAFETY: each one came from `consume`, and is released once.
            unsafe { (self.client.api.message_destroy)(*raw) };
        }
        self.released = end;
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.release(usize::MAX - self.released);
    }
}

/// A record, or an error.
#[derive(Clone, Copy)]
pub struct Message<'a> {
    api: &'static Api,
    raw: &'a RawMessage,
    messages: PhantomData<&'a Messages>,
}

impl<'a> Message<'a> {
    /// Return the error; None for a record.
    pub fn error(&self) -> Option<Error> {
        // SAFETY: the message is valid, and so is its text as long.
        (self.raw.err != 0).then(|| Error::new(self.raw.err, unsafe { text((self.api.message_errstr)(self.raw)) }))
    }

    /// Return whether two messages of one `Messages` are of the same partition. It is quicker than to compare names.
    pub fn is_of_partition_of(&self, other: &Message<'_>) -> bool {
        self.raw.rkt == other.raw.rkt && self.raw.partition == other.raw.partition
    }

    /// Return the topic; "" for an error that is about no topic.
    pub fn topic(&self) -> String {
        if self.raw.rkt.is_null() {
            return String::new();
        }
        // SAFETY: the message holds a reference to its topic.
        unsafe { text((self.api.topic_name)(self.raw.rkt)) }
    }

    /// Return the partition; -1 for an error that is about none.
    pub fn partition(&self) -> i32 {
        self.raw.partition
    }

    /// Return the offset.
    pub fn offset(&self) -> i64 {
        self.raw.offset
    }

    /// Return the key.
    pub fn key(&self) -> Option<&'a [u8]> {
        // SAFETY: librdkafka says so, while the message lives.
        unsafe { bytes(self.raw.key, self.raw.key_len) }
    }

    /// Return the value of a record.
    pub fn value(&self) -> Option<&'a [u8]> {
        // SAFETY: librdkafka says so, while the message lives.
        unsafe { bytes(self.raw.payload, self.raw.len) }
    }

    /// Return the time in milliseconds, and its type: 0 for none, 1 for the creation, 2 for the append.
    pub fn timestamp(&self) -> (i64, i32) {
        let mut kind: c_int = 0;
        // SAFETY: both pointers are valid during the call.
        let time_ms = unsafe { (self.api.message_timestamp)(self.raw, &raw mut kind) };
        (time_ms, kind)
    }

    /// Return the epoch of the leader; None if it is unknown.
    pub fn leader_epoch(&self) -> Option<i32> {
        // SAFETY: the message is valid.
        Some(unsafe { (self.api.message_leader_epoch)(self.raw) }).filter(|epoch| *epoch >= 0)
    }

    /// Call a function with name and value of each header, in order. What is not UTF-8 in a name becomes U+FFFD, as in Java.
    ///
    /// # Errors
    /// What is wrong if librdkafka cannot read the headers: they are damaged, or more than 100,000.
    pub fn for_each_header(&self, mut each: impl FnMut(&str, Option<&[u8]>)) -> Result<(), String> {
        let mut headers: *mut Headers = null_mut();
        // SAFETY: the headers belong to the message, and their texts and bytes to the headers.
        unsafe {
            match (self.api.message_headers)(self.raw, &raw mut headers) {
                0 => (),
                NO_ENTRY => return Ok(()),
                code => return Err(format!("its headers cannot be read ({})", self.api.error(code).text)),
            }
            for index in 0.. {
                let (mut name, mut value, mut length) = (null(), null(), 0);
                let code = (self.api.header_get_all)(headers, index, &raw mut name, &raw mut value, &raw mut length);
                if code != 0 {
                    break;
                }
                each(&CStr::from_ptr(name).to_string_lossy(), bytes(value, length));
            }
        }
        Ok(())
    }
}
