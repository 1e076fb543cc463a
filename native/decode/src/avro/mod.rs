//! The formats `avro` and `avro-confluent`: a message is a record in Avro's binary encoding.
//!
//! Each message is read by a plan (`plan.rs`), which Python has made of the schema of its writer and of the columns. A message
//! that cannot be read has an error: where in it and why. Damaged and hostile messages are bounded:
//!
//! * Each item of an array or a map takes a byte of the message at least.
//! * Unions, arrays and maps are at most 200 levels deep, and records 1,000.
//!
//! The id of a schema is before the message, or in a header, which then is given beside the message.

mod plan;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use crate::columns::{Bytes, Column, MOST_SPARE_VALUES, MOST_VALUES_A_BYTE, Struct, Values};
use crate::fault::Failure;
use crate::fault::Full;
use crate::schema_ids::Plans;
use crate::{connect, text};
pub(crate) use plan::Plan;
use plan::{Record, Step};

/// The most levels of unions, arrays and maps; the items of an array are two levels below it.
const DEEPEST: usize = 200;
/// The most levels of records, so that the stack is large enough.
const DEEPEST_RECORDS: usize = 1000;
const LARGEST_SCALE: i32 = 76;
/// The most names of a path in an error.
const MOST_SHOWN: usize = 20;

// --- errors ---

/// Why a message cannot be read.
#[derive(Debug)]
pub(crate) struct Fault {
    reason: Reason,
    /// The names of the fields around the value, the innermost first.
    path: Vec<Arc<str>>,
}

#[derive(Debug)]
enum Reason {
    /// The message ends within the value.
    Ends,
    /// What is wrong with the value: words after its name.
    Is(Cow<'static, str>),
    /// The whole reason.
    Whole(Arc<str>),
    /// Nothing is wrong with the message: a column of the batch has as many bytes as Arrow can count.
    Full,
}

type Read<T> = Result<T, Box<Fault>>;

impl Fault {
    fn new(reason: Reason) -> Box<Self> {
        Box::new(Self { reason, path: Vec::new() })
    }

    #[cold]
    fn ends() -> Box<Self> {
        Self::new(Reason::Ends)
    }

    #[cold]
    fn is(words: impl Into<Cow<'static, str>>) -> Box<Self> {
        Self::new(Reason::Is(words.into()))
    }

    #[cold]
    fn range(least: impl Into<i64>, most: impl Into<i64>) -> Box<Self> {
        Self::is(format!("is not between {} and {}", least.into(), most.into()))
    }

    /// Return the reason as a clause.
    fn failure(&self) -> Failure {
        let mut names: Vec<&str> = self.path.iter().rev().take(MOST_SHOWN).map(|name| &**name).collect();
        if names.is_empty() {
            names.push("the message");
        }
        let mut path = names.join(".");
        if self.path.len() > MOST_SHOWN {
            path.push_str("...");
        }
        Failure::Message(match &self.reason {
            Reason::Ends => format!("it ends within {path}"),
            Reason::Is(words) => format!("{path} {words}"),
            Reason::Whole(words) => words.to_string(),
            Reason::Full => return Failure::Full,
        })
    }
}

// --- messages ---

/// Append the row of a message, or fail with the reason why it has none: then a part of the row may be there.
pub(crate) fn read(
    message: &[u8],
    header: Option<&[u8]>,
    rows: &mut Column,
    plans: &mut Plans<Plan>,
) -> Result<(), Failure> {
    let found =
        plans.plan(message, header).map_err(|words| Fault::new(Reason::Whole(words))).and_then(|(plan, body)| {
            let budget = MOST_VALUES_A_BYTE * body.len() + MOST_SPARE_VALUES;
            let mut reader = Reader { rest: body, plan, depth: 1, records: 0, budget, keys_repeat: false };
            reader.value(plan.root(), rows)?;
            if reader.rest.is_empty() {
                Ok(())
            } else {
                Err(Fault::new(Reason::Whole("bytes are left over behind the record".into())))
            }
        });
    found.map_err(|fault| fault.failure())
}

struct Reader<'a> {
    rest: &'a [u8],
    plan: &'a Plan,
    /// The levels of unions, arrays and maps.
    depth: usize,
    /// The levels of records.
    records: usize,
    /// How many values of arrays, maps and defaults may follow.
    budget: usize,
    /// Whether a map of the message has a key twice. Then the keys of a map are read before its values: if its values were
    /// read twice instead, those of a map in a map in a map would be read eight times.
    keys_repeat: bool,
}

impl<'a> Reader<'a> {
    fn value(&mut self, step: &'a Step, column: &mut Column) -> Read<()> {
        match (step, &mut column.values) {
            (Step::Union(branches), _) => {
                let branch = self.branch(branches)?;
                self.depth += 1;
                self.value(branch, column)?;
                self.depth -= 1;
                return Ok(());
            }
            (Step::Null, _) if column.required => return Err(Fault::is("is null, and its column is NOT NULL")),
            (Step::Null, _) => {
                column.push_null();
                return Ok(());
            }
            (Step::Unreadable(why), _) => return Err(Fault::new(Reason::Whole(Arc::clone(why)))),
            (Step::Boolean, Values::Boolean(v)) => v.push(self.boolean()?),
            (Step::Int(_), Values::Int8(v)) => v.push(small(self.int()?, i8::MIN, i8::MAX)?),
            (Step::Int(_), Values::Int16(v)) => v.push(small(self.int()?, i16::MIN, i16::MAX)?),
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
            (Step::Bytes(scale), Values::Decimal(v, precision, to)) => {
                v.push(decimal(self.text()?, *scale, *precision, *to)?);
            }
            (Step::Fixed(size, scale), Values::Decimal(v, precision, to)) => {
                v.push(decimal(self.bytes(*size)?, *scale, *precision, *to)?);
            }
            (Step::ScaledDecimal, Values::Decimal(v, precision, to)) => {
                let scale = self.int()?;
                if scale.unsigned_abs() > LARGEST_SCALE as u32 {
                    return Err(Fault::is(format!("has a scale of more than {LARGEST_SCALE} digits")));
                }
                v.push(decimal(self.text()?, scale, *precision, *to)?);
            }
            (Step::Text | Step::Bytes(_), Values::String(v)) => append(utf8(self.text()?)?.as_bytes(), v)?,
            (Step::Text | Step::Bytes(_), Values::Binary(v)) => append(self.text()?, v)?,
            (Step::Fixed(size, _), Values::Binary(v)) => append(self.bytes(*size)?, v)?,
            (Step::Enum(symbols), Values::String(v)) => {
                let Some(symbol) = self.symbol(symbols)? else {
                    return Err(Fault::is("is a symbol that the enum of the reader's schema does not have"));
                };
                append(symbol.as_bytes(), v)?;
            }
            (Step::Int(unit_ns), Values::Time(v, digits)) => v.push(time(self.int()?.into(), *unit_ns, *digits)?),
            (Step::Long(unit_ns), Values::Time(v, digits)) => v.push(time(self.long()?, *unit_ns, *digits)?),
            (Step::Int(unit_ns), Values::Timestamp(v, _)) => v.push(scaled(self.int()?.into(), *unit_ns, 1000)?),
            (Step::Long(unit_ns), Values::Timestamp(v, _)) => v.push(scaled(self.long()?, *unit_ns, 1000)?),
            (Step::ZonedTime, Values::Timestamp(v, _)) => {
                let found = text::zoned_timestamp(self.text()?);
                v.push(
                    found.ok_or_else(|| Fault::is("is not a time with a zone such as 2024-01-31T12:00:00.123456Z"))?,
                );
            }
            (Step::Array(item), Values::List(_, ends, element)) => {
                let item = self.plan.step(*item);
                self.blocks(|reader| {
                    reader.spend(element.width)?;
                    reader.value(item, element)
                })?;
                ends.push(element.len()).map_err(full)?;
            }
            (Step::Map(item), Values::Map(_, ends, key, value)) => {
                self.map(self.plan.step(*item), key, value)?;
                ends.push(value.len()).map_err(full)?;
            }
            (Step::Record(record), Values::Struct(v)) => self.record(record, v)?,
            _ => return Err(Fault::is("has another type in its plan; this is a defect of pyspark-dynamic-kafka")),
        }
        column.valid.append_non_null();
        Ok(())
    }

    fn record(&mut self, record: &'a Record, columns: &mut Struct) -> Read<()> {
        if record.columns != columns.columns.len() {
            return Err(Fault::is("has other columns in its plan; this is a defect of pyspark-dynamic-kafka"));
        }
        self.enter()?;
        for field in &record.fields {
            let step = self.plan.step(field.step);
            let found = match field.column {
                Some(place) => self.value(step, &mut columns.columns[place]),
                None => self.skip(step),
            };
            if let Err(mut fault) = found {
                fault.path.push(Arc::clone(&field.name));
                return Err(fault);
            }
        }
        for default in &record.defaults {
            self.spend(default.data.len() / MOST_VALUES_A_BYTE)?;
            let rest = std::mem::replace(&mut self.rest, &default.data);
            self.value(self.plan.step(default.step), &mut columns.columns[default.column])?;
            self.rest = rest;
        }
        self.records -= 1;
        columns.len += 1;
        Ok(())
    }

    /// Read a map. Of entries with the same key, the last one is kept, as in Java.
    fn map(&mut self, item: &'a Step, key: &mut Column, value: &mut Column) -> Read<()> {
        let (first, begin) = (key.len(), self.rest);
        if !self.keys_repeat {
            self.blocks(|reader| {
                reader.spend(1 + value.width)?;
                reader.value(&Step::Text, key)?;
                reader.value(item, value)
            })?;
            let Values::String(names) = &key.values else { return Err(Fault::is("has keys that are not texts")) };
            if names.are_different(first) {
                return Ok(());
            }
            key.truncate(first);
            value.truncate(first);
            self.rest = begin;
            self.keys_repeat = true;
        }
        let (mut last, mut count) = (HashMap::new(), 0_usize);
        self.blocks(|reader| {
            last.insert(reader.text()?, count);
            count += 1;
            reader.skip(item)
        })?;
        self.rest = begin;
        let mut place = 0;
        self.blocks(|reader| {
            let (len, entry) = (key.len(), reader.rest);
            let is_last = last.get(reader.text()?) == Some(&place);
            place += 1;
            reader.rest = entry;
            reader.value(&Step::Text, key)?;
            reader.value(item, value)?;
            if !is_last {
                key.truncate(len);
                value.truncate(len);
            }
            Ok(())
        })
    }

    /// Read a value that no column needs.
    fn skip(&mut self, step: &'a Step) -> Read<()> {
        match step {
            Step::Null => {}
            Step::Unreadable(why) => return Err(Fault::new(Reason::Whole(Arc::clone(why)))),
            Step::Boolean => {
                self.boolean()?;
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
            Step::Text | Step::Bytes(_) | Step::ZonedTime => {
                self.text()?;
            }
            Step::ScaledDecimal => {
                self.int()?;
                self.text()?;
            }
            Step::Fixed(size, _) => {
                self.bytes(*size)?;
            }
            Step::Enum(symbols) => {
                self.symbol(symbols)?;
            }
            Step::Array(item) => {
                let item = self.plan.step(*item);
                self.blocks(|reader| reader.skip(item))?;
            }
            Step::Map(item) => {
                let item = self.plan.step(*item);
                self.blocks(|reader| {
                    reader.text()?;
                    reader.skip(item)
                })?;
            }
            Step::Record(record) => {
                self.enter()?;
                for field in &record.fields {
                    if let Err(mut fault) = self.skip(self.plan.step(field.step)) {
                        fault.path.push(Arc::clone(&field.name));
                        return Err(fault);
                    }
                }
                self.records -= 1;
            }
            Step::Union(branches) => {
                let branch = self.branch(branches)?;
                self.depth += 1;
                self.skip(branch)?;
                self.depth -= 1;
            }
        }
        Ok(())
    }

    fn spend(&mut self, values: usize) -> Read<()> {
        self.budget = self
            .budget
            .checked_sub(values)
            .ok_or_else(|| Fault::is("has far more values in arrays and maps than the message has bytes"))?;
        Ok(())
    }

    fn enter(&mut self) -> Read<()> {
        self.records += 1;
        if self.records > DEEPEST_RECORDS { Err(Fault::is("is nested too deeply")) } else { Ok(()) }
    }

    /// Read the items of an array or a map.
    fn blocks(&mut self, mut item: impl FnMut(&mut Self) -> Read<()>) -> Read<()> {
        self.depth += 2;
        if self.depth > DEEPEST + 1 {
            return Err(Fault::is("is nested too deeply"));
        }
        loop {
            let count = self.long()?;
            if count < 0 {
                self.long()?; // the size of the block in bytes
            }
            if count.unsigned_abs() > self.rest.len() as u64 {
                return Err(Fault::is("claims more items than the message has bytes left"));
            }
            if count == 0 {
                break;
            }
            for _ in 0..count.unsigned_abs() {
                let left = self.rest.len();
                if left == 0 {
                    return Err(Fault::ends());
                }
                item(self)?;
                if self.rest.len() == left {
                    return Err(Fault::is("has items that take no bytes"));
                }
            }
        }
        self.depth -= 2;
        Ok(())
    }

    #[inline]
    fn branch(&mut self, branches: &[usize]) -> Read<&'a Step> {
        let branch = usize::try_from(self.long()?).ok().filter(|_| self.depth <= DEEPEST);
        match branch.and_then(|i| branches.get(i)) {
            Some(step) => Ok(self.plan.step(*step)),
            None => Err(Fault::is("has a number that is not a branch of its union, or is nested too deeply")),
        }
    }

    #[inline]
    fn symbol(&mut self, symbols: &'a [Option<String>]) -> Read<Option<&'a str>> {
        let number = self.long()?;
        match usize::try_from(number).ok().and_then(|i| symbols.get(i)) {
            Some(symbol) => Ok(symbol.as_deref()),
            None => Err(Fault::range(0, symbols.len() as i64 - 1)),
        }
    }

    #[inline]
    fn boolean(&mut self) -> Read<bool> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [_] => Err(Fault::range(0, 1)),
        }
    }

    #[inline]
    fn long(&mut self) -> Read<i64> {
        let mut value: u64 = 0;
        for (i, &byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7F) << (7 * i); // the highest bits of the tenth byte are dropped, as in Java
            if byte < 0x80 {
                self.rest = &self.rest[i + 1..];
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err(if self.rest.len() < 10 { Fault::ends() } else { Fault::is("has a number of more than 10 bytes") })
    }

    #[inline]
    fn int(&mut self) -> Read<i32> {
        self.long()?.try_into().map_err(|_| Fault::range(i32::MIN, i32::MAX))
    }

    #[inline]
    fn bytes(&mut self, count: usize) -> Read<&'a [u8]> {
        let (found, rest) = self.rest.split_at_checked(count).ok_or_else(Fault::ends)?;
        self.rest = rest;
        Ok(found)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        self.bytes(N)?.try_into().map_err(|_| Fault::ends())
    }

    #[inline]
    fn text(&mut self) -> Read<&'a [u8]> {
        let count = usize::try_from(self.long()?).map_err(|_| Fault::ends())?;
        self.bytes(count)
    }
}

// --- values ---

#[inline]
fn append(value: &[u8], column: &mut Bytes) -> Read<()> {
    column.push(value).map_err(full)
}

#[cold]
fn full(_: Full) -> Box<Fault> {
    Fault::new(Reason::Full)
}

#[inline]
fn utf8(bytes: &[u8]) -> Read<&str> {
    std::str::from_utf8(bytes).map_err(|_| Fault::is("is not a text in UTF-8"))
}

#[inline]
fn small<T: TryFrom<i32> + Into<i64>>(value: i32, least: T, most: T) -> Read<T> {
    T::try_from(value).map_err(|_| Fault::range(least, most))
}

/// Return a value in the unit of its column.
#[inline]
fn scaled(value: i64, unit_ns: i64, column_ns: i64) -> Read<i64> {
    connect::scaled(value, unit_ns, column_ns).map_err(|(least, most)| Fault::range(least, most))
}

/// Return a time of day in nanoseconds.
#[inline]
fn time(value: i64, unit_ns: i64, digits: usize) -> Read<i64> {
    connect::time(value, unit_ns, digits).map_err(|(least, most)| Fault::range(least, most))
}

/// Return the unscaled value of a decimal in two's complement, highest byte first, with another scale.
fn decimal(bytes: &[u8], scale: i32, precision: u8, to: i8) -> Read<i128> {
    let found = || {
        let value = connect::unscaled(bytes)?;
        let more = i32::from(to) - scale;
        let power = 10_i128.checked_pow(more.unsigned_abs());
        let value = match power {
            _ if value == 0 => 0,
            Some(power) if more >= 0 => value.checked_mul(power)?,
            Some(power) if value % power == 0 => value / power,
            _ => return None,
        };
        (value.unsigned_abs() < 10_u128.pow(precision.into())).then_some(value)
    };
    found().ok_or_else(|| Fault::is(format!("does not fit into decimal128({precision}, {to})")))
}
