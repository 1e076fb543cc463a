//! The formats `avro` and `avro-confluent`: a message is a record in Avro's binary encoding.
//!
//! A message is read with the schema of its writer. The decoder is certain about:
//!
//! | column | written as |
//! |---|---|
//! | BOOLEAN | boolean |
//! | TINYINT, SMALLINT, INT | int, within the type's range |
//! | BIGINT | int, long |
//! | FLOAT | int, long, float |
//! | DOUBLE | int, long, float, double |
//! | DECIMAL | bytes or fixed of the logical type decimal and the same scale, at most 16 bytes that fit |
//! | STRING | string or bytes of valid UTF-8, enum |
//! | BYTES | string, bytes, fixed |
//! | DATE | int |
//! | TIME(p) | int `time-millis`, or long `time-micros` if p is more than 3; with at most p digits |
//! | TIMESTAMP, TIMESTAMP_LTZ | long `timestamp-millis`, `timestamp-micros` or the same of `local-timestamp` |
//! | ARRAY, MAP, ROW | array, map with different keys, record with all columns by name |
//! | all | a union with one of these, or null if the column may be null |
//!
//! Fields that are not wanted are skipped. What is left: bytes behind the record, a schema that is not known, and everything
//! else.
//!
//! A schema is the writer's, resolved to the columns by `formats/avro/native.py`: all names are replaced by what they stand
//! for, a field has the name of its column or none, a column without a field is a field of the type null, a part that is an
//! error where it occurs is of the type `unreadable`, and so is a symbol that is null.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

use crate::columns::{Certain, Column, Struct, Uncertain, Values};
use crate::spec::Unsupported;

const NANOS_A_DAY: i64 = 86_400_000_000_000;
/// How deep a schema may be. Python counts up to two levels for each, and refuses messages of more than 200.
const DEEPEST: usize = 60;
/// How many parts a schema may have.
const MOST_PARTS: usize = 20_000;

/// How messages are written.
#[derive(Debug, Clone)]
pub(crate) enum Writers {
    /// All with one schema.
    One(Arc<Step>),
    /// Each with the schema whose id is in its header.
    ById(ById),
}

/// Schemas by their id. None is a schema whose messages are left.
type Known = HashMap<u32, Option<Arc<Step>>>;

/// The schemas that are known by now. All clones have the same.
#[derive(Debug, Clone)]
pub(crate) struct ById {
    known: Arc<RwLock<Known>>,
    last: Option<(u32, Option<Arc<Step>>)>,
}

impl ById {
    /// Return the schema with an id; None if it is not known yet.
    #[inline]
    fn find(&mut self, id: u32) -> Option<&Option<Arc<Step>>> {
        if self.last.as_ref().is_none_or(|(last, _)| *last != id) {
            let found = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&id)?.clone();
            self.last = Some((id, found));
        }
        self.last.as_ref().map(|(_, step)| step)
    }
}

/// How a value is written.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Null,
    Boolean,
    Int(Unit),
    Long(Unit),
    Float,
    Double,
    /// A string.
    Text,
    /// Bytes, and their scale if they are a decimal number.
    Bytes(Option<i64>),
    /// The number of bytes, and their scale if they are a decimal number.
    Fixed(usize, Option<i64>),
    /// The symbols; None is one that is an error.
    Enum(Vec<Option<String>>),
    Array(Box<Step>),
    Map(Box<Step>),
    /// The fields with their columns; those without one are skipped.
    Record(Vec<(Option<String>, Step)>),
    Union(Vec<Step>),
    /// An error wherever it occurs.
    Unreadable,
}

/// The logical type of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    None,
    TimeMillis,
    TimeMicros,
    TimestampMillis,
    TimestampMicros,
}

/// Append the columns of a message.
pub(crate) fn read(message: &[u8], columns: &mut Struct, writers: &mut Writers) -> Certain<bool> {
    let (step, body) = match writers {
        Writers::One(step) => (&*step, message),
        Writers::ById(schemas) => {
            let (id, body) = header(message).ok_or(Uncertain)?;
            (schemas.find(id).and_then(Option::as_ref).ok_or(Uncertain)?, body)
        }
    };
    let Step::Record(fields) = &**step else { return Err(Uncertain) };
    let mut reader = Reader { rest: body, budget: 16 * body.len() + 1024 };
    reader.record(fields, columns)?;
    if reader.rest.is_empty() { Ok(true) } else { Err(Uncertain) }
}

/// Return the id in front of a message, and the rest of the message.
fn header(message: &[u8]) -> Option<(u32, &[u8])> {
    match message {
        [0, a, b, c, d, body @ ..] => Some((u32::from_be_bytes([*a, *b, *c, *d]), body)),
        _ => None,
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    /// How many more values may be put into arrays and maps.
    budget: usize,
}

impl<'a> Reader<'a> {
    fn record(&mut self, fields: &[(Option<String>, Step)], columns: &mut Struct) -> Certain<()> {
        let row = columns.len;
        let mut guess = 0;
        for (name, step) in fields {
            match name.as_ref().and_then(|name| columns.find(name.as_bytes(), guess)) {
                Some(found) => {
                    self.value(step, &mut columns.columns[found])?;
                    guess = found + 1;
                }
                None => self.skip(step)?,
            }
        }
        columns.len += 1;
        if columns.columns.iter().all(|column| column.len() == row + 1) { Ok(()) } else { Err(Uncertain) }
    }

    fn value(&mut self, step: &Step, column: &mut Column) -> Certain<()> {
        match (step, &mut column.values) {
            (Step::Union(branches), _) => {
                let branch = usize::try_from(self.long()?).ok().and_then(|i| branches.get(i)).ok_or(Uncertain)?;
                return match branch {
                    Step::Union(_) => Err(Uncertain),
                    branch => self.value(branch, column),
                };
            }
            (Step::Null, _) if column.required => return Err(Uncertain),
            (Step::Null, _) => {
                column.push_null();
                return Ok(());
            }
            (Step::Boolean, Values::Boolean(v)) => match self.bytes(1)? {
                [0] => v.append(false),
                [1] => v.append(true),
                _ => return Err(Uncertain),
            },
            (Step::Int(_), Values::Int8(v)) => v.push(self.int()?.try_into().map_err(|_| Uncertain)?),
            (Step::Int(_), Values::Int16(v)) => v.push(self.int()?.try_into().map_err(|_| Uncertain)?),
            (Step::Int(_), Values::Int32(v) | Values::Date(v)) => v.push(self.int()?),
            (Step::Int(_), Values::Int64(v)) => v.push(self.int()?.into()),
            (Step::Long(_), Values::Int64(v)) => v.push(self.long()?),
            (Step::Int(_), Values::Float32(v)) => v.push(self.int()? as f32),
            (Step::Long(_), Values::Float32(v)) => v.push(self.long()? as f32),
            (Step::Float, Values::Float32(v)) => v.push(f32::from_le_bytes(self.array()?)),
            (Step::Int(_), Values::Float64(v)) => v.push(self.int()?.into()),
            (Step::Long(_), Values::Float64(v)) => v.push(self.long()? as f64),
            (Step::Float, Values::Float64(v)) => v.push(f32::from_le_bytes(self.array()?).into()),
            (Step::Double, Values::Float64(v)) => v.push(f64::from_le_bytes(self.array()?)),
            (Step::Bytes(Some(scale)), Values::Decimal(v, precision, s)) if *scale == i64::from(*s) => {
                v.push(decimal(self.text()?, *precision)?);
            }
            (Step::Fixed(size, Some(scale)), Values::Decimal(v, precision, s)) if *scale == i64::from(*s) => {
                v.push(decimal(self.bytes(*size)?, *precision)?);
            }
            (Step::Text | Step::Bytes(_), Values::String(v)) => {
                let text = std::str::from_utf8(self.text()?).map_err(|_| Uncertain)?;
                v.data.extend_from_slice(text.as_bytes());
                v.end()?;
            }
            (Step::Enum(symbols), Values::String(v)) => {
                let symbol =
                    usize::try_from(self.int()?).ok().and_then(|i| symbols.get(i)?.as_ref()).ok_or(Uncertain)?;
                v.data.extend_from_slice(symbol.as_bytes());
                v.end()?;
            }
            (Step::Text | Step::Bytes(_), Values::Binary(v)) => {
                v.data.extend_from_slice(self.text()?);
                v.end()?;
            }
            (Step::Fixed(size, _), Values::Binary(v)) => {
                v.data.extend_from_slice(self.bytes(*size)?);
                v.end()?;
            }
            (Step::Int(Unit::TimeMillis), Values::Time(v, digits)) => {
                v.push(time(i64::from(self.int()?), 1_000_000, *digits)?);
            }
            (Step::Long(Unit::TimeMicros), Values::Time(v, digits @ 4..)) => {
                v.push(time(self.long()?, 1000, *digits)?);
            }
            (Step::Long(Unit::TimestampMillis), Values::Timestamp(v, _)) => {
                v.push(self.long()?.checked_mul(1000).ok_or(Uncertain)?);
            }
            (Step::Long(Unit::TimestampMicros), Values::Timestamp(v, _)) => match self.long()? {
                i64::MIN => return Err(Uncertain), // Spark's times begin one later
                micros => v.push(micros),
            },
            (Step::Array(item), Values::List(_, offsets, element)) => {
                self.blocks(|reader| {
                    reader.spend(element.width)?;
                    reader.value(item, element)
                })?;
                offsets.push(element.len() as i32);
            }
            (Step::Map(item), Values::Map(_, offsets, key, value)) => {
                let first = key.len();
                self.blocks(|reader| {
                    reader.spend(value.width)?;
                    reader.value(&Step::Text, key)?;
                    reader.value(item, value)
                })?;
                match &key.values {
                    Values::String(names) if names.are_different(first) => offsets.push(value.len() as i32),
                    _ => return Err(Uncertain),
                }
            }
            (Step::Record(fields), Values::Struct(v)) => self.record(fields, v)?,
            _ => return Err(Uncertain),
        }
        column.valid.append_non_null();
        Ok(())
    }

    fn skip(&mut self, step: &Step) -> Certain<()> {
        match step {
            Step::Null => {}
            Step::Boolean => {
                if self.array::<1>()?[0] > 1 {
                    return Err(Uncertain);
                }
            }
            Step::Int(_) => {
                self.int()?;
            }
            Step::Long(_) => {
                self.long()?;
            }
            Step::Float => {
                self.bytes(4)?;
            }
            Step::Double => {
                self.bytes(8)?;
            }
            Step::Text | Step::Bytes(_) => {
                self.text()?;
            }
            Step::Fixed(size, _) => {
                self.bytes(*size)?;
            }
            Step::Enum(symbols) => {
                usize::try_from(self.int()?).ok().filter(|i| *i < symbols.len()).ok_or(Uncertain)?;
            }
            Step::Array(item) => self.blocks(|reader| reader.skip(item))?,
            Step::Map(item) => self.blocks(|reader| {
                reader.text()?;
                reader.skip(item)
            })?,
            Step::Record(fields) => {
                for (_, step) in fields {
                    self.skip(step)?;
                }
            }
            Step::Union(branches) => {
                let branch = usize::try_from(self.long()?).ok().and_then(|i| branches.get(i)).ok_or(Uncertain)?;
                self.skip(branch)?;
            }
            Step::Unreadable => return Err(Uncertain),
        }
        Ok(())
    }

    /// Read the items of an array or a map. Each of them has a byte at least: otherwise a few bytes could claim any number.
    fn blocks(&mut self, mut item: impl FnMut(&mut Self) -> Certain<()>) -> Certain<()> {
        loop {
            let count = self.long()?;
            if count < 0 {
                self.long()?; // the size of the block in bytes
            }
            if count == 0 {
                return Ok(());
            }
            for _ in 0..count.unsigned_abs() {
                let left = self.rest.len();
                item(self)?;
                if self.rest.len() == left {
                    return Err(Uncertain);
                }
            }
        }
    }

    fn spend(&mut self, values: usize) -> Certain<()> {
        self.budget = self.budget.checked_sub(values).ok_or(Uncertain)?;
        Ok(())
    }

    #[inline]
    fn long(&mut self) -> Certain<i64> {
        let mut value: u64 = 0;
        for (i, &byte) in self.rest.iter().take(10).enumerate() {
            if i == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7F) << (7 * i);
            if byte < 0x80 {
                self.rest = &self.rest[i + 1..];
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err(Uncertain)
    }

    #[inline]
    fn int(&mut self) -> Certain<i32> {
        self.long()?.try_into().map_err(|_| Uncertain)
    }

    #[inline]
    fn bytes(&mut self, count: usize) -> Certain<&'a [u8]> {
        let (found, rest) = self.rest.split_at_checked(count).ok_or(Uncertain)?;
        self.rest = rest;
        Ok(found)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Certain<[u8; N]> {
        self.bytes(N)?.try_into().map_err(|_| Uncertain)
    }

    #[inline]
    fn text(&mut self) -> Certain<&'a [u8]> {
        let count = usize::try_from(self.long()?).map_err(|_| Uncertain)?;
        self.bytes(count)
    }
}

/// Return a number in two's complement, highest byte first.
fn decimal(bytes: &[u8], precision: u8) -> Certain<i128> {
    if bytes.is_empty() || bytes.len() > 16 {
        return Err(Uncertain);
    }
    let sign = if bytes[0] >= 0x80 { -1 } else { 0 };
    let value = bytes.iter().fold(sign, |value: i128, &byte| (value << 8) | i128::from(byte));
    if value.unsigned_abs() < 10_u128.pow(precision.into()) { Ok(value) } else { Err(Uncertain) }
}

/// Return the nanoseconds of a time of day; it has no more digits than its type.
fn time(value: i64, unit_ns: i64, digits: usize) -> Certain<i64> {
    let nanos = value.checked_mul(unit_ns).ok_or(Uncertain)?;
    let step = 10_i64.pow(9_u32.saturating_sub(digits as u32));
    if (0..NANOS_A_DAY).contains(&nanos) && nanos % step == 0 { Ok(nanos) } else { Err(Uncertain) }
}

// --- schemas ---

impl Writers {
    /// Return the writers of a spec: `writer` is a schema, or `writers` has schemas by id.
    pub(crate) fn parse(spec: &Value) -> Result<Self, Unsupported> {
        if spec["format"] == "avro" {
            return Ok(Self::One(Arc::new(parse(&spec["writer"])?)));
        }
        let mut known = Known::new();
        for (id, schema) in spec["writers"].as_object().into_iter().flatten() {
            let id = id.parse().map_err(|_| Unsupported(format!("schema id {id}")))?;
            known.insert(id, parse(schema).ok().map(Arc::new));
        }
        Ok(Self::ById(ById { known: Arc::new(RwLock::new(known)), last: None }))
    }

    /// Return the id of a message's schema, if that is not known yet.
    #[inline]
    pub(crate) fn unknown(&mut self, message: &[u8]) -> Option<u32> {
        let Self::ById(schemas) = self else { return None };
        let (id, _) = header(message)?;
        if schemas.find(id).is_none() { Some(id) } else { None }
    }

    /// Add the schema with an id; None if its messages are left, like those of a schema that cannot be read.
    pub(crate) fn learn(&self, id: u32, schema: Option<&str>) {
        let Self::ById(schemas) = self else { return };
        let parsed = schema.and_then(|text| serde_json::from_str(text).ok()).and_then(|schema| parse(&schema).ok());
        schemas.known.write().unwrap_or_else(PoisonError::into_inner).insert(id, parsed.map(Arc::new));
    }
}

fn parse(schema: &Value) -> Result<Step, Unsupported> {
    let mut parts = MOST_PARTS;
    step(schema, DEEPEST, &mut parts)
}

/// Return the step of a schema; it may be so deep, and has so many parts left.
fn step(schema: &Value, depth: usize, parts: &mut usize) -> Result<Step, Unsupported> {
    let unsupported = || Unsupported(format!("Avro schema {schema}"));
    let depth = depth.checked_sub(1).ok_or_else(unsupported)?;
    *parts = parts.checked_sub(1).ok_or_else(unsupported)?;
    if let Value::Array(branches) = schema {
        return branches.iter().map(|branch| step(branch, depth, parts)).collect::<Result<_, _>>().map(Step::Union);
    }
    let kind = schema.as_str().or_else(|| schema["type"].as_str()).ok_or_else(unsupported)?;
    let logical = schema["logicalType"].as_str();
    let scale = (logical == Some("decimal")).then(|| schema["scale"].as_i64().unwrap_or(0));
    Ok(match kind {
        "null" => Step::Null,
        "boolean" => Step::Boolean,
        "int" => Step::Int(if logical == Some("time-millis") { Unit::TimeMillis } else { Unit::None }),
        "long" => Step::Long(match logical {
            Some("time-micros") => Unit::TimeMicros,
            Some("timestamp-millis" | "local-timestamp-millis") => Unit::TimestampMillis,
            Some("timestamp-micros" | "local-timestamp-micros") => Unit::TimestampMicros,
            _ => Unit::None,
        }),
        "float" => Step::Float,
        "double" => Step::Double,
        "string" => Step::Text,
        "bytes" => Step::Bytes(scale),
        "fixed" => {
            let size = schema["size"].as_u64().and_then(|size| size.try_into().ok()).ok_or_else(unsupported)?;
            Step::Fixed(size, scale)
        }
        "enum" => {
            let symbols = schema["symbols"].as_array().ok_or_else(unsupported)?;
            Step::Enum(symbols.iter().map(|symbol| symbol.as_str().map(str::to_owned)).collect())
        }
        "array" => Step::Array(Box::new(step(&schema["items"], depth, parts)?)),
        "map" => Step::Map(Box::new(step(&schema["values"], depth, parts)?)),
        "record" => {
            let fields = schema["fields"].as_array().ok_or_else(unsupported)?;
            let field = |f: &Value| Ok((f["name"].as_str().map(str::to_owned), step(&f["type"], depth, parts)?));
            Step::Record(fields.iter().map(field).collect::<Result<_, _>>()?)
        }
        "unreadable" => Step::Unreadable,
        _ => return Err(unsupported()),
    })
}
