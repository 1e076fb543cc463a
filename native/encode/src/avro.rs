//! The formats `avro` and `avro-confluent`: a row is a record in Avro's binary encoding.
//!
//! The encoder is certain about:
//!
//! | column | is written as |
//! |---|---|
//! | BOOLEAN | boolean |
//! | TINYINT, SMALLINT, INT | int, long |
//! | BIGINT | long |
//! | FLOAT | float, double |
//! | DOUBLE | double |
//! | DECIMAL | bytes or fixed of the logical type decimal and the same scale, if it fits |
//! | STRING | string, enum with this symbol |
//! | BYTES | bytes, fixed of this size |
//! | DATE | int |
//! | TIME | int `time-millis`, long `time-micros` |
//! | TIMESTAMP, TIMESTAMP_LTZ | long `timestamp-millis`, `timestamp-micros` or the same of `local-timestamp` |
//! | ARRAY, MAP with texts as keys, ROW | array, map, record whose fields are columns |
//! | all | one of these, or a union of null and one of these |
//!
//! A row is left if it has a null where none is allowed, a time with more digits than its unit, or a value that does not
//! fit otherwise: the other code knows the error.

use std::collections::HashMap;

use serde_json::Value;

use crate::Uncertain;
use crate::columns::{Column, Values, part, range};
use crate::spec::{Type, Unsupported};

/// How a value is written.
enum Step {
    Boolean,
    Number,
    /// A number, or a time, in units of as many of the column's. True if what is lost is cut off.
    Time(i64, bool),
    Float,
    Double,
    /// A string or bytes, with their length.
    Bytes,
    Fixed(usize),
    /// The precision.
    Decimal(u8),
    /// The precision and the number of bytes.
    FixedDecimal(u8, usize),
    Enum(HashMap<Vec<u8>, i64>),
    Array(Box<Step>),
    Map(Box<Step>),
    /// The column of each field, and how it is written.
    Record(Vec<(usize, Step)>),
    /// The branch of null, if there is one, and the other one.
    Union(Option<i64>, i64, Box<Step>),
}

/// Writes rows as records.
pub(crate) struct Writer(Step);

impl Writer {
    /// Return a writer.
    ///
    /// `schema` is the record as fastavro parsed it. `cut` has the columns, by their paths, with times that are cut to the
    /// unit of their schema.
    pub(crate) fn new(columns: &Type, schema: &Value, cut: &[String]) -> Result<Self, Unsupported> {
        let mut names = HashMap::new();
        collect(schema, &mut names);
        Plan { names, cut }.step(schema, columns, "").map(Self)
    }

    /// Append a row, which is not null.
    pub(crate) fn write(&self, rows: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Result<(), Uncertain> {
        value(&self.0, rows, row, out)
    }
}

fn value(step: &Step, column: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Result<(), Uncertain> {
    if let Step::Union(null, other, step) = step {
        if column.is_valid(row) {
            long(*other, out);
            return value(step, column, row, out);
        }
        long(null.ok_or(Uncertain)?, out);
        return Ok(());
    }
    if !column.is_valid(row) {
        return Err(Uncertain);
    }
    match (step, &column.values) {
        (Step::Boolean, Values::Boolean(v)) => out.push(v.value(row).into()),
        (Step::Number, Values::Int8(v)) => long(v[row].into(), out),
        (Step::Number, Values::Int16(v)) => long(v[row].into(), out),
        (Step::Number, Values::Int32(v)) => long(v[row].into(), out),
        (Step::Number, Values::Int64(v)) => long(v[row], out),
        (Step::Time(unit, cut), Values::Int64(v)) => {
            if !cut && v[row].rem_euclid(*unit) != 0 {
                return Err(Uncertain);
            }
            long(v[row].div_euclid(*unit), out);
        }
        (Step::Float, Values::Float32(v)) => out.extend_from_slice(&v[row].to_le_bytes()),
        // What becomes of the other bits of NaN is not certain.
        (Step::Double, Values::Float32(v)) if v[row].is_nan() => return Err(Uncertain),
        (Step::Double, Values::Float32(v)) => out.extend_from_slice(&f64::from(v[row]).to_le_bytes()),
        (Step::Double, Values::Float64(v)) => out.extend_from_slice(&v[row].to_le_bytes()),
        (Step::Bytes, Values::Bytes(offsets, data)) => bytes(part(offsets, data, row), out),
        (Step::Fixed(size), Values::Bytes(offsets, data)) => {
            let value = part(offsets, data, row);
            if value.len() != *size {
                return Err(Uncertain);
            }
            out.extend_from_slice(value);
        }
        (Step::Enum(symbols), Values::Bytes(offsets, data)) => {
            long(*symbols.get(part(offsets, data, row)).ok_or(Uncertain)?, out);
        }
        (Step::Decimal(precision), Values::Decimal(v)) => {
            let digits = fitting(v[row], *precision)?.to_be_bytes();
            bytes(&digits[redundant(&digits)..], out);
        }
        (Step::FixedDecimal(precision, size), Values::Decimal(v)) => {
            let value = fitting(v[row], *precision)?;
            let digits = value.to_be_bytes();
            let used = &digits[redundant(&digits)..];
            let sign = if value < 0 { 0xFF } else { 0 };
            let missing = size.checked_sub(used.len()).ok_or(Uncertain)?;
            out.resize(out.len() + missing, sign);
            out.extend_from_slice(used);
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
            let Values::Bytes(ends, names) = &keys.values else { return Err(Uncertain) };
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
            for (place, step) in fields {
                value(step, &columns[*place], row, out)?;
            }
        }
        _ => return Err(Uncertain),
    }
    Ok(())
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

fn fitting(value: i128, precision: u8) -> Result<i128, Uncertain> {
    if value.unsigned_abs() < 10_u128.pow(precision.into()) { Ok(value) } else { Err(Uncertain) }
}

/// Return how many of the leading bytes only repeat the sign.
fn redundant(digits: &[u8; 16]) -> usize {
    let sign = if digits[0] >= 0x80 { 0xFF } else { 0 };
    digits.windows(2).take_while(|pair| pair[0] == sign && (pair[1] ^ sign) < 0x80).count()
}

// --- schemas ---

struct Plan<'a> {
    names: HashMap<&'a str, &'a Value>,
    cut: &'a [String],
}

/// Find the named types in a schema. Names are full names, as fastavro's parsed schemas have them.
fn collect<'a>(schema: &'a Value, names: &mut HashMap<&'a str, &'a Value>) {
    match schema {
        Value::Array(branches) => branches.iter().for_each(|branch| collect(branch, names)),
        Value::Object(parts) => {
            if let Some(name) = parts.get("name").and_then(Value::as_str) {
                names.insert(name, schema);
            }
            for part in ["type", "items", "values"] {
                parts.get(part).into_iter().for_each(|inner| collect(inner, names));
            }
            for field in parts.get("fields").and_then(Value::as_array).into_iter().flatten() {
                collect(&field["type"], names);
            }
        }
        _ => {}
    }
}

impl Plan<'_> {
    /// Return how a column of a type is written. Each call is for a part of the type, or ends a chain of names.
    fn step(&self, schema: &Value, type_: &Type, path: &str) -> Result<Step, Unsupported> {
        let unsupported = || Unsupported(format!("column '{path}' of the type {type_:?} as Avro's {schema}"));
        let schema = self.resolved(schema).ok_or_else(unsupported)?;
        if let Value::Array(branches) = schema {
            return self.union(branches, type_, path);
        }
        let kind = schema.as_str().or_else(|| schema["type"].as_str()).ok_or_else(unsupported)?;
        let logical = schema["logicalType"].as_str().unwrap_or_default();
        let size =
            || schema["size"].as_u64().and_then(|size| usize::try_from(size).ok()).filter(|size| *size <= 1 << 20);
        Ok(match (kind, type_) {
            ("boolean", Type::Boolean) => Step::Boolean,
            ("int" | "long", Type::Int8 | Type::Int16 | Type::Int32) | ("long", Type::Int64) => Step::Number,
            ("int", Type::Date) => Step::Number,
            ("int", Type::Time) if logical == "time-millis" => Step::Time(1_000_000, self.is_cut(path)),
            ("long", Type::Time) if logical == "time-micros" => Step::Time(1000, self.is_cut(path)),
            ("long", Type::Timestamp | Type::TimestampNtz) => match logical {
                "timestamp-millis" | "local-timestamp-millis" => Step::Time(1000, self.is_cut(path)),
                "timestamp-micros" | "local-timestamp-micros" => Step::Number,
                _ => return Err(unsupported()),
            },
            ("float", Type::Float32) => Step::Float,
            ("double", Type::Float32 | Type::Float64) => Step::Double,
            ("string", Type::String) | ("bytes", Type::Binary) => Step::Bytes,
            ("fixed", Type::Binary) => Step::Fixed(size().ok_or_else(unsupported)?),
            ("enum", Type::String) => {
                let symbols = schema["symbols"].as_array().ok_or_else(unsupported)?;
                let named = |(i, symbol): (usize, &Value)| Some((symbol.as_str()?.as_bytes().to_vec(), i as i64));
                Step::Enum(symbols.iter().enumerate().map(named).collect::<Option<_>>().ok_or_else(unsupported)?)
            }
            ("bytes" | "fixed", Type::Decimal(_, scale)) if logical == "decimal" => {
                let precision = schema["precision"].as_u64().filter(|digits| (1..=38).contains(digits));
                if schema["scale"].as_i64().unwrap_or(0) != i64::from(*scale) {
                    return Err(unsupported());
                }
                let precision = precision.ok_or_else(unsupported)? as u8;
                match kind {
                    "bytes" => Step::Decimal(precision),
                    _ => Step::FixedDecimal(precision, size().ok_or_else(unsupported)?),
                }
            }
            ("array", Type::List(element)) => Step::Array(Box::new(self.step(&schema["items"], element, path)?)),
            ("map", Type::Map(key, value)) if **key == Type::String => {
                Step::Map(Box::new(self.step(&schema["values"], value, path)?))
            }
            ("record", Type::Struct(columns)) => {
                let fields = schema["fields"].as_array().ok_or_else(unsupported)?;
                let field = |field: &Value| {
                    let name = field["name"].as_str().ok_or_else(unsupported)?;
                    let place = columns.iter().position(|(column, _)| column == name).ok_or_else(unsupported)?;
                    let shown = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
                    Ok((place, self.step(&field["type"], &columns[place].1, &shown)?))
                };
                Step::Record(fields.iter().map(field).collect::<Result<_, _>>()?)
            }
            _ => return Err(unsupported()),
        })
    }

    /// Return a type behind names and nested descriptions.
    fn resolved<'b>(&'b self, schema: &'b Value) -> Option<&'b Value> {
        let mut found = schema;
        for _ in 0..100 {
            found = match found {
                Value::String(name) => match self.names.get(name.as_str()) {
                    Some(named) => named,
                    None => return Some(found),
                },
                Value::Object(parts) => match parts.get("type")? {
                    inner @ (Value::Object(_) | Value::Array(_)) => inner,
                    Value::String(name) => match self.names.get(name.as_str()) {
                        Some(named) => named,
                        None => return Some(found),
                    },
                    _ => return None,
                },
                _ => return Some(found),
            };
        }
        None
    }

    fn union(&self, branches: &[Value], type_: &Type, path: &str) -> Result<Step, Unsupported> {
        let unsupported = || Unsupported(format!("column '{path}' as a union of {} types", branches.len()));
        let is_null = |branch: &&Value| self.resolved(branch).is_some_and(|b| *b == "null" || b["type"] == "null");
        let others: Vec<usize> = (0..branches.len()).filter(|i| !is_null(&&branches[*i])).collect();
        let null = branches.iter().position(|branch| is_null(&branch)).map(|i| i as i64);
        let [other] = others[..] else { return Err(unsupported()) };
        if self.resolved(&branches[other]).is_some_and(Value::is_array) {
            return Err(unsupported());
        }
        Ok(Step::Union(null, other as i64, Box::new(self.step(&branches[other], type_, path)?)))
    }

    fn is_cut(&self, path: &str) -> bool {
        self.cut.iter().any(|column| column == path)
    }
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
}
