//! Regular messages to columns: what serializers write. Anything else stops the reader, and `tree` makes it regular first.

use std::sync::Arc;

use super::json;
use super::plan::{As, Default, Field, Kind, Message, Plan, Shape};
use super::wire::{Irregular, LENGTH, Wire};
use crate::columns::{Bytes, Column, MOST_SPARE_VALUES, MOST_VALUES_A_BYTE, Struct, Values};
use crate::fault::Full;
use crate::java::MICROS;

/// The most levels of messages in messages that are read before a message is made regular. Afterwards it has no more than
/// Google's parser allows.
const MOST_LEVELS: usize = 60;
/// Java's name for a number that an enum does not have.
const UNRECOGNIZED: &str = "UNRECOGNIZED";
const ZERO: &[u8] = &[0; 8];

/// Why a message has no row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// It has to be made regular.
    Irregular,
    /// A value does not fit its column; `Reader` has the reason.
    Misfit,
    /// The row does not fit into the batch.
    Full,
}

impl From<Irregular> for Stop {
    fn from(_: Irregular) -> Self {
        Self::Irregular
    }
}

impl From<Full> for Stop {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

type Read = Result<(), Stop>;

/// Reads one message.
pub(super) struct Reader<'p> {
    plan: &'p Plan,
    /// Whether the message is known to be regular. Then it may have texts that are not UTF-8.
    is_regular: bool,
    /// How many more values may be put into arrays and maps.
    budget: usize,
    /// What is wrong with a value, and the names of the fields around it, the innermost first.
    reason: String,
    path: Vec<Arc<str>>,
}

impl<'p> Reader<'p> {
    /// Return a reader; `size` is that of the message as it was given.
    pub(super) fn new(plan: &'p Plan, size: usize, is_regular: bool) -> Self {
        let budget = MOST_VALUES_A_BYTE * size + MOST_SPARE_VALUES;
        Self { plan, is_regular, budget, reason: String::new(), path: Vec::new() }
    }

    /// Append the columns of a message. If it stops, a part of them may be there.
    pub(super) fn read(&mut self, message: &[u8], columns: &mut Struct) -> Read {
        let levels = if self.is_regular { usize::MAX } else { MOST_LEVELS };
        self.message(0, Wire { rest: message }, columns, levels)
    }

    /// Return which value does not fit its column, and why.
    pub(super) fn misfit(&self) -> String {
        let names: Vec<&str> = self.path.iter().rev().map(|name| &**name).collect();
        format!("A value does not fit its column: {} {}", names.join("."), self.reason)
    }

    #[cold]
    fn misfits(&mut self, reason: impl Into<String>) -> Stop {
        self.reason = reason.into();
        Stop::Misfit
    }

    #[cold]
    fn within(&mut self, field: &Field, stop: Stop) -> Stop {
        if stop == Stop::Misfit {
            self.path.push(Arc::clone(&field.name));
        }
        stop
    }

    fn message(&mut self, index: usize, mut wire: Wire<'_>, columns: &mut Struct, levels: usize) -> Read {
        let message = self.plan.messages.get(index).ok_or(Stop::Irregular)?;
        let levels = levels.checked_sub(1).ok_or(Stop::Irregular)?;
        let row = columns.len;
        let mut seen = 0;
        while let Some((number, wire_type)) = wire.tag()? {
            let Some(field) = message.field(number) else {
                wire.skip(wire_type)?;
                continue;
            };
            self.note(field, &mut seen)?;
            match field.column {
                Some(at) => {
                    let column = columns.columns.get_mut(at).ok_or(Stop::Irregular)?;
                    if let Err(stop) = self.field(field, wire_type, &mut wire, column, row, levels) {
                        return Err(self.within(field, stop));
                    }
                }
                None => self.check_field(field, wire_type, &mut wire, levels)?,
            }
        }
        if self.lacks(message, seen) {
            return Err(Stop::Irregular);
        }
        self.end(message, columns)
    }

    /// Note that a field is there. A oneof may be set once, and a group is not regular.
    #[inline]
    fn note(&self, field: &Field, seen: &mut u64) -> Read {
        if !field.is_watched {
            return Ok(());
        }
        if (field.oneof.is_some() && *seen & field.bit != 0) || (field.is_group && !self.is_regular) {
            return Err(Stop::Irregular);
        }
        *seen |= field.bit;
        Ok(())
    }

    #[inline]
    fn lacks(&self, message: &Message, seen: u64) -> bool {
        !self.is_regular && (seen & message.required != message.required || message.is_irregular)
    }

    fn field(
        &mut self,
        field: &'p Field,
        wire_type: u32,
        wire: &mut Wire<'_>,
        column: &mut Column,
        row: usize,
        levels: usize,
    ) -> Read {
        match (&field.shape, &mut column.values) {
            (Shape::Single, _) => self.last_value(&field.kind, wire_type, wire, column, row, levels),
            (Shape::Repeated, Values::List(_, _, element)) => {
                if wire_type == LENGTH && field.kind.wire_type() != LENGTH {
                    let mut packed = Wire { rest: wire.bytes()? };
                    while !packed.rest.is_empty() {
                        self.value(&field.kind, field.kind.wire_type(), &mut packed, element, levels)?;
                    }
                    return Ok(());
                }
                self.spend(element.width)?;
                self.value(&field.kind, wire_type, wire, element, levels)
            }
            (Shape::Map(entry), Values::Map(_, _, keys, values)) if wire_type == LENGTH => {
                let wire = Wire { rest: wire.bytes()? };
                self.spend(1 + values.width)?;
                self.entry(entry, wire, keys, values, levels.checked_sub(1).ok_or(Stop::Irregular)?)
            }
            _ => Err(Stop::Irregular),
        }
    }

    fn entry(
        &mut self,
        entry: &'p Message,
        mut wire: Wire<'_>,
        keys: &mut Column,
        values: &mut Column,
        levels: usize,
    ) -> Read {
        let [key, value] = &entry.fields[..] else { return Err(Stop::Irregular) };
        let row = keys.len();
        while let Some((number, wire_type)) = wire.tag()? {
            match number {
                1 => self.last_value(&key.kind, wire_type, &mut wire, keys, row, levels)?,
                2 => self.last_value(&value.kind, wire_type, &mut wire, values, row, levels)?,
                _ => wire.skip(wire_type)?,
            }
        }
        for (field, column) in [(key, keys), (value, values)] {
            if column.len() == row {
                let Default::Value(default) = &field.default else { return Err(Stop::Irregular) };
                self.value(&field.kind, field.kind.wire_type(), &mut Wire { rest: default }, column, levels)?;
            }
        }
        Ok(())
    }

    /// Append a value, or put it in place of an earlier one of the same row.
    fn last_value(
        &mut self,
        kind: &'p Kind,
        wire_type: u32,
        wire: &mut Wire<'_>,
        column: &mut Column,
        row: usize,
        levels: usize,
    ) -> Read {
        if column.len() > row {
            if kind.message().is_some() {
                return Err(Stop::Irregular); // they have to be merged
            }
            column.truncate(row);
        }
        self.value(kind, wire_type, wire, column, levels)
    }

    #[inline]
    fn value(
        &mut self,
        kind: &'p Kind,
        wire_type: u32,
        wire: &mut Wire<'_>,
        column: &mut Column,
        levels: usize,
    ) -> Read {
        if wire_type != kind.wire_type() {
            return Err(Stop::Irregular);
        }
        match (kind, &mut column.values) {
            (Kind::Bool, Values::Boolean(v)) => v.push(wire.varint()? != 0),
            (Kind::UInt32, Values::Int32(v)) => v.push(wire.varint()? as i32),
            (Kind::Fixed32, Values::Int32(v)) => v.push(i32::from_le_bytes(wire.array()?)),
            (Kind::Float, Values::Float32(v)) => v.push(f32::from_le_bytes(wire.array()?)),
            (Kind::Double, Values::Float64(v)) => v.push(f64::from_le_bytes(wire.array()?)),
            (Kind::String(_), Values::String(v)) => {
                let text = wire.bytes()?;
                if std::str::from_utf8(text).is_err() {
                    return Err(self.misfits("is not valid UTF-8"));
                }
                append(text, v)?;
            }
            (Kind::Bytes, Values::Binary(v)) => append(wire.bytes()?, v)?,
            (Kind::Enum(names), Values::String(v)) => {
                let name = names.find(wire.varint()? as i32);
                append(name.or((!names.is_closed).then_some(UNRECOGNIZED)).ok_or(Stop::Irregular)?.as_bytes(), v)?;
            }
            (Kind::Message(index), Values::Struct(v)) => {
                self.message(*index, Wire { rest: wire.bytes()? }, v, levels)?;
            }
            (Kind::Value(index, of), _) => return self.one_value(*index, of, wire.bytes()?, column, levels),
            (kind, Values::Int64(v)) => v.push(kind.number(wire)?),
            (kind, Values::Int32(v)) => v.push(self.small(kind.number(wire)?, i32::MIN, i32::MAX)?),
            (kind, Values::Int16(v)) => v.push(self.small(kind.number(wire)?, i16::MIN, i16::MAX)?),
            (kind, Values::Int8(v)) => v.push(self.small(kind.number(wire)?, i8::MIN, i8::MAX)?),
            _ => return Err(Stop::Irregular),
        }
        column.valid.append_non_null();
        Ok(())
    }

    fn small<T: TryFrom<i64> + std::fmt::Display>(&mut self, number: i64, least: T, most: T) -> Result<T, Stop> {
        T::try_from(number).map_err(|_| self.misfits(format!("is {number}, which is not between {least} and {most}")))
    }

    /// Append a message of Google's as one value.
    fn one_value(&mut self, index: usize, of: &'p As, message: &[u8], column: &mut Column, levels: usize) -> Read {
        let mut wire = Wire { rest: message };
        match (of, &mut column.values) {
            (As::Timestamp, Values::Timestamp(v, _)) => {
                let (seconds, nanos) = wire.seconds()?;
                let micros = seconds.checked_mul(1_000_000);
                let micros = micros.and_then(|micros| micros.checked_add(nanos.div_euclid(1000).into()));
                match micros.filter(|micros| MICROS.contains(micros)) {
                    Some(micros) => v.push(micros),
                    None => {
                        return Err(
                            self.misfits("is a google.protobuf.Timestamp that is not within the years 1 to 9999")
                        );
                    }
                }
            }
            (As::Duration, Values::Interval(v)) => {
                let (seconds, nanos) = wire.seconds()?;
                // Digits after the microseconds are cut off, those of the whole.
                let micros = (i128::from(seconds) * 1_000_000_000 + i128::from(nanos)) / 1000;
                match i64::try_from(micros) {
                    Ok(micros) => v.push(micros),
                    Err(_) => {
                        return Err(self.misfits("is a google.protobuf.Duration of too many seconds"));
                    }
                }
            }
            (As::Json(json), Values::String(v)) => {
                v.push_with(|data| {
                    let written = json::write(self.plan, index, *json, message, levels, data);
                    written.map_err(|reason| reason.map_or(Stop::Irregular, |reason| self.misfits(reason))).map(Some)
                })?;
            }
            (As::Wrapped(kind), _) => {
                let mut value = Wire { rest: ZERO };
                while let Some((number, wire_type)) = wire.tag()? {
                    if number == 1 {
                        if wire_type != kind.wire_type() {
                            return Err(Stop::Irregular);
                        }
                        value = wire;
                    }
                    wire.skip(wire_type)?;
                }
                return self.value(kind, kind.wire_type(), &mut value, column, levels);
            }
            _ => return Err(Stop::Irregular),
        }
        column.valid.append_non_null();
        Ok(())
    }

    /// End a row: close its arrays and maps, and append what is missing.
    fn end(&mut self, message: &'p Message, columns: &mut Struct) -> Read {
        let row = columns.len;
        if columns.columns.len() != message.columns.len() {
            return Err(Stop::Irregular);
        }
        for (column, field) in columns.columns.iter_mut().zip(&message.columns) {
            if column.len() > row {
                continue;
            }
            let Some(field) = field.and_then(|at| message.fields.get(at)) else {
                column.push_null();
                continue;
            };
            if let Err(stop) = self.missing(field, column) {
                return Err(self.within(field, stop));
            }
        }
        columns.len += 1;
        Ok(())
    }

    fn missing(&mut self, field: &'p Field, column: &mut Column) -> Read {
        match (&mut column.values, &field.default, &field.kind) {
            (Values::List(_, ends, element), default, _) => {
                if element.len() > ends.last() || matches!(default, Default::Empty) {
                    ends.push(element.len())?;
                    column.valid.append_non_null();
                } else {
                    column.push_null();
                }
            }
            (Values::Map(_, ends, keys, values), default, _) => {
                if keys.len() > ends.last() || matches!(default, Default::Empty) {
                    if !are_different(keys, ends.last()) {
                        return Err(Stop::Irregular);
                    }
                    ends.push(values.len())?;
                    column.valid.append_non_null();
                } else {
                    column.push_null();
                }
            }
            (_, Default::Null, _) => column.push_null(),
            (Values::Struct(v), Default::Empty, Kind::Message(index)) => {
                self.end(self.plan.messages.get(*index).ok_or(Stop::Irregular)?, v)?;
                column.valid.append_non_null();
            }
            (_, Default::Value(default), kind) => {
                self.spend(default.len() / MOST_VALUES_A_BYTE)?;
                self.value(kind, kind.wire_type(), &mut Wire { rest: default }, column, 1)?;
            }
            _ => return Err(Stop::Irregular),
        }
        Ok(())
    }

    /// Skip a field that is not wanted.
    fn check_field(&self, field: &Field, wire_type: u32, wire: &mut Wire<'_>, levels: usize) -> Read {
        let kind = &field.kind;
        if wire_type == LENGTH && kind.wire_type() != LENGTH && matches!(field.shape, Shape::Repeated) {
            let mut packed = Wire { rest: wire.bytes()? };
            while !packed.rest.is_empty() {
                packed.skip(kind.wire_type())?;
            }
            return Ok(());
        }
        if wire_type != kind.wire_type() {
            return Err(Stop::Irregular);
        }
        match (kind, &field.shape) {
            (Kind::String(true), _) => {
                std::str::from_utf8(wire.bytes()?).map_err(|_| Stop::Irregular)?;
                Ok(())
            }
            (Kind::Enum(_), _) => Ok(kind.number(wire).map(|_| ())?),
            (Kind::Entry, Shape::Map(entry)) => self.check(entry, Wire { rest: wire.bytes()? }, levels),
            (Kind::Message(index) | Kind::Value(index, _), _) => {
                let message = self.plan.messages.get(*index).ok_or(Stop::Irregular)?;
                self.check(message, Wire { rest: wire.bytes()? }, levels)
            }
            _ => Ok(wire.skip(wire_type)?),
        }
    }

    /// Check a message that is not wanted.
    fn check(&self, message: &Message, mut wire: Wire<'_>, levels: usize) -> Read {
        let levels = levels.checked_sub(1).ok_or(Stop::Irregular)?;
        let mut seen = 0;
        while let Some((number, wire_type)) = wire.tag()? {
            match message.field(number) {
                Some(field) => {
                    self.note(field, &mut seen)?;
                    self.check_field(field, wire_type, &mut wire, levels)?;
                }
                None => wire.skip(wire_type)?,
            }
        }
        if self.lacks(message, seen) { Err(Stop::Irregular) } else { Ok(()) }
    }

    fn spend(&mut self, values: usize) -> Read {
        match self.budget.checked_sub(values) {
            Some(left) => self.budget = left,
            None => return Err(self.misfits("has far more values in arrays and maps than the message has bytes")),
        }
        Ok(())
    }
}

fn append(value: &[u8], column: &mut Bytes) -> Read {
    Ok(column.push(value)?)
}

/// Return whether the keys from an index on are all different.
fn are_different(keys: &Column, first: usize) -> bool {
    fn all<T: Ord + Copy>(keys: &[T]) -> bool {
        let mut sorted = keys.to_vec();
        sorted.sort_unstable();
        sorted.windows(2).all(|pair| pair[0] != pair[1])
    }
    match &keys.values {
        _ if keys.len() <= first + 1 => true,
        Values::String(v) => v.are_different(first),
        Values::Int64(v) => all(&v[first..]),
        Values::Int32(v) => all(&v[first..]),
        Values::Int16(v) => all(&v[first..]),
        Values::Int8(v) => all(&v[first..]),
        Values::Boolean(v) => keys.len() == first + 2 && v.get(first) != v.get(first + 1),
        _ => false,
    }
}
