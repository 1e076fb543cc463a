//! The plan by which messages of one schema are read, as Python makes it (`formats/avro/plan.py`).
//!
//! It is a JSON object with `steps`, of which the first one reads a message. A step names others by their places. Each is an
//! object with a `type`:
//!
//! | type | has |
//! |---|---|
//! | `null`, `boolean`, `float`, `double`, `string` | |
//! | `int`, `long` | `unit_ns`: the unit of a time |
//! | `bytes`, `fixed` | `scale`: that of a decimal; `size` |
//! | `enum` | `symbols`: a null is one that the reader does not know |
//! | `array`, `map` | `item` |
//! | `union` | `branches` |
//! | `record` | `fields` with `name`, `step` and the place of a `column`; `defaults` with `column`, `step` and `data` (Base64) |
//! | `zoned-time`, `scaled-decimal` | Debezium's types |
//! | `unreadable` | `why` |

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::fault::Unsupported;
use crate::schema_ids::{self, Key, NoKey};

/// How messages are read.
#[derive(Debug)]
pub(crate) struct Plan {
    steps: Vec<Step>,
}

/// How a value is written.
#[derive(Debug)]
pub(crate) enum Step {
    Null,
    Boolean,
    /// A number, or a time in such a unit.
    Int(i64),
    Long(i64),
    Float,
    Double,
    /// A string.
    Text,
    /// Bytes, or a decimal number of such a scale.
    Bytes(i32),
    /// So many bytes, or a decimal number of such a scale.
    Fixed(usize, i32),
    /// The symbols; None is one that the reader does not know.
    Enum(Vec<Option<String>>),
    Array(usize),
    Map(usize),
    Record(Record),
    Union(Vec<usize>),
    /// A text that is a time with a zone.
    ZonedTime,
    /// A decimal number after its scale.
    ScaledDecimal,
    /// An error wherever it occurs, with the reason.
    Unreadable(Arc<str>),
}

/// The fields of a record, and the columns that it does not have.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) fields: Vec<Field>,
    pub(crate) defaults: Vec<Default>,
    /// The number of columns. Each of them is that of one field or of one default.
    pub(crate) columns: usize,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: Arc<str>,
    /// The place of its column; None if no column needs it.
    pub(crate) column: Option<usize>,
    pub(crate) step: usize,
}

/// The value of a column that is not written.
#[derive(Debug)]
pub(crate) struct Default {
    pub(crate) column: usize,
    pub(crate) step: usize,
    pub(crate) data: Vec<u8>,
}

impl schema_ids::Plan for Plan {
    fn parse(plan: &Value) -> Result<Self, Unsupported> {
        let steps = list(plan, "steps")?;
        let steps: Vec<_> = steps.iter().map(|step| parse(step, steps.len())).collect::<Result<_, _>>()?;
        if steps.is_empty() { Err(unsupported(plan)) } else { Ok(Self { steps }) }
    }

    #[inline]
    fn key<'a>(message: &'a [u8], header: Option<&[u8]>) -> Result<(Key, &'a [u8]), NoKey> {
        schema_ids::key_of(message, header)
    }
}

impl Plan {
    /// Return the step that reads a message.
    pub(crate) fn root(&self) -> &Step {
        &self.steps[0]
    }

    /// Return a step by its place.
    #[inline]
    pub(crate) fn step(&self, place: usize) -> &Step {
        &self.steps[place]
    }
}

fn parse(step: &Value, steps: usize) -> Result<Step, Unsupported> {
    let place = |value: &Value| number(value).filter(|place| *place < steps).ok_or_else(|| unsupported(step));
    let unit_ns = || step["unit_ns"].as_i64().filter(|unit| *unit > 0).unwrap_or(1);
    let scale = || step["scale"].as_i64().map_or(Ok(0), i32::try_from).map_err(|_| unsupported(step));
    Ok(match step["type"].as_str().unwrap_or_default() {
        "null" => Step::Null,
        "boolean" => Step::Boolean,
        "int" => Step::Int(unit_ns()),
        "long" => Step::Long(unit_ns()),
        "float" => Step::Float,
        "double" => Step::Double,
        "string" => Step::Text,
        "bytes" => Step::Bytes(scale()?),
        "fixed" => Step::Fixed(number(&step["size"]).ok_or_else(|| unsupported(step))?, scale()?),
        "enum" => Step::Enum(list(step, "symbols")?.iter().map(|symbol| symbol.as_str().map(str::to_owned)).collect()),
        "array" => Step::Array(place(&step["item"])?),
        "map" => Step::Map(place(&step["item"])?),
        "union" => Step::Union(list(step, "branches")?.iter().map(place).collect::<Result<_, _>>()?),
        "zoned-time" => Step::ZonedTime,
        "scaled-decimal" => Step::ScaledDecimal,
        "unreadable" => Step::Unreadable(step["why"].as_str().unwrap_or_default().into()),
        "record" => {
            let field = |field: &Value| {
                let name = field["name"].as_str().unwrap_or_default().into();
                Ok(Field { name, column: number(&field["column"]), step: place(&field["step"])? })
            };
            let default = |default: &Value| {
                let data = STANDARD.decode(default["data"].as_str().unwrap_or_default());
                let column = number(&default["column"]).ok_or_else(|| unsupported(step))?;
                Ok(Default { column, step: place(&default["step"])?, data: data.map_err(|_| unsupported(step))? })
            };
            let fields: Vec<_> = list(step, "fields")?.iter().map(field).collect::<Result<_, Unsupported>>()?;
            let defaults: Vec<_> = list(step, "defaults")?.iter().map(default).collect::<Result<_, Unsupported>>()?;
            let wanted = fields.iter().filter_map(|field| field.column);
            let mut columns: Vec<usize> = wanted.chain(defaults.iter().map(|default| default.column)).collect();
            columns.sort_unstable();
            if columns.iter().enumerate().any(|(i, column)| i != *column) {
                return Err(unsupported(step));
            }
            Step::Record(Record { fields, defaults, columns: columns.len() })
        }
        _ => return Err(unsupported(step)),
    })
}

fn list<'a>(value: &'a Value, name: &str) -> Result<&'a Vec<Value>, Unsupported> {
    value[name].as_array().ok_or_else(|| unsupported(value))
}

fn number(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|number| number.try_into().ok())
}

fn unsupported(step: &Value) -> Unsupported {
    Unsupported(format!("Avro plan {step}"))
}
