//! The schemas of writers, by their ids: before a message, or in a header of its record.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

use super::plan::Plan;
use super::{Fault, Read, Reason};
use crate::Unsupported;

/// The bytes of a schema's id, with the byte before it.
const ID_BYTES: usize = 5;
/// The bytes of a schema's GUID, with the byte before it.
const GUID_BYTES: usize = 17;

/// The id of a writer's schema.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    /// An id, as it is before a message.
    Id(u32),
    /// The beginning of a header that has another id, or none.
    Header(Vec<u8>),
}

/// What is known about a schema.
#[derive(Debug, Clone)]
enum Schema {
    Known(Arc<Plan>),
    /// Why it is not known. It may be known for the next batch, so this is forgotten.
    Missing(Arc<str>),
}

/// How messages are written.
#[derive(Debug, Clone)]
pub(crate) enum Writers {
    /// All with one schema.
    One(Arc<Plan>),
    /// Each with the schema whose id it has.
    ById(ById),
}

/// The schemas that are known by now. All clones have the same.
#[derive(Debug, Clone)]
pub(crate) struct ById {
    known: Arc<RwLock<HashMap<Key, Schema>>>,
    last: Option<(Key, Arc<Plan>)>,
    /// Why a message without an id cannot be read: if it is too short, and if it begins otherwise.
    short: Arc<str>,
    foreign: Arc<str>,
}

impl Writers {
    /// Return the writers of a spec: for `avro` all have `plan`.
    pub(crate) fn parse(spec: &Value) -> Result<Self, Unsupported> {
        if spec["format"] == "avro" {
            return Ok(Self::One(Arc::new(Plan::parse(&spec["plan"])?)));
        }
        let words = |name: &str| Arc::from(spec[name].as_str().unwrap_or("it has no schema id"));
        Ok(Self::ById(ById { known: Arc::default(), last: None, short: words("short"), foreign: words("foreign") }))
    }

    /// Return the id of a message's schema, if that is not known yet.
    #[inline]
    pub(crate) fn unknown(&mut self, message: &[u8], header: Option<&[u8]>) -> Option<Key> {
        let Self::ById(schemas) = self else { return None };
        let (key, _) = schemas.key(message, header).ok()?;
        if matches!(&schemas.last, Some((last, _)) if *last == key) {
            return None;
        }
        let known = schemas.known.read().unwrap_or_else(PoisonError::into_inner);
        if matches!(known.get(&key), Some(Schema::Known(_))) { None } else { Some(key) }
    }

    /// Add the schema with an id: a plan, or an object with the reason why it is `missing`, until it is learned again.
    pub(crate) fn learn(&self, key: Key, schema: &str) -> Result<(), Unsupported> {
        let Self::ById(schemas) = self else { return Ok(()) };
        let found: Value = serde_json::from_str(schema).map_err(|error| Unsupported(error.to_string()))?;
        let learned = match found["missing"].as_str() {
            Some(words) => Schema::Missing(words.into()),
            None => Schema::Known(Arc::new(Plan::parse(&found)?)),
        };
        schemas.known.write().unwrap_or_else(PoisonError::into_inner).insert(key, learned);
        Ok(())
    }

    /// Forget why schemas were missing.
    pub(crate) fn forget(&mut self) {
        let Self::ById(schemas) = self else { return };
        let mut known = schemas.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.values().any(|schema| matches!(schema, Schema::Missing(_))) {
            known.retain(|_, schema| matches!(schema, Schema::Known(_)));
        }
    }

    /// Return the plan of a message, and the part of it that is the record.
    #[inline]
    pub(super) fn plan<'a>(&'a mut self, message: &'a [u8], header: Option<&[u8]>) -> Read<(&'a Plan, &'a [u8])> {
        match self {
            Self::One(plan) => Ok((plan, message)),
            Self::ById(schemas) => {
                let (key, body) = schemas.key(message, header).map_err(Fault::new)?;
                Ok((schemas.find(key)?, body))
            }
        }
    }
}

impl ById {
    /// Return the id of a message's schema, and the part of the message that is the record.
    #[inline]
    fn key<'a>(&self, message: &'a [u8], header: Option<&[u8]>) -> Result<(Key, &'a [u8]), Reason> {
        if let Some(header) = header {
            return Ok((key_of_header(header), message));
        }
        match message {
            [0, a, b, c, d, body @ ..] => Ok((Key::Id(u32::from_be_bytes([*a, *b, *c, *d])), body)),
            _ if message.len() < ID_BYTES => Err(Reason::Whole(Arc::clone(&self.short))),
            _ => Err(Reason::Whole(Arc::clone(&self.foreign))),
        }
    }

    #[inline]
    fn find(&mut self, key: Key) -> Read<&Plan> {
        if self.last.as_ref().is_none_or(|(last, _)| *last != key) {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            match known.get(&key) {
                Some(Schema::Known(plan)) => self.last = Some((key, Arc::clone(plan))),
                Some(Schema::Missing(words)) => return Err(Fault::new(Reason::Whole(Arc::clone(words)))),
                None => return Err(Fault::new(Reason::Whole("its schema was not looked up".into()))),
            }
        }
        self.last.as_ref().map(|(_, plan)| &**plan).ok_or_else(Fault::ends)
    }
}

/// Return the id in a header. Ids are signed in Java, and never negative.
fn key_of_header(header: &[u8]) -> Key {
    match header {
        [0, a @ ..0x80, b, c, d, ..] => Key::Id(u32::from_be_bytes([*a, *b, *c, *d])),
        _ => Key::Header(header[..header.len().min(GUID_BYTES)].to_vec()),
    }
}
