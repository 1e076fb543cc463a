//! Avro messages to columns: with one writer's schema, and with several by the id in front of each message.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use dynamic_kafka_decode::Outcome::{Decoded, Left, Null};
use dynamic_kafka_decode::{Decoder, Spec};
use proptest::prelude::*;

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

fn decoder(writer: &str) -> Decoder {
    Decoder::new(&Spec::parse(&format!(r#"{{"format":"avro","schema":{SCHEMA},"writer":{writer}}}"#)).unwrap()).unwrap()
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
fn what_is_wrong_is_left() {
    let mut decoder = decoder(&writer(r#"["null","long","string"]"#));
    assert_eq!(decoder.append(Some(&message(b"\x02\x05"))), Decoded);
    let endless = [0xff; 11];
    for id in
        [&b""[..], b"\x00", b"\x02", b"\x04\x02a", b"\x06", b"\x01", b"\x02\x05\x00", &[b"\x02", &endless[..]].concat()]
    {
        assert_eq!(decoder.append(Some(&message(id))), Left, "{id:?}");
    }
    for body in [
        &b""[..],
        b"\x00\x00\xff",
        b"\x00\x00\x02\xff\x00\x00\x00\x00\x00\x05",
        b"\x00\x00\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01a",
    ] {
        assert_eq!(decoder.append(Some(body)), Left, "{body:?}");
    }
}

#[test]
fn a_schema_is_found_by_its_id() {
    let (known, recursive) =
        (writer("\"long\""), r#"{"type":"record","name":"q","fields":[{"name":"id","type":"q"}]}"#);
    let spec =
        format!(r#"{{"format":"avro-confluent","schema":{SCHEMA},"writers":{{"258":{known},"7":{recursive}}}}}"#);
    let mut decoder = Decoder::new(&Spec::parse(&spec).unwrap()).unwrap();
    let with = |header: &[u8]| [header, &message(b"\x05")].concat();
    assert_eq!(decoder.append(Some(&with(b"\0\0\0\x01\x02"))), Decoded);
    for header in [&b"\0\0\0\0\x07"[..], b"\0\0\0\0\x08", b"\x01\0\0\x01\x02", b"\0\0\0", b""] {
        assert_eq!(decoder.append(Some(&with(header))), Left);
    }
    assert_eq!(decoder.append(Some(b"\0\0")), Left);
}

#[test]
fn items_without_bytes_are_left() {
    let writer = r#"{"type":"record","name":"w","fields":[{"name":"z","type":{"type":"array","items":"null"}}]}"#;
    assert_eq!(decoder(writer).append(Some(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00")), Left);
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
                let spec = format!(r#"{{"format":"avro","schema":{schema},"writer":{writer}}}"#);
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
                    let expected = if fits { Decoded } else { Left };
                    assert_eq!(decoder.append(Some(&message)), expected, "{value} {unit}");
                }
            }
        }
    }
}
