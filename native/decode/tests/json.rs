//! JSON messages to columns: what is certain, and that nothing of another message is left behind.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, StructArray};
use arrow_schema::{DataType, Field, Fields, TimeUnit};
use dynamic_kafka_decode::Outcome::{self, Decoded, Left, Null};
use dynamic_kafka_decode::{Decoder, Spec, json};
use proptest::prelude::*;

fn field(name: &str, kind: DataType) -> Field {
    Field::new(name, kind, true)
}

fn list(element: DataType) -> DataType {
    DataType::List(Arc::new(field("element", element)))
}

fn map(value: DataType) -> DataType {
    let entries = vec![Field::new("key", DataType::Utf8, false), field("value", value)];
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries.into()), false)), false)
}

fn structure(fields: Vec<Field>) -> DataType {
    DataType::Struct(fields.into())
}

fn decoder(fields: Vec<Field>) -> Decoder {
    Decoder::new(&Spec::json(&fields.into(), json::Options::default())).unwrap()
}

fn outcome(kind: DataType, value: &str) -> Outcome {
    decoder(vec![field("a", kind)]).append(Some(format!("{{\"a\":{value}}}").as_bytes()))
}

fn all_types() -> Fields {
    let time = field("time", DataType::Time64(TimeUnit::Nanosecond));
    vec![
        field("boolean", DataType::Boolean),
        field("tinyint", DataType::Int8),
        field("smallint", DataType::Int16),
        field("int", DataType::Int32),
        field("bigint", DataType::Int64),
        field("float", DataType::Float32),
        field("double", DataType::Float64),
        field("decimal", DataType::Decimal128(10, 2)),
        field("string", DataType::Utf8),
        field("binary", DataType::Binary),
        field("date", DataType::Date32),
        time.with_metadata([("precision".to_owned(), "3".to_owned())].into()),
        field("timestamp", DataType::Timestamp(TimeUnit::Microsecond, None)),
        field("instant", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        field("array", list(list(DataType::Int32))),
        field("map", map(structure(vec![field("x", DataType::Int32), field("y", map(DataType::Utf8))]))),
        field(
            "row",
            structure(vec![field("x", DataType::Utf8), field("y", structure(vec![field("z", DataType::Boolean)]))]),
        ),
    ]
    .into()
}

const WHOLE: &str = r#"{"boolean":true,"tinyint":-128,"smallint":32767,"int":-2147483648,"bigint":9223372036854775807,
    "float":0.1,"double":-1.5e300,"decimal":12345678.90,"string":"a\"\u00e4\ud83d\ude00","binary":"YWJj",
    "date":"2020-02-29","time":"23:59:59.999","timestamp":"2020-12-31T23:59:59.999999999","instant":"1969-12-31 23:59:59Z",
    "array":[[1,null],[],null],"map":{"k":{"x":1,"y":{"l":"m"}},"n":null},"row":{"x":"b","y":{"z":false}},"more":[{"a":1.0E+2}]}"#;

#[test]
fn a_message_with_all_types_becomes_a_row() {
    let mut decoder = Decoder::new(&Spec::json(&all_types(), json::Options { fail_on_missing_field: true })).unwrap();
    assert_eq!(decoder.append(Some(WHOLE.as_bytes())), Decoded);
    let rows = decoder.finish();
    rows.to_data().validate_full().unwrap();
    let row = |name: &str| rows.column_by_name(name).unwrap().clone();
    let (error, columns) = rows.columns().split_last().unwrap();
    assert!(error.is_null(0) && columns.iter().all(|column| column.is_valid(0)));
    assert_eq!(row("string").as_string::<i32>().value(0), "a\"ä😀");
    assert_eq!(row("binary").as_binary::<i32>().value(0), b"abc");
    assert_eq!(row("bigint").as_primitive::<Int64Type>().value(0), i64::MAX);
    assert_eq!(row("decimal").as_primitive::<Decimal128Type>().value(0), 1_234_567_890);
    assert_eq!(row("array").as_list::<i32>().value(0).len(), 3);
    assert_eq!(row("map").as_map().value(0).column(0).as_string::<i32>().value(1), "n");
}

#[test]
fn null_and_empty_messages_have_no_row() {
    let mut decoder = decoder(vec![field("a", DataType::Int32)]);
    assert_eq!([None, Some(&b""[..]), Some(b"{}")].map(|message| decoder.append(message)), [Null, Null, Decoded]);
    let rows = decoder.finish();
    assert_eq!(rows.nulls().unwrap().iter().collect::<Vec<_>>(), [false, false, true]);
    assert!(rows.column(0).is_null(2));
}

#[test]
fn values_are_certain_or_left() {
    use DataType::{Binary, Boolean, Date32, Float32, Float64, Int8, Int32, Int64, Utf8};
    let decimal = DataType::Decimal128(4, 2);
    for (kind, certain, left) in [
        (Boolean, vec!["true", "false", "null"], vec!["1", "\"true\"", "truex", "tru"]),
        (Int8, vec!["-128", "127", "-0"], vec!["128", "-129", "1.0", "1e1", "01", "+1", "-", "\"1\"", "true"]),
        (
            Int64,
            vec!["9223372036854775807", "-9223372036854775808"],
            vec!["9223372036854775808", "99999999999999999999"],
        ),
        (
            Float32,
            vec!["0.1", "16777217", "-0.0"],
            vec!["1e39", "1234567890123456789", "\"1\"", ".5", "1.", "1e", "NaN"],
        ),
        (Float64, vec!["0.1", "1e-400", "1E5"], vec!["1e309", "01", "-Infinity"]),
        (decimal, vec!["12.34", "-1", "\"5.6\"", "0"], vec!["1.234", "100", "1e1", "\"\"", "\" 1\"", "\"+1\""]),
        (
            Utf8,
            vec!["\"\"", "\"\\u0000\\n\"", "\"a\tb\""],
            vec!["1", "\"\\ud800\"", "\"\\ude00\\ud83d\"", "\"\\q\"", "\"", "{}"],
        ),
        (Binary, vec!["\"\"", "\"YQ==\""], vec!["\"YQ\"", "\"YR==\"", "\"YW Jj\"", "\"YWJj\\n\"", "1"]),
        (Date32, vec!["\"2020-02-29\""], vec!["\"2021-02-29\"", "18000", "\"2020-1-1\""]),
        (list(Int32), vec!["[]", "[ 1 , null ]"], vec!["[1,]", "[,1]", "[1", "{}", "[1 2]", "1"]),
        (map(Int32), vec!["{}", "{\"a\":1,\"b\":null}"], vec!["{\"a\":1,\"a\":1}", "{\"\\u0061\":1}", "[]", "{1:1}"]),
        (structure(vec![field("b", Int32)]), vec!["{}", "{\"b\":1}"], vec!["{\"b\":1,\"b\":1}", "[]", "1"]),
    ] {
        for value in certain {
            assert_eq!(outcome(kind.clone(), value), Decoded, "{kind} {value}");
        }
        for value in left {
            assert_eq!(outcome(kind.clone(), value), Left, "{kind} {value}");
        }
    }
}

#[test]
fn a_message_is_one_object_and_nothing_else() {
    let mut decoder = decoder(vec![field("a", DataType::Int32)]);
    for message in [" {\"a\" : 1} \r\n", "{\"b\":1,\"b\":2}", "{\"A\":{},\"\\n\":\"\\ud800\"}"] {
        let expected = if message.contains("\\n") { Left } else { Decoded };
        assert_eq!(decoder.append(Some(message.as_bytes())), expected, "{message}");
    }
    for message in
        ["null", "[]", "1", "{", "{\"a\":1", "{\"a\"1}", "{\"a\":1}x", "{\"a\":1}{}", "{,}", "{\"a\":1,}", "\u{feff}{}"]
    {
        assert_eq!(decoder.append(Some(message.as_bytes())), Left, "{message}");
    }
    for message in [&b"{\"b\":\"\xff\"}"[..], b"\0", b"{\"b\":\"\xed\xa0\x80\"}"] {
        assert_eq!(decoder.append(Some(message)), Left);
    }
    for begin in ["{\"b\":", "{\"a\":"] {
        let deep = format!("{begin}{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(decoder.append(Some(deep.as_bytes())), Left);
    }
}

#[test]
fn a_missing_field_is_null_or_left() {
    let fields = vec![field("a", DataType::Int32), field("r", structure(vec![field("b", DataType::Int32)]))];
    let mut strict =
        Decoder::new(&Spec::json(&fields.clone().into(), json::Options { fail_on_missing_field: true })).unwrap();
    for (message, complete) in
        [("{\"a\":null,\"r\":null}", true), ("{\"r\":{\"b\":1}}", false), ("{\"a\":1,\"r\":{}}", false)]
    {
        assert_eq!(strict.append(Some(message.as_bytes())), if complete { Decoded } else { Left }, "{message}");
        assert_eq!(decoder(fields.clone()).append(Some(message.as_bytes())), Decoded, "{message}");
    }
}

#[test]
fn what_is_left_leaves_nothing_behind() {
    let mut decoder = Decoder::new(&Spec::json(&all_types(), json::Options::default())).unwrap();
    let mut expected = Vec::new();
    for end in 0..WHOLE.len() {
        expected.extend([decoder.append(Some(&WHOLE.as_bytes()[..end])), decoder.append(Some(WHOLE.as_bytes()))]);
    }
    let rows = decoder.finish();
    rows.to_data().validate_full().unwrap();
    assert!(decoder.is_empty());
    assert_eq!(expected.iter().filter(|o| **o == Decoded).count(), WHOLE.len());
    decoder.append(Some(WHOLE.as_bytes()));
    let alone: StructArray = decoder.finish();
    for (i, outcome) in expected.iter().enumerate() {
        assert_eq!(rows.is_valid(i), *outcome == Decoded);
        if *outcome == Decoded {
            assert_eq!(rows.slice(i, 1).to_data(), alone.to_data());
        }
    }
}

#[test]
fn memory_is_in_proportion_to_the_message() {
    let wide = structure((0..1000).map(|i| field(&i.to_string(), DataType::Decimal128(38, 0))).collect());
    let mut decoder = decoder(vec![field("a", list(wide))]);
    for element in ["{},", "null,"] {
        let message = format!("{{\"a\":[{}null]}}", element.repeat(100_000));
        assert_eq!(decoder.append(Some(message.as_bytes())), Left);
        assert!(decoder.size_bytes() < 100_000);
    }
}

#[test]
fn names_are_found_in_any_order_and_number() {
    for count in [1, 5, 40] {
        let fields: Vec<Field> = (0..count).map(|i| field(&format!("f{i}"), DataType::Int32)).collect();
        let mut decoder = decoder(fields);
        let parts: Vec<String> = (0..count).rev().map(|i| format!("\"f{i}\":{i},\"g{i}\":[]")).collect();
        assert_eq!(decoder.append(Some(format!("{{{}}}", parts.join(",")).as_bytes())), Decoded);
        let rows = decoder.finish();
        assert!((0..count).all(|i| rows.column(i as usize).as_primitive::<Int32Type>().value(0) == i));
    }
}

#[test]
fn a_type_that_is_not_read_is_named() {
    let unsupported =
        Decoder::new(&Spec::json(&vec![field("a", DataType::LargeUtf8)].into(), json::Options::default()));
    assert_eq!(unsupported.err().unwrap().to_string(), "column a of the type LargeUtf8");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn numbers_keep_their_value(value in any::<f64>().prop_filter("finite", |v| v.is_finite()), whole in any::<i64>()) {
        let mut decoder = decoder(vec![field("d", DataType::Float64), field("l", DataType::Int64)]);
        prop_assert_eq!(decoder.append(Some(format!("{{\"d\":{value:e},\"l\":{whole}}}").as_bytes())), Decoded);
        let rows = decoder.finish();
        let found = rows.column(0).as_primitive::<Float64Type>().value(0);
        prop_assert_eq!(found.to_bits(), value.to_bits());
        prop_assert_eq!(rows.column(1).as_primitive::<Int64Type>().value(0), whole);
    }

    #[test]
    fn texts_keep_their_characters(text in any::<String>()) {
        let mut decoder = decoder(vec![field("s", DataType::Utf8)]);
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
        prop_assert_eq!(decoder.append(Some(format!("{{\"s\":\"{escaped}\"}}").as_bytes())), Decoded);
        let rows = decoder.finish();
        prop_assert_eq!(rows.column(0).as_string::<i32>().value(0), text);
    }

    #[test]
    fn damaged_messages_are_harmless(
        cuts in prop::collection::vec((0..WHOLE.len(), 0..4_usize, prop::collection::vec(any::<u8>(), 0..4)), 1..6),
        noise in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut message = WHOLE.as_bytes().to_vec();
        for (at, removed, put) in cuts {
            let at = at.min(message.len());
            message.splice(at..(at + removed).min(message.len()), put);
        }
        let mut decoder = Decoder::new(&Spec::json(&all_types(), json::Options::default())).unwrap();
        decoder.append(Some(&message));
        decoder.append(Some(&noise));
        prop_assert_eq!(decoder.append(Some(WHOLE.as_bytes())), Decoded);
        let rows = decoder.finish();
        rows.to_data().validate_full().unwrap();
        prop_assert_eq!(rows.len(), 3);
    }
}

#[test]
fn what_sparks_parser_refuses_for_its_size_is_left() {
    let name = |length: usize| "n".repeat(length);
    for (length, expected) in [(49_999, Decoded), (50_001, Left)] {
        let long = name(length);
        for message in [
            format!("{{\"{long}\":1,\"a\":{{}}}}"),             // a field that is not wanted
            format!("{{\"x\":{{\"{long}\":1}},\"a\":{{}}}}"),   // within one
            format!("{{\"x\":[{{\"{long}\":1}}],\"a\":{{}}}}"), // and deeper
            format!("{{\"a\":{{\"{long}\":\"v\"}}}}"),          // a key of a map
        ] {
            let mut decoder = decoder(vec![field("a", map(DataType::Utf8))]);
            assert_eq!(decoder.append(Some(message.as_bytes())), expected, "{length}");
        }
    }
    let around = "{\"a\":\"\"}".len();
    for (length, expected) in [(20_000_000 - around, Decoded), (20_000_001 - around, Left)] {
        assert_eq!(outcome(DataType::Utf8, &format!("\"{}\"", name(length))), expected, "{length}");
    }
}
