//! The semantic types of Kafka Connect and Debezium in JSON: numbers and base64 that stand for times and decimals.
//!
//! Connect's JSON has a day or a millisecond as a number, and a decimal as base64. Only the schema says so: in the message
//! (`schemas.enable` of the JSON converter), or in a registry (JSON Schema, which Python writes as such a schema).
//!
//! | type | stands for |
//! |---|---|
//! | a whole number | a DATE, TIME or TIMESTAMP, in the type's unit; any other number does not fit |
//! | a text with any zone (`ZonedTimestamp`) | a TIMESTAMP or TIMESTAMP_LTZ, in UTC |
//! | base64 of a two's complement, highest byte first | a DECIMAL |
//!
//! A value of another form is read as in the format `json`, and so is any value for a column of another type: a BIGINT keeps
//! the number.
//!
//! Source: io.debezium.time and io.debezium.data of Debezium 3, org.apache.kafka.connect.data of Kafka 4.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::{Fault, Read, Reader};
use crate::columns::Values;
use crate::fault::{Failure, Unsupported};
use crate::java::{self, DAYS, MICROS};
use crate::schema_ids::{self, Key, NoKey};
use crate::{connect, text};

/// How the names of semantic types begin.
const PREFIXES: [&str; 2] = ["io.debezium.", "org.apache.kafka.connect.data."];
const LARGEST_SCALE: i32 = 100;
/// The schemas in messages that are kept.
const MOST_KEPT: usize = 16;

/// What a value and its parts stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Meaning {
    Value(Kind),
    /// The fields of an object, by their names.
    Fields(HashMap<Box<str>, Meaning>),
    /// The elements of an array, or the values of a map.
    Elements(Box<Meaning>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Its scale.
    Decimal(i32),
    VariableDecimal,
    Date,
    /// The unit in nanoseconds.
    Time(i64),
    Timestamp(i64),
    ZonedTimestamp,
}

impl Meaning {
    /// Return what values of a schema of Connect stand for; none if all are read as they are.
    fn of(schema: &Value) -> Option<Self> {
        if let Some(kind) = Kind::of(schema) {
            return Some(Self::Value(kind));
        }
        if let Some(fields) = schema["fields"].as_array() {
            let found = fields.iter().filter_map(|field| Some((field["field"].as_str()?.into(), Self::of(field)?)));
            let found: HashMap<_, _> = found.collect();
            return (!found.is_empty()).then_some(Self::Fields(found));
        }
        let element = Self::of(schema.get("items").or_else(|| schema.get("values"))?)?;
        Some(Self::Elements(Box::new(element)))
    }

    /// Return what a field stands for.
    pub(super) fn field(&self, name: &str) -> Option<&Self> {
        if let Self::Fields(fields) = self { fields.get(name) } else { None }
    }

    /// Return what the elements of an array or the values of a map stand for.
    pub(super) fn element(&self) -> Option<&Self> {
        if let Self::Elements(element) = self { Some(element) } else { None }
    }
}

impl Kind {
    fn of(schema: &Value) -> Option<Self> {
        let name = schema["name"].as_str()?;
        match name {
            "org.apache.kafka.connect.data.Decimal" => {
                let scale = &schema["parameters"]["scale"];
                let scale = scale.as_i64().or_else(|| scale.as_str()?.trim().parse().ok())?;
                return i32::try_from(scale).ok().filter(|scale| scale.abs() <= LARGEST_SCALE).map(Self::Decimal);
            }
            "io.debezium.data.VariableScaleDecimal" => return Some(Self::VariableDecimal),
            _ => {}
        }
        let kind = name.strip_prefix("io.debezium.time.").or_else(|| name.strip_prefix(PREFIXES[1]))?;
        Some(match kind {
            "Date" => Self::Date,
            "Time" => Self::Time(1_000_000),
            "MicroTime" => Self::Time(1000),
            "NanoTime" => Self::Time(1),
            "Timestamp" => Self::Timestamp(1_000_000),
            "MicroTimestamp" => Self::Timestamp(1000),
            "NanoTimestamp" => Self::Timestamp(1),
            "ZonedTimestamp" => Self::ZonedTimestamp,
            _ => return None,
        })
    }
}

/// What the messages of a schema in a registry stand for.
#[derive(Debug)]
pub(crate) struct Registered(pub(super) Option<Meaning>);

impl schema_ids::Plan for Registered {
    fn parse(plan: &Value) -> Result<Self, Unsupported> {
        Ok(Self(Meaning::of(plan)))
    }

    #[inline]
    fn key<'a>(message: &'a [u8], header: Option<&[u8]>) -> Result<(Key, &'a [u8]), NoKey> {
        schema_ids::key_of(message, header)
    }
}

/// What messages stand for that have their schemas in them.
#[derive(Debug, Clone, Default)]
pub(super) struct Included {
    known: HashMap<Box<str>, Option<Arc<Meaning>>>,
}

impl Included {
    /// Return what a message stands for, by its schema.
    pub(super) fn find(&mut self, schema: Option<&str>) -> Result<Option<Arc<Meaning>>, Failure> {
        // A name may be written with escapes.
        let Some(schema) =
            schema.filter(|text| PREFIXES.iter().any(|prefix| text.contains(prefix)) || text.contains('\\'))
        else {
            return Ok(None);
        };
        if let Some(known) = self.known.get(schema) {
            return Ok(known.clone());
        }
        let parsed: Value = serde_json::from_str(schema)
            .map_err(|error| Failure::Message(format!("Its \"schema\" cannot be read: {error}")))?;
        let found = Meaning::of(&parsed).map(Arc::new);
        if self.known.len() == MOST_KEPT {
            self.known.clear();
        }
        self.known.insert(schema.into(), found.clone());
        Ok(found)
    }
}

impl Reader<'_> {
    /// Append the next value, which begins with `token`, as what it stands for; return whether it fits. None if it is read as
    /// any other value; then nothing was read.
    #[cold]
    pub(super) fn meant(&mut self, token: u8, kind: Kind, values: &mut Values, levels: usize) -> Read<Option<bool>> {
        let begin = self.scanner.at();
        let is_number = matches!(token, b'-' | b'0'..=b'9');
        let found = match (kind, values) {
            (Kind::Decimal(scale), Values::Decimal(v, precision, to)) if token == b'"' => {
                let Some(unscaled) = unscaled(self.scanner.text(&mut self.buffer)?) else {
                    self.scanner.back_to(begin);
                    return Ok(None);
                };
                decimal(unscaled, scale, *precision, *to).map(|value| v.push(value))
            }
            (Kind::VariableDecimal, Values::Decimal(v, precision, to)) if token == b'{' => {
                let (scale, value) = self.scale_and_value(levels)?;
                let unscaled = value.as_deref().and_then(unscaled);
                let found = scale.zip(unscaled).and_then(|(scale, value)| decimal(value, scale, *precision, *to));
                found.map(|value| v.push(value))
            }
            (Kind::Date, Values::Date(v)) if is_number => {
                let days = self.whole()?.filter(|days| DAYS.contains(days));
                days.and_then(|days| i32::try_from(days).ok()).map(|days| v.push(days))
            }
            (Kind::Time(unit_ns), Values::Time(v, digits)) if is_number => {
                let nanos = self.whole()?.and_then(|count| connect::time(count, unit_ns, *digits).ok());
                nanos.map(|nanos| v.push(nanos))
            }
            (Kind::Timestamp(unit_ns), Values::Timestamp(v, _)) if is_number => {
                let micros = self.whole()?.and_then(|count| connect::scaled(count, unit_ns, 1000).ok());
                micros.filter(|micros| MICROS.contains(micros)).map(|micros| v.push(micros))
            }
            (Kind::ZonedTimestamp, Values::Timestamp(v, _)) if token == b'"' => {
                let micros = text::zoned_timestamp(self.scanner.text(&mut self.buffer)?.as_bytes());
                let Some(micros) = micros.filter(|micros| MICROS.contains(micros)) else {
                    self.scanner.back_to(begin);
                    return Ok(None);
                };
                v.push(micros);
                Some(())
            }
            _ => return Ok(None),
        };
        Ok(Some(found.is_some()))
    }

    /// Read a number; none if it is not a whole one.
    fn whole(&mut self) -> Read<Option<i64>> {
        Ok(self.scanner.number()?.parse().ok())
    }

    /// Read the object of a decimal with a scale of its own.
    fn scale_and_value(&mut self, levels: usize) -> Read<(Option<i32>, Option<String>)> {
        let levels = levels.checked_sub(1).ok_or(Fault::TooDeep)?;
        let (mut scale, mut value) = (None, None);
        let mut has_more = self.scanner.begin(b'{')?;
        while has_more {
            let name = self.scanner.name(&mut self.buffer)?;
            let (is_scale, is_value) = (name == "scale", name == "value");
            match self.scanner.peek() {
                Some(b'-' | b'0'..=b'9') if is_scale => {
                    let found = self.whole()?.and_then(|scale| i32::try_from(scale).ok());
                    scale = found.filter(|scale| scale.abs() <= LARGEST_SCALE);
                }
                Some(b'"') if is_value => value = Some(self.scanner.text(&mut self.buffer)?.to_owned()),
                _ => self.scanner.skip_value(levels)?,
            }
            has_more = self.scanner.has_more(b'{')?;
        }
        Ok((scale, value))
    }
}

/// Return the number that base64 stands for; none if it is no base64, or the number has more than 128 bits.
fn unscaled(base64: &str) -> Option<i128> {
    let mut bytes = Vec::new();
    java::base64(base64, &mut bytes)?;
    connect::unscaled(&bytes).filter(|_| !bytes.is_empty())
}

/// Return the unscaled value of a decimal with another scale, rounded as any number in JSON.
fn decimal(unscaled: i128, scale: i32, precision: u8, to: i8) -> Option<i128> {
    java::decimal(&format!("{unscaled}e{}", -scale), precision, to)
}
