//! The formats `avro` and `avro-confluent`: a row is a record in Avro's binary encoding.
//!
//! Each row is written by a plan, which Python has made of the schema and of the columns (`formats/avro/encoding.py`). A row that
//! cannot be written has an error: its column and why. The plan is a JSON object with a `type`:
//!
//! | type | has | column |
//! |---|---|---|
//! | `boolean` | | BOOLEAN |
//! | `number` | | a whole number, DATE, or a time in the unit of its schema |
//! | `time` | `divide` or `multiply`, `cut`, `logical` | a time in another unit |
//! | `float`, `double` | | FLOAT, DOUBLE |
//! | `bytes` | | STRING, BYTES |
//! | `fixed` | `size` | BYTES |
//! | `enum` | `symbols` | STRING |
//! | `decimal` | `precision`, `scale`; `size` of a fixed | DECIMAL |
//! | `array`, `map` | `item` | ARRAY, MAP with texts as keys |
//! | `record` | `fields` with `name`, `column` and `item` | ROW |
//! | `union` | `item` and its `branch`; `null`, if that is a branch | any of these |

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use crate::columns::{Column, Values, part, range};
use crate::fault::{Fault, Written};
use crate::types::Unsupported;

/// How a value is written.
enum Step {
    Boolean,
    Number,
    Time(Time),
    Float,
    Double,
    /// A string or bytes, with their length.
    Bytes,
    Fixed(usize),
    /// The precision, the scale, and the number of bytes of a fixed.
    Decimal(u8, i32, Option<usize>),
    Enum(HashMap<Vec<u8>, i64>),
    Array(Box<Step>),
    Map(Box<Step>),
    /// The name and the column of each field, and how it is written.
    Record(Vec<(Arc<str>, usize, Step)>),
    /// The branch of null, if there is one, and the other one.
    Union(Option<i64>, i64, Box<Step>),
}

/// A time in another unit than that of its column.
struct Time {
    divide: i64,
    multiply: i64,
    /// True if what is lost is cut off.
    cut: bool,
    /// The logical type of the schema.
    logical: String,
}

/// Writes rows as records.
pub(crate) struct Writer(Step);

impl Writer {
    /// Return a writer by a plan.
    pub(crate) fn new(plan: &Value) -> Result<Self, Unsupported> {
        parse(plan).map(Self)
    }

    /// Append a row, which is not null.
    pub(crate) fn write(&self, rows: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Written {
        value(&self.0, rows, row, out)
    }
}

fn value(step: &Step, column: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Written {
    const NULL: &str = "is null, and its schema does not allow that";
    if let Step::Union(null, other, step) = step {
        if column.is_valid(row) {
            long(*other, out);
            return value(step, column, row, out);
        }
        long(null.ok_or_else(|| Fault::is(NULL))?, out);
        return Ok(());
    }
    if !column.is_valid(row) {
        return Err(Fault::is(NULL));
    }
    match (step, &column.values) {
        (Step::Boolean, Values::Boolean(v)) => out.push(v.value(row).into()),
        (Step::Number, Values::Int8(v)) => long(v[row].into(), out),
        (Step::Number, Values::Int16(v)) => long(v[row].into(), out),
        (Step::Number, Values::Int32(v)) => long(v[row].into(), out),
        (Step::Number, Values::Int64(v)) => long(v[row], out),
        (Step::Time(time), Values::Int64(v)) => long(time.of(v[row])?, out),
        (Step::Float, Values::Float32(v)) => out.extend_from_slice(&v[row].to_le_bytes()),
        (Step::Double, Values::Float32(v)) => out.extend_from_slice(&f64::from(v[row]).to_le_bytes()),
        (Step::Double, Values::Float64(v)) => out.extend_from_slice(&v[row].to_le_bytes()),
        (Step::Bytes, Values::Bytes(offsets, data)) => bytes(part(offsets, data, row), out),
        (Step::Fixed(size), Values::Bytes(offsets, data)) => {
            let value = part(offsets, data, row);
            if value.len() != *size {
                return Err(Fault::is(format!("does not have the {size} bytes of its schema")));
            }
            out.extend_from_slice(value);
        }
        (Step::Enum(symbols), Values::Bytes(offsets, data)) => {
            let symbol = symbols.get(part(offsets, data, row));
            long(*symbol.ok_or_else(|| Fault::is("is not one of the symbols of its enum"))?, out);
        }
        (Step::Decimal(precision, scale, size), Values::Decimal(v, from)) => {
            decimal(v[row], i32::from(*from), *precision, *scale, *size, out)
                .ok_or_else(|| Fault::is("has more digits than its schema allows"))?;
        }
        (Step::Array(item), Values::List(offsets, elements)) => {
            let elements_of_row = range(offsets, row);
            if !elements_of_row.is_empty() {
                long(elements_of_row.len() as i64, out);
            }
            for at in elements_of_row {
                value(item, elements, at, out)?;
            }
            out.push(0);
        }
        (Step::Map(item), Values::Map(offsets, keys, values)) => {
            let Values::Bytes(ends, names) = &keys.values else { return Err(Fault::plan()) };
            let entries = range(offsets, row);
            if !entries.is_empty() {
                long(entries.len() as i64, out);
            }
            for at in entries {
                bytes(part(ends, names, at), out);
                value(item, values, at, out)?;
            }
            out.push(0);
        }
        (Step::Record(fields), Values::Struct(columns)) => {
            for (name, place, step) in fields {
                let column = columns.get(*place).ok_or_else(Fault::plan)?;
                value(step, column, row, out).map_err(|fault| fault.within(name))?;
            }
        }
        _ => return Err(Fault::plan()),
    }
    Ok(())
}

impl Time {
    fn of(&self, value: i64) -> Result<i64, Box<Fault>> {
        if !self.cut && value.rem_euclid(self.divide) != 0 {
            return Err(Fault::is(format!(
                "has more digits than {} in its schema; set 'timestamp_mapping.legacy' of the format to false for \
                 microseconds, or cut the value with date_trunc('millisecond', ...)",
                self.logical
            )));
        }
        let time = value.div_euclid(self.divide).checked_mul(self.multiply);
        time.ok_or_else(|| Fault::is(format!("is out of the range of {}", self.logical)))
    }
}

#[inline]
fn long(value: i64, out: &mut Vec<u8>) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest > 0x7F {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[inline]
fn bytes(value: &[u8], out: &mut Vec<u8>) {
    long(value.len() as i64, out);
    out.extend_from_slice(value);
}

/// Append a decimal number in two's complement, highest byte first; None if it does not fit.
fn decimal(value: i128, from: i32, precision: u8, scale: i32, size: Option<usize>, out: &mut Vec<u8>) -> Option<()> {
    let power = 10_i128.checked_pow((scale - from).unsigned_abs());
    let value = match power {
        _ if value == 0 => 0,
        Some(power) if scale >= from => value.checked_mul(power)?,
        Some(power) if value % power == 0 => value / power,
        _ => return None,
    };
    if value.unsigned_abs() >= 10_u128.pow(precision.into()) {
        return None;
    }
    let digits = value.to_be_bytes();
    let used = &digits[redundant(&digits)..];
    match size {
        None => bytes(used, out),
        Some(size) => {
            let missing = size.checked_sub(used.len())?;
            out.resize(out.len() + missing, if value < 0 { 0xFF } else { 0 });
            out.extend_from_slice(used);
        }
    }
    Some(())
}

/// Return how many of the leading bytes only repeat the sign.
fn redundant(digits: &[u8; 16]) -> usize {
    let sign = if digits[0] >= 0x80 { 0xFF } else { 0 };
    digits.windows(2).take_while(|pair| pair[0] == sign && (pair[1] ^ sign) < 0x80).count()
}

// --- plans ---

fn parse(plan: &Value) -> Result<Step, Unsupported> {
    let unsupported = || Unsupported(format!("Avro plan {plan}"));
    let number = |name: &str| plan[name].as_u64().and_then(|number| usize::try_from(number).ok());
    let item = || Ok(Box::new(parse(&plan["item"])?));
    Ok(match plan["type"].as_str().unwrap_or_default() {
        "boolean" => Step::Boolean,
        "number" => Step::Number,
        "float" => Step::Float,
        "double" => Step::Double,
        "bytes" => Step::Bytes,
        "fixed" => Step::Fixed(number("size").ok_or_else(unsupported)?),
        "time" => {
            let factor = |name: &str| plan[name].as_i64().filter(|factor| *factor > 0).unwrap_or(1);
            Step::Time(Time {
                divide: factor("divide"),
                multiply: factor("multiply"),
                cut: plan["cut"].as_bool().unwrap_or(false),
                logical: plan["logical"].as_str().unwrap_or_default().to_owned(),
            })
        }
        "enum" => {
            let symbols = plan["symbols"].as_array().ok_or_else(unsupported)?;
            let named = |(i, symbol): (usize, &Value)| Some((symbol.as_str()?.as_bytes().to_vec(), i as i64));
            Step::Enum(symbols.iter().enumerate().map(named).collect::<Option<_>>().ok_or_else(unsupported)?)
        }
        "decimal" => {
            let precision = number("precision").filter(|digits| (1..=38).contains(digits)).ok_or_else(unsupported)?;
            let scale = plan["scale"].as_i64().and_then(|scale| i32::try_from(scale).ok()).ok_or_else(unsupported)?;
            let size = number("size").filter(|size| *size <= 1 << 20);
            if size.is_none() && !plan["size"].is_null() {
                return Err(unsupported());
            }
            Step::Decimal(precision as u8, scale, size)
        }
        "array" => Step::Array(item()?),
        "map" => Step::Map(item()?),
        "record" => {
            let field = |field: &Value| {
                let column = field["column"].as_u64().and_then(|column| usize::try_from(column).ok());
                let name = field["name"].as_str().unwrap_or_default().into();
                Ok((name, column.ok_or_else(unsupported)?, parse(&field["item"])?))
            };
            let fields = plan["fields"].as_array().ok_or_else(unsupported)?;
            Step::Record(fields.iter().map(field).collect::<Result<_, _>>()?)
        }
        "union" => Step::Union(plan["null"].as_i64(), plan["branch"].as_i64().ok_or_else(unsupported)?, item()?),
        _ => return Err(unsupported()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_zigzag() {
        for (value, expected) in
            [(0, &[0][..]), (-1, &[1]), (64, &[0x80, 1]), (i64::MIN, &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1])]
        {
            let mut out = Vec::new();
            long(value, &mut out);
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn decimals_have_as_few_bytes_as_possible() {
        for (value, expected) in
            [(0_i128, 1), (127, 1), (128, 2), (-128, 1), (-129, 2), (i128::MAX, 16), (i128::MIN, 16)]
        {
            assert_eq!(16 - redundant(&value.to_be_bytes()), expected, "{value}");
        }
    }

    #[test]
    fn decimals_have_the_scale_of_their_schema() {
        for (value, from, precision, scale, size, expected) in [
            (5, 0, 3, 2, None, Some(&[4, 1, 244][..])),
            (500, 2, 1, 0, None, Some(&[2, 5])),
            (501, 2, 9, 0, None, None),
            (-1, 0, 9, 0, Some(3), Some(&[255, 255, 255])),
            (300, 0, 9, 0, Some(1), None),
            (100, 0, 2, 0, None, None),
            (0, 0, 1, 60, None, Some(&[2, 0])),
            (1, 0, 38, 60, None, None),
        ] {
            let mut out = Vec::new();
            let found = decimal(value, from, precision, scale, size, &mut out).map(|()| &out[..]);
            assert_eq!(found, expected, "{value}");
        }
    }
}
