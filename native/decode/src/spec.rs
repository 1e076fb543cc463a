//! What is to be decoded, as Python says it: a format, its options, and the columns with Spark's types.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, TimeUnit};
use serde_json::Value;

use crate::columns::{PRECISION, REQUIRED};
use crate::csv::Dialect;
use crate::json::changelog::Envelope;
use crate::{Format, avro, json, protobuf};

/// The name of the last field of all rows. It is null: a message with an error is left to Spark.
pub(crate) const ERROR: &str = "__error";

/// A format, its options and the wanted columns.
#[derive(Debug, Clone)]
pub struct Spec {
    pub(crate) format: Format,
    pub(crate) columns: Fields,
}

/// A spec cannot be read, or asks for something that is not decoded natively.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported(pub String);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}

impl Spec {
    /// Return the spec for the format `json`.
    pub fn json(columns: &Fields, options: json::Options) -> Self {
        Self { format: Format::Json(options), columns: columns.clone() }
    }

    /// Return the spec that is written as a JSON object: `format`, `options` (true or false by name) and `schema`, which is
    /// the JSON of Spark's `StructType`. For `avro` it has the writer's schema as `writer`, for `avro-confluent` it may have
    /// schemas by their id as `writers`, all in the form that the documentation of the module `avro` describes. For `changelog` it also has
    /// the envelope (`json/changelog.rs`). For `protobuf` and `protobuf-confluent` it has `messages`, the plan of
    /// `formats/protobuf/native.py`.
    ///
    /// # Errors
    ///
    /// `Unsupported` if there is no decoder for it.
    pub fn parse(text: &str) -> Result<Self, Unsupported> {
        let spec: Value = serde_json::from_str(text).map_err(|error| Unsupported(format!("no JSON: {error}")))?;
        // Spark's expressions for JSON return types whose parts may all be null; those for Avro keep the table's types.
        let lenient = matches!(spec["format"].as_str(), Some("json" | "changelog"));
        let columns = fields(&spec["schema"], lenient)?;
        let columns: Fields = columns.iter().map(|column| column.as_ref().clone().with_nullable(true)).collect();
        let option = |name: &str| spec["options"][name].as_bool().unwrap_or(false);
        match spec["format"].as_str() {
            Some("json") => {
                let options = json::Options { fail_on_missing_field: option("json.fail-on-missing-field") };
                Ok(Self::json(&columns, options))
            }
            Some("changelog") => {
                let (envelope, columns) = Envelope::parse(&spec, columns)?;
                Ok(Self { format: Format::Changelog(envelope), columns })
            }
            Some("csv") => Ok(Self { format: Format::Csv(Dialect::parse(&spec)?), columns }),
            Some("avro" | "avro-confluent") => Ok(Self { format: Format::Avro(avro::Writers::parse(&spec)?), columns }),
            Some("protobuf" | "protobuf-confluent") => {
                Ok(Self { format: Format::Protobuf(Arc::new(protobuf::Plan::parse(&spec)?)), columns })
            }
            _ => Err(Unsupported(format!("format {}", spec["format"]))),
        }
    }

    /// Let all decoders of this spec know the schema with an id; None if its messages are to be left.
    pub fn learn(&self, id: u32, schema: Option<&str>) {
        if let Format::Avro(writers) = &self.format {
            writers.learn(id, schema);
        }
    }
}

/// Return the fields of a struct. `lenient` says that a null is allowed by the Arrow type of all parts.
fn fields(structure: &Value, lenient: bool) -> Result<Fields, Unsupported> {
    let fields = structure["fields"].as_array().ok_or_else(|| unsupported(structure))?;
    let name = |f: &'_ Value| f["name"].as_str().unwrap_or_default().to_owned();
    fields.iter().map(|f| field(&name(f), &f["type"], f["nullable"].as_bool(), lenient)).collect()
}

fn field(name: &str, type_: &Value, nullable: Option<bool>, lenient: bool) -> Result<Field, Unsupported> {
    let mut metadata = Vec::new();
    let digits = type_.as_str().and_then(|text| text.strip_prefix("time(")).and_then(|rest| rest.strip_suffix(')'));
    if let Some(digits) = digits {
        metadata.push((PRECISION.to_owned(), digits.to_owned()));
    }
    if nullable == Some(false) {
        metadata.push((REQUIRED.to_owned(), String::new()));
    }
    let nullable = lenient || nullable != Some(false);
    Ok(Field::new(name, data_type(type_, lenient)?, nullable).with_metadata(HashMap::from_iter(metadata)))
}

/// Return the Arrow type for the JSON of a type of Spark's.
pub(crate) fn data_type(type_: &Value, lenient: bool) -> Result<DataType, Unsupported> {
    if let Some(name) = type_.as_str() {
        return simple(name).ok_or_else(|| unsupported(type_));
    }
    match type_["type"].as_str() {
        Some("struct") => Ok(DataType::Struct(fields(type_, lenient)?)),
        Some("array") => {
            let element = field("element", &type_["elementType"], type_["containsNull"].as_bool(), lenient)?;
            Ok(DataType::List(Arc::new(element)))
        }
        Some("map") => {
            let key = Field::new("key", data_type(&type_["keyType"], lenient)?, false);
            let value = field("value", &type_["valueType"], type_["valueContainsNull"].as_bool(), lenient)?;
            let pair = vec![key, value];
            let entries = Field::new("entries", DataType::Struct(pair.into()), false);
            Ok(DataType::Map(Arc::new(entries), false))
        }
        _ => Err(unsupported(type_)),
    }
}

fn simple(name: &str) -> Option<DataType> {
    Some(match name {
        "boolean" => DataType::Boolean,
        "byte" => DataType::Int8,
        "short" => DataType::Int16,
        "integer" => DataType::Int32,
        "long" => DataType::Int64,
        "float" => DataType::Float32,
        "double" => DataType::Float64,
        "string" => DataType::Utf8,
        "binary" => DataType::Binary,
        "date" => DataType::Date32,
        "timestamp" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        "timestamp_ntz" => DataType::Timestamp(TimeUnit::Microsecond, None),
        _ if name.starts_with("time(") => DataType::Time64(TimeUnit::Nanosecond),
        _ => {
            let (precision, scale) = name.strip_prefix("decimal(")?.strip_suffix(')')?.split_once(',')?;
            DataType::Decimal128(precision.parse().ok()?, scale.parse().ok()?)
        }
    })
}

fn unsupported(type_: &Value) -> Unsupported {
    Unsupported(format!("type {type_}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_is_read_from_json() {
        let spec = Spec::parse(
            r#"{"format":"json","options":{"json.fail-on-missing-field":true},"schema":{"type":"struct","fields":[
                {"name":"a","type":"decimal(10,2)","nullable":false,"metadata":{}},
                {"name":"b","type":{"type":"array","elementType":"time(3)","containsNull":false},"nullable":true},
                {"name":"c","type":{"type":"map","keyType":"string","valueType":"timestamp","valueContainsNull":true}},
                {"name":"d","type":{"type":"struct","fields":[{"name":"e","type":"timestamp_ntz"}]}}]}}"#,
        )
        .unwrap();
        assert!(matches!(spec.format, Format::Json(json::Options { fail_on_missing_field: true })));
        assert_eq!(spec.columns.iter().map(|f| f.name().as_str()).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
        assert!(spec.columns.iter().all(|f| f.is_nullable()));
        let DataType::List(element) = spec.columns[1].data_type() else { panic!("no list") };
        assert_eq!(element.metadata().get(PRECISION).map(String::as_str), Some("3"));
    }

    #[test]
    fn what_is_not_decoded_is_named() {
        for (text, expected) in [
            (r#"{"format":"xml","schema":{"fields":[]}}"#, "format \"xml\""),
            (r#"{"format":"json","schema":{"fields":[{"name":"a","type":"variant"}]}}"#, "type \"variant\""),
            (r#"{"format":"json","schema":{"fields":[{"name":"a","type":"decimal(x,2)"}]}}"#, "type \"decimal(x,2)\""),
            (r#"{"format":"json"}"#, "type null"),
        ] {
            assert_eq!(Spec::parse(text).unwrap_err().to_string(), expected);
        }
        assert!(Spec::parse("{").is_err());
    }
}
