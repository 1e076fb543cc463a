//! The formats `protobuf` and `protobuf-confluent`: a row is a message in Protobuf's encoding.
//!
//! Each row is written by a plan (`plan.rs`), which Python has made of a descriptor and of the columns. A row that cannot be
//! written has an error: its column and why. Fields are written as Google's library does it, in the order of their numbers, and
//! the entries of a map in the order of their keys, because a message may be a key that decides the partition. Columns that are
//! null are not set.

mod json;
mod plan;
mod wire;

use std::cmp::Ordering;
use std::sync::Arc;

use serde_json::Value;

use crate::columns::{Column, Values, part, range};
use crate::fault::{Fault, Written};
use crate::types::{Type, Unsupported};
use json::Wrong;
use plan::{Count, Field, Message, Scalar, Step};
use wire::{DELIMITED, END_GROUP, GROUP, compared_texts, delimited, tag, text, varint, zigzag};

/// The reason for a number that is out of the range of its field.
const MISFIT: &str = "holds a value that does not fit";
/// The times of a google.protobuf.Timestamp, in microseconds since 1970.
const TIMES_US: std::ops::RangeInclusive<i64> = -62_135_596_800_000_000..=253_402_300_799_999_999;

/// Writes rows as messages.
pub(crate) struct Writer {
    name: String,
    message: Message,
    null_literal: Vec<u8>,
}

impl Writer {
    /// Return a writer by a plan.
    pub(crate) fn new(columns: &Type, plan: &Value) -> Result<Self, Unsupported> {
        let text = |name: &str| plan[name].as_str().unwrap_or_default().to_owned();
        let message = plan::message(columns, &plan["message"])?;
        Ok(Self { name: text("name"), message, null_literal: text("null_literal").into_bytes() })
    }

    /// Append a row, which is not null.
    pub(crate) fn write(&self, rows: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Written {
        self.message(&self.message, rows, row, out).map_err(|fault| {
            if fault.reason == MISFIT {
                return fault.because(|column| format!("{MISFIT} field {}.{column}", self.name));
            }
            fault
        })
    }

    fn message(&self, message: &Message, rows: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Written {
        let Values::Struct(columns) = &rows.values else { return Err(Fault::plan()) };
        if message.has_required {
            self.check_required(message, columns, row)?;
        }
        for field in &message.fields {
            let column = &columns[field.column];
            if !column.is_valid(row) {
                continue;
            }
            let written = if field.later.iter().any(|later| columns[*later].is_valid(row)) {
                self.value(&field.step, column, row, &mut Vec::new()) // a value that is lost has to be right, too
            } else {
                self.field(field, column, row, out)
            };
            written.map_err(|fault| fault.within(&field.name))?;
        }
        Ok(())
    }

    fn check_required(&self, message: &Message, columns: &[Column<'_>], row: usize) -> Written {
        let is_null = |field: &&Field| matches!(field.count, Count::Required) && !columns[field.column].is_valid(row);
        let null = message.fields.iter().find(is_null).map(|field| &field.name);
        match message.lacking.as_ref().or(null) {
            Some(name) => Err(self.lacks(name)),
            None => Ok(()),
        }
    }

    #[cold]
    fn lacks(&self, name: &Arc<str>) -> Box<Fault> {
        Fault::is(format!("is null or missing, but is a required field of message {}", self.name)).within(name)
    }

    fn field(&self, field: &Field, column: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Written {
        let (step, number) = (&field.step, field.number);
        match (&field.count, &column.values) {
            (Count::Explicit | Count::Required, _) => self.tagged(number, step, column, row, out),
            (Count::Implicit, _) => implicit(number, step.wire_type(), out, |out| self.value(step, column, row, out)),
            (Count::Unpacked, Values::List(offsets, elements)) => {
                for at in range(offsets, row) {
                    let written = if elements.is_valid(at) {
                        self.tagged(number, step, elements, at, out)
                    } else {
                        self.tagged_default(number, step, out)
                    };
                    written.map_err(|fault| fault.at(at - range(offsets, row).start))?;
                }
                Ok(())
            }
            (Count::Packed, Values::List(offsets, elements)) => {
                let elements_of_row = range(offsets, row);
                if elements_of_row.is_empty() {
                    return Ok(());
                }
                tag(number, DELIMITED, out);
                delimited(out, |out| {
                    elements_of_row.into_iter().try_for_each(|at| self.element(step, elements, at, out))
                })
            }
            (Count::Map(key), Values::Map(offsets, keys, values)) => {
                self.entries(number, (key, step), (keys, values), range(offsets, row), out)
            }
            _ => Err(Fault::plan()),
        }
    }

    /// Append the entries of a map in the order of their keys. Of several with one key, the last one counts.
    fn entries(
        &self,
        number: u32,
        (key, value): (&Step, &Step),
        (keys, values): (&Column<'_>, &Column<'_>),
        entries: std::ops::Range<usize>,
        out: &mut Vec<u8>,
    ) -> Written {
        let mut places: Vec<usize> = entries.collect();
        if places.len() > 1 {
            places.sort_by(|one, other| compared(keys, *one, *other));
            places.reverse();
            places.dedup_by(|one, other| compared(keys, *one, *other).is_eq());
            places.reverse();
        }
        for at in places {
            tag(number, DELIMITED, out);
            delimited(out, |out| {
                tag(1, key.wire_type(), out);
                self.element(key, keys, at, out)?;
                tag(2, value.wire_type(), out);
                self.element(value, values, at, out)
            })?;
        }
        Ok(())
    }

    fn tagged(&self, number: u32, step: &Step, column: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Written {
        if let Step::Group(message) = step {
            tag(number, GROUP, out);
            self.message(message, column, row, out)?;
            tag(number, END_GROUP, out);
            return Ok(());
        }
        tag(number, step.wire_type(), out);
        self.value(step, column, row, out)
    }

    fn tagged_default(&self, number: u32, step: &Step, out: &mut Vec<u8>) -> Written {
        if let Step::Group(message) = step {
            tag(number, GROUP, out);
            self.check_empty(message)?;
            tag(number, END_GROUP, out);
            return Ok(());
        }
        tag(number, step.wire_type(), out);
        self.default(step, out)
    }

    /// Append an element of an array or a map, which has its type's default if it is null.
    fn element(&self, step: &Step, column: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Written {
        if column.is_valid(row) { self.value(step, column, row, out) } else { self.default(step, out) }
    }

    fn default(&self, step: &Step, out: &mut Vec<u8>) -> Written {
        match step {
            Step::Scalar(Scalar::String) => text(&self.null_literal, out),
            Step::Scalar(Scalar::Float | Scalar::Fixed32 | Scalar::Sfixed32) => out.extend_from_slice(&[0; 4]),
            Step::Scalar(Scalar::Double | Scalar::Fixed64 | Scalar::Sfixed64) => out.extend_from_slice(&[0; 8]),
            Step::EnumName(_, first) | Step::EnumNumber(_, first) => varint(i64::from(*first) as u64, out),
            Step::Message(message) | Step::Group(message) => {
                self.check_empty(message)?;
                out.push(0);
            }
            _ => out.push(0),
        }
        Ok(())
    }

    /// Check that a message may be empty.
    fn check_empty(&self, message: &Message) -> Written {
        let is_required = |field: &&Field| matches!(field.count, Count::Required);
        let required = message.fields.iter().find(is_required).map(|field| &field.name);
        message.lacking.as_ref().or(required).map_or(Ok(()), |name| Err(self.lacks(name)))
    }

    fn value(&self, step: &Step, column: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Written {
        match (step, &column.values) {
            (Step::Scalar(scalar), _) => return write_scalar(*scalar, column, row, out),
            (Step::EnumName(numbers, first), Values::Bytes(offsets, data)) => {
                let name = part(offsets, data, row);
                let found = match numbers.get(name) {
                    Some(found) => found,
                    None => utf8(name).map(|_| first)?,
                };
                varint(i64::from(*found) as u64, out);
            }
            (Step::EnumNumber(numbers, first), _) => {
                let found = number(column, row)?;
                varint((if numbers.contains(&found) { found } else { (*first).into() }) as u64, out);
            }
            (Step::Timestamp, Values::Int64(v)) => {
                if !TIMES_US.contains(&v[row]) {
                    return Err(Fault::is(
                        "is not within the years 1 to 9999, as a google.protobuf.Timestamp has to be",
                    ));
                }
                return seconds(v[row].div_euclid(1_000_000), v[row].rem_euclid(1_000_000), out);
            }
            // Both numbers have the sign of the whole.
            (Step::Duration, Values::Int64(v)) => return seconds(v[row] / 1_000_000, v[row] % 1_000_000, out),
            (Step::Wrapper(scalar), _) => {
                return delimited(out, |out| {
                    implicit(1, scalar.wire_type(), out, |out| write_scalar(*scalar, column, row, out))
                });
            }
            (Step::Json(form, name), Values::Bytes(offsets, data)) => {
                let json = utf8(part(offsets, data, row))?;
                return delimited(out, |out| {
                    json::write(*form, json, out).map_err(|wrong| match wrong {
                        Wrong::Json => Fault::is(format!("is not JSON for a {name}")),
                        Wrong::Number => {
                            Fault::is(format!("has a number that a {name} cannot hold; its numbers are doubles"))
                        }
                    })
                });
            }
            (Step::Message(message), _) => {
                return delimited(out, |out| self.message(message, column, row, out));
            }
            (Step::Group(message), _) => return self.message(message, column, row, out), // a value that is lost
            _ => return Err(Fault::plan()),
        }
        Ok(())
    }
}

fn write_scalar(scalar: Scalar, column: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Written {
    let small = || number(column, row).and_then(|value| i32::try_from(value).map_err(|_| Fault::is(MISFIT)));
    match (scalar, &column.values) {
        (Scalar::Bool, Values::Boolean(v)) => out.push(v.value(row).into()),
        (Scalar::Int32, _) => varint(i64::from(small()?) as u64, out),
        (Scalar::Sint32, _) => varint(zigzag(small()?.into()) as u32 as u64, out),
        (Scalar::Sfixed32, _) => out.extend_from_slice(&small()?.to_le_bytes()),
        (Scalar::Uint32, _) => varint(unsigned(column, row)?.into(), out),
        (Scalar::Fixed32, _) => out.extend_from_slice(&unsigned(column, row)?.to_le_bytes()),
        (Scalar::Int64 | Scalar::Uint64, Values::Int64(v)) => varint(v[row] as u64, out),
        (Scalar::Sint64, Values::Int64(v)) => varint(zigzag(v[row]), out),
        (Scalar::Sfixed64 | Scalar::Fixed64, Values::Int64(v)) => out.extend_from_slice(&v[row].to_le_bytes()),
        (Scalar::Float, Values::Float32(v)) => out.extend_from_slice(&v[row].to_le_bytes()),
        (Scalar::Double, Values::Float64(v)) => out.extend_from_slice(&v[row].to_le_bytes()),
        (Scalar::String, Values::Bytes(offsets, data)) => {
            text(utf8(part(offsets, data, row))?.as_bytes(), out);
        }
        (Scalar::Bytes, Values::Bytes(offsets, data)) => text(part(offsets, data, row), out),
        _ => return Err(Fault::plan()),
    }
    Ok(())
}

/// Return a number of 32 bits: Flink shows large ones as negative in an INT.
fn unsigned(column: &Column<'_>, row: usize) -> Result<u32, Box<Fault>> {
    match &column.values {
        Values::Int32(v) => Ok(v[row] as u32),
        Values::Int64(v) => u32::try_from(v[row]).map_err(|_| Fault::is(MISFIT)),
        _ => Err(Fault::plan()),
    }
}

/// Append a field, unless its value is its type's default.
fn implicit(number: u32, wire_type: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Written) -> Written {
    let begin = out.len();
    tag(number, wire_type, out);
    let value = out.len();
    write(out)?;
    // Whatever its type, a default consists of zeros: also the length of a text.
    if out[value..].iter().all(|byte| *byte == 0) {
        out.truncate(begin);
    }
    Ok(())
}

/// Append seconds and microseconds as a `google.protobuf.Timestamp` or `Duration`.
fn seconds(seconds: i64, micros: i64, out: &mut Vec<u8>) -> Written {
    delimited(out, |out| {
        for (number, value) in [(1, seconds), (2, micros * 1000)] {
            if value != 0 {
                tag(number, 0, out);
                varint(value as u64, out);
            }
        }
        Ok(())
    })
}

fn number(column: &Column<'_>, row: usize) -> Result<i64, Box<Fault>> {
    match &column.values {
        Values::Int8(v) => Ok(v[row].into()),
        Values::Int16(v) => Ok(v[row].into()),
        Values::Int32(v) => Ok(v[row].into()),
        Values::Int64(v) => Ok(v[row]),
        _ => Err(Fault::plan()),
    }
}

fn utf8(text: &[u8]) -> Result<&str, Box<Fault>> {
    std::str::from_utf8(text).map_err(|_| Fault::is("has a text that is not UTF-8"))
}

/// Compare two keys of a map in the order in which Google's library writes them: of numbers the large ones
/// first, without a sign.
fn compared(keys: &Column<'_>, one: usize, other: usize) -> Ordering {
    match &keys.values {
        Values::Boolean(v) => v.value(other).cmp(&v.value(one)),
        Values::Bytes(offsets, data) => compared_texts(part(offsets, data, one), part(offsets, data, other)),
        _ => {
            let bits = |at| number(keys, at).map_or(0, |number| number as u64);
            bits(other).cmp(&bits(one))
        }
    }
}
