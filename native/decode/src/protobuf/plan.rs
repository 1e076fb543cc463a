//! Plans: how the fields of messages become columns, as Python says it in JSON (`formats/protobuf/native.py`).

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::wire::{FIXED32, FIXED64, LENGTH, VARINT, Wire, zigzag};
use crate::columns::{Certain, Uncertain};
use crate::spec::Unsupported;

/// Fields up to this number are found in a table.
const SMALL_NUMBERS: u32 = 256;

/// How messages are read.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Whether there is a header of a schema registry in front of each message. Its content is not used.
    pub(super) has_header: bool,
    /// The first one is that of the whole message.
    pub(super) messages: Vec<Message>,
}

/// How a message is read into a struct, or checked if it is not wanted.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) fields: Vec<Field>,
    /// The index of a field by its number, plus 1.
    pub(super) by_small_number: Vec<u32>,
    pub(super) by_number: HashMap<u32, usize>,
    /// The bits of the required fields.
    pub(super) required: u64,
    /// Whether an unknown field may be an extension.
    pub(super) is_extendable: bool,
    /// The index of the field of each column; None for a column without a field, which is null.
    pub(super) columns: Vec<Option<usize>>,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) kind: Kind,
    pub(super) shape: Shape,
    /// The index of its column, if it is wanted.
    pub(super) column: Option<usize>,
    pub(super) default: Default,
    /// Its bit, if it is required or in a oneof. All fields of a oneof have the same bit.
    pub(super) bit: u64,
    pub(super) in_oneof: bool,
}

#[derive(Debug)]
pub(super) enum Shape {
    Single,
    Repeated,
    /// The key and the value.
    Map(Box<[Entry; 2]>),
}

/// The key or the value of a map.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    pub(super) default: Default,
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
    String,
    Bytes,
    Enum(Names),
    /// A message, by its index in the plan.
    Message(usize),
    /// A message `google.protobuf.Timestamp` that is wanted as a timestamp.
    Timestamp,
    Group,
}

/// The names of an enum, in order of their numbers.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) names: Vec<(i32, String)>,
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

    pub(super) fn skip_unknown(&self, wire: &mut Wire<'_>, wire_type: u32) -> Certain<()> {
        if self.is_extendable { Err(Uncertain) } else { wire.skip(wire_type) }
    }
}

impl Field {
    /// Note that the field is there; a oneof may be set once.
    #[inline]
    pub(super) fn note(&self, seen: &mut u64) -> Certain<()> {
        if self.in_oneof && *seen & self.bit != 0 {
            return Err(Uncertain);
        }
        *seen |= self.bit;
        Ok(())
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
}

impl Kind {
    #[inline]
    pub(super) fn wire_type(&self) -> u32 {
        match self {
            Self::Fixed64 | Self::SFixed64 | Self::Double => FIXED64,
            Self::Fixed32 | Self::SFixed32 | Self::Float => FIXED32,
            Self::String | Self::Bytes | Self::Message(_) | Self::Timestamp => LENGTH,
            Self::Group => u32::MAX, // no value has it
            _ => VARINT,
        }
    }

    /// Return a whole number. One of 64 bits without a sign wraps around.
    #[inline]
    pub(super) fn number(&self, wire: &mut Wire<'_>) -> Certain<i64> {
        Ok(match self {
            Self::Int64 | Self::UInt64 => wire.varint()? as i64,
            Self::Int32 => i64::from(wire.varint()? as i32),
            Self::UInt32 => i64::from(wire.varint()? as u32),
            Self::SInt32 => {
                let value = wire.varint()? as u32;
                i64::from((value >> 1) as i32 ^ -((value & 1) as i32))
            }
            Self::SInt64 => zigzag(wire.varint()?),
            Self::Fixed32 => i64::from(u32::from_le_bytes(wire.array()?)),
            Self::SFixed32 => i64::from(i32::from_le_bytes(wire.array()?)),
            Self::Fixed64 | Self::SFixed64 => i64::from_le_bytes(wire.array()?),
            Self::Enum(names) => {
                let number = wire.varint()? as i32;
                if names.is_closed && names.find(number).is_none() {
                    return Err(Uncertain);
                }
                number.into()
            }
            _ => return Err(Uncertain),
        })
    }
}

impl Plan {
    /// Return the plan of a spec: `messages` has its parts.
    pub(crate) fn parse(spec: &Value) -> Result<Self, Unsupported> {
        let messages = spec["messages"].as_array().ok_or_else(|| unsupported(&spec["messages"]))?;
        Ok(Self {
            has_header: spec["format"] == "protobuf-confluent",
            messages: messages.iter().map(message).collect::<Result<_, _>>()?,
        })
    }
}

fn message(plan: &Value) -> Result<Message, Unsupported> {
    let fields = plan["fields"].as_array().ok_or_else(|| unsupported(plan))?;
    let mut found = Message {
        fields: fields.iter().map(field).collect::<Result<_, _>>()?,
        by_small_number: Vec::new(),
        by_number: HashMap::new(),
        required: 0,
        is_extendable: plan["extendable"] == true,
        columns: vec![None; index(&plan["columns"]).unwrap_or(0)],
    };
    found.by_small_number = vec![0; SMALL_NUMBERS as usize];
    for (at, plan) in fields.iter().enumerate() {
        let number = plan["number"].as_u64().and_then(|n| u32::try_from(n).ok()).ok_or_else(|| unsupported(plan))?;
        match found.by_small_number.get_mut(number as usize) {
            Some(entry) => *entry = at as u32 + 1,
            None => _ = found.by_number.insert(number, at),
        }
        if plan["required"] == true {
            found.required |= found.fields[at].bit;
        }
        if let Some(column) = found.fields[at].column {
            *found.columns.get_mut(column).ok_or_else(|| unsupported(plan))? = Some(at);
        }
    }
    Ok(found)
}

fn field(plan: &Value) -> Result<Field, Unsupported> {
    let shape = match plan["shape"].as_str() {
        None => Shape::Single,
        Some("repeated") => Shape::Repeated,
        Some("map") => Shape::Map(Box::new([entry(&plan["key"])?, entry(&plan["value"])?])),
        _ => return Err(unsupported(plan)),
    };
    let bit = match plan["bit"].as_u64() {
        None => 0,
        Some(bit @ ..64) => 1 << bit,
        Some(_) => return Err(Unsupported("more than 64 oneofs and required fields in a message".to_owned())),
    };
    Ok(Field {
        kind: kind(plan)?,
        shape,
        column: index(&plan["column"]),
        default: default(&plan["default"])?,
        bit,
        in_oneof: bit != 0 && plan["required"] != true,
    })
}

fn entry(plan: &Value) -> Result<Entry, Unsupported> {
    Ok(Entry { kind: kind(plan)?, default: default(&plan["default"])? })
}

fn default(plan: &Value) -> Result<Default, Unsupported> {
    match plan {
        Value::Null => Ok(Default::Null),
        Value::String(value) => STANDARD.decode(value).map(Default::Value).map_err(|_| unsupported(plan)),
        _ => Ok(Default::Empty),
    }
}

fn kind(plan: &Value) -> Result<Kind, Unsupported> {
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
        Some("string") => Kind::String,
        Some("bytes") => Kind::Bytes,
        Some("enum") => Kind::Enum(names(plan)?),
        Some("message") => Kind::Message(index(&plan["message"]).ok_or_else(|| unsupported(plan))?),
        Some("timestamp") => Kind::Timestamp,
        Some("group") => Kind::Group,
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
