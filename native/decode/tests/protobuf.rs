//! Protobuf messages to columns, by plans as Python makes them.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use dynamic_kafka_decode::Outcome::{Decoded, Failed, Null};
use dynamic_kafka_decode::{Decoder, Key, Spec};
use proptest::prelude::*;

const SCHEMA: &str = r#"{"fields":[{"name":"id","type":"long"},{"name":"s","type":"string"},
    {"name":"a","type":{"type":"array","elementType":"integer"}},
    {"name":"r","type":{"type":"array","elementType":{"type":"struct","fields":[{"name":"x","type":"string"}]}}},
    {"name":"m","type":{"type":"map","keyType":"long","valueType":"string"}},
    {"name":"t","type":"timestamp"},{"name":"e","type":"string"},{"name":"u","type":"integer"}]}"#;
/// Field 9 is not wanted, 10 and 11 are a oneof, of which only the first is wanted.
const FIELDS: &str = r#"{"number":1,"kind":"sint64","column":0,"default":"AA=="},
    {"number":2,"kind":"string","checked":true,"column":1,"name":"s"},
    {"number":3,"kind":"int32","column":2,"shape":"repeated"},
    {"number":4,"kind":"message","message":1,"column":3,"shape":"repeated"},
    {"number":5,"kind":"map","column":4,"shape":"map","default":true,
        "key":{"number":1,"kind":"int64","default":"AA=="},"value":{"number":2,"kind":"string","default":"AA=="}},
    {"number":300,"kind":"message","message":3,"as":"timestamp","column":5},
    {"number":7,"kind":"enum","closed":true,"names":[[1,"ONE"],[-1,"MINUS"]],"column":6},
    {"number":9,"kind":"message","message":2,"name":"n"},
    {"number":10,"kind":"uint32","column":7,"oneof":0},{"number":11,"kind":"string","oneof":0}"#;
const TIMESTAMP: &str = r#"{"fields":[{"number":1,"kind":"int64"},{"number":2,"kind":"int32"}]}"#;
const INNER: &str = r#"{"fields":[{"number":1,"kind":"string","column":0,"default":"AA=="}],"columns":1}"#;
/// It contains itself.
const UNWANTED: &str = r#"{"fields":[{"number":1,"kind":"string","checked":true},
    {"number":2,"kind":"message","message":2,"name":"n"}]}"#;
const BODY: &[u8] = b"\x08\x05\x12\x02ja\x1a\x02\x01\x02\x22\x03\x0a\x01x\x22\x00\x2a\x05\x08\x07\x12\x01v\
    \xe2\x12\x02\x08\x01\x38\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x4a\x04\x12\x02\x0a\x00\x50\xff\xff\xff\xff\x0f\x18\x03";

fn spec(format: &str, fields: &str) -> String {
    format!(
        r#"{{"format":"{format}","schema":{SCHEMA},
            "plan":{{"name":"M","messages":[{{"fields":[{fields}],"columns":8}},{INNER},{UNWANTED},{TIMESTAMP}]}}}}"#
    )
}

fn decoder(spec: &str) -> Decoder {
    Decoder::new(&Spec::parse(spec).unwrap()).unwrap()
}

/// Return the error of a message.
fn error_of(message: &[u8], spec: &str) -> Option<String> {
    let mut decoder = decoder(spec);
    let found = decoder.append(Some(message));
    let rows = decoder.finish();
    rows.to_data().validate_full().unwrap();
    let errors = rows.column_by_name("__error").unwrap().as_string::<i32>();
    assert_eq!(errors.is_valid(0), found == Failed);
    errors.is_valid(0).then(|| errors.value(0).to_owned())
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
fn what_is_damaged_is_an_error() {
    for message in [
        &b"\x08"[..],                                                // no value
        b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",         // no end
        b"\x00\x01",                                                 // field 0
        b"\x0f",                                                     // a wire type that does not exist
        b"\x88\x80\x80\x80\x80\x00\x01",                             // a tag of six bytes
        b"\x88\x80\x80\x80\x10\x01",                                 // a tag of more than 32 bits
        b"\x12\x80\x80\x80\x80\x80\x00",                             // a length of six bytes
        b"\x12\x02\xc3(",                                            // text that is not UTF-8
        b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",             // a length of more than all memory
        b"\x1a\x01\x80",                                             // the end within a packed number
        b"\x1a\x05\x01",                                             // the end within packed numbers
        b"\xe2\x12\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00", // the end within a message
        b"\xe2\x12\x07\x08\x80\x83\xd1\xff\xaf\x07",                 // a time after the year 9999
        b"\x4a\x05\x12\x03\x0a\x01\xff",                             // text that is not UTF-8 and not wanted
        b"\xa3\x06\xac\x06",                                         // the end of another group
        b"\xa3\x06",                                                 // a group without end
        b"\xa4\x06",                                                 // an end without group
    ] {
        assert!(error_of(message, &spec("protobuf", FIELDS)).is_some(), "{message:?}");
    }
    for message in [
        &b"\x88\x80\x00\x81\x80\x00"[..],                // longer varints than needed
        b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", // more than 64 bits
        b"\x0a\x01a",                                    // another wire type
        b"\xa0\x06\x01\xa2\x06\x01a",                    // unknown fields
        b"\xa3\x06\x08\x01\xa4\x06",                     // an unknown group
        b"\x4a\x02\x0a\x00\x4a\x02\x0a\x00",             // twice a message that is not wanted
        b"\x2a\x00",                                     // an entry without key and value
        b"\x50\x01\x5a\x00",                             // a oneof with another field
    ] {
        assert_eq!(error_of(message, &spec("protobuf", FIELDS)), None, "{message:?}");
    }
    let error = error_of(b"\x4a\x05\x12\x03\x0a\x01", &spec("protobuf", FIELDS)).unwrap();
    assert_eq!(error, "Error parsing message of type 'M': Wire format was corrupt in n");
    assert_eq!(error_of(b"\x0f", &spec("protobuf", FIELDS).replacen('{', r#"{"ignore_parse_errors":true,"#, 1)), None);
}

#[test]
fn messages_that_come_twice_are_merged() {
    let mut decoder = decoder(&spec("protobuf", FIELDS));
    for message in [
        &b"\xe2\x12\x02\x08\x01\xe2\x12\x02\x10\x01"[..],
        b"\x2a\x05\x08\x01\x12\x01a\x2a\x04\x08\x02\x12\x00\x2a\x05\x08\x01\x12\x01b",
        b"\x38\x02\x50\x01\x5a\x00\x50\x02",
        b"\x38\x01\x50\x01\x5a\x00",
    ] {
        assert_eq!(decoder.append(Some(message)), Decoded);
    }
    let rows = decoder.finish();
    rows.to_data().validate_full().unwrap();
    assert_eq!(rows.column(5).as_primitive::<TimestampMicrosecondType>().value(0), 1_000_000);
    let entries = rows.column(4).as_map().value(1);
    assert_eq!(entries.column(0).as_primitive::<Int64Type>().values(), &[1, 2]);
    assert_eq!(entries.column(1).as_string::<i32>().iter().collect::<Vec<_>>(), [Some("b"), Some("")]);
    assert!(rows.column(6).is_null(2));
    assert_eq!(rows.column(6).as_string::<i32>().value(3), "ONE");
    assert_eq!(rows.column(7).as_primitive::<Int32Type>().value(2), 2);
    assert!(rows.column(7).is_null(3));
}

#[test]
fn required_fields_have_to_be_there() {
    let many: Vec<String> =
        (3..80).map(|i| format!(r#"{{"number":{i},"kind":"sint64","name":"f{i}","required":true}}"#)).collect();
    let fields = r#"{"number":1,"kind":"sint64","column":0,"required":true,"name":"a"},
        {"number":2,"kind":"sint64","required":true,"name":"b"}"#;
    let text = spec("protobuf", fields);
    assert_eq!(error_of(b"\x08\x01\x10\x01", &text), None);
    let lacks = |names: &str| Some(format!("Message of type 'M' lacks required fields: {names}"));
    assert_eq!(error_of(b"", &text), lacks("a, b"));
    assert_eq!(error_of(b"\x08\x01\x08\x01", &text), lacks("b"));
    let text = spec("protobuf", &format!("{fields},{}", many.join(",")));
    let mut message: Vec<u8> = (1..16).flat_map(|i| [i << 3, 1]).collect();
    message.extend((16..80).flat_map(|i: u16| [(i << 3) as u8 | 0x80, (i >> 4) as u8, 1]));
    assert_eq!(error_of(&message, &text), None);
    assert_eq!(error_of(&message[..message.len() - 3], &text), lacks("f79"));
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
    let text = spec("protobuf", FIELDS);
    assert_eq!(error_of(&deep(50), &text), None);
    assert_eq!(error_of(&deep(100), &text), None);
    for levels in [101, 5000] {
        assert!(error_of(&deep(levels), &text).unwrap().ends_with(".n is nested too deeply"));
    }
}

#[test]
fn few_bytes_do_not_become_many_values() {
    let width = 1000;
    let fields: Vec<String> = (0..width).map(|i| format!(r#"{{"name":"c{i}","type":"long"}}"#)).collect();
    let plan = format!(
        r#"{{"format":"protobuf","schema":{{"fields":[{{"name":"a","type":{{"type":"array","elementType":
            {{"type":"struct","fields":[{}]}}}}}}]}},"plan":{{"messages":[
            {{"fields":[{{"number":1,"kind":"message","message":1,"column":0,"shape":"repeated","name":"a"}}],"columns":1}},
            {{"fields":[],"columns":{width}}}]}}}}"#,
        fields.join(",")
    );
    assert_eq!(error_of(&b"\x0a\x00".repeat(1000), &plan), None);
    let error = error_of(&b"\x0a\x00".repeat(10_000), &plan).unwrap();
    assert!(error.contains(": a has far more values in arrays and maps than"), "{error}");
}

#[test]
fn the_header_of_a_registry_is_skipped() {
    let text = spec("protobuf-confluent", FIELDS);
    for header in [&b"\0\0\0\0\x07\0"[..], b"\0\0\0\0\x07\x02\x00", b"\0\x7f\xff\xff\xff\x04\x02\x02"] {
        assert_eq!(error_of(&[header, BODY].concat(), &text), None);
    }
    for header in [
        &b""[..],
        b"\0",
        b"\x01\0\0\0\x07\0",
        b"\0\x80\0\0\x07\0",
        b"\0\0\0\0\x07\x01",
        b"\0\0\0\0\x07\x02",
        b"\0\0\0\0\x07\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00",
    ] {
        assert_eq!(error_of(header, &text).as_deref(), Some("it has no schema id"));
    }
    let mut decoder = decoder(&text);
    for (header, expected) in [
        (&b"\0\0\0\0\x07\0"[..], Decoded),
        (b"\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x07\0", Decoded),
        (b"\0\0\0\0\x07", Failed),
        (b"\x02\0\0\0\x07\0", Failed),
    ] {
        assert_eq!(decoder.append_with(Some(BODY), Some(header)), expected);
    }
    let rows = decoder.finish();
    let errors = rows.column_by_name("__error").unwrap().as_string::<i32>();
    assert_eq!(errors.value(2), "its header with a schema id, 0x0000000007, has no message indexes");
    assert!(errors.value(3).starts_with("its header with a schema id has the value 0x020000000700, which is neither"));
}

#[test]
fn each_message_is_read_with_the_plan_of_its_id() {
    let text = format!(r#"{{"format":"protobuf-confluent","foreign":"no id","schema":{SCHEMA}}}"#);
    let spec = Spec::parse(&text).unwrap();
    let mut decoder = Decoder::new(&spec).unwrap();
    let plan = |field: &str| format!(r#"{{"messages":[{{"fields":[{field}],"columns":8}}]}}"#);
    let [one, other] = [&b"\0\0\0\0\x07\0\x08\x05"[..], b"\0\0\0\0\x07\x02\x02\x08\x05"];
    assert_eq!(decoder.unknown_schema(Some(one), None), Some(Key::Id(7)));
    let key = Key::Header(other[..7].to_vec());
    assert_eq!(decoder.unknown_schema(Some(other), None), Some(key.clone()));
    assert_eq!(decoder.unknown_schema(Some(b"\0"), None), None);
    spec.learn(Key::Id(7), &plan(r#"{"number":1,"kind":"int64","column":0}"#)).unwrap();
    spec.learn(key, &plan(r#"{"number":1,"kind":"sint64","column":0}"#)).unwrap();
    spec.learn(Key::Id(8), r#"{"missing":"gone"}"#).unwrap();
    assert!(spec.learn(Key::Id(9), r#"{"messages":[]}"#).is_err());
    for message in [one, other, one, b"\0\0\0\0\x08\0", b"x"] {
        decoder.append(Some(message));
    }
    let rows = decoder.finish();
    assert_eq!(&rows.column(0).as_primitive::<Int64Type>().values()[..3], &[5, -3, 5]);
    let errors = rows.column_by_name("__error").unwrap().as_string::<i32>();
    assert_eq!([errors.value(3), errors.value(4)], ["gone", "no id"]);
}

#[test]
fn a_plan_that_does_not_fit_is_refused_or_is_an_error() {
    for fields in [
        r#"{"kind":"int32"}"#,
        r#"{"number":1,"kind":"int33"}"#,
        r#"{"number":1,"kind":"int32","column":8}"#,
        r#"{"number":1,"kind":"int32","default":"%"}"#,
        r#"{"number":1,"kind":"message"}"#,
        r#"{"number":1,"kind":"message","message":9}"#,
        r#"{"number":1,"kind":"message","message":1,"as":"any"}"#,
        r#"{"number":1,"kind":"enum","names":[["a",1]]}"#,
        r#"{"number":1,"kind":"int32","shape":"round"}"#,
        r#"{"number":1,"shape":"map","kind":"map","key":{"number":1,"kind":"int32"},"value":{"number":3,"kind":"int32"}}"#,
    ] {
        assert!(Spec::parse(&spec("protobuf", fields)).is_err(), "{fields}");
    }
    for fields in [
        r#"{"number":1,"kind":"string","column":0}"#,
        r#"{"number":1,"kind":"string","shape":"repeated","column":0}"#,
        r#"{"number":1,"kind":"message","message":1,"column":0,"default":true}"#,
    ] {
        let error = error_of(b"\x0a\x02\x08\x01", &spec("protobuf", fields)).unwrap();
        assert!(error.ends_with("this is a defect of pyspark-dynamic-kafka"), "{error}");
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
    #[test]
    fn any_bytes_are_harmless_for_any_plan(
        parts in prop::collection::vec((any::<u8>(), 0..6_u8, prop::collection::vec(any::<u8>(), 0..12)), 0..30),
    ) {
        // Tags of the plan's fields, with lengths that fit now and then.
        let mut message = Vec::new();
        for (number, wire_type, data) in parts {
            message.extend([(number % 16) << 3 | wire_type, data.len() as u8]);
            message.extend(data);
        }
        let mut decoder = decoder(include_str!("../../fuzz/specs/protobuf.json"));
        decoder.append(Some(&message));
        decoder.append(Some(&[&b"\x62"[..], &[message.len().min(127) as u8], &message[..message.len().min(127)]].concat()));
        decoder.finish().to_data().validate_full().unwrap();
    }
}
