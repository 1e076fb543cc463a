//! What is encoded is read back by another reader.

use std::sync::Arc;

use arrow_array::builder::{Int32Builder, ListBuilder, MapBuilder, MapFieldNames, StringBuilder};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Decimal128Array, Int64Array, StringArray, StructArray,
    TimestampMicrosecondArray,
};
use arrow_buffer::NullBuffer;
use dynamic_kafka_decode as decode;
use dynamic_kafka_encode::{Encoder, Spec};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};

type Entry = (String, Option<i32>);

/// A row: null, or its columns.
#[derive(Debug, Clone)]
struct Row {
    valid: bool,
    id: Option<i64>,
    paid: Option<bool>,
    text: Option<String>,
    bytes: Option<Vec<u8>>,
    time: Option<i64>,
    amount: Option<i128>,
    list: Option<Vec<Option<i32>>>,
    map: Option<Vec<Entry>>,
}

prop_compose! {
    fn row()(
        valid in prop::bool::weighted(0.9),
        id in option::of(any::<i64>()),
        paid in option::of(any::<bool>()),
        text in option::of(".{0,10}"),
        bytes in option::of(vec(any::<u8>(), 0..9)),
        time in option::of(any::<i64>()),
        amount in option::of(-99_999_999_i128..100_000_000),
        list in option::of(vec(option::of(any::<i32>()), 0..4)),
        map in option::of(prop::collection::btree_map("[a-c]{1,3}", option::of(any::<i32>()), 0..4)),
    ) -> Row {
        let map = map.map(|entries| entries.into_iter().collect());
        Row { valid, id, paid, text, bytes, time, amount, list, map }
    }
}

fn columns(rows: &[Row]) -> StructArray {
    let mut lists = ListBuilder::new(Int32Builder::new());
    let names = MapFieldNames { entry: "entries".into(), key: "key".into(), value: "value".into() };
    let mut maps = MapBuilder::new(Some(names), StringBuilder::new(), Int32Builder::new());
    for row in rows {
        lists.append_option(row.list.clone());
        for (key, value) in row.map.iter().flatten() {
            maps.keys().append_value(key);
            maps.values().append_option(*value);
        }
        maps.append(row.map.is_some()).unwrap();
    }
    let decimals = Decimal128Array::from_iter(rows.iter().map(|row| row.amount));
    let arrays: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.id)))),
        ("paid", Arc::new(BooleanArray::from_iter(rows.iter().map(|row| row.paid)))),
        ("text", Arc::new(StringArray::from_iter(rows.iter().map(|row| row.text.clone())))),
        ("bytes", Arc::new(BinaryArray::from_iter(rows.iter().map(|row| row.bytes.clone())))),
        ("time", Arc::new(TimestampMicrosecondArray::from_iter(rows.iter().map(|row| row.time)))),
        ("amount", Arc::new(decimals.with_precision_and_scale(8, 2).unwrap())),
        ("list", Arc::new(lists.finish())),
        ("map", Arc::new(maps.finish())),
    ];
    let (fields, arrays, _) = StructArray::try_from(arrays).unwrap().into_parts();
    let valid: NullBuffer = rows.iter().map(|row| row.valid).collect();
    StructArray::new(fields, arrays, Some(valid))
}

/// The plans by which Avro's records are written and read.
fn plans() -> (Value, Value) {
    let types = [
        ("id", json!({"type": "number"}), json!({"type": "long"})),
        ("paid", json!({"type": "boolean"}), json!({"type": "boolean"})),
        ("text", json!({"type": "bytes"}), json!({"type": "string"})),
        ("bytes", json!({"type": "bytes"}), json!({"type": "bytes"})),
        ("time", json!({"type": "number"}), json!({"type": "long", "unit_ns": 1000})),
        ("amount", json!({"type": "decimal", "precision": 8, "scale": 2}), json!({"type": "bytes", "scale": 2})),
        (
            "list",
            json!({"type": "array", "item": union(&json!({"type": "number"}))}),
            json!({"type": "array", "item": 2}),
        ),
        ("map", json!({"type": "map", "item": union(&json!({"type": "number"}))}), json!({"type": "map", "item": 2})),
    ];
    let (mut written, mut read) = (Vec::new(), Vec::new());
    let int = json!({"type": "int"});
    let mut steps = vec![json!(null), json!({"type": "null"}), json!({"type": "union", "branches": [1, 3]}), int];
    for (column, (name, one, other)) in types.into_iter().enumerate() {
        written.push(json!({"name": name, "column": column, "item": union(&one)}));
        read.push(json!({"name": name, "column": column, "step": steps.len()}));
        steps.push(json!({"type": "union", "branches": [1, steps.len() + 1]}));
        steps.push(other);
    }
    steps[0] = json!({"type": "record", "fields": read, "defaults": []});
    (json!({"type": "record", "fields": written}), json!({"steps": steps}))
}

fn union(item: &Value) -> Value {
    json!({"type": "union", "null": 0, "branch": 1, "item": item})
}

fn encoder(spec: &Value, columns: &StructArray) -> Encoder {
    Encoder::new(&Spec::new(&spec.to_string(), columns.fields()).unwrap()).unwrap()
}

proptest! {
    #[test]
    fn json_has_the_values_of_the_row(rows in vec(row(), 0..20)) {
        let spec = json!({"format": "json", "options": {"separator": " "}});
        let sent = columns(&rows);
        let encoded = encoder(&spec, &sent).encode(&sent, b"").unwrap();
        for (i, row) in rows.iter().enumerate() {
            prop_assert_eq!(encoded.messages.is_valid(i), row.valid);
            if !row.valid {
                continue;
            }
            let found: Value = serde_json::from_slice(encoded.messages.value(i)).unwrap();
            prop_assert_eq!(&found["id"], &json!(row.id));
            prop_assert_eq!(&found["paid"], &json!(row.paid));
            prop_assert_eq!(&found["text"], &json!(row.text));
            prop_assert_eq!(&found["list"], &json!(row.list));
            let map = row.map.clone().map(|entries| entries.into_iter().collect::<std::collections::BTreeMap<_, _>>());
            prop_assert_eq!(&found["map"], &json!(map));
            prop_assert_eq!(found["amount"].as_f64(), row.amount.map(|cents| cents as f64 / 100.0));
            prop_assert_eq!(found["bytes"].is_null(), row.bytes.is_none());
        }
    }

    #[test]
    fn null_fields_can_be_left_out(rows in vec(row(), 1..20)) {
        let options = json!({"separator": "T", "ignore_nulls": true, "plain_decimals": true});
        let spec = json!({"format": "json", "options": options});
        let sent = columns(&rows);
        let encoded = encoder(&spec, &sent).encode(&sent, b"").unwrap();
        for (i, row) in rows.iter().enumerate().filter(|(_, row)| row.valid) {
            let found: Value = serde_json::from_slice(encoded.messages.value(i)).unwrap();
            let found = found.as_object().unwrap();
            prop_assert_eq!(found.contains_key("id"), row.id.is_some());
            prop_assert_eq!(found.contains_key("map"), row.map.is_some());
            prop_assert!(found.values().all(|value| !value.is_null()));
        }
    }

    #[test]
    fn avro_is_decoded_to_the_same_columns(rows in vec(row(), 0..20), from in 0_usize..20) {
        let (written, read) = plans();
        let spec = json!({"format": "avro", "plan": written});
        let from = from.min(rows.len());
        let sent = columns(&rows).slice(from, rows.len() - from);
        let encoded = encoder(&spec, &sent).encode(&sent, b"prefix").unwrap();
        prop_assert_eq!(encoded.errors, vec![]);
        let spec = json!({"format": "avro", "plan": read});
        let mut decoder = decode::Decoder::new(&decode::Spec::new(&spec.to_string(), sent.fields()).unwrap()).unwrap();
        for message in &encoded.messages {
            let outcome = decoder.append(message.map(|message| message.strip_prefix(b"prefix").unwrap()));
            prop_assert_ne!(outcome, decode::Outcome::Failed);
        }
        let found = decoder.finish();
        prop_assert_eq!(found.nulls().map_or(0, NullBuffer::null_count), sent.null_count());
        for (one, other) in sent.columns().iter().zip(found.columns()) {
            for i in (0..sent.len()).filter(|i| sent.is_valid(*i)) {
                let (one, other) = (one.slice(i, 1), other.slice(i, 1));
                prop_assert_eq!(one.is_valid(0), other.is_valid(0));
                prop_assert_eq!(format!("{one:?}"), format!("{other:?}"));
            }
        }
    }
}

#[test]
fn a_row_that_does_not_fit_has_an_error() {
    let time = json!({"type": "time", "divide": 1000, "logical": "timestamp-millis"});
    let plan = json!({"type": "record", "fields": [{"name": "a", "column": 0, "item": time}]});
    let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![Some(-2000), None, Some(1)]));
    let rows = StructArray::try_from(vec![("a", times)]).unwrap();
    let encoded = encoder(&json!({"format": "avro", "plan": plan}), &rows).encode(&rows, b"").unwrap();
    let errors: Vec<_> = encoded.errors.iter().map(|(row, column, reason)| (*row, &**column, &reason[..18])).collect();
    assert_eq!(errors, [(1, "a", "is null, and its s"), (2, "a", "has more digits th")]);
    assert_eq!(encoded.messages.iter().collect::<Vec<_>>(), [Some(&[3][..]), None, None]);
}

#[test]
fn rows_with_other_columns_are_refused() {
    let number: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let known = encoder(&json!({"format": "json"}), &StructArray::try_from(vec![("a", number.clone())]).unwrap());
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    for columns in [vec![("a", text)], vec![("b", number.clone())], vec![("a", number.clone()), ("b", number)]] {
        assert!(known.encode(&StructArray::try_from(columns).unwrap(), b"").is_err());
    }
}
