//! Plans: how the fields of messages become columns, as Python says it in JSON (`formats/protobuf/plan.py`).
//!
//! A plan has the `name` of the message type, and `messages`, of which the first one is that type. A message has the number of
//! its `columns`, and `fields`:
//!
//! | key | is |
//! |---|---|
//! | `number`, `name` | the field's |
//! | `kind` | its type as in .proto files; `message` or `enum` |
//! | `column` | the place of its column, if it is wanted |
//! | `message` | of a message: its place in `messages` |
//! | `as` | of a message that is one value: `timestamp`, `duration`, `value` with the `value` of a wrapper, or a name, for JSON |
//! | `names`, `closed` | of an enum: its numbers and names, if they are needed; whether other numbers are unknown fields |
//! | `checked` | whether a text has to be valid UTF-8 |
//! | `group` | whether a message is written as a group |
//! | `shape` | `repeated`, or `map` with `key` and `value`, which are fields |
//! | `required`, `oneof` | whether it has to be there; the number of its oneof |
//! | `default` | what a wanted column gets if the field is missing: null, a value as in a message (Base64), or `true` |

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::header;
use super::wire::{FIXED32, FIXED64, Irregular, LENGTH, Regular, VARINT, Wire, zigzag};
use crate::fault::Unsupported;
use crate::schema_ids::{self, Key, NoKey};

/// Fields up to this number are found in a table.
const SMALL_NUMBERS: u32 = 256;
const MOST_BITS: u32 = 64;
const MOST_COLUMNS: usize = 1 << 20;

/// How messages are read.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(super) name: String,
    /// The first one is that of the whole message.
    pub(super) messages: Vec<Message>,
}

/// How a message is read into a struct, or checked if it is not wanted.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) fields: Vec<Field>,
    /// The index of a field by its number, plus 1.
    by_small_number: Vec<u32>,
    by_number: HashMap<u32, usize>,
    /// The bits of the required fields.
    pub(super) required: u64,
    /// Whether it has more oneofs and required fields than there are bits.
    pub(super) is_irregular: bool,
    /// The index of the field of each column; None for a column without a field, which is null.
    pub(super) columns: Vec<Option<usize>>,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    pub(super) name: Arc<str>,
    pub(super) kind: Kind,
    pub(super) shape: Shape,
    /// The index of its column, if it is wanted.
    pub(super) column: Option<usize>,
    pub(super) default: Default,
    /// Its bit, if it is required or in a oneof. All fields of a oneof have the same bit.
    pub(super) bit: u64,
    pub(super) oneof: Option<u64>,
    pub(super) is_required: bool,
    pub(super) is_group: bool,
    /// Whether it has a bit or is a group.
    pub(super) is_watched: bool,
}

#[derive(Debug)]
pub(super) enum Shape {
    Single,
    Repeated,
    /// The entries, which have a key and a value.
    Map(Box<Message>),
}

/// What a column gets if its field is missing.
#[derive(Debug)]
pub(super) enum Default {
    Null,
    /// An array or a map without elements, or a struct of the defaults.
    Empty,
    /// A value as it is in a message.
    Value(Vec<u8>),
}

#[derive(Debug)]
pub(super) enum Kind {
    Bool,
    Int32,
    Int64,
    UInt32,
    UInt64,
    SInt32,
    SInt64,
    Fixed32,
    Fixed64,
    SFixed32,
    SFixed64,
    Float,
    Double,
    /// A text, and whether it has to be valid UTF-8 also where it is not wanted.
    String(bool),
    Bytes,
    Enum(Names),
    /// A message, by its index in the plan.
    Message(usize),
    /// A message that is wanted as one value.
    Value(usize, Box<As>),
    /// An entry of a map.
    Entry,
}

/// The value of one of Google's messages.
#[derive(Debug)]
pub(super) enum As {
    Timestamp,
    Duration,
    /// A `Struct`, a `Value` or a `ListValue` as JSON.
    Json(Json),
    /// A wrapper, as its value.
    Wrapped(Kind),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Json {
    Struct,
    Value,
    List,
}

/// The names of an enum, in order of their numbers.
#[derive(Debug)]
pub(super) struct Names {
    names: Vec<(i32, String)>,
    /// Whether other numbers are unknown fields.
    pub(super) is_closed: bool,
}

impl Message {
    #[inline]
    pub(super) fn field(&self, number: u32) -> Option<&Field> {
        let index = match self.by_small_number.get(number as usize) {
            Some(0) => return None,
            Some(next) => *next as usize - 1,
            None => *self.by_number.get(&number)?,
        };
        self.fields.get(index)
    }
}

impl Names {
    pub(super) fn find(&self, number: i32) -> Option<&str> {
        let names = &self.names;
        let found = match usize::try_from(number).ok().and_then(|at| names.get(at)) {
            Some(guessed) if guessed.0 == number => Some(guessed),
            _ => names.binary_search_by_key(&number, |name| name.0).ok().map(|at| &names[at]),
        };
        found.map(|(_, name)| name.as_str())
    }

    /// Return whether a number is that of an unknown field.
    pub(super) fn excludes(&self, number: i32) -> bool {
        self.is_closed && self.find(number).is_none()
    }
}

impl Kind {
    /// Return the wire type of a value. That of a group is another one.
    #[inline]
    pub(super) fn wire_type(&self) -> u32 {
        match self {
            Self::Fixed64 | Self::SFixed64 | Self::Double => FIXED64,
            Self::Fixed32 | Self::SFixed32 | Self::Float => FIXED32,
            Self::String(_) | Self::Bytes | Self::Message(_) | Self::Value(..) | Self::Entry => LENGTH,
            _ => VARINT,
        }
    }

    /// Return the index of a message.
    pub(super) fn message(&self) -> Option<usize> {
        match self {
            Self::Message(index) | Self::Value(index, _) => Some(*index),
            _ => None,
        }
    }

    /// Return a whole number. One of 64 bits without a sign wraps around.
    #[inline]
    pub(super) fn number(&self, wire: &mut Wire<'_>) -> Regular<i64> {
        Ok(match self {
            Self::Int64 | Self::UInt64 => wire.varint()? as i64,
            Self::Int32 => i64::from(wire.varint()? as i32),
            Self::UInt32 => i64::from(wire.varint()? as u32),
            Self::SInt32 => zigzag((wire.varint()? as u32).into()),
            Self::SInt64 => zigzag(wire.varint()?),
            Self::Fixed32 => i64::from(u32::from_le_bytes(wire.array()?)),
            Self::SFixed32 => i64::from(i32::from_le_bytes(wire.array()?)),
            Self::Fixed64 | Self::SFixed64 => i64::from_le_bytes(wire.array()?),
            Self::Enum(names) => {
                let number = wire.varint()? as i32;
                if names.excludes(number) {
                    return Err(Irregular);
                }
                number.into()
            }
            _ => return Err(Irregular),
        })
    }
}

impl schema_ids::Plan for Plan {
    fn parse(plan: &Value) -> Result<Self, Unsupported> {
        let parts = plan["messages"].as_array().ok_or_else(|| unsupported(plan))?;
        let messages = parts.iter().map(|part| message(part, parts.len())).collect::<Result<Vec<_>, _>>()?;
        let name = plan["name"].as_str().unwrap_or("?").to_owned();
        if messages.is_empty() { Err(unsupported(plan)) } else { Ok(Self { name, messages }) }
    }

    #[inline]
    fn key<'a>(message: &'a [u8], header: Option<&[u8]>) -> Result<(Key, &'a [u8]), NoKey> {
        header::key(message, header)
    }
}

fn message(plan: &Value, messages: usize) -> Result<Message, Unsupported> {
    let fields = plan["fields"].as_array().ok_or_else(|| unsupported(plan))?;
    let fields = fields.iter().map(|plan| field(plan, messages)).collect::<Result<_, _>>()?;
    let columns = index(&plan["columns"]).unwrap_or(0);
    if columns > MOST_COLUMNS { Err(unsupported(plan)) } else { message_of(fields, columns, plan) }
}

fn message_of(fields: Vec<Field>, columns: usize, plan: &Value) -> Result<Message, Unsupported> {
    let mut found = Message {
        fields,
        by_small_number: vec![0; SMALL_NUMBERS as usize],
        by_number: HashMap::new(),
        required: 0,
        is_irregular: false,
        columns: vec![None; columns],
    };
    let (mut bits, mut oneofs) = (0, HashMap::new());
    for (at, field) in found.fields.iter_mut().enumerate() {
        match found.by_small_number.get_mut(field.number as usize) {
            Some(entry) => *entry = at as u32 + 1,
            None => _ = found.by_number.insert(field.number, at),
        }
        if let Some(column) = field.column {
            *found.columns.get_mut(column).ok_or_else(|| unsupported(plan))? = Some(at);
        }
        let bit = match field.oneof {
            Some(oneof) => *oneofs.entry(oneof).or_insert_with(|| next(&mut bits)),
            None if field.is_required => next(&mut bits),
            None => continue,
        };
        field.bit = 1_u64.checked_shl(bit).unwrap_or(0);
        if field.is_required {
            found.required |= field.bit;
        }
        found.is_irregular |= bit >= MOST_BITS;
    }
    Ok(found)
}

fn next(bits: &mut u32) -> u32 {
    *bits += 1;
    *bits - 1
}

fn field(plan: &Value, messages: usize) -> Result<Field, Unsupported> {
    let mut kind = kind(plan, messages)?;
    let shape = match plan["shape"].as_str() {
        None => Shape::Single,
        Some("repeated") => Shape::Repeated,
        Some("map") => {
            kind = Kind::Entry;
            let entry = vec![field(&plan["key"], messages)?, field(&plan["value"], messages)?];
            if entry.iter().map(|field| field.number).ne([1, 2]) {
                return Err(unsupported(plan));
            }
            Shape::Map(Box::new(message_of(entry, 0, plan)?))
        }
        _ => return Err(unsupported(plan)),
    };
    Ok(Field {
        number: plan["number"].as_u64().and_then(|n| u32::try_from(n).ok()).ok_or_else(|| unsupported(plan))?,
        name: plan["name"].as_str().unwrap_or("?").into(),
        kind,
        shape,
        column: index(&plan["column"]),
        default: default(&plan["default"])?,
        bit: 0,
        oneof: plan["oneof"].as_u64(),
        is_required: plan["required"] == true,
        is_group: plan["group"] == true,
        is_watched: plan["group"] == true || plan["required"] == true || plan["oneof"].is_u64(),
    })
}

fn default(plan: &Value) -> Result<Default, Unsupported> {
    match plan {
        Value::Null => Ok(Default::Null),
        Value::String(value) => STANDARD.decode(value).map(Default::Value).map_err(|_| unsupported(plan)),
        _ => Ok(Default::Empty),
    }
}

fn kind(plan: &Value, messages: usize) -> Result<Kind, Unsupported> {
    let index = || index(&plan["message"]).filter(|index| *index < messages).ok_or_else(|| unsupported(plan));
    let value = |value| Ok(Kind::Value(index()?, Box::new(value)));
    Ok(match plan["kind"].as_str() {
        Some("bool") => Kind::Bool,
        Some("int32") => Kind::Int32,
        Some("int64") => Kind::Int64,
        Some("uint32") => Kind::UInt32,
        Some("uint64") => Kind::UInt64,
        Some("sint32") => Kind::SInt32,
        Some("sint64") => Kind::SInt64,
        Some("fixed32") => Kind::Fixed32,
        Some("fixed64") => Kind::Fixed64,
        Some("sfixed32") => Kind::SFixed32,
        Some("sfixed64") => Kind::SFixed64,
        Some("float") => Kind::Float,
        Some("double") => Kind::Double,
        Some("string") => Kind::String(plan["checked"] == true),
        Some("bytes") => Kind::Bytes,
        Some("enum") => Kind::Enum(names(plan)?),
        Some("map") => Kind::Entry,
        Some("message") => match plan["as"].as_str() {
            None => Kind::Message(index()?),
            Some("timestamp") => value(As::Timestamp)?,
            Some("duration") => value(As::Duration)?,
            Some("value") => value(As::Wrapped(kind(&plan["value"], messages)?))?,
            Some("google.protobuf.Struct") => value(As::Json(Json::Struct))?,
            Some("google.protobuf.Value") => value(As::Json(Json::Value))?,
            Some("google.protobuf.ListValue") => value(As::Json(Json::List))?,
            _ => return Err(unsupported(plan)),
        },
        _ => return Err(unsupported(plan)),
    })
}

fn names(plan: &Value) -> Result<Names, Unsupported> {
    let mut names = Vec::new();
    for name in plan["names"].as_array().ok_or_else(|| unsupported(plan))? {
        let number = name[0].as_i64().and_then(|n| i32::try_from(n).ok()).ok_or_else(|| unsupported(plan))?;
        names.push((number, name[1].as_str().ok_or_else(|| unsupported(plan))?.to_owned()));
    }
    names.sort_unstable();
    Ok(Names { names, is_closed: plan["closed"] == true })
}

fn index(plan: &Value) -> Option<usize> {
    plan.as_u64().and_then(|n| usize::try_from(n).ok())
}

fn unsupported(plan: &Value) -> Unsupported {
    Unsupported(format!("Protobuf plan {plan}"))
}
