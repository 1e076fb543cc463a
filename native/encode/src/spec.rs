//! What is to be encoded, as Python says it: a format, its options, and the columns with Spark's types.

use std::collections::HashSet;
use std::fmt;

use serde_json::Value;

use crate::json;

/// A format, its options and the columns.
#[derive(Debug, Clone)]
pub struct Spec {
    pub(crate) format: Format,
    pub(crate) columns: Type,
}

#[derive(Debug, Clone)]
pub(crate) enum Format {
    Json(json::Style),
    /// The schema, and the columns with times that are cut.
    Avro(Value, Vec<String>),
    /// The fields, and the text for a null in an array or a map.
    Protobuf(Value, String),
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
    /// Return the spec that is written as a JSON object: `format`, `options` and `schema`, which is the JSON of Spark's
    /// `StructType`. For `avro` it has the schema as `record`, as fastavro parses it, and as `cut` the columns with times that
    /// are cut to their unit. For `protobuf` it has the message's fields as `message`, and a text as `null_literal`.
    ///
    /// # Errors
    ///
    /// `Unsupported` if there is no encoder for it.
    pub fn parse(text: &str) -> Result<Self, Unsupported> {
        let spec: Value = serde_json::from_str(text).map_err(|error| Unsupported(format!("no JSON: {error}")))?;
        let columns = structure(&spec["schema"])?;
        let format = match spec["format"].as_str() {
            Some("json") => Format::Json(json::Style::parse(&spec["options"])),
            Some("avro") => {
                let cut = spec["cut"].as_array().into_iter().flatten().filter_map(Value::as_str);
                Format::Avro(spec["record"].clone(), cut.map(str::to_owned).collect())
            }
            Some("protobuf") => {
                let null_literal = spec["null_literal"].as_str().unwrap_or_default();
                Format::Protobuf(spec["message"].clone(), null_literal.to_owned())
            }
            _ => return Err(Unsupported(format!("format {}", spec["format"]))),
        };
        Ok(Self { format, columns })
    }
}

/// Return a struct. Its fields have different names, because Spark does not send others to Python.
fn structure(type_: &Value) -> Result<Type, Unsupported> {
    let fields = type_["fields"].as_array().ok_or_else(|| unsupported(type_))?;
    let mut names = HashSet::new();
    let mut found = Vec::new();
    for field in fields {
        let name = field["name"].as_str().ok_or_else(|| unsupported(type_))?;
        if !names.insert(name) {
            return Err(Unsupported(format!("two fields with the name {name}")));
        }
        found.push((name.to_owned(), data_type(&field["type"])?));
    }
    if found.is_empty() { Err(unsupported(type_)) } else { Ok(Type::Struct(found)) }
}

fn data_type(type_: &Value) -> Result<Type, Unsupported> {
    if let Some(name) = type_.as_str() {
        return simple(name).ok_or_else(|| unsupported(type_));
    }
    match type_["type"].as_str() {
        Some("struct") => structure(type_),
        Some("array") => Ok(Type::List(Box::new(data_type(&type_["elementType"])?))),
        Some("map") => {
            let (key, value) = (data_type(&type_["keyType"])?, data_type(&type_["valueType"])?);
            Ok(Type::Map(Box::new(key), Box::new(value)))
        }
        _ => Err(unsupported(type_)),
    }
}

fn simple(name: &str) -> Option<Type> {
    Some(match name {
        "boolean" => Type::Boolean,
        "byte" => Type::Int8,
        "short" => Type::Int16,
        "integer" => Type::Int32,
        "long" => Type::Int64,
        "float" => Type::Float32,
        "double" => Type::Float64,
        "string" => Type::String,
        "binary" => Type::Binary,
        "date" => Type::Date,
        "timestamp" => Type::Timestamp,
        "timestamp_ntz" => Type::TimestampNtz,
        _ if name.starts_with("time(") => Type::Time,
        _ => {
            let (precision, scale) = name.strip_prefix("decimal(")?.strip_suffix(')')?.split_once(',')?;
            Type::Decimal(precision.parse().ok()?, scale.parse().ok().filter(|scale| *scale >= 0)?)
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
            r#"{"format":"json","options":{"separator":"T","ignore_nulls":true},"schema":{"type":"struct","fields":[
                {"name":"a","type":"decimal(10,2)","nullable":false,"metadata":{}},
                {"name":"b","type":{"type":"array","elementType":"time(3)","containsNull":false},"nullable":true},
                {"name":"c","type":{"type":"map","keyType":"string","valueType":"timestamp","valueContainsNull":true}},
                {"name":"d","type":{"type":"struct","fields":[{"name":"e","type":"timestamp_ntz"}]}}]}}"#,
        )
        .unwrap();
        let Format::Json(style) = spec.format else { panic!("no JSON") };
        assert_eq!(style, json::Style { separator: b'T', plain_decimals: false, ignore_nulls: true });
        let named = |name: &str, type_| (name.to_owned(), type_);
        assert_eq!(
            spec.columns,
            Type::Struct(vec![
                named("a", Type::Decimal(10, 2)),
                named("b", Type::List(Box::new(Type::Time))),
                named("c", Type::Map(Box::new(Type::String), Box::new(Type::Timestamp))),
                named("d", Type::Struct(vec![named("e", Type::TimestampNtz)])),
            ])
        );
    }

    #[test]
    fn what_is_not_encoded_is_named() {
        for (text, expected) in [
            (r#"{"format":"xml","schema":{"fields":[{"name":"a","type":"long"}]}}"#, "format \"xml\""),
            (r#"{"format":"json","schema":{"fields":[{"name":"a","type":"variant"}]}}"#, "type \"variant\""),
            (r#"{"format":"json","schema":{"fields":[{"name":"a","type":"decimal(x,2)"}]}}"#, "type \"decimal(x,2)\""),
            (
                r#"{"format":"json","schema":{"fields":[{"name":"a","type":"long"},{"name":"a","type":"long"}]}}"#,
                "two fields with the name a",
            ),
            (r#"{"format":"json","schema":{"fields":[]}}"#, "type {\"fields\":[]}"),
            (r#"{"format":"json"}"#, "type null"),
        ] {
            assert_eq!(Spec::parse(text).unwrap_err().to_string(), expected);
        }
        assert!(Spec::parse("{").is_err());
    }
}
