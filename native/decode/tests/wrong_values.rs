//! Random columns and messages with values that do not fit, and with fields that are missing or repeated: each error names what is
//! wrong with the values that count, and only that.

use std::collections::BTreeSet;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use dynamic_kafka_decode::{Decoder, Spec};
use proptest::prelude::*;
use serde_json::{Value, json};

/// The paths of what does not fit, and whether something is missing.
type Wrong = (BTreeSet<String>, bool);

/// Random bytes, read as choices. Behind their end all choices are 0.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn below(&mut self, limit: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first) % limit
    }

    fn column(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 2 } else { 8 }) {
            0 | 1 => json!("integer"),
            2 | 3 => json!({"type": "array", "elementType": self.column(depth - 1)}),
            4 => json!({"type": "map", "keyType": "string", "valueType": self.column(depth - 1)}),
            _ => self.structure(depth - 1),
        }
    }

    /// Return columns, sometimes more than an error names. One name begins another one, with a point behind.
    fn structure(&mut self, depth: usize) -> Value {
        let count = if self.below(6) == 0 { 13 } else { 1 + self.below(3) };
        let name = |i: usize| if i == 1 { "f0.x".to_owned() } else { format!("f{i}") };
        let fields: Vec<Value> = (0..count).map(|i| json!({"name": name(i), "type": self.column(depth)})).collect();
        json!({"type": "struct", "fields": fields})
    }

    /// Return a value for a column, and what is wrong with it.
    fn value(&mut self, column: &Value) -> (String, Wrong) {
        match self.below(10) {
            0 => return ("null".to_owned(), Wrong::default()),
            1 | 2 => return ("\"bad\"".to_owned(), (BTreeSet::from([String::new()]), false)),
            _ => {}
        }
        match column["type"].as_str() {
            Some("struct") => self.object(column),
            Some("array") => {
                let values: Vec<_> = (0..self.below(4)).map(|_| self.value(&column["elementType"])).collect();
                let texts: Vec<_> = values.iter().map(|(text, _)| text.as_str()).collect();
                (format!("[{}]", texts.join(",")), all(values.iter().map(|(_, wrong)| wrong)))
            }
            Some("map") => {
                let entries: Vec<_> =
                    (0..self.below(4)).map(|_| (self.below(2), self.value(&column["valueType"]))).collect();
                let texts: Vec<_> = entries.iter().map(|(key, (text, _))| format!("\"k{key}\":{text}")).collect();
                let last = (0..2).filter_map(|key| entries.iter().rfind(|entry| entry.0 == key));
                (format!("{{{}}}", texts.join(",")), all(last.map(|(_, (_, wrong))| wrong)))
            }
            _ => ("1".to_owned(), Wrong::default()),
        }
    }

    fn object(&mut self, column: &Value) -> (String, Wrong) {
        let fields = column["fields"].as_array().unwrap();
        let mut written = Vec::new();
        for round in 0..2 {
            for (place, field) in fields.iter().enumerate() {
                if self.below(6) < if round == 0 { 5 } else { 2 } {
                    written.push((place, self.value(&field["type"])));
                }
            }
        }
        let name = |place: usize| fields[place]["name"].as_str().unwrap();
        let texts: Vec<_> = written.iter().map(|(place, (text, _))| format!("\"{}\":{text}", name(*place))).collect();
        let mut wrong = Wrong::default();
        for place in 0..fields.len() {
            let Some((_, (_, of_field))) = written.iter().rfind(|entry| entry.0 == place) else {
                wrong.1 = true;
                continue;
            };
            wrong.0.extend(within(name(place), of_field));
            wrong.1 |= of_field.1;
        }
        (format!("{{{}}}", texts.join(",")), wrong)
    }
}

fn all<'a>(wrongs: impl Iterator<Item = &'a Wrong>) -> Wrong {
    wrongs.fold(Wrong::default(), |(mut paths, missing), wrong| {
        paths.extend(wrong.0.iter().cloned());
        (paths, missing || wrong.1)
    })
}

fn within(name: &str, wrong: &Wrong) -> BTreeSet<String> {
    let path = |path: &String| if path.is_empty() { name.to_owned() } else { format!("{name}.{path}") };
    wrong.0.iter().map(path).collect()
}

/// Decode a message between two others, and check its error.
fn check(spec: &Value, message: &str, (misfits, missing): &Wrong) {
    let mut decoder = Decoder::new(&Spec::parse(&spec.to_string()).unwrap()).unwrap();
    for text in [message, "{", message] {
        decoder.append(Some(text.as_bytes()));
    }
    let rows = decoder.finish();
    rows.to_data().validate_full().unwrap();
    let errors = rows.column_by_name("__error").unwrap().as_string::<i32>().clone();
    for place in [0, 2] {
        let error = errors.is_valid(place).then(|| errors.value(place));
        if !misfits.is_empty() {
            let text = error.and_then(|text| text.strip_prefix("It does not fit the columns: "));
            let named: Vec<String> =
                text.unwrap_or_else(|| panic!("{error:?}")).split(", ").map(str::to_owned).collect();
            assert_eq!(named.len(), misfits.len().min(10), "{named:?} {misfits:?}");
            assert!(named.iter().all(|path| misfits.contains(path)), "{named:?} {misfits:?}");
            assert_eq!(named.iter().collect::<BTreeSet<_>>().len(), named.len(), "{named:?}");
        } else if *missing {
            assert!(error.is_some_and(|text| text.starts_with("It lacks the field '")), "{error:?}");
        } else {
            assert_eq!(error, None);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn errors_are_those_of_the_values_that_count(data in prop::collection::vec(any::<u8>(), 0..600)) {
        let mut choices = Choices(&data);
        let schema = choices.structure(4);
        let (message, (misfits, missing)) = choices.object(&schema);
        for (strict, lenient) in [(false, false), (true, false), (false, true)] {
            let options = json!({"json.fail-on-missing-field": strict, "json.ignore-parse-errors": lenient});
            let spec = json!({"format": "json", "options": options, "schema": schema});
            let misfits = if lenient { BTreeSet::new() } else { misfits.clone() };
            check(&spec, &message, &(misfits, strict && missing));
        }
    }

    #[test]
    fn errors_of_changes_are_those_of_their_rows(data in prop::collection::vec(any::<u8>(), 0..600)) {
        let mut choices = Choices(&data);
        let schema = choices.structure(3);
        let kind = ["c", "u", "d"][choices.below(3)];
        let partial = choices.below(2) == 0;
        let count = if partial { 1 + choices.below(3) } else { 1 };
        let images: Vec<(String, Wrong)> = ["old", "new"].iter().map(|image| {
            let rows: Vec<_> = (0..count).map(|_| choices.object(&schema)).collect();
            let texts: Vec<_> = rows.iter().map(|(text, _)| text.as_str()).collect();
            let wrong = all(rows.iter().map(|(_, wrong)| wrong));
            let text = if partial { format!("[{}]", texts.join(",")) } else { texts.concat() };
            (format!("\"{image}\":{text}"), (within(image, &wrong), false))
        }).collect();
        let message = format!("{{{},{},\"op\":\"{kind}\"}}", images[0].0, images[1].0);
        let spec = json!({"format": "changelog", "images": ["old", "new"], "kind": "op", "inserts": ["c"],
            "update": "u", "delete": "d", "partial": partial, "batched": partial, "metadata": [], "schema": schema});
        check(&spec, &message, &all(images.iter().map(|(_, wrong)| wrong)));
    }
}

#[test]
fn a_repeated_field_hides_nothing_of_another_one() {
    let columns = |count: usize| -> Vec<Value> {
        (0..count).map(|i| json!({"name": format!("c{i}"), "type": "integer"})).collect()
    };
    let fields = |count: usize, value: &str| -> String {
        (0..count).map(|i| format!("\"c{i}\":{value}")).collect::<Vec<_>>().join(",")
    };
    let schema = json!({"type": "struct", "fields": columns(11)});
    let json = json!({"format": "json", "schema": schema});
    let only = |path: &str| (BTreeSet::from([path.to_owned()]), false);
    check(&json, &format!("{{{},{}}}", fields(11, "\"bad\""), fields(10, "1")), &only("c10"));
    check(&json, &format!("{{{},{}}}", fields(11, "\"bad\""), fields(11, "1")), &Wrong::default());
    let inner = json!({"type": "struct", "fields": columns(10)});
    let schema = json!({"type": "struct", "fields": [{"name": "a", "type": inner}, {"name": "b", "type": "integer"}]});
    let json = json!({"format": "json", "schema": schema});
    for last in ["{}", "null"] {
        check(&json, &format!("{{\"a\":{{{}}},\"b\":\"bad\",\"a\":{last}}}", fields(10, "\"bad\"")), &only("b"));
    }
}
