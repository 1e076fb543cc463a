//! Plans for tests, of schemas of writers in Avro's JSON. A field without a name is skipped.

use serde_json::{Value, json};

/// Return the plan for a writer's record that is read as columns, in the JSON of Spark's types.
pub fn plan(writer: &Value, columns: &Value) -> Value {
    let mut steps = vec![Value::Null];
    let root = step(writer, Some(columns), &mut steps);
    steps[0] = steps[root].clone();
    json!({"steps": steps})
}

fn step(writer: &Value, column: Option<&Value>, steps: &mut Vec<Value>) -> usize {
    let inner = |name: &str| column.map(|column| &column[name]);
    let found = match writer["type"].as_str().or(writer.as_str()) {
        _ if writer.is_array() => {
            let branches: Vec<usize> =
                writer.as_array().unwrap().iter().map(|branch| step(branch, column, steps)).collect();
            json!({"type": "union", "branches": branches})
        }
        Some("array") => json!({"type": "array", "item": step(&writer["items"], inner("elementType"), steps)}),
        Some("map") => json!({"type": "map", "item": step(&writer["values"], inner("valueType"), steps)}),
        Some("record") => {
            let columns = inner("fields").and_then(Value::as_array);
            let mut left: Vec<usize> = (0..columns.map_or(0, Vec::len)).collect();
            let mut fields = Vec::new();
            for field in writer["fields"].as_array().unwrap() {
                let place = columns.and_then(|columns| columns.iter().position(|c| c["name"] == field["name"]));
                let type_ = place.and_then(|place| columns.map(|columns| &columns[place]["type"]));
                left.retain(|column| Some(*column) != place);
                fields
                    .push(json!({"name": field["name"], "column": place, "step": step(&field["type"], type_, steps)}));
            }
            steps.push(json!({"type": "null"}));
            let of_null = steps.len() - 1;
            let defaults: Vec<Value> =
                left.iter().map(|column| json!({"column": column, "step": of_null, "data": ""})).collect();
            json!({"type": "record", "fields": fields, "defaults": defaults})
        }
        Some(kind) => {
            let unit_ns = match writer["logicalType"].as_str().and_then(|logical| logical.rsplit_once('-')) {
                Some((_, "millis")) => 1_000_000,
                _ => 1000,
            };
            json!({"type": kind, "unit_ns": unit_ns, "scale": writer["scale"], "size": writer["size"],
                "symbols": writer["symbols"]})
        }
        None => panic!("{writer}"),
    };
    steps.push(found);
    steps.len() - 1
}
