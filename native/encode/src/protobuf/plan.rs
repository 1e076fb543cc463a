//! Plans: how columns become the fields of messages, as Python says it in JSON (`formats/protobuf/encoding.py`).
//!
//! A plan has the `name` of the message type, the `null_literal` for a null in an array or a map of texts, and a `message`. A
//! message has `lacking`, the names of required fields without a column, and `fields`:
//!
//! | key | is |
//! |---|---|
//! | `column` | the place of its column |
//! | `number`, `name` | the field's |
//! | `count` | how often it is written: `explicit`, `implicit`, `required`, `packed`, `unpacked` or `map`, which has a `key` |
//! | `oneof` | the name of its oneof |
//! | `type` | its type as in .proto files, or `enum` with `values` and the number of the `first` one, `message` with a `message` |
//! | `group` | whether a message is written as a group |
//! | | `timestamp`, `duration`, `wrapper` with the `value`'s type, or the name of a message of JSON |

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::json::Form;
use super::wire::DELIMITED;
use crate::types::{Type, Unsupported};

/// How a scalar is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    Bool,
    Int32,
    Sint32,
    Sfixed32,
    Uint32,
    Fixed32,
    Int64,
    Sint64,
    Sfixed64,
    Uint64,
    Fixed64,
    Float,
    Double,
    String,
    Bytes,
}

impl Scalar {
    pub(super) fn wire_type(self) -> u32 {
        match self {
            Self::Double | Self::Fixed64 | Self::Sfixed64 => 1,
            Self::Float | Self::Fixed32 | Self::Sfixed32 => 5,
            Self::String | Self::Bytes => DELIMITED,
            _ => 0,
        }
    }
}

/// How a value is written.
pub(super) enum Step {
    Scalar(Scalar),
    /// The numbers by name, and the number of all other names.
    EnumName(HashMap<Vec<u8>, i32>, i32),
    /// The numbers, and the one in place of all others.
    EnumNumber(Vec<i64>, i32),
    Timestamp,
    Duration,
    Wrapper(Scalar),
    /// A text of JSON, and the name of its message.
    Json(Form, &'static str),
    Message(Message),
    Group(Message),
}

impl Step {
    pub(super) fn wire_type(&self) -> u32 {
        match self {
            Self::Scalar(scalar) => scalar.wire_type(),
            Self::EnumName(..) | Self::EnumNumber(..) => 0,
            _ => DELIMITED,
        }
    }
}

/// How often a field is written.
pub(super) enum Count {
    /// Once, also if it has its type's default.
    Explicit,
    /// Once, unless it has its type's default.
    Implicit,
    /// Once, and it must not be null.
    Required,
    /// For each element.
    Unpacked,
    /// Once, with all elements.
    Packed,
    /// For each entry of a map: how its key is written.
    Map(Step),
}

pub(super) struct Field {
    pub(super) column: usize,
    pub(super) number: u32,
    pub(super) name: Arc<str>,
    pub(super) count: Count,
    /// The columns of the same oneof that come later: if one of them is set, this field is not.
    pub(super) later: Vec<usize>,
    pub(super) step: Step,
}

pub(super) struct Message {
    /// The first required field without a column.
    pub(super) lacking: Option<Arc<str>>,
    pub(super) has_required: bool,
    pub(super) fields: Vec<Field>,
}

/// Return how the message of a plan is written.
pub(super) fn message(columns: &Type, plan: &Value) -> Result<Message, Unsupported> {
    let described = plan["fields"].as_array().ok_or_else(|| unsupported(plan))?;
    let Type::Struct(types) = columns else { return Err(unsupported(plan)) };
    let place = |field: &Value| usize::try_from(field["column"].as_u64()?).ok().filter(|place| *place < types.len());
    let mut fields = Vec::new();
    for field in described {
        let column = place(field).ok_or_else(|| unsupported(field))?;
        let number = field["number"].as_u64().and_then(|number| u32::try_from(number).ok());
        let oneof = field["oneof"].as_str();
        let same = |other: &&Value| oneof.is_some() && other["oneof"].as_str() == oneof;
        let later = described.iter().filter(same).filter_map(place).filter(|other| *other > column).collect();
        let (count, of) = match (&types[column].1, field["count"].as_str()) {
            (type_, Some("explicit")) => (Count::Explicit, type_),
            (type_, Some("implicit")) => (Count::Implicit, type_),
            (type_, Some("required")) => (Count::Required, type_),
            (Type::List(element), Some("unpacked")) => (Count::Unpacked, &**element),
            (Type::List(element), Some("packed")) => (Count::Packed, &**element),
            (Type::Map(_, value), Some("map")) => {
                (Count::Map(Step::Scalar(scalar(&field["key"]).ok_or_else(|| unsupported(field))?)), &**value)
            }
            _ => return Err(unsupported(field)),
        };
        let number = number.ok_or_else(|| unsupported(field))?;
        let name = field["name"].as_str().unwrap_or("?").into();
        fields.push(Field { column, number, name, count, later, step: step(of, field)? });
    }
    fields.sort_by_key(|field| field.number);
    let lacking = plan["lacking"][0].as_str().map(Arc::from);
    let has_required = lacking.is_some() || fields.iter().any(|field| matches!(field.count, Count::Required));
    Ok(Message { lacking, has_required, fields })
}

fn step(type_: &Type, field: &Value) -> Result<Step, Unsupported> {
    let first =
        || field["first"].as_i64().and_then(|first| i32::try_from(first).ok()).ok_or_else(|| unsupported(field));
    if let Some(scalar) = scalar(&field["type"]) {
        return Ok(Step::Scalar(scalar));
    }
    match (field["type"].as_str(), type_) {
        (Some("enum"), Type::String) => {
            let numbers = field["values"].as_object().ok_or_else(|| unsupported(field))?;
            let named = |(name, number): (&String, &Value)| {
                Some((name.as_bytes().to_vec(), i32::try_from(number.as_i64()?).ok()?))
            };
            let numbers = numbers.iter().map(named).collect::<Option<_>>().ok_or_else(|| unsupported(field))?;
            Ok(Step::EnumName(numbers, first()?))
        }
        (Some("enum"), _) => {
            let numbers = field["values"].as_object().ok_or_else(|| unsupported(field))?;
            Ok(Step::EnumNumber(numbers.values().filter_map(Value::as_i64).collect(), first()?))
        }
        (Some("timestamp"), Type::Timestamp | Type::TimestampNtz) => Ok(Step::Timestamp),
        (Some("duration"), Type::Interval) => Ok(Step::Duration),
        (Some("wrapper"), _) => Ok(Step::Wrapper(scalar(&field["value"]).ok_or_else(|| unsupported(field))?)),
        (Some("google.protobuf.Struct"), Type::String) => Ok(Step::Json(Form::Struct, "google.protobuf.Struct")),
        (Some("google.protobuf.Value"), Type::String) => Ok(Step::Json(Form::Value, "google.protobuf.Value")),
        (Some("google.protobuf.ListValue"), Type::String) => Ok(Step::Json(Form::List, "google.protobuf.ListValue")),
        (Some("message"), Type::Struct(_)) if field["group"] == true => {
            Ok(Step::Group(message(type_, &field["message"])?))
        }
        (Some("message"), Type::Struct(_)) => Ok(Step::Message(message(type_, &field["message"])?)),
        _ => Err(unsupported(field)),
    }
}

fn scalar(name: &Value) -> Option<Scalar> {
    Some(match name.as_str()? {
        "bool" => Scalar::Bool,
        "int32" => Scalar::Int32,
        "sint32" => Scalar::Sint32,
        "sfixed32" => Scalar::Sfixed32,
        "uint32" => Scalar::Uint32,
        "fixed32" => Scalar::Fixed32,
        "int64" => Scalar::Int64,
        "sint64" => Scalar::Sint64,
        "sfixed64" => Scalar::Sfixed64,
        "uint64" => Scalar::Uint64,
        "fixed64" => Scalar::Fixed64,
        "float" => Scalar::Float,
        "double" => Scalar::Double,
        "string" => Scalar::String,
        "bytes" => Scalar::Bytes,
        _ => return None,
    })
}

fn unsupported(field: &Value) -> Unsupported {
    Unsupported(format!("the Protobuf field {field}"))
}
