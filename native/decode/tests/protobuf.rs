//! Protobuf messages to columns, by plans as Python makes them.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use dynamic_kafka_decode::Outcome::{Decoded, Left, Null};
use dynamic_kafka_decode::{Decoder, Spec};
use proptest::prelude::*;

const SCHEMA: &str = r#"{"fields":[{"name":"id","type":"long"},{"name":"s","type":"string"},
    {"name":"a","type":{"type":"array","elementType":"integer"}},
    {"name":"r","type":{"type":"array","elementType":{"type":"struct","fields":[{"name":"x","type":"string"}]}}},
    {"name":"m","type":{"type":"map","keyType":"long","valueType":"string"}},
    {"name":"t","type":"timestamp"},{"name":"e","type":"string"},{"name":"u","type":"integer"}]}"#;
/// Field 9 is not wanted, 10 and 11 are a oneof, of which only the first is wanted.
const FIELDS: &str = r#"{"number":1,"kind":"sint64","column":0,"default":"AA=="},{"number":2,"kind":"string","column":1},
    {"number":3,"kind":"int32","column":2,"shape":"repeated"},
    {"number":4,"kind":"message","message":1,"column":3,"shape":"repeated"},
    {"number":5,"kind":"message","message":0,"column":4,"shape":"map","default":true,
        "key":{"kind":"int64","default":"AA=="},"value":{"kind":"string","default":"AA=="}},
    {"number":300,"kind":"timestamp","column":5},
    {"number":7,"kind":"enum","closed":true,"names":[[1,"ONE"],[-1,"MINUS"]],"column":6},
    {"number":9,"kind":"message","message":2},
    {"number":10,"kind":"uint32","column":7,"bit":0},{"number":11,"kind":"string","bit":0}"#;
const INNER: &str = r#"{"fields":[{"number":1,"kind":"string","column":0,"default":"AA=="}],"columns":1}"#;
/// It contains itself.
const UNWANTED: &str = r#"{"fields":[{"number":1,"kind":"string"},{"number":2,"kind":"message","message":2}]}"#;
const BODY: &[u8] = b"\x08\x05\x12\x02ja\x1a\x02\x01\x02\x22\x03\x0a\x01x\x22\x00\x2a\x05\x08\x07\x12\x01v\
    \xe2\x12\x02\x08\x01\x38\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x4a\x04\x12\x02\x0a\x00\x50\xff\xff\xff\xff\x0f\x18\x03";

fn spec(format: &str, fields: &str) -> String {
    format!(
        r#"{{"format":"{format}","schema":{SCHEMA},
            "messages":[{{"fields":[{fields}],"columns":8}},{INNER},{UNWANTED}]}}"#
    )
}

fn decoder(spec: &str) -> Decoder {
    Decoder::new(&Spec::parse(spec).unwrap()).unwrap()
}

fn outcome_of(message: &[u8]) -> dynamic_kafka_decode::Outcome {
    let mut decoder = decoder(&spec("protobuf", FIELDS));
    let found = decoder.append(Some(message));
    decoder.finish().to_data().validate_full().unwrap();
    found
}

#[test]
fn a_message_becomes_a_row() {
    let mut decoder = decoder(&spec("protobuf", FIELDS));
    assert_eq!(decoder.append(Some(BODY)), Decoded);
    assert_eq!(decoder.append(None), Null);
    assert_eq!(decoder.append(Some(b"")), Decoded);
    let rows = decoder.finish();
    rows.to_data().validate_full().unwrap();
    assert_eq!(rows.column(0).as_primitive::<Int64Type>().value(0), -3);
    assert_eq!(rows.column(1).as_string::<i32>().value(0), "ja");
    // Packed and single elements, also with other fields between them.
    assert_eq!(rows.column(2).as_list::<i32>().value(0).as_primitive::<Int32Type>().values(), &[1, 2, 3]);
    let inner = rows.column(3).as_list::<i32>().value(0);
    assert_eq!(inner.as_struct().column(0).as_string::<i32>().iter().collect::<Vec<_>>(), [Some("x"), Some("")]);
    let entries = rows.column(4).as_map().value(0);
    assert_eq!(entries.column(0).as_primitive::<Int64Type>().values(), &[7]);
    assert_eq!(rows.column(5).as_primitive::<TimestampMicrosecondType>().value(0), 1_000_000);
    assert_eq!(rows.column(6).as_string::<i32>().value(0), "MINUS");
    assert_eq!(rows.column(7).as_primitive::<Int32Type>().value(0), -1);
    // What is missing: a default, null, and an empty map.
    assert_eq!(rows.column(0).as_primitive::<Int64Type>().value(2), 0);
    assert!([1, 2, 3, 5, 6, 7].iter().all(|&at| rows.column(at).is_null(2)));
    assert_eq!(rows.column(4).as_map().value_length(2), 0);
}

#[test]
fn of_several_values_the_last_one_counts() {
    let mut decoder = decoder(&spec("protobuf", FIELDS));
    assert_eq!(decoder.append(Some(b"\x12\x02ja\x08\x05\x12\x04nein\x08\x02")), Decoded);
    let rows = decoder.finish();
    assert_eq!(rows.column(0).as_primitive::<Int64Type>().value(0), 1);
    assert_eq!(rows.column(1).as_string::<i32>().value(0), "nein");
}

#[test]
fn what_is_wrong_or_uncertain_is_left() {
    for message in [
        &b"\x08"[..],                                                // no value
        b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",             // more than 64 bits
        b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",         // no end
        b"\x00\x01",                                                 // field 0
        b"\x0f",                                                     // a wire type that does not exist
        b"\x88\x80\x80\x80\x80\x00\x01",                             // a tag of six bytes
        b"\x88\x80\x80\x80\x10\x01",                                 // a tag of more than 32 bits
        b"\x12\x80\x80\x80\x80\x80\x00",                             // a length of six bytes
        b"\x0a\x01a",                                                // another wire type
        b"\x12\x02\xc3(",                                            // text that is not UTF-8
        b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",             // a length of more than all memory
        b"\x1a\x01\x80",                                             // the end within a packed number
        b"\x1a\x05\x01",                                             // the end within packed numbers
        b"\x2a\x04\x08\x01\x12\x00\x2a\x04\x08\x01\x12\x00",         // a key twice
        b"\x2a\x02\x18\x01",                                         // an unknown field in a map's entry
        b"\xe2\x12\x02\x08\x01\xe2\x12\x02\x10\x01",                 // messages that have to be merged
        b"\xe2\x12\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00", // the end within a message
        b"\xe2\x12\x07\x08\x80\x83\xd1\xff\xaf\x07",                 // a time after the year 9999
        b"\x38\x02",                                                 // a number that the closed enum does not have
        b"\x4a\x05\x12\x03\x0a\x01\xff",                             // text that is not UTF-8 and not wanted
        b"\x50\x01\x50\x01",                                         // a oneof twice
        b"\x50\x01\x5a\x00",                                         // a oneof with another field
        b"\xa3\x06\xa4\x06",                                         // a group
    ] {
        assert_eq!(outcome_of(message), Left, "{message:?}");
    }
    for message in [
        &b"\x88\x80\x00\x81\x80\x00"[..],    // longer varints than needed
        b"\xa0\x06\x01\xa2\x06\x01a",        // unknown fields
        b"\x4a\x02\x0a\x00\x4a\x02\x0a\x00", // twice a message that is not wanted
        b"\x2a\x00",                         // an entry without key and value
    ] {
        assert_eq!(outcome_of(message), Decoded, "{message:?}");
    }
}

#[test]
fn required_fields_have_to_be_there() {
    let fields = r#"{"number":1,"kind":"sint64","column":0,"bit":0,"required":true},
        {"number":2,"kind":"sint64","bit":63,"required":true}"#;
    let mut decoder = decoder(&spec("protobuf", fields));
    for (message, expected) in
        [(&b"\x08\x01\x10\x01"[..], Decoded), (b"\x08\x01", Left), (b"\x10\x01", Left), (b"\x08\x01\x08\x01", Left)]
    {
        assert_eq!(decoder.append(Some(message)), expected, "{message:?}");
    }
}

#[test]
fn messages_may_not_be_endlessly_deep() {
    let deep = |levels: usize| {
        let mut message = Vec::new();
        for level in 0..levels {
            let tag = if level + 1 == levels { 0x4A } else { 0x12 };
            let mut size = message.len();
            let mut header = vec![tag];
            while size > 0x7F {
                header.push(size as u8 | 0x80);
                size >>= 7;
            }
            header.push(size as u8);
            message = [header, message].concat();
        }
        message
    };
    assert_eq!(outcome_of(&deep(50)), Decoded);
    assert_eq!(outcome_of(&deep(70)), Left);
    assert_eq!(outcome_of(&deep(5000)), Left);
}

#[test]
fn few_bytes_do_not_become_many_values() {
    let width = 1000;
    let fields: Vec<String> = (0..width).map(|i| format!(r#"{{"name":"c{i}","type":"long"}}"#)).collect();
    let plan = format!(
        r#"{{"format":"protobuf","schema":{{"fields":[{{"name":"a","type":{{"type":"array","elementType":
            {{"type":"struct","fields":[{}]}}}}}}]}},"messages":[
            {{"fields":[{{"number":1,"kind":"message","message":1,"column":0,"shape":"repeated"}}],"columns":1}},
            {{"fields":[],"columns":{width}}}]}}"#,
        fields.join(",")
    );
    let mut decoder = decoder(&plan);
    assert_eq!(decoder.append(Some(b"\x0a\x00")), Decoded);
    assert_eq!(decoder.append(Some(&b"\x0a\x00".repeat(10_000))), Left);
}

#[test]
fn the_header_of_a_registry_is_skipped() {
    let mut decoder = decoder(&spec("protobuf-confluent", FIELDS));
    for header in [&b"\0\0\0\0\x07\0"[..], b"\0\0\0\0\x07\x02\x00", b"\0\x7f\xff\xff\xff\x04\x02\x02"] {
        assert_eq!(decoder.append(Some(&[header, BODY].concat())), Decoded);
    }
    for header in [&b""[..], b"\0", b"\x01\0\0\0\x07\0", b"\0\x80\0\0\x07\0", b"\0\0\0\0\x07\x01", b"\0\0\0\0\x07\x02"]
    {
        assert_eq!(decoder.append(Some(header)), Left);
    }
    assert_eq!(decoder.append(Some(b"\0\0\0\0\x07\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00")), Left);
}

#[test]
fn a_plan_that_does_not_fit_is_refused_or_leaves_all() {
    for fields in [
        r#"{"kind":"int32"}"#,
        r#"{"number":1,"kind":"int33"}"#,
        r#"{"number":1,"kind":"int32","bit":64}"#,
        r#"{"number":1,"kind":"int32","column":8}"#,
        r#"{"number":1,"kind":"int32","default":"%"}"#,
        r#"{"number":1,"kind":"message"}"#,
        r#"{"number":1,"kind":"enum","names":[["a",1]]}"#,
        r#"{"number":1,"kind":"int32","shape":"round"}"#,
    ] {
        assert!(Spec::parse(&spec("protobuf", fields)).is_err(), "{fields}");
    }
    for fields in [
        r#"{"number":1,"kind":"message","message":9,"column":0}"#,
        r#"{"number":1,"kind":"string","column":0}"#,
        r#"{"number":1,"kind":"string","shape":"repeated","column":0}"#,
        r#"{"number":1,"kind":"message","message":1,"column":0,"default":true}"#,
    ] {
        assert_eq!(decoder(&spec("protobuf", fields)).append(Some(b"\x0a\x01a")), Left, "{fields}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn damaged_messages_are_harmless(
        cuts in prop::collection::vec((0..BODY.len(), 0..4_usize, prop::collection::vec(any::<u8>(), 0..4)), 1..6),
        noise in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut decoder = decoder(&spec("protobuf", FIELDS));
        let mut damaged = BODY.to_vec();
        for (at, removed, put) in cuts {
            let at = at.min(damaged.len());
            damaged.splice(at..(at + removed).min(damaged.len()), put);
        }
        decoder.append(Some(&damaged));
        decoder.append(Some(&noise));
        prop_assert_eq!(decoder.append(Some(BODY)), Decoded);
        let rows = decoder.finish();
        rows.to_data().validate_full().unwrap();
        prop_assert_eq!(rows.column(1).as_string::<i32>().value(2), "ja");
        let elements = rows.column(2).as_list::<i32>().value(2);
        prop_assert_eq!(elements.as_primitive::<Int32Type>().values(), &[1, 2, 3]);
    }
}
