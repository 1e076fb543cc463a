//! The schemas of messages, by their ids: before a message, or in a header of its record.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

use crate::fault::Unsupported;

/// The bytes of a schema's id, with the byte before it.
pub(crate) const ID_BYTES: usize = 5;
/// The bytes of a schema's GUID, with the byte before it.
pub(crate) const GUID_BYTES: usize = 17;

/// The id of a schema.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    /// An id, as it is before a message.
    Id(u32),
    /// The beginning of a header that has another id, or more than an id.
    Header(Vec<u8>),
}

/// How the messages of a schema are read.
pub(crate) trait Plan: Sized {
    /// Read a plan from its JSON.
    fn parse(plan: &Value) -> Result<Self, Unsupported>;

    /// Return the id of a message's schema, and the part of the message after it; or why it has none.
    fn key<'a>(message: &'a [u8], header: Option<&[u8]>) -> Result<(Key, &'a [u8]), NoKey>;
}

/// Why a message has no id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoKey {
    /// It is too short.
    Short,
    /// It begins otherwise.
    Foreign,
    /// What is wrong with its header.
    Header(Arc<str>),
}

/// What is known about a schema.
#[derive(Debug)]
enum Schema<P> {
    Known(Arc<P>),
    /// Why it is not known. It may be known for the next batch, so this is forgotten.
    Missing(Arc<str>),
}

/// The plans of messages.
#[derive(Debug)]
pub(crate) enum Plans<P> {
    /// All have this one.
    One(Arc<P>),
    /// Each has the one whose id it has.
    ById(ById<P>),
}

/// The plans that are known by now. All clones have the same.
#[derive(Debug)]
pub(crate) struct ById<P> {
    known: Arc<RwLock<HashMap<Key, Schema<P>>>>,
    last: Option<(Key, Arc<P>)>,
    /// The plan of all messages, if their ids do not matter.
    given: Option<Arc<P>>,
    /// Why a message without an id cannot be read.
    short: Arc<str>,
    foreign: Arc<str>,
}

impl<P> Clone for Plans<P> {
    fn clone(&self) -> Self {
        match self {
            Self::One(plan) => Self::One(Arc::clone(plan)),
            Self::ById(plans) => Self::ById(ById {
                known: Arc::clone(&plans.known),
                last: plans.last.clone(),
                given: plans.given.clone(),
                short: Arc::clone(&plans.short),
                foreign: Arc::clone(&plans.foreign),
            }),
        }
    }
}

impl<P: Plan> Plans<P> {
    /// Return the plans of a spec: its `plan`, or those that are learned. `short` and `foreign` say why a message has no id.
    pub(crate) fn parse(spec: &Value, with_ids: bool) -> Result<Self, Unsupported> {
        let given = if spec["plan"].is_null() && with_ids { None } else { Some(Arc::new(P::parse(&spec["plan"])?)) };
        if let (Some(plan), false) = (&given, with_ids) {
            return Ok(Self::One(Arc::clone(plan)));
        }
        let words = |name: &str| Arc::from(spec[name].as_str().unwrap_or("it has no schema id"));
        let (short, foreign) = (words("short"), words("foreign"));
        Ok(Self::ById(ById { known: Arc::default(), last: None, given, short, foreign }))
    }

    /// Return the id of a message's schema, if that is not known yet.
    #[inline]
    pub(crate) fn unknown(&mut self, message: &[u8], header: Option<&[u8]>) -> Option<Key> {
        let Self::ById(plans) = self else { return None };
        if plans.given.is_some() {
            return None;
        }
        let (key, _) = P::key(message, header).ok()?;
        if matches!(&plans.last, Some((last, _)) if *last == key) {
            return None;
        }
        let known = plans.known.read().unwrap_or_else(PoisonError::into_inner);
        if matches!(known.get(&key), Some(Schema::Known(_))) { None } else { Some(key) }
    }

    /// Add the schema with an id: a plan, or an object with the reason why it is `missing`, until it is learned again.
    pub(crate) fn learn(&self, key: Key, schema: &str) -> Result<(), Unsupported> {
        let Self::ById(plans) = self else { return Ok(()) };
        let found: Value = serde_json::from_str(schema).map_err(|error| Unsupported(error.to_string()))?;
        let learned = match found["missing"].as_str() {
            Some(words) => Schema::Missing(words.into()),
            None => Schema::Known(Arc::new(P::parse(&found)?)),
        };
        plans.known.write().unwrap_or_else(PoisonError::into_inner).insert(key, learned);
        Ok(())
    }

    /// Forget why schemas were missing.
    pub(crate) fn forget(&mut self) {
        let Self::ById(plans) = self else { return };
        let mut known = plans.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.values().any(|schema| matches!(schema, Schema::Missing(_))) {
            known.retain(|_, schema| matches!(schema, Schema::Known(_)));
        }
    }

    /// Return the plan of a message, and the part of it that is read by the plan; or why there is none.
    #[inline]
    pub(crate) fn plan<'a>(
        &'a mut self,
        message: &'a [u8],
        header: Option<&[u8]>,
    ) -> Result<(&'a P, &'a [u8]), Arc<str>> {
        match self {
            Self::One(plan) => Ok((plan, message)),
            Self::ById(plans) => {
                let (key, body) = P::key(message, header).map_err(|reason| match reason {
                    NoKey::Short => Arc::clone(&plans.short),
                    NoKey::Foreign => Arc::clone(&plans.foreign),
                    NoKey::Header(words) => words,
                })?;
                Ok((plans.find(key)?, body))
            }
        }
    }
}

impl<P> ById<P> {
    #[inline]
    fn find(&mut self, key: Key) -> Result<&P, Arc<str>> {
        const UNKNOWN: &str = "its schema was not looked up";
        if let Some(plan) = &self.given {
            return Ok(plan);
        }
        if self.last.as_ref().is_none_or(|(last, _)| *last != key) {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            match known.get(&key) {
                Some(Schema::Known(plan)) => self.last = Some((key, Arc::clone(plan))),
                Some(Schema::Missing(words)) => return Err(Arc::clone(words)),
                None => return Err(UNKNOWN.into()),
            }
        }
        self.last.as_ref().map(|(_, plan)| &**plan).ok_or_else(|| UNKNOWN.into())
    }
}

/// Return the id in a header, or else in the five bytes before a message; and the part of the message after it.
#[inline]
pub(crate) fn key_of<'a>(message: &'a [u8], header: Option<&[u8]>) -> Result<(Key, &'a [u8]), NoKey> {
    if let Some(header) = header {
        return Ok((key_of_header(header)?, message));
    }
    match message {
        [0, a, b, c, d, body @ ..] => Ok((Key::Id(u32::from_be_bytes([*a, *b, *c, *d])), body)),
        _ if message.len() < ID_BYTES => Err(NoKey::Short),
        _ => Err(NoKey::Foreign),
    }
}

fn key_of_header(header: &[u8]) -> Result<Key, NoKey> {
    Ok(match &header[..id_size(header)?] {
        [0, a, b, c, d] => Key::Id(u32::from_be_bytes([*a, *b, *c, *d])),
        id => Key::Header(id.to_vec()),
    })
}

/// Return the number of bytes of the id in a header; or why it has none. Ids are signed in Java, and never negative.
pub(crate) fn id_size(header: &[u8]) -> Result<usize, NoKey> {
    match header {
        [0, ..0x80, _, _, _, ..] => Ok(ID_BYTES),
        [1, ..] if header.len() >= GUID_BYTES => Ok(GUID_BYTES),
        _ => {
            let shown = hex(&header[..header.len().min(GUID_BYTES)]);
            let is_not = "which is neither a byte 1 and a GUID nor a byte 0 and an id";
            Err(NoKey::Header(format!("its header with a schema id has the value 0x{shown}, {is_not}").into()))
        }
    }
}

/// Return bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}
