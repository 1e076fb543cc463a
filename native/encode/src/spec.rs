//! What is to be encoded, as Python says it: a format and its options, and the columns.

use arrow_schema::{DataType, Fields, TimeUnit};
use serde_json::Value;
use std::collections::HashSet;
use std::fmt;

use crate::{csv, json};

/// A format, its options and the columns.
#[derive(Debug, Clone)]
pub struct Spec {
    pub(crate) format: Format,
    pub(crate) columns: Type,
}

#[derive(Debug, Clone)]
pub(crate) enum Format {
    Json(json::Style),
    Csv(csv::Dialect),
    /// The plan.
    Avro(Value),
    /// The plan.
    Protobuf(Value),
}

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

impl Spec {
    /// Return the spec that is written as a JSON object: `format` and `options`. For `avro` and `protobuf` it has the `plan`
    /// of its messages (`avro.rs`, `protobuf/plan.rs`).
    ///
    /// # Errors
    ///
    /// `Unsupported` if there is no encoder for it.
    pub fn new(text: &str, columns: &Fields) -> Result<Self, Unsupported> {
        let spec: Value = serde_json::from_str(text).map_err(|error| Unsupported(format!("no JSON: {error}")))?;
        let columns = structure(columns)?;
        let format = match spec["format"].as_str() {
            Some("json") => Format::Json(json::Style::parse(&spec["options"])),
            Some("csv") => Format::Csv(csv::Dialect::parse(&spec)?),
            Some("avro") => Format::Avro(spec["plan"].clone()),
            Some("protobuf") => Format::Protobuf(spec["plan"].clone()),
            _ => return Err(Unsupported(format!("format {}", spec["format"]))),
        };
        Ok(Self { format, columns })
    }
}

/// Return a struct. Its fields have different names, because Spark does not send others to Python.
fn structure(fields: &Fields) -> Result<Type, Unsupported> {
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

#[cfg(test)]
mod tests {
    use arrow_schema::Field;

    use std::sync::Arc;

    use super::*;

    fn columns(types: Vec<(&str, DataType)>) -> Fields {
        types.into_iter().map(|(name, type_)| Field::new(name, type_, true)).collect()
    }

    #[test]
    fn a_spec_has_the_types_of_its_columns() {
        let text = r#"{"format":"json","options":{"separator":"T","ignore_nulls":true}}"#;
        let element = Arc::new(Field::new("element", DataType::Time64(TimeUnit::Nanosecond), false));
        let inner = columns(vec![("e", DataType::Timestamp(TimeUnit::Microsecond, None))]);
        let given =
            [("a", DataType::Decimal128(10, 2)), ("b", DataType::List(element)), ("d", DataType::Struct(inner))];
        let spec = Spec::new(text, &columns(given.to_vec())).unwrap();
        let Format::Json(style) = spec.format else { panic!("no JSON") };
        assert_eq!(style, json::Style { separator: b'T', plain_decimals: false, ignore_nulls: true });
        let named = |name: &str, type_| (name.to_owned(), type_);
        assert_eq!(
            spec.columns,
            Type::Struct(vec![
                named("a", Type::Decimal(10, 2)),
                named("b", Type::List(Box::new(Type::Time))),
                named("d", Type::Struct(vec![named("e", Type::TimestampNtz)])),
            ])
        );
    }

    #[test]
    fn what_is_not_encoded_is_named() {
        let long = || ("a", DataType::Int64);
        for (text, columns, expected) in [
            (r#"{"format":"xml"}"#, columns(vec![long()]), "format \"xml\""),
            (r#"{"format":"json"}"#, columns(vec![("a", DataType::Null)]), "type Null"),
            (r#"{"format":"json"}"#, columns(vec![("a", DataType::Decimal128(3, -2))]), "type Decimal128(3, -2)"),
            (r#"{"format":"json"}"#, columns(vec![long(), long()]), "two fields with the name a"),
        ] {
            assert_eq!(Spec::new(text, &columns).unwrap_err().to_string(), expected);
        }
        assert!(Spec::new("{", &columns(vec![long()])).is_err());
    }
}
