//! librdkafka, as a safe interface: the only module with `unsafe`, with its parts in the folder `librdkafka`.
//!
//! The library is not linked. It is the file that confluent-kafka has loaded into this process already, so both read with the
//! same version and the same TLS. Only the public C API is used, and only with handles that are made here.
//!
//! This module has what its parts share: `consumer` and `producer`. Why the calls are sound: every pointer that librdkafka
//! returns is owned by one value here, which releases it once, when it is dropped at the latest. `Messages` keeps its client, and what a `Message` returns borrows the `Messages`, so no memory of
//! librdkafka is used after it was released. A handle may be used by several threads, says librdkafka.
#![allow(unsafe_code)]

use std::error::Error as _;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::slice;
use std::sync::OnceLock;
use std::time::Duration;

use libloading::Library;

mod consumer;
pub mod producer;

pub use consumer::{Client, Message, Messages, Partition};
use producer::ProduceField;

/// An error of librdkafka.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// librdkafka's code, below 0 for errors of its own.
    pub code: i32,
    /// What it says about it.
    pub text: String,
    /// What it means for a producer.
    pub flags: Flags,
}

impl Error {
    /// Return an error that means nothing more.
    pub fn new(code: i32, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), flags: Flags::default() }
    }
}

/// What an error means for a producer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags {
    /// It can be used no more.
    pub fatal: bool,
    /// The call may be made again.
    pub retriable: bool,
    /// The transaction has to be aborted.
    pub requires_abort: bool,
}

/// The code of a wrong or missing argument.
pub const INVALID_ARG: i32 = -186;
/// The code of the event for the end of a log.
pub const PARTITION_EOF: i32 = -191;

const OUTDATED: &str = "librdkafka has no function";
const EVENT_LOG: c_int = 0x4;
const EVENT_ERROR: c_int = 0x8;
const EVENT_STATS: c_int = 0x40;
const EVENT_TOKEN_WANTED: c_int = 0x100;
const PRODUCER: c_int = 0;
const CONSUMER: c_int = 1;
const CONF_OK: c_int = 0;
const NO_CONSUMER_CLOSE: c_int = 0x8;
const TEXT_BYTES: usize = 512;
const LOG_QUEUE: (&str, &str) = ("log.queue", "true");

macro_rules! opaque {
    ($($name:ident)*) => { $( #[repr(C)] struct $name { _private: [u8; 0] } )* };
}

opaque!(Conf Handle Queue Topic Event Failure Headers);

#[repr(C)]
struct Metadata {
    broker_cnt: c_int,
    brokers: *const c_void,
    topic_cnt: c_int,
    topics: *const MetadataTopic,
    broker_id: i32,
    broker_name: *const c_char,
}

#[repr(C)]
struct MetadataTopic {
    topic: *const c_char,
    partition_cnt: c_int,
    partitions: *const c_void,
    err: c_int,
}

#[repr(C)]
struct RawMessage {
    err: c_int,
    rkt: *mut Topic,
    partition: i32,
    payload: *mut c_void,
    len: usize,
    key: *mut c_void,
    key_len: usize,
    offset: i64,
    private: *mut c_void,
}

#[repr(C)]
struct RawPartition {
    topic: *mut c_char,
    partition: i32,
    offset: i64,
    metadata: *mut c_void,
    metadata_size: usize,
    opaque: *mut c_void,
    err: c_int,
    private: *mut c_void,
}

#[repr(C)]
struct RawPartitions {
    cnt: c_int,
    size: c_int,
    elems: *mut RawPartition,
}

macro_rules! api {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        struct Api { $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)* }

        impl Api {
            /// SAFETY: the library has to be librdkafka: the types below are those of its header.
            unsafe fn of(library: &Library) -> Result<Self, String> {
                Ok(Self { $($name: *unsafe { library.get(concat!("rd_kafka_", stringify!($name)).as_bytes()) }
                    .map_err(|_| format!("{OUTDATED} rd_kafka_{}", stringify!($name)))?,)* })
            }
        }
    };
}

api! {
    version_str() -> *const c_char;
    err2str(c_int) -> *const c_char;
    conf_new() -> *mut Conf;
    conf_destroy(*mut Conf);
    conf_set(*mut Conf, *const c_char, *const c_char, *mut c_char, usize) -> c_int;
    conf_set_events(*mut Conf, c_int);
    new(c_int, *mut Conf, *mut c_char, usize) -> *mut Handle;
    destroy_flags(*mut Handle, c_int);
    set_log_queue(*mut Handle, *mut Queue) -> c_int;
    queue_get_main(*mut Handle) -> *mut Queue;
    queue_get_consumer(*mut Handle) -> *mut Queue;
    queue_destroy(*mut Queue);
    queue_poll(*mut Queue, c_int) -> *mut Event;
    event_type(*const Event) -> c_int;
    event_error(*mut Event) -> c_int;
    event_error_string(*mut Event) -> *const c_char;
    event_log(*mut Event, *mut *const c_char, *mut *const c_char, *mut c_int) -> c_int;
    event_stats(*mut Event) -> *const c_char;
    event_destroy(*mut Event);
    topic_partition_list_new(c_int) -> *mut RawPartitions;
    topic_partition_list_add(*mut RawPartitions, *const c_char, i32) -> *mut RawPartition;
    topic_partition_list_destroy(*mut RawPartitions);
    assign(*mut Handle, *const RawPartitions) -> c_int;
    incremental_assign(*mut Handle, *const RawPartitions) -> *mut Failure;
    incremental_unassign(*mut Handle, *const RawPartitions) -> *mut Failure;
    position(*mut Handle, *mut RawPartitions) -> c_int;
    error_code(*const Failure) -> c_int;
    error_string(*const Failure) -> *const c_char;
    error_destroy(*mut Failure);
    topic_new(*mut Handle, *const c_char, *mut c_void) -> *mut Topic;
    topic_destroy(*mut Topic);
    topic_name(*const Topic) -> *const c_char;
    metadata(*mut Handle, c_int, *mut Topic, *mut *const Metadata, c_int) -> c_int;
    metadata_destroy(*const Metadata);
    consume_batch_queue(*mut Queue, c_int, *mut *mut RawMessage, usize) -> isize;
    message_destroy(*mut RawMessage);
    message_errstr(*const RawMessage) -> *const c_char;
    message_timestamp(*const RawMessage, *mut c_int) -> i64;
    message_leader_epoch(*const RawMessage) -> i32;
    message_headers(*const RawMessage, *mut *mut Headers) -> c_int;
    header_get_all(*const Headers, usize, *mut *const c_char, *mut *const c_void, *mut usize) -> c_int;
    conf_set_opaque(*mut Conf, *mut c_void);
    conf_set_dr_msg_cb(*mut Conf, Option<unsafe extern "C" fn(*mut Handle, *const RawMessage, *mut c_void)>);
    conf_set_error_cb(*mut Conf, Option<unsafe extern "C" fn(*mut Handle, c_int, *const c_char, *mut c_void)>);
    conf_set_stats_cb(*mut Conf, Option<unsafe extern "C" fn(*mut Handle, *mut c_char, usize, *mut c_void) -> c_int>);
    conf_set_log_cb(*mut Conf, Option<unsafe extern "C" fn(*const Handle, c_int, *const c_char, *const c_char)>);
    conf_set_oauthbearer_token_refresh_cb(*mut Conf, Option<unsafe extern "C" fn(*mut Handle, *const c_char, *mut c_void)>);
    oauthbearer_set_token(*mut Handle, *const c_char, i64, *const c_char, *const *const c_char, usize, *mut c_char, usize) -> c_int;
    oauthbearer_set_token_failure(*mut Handle, *const c_char) -> c_int;
    opaque(*const Handle) -> *mut c_void;
    poll(*mut Handle, c_int) -> c_int;
    flush(*mut Handle, c_int) -> c_int;
    purge(*mut Handle, c_int) -> c_int;
    outq_len(*mut Handle) -> c_int;
    produceva(*mut Handle, *const ProduceField, usize) -> *mut Failure;
    produce_batch(*mut Topic, i32, c_int, *mut RawMessage, c_int) -> c_int;
    headers_new(usize) -> *mut Headers;
    headers_destroy(*mut Headers);
    header_add(*mut Headers, *const c_char, isize, *const c_void, isize) -> c_int;
    init_transactions(*mut Handle, c_int) -> *mut Failure;
    begin_transaction(*mut Handle) -> *mut Failure;
    abort_transaction(*mut Handle, c_int) -> *mut Failure;
    fatal_error(*mut Handle, *mut c_char, usize) -> c_int;
    error_is_fatal(*const Failure) -> c_int;
    error_is_retriable(*const Failure) -> c_int;
    error_txn_requires_abort(*const Failure) -> c_int;
}

impl Api {
    /// Return librdkafka's error of a code.
    fn error(&self, code: c_int) -> Error {
        // SAFETY: returns a constant text.
        Error::new(code, unsafe { text((self.err2str)(code)) })
    }
}

static API: OnceLock<Api> = OnceLock::new();

/// Load librdkafka from a file, if it has this version. Only the first one that is loaded in a process is used.
///
/// # Errors
/// A text if the file cannot be loaded, has another version, or lacks a function that is needed.
pub fn load(path: &str, version: &str) -> Result<(), String> {
    if API.get().is_none() {
        // SAFETY: the caller names the librdkafka that confluent-kafka has loaded; to load it again runs nothing.
        let library = unsafe { Library::new(path) }.map_err(|error| {
            let reason = error.source().map(|source| format!(": {source}")).unwrap_or_default();
            format!("{error}{reason}")
        })?;
        // SAFETY: as above. The library is never unloaded once it is used, because it is forgotten.
        let found = unsafe { Api::of(&library) }?;
        is_version(&found, version)?;
        std::mem::forget(library);
        let _ = API.set(found);
    }
    is_version(loaded().map_err(|error| error.text)?, version)
}

fn is_version(api: &Api, version: &str) -> Result<(), String> {
    // SAFETY: returns a constant text.
    let found = unsafe { text((api.version_str)()) };
    if found == version { Ok(()) } else { Err(format!("its version is {found}, and confluent-kafka has {version}")) }
}

fn loaded() -> Result<&'static Api, Error> {
    API.get().ok_or_else(|| Error::new(INVALID_ARG, "librdkafka is not loaded"))
}

/// Return a copy of a C text; "" for a null pointer.
///
/// SAFETY: the pointer is null, or a text with a zero at its end.
unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() { String::new() } else { unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned() }
}

/// Return bytes of librdkafka; None for a null pointer.
///
/// SAFETY: the pointer is null, or to so many bytes, which live for `'a`.
unsafe fn bytes<'a>(pointer: *const c_void, length: usize) -> Option<&'a [u8]> {
    if pointer.is_null() { None } else { Some(unsafe { slice::from_raw_parts(pointer.cast(), length) }) }
}

fn c_text(value: &str) -> Result<CString, Error> {
    CString::new(value).map_err(|_| Error::new(INVALID_ARG, "a text has a zero byte in it"))
}

fn milliseconds(time: Duration) -> c_int {
    c_int::try_from(time.as_millis()).unwrap_or(c_int::MAX)
}

/// Return a configuration, which belongs to the caller. The client that is made of it puts its log into a queue.
fn configured<'a>(api: &Api, properties: impl IntoIterator<Item = &'a (String, String)>) -> Result<*mut Conf, Error> {
    // SAFETY: the configuration belongs to this function.
    let conf = unsafe { (api.conf_new)() };
    let mut problem: [c_char; TEXT_BYTES] = [0; TEXT_BYTES];
    let pairs = properties.into_iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in pairs.chain([LOG_QUEUE]) {
        let set = c_text(name).and_then(|name| Ok((name, c_text(value)?))).and_then(|(name, value)| {
            // SAFETY: all texts live during the call, which copies them.
            let result =
                unsafe { (api.conf_set)(conf, name.as_ptr(), value.as_ptr(), problem.as_mut_ptr(), TEXT_BYTES) };
            // SAFETY: librdkafka ends its text with a zero.
            let said = || unsafe { text(problem.as_ptr()) };
            if result == CONF_OK { Ok(()) } else { Err(Error::new(INVALID_ARG, said())) }
        });
        if let Err(error) = set {
            // SAFETY: nobody else has it.
            unsafe { (api.conf_destroy)(conf) };
            return Err(error);
        }
    }
    Ok(conf)
}

/// A token for SASL's OAUTHBEARER.
pub struct Token {
    /// The token.
    pub text: String,
    /// When it expires, in milliseconds since 1970.
    pub expires_at_ms: i64,
    /// Whom it is for.
    pub principal: String,
    /// The extensions of RFC 7628, by name.
    pub extensions: Vec<(String, String)>,
}

/// Give a client the token that it wants, or the reason why there is none.
///
/// SAFETY: the handle is valid.
unsafe fn give_token(api: &Api, handle: *mut Handle, token: Result<&Token, &str>) -> Result<(), Error> {
    let mut problem: [c_char; TEXT_BYTES] = [0; TEXT_BYTES];
    let code = match token {
        Ok(token) => {
            let (value, principal) = (c_text(&token.text)?, c_text(&token.principal)?);
            let texts = token.extensions.iter().flat_map(|(name, value)| [name, value]);
            let texts = texts.map(|text| c_text(text)).collect::<Result<Vec<_>, _>>()?;
            let pointers: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
            // SAFETY: all texts live during the call, which copies them.
            unsafe {
                (api.oauthbearer_set_token)(
                    handle,
                    value.as_ptr(),
                    token.expires_at_ms,
                    principal.as_ptr(),
                    pointers.as_ptr(),
                    pointers.len(),
                    problem.as_mut_ptr(),
                    TEXT_BYTES,
                )
            }
        }
        Err(reason) => {
            let reason = c_text(reason)?;
            // SAFETY: as above.
            unsafe { (api.oauthbearer_set_token_failure)(handle, reason.as_ptr()) }
        }
    };
    // SAFETY: librdkafka ends its text with a zero.
    if code == 0 { Ok(()) } else { Err(Error::new(code, unsafe { text(problem.as_ptr()) })) }
}

/// What a client reports outside of any call.
#[derive(Debug)]
pub enum Report {
    /// An error, for example a refused login.
    Failed(Error),
    /// A line of its log: level (as in syslog), facility and text.
    Logged(i32, String, String),
    /// Its statistics, as JSON. They come if `statistics.interval.ms` asks for them.
    Statistics(String),
    /// It wants a new token.
    TokenWanted,
}
