//! Columns that grow value by value, and shrink again when a message turns out to be uncertain.
//!
//! Arrow's own builders cannot give back what was appended. These can: `truncate` returns a column to an earlier length.

use std::collections::{HashMap, HashSet};
use std::mem::take;
use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, DurationMicrosecondType, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, Time64NanosecondType, TimestampMicrosecondType,
};
use arrow_array::{ArrayRef, BinaryArray, BooleanArray, ListArray, MapArray, PrimitiveArray, StringArray, StructArray};
use arrow_buffer::{BooleanBufferBuilder, Buffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef, Fields, TimeUnit};

use crate::{Failure, Unsupported};

/// The most bytes of text in one column of a batch. Arrow counts them in 31 bits.
const MOST_BYTES: usize = i32::MAX as usize;
const FEW_FIELDS: usize = 12;
const FEW_ENTRIES: usize = 16;
/// The key of a TIME field's precision in its metadata.
pub(crate) const PRECISION: &str = "precision";
/// The message holds something that the decoder is not certain about. It is left to Spark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Uncertain;

/// A column of the batch has as many bytes as Arrow can count. Nothing is wrong with the message.
#[derive(Debug)]
pub(crate) struct Full;

impl From<Full> for Uncertain {
    fn from(_: Full) -> Self {
        Self
    }
}

pub(crate) type Certain<T> = Result<T, Uncertain>;

/// A column with its nulls.
pub(crate) struct Column {
    pub(crate) values: Values,
    pub(crate) valid: NullBufferBuilder,
    /// How many simple values one value has at least: more than one for a struct.
    pub(crate) width: usize,
    /// Whether the Arrow type does not allow a null.
    pub(crate) required: bool,
}

/// The values of a column, by its type.
pub(crate) enum Values {
    Boolean(BooleanBufferBuilder),
    Int8(Vec<i8>),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    /// Unscaled numbers, the precision and the scale.
    Decimal(Vec<i128>, u8, i8),
    String(Bytes),
    Binary(Bytes),
    /// Days since 1970.
    Date(Vec<i32>),
    /// Nanoseconds since midnight, and how many digits of a second the type has.
    Time(Vec<i64>, usize),
    /// Microseconds.
    Interval(Vec<i64>),
    /// Microseconds since 1970, and the time zone: with one it is an instant, without one a local time.
    Timestamp(Vec<i64>, Option<Arc<str>>),
    List(FieldRef, Vec<i32>, Box<Column>),
    /// The field of the entries, the offsets, the keys and the values.
    Map(FieldRef, Vec<i32>, Box<Column>, Box<Column>),
    Struct(Struct),
}

/// Texts or byte strings, one after the other.
pub(crate) struct Bytes {
    pub(crate) offsets: Vec<i32>,
    pub(crate) data: Vec<u8>,
}

/// The columns of a struct.
pub(crate) struct Struct {
    fields: Fields,
    pub(crate) columns: Vec<Column>,
    pub(crate) len: usize,
    by_name: HashMap<Box<[u8]>, usize>,
}

impl Bytes {
    fn new() -> Self {
        Self { offsets: vec![0], data: Vec::new() }
    }

    /// End the value whose bytes were put behind `data`.
    pub(crate) fn end(&mut self) -> Result<(), Full> {
        if self.data.len() > MOST_BYTES {
            return Err(Full);
        }
        self.offsets.push(self.data.len() as i32);
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        self.offsets.truncate(len + 1);
        self.data.truncate(self.offsets[len] as usize);
    }

    pub(crate) fn get(&self, index: usize) -> &[u8] {
        &self.data[self.offsets[index] as usize..self.offsets[index + 1] as usize]
    }

    /// Return whether the values from an index on are all different.
    pub(crate) fn are_different(&self, first: usize) -> bool {
        let end = self.offsets.len() - 1;
        if end - first <= FEW_ENTRIES {
            return (first..end).all(|i| (first..i).all(|j| self.get(i) != self.get(j)));
        }
        let mut sorted: Vec<&[u8]> = (first..end).map(|i| self.get(i)).collect();
        sorted.sort_unstable();
        sorted.windows(2).all(|pair| pair[0] != pair[1])
    }

    /// Return, of each value from an index on, the last place.
    pub(crate) fn last_places(&self, first: usize) -> HashSet<usize> {
        let places = first..self.offsets.len() - 1;
        let last: HashMap<&[u8], usize> = places.map(|place| (self.get(place), place)).collect();
        last.into_values().collect()
    }

    fn take(&mut self) -> (OffsetBuffer<i32>, Buffer) {
        let data = Vec::with_capacity(self.data.len());
        let mut offsets = Vec::with_capacity(self.offsets.len());
        offsets.push(0);
        let found = std::mem::replace(self, Self { offsets, data });
        (OffsetBuffer::new(found.offsets.into()), found.data.into())
    }
}

impl Struct {
    pub(crate) fn new(fields: &Fields) -> Result<Self, Unsupported> {
        let columns = fields.iter().map(|f| Column::new(f)).collect::<Result<Vec<_>, _>>()?;
        let by_name = fields.iter().enumerate().map(|(i, f)| (f.name().as_bytes().into(), i));
        Ok(Self { fields: fields.clone(), columns, len: 0, by_name: by_name.collect() })
    }

    /// Return the index of the field with a name; `guess` is looked at first.
    #[inline]
    pub(crate) fn find(&self, name: &[u8], guess: usize) -> Option<usize> {
        let fields = &self.fields;
        if fields.get(guess).is_some_and(|f| f.name().as_bytes() == name) {
            return Some(guess);
        }
        if fields.len() <= FEW_FIELDS {
            return fields.iter().position(|f| f.name().as_bytes() == name);
        }
        self.by_name.get(name).copied()
    }

    /// Return the name of a field.
    pub(crate) fn name(&self, index: usize) -> &str {
        self.fields[index].name()
    }

    /// Return the error of a message with fields that do not fit some columns.
    #[cold]
    pub(crate) fn misfit(&self, columns: &[usize]) -> Failure {
        let names: Vec<&str> = columns.iter().map(|index| self.fields[*index].name().as_str()).collect();
        Failure::Message(format!("It does not fit the columns: {}", names.join(", ")))
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        for column in &mut self.columns {
            column.truncate(len);
        }
        self.len = len;
    }

    /// Append a value of nulls.
    pub(crate) fn push_nulls(&mut self) {
        for column in &mut self.columns {
            column.push_null();
        }
        self.len += 1;
    }

    fn finish(&mut self, valid: &mut NullBufferBuilder) -> StructArray {
        let arrays: Vec<ArrayRef> = self.columns.iter_mut().map(Column::finish).collect();
        let len = take(&mut self.len);
        StructArray::try_new_with_length(self.fields.clone(), arrays, valid.finish(), len)
            .expect("a column has as many values as its struct")
    }
}

impl Column {
    pub(crate) fn new(field: &Field) -> Result<Self, Unsupported> {
        let values = match field.data_type() {
            DataType::Boolean => Values::Boolean(BooleanBufferBuilder::new(0)),
            DataType::Int8 => Values::Int8(Vec::new()),
            DataType::Int16 => Values::Int16(Vec::new()),
            DataType::Int32 => Values::Int32(Vec::new()),
            DataType::Int64 => Values::Int64(Vec::new()),
            DataType::Float32 => Values::Float32(Vec::new()),
            DataType::Float64 => Values::Float64(Vec::new()),
            DataType::Decimal128(precision @ 1..=DECIMAL128_MAX_PRECISION, scale)
                if u8::try_from(*scale).is_ok_and(|scale| scale <= *precision) =>
            {
                Values::Decimal(Vec::new(), *precision, *scale)
            }
            DataType::Utf8 => Values::String(Bytes::new()),
            DataType::Binary => Values::Binary(Bytes::new()),
            DataType::Date32 => Values::Date(Vec::new()),
            DataType::Time64(TimeUnit::Nanosecond) => {
                // Arrow's type does not have the precision of Spark's.
                let digits = field.metadata().get(PRECISION).and_then(|text| text.parse().ok()).unwrap_or(6);
                Values::Time(Vec::new(), digits)
            }
            DataType::Duration(TimeUnit::Microsecond) => Values::Interval(Vec::new()),
            DataType::Timestamp(TimeUnit::Microsecond, zone) => Values::Timestamp(Vec::new(), zone.clone()),
            DataType::List(element) => Values::List(element.clone(), vec![0], Box::new(Column::new(element)?)),
            DataType::Map(entries, false) => match entries.data_type() {
                DataType::Struct(pair) if pair.len() == 2 && is_key(pair[0].data_type()) => {
                    let (key, value) = (Column::new(&pair[0])?, Column::new(&pair[1])?);
                    Values::Map(entries.clone(), vec![0], Box::new(key), Box::new(value))
                }
                _ => return Err(unsupported(field)),
            },
            DataType::Struct(fields) => Values::Struct(Struct::new(fields)?),
            _ => return Err(unsupported(field)),
        };
        Ok(Self { required: !field.is_nullable(), ..Self::of(values) })
    }

    pub(crate) fn of(values: Values) -> Self {
        let width = match &values {
            Values::Struct(v) => 1 + v.columns.iter().map(|c| c.width).sum::<usize>(),
            _ => 1,
        };
        Self { values, valid: NullBufferBuilder::new(0), width, required: false }
    }

    pub(crate) fn len(&self) -> usize {
        self.valid.len()
    }

    /// Append a null.
    pub(crate) fn push_null(&mut self) {
        self.valid.append_null();
        match &mut self.values {
            Values::Boolean(v) => v.append(false),
            Values::Int8(v) => v.push(0),
            Values::Int16(v) => v.push(0),
            Values::Int32(v) | Values::Date(v) => v.push(0),
            Values::Int64(v) | Values::Time(v, _) | Values::Timestamp(v, _) | Values::Interval(v) => v.push(0),
            Values::Float32(v) => v.push(0.0),
            Values::Float64(v) => v.push(0.0),
            Values::Decimal(v, ..) => v.push(0),
            Values::String(v) | Values::Binary(v) => v.offsets.push(v.data.len() as i32),
            Values::List(_, offsets, _) | Values::Map(_, offsets, ..) => repeat_last(offsets),
            Values::Struct(v) => v.push_nulls(),
        }
    }

    /// Give back all values from `len` on; also those of which only a part was appended.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.valid.truncate(len);
        match &mut self.values {
            Values::Boolean(v) => v.truncate(len),
            Values::Int8(v) => v.truncate(len),
            Values::Int16(v) => v.truncate(len),
            Values::Int32(v) | Values::Date(v) => v.truncate(len),
            Values::Int64(v) | Values::Time(v, _) | Values::Timestamp(v, _) | Values::Interval(v) => v.truncate(len),
            Values::Float32(v) => v.truncate(len),
            Values::Float64(v) => v.truncate(len),
            Values::Decimal(v, ..) => v.truncate(len),
            Values::String(v) | Values::Binary(v) => v.truncate(len),
            Values::List(_, offsets, element) => {
                offsets.truncate(len + 1);
                element.truncate(offsets[len] as usize);
            }
            Values::Map(_, offsets, key, value) => {
                offsets.truncate(len + 1);
                key.truncate(offsets[len] as usize);
                value.truncate(offsets[len] as usize);
            }
            Values::Struct(v) => v.truncate(len),
        }
    }

    /// Return the values as an array. The column is empty afterwards, with room for as many values again.
    pub(crate) fn finish(&mut self) -> ArrayRef {
        let valid = &mut self.valid;
        match &mut self.values {
            Values::Boolean(v) => Arc::new(BooleanArray::new(v.finish(), valid.finish())),
            Values::Int8(v) => primitive::<Int8Type>(v, valid),
            Values::Int16(v) => primitive::<Int16Type>(v, valid),
            Values::Int32(v) => primitive::<Int32Type>(v, valid),
            Values::Int64(v) => primitive::<Int64Type>(v, valid),
            Values::Float32(v) => primitive::<Float32Type>(v, valid),
            Values::Float64(v) => primitive::<Float64Type>(v, valid),
            Values::Decimal(v, precision, scale) => {
                let array = PrimitiveArray::<Decimal128Type>::new(taken(v), valid.finish());
                Arc::new(array.with_precision_and_scale(*precision, *scale).expect("the type was checked"))
            }
            Values::String(v) => {
                let (offsets, data) = v.take();
                Arc::new(StringArray::new(offsets, data, valid.finish()))
            }
            Values::Binary(v) => {
                let (offsets, data) = v.take();
                Arc::new(BinaryArray::new(offsets, data, valid.finish()))
            }
            Values::Date(v) => primitive::<Date32Type>(v, valid),
            Values::Time(v, _) => primitive::<Time64NanosecondType>(v, valid),
            Values::Interval(v) => primitive::<DurationMicrosecondType>(v, valid),
            Values::Timestamp(v, zone) => {
                let array = PrimitiveArray::<TimestampMicrosecondType>::new(taken(v), valid.finish());
                Arc::new(array.with_timezone_opt(zone.clone()))
            }
            Values::List(field, offsets, element) => {
                let array = ListArray::new(field.clone(), ended(offsets), element.finish(), valid.finish());
                Arc::new(array)
            }
            Values::Map(field, offsets, key, value) => {
                let DataType::Struct(pair) = field.data_type() else { unreachable!("the type was checked") };
                let entries = StructArray::new(pair.clone(), vec![key.finish(), value.finish()], None);
                Arc::new(MapArray::new(field.clone(), ended(offsets), entries, valid.finish(), false))
            }
            Values::Struct(v) => Arc::new(v.finish(valid)),
        }
    }

    /// Return about how many bytes the values take.
    pub(crate) fn size_bytes(&self) -> usize {
        let len = self.len();
        match &self.values {
            Values::Boolean(_) => len / 8,
            Values::Int8(_) => len,
            Values::Int16(_) => 2 * len,
            Values::Int32(_) | Values::Date(_) | Values::Float32(_) => 4 * len,
            Values::Int64(_) | Values::Time(..) | Values::Timestamp(..) | Values::Interval(_) | Values::Float64(_) => {
                8 * len
            }
            Values::Decimal(..) => 16 * len,
            Values::String(v) | Values::Binary(v) => 4 * len + v.data.len(),
            Values::List(_, _, element) => 4 * len + element.size_bytes(),
            Values::Map(_, _, key, value) => 4 * len + key.size_bytes() + value.size_bytes(),
            Values::Struct(v) => v.columns.iter().map(Column::size_bytes).sum(),
        }
    }
}

/// Return whether a type can be that of a map's keys.
fn is_key(type_: &DataType) -> bool {
    type_.is_signed_integer() || matches!(type_, DataType::Utf8 | DataType::Boolean)
}

fn unsupported(field: &Field) -> Unsupported {
    Unsupported(format!("column {} of the type {}", field.name(), field.data_type()))
}

fn primitive<T: ArrowPrimitiveType>(values: &mut Vec<T::Native>, valid: &mut NullBufferBuilder) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(taken(values), valid.finish()))
}

fn taken<T: arrow_buffer::ArrowNativeType>(values: &mut Vec<T>) -> ScalarBuffer<T> {
    let empty = Vec::with_capacity(values.len());
    std::mem::replace(values, empty).into()
}

fn ended(offsets: &mut Vec<i32>) -> OffsetBuffer<i32> {
    OffsetBuffer::new(std::mem::replace(offsets, vec![0]).into())
}

fn repeat_last(offsets: &mut Vec<i32>) {
    offsets.push(offsets[offsets.len() - 1]);
}
