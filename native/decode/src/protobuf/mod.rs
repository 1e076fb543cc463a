//! The formats `protobuf` and `protobuf-confluent`: a message is in Protobuf's wire format.
//!
//! Python makes a plan from the descriptor with Google's library (`formats/protobuf/native.py`): the number, the kind and the
//! column of each field, and what a column gets if its field is missing. So presence, defaults, closed enums and the features
//! of editions are decided by the library that also reads what is left to Spark.
//!
//! The decoder is certain about:
//!
//! | column | field |
//! |---|---|
//! | BOOLEAN | bool |
//! | TINYINT, SMALLINT, INT, BIGINT | whole numbers and enums, within the type's range |
//! | INT, BIGINT | unsigned numbers of the same size, which wrap around as in Java |
//! | FLOAT, DOUBLE | float, double |
//! | STRING | string of valid UTF-8, enum by its name |
//! | BYTES | bytes |
//! | TIMESTAMP, TIMESTAMP_LTZ | `google.protobuf.Timestamp` of the years 1 to 9999 |
//! | ROW | message |
//! | ARRAY | repeated field, packed or not |
//! | MAP | map with different keys |
//!
//! If a field is in a message several times, the last value counts. Unknown fields are skipped. Fields that are not wanted are
//! checked as Google's parser checks them: a text that is not UTF-8 or a damaged inner message fails the whole message.
//!
//! What is left to Spark: a message in a column that comes twice and has to be merged, a oneof that is set twice, missing
//! required fields, groups, extensions, a field with another wire type than its own, numbers that a closed enum does not have,
//! varints of more than 64 bits, messages more than 60 levels deep, and everything that is damaged.
//!
//! No crate reads the wire format. Measured with flat messages of 94 bytes on one core: prost-reflect, which needs no code
//! generated for a message type, makes an object of 2.7 million messages a second, and those would have to become columns then.
//! This module makes columns of 14 million.

mod plan;
mod wire;

pub(crate) use plan::Plan;
use plan::{Default, Entry, Field, Kind, Message, Shape};
use wire::{LENGTH, Wire};

use crate::columns::{Certain, Column, Struct, Uncertain, Values};

/// The depth at which Google's parser gives up is 100.
const MOST_LEVELS: usize = 60;
/// Java's name for a number that an enum does not have.
const UNRECOGNIZED: &str = "UNRECOGNIZED";
const QUIET_NAN: u32 = 0x0040_0000;

/// Append the columns of a message.
pub(crate) fn read(message: &[u8], columns: &mut Struct, plan: &Plan) -> Certain<bool> {
    let mut wire = Wire { rest: message };
    if plan.has_header {
        wire.header()?;
    }
    let mut reader = Reader { plan, budget: 16 * message.len() + 1024 };
    reader.message(0, wire, columns, MOST_LEVELS)?;
    Ok(true)
}

struct Reader<'p> {
    plan: &'p Plan,
    /// How many more values may be put into arrays and maps.
    budget: usize,
}

impl<'p> Reader<'p> {
    fn message(&mut self, index: usize, mut wire: Wire<'_>, columns: &mut Struct, levels: usize) -> Certain<()> {
        let message = self.plan.messages.get(index).ok_or(Uncertain)?;
        let levels = levels.checked_sub(1).ok_or(Uncertain)?;
        let row = columns.len;
        let mut seen = 0;
        while let Some((number, wire_type)) = wire.tag()? {
            let Some(field) = message.field(number) else {
                message.skip_unknown(&mut wire, wire_type)?;
                continue;
            };
            field.note(&mut seen)?;
            match field.column {
                Some(at) => {
                    let column = columns.columns.get_mut(at).ok_or(Uncertain)?;
                    self.field(field, wire_type, &mut wire, column, row, levels)?;
                }
                None => self.check_field(field, wire_type, &mut wire, levels)?,
            }
        }
        if seen & message.required != message.required {
            return Err(Uncertain);
        }
        self.end(message, columns)
    }

    fn field(
        &mut self,
        field: &Field,
        wire_type: u32,
        wire: &mut Wire<'_>,
        column: &mut Column,
        row: usize,
        levels: usize,
    ) -> Certain<()> {
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
                self.entry(entry, wire, keys, values, levels.checked_sub(1).ok_or(Uncertain)?)
            }
            _ => Err(Uncertain),
        }
    }

    fn entry(
        &mut self,
        [key, value]: &[Entry; 2],
        mut wire: Wire<'_>,
        keys: &mut Column,
        values: &mut Column,
        levels: usize,
    ) -> Certain<()> {
        let row = keys.len();
        while let Some((number, wire_type)) = wire.tag()? {
            match number {
                1 => self.last_value(&key.kind, wire_type, &mut wire, keys, row, levels)?,
                2 => self.last_value(&value.kind, wire_type, &mut wire, values, row, levels)?,
                _ => return Err(Uncertain), // Google's parser takes the whole entry as an unknown field
            }
        }
        for (entry, column) in [(key, keys), (value, values)] {
            if column.len() == row {
                let Default::Value(default) = &entry.default else { return Err(Uncertain) };
                self.value(&entry.kind, entry.kind.wire_type(), &mut Wire { rest: default }, column, levels)?;
            }
        }
        Ok(())
    }

    /// Append a value, or put it in place of an earlier one of the same row.
    fn last_value(
        &mut self,
        kind: &Kind,
        wire_type: u32,
        wire: &mut Wire<'_>,
        column: &mut Column,
        row: usize,
        levels: usize,
    ) -> Certain<()> {
        if column.len() > row {
            if matches!(kind, Kind::Message(_) | Kind::Timestamp) {
                return Err(Uncertain); // they have to be merged
            }
            column.truncate(row);
        }
        self.value(kind, wire_type, wire, column, levels)
    }

    #[inline]
    fn value(
        &mut self,
        kind: &Kind,
        wire_type: u32,
        wire: &mut Wire<'_>,
        column: &mut Column,
        levels: usize,
    ) -> Certain<()> {
        if wire_type != kind.wire_type() {
            return Err(Uncertain);
        }
        match (kind, &mut column.values) {
            (Kind::Bool, Values::Boolean(v)) => v.append(wire.varint()? != 0),
            (Kind::UInt32, Values::Int32(v)) => v.push(wire.varint()? as i32),
            (Kind::Fixed32, Values::Int32(v)) => v.push(i32::from_le_bytes(wire.array()?)),
            (Kind::Float, Values::Float32(v)) => {
                let number = f32::from_le_bytes(wire.array()?);
                if number.is_nan() && number.to_bits() & QUIET_NAN == 0 {
                    return Err(Uncertain); // it becomes another NaN when it becomes a double, as in Python
                }
                v.push(number);
            }
            (Kind::Double, Values::Float64(v)) => v.push(f64::from_le_bytes(wire.array()?)),
            (Kind::String, Values::String(v)) => {
                v.data.extend_from_slice(wire.text()?);
                v.end()?;
            }
            (Kind::Bytes, Values::Binary(v)) => {
                v.data.extend_from_slice(wire.bytes()?);
                v.end()?;
            }
            (Kind::Enum(names), Values::String(v)) => {
                let name = names.find(wire.varint()? as i32);
                let name = name.or((!names.is_closed).then_some(UNRECOGNIZED)).ok_or(Uncertain)?;
                v.data.extend_from_slice(name.as_bytes());
                v.end()?;
            }
            (kind, Values::Int64(v)) => v.push(kind.number(wire)?),
            (kind, Values::Int32(v)) => v.push(kind.number(wire)?.try_into().map_err(|_| Uncertain)?),
            (kind, Values::Int16(v)) => v.push(kind.number(wire)?.try_into().map_err(|_| Uncertain)?),
            (kind, Values::Int8(v)) => v.push(kind.number(wire)?.try_into().map_err(|_| Uncertain)?),
            (Kind::Timestamp, Values::Timestamp(v, _)) => v.push(Wire { rest: wire.bytes()? }.timestamp()?),
            (Kind::Message(index), Values::Struct(v)) => {
                self.message(*index, Wire { rest: wire.bytes()? }, v, levels)?;
            }
            _ => return Err(Uncertain),
        }
        column.valid.append_non_null();
        Ok(())
    }

    /// End a row: close its arrays and maps, and append what is missing.
    fn end(&mut self, message: &'p Message, columns: &mut Struct) -> Certain<()> {
        let row = columns.len;
        if columns.columns.len() != message.columns.len() {
            return Err(Uncertain);
        }
        for (column, field) in columns.columns.iter_mut().zip(&message.columns) {
            if column.len() > row {
                continue;
            }
            let Some(field) = field.and_then(|at| message.fields.get(at)) else {
                column.push_null();
                continue;
            };
            match (&mut column.values, &field.default, &field.kind) {
                (Values::List(_, offsets, element), default, _) => {
                    if element.len() > last(offsets) || matches!(default, Default::Empty) {
                        offsets.push(element.len() as i32);
                        column.valid.append_non_null();
                    } else {
                        column.push_null();
                    }
                }
                (Values::Map(_, offsets, keys, values), default, _) => {
                    if keys.len() > last(offsets) || matches!(default, Default::Empty) {
                        if !are_different(keys, last(offsets)) {
                            return Err(Uncertain);
                        }
                        offsets.push(values.len() as i32);
                        column.valid.append_non_null();
                    } else {
                        column.push_null();
                    }
                }
                (_, Default::Null, _) => column.push_null(),
                (Values::Struct(v), Default::Empty, Kind::Message(index)) => {
                    self.end(self.plan.messages.get(*index).ok_or(Uncertain)?, v)?;
                    column.valid.append_non_null();
                }
                (_, Default::Value(default), kind) => {
                    self.spend(default.len() / 16)?;
                    self.value(kind, kind.wire_type(), &mut Wire { rest: default }, column, 1)?;
                }
                _ => return Err(Uncertain),
            }
        }
        columns.len += 1;
        Ok(())
    }

    /// Skip a field that is not wanted.
    fn check_field(&self, field: &Field, wire_type: u32, wire: &mut Wire<'_>, levels: usize) -> Certain<()> {
        let kind = &field.kind;
        if wire_type == LENGTH && kind.wire_type() != LENGTH && matches!(field.shape, Shape::Repeated) {
            let mut packed = Wire { rest: wire.bytes()? };
            while !packed.rest.is_empty() {
                packed.skip(kind.wire_type())?;
            }
            return Ok(());
        }
        if wire_type != kind.wire_type() {
            return Err(Uncertain);
        }
        match kind {
            Kind::String => wire.text().map(|_| ()),
            Kind::Enum(names) if names.is_closed => names.find(wire.varint()? as i32).map(|_| ()).ok_or(Uncertain),
            Kind::Message(index) => self.check(*index, Wire { rest: wire.bytes()? }, levels),
            _ => wire.skip(wire_type),
        }
    }

    /// Check a message that is not wanted.
    fn check(&self, index: usize, mut wire: Wire<'_>, levels: usize) -> Certain<()> {
        let message = self.plan.messages.get(index).ok_or(Uncertain)?;
        let levels = levels.checked_sub(1).ok_or(Uncertain)?;
        let mut seen = 0;
        while let Some((number, wire_type)) = wire.tag()? {
            match message.field(number) {
                Some(field) => {
                    field.note(&mut seen)?;
                    self.check_field(field, wire_type, &mut wire, levels)?;
                }
                None => message.skip_unknown(&mut wire, wire_type)?,
            }
        }
        if seen & message.required == message.required { Ok(()) } else { Err(Uncertain) }
    }

    fn spend(&mut self, values: usize) -> Certain<()> {
        self.budget = self.budget.checked_sub(values).ok_or(Uncertain)?;
        Ok(())
    }
}

fn last(offsets: &[i32]) -> usize {
    offsets[offsets.len() - 1] as usize
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
        Values::Boolean(v) => keys.len() == first + 2 && v.get_bit(first) != v.get_bit(first + 1),
        _ => false,
    }
}
