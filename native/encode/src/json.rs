//! The format `json`: a row is a JSON object, byte by byte as Flink writes it.
//!
//! | column | is written as |
//! |---|---|
//! | BOOLEAN, TINYINT, SMALLINT, INT, BIGINT | `true`, `1` |
//! | FLOAT, DOUBLE | the shortest text, as Java writes them since version 19; `"NaN"`, `"Infinity"` |
//! | DECIMAL | Java's `toString` without trailing zeros, or with all digits |
//! | STRING | a text with Jackson's escapes; what is not UTF-8 becomes U+FFFD as in Java |
//! | BYTES | Base64 |
//! | DATE, TIME, TIMESTAMP, TIMESTAMP_LTZ | a text with as few digits as possible, instants with `Z` |
//! | INTERVAL DAY TO SECOND | a number of milliseconds |
//! | ARRAY, MAP with texts as keys, ROW | of these types |

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::columns::{Column, Values, part, range};
use crate::fault::{Fault, Written};
use crate::types::{Type, Unsupported};
use crate::{numbers, text};

const MICROS_A_MILLISECOND: i64 = 1000;

/// How JSON is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// The character between the date and the time of a timestamp.
    pub separator: u8,
    /// Decimal numbers never have an exponent.
    pub plain_decimals: bool,
    /// Fields that are null are not written.
    pub ignore_nulls: bool,
}

impl Style {
    pub(crate) fn parse(options: &Value) -> Self {
        let option = |name: &str| options[name].as_bool().unwrap_or(false);
        let separator = if options["separator"] == "T" { b'T' } else { b' ' };
        Self { separator, plain_decimals: option("plain_decimals"), ignore_nulls: option("ignore_nulls") }
    }
}

/// Writes rows as JSON.
pub(crate) struct Writer {
    row: Step,
    style: Style,
}

/// How a value is written.
enum Step {
    Boolean,
    Number,
    Float,
    Decimal(usize),
    Text,
    Binary,
    Date,
    Time,
    Interval,
    Timestamp,
    TimestampNtz,
    List(Box<Step>),
    Map(Box<Step>),
    /// Each field's name in quotes, with a colon.
    Struct(Vec<(Vec<u8>, Step)>),
}

impl Writer {
    pub(crate) fn new(columns: &Type, style: Style) -> Result<Self, Unsupported> {
        Ok(Self { row: step(columns)?, style })
    }

    /// Append a row, which is not null.
    pub(crate) fn write(&self, rows: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Written {
        self.value(&self.row, rows, row, out)
    }

    fn value(&self, step: &Step, column: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Written {
        match (step, &column.values) {
            (Step::Boolean, Values::Boolean(v)) => {
                out.extend_from_slice(if v.value(row) { b"true" } else { b"false" });
            }
            (Step::Number, Values::Int8(v)) => numbers::whole(v[row].into(), out),
            (Step::Number, Values::Int16(v)) => numbers::whole(v[row].into(), out),
            (Step::Number, Values::Int32(v)) => numbers::whole(v[row].into(), out),
            (Step::Number, Values::Int64(v)) => numbers::whole(v[row], out),
            (Step::Float, Values::Float32(v)) => number(v[row].is_finite(), |out| numbers::float(v[row], out), out),
            (Step::Float, Values::Float64(v)) => number(v[row].is_finite(), |out| numbers::double(v[row], out), out),
            (Step::Interval, Values::Int64(v)) => numbers::whole(v[row] / MICROS_A_MILLISECOND, out),
            (Step::Decimal(scale), Values::Decimal(v, _)) if self.style.plain_decimals => {
                numbers::plain_decimal(v[row], *scale, out);
            }
            (Step::Decimal(scale), Values::Decimal(v, _)) => numbers::decimal(v[row], *scale, out),
            (Step::Text, Values::Bytes(offsets, data)) => text::quoted(part(offsets, data, row), out),
            (Step::Binary, Values::Bytes(offsets, data)) => {
                let bytes = part(offsets, data, row);
                let begin = out.len() + 1;
                out.push(b'"');
                out.resize(begin + bytes.len().div_ceil(3) * 4, 0);
                STANDARD.encode_slice(bytes, &mut out[begin..]).map_err(|_| Fault::plan())?;
                out.push(b'"');
            }
            (Step::Date, Values::Int32(v)) => {
                out.push(b'"');
                numbers::date(v[row].into(), out);
                out.push(b'"');
            }
            (Step::Time, Values::Int64(v)) => {
                out.push(b'"');
                numbers::time(v[row], out);
                out.push(b'"');
            }
            (Step::Timestamp | Step::TimestampNtz, Values::Int64(v)) => {
                out.push(b'"');
                numbers::timestamp(v[row], self.style.separator, out);
                if matches!(step, Step::Timestamp) {
                    out.push(b'Z');
                }
                out.push(b'"');
            }
            (Step::List(element), Values::List(offsets, elements)) => {
                out.push(b'[');
                for (i, at) in range(offsets, row).enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    self.or_null(element, elements, at, out)?;
                }
                out.push(b']');
            }
            (Step::Map(step), Values::Map(offsets, keys, values)) => {
                out.push(b'{');
                for (i, at) in range(offsets, row).enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    let Values::Bytes(ends, names) = &keys.values else { return Err(Fault::plan()) };
                    text::quoted(part(ends, names, at), out);
                    out.push(b':');
                    self.or_null(step, values, at, out)?;
                }
                out.push(b'}');
            }
            (Step::Struct(fields), Values::Struct(columns)) => {
                out.push(b'{');
                let first = out.len();
                for ((name, step), column) in fields.iter().zip(columns) {
                    if self.style.ignore_nulls && !column.is_valid(row) {
                        continue;
                    }
                    if out.len() > first {
                        out.push(b',');
                    }
                    out.extend_from_slice(name);
                    self.or_null(step, column, row, out)?;
                }
                out.push(b'}');
            }
            _ => return Err(Fault::plan()),
        }
        Ok(())
    }

    #[inline]
    fn or_null(&self, step: &Step, column: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Written {
        if column.is_valid(row) {
            return self.value(step, column, row, out);
        }
        out.extend_from_slice(b"null");
        Ok(())
    }
}

/// Append a number, in quotes if JSON has no such number.
fn number(is_finite: bool, write: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    let quote: &[u8] = if is_finite { b"" } else { b"\"" };
    out.extend_from_slice(quote);
    write(out);
    out.extend_from_slice(quote);
}

fn step(type_: &Type) -> Result<Step, Unsupported> {
    Ok(match type_ {
        Type::Boolean => Step::Boolean,
        Type::Int8 | Type::Int16 | Type::Int32 | Type::Int64 => Step::Number,
        Type::Float32 | Type::Float64 => Step::Float,
        Type::Decimal(_, scale) => {
            Step::Decimal(usize::try_from(*scale).map_err(|_| Unsupported(format!("type {type_:?}")))?)
        }
        Type::String => Step::Text,
        Type::Binary => Step::Binary,
        Type::Date => Step::Date,
        Type::Time => Step::Time,
        Type::Interval => Step::Interval,
        Type::Timestamp => Step::Timestamp,
        Type::TimestampNtz => Step::TimestampNtz,
        Type::List(element) => Step::List(Box::new(step(element)?)),
        Type::Map(key, value) if **key == Type::String => Step::Map(Box::new(step(value)?)),
        Type::Struct(fields) => Step::Struct(fields.iter().map(field).collect::<Result<_, _>>()?),
        Type::Map(..) => return Err(Unsupported(format!("type {type_:?} as JSON"))),
    })
}

fn field((name, type_): &(String, Type)) -> Result<(Vec<u8>, Step), Unsupported> {
    let mut quoted = Vec::new();
    text::quoted(name.as_bytes(), &mut quoted);
    quoted.push(b':');
    Ok((quoted, step(type_)?))
}
