//! Views of Arrow arrays by the types of a spec: where a value is, and whether it is null.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, DurationMicrosecondType, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, Time64NanosecondType, TimestampMicrosecondType,
};
use arrow_array::{Array, BooleanArray};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;

use crate::types::{Type, Unsupported};

/// A column.
pub(crate) struct Column<'a> {
    nulls: Option<&'a NullBuffer>,
    pub(crate) values: Values<'a>,
}

/// The values of a column.
pub(crate) enum Values<'a> {
    Boolean(&'a BooleanArray),
    Int8(&'a [i8]),
    Int16(&'a [i16]),
    /// Also days since 1970.
    Int32(&'a [i32]),
    /// Also times, intervals and timestamps.
    Int64(&'a [i64]),
    Float32(&'a [f32]),
    Float64(&'a [f64]),
    /// The unscaled numbers, and their scale.
    Decimal(&'a [i128], i8),
    /// Bytes, or texts that need not be valid UTF-8.
    Bytes(&'a [i32], &'a [u8]),
    List(&'a [i32], Box<Column<'a>>),
    Map(&'a [i32], Box<Column<'a>>, Box<Column<'a>>),
    Struct(Vec<Column<'a>>),
}

impl<'a> Column<'a> {
    /// Return the view of an array. Texts may also be in a binary array, because those of Spark need not be valid UTF-8.
    pub(crate) fn of(type_: &Type, array: &'a dyn Array) -> Result<Self, Unsupported> {
        let other = || Unsupported(format!("a column is {type_:?} in the spec and {} in the rows", array.data_type()));
        let values = match type_ {
            Type::Boolean => Values::Boolean(array.as_boolean_opt().ok_or_else(other)?),
            Type::Int8 => Values::Int8(numbers::<Int8Type>(array).ok_or_else(other)?),
            Type::Int16 => Values::Int16(numbers::<Int16Type>(array).ok_or_else(other)?),
            Type::Int32 => Values::Int32(numbers::<Int32Type>(array).ok_or_else(other)?),
            Type::Int64 => Values::Int64(numbers::<Int64Type>(array).ok_or_else(other)?),
            Type::Float32 => Values::Float32(numbers::<Float32Type>(array).ok_or_else(other)?),
            Type::Float64 => Values::Float64(numbers::<Float64Type>(array).ok_or_else(other)?),
            Type::Decimal(_, scale) => match array.data_type() {
                DataType::Decimal128(_, found) if found == scale => {
                    Values::Decimal(numbers::<Decimal128Type>(array).ok_or_else(other)?, *scale)
                }
                _ => return Err(other()),
            },
            Type::String | Type::Binary => match array.data_type() {
                DataType::Utf8 => {
                    let texts = array.as_string::<i32>();
                    Values::Bytes(texts.value_offsets(), texts.value_data())
                }
                DataType::Binary => {
                    let bytes = array.as_binary::<i32>();
                    Values::Bytes(bytes.value_offsets(), bytes.value_data())
                }
                _ => return Err(other()),
            },
            Type::Date => Values::Int32(numbers::<Date32Type>(array).ok_or_else(other)?),
            Type::Time => Values::Int64(numbers::<Time64NanosecondType>(array).ok_or_else(other)?),
            Type::Interval => Values::Int64(numbers::<DurationMicrosecondType>(array).ok_or_else(other)?),
            Type::Timestamp | Type::TimestampNtz => {
                Values::Int64(numbers::<TimestampMicrosecondType>(array).ok_or_else(other)?)
            }
            Type::List(element) => {
                let list = array.as_list_opt::<i32>().ok_or_else(other)?;
                Values::List(list.value_offsets(), Box::new(Self::of(element, list.values())?))
            }
            Type::Map(key, value) => {
                let map = array.as_map_opt().ok_or_else(other)?;
                let (keys, values) = (Self::of(key, map.keys())?, Self::of(value, map.values())?);
                Values::Map(map.value_offsets(), Box::new(keys), Box::new(values))
            }
            Type::Struct(fields) => {
                let rows = array.as_struct_opt().ok_or_else(other)?;
                let same = |((name, _), found): (&(String, Type), &str)| name == found;
                if fields.len() != rows.num_columns() || !fields.iter().zip(rows.column_names()).all(same) {
                    return Err(other());
                }
                let columns = fields.iter().zip(rows.columns()).map(|((_, type_), array)| Self::of(type_, array));
                Values::Struct(columns.collect::<Result<_, _>>()?)
            }
        };
        Ok(Self { nulls: array.nulls(), values })
    }

    /// Return whether a value is not null.
    #[inline]
    pub(crate) fn is_valid(&self, row: usize) -> bool {
        self.nulls.is_none_or(|nulls| nulls.is_valid(row))
    }
}

fn numbers<T: ArrowPrimitiveType>(array: &dyn Array) -> Option<&[T::Native]> {
    Some(array.as_primitive_opt::<T>()?.values())
}

/// Return the part of a value between two offsets.
#[inline]
pub(crate) fn part<'a>(offsets: &[i32], data: &'a [u8], row: usize) -> &'a [u8] {
    &data[range(offsets, row)]
}

/// Return where the elements of a row are.
#[inline]
pub(crate) fn range(offsets: &[i32], row: usize) -> std::ops::Range<usize> {
    offsets[row] as usize..offsets[row + 1] as usize
}
