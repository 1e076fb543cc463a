//! Columns that grow value by value, and shrink again when a message turns out to be damaged.
//!
//! Arrow's own builders cannot give back what was appended. These can: `truncate` returns a column to an earlier length.
//!
//! A column that no query uses takes values like any other one, so that a value that does not fit is an error there, too. It
//! counts them, and no array is made of it.

mod stores;

use std::collections::HashMap;
use std::mem::take;
use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, DurationMicrosecondType, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, Time64NanosecondType, TimestampMicrosecondType,
};
use arrow_array::{ArrayRef, BinaryArray, BooleanArray, ListArray, MapArray, PrimitiveArray, StringArray, StructArray};
use arrow_buffer::NullBufferBuilder;
use arrow_schema::{DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef, Fields, TimeUnit};

use crate::fault::{Failure, Unsupported};
pub(crate) use stores::{Booleans, Bytes, Ends, Numbers};

const FEW_FIELDS: usize = 12;
const MOST_QUOTED: usize = 1000;
/// The key of a TIME field's precision in its metadata.
pub(crate) const PRECISION: &str = "precision";
/// The key in the metadata of a field that no query uses.
pub(crate) const UNUSED: &str = "unused";
/// How many values of arrays and maps a message may have for each of its bytes, and how many beside: elements with few bytes, or
/// none, may be wide.
pub(crate) const MOST_VALUES_A_BYTE: usize = 16;
pub(crate) const MOST_SPARE_VALUES: usize = 4_000_000;

/// A column with its nulls.
pub(crate) struct Column {
    pub(crate) values: Values,
    pub(crate) valid: NullBufferBuilder,
    /// How many simple values one value has at least: more than one for a struct.
    pub(crate) width: usize,
    /// Whether the Arrow type does not allow a null.
    pub(crate) required: bool,
    /// Whether an array is made of the values.
    is_kept: bool,
    /// Whether `forget` has something to forget.
    forgets: bool,
}

/// The values of a column, by its type.
pub(crate) enum Values {
    Boolean(Booleans),
    Int8(Numbers<i8>),
    Int16(Numbers<i16>),
    Int32(Numbers<i32>),
    Int64(Numbers<i64>),
    Float32(Numbers<f32>),
    Float64(Numbers<f64>),
    /// Unscaled numbers, the precision and the scale.
    Decimal(Numbers<i128>, u8, i8),
    String(Bytes),
    Binary(Bytes),
    /// Days since 1970.
    Date(Numbers<i32>),
    /// Nanoseconds since midnight, and how many digits of a second the type has.
    Time(Numbers<i64>, usize),
    /// Microseconds.
    Interval(Numbers<i64>),
    /// Microseconds since 1970, and the time zone: with one it is an instant, without one a local time.
    Timestamp(Numbers<i64>, Option<Arc<str>>),
    List(FieldRef, Ends, Box<Column>),
    /// The field of the entries, where maps end, the keys and the values.
    Map(FieldRef, Ends, Box<Column>, Box<Column>),
    Struct(Struct),
}

/// The columns of a struct.
pub(crate) struct Struct {
    fields: Fields,
    /// Those of which arrays are made.
    kept: Fields,
    pub(crate) columns: Vec<Column>,
    pub(crate) len: usize,
    by_name: HashMap<Box<[u8]>, usize>,
    /// The names in quotes; None for those that JSON does not have so.
    quoted: Vec<Option<Box<[u8]>>>,
}

impl Struct {
    pub(crate) fn new(fields: &Fields, is_kept: bool) -> Result<Self, Unsupported> {
        let columns = fields.iter().map(|f| Column::new(f, is_kept)).collect::<Result<Vec<_>, _>>()?;
        let kept = used(fields);
        let by_name = fields.iter().enumerate().map(|(i, f)| (f.name().as_bytes().into(), i));
        let quoted = fields.iter().map(|field| quoted(field.name())).collect();
        Ok(Self { fields: fields.clone(), kept, columns, len: 0, by_name: by_name.collect(), quoted })
    }

    /// Return the name of a field in quotes, if there is one and that is how JSON has it.
    #[inline]
    pub(crate) fn quoted(&self, index: usize) -> Option<&[u8]> {
        self.quoted.get(index)?.as_deref()
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
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.kept.len());
        for column in &mut self.columns {
            if column.is_kept {
                arrays.push(column.finish());
            } else {
                column.forget(0);
            }
        }
        let len = take(&mut self.len);
        StructArray::try_new_with_length(self.kept.clone(), arrays, valid.finish(), len)
            .expect("a column has as many values as its struct")
    }
}

impl Column {
    /// Return an empty column. `is_kept` says whether an array is made of it, unless its field is unused.
    pub(crate) fn new(field: &Field, is_kept: bool) -> Result<Self, Unsupported> {
        let is_kept = is_kept && !field.metadata().contains_key(UNUSED);
        let values = match field.data_type() {
            DataType::Boolean => Values::Boolean(Booleans::new(is_kept)),
            DataType::Int8 => Values::Int8(Numbers::new(is_kept)),
            DataType::Int16 => Values::Int16(Numbers::new(is_kept)),
            DataType::Int32 => Values::Int32(Numbers::new(is_kept)),
            DataType::Int64 => Values::Int64(Numbers::new(is_kept)),
            DataType::Float32 => Values::Float32(Numbers::new(is_kept)),
            DataType::Float64 => Values::Float64(Numbers::new(is_kept)),
            DataType::Decimal128(precision @ 1..=DECIMAL128_MAX_PRECISION, scale)
                if u8::try_from(*scale).is_ok_and(|scale| scale <= *precision) =>
            {
                Values::Decimal(Numbers::new(is_kept), *precision, *scale)
            }
            DataType::Utf8 => Values::String(Bytes::new(is_kept)),
            DataType::Binary => Values::Binary(Bytes::new(is_kept)),
            DataType::Date32 => Values::Date(Numbers::new(is_kept)),
            DataType::Time64(TimeUnit::Nanosecond) => {
                // Arrow's type does not have the precision of Spark's.
                let digits = field.metadata().get(PRECISION).and_then(|text| text.parse().ok()).unwrap_or(6);
                Values::Time(Numbers::new(is_kept), digits)
            }
            DataType::Duration(TimeUnit::Microsecond) => Values::Interval(Numbers::new(is_kept)),
            DataType::Timestamp(TimeUnit::Microsecond, zone) => Values::Timestamp(Numbers::new(is_kept), zone.clone()),
            DataType::List(element) => {
                Values::List(used_field(element), Ends::new(), Box::new(Column::new(element, is_kept)?))
            }
            DataType::Map(entries, false) => match entries.data_type() {
                DataType::Struct(pair) if pair.len() == 2 && is_key(pair[0].data_type()) => {
                    // Keys are compared, so they are kept until the message ends.
                    let (key, value) = (Column::new(&pair[0], true)?, Column::new(&pair[1], is_kept)?);
                    Values::Map(entries.clone(), Ends::new(), Box::new(key), Box::new(value))
                }
                _ => return Err(unsupported(field)),
            },
            DataType::Struct(fields) => Values::Struct(Struct::new(fields, is_kept)?),
            _ => return Err(unsupported(field)),
        };
        Ok(Self { required: !field.is_nullable(), ..Self::of(values, is_kept) })
    }

    pub(crate) fn of(values: Values, is_kept: bool) -> Self {
        let width = match &values {
            Values::Struct(v) => 1 + v.columns.iter().map(|c| c.width).sum::<usize>(),
            _ => 1,
        };
        let forgets = match &values {
            Values::List(_, _, element) => !is_kept || element.forgets,
            Values::Map(_, _, _, value) => !is_kept || value.forgets,
            Values::Struct(v) => v.columns.iter().any(|column| column.forgets),
            _ => false,
        };
        Self { values, valid: NullBufferBuilder::new(0), width, required: false, is_kept, forgets }
    }

    pub(crate) fn len(&self) -> usize {
        self.valid.len()
    }

    /// Append a null.
    pub(crate) fn push_null(&mut self) {
        if self.is_kept {
            self.valid.append_null();
        } else {
            self.valid.append_non_null(); // it is only counted
        }
        match &mut self.values {
            Values::Boolean(v) => v.push(false),
            Values::Int8(v) => v.push(0),
            Values::Int16(v) => v.push(0),
            Values::Int32(v) | Values::Date(v) => v.push(0),
            Values::Int64(v) | Values::Time(v, _) | Values::Timestamp(v, _) | Values::Interval(v) => v.push(0),
            Values::Float32(v) => v.push(0.0),
            Values::Float64(v) => v.push(0.0),
            Values::Decimal(v, ..) => v.push(0),
            Values::String(v) | Values::Binary(v) => v.push_empty(),
            Values::List(_, ends, _) | Values::Map(_, ends, ..) => ends.push_empty(),
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
            Values::List(_, ends, element) => element.truncate(ends.truncate(len)),
            Values::Map(_, ends, key, value) => {
                let elements = ends.truncate(len);
                key.truncate(elements);
                value.truncate(elements);
            }
            Values::Struct(v) => v.truncate(len),
        }
    }

    /// Forget what unused columns have kept of the messages so far.
    #[inline]
    pub(crate) fn begin_message(&mut self) {
        if self.forgets {
            self.forget_unused();
        }
    }

    fn forget_unused(&mut self) {
        match &mut self.values {
            _ if !self.is_kept => self.forget(self.len()),
            Values::List(_, _, element) => element.begin_message(),
            Values::Map(_, _, _, value) => value.begin_message(),
            Values::Struct(v) => v.columns.iter_mut().for_each(Self::begin_message),
            _ => {}
        }
    }

    /// Forget all values of an unused column, and count `len` instead.
    fn forget(&mut self, len: usize) {
        self.valid.truncate(len);
        match &mut self.values {
            Values::List(_, ends, element) => {
                ends.forget(len);
                element.forget(0);
            }
            Values::Map(_, ends, key, value) => {
                ends.forget(len);
                key.truncate(0);
                value.forget(0);
            }
            Values::Struct(v) => {
                v.columns.iter_mut().for_each(|column| column.forget(len));
                v.len = len;
            }
            _ => {}
        }
    }

    /// Return the values as an array. The column is empty afterwards, with room for as many values again.
    pub(crate) fn finish(&mut self) -> ArrayRef {
        let valid = &mut self.valid;
        match &mut self.values {
            Values::Boolean(v) => Arc::new(BooleanArray::new(v.take(), valid.finish())),
            Values::Int8(v) => primitive::<Int8Type>(v, valid),
            Values::Int16(v) => primitive::<Int16Type>(v, valid),
            Values::Int32(v) => primitive::<Int32Type>(v, valid),
            Values::Int64(v) => primitive::<Int64Type>(v, valid),
            Values::Float32(v) => primitive::<Float32Type>(v, valid),
            Values::Float64(v) => primitive::<Float64Type>(v, valid),
            Values::Decimal(v, precision, scale) => {
                let array = PrimitiveArray::<Decimal128Type>::new(v.take(), valid.finish());
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
                let array = PrimitiveArray::<TimestampMicrosecondType>::new(v.take(), valid.finish());
                Arc::new(array.with_timezone_opt(zone.clone()))
            }
            Values::List(field, ends, element) => {
                let array = ListArray::new(field.clone(), ends.take(), element.finish(), valid.finish());
                Arc::new(array)
            }
            Values::Map(field, ends, key, value) => {
                let DataType::Struct(pair) = field.data_type() else { unreachable!("the type was checked") };
                let entries = StructArray::new(pair.clone(), vec![key.finish(), value.finish()], None);
                Arc::new(MapArray::new(field.clone(), ends.take(), entries, valid.finish(), false))
            }
            Values::Struct(v) => Arc::new(v.finish(valid)),
        }
    }

    /// Return about how many bytes the values take.
    pub(crate) fn size_bytes(&self) -> usize {
        let len = if self.is_kept { self.len() } else { 0 };
        match &self.values {
            Values::Boolean(_) => len / 8,
            Values::Int8(_) => len,
            Values::Int16(_) => 2 * len,
            Values::Int32(_) | Values::Date(_) | Values::Float32(_) => 4 * len,
            Values::Int64(_) | Values::Time(..) | Values::Timestamp(..) | Values::Interval(_) | Values::Float64(_) => {
                8 * len
            }
            Values::Decimal(..) => 16 * len,
            Values::String(v) | Values::Binary(v) => v.size_bytes(),
            Values::List(_, _, element) => 4 * len + element.size_bytes(),
            Values::Map(_, _, key, value) => 4 * len + key.size_bytes() + value.size_bytes(),
            Values::Struct(v) => v.columns.iter().map(Column::size_bytes).sum(),
        }
    }
}

fn quoted(name: &str) -> Option<Box<[u8]>> {
    (name.len() < MOST_QUOTED && !name.contains(['"', '\\'])).then(|| format!("\"{name}\"").into_bytes().into())
}

/// Return the fields that are used.
fn used(fields: &Fields) -> Fields {
    fields.iter().filter(|field| !field.metadata().contains_key(UNUSED)).map(used_field).collect()
}

/// Return a field without the unused ones in it. They are columns of a table, which are in an array in a changelog.
fn used_field(field: &FieldRef) -> FieldRef {
    let type_ = match field.data_type() {
        DataType::Struct(fields) => DataType::Struct(used(fields)),
        DataType::List(element) => DataType::List(used_field(element)),
        other => other.clone(),
    };
    Arc::new(field.as_ref().clone().with_data_type(type_))
}

/// Return whether a type can be that of a map's keys.
fn is_key(type_: &DataType) -> bool {
    type_.is_signed_integer() || matches!(type_, DataType::Utf8 | DataType::Boolean)
}

fn unsupported(field: &Field) -> Unsupported {
    Unsupported(format!("column {} of the type {}", field.name(), field.data_type()))
}

fn primitive<T: ArrowPrimitiveType>(values: &mut Numbers<T::Native>, valid: &mut NullBufferBuilder) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(values.take(), valid.finish()))
}
