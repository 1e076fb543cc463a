//! What is to be decoded, as Python says it: a format and its options, and the columns.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields};
use serde_json::Value;

use crate::csv::Dialect;
use crate::fault::Unsupported;
use crate::json::changelog::Envelope;
use crate::schema_ids::{Key, Plans};
use crate::{Format, json, protobuf, spark};

/// The name of the last field of all rows.
pub(crate) const ERROR: &str = "__error";

/// A format, its options and the wanted columns.
#[derive(Debug, Clone)]
pub struct Spec {
    pub(crate) format: Format,
    pub(crate) columns: Fields,
}

impl Spec {
    /// Return the spec for the format `json`.
    pub fn json(columns: &Fields, options: json::Options) -> Self {
        Self { format: Format::Json(options), columns: columns.clone() }
    }

    /// Return the spec that is written as a JSON object: `format` and `options` (true or false by name). For `avro` and
    /// `protobuf` it has the `plan` of its messages (`avro/plan.rs`, `protobuf/plan.rs`), for `avro-confluent`,
    /// `json-schema-confluent` and `protobuf-confluent` the words for messages without an id, as `short` and `foreign`; there
    /// a `plan` is that of all messages, whatever their id is. For `changelog` it also has the envelope (`json/changelog.rs`).
    ///
    /// A TIME has its precision in its field's metadata. A field with `unused` there is checked, and is not in the rows. The rows have the columns as nullable fields.
    ///
    /// # Errors
    ///
    /// `Unsupported` if there is no decoder for it.
    pub fn new(text: &str, columns: &Fields) -> Result<Self, Unsupported> {
        Self::of(&parsed(text)?, columns)
    }

    /// Return the spec that is written as a JSON object with the columns as `schema`, the JSON of Spark's `StructType`: for
    /// tests and fuzzing.
    ///
    /// # Errors
    ///
    /// `Unsupported` if there is no decoder for it.
    pub fn parse(text: &str) -> Result<Self, Unsupported> {
        let spec = parsed(text)?;
        Self::of(&spec, &spark::fields(&spec["schema"])?)
    }

    fn of(spec: &Value, columns: &Fields) -> Result<Self, Unsupported> {
        // In JSON and CSV any part may be null. The others keep the table's types.
        let lenient = matches!(spec["format"].as_str(), Some("json" | "json-schema-confluent" | "csv" | "changelog"));
        let columns = columns.iter().map(|column| if lenient { relaxed(column) } else { column.as_ref().clone() });
        let columns: Fields = columns.map(|column| column.with_nullable(true)).collect();
        if matches!(spec["format"].as_str(), Some("csv" | "avro" | "avro-confluent")) {
            columns.iter().try_for_each(|column| without_durations(column))?;
        }
        match spec["format"].as_str() {
            Some("json") => Ok(Self::json(&columns, json::Options::parse(spec))),
            Some("json-schema-confluent") => {
                Ok(Self { format: Format::JsonById(json::Messages::parse(spec)?), columns })
            }
            Some("changelog") => {
                let (envelope, columns) = Envelope::parse(spec, columns)?;
                Ok(Self { format: Format::Changelog(envelope), columns })
            }
            Some("csv") => Ok(Self { format: Format::Csv(Dialect::parse(spec)?), columns }),
            Some("avro" | "avro-confluent") => {
                Ok(Self { format: Format::Avro(Plans::parse(spec, spec["format"] != "avro")?), columns })
            }
            Some("protobuf" | "protobuf-confluent") => {
                Ok(Self { format: Format::Protobuf(protobuf::Messages::parse(spec)?), columns })
            }
            _ => Err(Unsupported(format!("format {}", spec["format"]))),
        }
    }

    /// Let all decoders of this spec know the schema with an id: its plan, or an object with the reason why it is `missing`,
    /// which the messages of the next batch have as their error.
    ///
    /// # Errors
    ///
    /// `Unsupported` if it is not a plan.
    pub fn learn(&self, key: Key, schema: &str) -> Result<(), Unsupported> {
        match &self.format {
            Format::Avro(plans) => plans.learn(key, schema),
            Format::JsonById(messages) => messages.plans.learn(key, schema),
            Format::Protobuf(messages) => messages.plans.learn(key, schema),
            _ => Ok(()),
        }
    }
}

fn parsed(text: &str) -> Result<Value, Unsupported> {
    serde_json::from_str(text).map_err(|error| Unsupported(format!("no JSON: {error}")))
}

/// Refuse durations, which neither CSV nor Avro has.
fn without_durations(field: &Field) -> Result<(), Unsupported> {
    match field.data_type() {
        DataType::Struct(fields) => fields.iter().try_for_each(|field| without_durations(field)),
        DataType::List(inner) | DataType::Map(inner, _) => without_durations(inner),
        type_ @ DataType::Duration(_) => Err(Unsupported(format!("column {} of the type {type_}", field.name()))),
        _ => Ok(()),
    }
}

/// Return a field of which all parts may be null, apart from the keys of maps.
fn relaxed(field: &Field) -> Field {
    let inner = |field: &Field| Arc::new(relaxed(field));
    let type_ = match field.data_type() {
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(|field| relaxed(field)).collect()),
        DataType::List(element) => DataType::List(inner(element)),
        DataType::Map(entries, sorted) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => {
                let pair = vec![pair[0].as_ref().clone(), relaxed(&pair[1])];
                let entries = entries.as_ref().clone().with_data_type(DataType::Struct(pair.into()));
                DataType::Map(Arc::new(entries), *sorted)
            }
            _ => field.data_type().clone(),
        },
        other => other.clone(),
    };
    field.clone().with_data_type(type_).with_nullable(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::PRECISION;

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
        assert!(matches!(spec.format, Format::Json(json::Options { fail_on_missing_field: true, .. })));
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
