//! Arrow's types for the JSON of Spark's types.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, TimeUnit};
use serde_json::Value;

use crate::columns::{PRECISION, UNUSED};
use crate::fault::Unsupported;

/// Return the fields of a struct.
pub(crate) fn fields(structure: &Value) -> Result<Fields, Unsupported> {
    let fields = structure["fields"].as_array().ok_or_else(|| unsupported(structure))?;
    let name = |f: &'_ Value| f["name"].as_str().unwrap_or_default().to_owned();
    let read = |f: &Value| {
        let mut found = field(&name(f), &f["type"], f["nullable"].as_bool())?;
        if !f["metadata"][UNUSED].is_null() {
            found.metadata_mut().insert(UNUSED.to_owned(), String::new());
        }
        Ok(found)
    };
    fields.iter().map(read).collect()
}

fn field(name: &str, type_: &Value, nullable: Option<bool>) -> Result<Field, Unsupported> {
    let mut metadata = Vec::new();
    let digits = type_.as_str().and_then(|text| text.strip_prefix("time(")).and_then(|rest| rest.strip_suffix(')'));
    if let Some(digits) = digits {
        metadata.push((PRECISION.to_owned(), digits.to_owned()));
    }
    Ok(Field::new(name, data_type(type_)?, nullable != Some(false)).with_metadata(HashMap::from_iter(metadata)))
}

/// Return the Arrow type for the JSON of a type of Spark's.
pub(crate) fn data_type(type_: &Value) -> Result<DataType, Unsupported> {
    if let Some(name) = type_.as_str() {
        return simple(name).ok_or_else(|| unsupported(type_));
    }
    match type_["type"].as_str() {
        Some("struct") => Ok(DataType::Struct(fields(type_)?)),
        Some("array") => {
            let element = field("element", &type_["elementType"], type_["containsNull"].as_bool())?;
            Ok(DataType::List(Arc::new(element)))
        }
        Some("map") => {
            let key = Field::new("key", data_type(&type_["keyType"])?, false);
            let value = field("value", &type_["valueType"], type_["valueContainsNull"].as_bool())?;
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
        _ if name.starts_with("interval day") => DataType::Duration(TimeUnit::Microsecond),
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
