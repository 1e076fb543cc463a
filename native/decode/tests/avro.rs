//! Avro messages to columns: with one writer's schema, and with several by the id in front of each message.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use dynamic_kafka_decode::Outcome::{Decoded, Failed, Null};
use dynamic_kafka_decode::{Decoder, Key, Spec};
use proptest::prelude::*;
use serde_json::Value;

mod plans;

const SCHEMA: &str = r#"{"fields":[{"name":"id","type":"long","nullable":false},{"name":"s","type":"string"},
    {"name":"d","type":"double"},{"name":"a","type":{"type":"array","elementType":
    {"type":"struct","fields":[{"name":"x","type":"string"},{"name":"y","type":"long"}]}}}]}"#;
const FIELDS: &str = r#"{"name":"more","type":["null","string"]},{"name":"s","type":["string","null"]},
    {"name":"d","type":"float"},{"name":"a","type":{"type":"array","items":
    {"type":"record","name":"r","fields":[{"name":"x","type":"string"},{"name":"y","type":["null","long"]}]}}}"#;
const BODY: &[u8] = b"\x02\x04no\x00\x04ja\x00\x00\xc0\x3f\x02\x02x\x02\x06\x01\x06\x02y\x00\x00";

fn writer(id: &str) -> String {
    format!(r#"{{"type":"record","name":"w","fields":[{FIELDS},{{"name":"id","type":{id}}}]}}"#)
}

fn plan_of(writer: &str, schema: &str) -> Value {
    plans::plan(&serde_json::from_str(writer).unwrap(), &serde_json::from_str(schema).unwrap())
}

fn decoder(writer: &str) -> Decoder {
    let plan = plan_of(writer, SCHEMA);
    Decoder::new(&Spec::parse(&format!(r#"{{"format":"avro","schema":{SCHEMA},"plan":{plan}}}"#)).unwrap()).unwrap()
}

/// Return the error of a message.
fn error(decoder: &mut Decoder, message: &[u8]) -> String {
    assert_eq!(decoder.append(Some(message)), Failed, "{message:?}");
    let rows = decoder.finish();
    rows.to_data().validate_full().unwrap();
    assert!(rows.is_valid(0));
    let (error, columns) = rows.columns().split_last().unwrap();
    assert!(columns.iter().all(|column| column.is_null(0)));
    error.as_string::<i32>().value(0).to_owned()
}

fn message(id: &[u8]) -> Vec<u8> {
    [BODY, id].concat()
}

#[test]
fn a_message_becomes_a_row() {
    let mut decoder = decoder(&writer("\"int\""));
    assert_eq!(decoder.append(Some(&message(b"\x05"))), Decoded);
    assert_eq!(decoder.append(None), Null);
    let rows = decoder.finish();
    rows.to_data().validate_full().unwrap();
    assert_eq!(rows.column(0).as_primitive::<Int64Type>().value(0), -3);
    assert_eq!(rows.column(1).as_string::<i32>().value(0), "ja");
    assert!((rows.column(2).as_primitive::<Float64Type>().value(0) - 1.5).abs() < 1e-9);
    let items = rows.column(3).as_list::<i32>().value(0);
    assert_eq!(items.as_struct().column(0).as_string::<i32>().iter().collect::<Vec<_>>(), [Some("x"), Some("y")]);
    assert!(items.as_struct().column(1).is_null(1));
}

#[test]
fn what_is_wrong_has_its_place_and_reason() {
    let mut decoder = decoder(&writer(r#"["null","long","string"]"#));
    assert_eq!(decoder.append(Some(&message(b"\x02\x05"))), Decoded);
    decoder.finish();
    let endless = [b"\x02", &[0xff; 11][..]].concat();
    for (id, expected) in [
        (&b""[..], "it ends within id"),
        (b"\x02", "it ends within id"),
        (b"\x06", "id has a number that is not a branch of its union, or is nested too deeply"),
        (b"\x01", "id has a number that is not a branch of its union, or is nested too deeply"),
        (b"\x02\x05\x00", "bytes are left over behind the record"),
        (&endless, "id has a number of more than 10 bytes"),
    ] {
        assert_eq!(error(&mut decoder, &message(id)), expected);
    }
    for (body, expected) in [
        (&b""[..], "it ends within more"),
        (b"\x00\x00\x02\xff", "s is not a text in UTF-8"),
        (b"\x00\x02\x00\x00\x00", "it ends within d"),
        (b"\x00\x00\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01a", "it ends within s"),
        (b"\x00\x02\0\0\0\0\x10\0", "a claims more items than the message has bytes left"),
        (b"\x00\x02\0\0\0\0\x02\x02", "it ends within a.x"),
    ] {
        assert_eq!(error(&mut decoder, body), expected, "{body:?}");
    }
    assert_eq!(decoder.append(Some(&message(b"\x02\x05"))), Decoded);
}

#[test]
fn a_schema_is_found_by_its_id() {
    let spec = format!(r#"{{"format":"avro-confluent","schema":{SCHEMA},"short":"short","foreign":"foreign"}}"#);
    let spec = Spec::parse(&spec).unwrap();
    spec.learn(Key::Id(258), &plan_of(&writer("\"long\""), SCHEMA).to_string()).unwrap();
    spec.learn(Key::Id(7), r#"{"steps":[{"type":"unreadable","why":"not Avro"}]}"#).unwrap();
    let guid = [&[1][..], &[9; 16]].concat();
    spec.learn(Key::Header(guid.clone()), &plan_of(&writer("\"int\""), SCHEMA).to_string()).unwrap();
    assert!(spec.learn(Key::Id(1), "{}").is_err());
    let mut decoder = Decoder::new(&spec).unwrap();
    let with = |header: &[u8]| [header, &message(b"\x05")].concat();
    assert_eq!(decoder.append(Some(&with(b"\0\0\0\x01\x02"))), Decoded);
    assert_eq!(decoder.append_with(Some(&message(b"\x05")), Some(b"\0\0\0\x01\x02, ignored")), Decoded);
    assert_eq!(decoder.append_with(Some(&message(b"\x05")), Some(&guid)), Decoded);
    decoder.finish();
    for (header, expected) in [
        (&b"\0\0\0\0\x07"[..], "not Avro"),
        (b"\0\0\0\0\x08", "its schema was not looked up"),
        (b"\x01\0\0\x01\x02", "foreign"),
    ] {
        assert_eq!(error(&mut decoder, &with(header)), expected);
    }
    for short in [&b"\0\0\0\0"[..], b"\x01", b""] {
        assert_eq!(error(&mut decoder, short), "short");
    }
    assert_eq!(decoder.unknown_schema(Some(&with(b"\0\0\0\x01\x02")), None), None);
    assert_eq!(decoder.unknown_schema(None, Some(b"odd")), None);
    for (odd, shown) in [(&b"odd"[..], "0x6F6464"), (b"\0\xff\0\0\0", "0x00FF000000"), (b"", "0x")] {
        assert_eq!(decoder.unknown_schema(Some(b""), Some(odd)), None, "the registry is not asked");
        assert_eq!(decoder.append_with(Some(b""), Some(odd)), Failed);
        let rows = decoder.finish();
        let error = rows.columns().last().unwrap().as_string::<i32>();
        assert!(error.value(0).starts_with(&format!("its header with a schema id has the value {shown}, ")));
    }
    let other = [&[1][..], &[8; 17]].concat();
    assert_eq!(decoder.unknown_schema(Some(b""), Some(&other)), Some(Key::Header(other[..17].to_vec())));
    assert_eq!(decoder.unknown_schema(Some(&with(b"\0\0\0\0\x08")), None), Some(Key::Id(8)));
    spec.learn(Key::Id(8), r#"{"missing":"gone"}"#).unwrap();
    assert_eq!(error(&mut decoder, &with(b"\0\0\0\0\x08")), "gone");
    assert_eq!(error(&mut decoder, &with(b"\0\0\0\0\x08")), "its schema was not looked up");
}

#[test]
fn items_without_bytes_are_an_error() {
    let writer = r#"{"type":"record","name":"w","fields":[{"name":"z","type":{"type":"array","items":"null"}}]}"#;
    let mut decoder = decoder(writer);
    let many = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00";
    assert_eq!(error(&mut decoder, many), "z claims more items than the message has bytes left");
    assert_eq!(error(&mut decoder, b"\x02\x00"), "z has items that take no bytes");
}

#[test]
fn a_message_is_only_so_deep() {
    let decoder = |steps: &str| {
        let spec = r#"{"format":"avro","schema":{"fields":[{"name":"a","type":"long"}]},"plan":{"steps":["#.to_owned();
        let root =
            r#"{"type":"record","fields":[{"name":"l","step":2},{"name":"a","column":0,"step":1}],"defaults":[]}"#;
        let spec = format!(r#"{spec}{root},{{"type":"long"}},{steps}]}}}}"#);
        Decoder::new(&Spec::parse(&spec).unwrap()).unwrap()
    };
    let list = r#"{"type":"record","fields":[{"name":"next","step":3}],"defaults":[]},
        {"type":"union","branches":[4,2]},{"type":"null"}"#;
    let mut decoder_of_lists = decoder(list);
    let chain = |length: usize| [&vec![2; length][..], &[0, 2]].concat();
    assert_eq!(decoder_of_lists.append(Some(&chain(199))), Decoded);
    decoder_of_lists.finish();
    let found = error(&mut decoder_of_lists, &chain(100_000));
    assert!(found.ends_with("is not a branch of its union, or is nested too deeply"), "{found}");
    // Python makes no such plan: a record that contains itself.
    let endless = r#"{"type":"record","fields":[{"name":"next","step":2}],"defaults":[]}"#;
    let found = error(&mut decoder(endless), &[0; 10]);
    assert_eq!(found, format!("l{}... is nested too deeply", ".next".repeat(19)));
    let arrays = r#"{"type":"array","item":2}"#;
    assert_eq!(error(&mut decoder(arrays), &[2; 100_000]), "l is nested too deeply");
}

#[test]
fn of_entries_with_one_key_the_last_is_kept() {
    let columns = r#"{"fields":[{"name":"m","type":{"type":"map","keyType":"string","valueType":
        {"type":"array","elementType":"long"}}}]}"#;
    let writer = r#"{"type":"record","name":"w","fields":[{"name":"m","type":{"type":"map","values":
        {"type":"array","items":"long"}}}]}"#;
    let spec = format!(r#"{{"format":"avro","schema":{columns},"plan":{}}}"#, plan_of(writer, columns));
    let mut decoder = Decoder::new(&Spec::parse(&spec).unwrap()).unwrap();
    assert_eq!(decoder.append(Some(b"\x04\x02a\x02\x02\0\x02b\x02\x04\0\x02\x02a\x04\x06\x08\0\0")), Decoded);
    assert_eq!(decoder.append(Some(b"\x02\x02a\x02\x02\0\0")), Decoded);
    let rows = decoder.finish();
    rows.to_data().validate_full().unwrap();
    let maps = rows.column(0).as_map();
    assert_eq!(maps.value_offsets(), [0, 2, 3]);
    assert_eq!(maps.keys().as_string::<i32>().iter().collect::<Vec<_>>(), [Some("b"), Some("a"), Some("a")]);
    assert_eq!(maps.values().as_list::<i32>().values().as_primitive::<Int64Type>().values(), &[2, 3, 4, 1]);
}

#[test]
fn maps_within_maps_with_one_key_twice_are_read_in_time() {
    const LEVELS: usize = 40; // 2^40 steps, if each level read its values twice
    let (mut column, mut schema) = (r#""long""#.to_owned(), r#""long""#.to_owned());
    let mut maps = b"\x04\x02a\x02\x02a\x04\0".to_vec();
    for level in 0..LEVELS {
        column = format!(r#"{{"type":"map","keyType":"string","valueType":{column}}}"#);
        schema = format!(r#"{{"type":"map","values":{schema}}}"#);
        if level > 0 {
            maps = [b"\x04\x02a\0\x02a", &maps[..], b"\0"].concat();
        }
    }
    let columns = format!(r#"{{"fields":[{{"name":"m","type":{column}}},{{"name":"n","type":{column}}}]}}"#);
    let fields = format!(r#"{{"name":"m","type":{schema}}},{{"name":"n","type":{schema}}}"#);
    let writer = format!(r#"{{"type":"record","name":"w","fields":[{fields}]}}"#);
    let spec = format!(r#"{{"format":"avro","schema":{columns},"plan":{}}}"#, plan_of(&writer, &columns));
    let mut decoder = Decoder::new(&Spec::parse(&spec).unwrap()).unwrap();
    assert_eq!(decoder.append(Some(&[&maps[..], &maps].concat())), Decoded);
    assert_eq!(decoder.append(Some(&[&maps[..], &maps[..maps.len() - 1]].concat())), Failed);
    assert_eq!(decoder.append(Some(b"\0\x02\x02b\0\0")), Decoded);
    let rows = decoder.finish();
    rows.to_data().validate_full().unwrap();
    for column in &rows.columns()[..2] {
        let mut found = column.slice(0, 1);
        for _ in 0..LEVELS {
            assert_eq!(found.as_map().value_length(0), 1);
            assert_eq!(found.as_map().value(0).column(0).as_string::<i32>().value(0), "a");
            let values = found.as_map().value(0).column(1).clone();
            found = values;
        }
        assert_eq!(found.as_primitive::<Int64Type>().values(), &[2]);
    }
    assert_eq!(rows.column(1).as_map().value_length(2), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_messages_are_harmless(
        cuts in prop::collection::vec((0..BODY.len(), 0..4_usize, prop::collection::vec(any::<u8>(), 0..4)), 1..6),
        noise in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut decoder = decoder(&writer("\"long\""));
        let mut damaged = message(b"\x05");
        for (at, removed, put) in cuts {
            let at = at.min(damaged.len());
            damaged.splice(at..(at + removed).min(damaged.len()), put);
        }
        decoder.append(Some(&damaged));
        decoder.append(Some(&noise));
        prop_assert_eq!(decoder.append(Some(&message(b"\x05"))), Decoded);
        let rows = decoder.finish();
        rows.to_data().validate_full().unwrap();
        prop_assert_eq!(rows.column(1).as_string::<i32>().value(2), "ja");
    }
}

#[test]
fn extreme_times_are_those_of_spark() {
    for unit in ["millis", "micros"] {
        for logical in ["timestamp", "local-timestamp"] {
            let writer = format!(
                r#"{{"type":"record","name":"w","fields":[{{"name":"t","type":{{"type":"long","logicalType":"{logical}-{unit}"}}}}]}}"#
            );
            for column in ["timestamp", "timestamp_ntz"] {
                let schema = format!(r#"{{"fields":[{{"name":"t","type":"{column}"}}]}}"#);
                let plan = plan_of(&writer, &schema);
                let spec = format!(r#"{{"format":"avro","schema":{schema},"plan":{plan}}}"#);
                let mut decoder = Decoder::new(&Spec::parse(&spec).unwrap()).unwrap();
                let factor = if unit == "millis" { 1000 } else { 1 };
                for value in
                    [i64::MIN, i64::MIN + 1, i64::MIN / 1000 - 1, i64::MIN / 1000, 0, i64::MAX / 1000, i64::MAX]
                {
                    let mut left = ((value << 1) ^ (value >> 63)) as u64;
                    let mut message = Vec::new();
                    while left > 0x7F {
                        message.push(left as u8 | 0x80);
                        left >>= 7;
                    }
                    message.push(left as u8);
                    let fits = value.checked_mul(factor).is_some_and(|micros| micros > i64::MIN);
                    let expected = if fits { Decoded } else { Failed };
                    assert_eq!(decoder.append(Some(&message)), expected, "{value} {unit}");
                }
            }
        }
    }
}
