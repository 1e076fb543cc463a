//! The formats `protobuf` and `protobuf-confluent`: a row is a message in Protobuf's encoding.
//!
//! Fields are written as Google's library does, in the order of their numbers. Columns that are null are not set. The encoder is
//! certain about all types of fields but groups.
//!
//! A row is left if it lacks a required field, or has a number that does not fit or a text that is not UTF-8: the other code
//! knows the error. So is a row with a map of several entries, whose order is the library's own, or with a signaling NaN.

use std::collections::HashMap;

use serde_json::Value;

use crate::Uncertain;
use crate::columns::{Column, Values, part, range};
use crate::spec::{Type, Unsupported};

/// How a scalar is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scalar {
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

/// How a value is written.
enum Step {
    Scalar(Scalar),
    /// The numbers by name, and the number of all other names.
    EnumName(HashMap<Vec<u8>, i32>, i32),
    /// The numbers, and the one in place of all others.
    EnumNumber(Vec<i64>, i32),
    Timestamp,
    Message(Vec<Field>),
}

/// How often a field is written.
enum Count {
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
    Map(Scalar),
}

struct Field {
    column: usize,
    number: u32,
    count: Count,
    /// The columns of the same oneof that come later: if one of them is set, this field is not.
    later: Vec<usize>,
    step: Step,
}

/// Writes rows as messages.
pub(crate) struct Writer {
    fields: Vec<Field>,
    null_literal: Vec<u8>,
}

impl Writer {
    /// Return a writer of a message, whose fields `formats/protobuf/encoding.py` describes.
    pub(crate) fn new(columns: &Type, message: &Value, null_literal: &str) -> Result<Self, Unsupported> {
        Ok(Self { fields: fields(columns, message)?, null_literal: null_literal.as_bytes().to_vec() })
    }

    /// Append a row, which is not null.
    pub(crate) fn write(&self, rows: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Result<(), Uncertain> {
        self.message(&self.fields, rows, row, out)
    }

    fn message(&self, fields: &[Field], rows: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Result<(), Uncertain> {
        let Values::Struct(columns) = &rows.values else { return Err(Uncertain) };
        for field in fields {
            let column = &columns[field.column];
            if !column.is_valid(row) {
                if matches!(field.count, Count::Required) {
                    return Err(Uncertain);
                }
                continue;
            }
            if field.later.iter().any(|later| columns[*later].is_valid(row)) {
                // The other code checks the value that is lost, too.
                self.value(&field.step, column, row, &mut Vec::new())?;
                continue;
            }
            self.field(field, column, row, out)?;
        }
        Ok(())
    }

    fn field(&self, field: &Field, column: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Result<(), Uncertain> {
        let step = &field.step;
        match (&field.count, &column.values) {
            (Count::Explicit | Count::Required, _) => {
                tag(field.number, step, out);
                self.value(step, column, row, out)
            }
            (Count::Implicit, _) => {
                let begin = out.len();
                tag(field.number, step, out);
                let value = out.len();
                self.value(step, column, row, out)?;
                // Whatever its type, a default consists of zeros: also the length of a text.
                if out[value..].iter().all(|byte| *byte == 0) {
                    out.truncate(begin);
                }
                Ok(())
            }
            (Count::Unpacked, Values::List(offsets, elements)) => {
                for at in range(offsets, row) {
                    tag(field.number, step, out);
                    self.element(step, elements, at, out)?;
                }
                Ok(())
            }
            (Count::Packed, Values::List(offsets, elements)) => {
                let elements_of_row = range(offsets, row);
                if elements_of_row.is_empty() {
                    return Ok(());
                }
                varint(u64::from(field.number) << 3 | DELIMITED, out);
                delimited(out, |out| {
                    elements_of_row.into_iter().try_for_each(|at| self.element(step, elements, at, out))
                })
            }
            (Count::Map(scalar), Values::Map(offsets, keys, values)) => {
                let entries = range(offsets, row);
                if entries.len() > 1 {
                    return Err(Uncertain);
                }
                for at in entries {
                    varint(u64::from(field.number) << 3 | DELIMITED, out);
                    delimited(out, |out| {
                        let name = Step::Scalar(*scalar);
                        tag(1, &name, out);
                        self.value(&name, keys, at, out)?;
                        tag(2, step, out);
                        self.element(step, values, at, out)
                    })?;
                }
                Ok(())
            }
            _ => Err(Uncertain),
        }
    }

    /// Append an element of an array or a map, which has its type's default if it is null.
    fn element(&self, step: &Step, column: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Result<(), Uncertain> {
        if column.is_valid(row) {
            return self.value(step, column, row, out);
        }
        match step {
            Step::Scalar(Scalar::String) => text(&self.null_literal, out),
            Step::Scalar(Scalar::Float | Scalar::Fixed32 | Scalar::Sfixed32) => out.extend_from_slice(&[0; 4]),
            Step::Scalar(Scalar::Double | Scalar::Fixed64 | Scalar::Sfixed64) => out.extend_from_slice(&[0; 8]),
            Step::Scalar(_) | Step::Timestamp => out.push(0),
            Step::EnumName(_, first) | Step::EnumNumber(_, first) => varint(i64::from(*first) as u64, out),
            Step::Message(fields) if fields.iter().any(|field| matches!(field.count, Count::Required)) => {
                return Err(Uncertain);
            }
            Step::Message(_) => out.push(0),
        }
        Ok(())
    }

    fn value(&self, step: &Step, column: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Result<(), Uncertain> {
        match (step, &column.values) {
            (Step::Scalar(scalar), _) => return write(*scalar, column, row, out),
            (Step::EnumName(numbers, first), Values::Bytes(offsets, data)) => {
                let name = part(offsets, data, row);
                std::str::from_utf8(name).map_err(|_| Uncertain)?;
                varint(i64::from(*numbers.get(name).unwrap_or(first)) as u64, out);
            }
            (Step::EnumNumber(numbers, first), _) => {
                let found = number(column, row)?;
                varint((if numbers.contains(&found) { found } else { (*first).into() }) as u64, out);
            }
            (Step::Timestamp, Values::Int64(v)) => {
                let (seconds, micros) = (v[row].div_euclid(1_000_000), v[row].rem_euclid(1_000_000));
                return delimited(out, |out| {
                    for (tag, value) in [(1 << 3, seconds), (2 << 3, micros * 1000)] {
                        if value != 0 {
                            out.push(tag);
                            varint(value as u64, out);
                        }
                    }
                    Ok(())
                });
            }
            (Step::Message(fields), _) => return delimited(out, |out| self.message(fields, column, row, out)),
            _ => return Err(Uncertain),
        }
        Ok(())
    }
}

fn write(scalar: Scalar, column: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Result<(), Uncertain> {
    let small = || number(column, row).and_then(|value| i32::try_from(value).map_err(|_| Uncertain));
    match (scalar, &column.values) {
        (Scalar::Bool, Values::Boolean(v)) => out.push(v.value(row).into()),
        (Scalar::Int32, _) => varint(i64::from(small()?) as u64, out),
        (Scalar::Sint32, _) => varint(zigzag(small()?.into()), out),
        (Scalar::Sfixed32, _) => out.extend_from_slice(&small()?.to_le_bytes()),
        (Scalar::Uint32, _) => varint(unsigned(column, row)?.into(), out),
        (Scalar::Fixed32, _) => out.extend_from_slice(&unsigned(column, row)?.to_le_bytes()),
        (Scalar::Int64 | Scalar::Uint64, Values::Int64(v)) => varint(v[row] as u64, out),
        (Scalar::Sint64, Values::Int64(v)) => varint(zigzag(v[row]), out),
        (Scalar::Sfixed64 | Scalar::Fixed64, Values::Int64(v)) => out.extend_from_slice(&v[row].to_le_bytes()),
        (Scalar::Float, Values::Float32(v)) => {
            let bits = v[row].to_bits();
            if v[row].is_nan() && bits & 1 << 22 == 0 {
                return Err(Uncertain);
            }
            out.extend_from_slice(&bits.to_le_bytes());
        }
        (Scalar::Double, Values::Float64(v)) => {
            let bits = v[row].to_bits();
            if v[row].is_nan() && bits & 1 << 51 == 0 {
                return Err(Uncertain);
            }
            out.extend_from_slice(&bits.to_le_bytes());
        }
        (Scalar::String, Values::Bytes(offsets, data)) => {
            let value = part(offsets, data, row);
            std::str::from_utf8(value).map_err(|_| Uncertain)?;
            text(value, out);
        }
        (Scalar::Bytes, Values::Bytes(offsets, data)) => text(part(offsets, data, row), out),
        _ => return Err(Uncertain),
    }
    Ok(())
}

fn number(column: &Column<'_>, row: usize) -> Result<i64, Uncertain> {
    match &column.values {
        Values::Int8(v) => Ok(v[row].into()),
        Values::Int16(v) => Ok(v[row].into()),
        Values::Int32(v) => Ok(v[row].into()),
        Values::Int64(v) => Ok(v[row]),
        _ => Err(Uncertain),
    }
}

/// Return a number of 32 bits: Flink shows large ones as negative in an INT.
fn unsigned(column: &Column<'_>, row: usize) -> Result<u32, Uncertain> {
    match &column.values {
        Values::Int32(v) => Ok(v[row] as u32),
        Values::Int64(v) => u32::try_from(v[row]).map_err(|_| Uncertain),
        _ => Err(Uncertain),
    }
}

const DELIMITED: u64 = 2;

fn tag(number: u32, step: &Step, out: &mut Vec<u8>) {
    let wire = match step {
        Step::Scalar(Scalar::Double | Scalar::Fixed64 | Scalar::Sfixed64) => 1,
        Step::Scalar(Scalar::Float | Scalar::Fixed32 | Scalar::Sfixed32) => 5,
        Step::Scalar(Scalar::String | Scalar::Bytes) | Step::Timestamp | Step::Message(_) => DELIMITED,
        Step::Scalar(_) | Step::EnumName(..) | Step::EnumNumber(..) => 0,
    };
    varint(u64::from(number) << 3 | wire, out);
}

#[inline]
fn varint(value: u64, out: &mut Vec<u8>) {
    let mut rest = value;
    while rest > 0x7F {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn text(value: &[u8], out: &mut Vec<u8>) {
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// Append the length of what is written, and then that.
fn delimited(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Result<(), Uncertain>) -> Result<(), Uncertain> {
    let place = out.len();
    out.push(0); // most lengths have one byte
    write(out)?;
    let mut length = Vec::new();
    varint((out.len() - place - 1) as u64, &mut length);
    out.splice(place..=place, length);
    Ok(())
}

// --- descriptors ---

fn fields(columns: &Type, message: &Value) -> Result<Vec<Field>, Unsupported> {
    let described = message.as_array().ok_or_else(|| unsupported(message))?;
    let Type::Struct(types) = columns else { return Err(unsupported(message)) };
    let place = |field: &Value| usize::try_from(field["column"].as_u64()?).ok().filter(|place| *place < types.len());
    let mut found = Vec::new();
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
                (Count::Map(scalar(&field["key"]).ok_or_else(|| unsupported(field))?), &**value)
            }
            _ => return Err(unsupported(field)),
        };
        let number = number.ok_or_else(|| unsupported(field))?;
        found.push(Field { column, number, count, later, step: step(of, field)? });
    }
    found.sort_by_key(|field| field.number);
    Ok(found)
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
        (Some("message"), Type::Struct(_)) => Ok(Step::Message(fields(type_, &field["fields"])?)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_has_as_many_bytes_as_it_needs() {
        for (size, prefix) in [(0, &[0][..]), (127, &[127]), (128, &[0x80, 1]), (20_000, &[0xA0, 0x9C, 1])] {
            let mut out = vec![9];
            let written = delimited(&mut out, |out| {
                out.resize(out.len() + size, 7);
                Ok(())
            });
            assert!(written.is_ok());
            assert_eq!(out, [&[9][..], prefix, &vec![7; size]].concat());
        }
    }
}
