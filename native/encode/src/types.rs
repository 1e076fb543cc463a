//! The types of Spark's columns.

use arrow_schema::{DataType, Fields, TimeUnit};
use std::collections::HashSet;
use std::fmt;

/// A type of Spark's columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Type {
    Boolean,
    Int8,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    Decimal(u8, i8),
    String,
    Binary,
    Date,
    /// Nanoseconds of a day.
    Time,
    /// Microseconds.
    Interval,
    /// Microseconds since 1970 in UTC.
    Timestamp,
    /// The same, without time zone.
    TimestampNtz,
    List(Box<Type>),
    Map(Box<Type>, Box<Type>),
    Struct(Vec<(String, Type)>),
}

/// A spec cannot be read, or asks for something that is not encoded natively.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported(pub String);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}

/// Return a struct. Its fields have different names, because Spark does not send others to Python.
pub(crate) fn structure(fields: &Fields) -> Result<Type, Unsupported> {
    let mut names = HashSet::new();
    let mut found = Vec::new();
    for field in fields {
        if !names.insert(field.name()) {
            return Err(Unsupported(format!("two fields with the name {}", field.name())));
        }
        found.push((field.name().clone(), type_of(field.data_type())?));
    }
    Ok(Type::Struct(found))
}

fn type_of(type_: &DataType) -> Result<Type, Unsupported> {
    Ok(match type_ {
        DataType::Boolean => Type::Boolean,
        DataType::Int8 => Type::Int8,
        DataType::Int16 => Type::Int16,
        DataType::Int32 => Type::Int32,
        DataType::Int64 => Type::Int64,
        DataType::Float32 => Type::Float32,
        DataType::Float64 => Type::Float64,
        DataType::Decimal128(precision, scale @ 0..) => Type::Decimal(*precision, *scale),
        DataType::Utf8 | DataType::LargeUtf8 => Type::String,
        DataType::Binary | DataType::LargeBinary => Type::Binary,
        DataType::Date32 => Type::Date,
        DataType::Time64(TimeUnit::Nanosecond) => Type::Time,
        DataType::Duration(TimeUnit::Microsecond) => Type::Interval,
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => Type::Timestamp,
        DataType::Timestamp(TimeUnit::Microsecond, None) => Type::TimestampNtz,
        DataType::List(element) | DataType::LargeList(element) => Type::List(Box::new(type_of(element.data_type())?)),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => {
                Type::Map(Box::new(type_of(pair[0].data_type())?), Box::new(type_of(pair[1].data_type())?))
            }
            _ => return Err(Unsupported(format!("type {type_}"))),
        },
        DataType::Struct(fields) => structure(fields)?,
        _ => return Err(Unsupported(format!("type {type_}"))),
    })
}
