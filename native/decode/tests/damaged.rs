//! Random columns, random messages for them, and damage: nothing panics, all arrays are valid, memory is in proportion to the
//! messages, and a message is decoded the same whatever was before it, and whichever columns are used.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, ListArray, StructArray};
use dynamic_kafka_decode::Outcome::{self, Decoded, Failed, Null};
use dynamic_kafka_decode::{Decoder, Key, Spec};
use proptest::prelude::*;
use serde_json::{Value, json};

mod plans;

const SIMPLE: [&str; 13] = [
    "boolean",
    "byte",
    "short",
    "integer",
    "long",
    "float",
    "double",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "decimal(10,2)",
];

/// Random bytes, read as choices. Behind their end all choices are 0.
struct Choices<'a> {
    rest: &'a [u8],
}

impl Choices<'_> {
    /// What Connect says of some columns.
    fn meanings(&mut self, schema: &Value) -> Vec<Value> {
        const NAMES: [&str; 5] = [
            "org.apache.kafka.connect.data.Decimal",
            "org.apache.kafka.connect.data.Date",
            "io.debezium.time.MicroTime",
            "io.debezium.time.Timestamp",
            "io.debezium.time.ZonedTimestamp",
        ];
        let fields = schema["fields"].as_array().unwrap();
        let parameters = json!({"scale": "2"});
        let meaning = |field: &Value, name| json!({"field": field["name"], "name": name, "parameters": parameters});
        fields.iter().map(|field| meaning(field, NAMES[self.below(NAMES.len())])).collect()
    }

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::from(self.byte()) % limit
    }

    fn whole(&mut self) -> i64 {
        let bytes = self.below(9);
        (0..bytes).fold(0, |number, _| (number << 8) | i64::from(self.byte()))
    }

    /// Return columns as Spark's JSON has them.
    fn structure(&mut self, depth: usize) -> Value {
        let count = 1 + self.below(4);
        let field = |i: usize, c: &mut Self| json!({"name": format!("f{i}"), "type": c.column(depth), "nullable": c.below(4) > 0});
        json!({"type": "struct", "fields": (0..count).map(|i| field(i, self)).collect::<Vec<_>>()})
    }

    fn column(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 6 } else { 10 }) {
            6 | 7 => json!({"type": "array", "elementType": self.column(depth - 1), "containsNull": self.below(3) > 0}),
            8 => json!({"type": "map", "keyType": "string", "valueType": self.column(depth - 1),
                "valueContainsNull": self.below(3) > 0}),
            9 => self.structure(depth - 1),
            _ => json!(SIMPLE[self.below(SIMPLE.len())]),
        }
    }

    /// Return an Avro schema of a writer for a column, and one of its values.
    fn avro(&mut self, column: &Value, out: &mut Vec<u8>) -> Value {
        let (null_first, is_union) = (self.below(2) == 0, self.below(3) > 0);
        if is_union {
            let is_null = self.below(4) == 0;
            out.push(if is_null == null_first { 0 } else { 2 });
            let mut value = Vec::new();
            let written = self.plain_avro(column, &mut value);
            if !is_null {
                out.extend(value);
            }
            return if null_first { json!(["null", written]) } else { json!([written, "null"]) };
        }
        self.plain_avro(column, out)
    }

    fn plain_avro(&mut self, column: &Value, out: &mut Vec<u8>) -> Value {
        match column["type"].as_str().or(column.as_str()).unwrap_or_default() {
            "struct" => {
                let mut fields: Vec<Value> = Vec::new();
                for field in column["fields"].as_array().unwrap() {
                    if self.below(8) == 0 {
                        fields.push(json!({"type": self.avro(&json!("string"), out)}));
                    }
                    fields.push(json!({"name": field["name"], "type": self.avro(&field["type"], out)}));
                }
                json!({"type": "record", "fields": fields})
            }
            // Items share a schema, so there is one item at most.
            "array" => {
                let mut item = Vec::new();
                let items = self.avro(&column["elementType"], &mut item);
                self.block(&item, out);
                json!({"type": "array", "items": items})
            }
            "map" => {
                let mut entry = vec![2, b'k'];
                let values = self.avro(&column["valueType"], &mut entry);
                self.block(&entry, out);
                json!({"type": "map", "values": values})
            }
            "boolean" => {
                out.push(self.byte() & 1);
                json!("boolean")
            }
            kind @ ("byte" | "short" | "integer" | "date") => {
                let bits = if kind == "byte" { 7 } else { 15 };
                long(self.whole() % (1 << bits), out);
                json!("int")
            }
            kind @ ("long" | "timestamp" | "timestamp_ntz") => {
                long(self.whole(), out);
                let logical = ["timestamp-millis", "timestamp-micros", "other"][self.below(3)];
                if kind == "long" { json!("long") } else { json!({"type": "long", "logicalType": logical}) }
            }
            "float" => {
                out.extend((self.whole() as f32).to_le_bytes());
                json!("float")
            }
            "double" => {
                out.extend((self.whole() as f64).to_le_bytes());
                json!("double")
            }
            "string" if self.below(4) == 0 => {
                long(self.below(2) as i64, out);
                json!({"type": "enum", "symbols": ["A", if self.below(2) == 0 { json!("B") } else { Value::Null }]})
            }
            kind => {
                let bytes =
                    if kind == "string" { "ä".repeat(self.below(5)).into_bytes() } else { vec![1; self.below(5)] };
                long(bytes.len() as i64, out);
                out.extend(bytes);
                match kind {
                    "string" => json!("string"),
                    "binary" => json!("bytes"),
                    _ => json!({"type": "bytes", "logicalType": "decimal", "scale": 2}),
                }
            }
        }
    }

    /// Write the items of an array or a map. Two of them are the same, so a map has a key twice.
    fn block(&mut self, item: &[u8], out: &mut Vec<u8>) {
        let count = if item.is_empty() { 0 } else { self.below(3) };
        if count > 0 {
            out.push(2 * count as u8);
            out.extend(item.repeat(count));
        }
        out.push(0);
    }

    /// Return a JSON value for a column: mostly one that fits.
    fn json(&mut self, column: &Value) -> Value {
        if self.below(8) == 0 {
            return [json!(null), json!("x"), json!(1.5), json!([]), json!({"f0": {}})][self.below(5)].clone();
        }
        match column["type"].as_str().or(column.as_str()).unwrap_or_default() {
            "struct" => {
                let field = |f: &Value, c: &mut Self| (f["name"].as_str().unwrap().to_owned(), c.json(&f["type"]));
                Value::Object(column["fields"].as_array().unwrap().iter().map(|f| field(f, self)).collect())
            }
            "array" => (0..self.below(4)).map(|_| self.json(&column["elementType"])).collect(),
            "map" => {
                let [k, l] = [(), ()].map(|()| self.json(&column["valueType"]));
                json!({"k": k, "l": l})
            }
            "boolean" => json!(self.byte() > 127),
            "float" | "double" | "decimal(10,2)" => json!(self.whole() as f64 / 100.0),
            "string" => json!("ä\"\\\n".repeat(self.below(5))),
            "binary" => json!("YWJj"),
            "date" => json!("2020-02-29"),
            "timestamp" => json!("2020-02-29 12:30:45.123Z"),
            "timestamp_ntz" => json!("2020-02-29 12:30:45.123"),
            _ => json!(self.whole() % 128),
        }
    }

    /// Return JSON with a name twice, maybe, of a map or of a row.
    fn repeat(&mut self, text: String) -> String {
        match self.below(4) {
            0 => text.replace(r#""l":"#, r#""k":"#),
            1 => text.replace(r#""f1":"#, r#""f0":"#),
            _ => text,
        }
    }

    /// Return a line for columns: mostly with values that fit.
    fn line(&mut self, columns: &Value) -> String {
        let texts = columns["fields"].as_array().unwrap().iter().map(|field| match self.json(&field["type"]) {
            Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(";"),
            Value::Object(fields) => fields.values().map(text).collect::<Vec<_>>().join(";"),
            value => text(&value),
        });
        texts.collect::<Vec<_>>().join(",")
    }

    fn damage(&mut self, message: &[u8]) -> Vec<u8> {
        let mut damaged = message.to_vec();
        for _ in 0..1 + self.below(3) {
            let at = (self.below(256) << 8 | self.below(256)) % (damaged.len() + 1);
            match self.below(5) {
                0 => damaged.truncate(at),
                1 if at < damaged.len() => damaged[at] ^= 1 << self.below(8),
                2 if at < damaged.len() => damaged[at] = [0, 1, 0x7F, 0x80, 0xFF][self.below(5)],
                3 => damaged.splice(at..at, [0xFF; 9]).for_each(drop),
                _ => damaged.insert(at, self.byte()),
            }
        }
        damaged
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), |text| format!("{text:?}"))
}

fn long(value: i64, out: &mut Vec<u8>) {
    let mut left = ((value << 1) ^ (value >> 63)) as u64;
    while left > 0x7F {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

/// Decode messages; return what became of the last one, and its row.
fn last(spec: &Spec, messages: &[&[u8]]) -> (Outcome, StructArray) {
    let mut decoder = Decoder::new(spec).unwrap();
    let mut outcome = Null;
    for message in messages {
        outcome = decoder.append(Some(message));
    }
    let bytes: usize = messages.iter().map(|message| message.len()).sum();
    // A null of a byte may be one of a struct of three levels, with four columns in each.
    assert!(decoder.size_bytes() <= 1024 * bytes + 64 * 1024, "{} for {bytes}", decoder.size_bytes());
    let rows = decoder.finish();
    rows.to_data().validate_full().unwrap();
    assert_eq!(rows.len(), messages.len());
    assert_eq!(rows.is_valid(rows.len() - 1), matches!(outcome, Decoded | Failed));
    (outcome, rows.slice(rows.len() - 1, 1))
}

/// Return a schema of which some columns are not used.
fn with_unused(schema: &Value, choices: &mut Choices<'_>) -> Value {
    let mut found = schema.clone();
    for field in found["fields"].as_array_mut().unwrap() {
        if choices.below(2) == 0 {
            field["metadata"] = json!({"unused": true});
        }
    }
    found
}

/// Return an array with the fields of another type, which has fewer. In changelogs they are further inside.
fn projected(array: &ArrayRef, like: &ArrayRef) -> ArrayRef {
    if array.data_type() == like.data_type() {
        return array.clone();
    }
    let mut data = array.to_data().into_builder().data_type(like.data_type().clone());
    if let (Some(array), Some(like)) = (array.as_struct_opt(), like.as_struct_opt()) {
        let columns = like.column_names().into_iter().zip(like.columns());
        let columns = columns.map(|(name, like)| projected(array.column_by_name(name).unwrap(), like).to_data());
        data = data.child_data(columns.collect());
    } else {
        let (lists, like): (&ListArray, &ListArray) = (array.as_list(), like.as_list());
        data = data.child_data(vec![projected(lists.values(), like.values()).to_data()]);
    }
    arrow_array::make_array(data.build().unwrap())
}

fn check(spec: impl Fn(&Value) -> Spec, schema: &Value, message: &[u8], choices: &mut Choices<'_>) -> Outcome {
    let (one, other) = (choices.damage(message), choices.damage(message));
    let (few, all) = (spec(&with_unused(schema, choices)), spec(schema));
    let alone = last(&all, &[message]);
    assert_eq!(last(&all, &[&one, message]), alone);
    assert_eq!(last(&all, &[message, &other, &one, message]), alone);
    for messages in [&[message, &one, &other, message, &other][..], &[message, choices.rest]] {
        let (found, expected) = (last(&few, messages), last(&all, messages));
        assert_eq!(found.0, expected.0);
        let found: ArrayRef = std::sync::Arc::new(found.1);
        let expected: ArrayRef = std::sync::Arc::new(expected.1);
        assert_eq!(&found, &projected(&expected, &found));
    }
    alone.0
}

fn parsed(spec: &Value) -> Spec {
    Spec::parse(&spec.to_string()).unwrap()
}

fn avro(data: &[u8]) -> Outcome {
    let mut choices = Choices { rest: data };
    let schema = choices.structure(3);
    let mut message = Vec::new();
    let writer = choices.plain_avro(&schema, &mut message);
    let plan = plans::plan(&writer, &schema);
    if choices.below(2) == 0 {
        let spec = |schema: &Value| parsed(&json!({"format": "avro", "schema": schema, "plan": plan}));
        return check(spec, &schema, &message, &mut choices);
    }
    let spec = |schema: &Value| {
        let spec = parsed(&json!({"format": "avro-confluent", "schema": schema}));
        spec.learn(Key::Id(7), &plan.to_string()).unwrap();
        spec
    };
    check(spec, &schema, &[&[0, 0, 0, 0, 7], &*message].concat(), &mut choices)
}

fn json(data: &[u8]) -> Outcome {
    let mut choices = Choices { rest: data };
    let schema = choices.structure(3);
    let message = choices.json(&schema).to_string();
    let message = choices.repeat(message);
    let options = json!({"json.fail-on-missing-field": choices.below(2) == 0,
        "json.ignore-parse-errors": choices.below(4) == 0});
    if choices.below(2) == 0 {
        let spec = |schema: &Value| parsed(&json!({"format": "json", "options": options, "schema": schema}));
        return check(spec, &schema, message.as_bytes(), &mut choices);
    }
    let plan = json!({"fields": choices.meanings(&schema)});
    let spec = |schema: &Value| {
        parsed(&json!({"format": "json-schema-confluent", "options": options, "schema": schema, "plan": plan}))
    };
    check(spec, &schema, &[&[0, 0, 0, 0, 7], message.as_bytes()].concat(), &mut choices)
}

fn changelog(data: &[u8]) -> Outcome {
    let mut choices = Choices { rest: data };
    let schema = choices.structure(2);
    let (old, new) = (choices.json(&schema), choices.json(&schema));
    let kind = ["c", "u", "d"][choices.below(3)];
    let (is_partial, is_lenient) = (choices.below(2) == 0, choices.below(4) == 0);
    let message = if is_partial {
        json!({"old": [old], "new": [new], "op": kind})
    } else {
        json!({"old": old, "new": new, "op": kind})
    };
    let message = choices.repeat(message.to_string());
    let spec = |schema: &Value| {
        parsed(&json!({"format": "changelog", "images": ["old", "new"], "kind": "op", "inserts": ["c"], "update": "u",
            "delete": "d", "partial": is_partial, "batched": is_partial, "ignore_parse_errors": is_lenient, "metadata": [],
            "schema": schema}))
    };
    check(spec, &schema, message.as_bytes(), &mut choices)
}

fn csv(data: &[u8]) -> Outcome {
    let mut choices = Choices { rest: data };
    let schema = choices.structure(1);
    let line = choices.line(&schema);
    let is_lenient = choices.below(4) == 0;
    let spec = |schema: &Value| {
        parsed(&json!({"format": "csv", "delimiter": ",", "quote": "\"", "element_delimiter": ";", "escape": "\\",
            "null": "null", "ignore_parse_errors": is_lenient, "schema": schema}))
    };
    check(spec, &schema, line.as_bytes(), &mut choices)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_avro_is_harmless(data in prop::collection::vec(any::<u8>(), 0..400)) {
        avro(&data);
    }

    #[test]
    fn damaged_json_is_harmless(data in prop::collection::vec(any::<u8>(), 0..400)) {
        json(&data);
    }

    #[test]
    fn damaged_changes_are_harmless(data in prop::collection::vec(any::<u8>(), 0..400)) {
        changelog(&data);
    }

    #[test]
    fn damaged_lines_are_harmless(data in prop::collection::vec(any::<u8>(), 0..400)) {
        csv(&data);
    }
}

#[test]
fn many_of_these_messages_are_decoded() {
    let decoded = |decode: fn(&[u8]) -> Outcome| {
        let data =
            |seed: u64| (0..400_u64).map(move |i| ((seed * 400 + i).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8);
        (0..500).filter(|seed| decode(&data(*seed).collect::<Vec<_>>()) == Decoded).count()
    };
    for decode in [avro, json, changelog, csv] {
        assert!(decoded(decode) > 100, "{}", decoded(decode));
    }
}
