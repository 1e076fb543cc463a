//! What is to be encoded, as Python says it: a format and its options, and the columns.

use arrow_schema::Fields;
use serde_json::Value;

use crate::types::{Type, Unsupported, structure};
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

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, Field, TimeUnit};

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
