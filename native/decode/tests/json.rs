//! JSON messages to columns: the values of all types, errors, and that nothing of another message is left behind.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, StructArray};
use arrow_schema::{DataType, Field, Fields, TimeUnit};
use dynamic_kafka_decode::Outcome::{Decoded, Failed, Null};
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

fn lenient(fields: Vec<Field>) -> Decoder {
    let options = json::Options { ignore_parse_errors: true, ..Default::default() };
    Decoder::new(&Spec::json(&fields.into(), options)).unwrap()
}

fn message(value: &str) -> String {
    format!("{{\"a\":{value}}}")
}

fn error(decoder: &mut Decoder, message: &[u8]) -> String {
    assert_eq!(decoder.append(Some(message)), Failed, "{}", String::from_utf8_lossy(message));
    let rows = decoder.finish();
    rows.column(rows.num_columns() - 1).as_string::<i32>().value(0).to_owned()
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
    let mut decoder =
        Decoder::new(&Spec::json(&all_types(), json::Options { fail_on_missing_field: true, ..Default::default() }))
            .unwrap();
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
fn values_fit_or_do_not() {
    use DataType::{Binary, Boolean, Date32, Float32, Float64, Int8, Int32, Int64, Utf8};
    let decimal = DataType::Decimal128(4, 2);
    let timestamp = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
    for (kind, fits, does_not) in [
        (Boolean, vec!["true", "false", "null", "1", "\" True\"", "\"x\""], vec!["[]", "{}"]),
        (Int8, vec!["-128", "127", "-0", "\" 1 \"", "\"+1\""], vec!["128", "-129", "1.0", "1e1", "\"\"", "true"]),
        (Int32, vec!["1.7", "-1e3", "2147483647.0"], vec!["2147483647.5", "2147483648", "\"1.0\"", "1e10"]),
        (
            Int64,
            vec!["9223372036854775807", "-9223372036854775808", "\"-9223372036854775808\""],
            vec!["9223372036854775808", "99999999999999999999", "1e19"],
        ),
        (Float32, vec!["0.1", "1e39", "\"1\"", "\"NaN\"", "12345678901234567890"], vec!["\"x\"", "true", "\"inf\""]),
        (Float64, vec!["0.1", "1e-400", "1E5", "1e309", "\" -Infinity \""], vec!["\"\"", "[]"]),
        (decimal, vec!["12.34", "1.239", "1e1", "\" 5.6\"", "\"+1\""], vec!["100", "\"\"", "\"x\"", "true"]),
        (Utf8, vec!["\"\"", "1", "\"\\ud800\"", "\"\\ude00\\ud83d\"", "{ }", "[1 , {\"a\":[]}]"], vec![]),
        (Binary, vec!["\"\"", "\"YQ==\"", "\"YWJj\\n\""], vec!["\"YQ\"", "\"YW Jj\"", "1", "{}"]),
        (Date32, vec!["\"2020-02-29\"", "\"+12020-01-01\""], vec!["\"2021-02-29\"", "18000", "\"2020-1-1\""]),
        (
            timestamp(None),
            vec!["\"2020-01-02 03:04:05.123\"", "\"2020-01-02T03:04\""],
            vec!["\"2020-01-02 03:04\"", "\" 2020-01-02 03:04:05\"", "\"2020-01-02 03:04:05Z\"", "\"2020-01-02\"", "1"],
        ),
        (
            timestamp(Some("UTC")),
            vec!["\"2020-01-02 03:04:05Z\"", "\"2020-01-02T03:04:05.1Z\""],
            vec!["\"2020-01-02 03:04:05\"", "\"2020-01-02T03:04:05+01:00\"", "1577934245"],
        ),
        (
            DataType::Time64(TimeUnit::Nanosecond),
            vec!["\"03:04:05\"", "\"03:04:05.123456789\""],
            vec!["\"03:04\"", "1", "\"24:00:00\""],
        ),
        (DataType::Duration(TimeUnit::Microsecond), vec!["1500", "\"-1\""], vec!["9223372036854775807", "\"x\""]),
        (list(Int32), vec!["[]", "[ 1 , null ]"], vec!["{}", "1", "\"[1]\"", "[1,\"x\"]", "[[]]"]),
        (map(Int32), vec!["{}", "{\"a\":1,\"b\":null}", "{\"\\u0061\":1,\"a\":2}"], vec!["[]", "{\"a\":\"x\"}"]),
        (
            structure(vec![field("b", Int32)]),
            vec!["{}", "{\"b\":1}", "{\"b\":\"x\",\"b\":1}"],
            vec!["[]", "1", "\"x\""],
        ),
    ] {
        let fields = vec![field("a", kind.clone())];
        let mut decoder = decoder(fields.clone());
        for value in fits {
            assert_eq!(decoder.append(Some(message(value).as_bytes())), Decoded, "{kind} {value}");
        }
        decoder.finish();
        for value in does_not {
            let found = error(&mut decoder, message(value).as_bytes());
            assert_eq!(found, "It does not fit the columns: a", "{kind} {value}");
            assert_eq!(lenient(fields.clone()).append(Some(message(value).as_bytes())), Decoded, "{kind} {value}");
        }
    }
}

#[test]
fn values_that_are_no_texts_are_read_as_they_stand() {
    let mut decoder = decoder(vec![field("a", DataType::Utf8)]);
    let values = [
        ("1.10", "1.10"),
        ("-0", "-0"),
        ("true", "true"),
        ("\"\\u00e4\\ud83d\\ude00\\ud83d\\n\"", "ä😀?\n"),
        ("\"\\ud83d\\ud83d\\ude00\"", "?😀"),
        (
            "{ \"x\" : [ 1.10, null,\n\"\\u00e4\\u0000\\/\\\"\"] , \"y\":{}}",
            "{\"x\":[1.10,null,\"ä\\u0000/\\\"\"],\"y\":{}}",
        ),
    ];
    for (value, expected) in values {
        assert_eq!(decoder.append(Some(message(value).as_bytes())), Decoded, "{value}");
        assert_eq!(decoder.finish().column(0).as_string::<i32>().value(0), expected, "{value}");
    }
}

#[test]
fn of_what_is_there_twice_the_last_value_counts() {
    let row = structure(vec![field("b", DataType::Int32)]);
    let mut decoder = decoder(vec![field("a", DataType::Int32), field("m", map(row)), field("r", DataType::Int32)]);
    let text = r#"{"a":"x","m":{"k":{"b":"x"},"l":{"b":2},"\u006b":{"b":3}},"a":1,"r":1,"r":null}"#;
    assert_eq!(decoder.append(Some(text.as_bytes())), Decoded);
    let rows = decoder.finish();
    assert_eq!(rows.column(0).as_primitive::<Int32Type>().value(0), 1);
    assert!(rows.column(2).is_null(0));
    let entries = rows.column(1).as_map().value(0);
    assert_eq!(entries.column(0).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["l", "k"]);
    assert_eq!(entries.column(1).as_struct().column(0).as_primitive::<Int32Type>().values(), &[2, 3]);
}

#[test]
fn errors_name_the_path_of_a_field() {
    let inner = structure(vec![field("b", DataType::Int32), field("d", DataType::Date32)]);
    let fields = vec![field("n", inner.clone()), field("a", list(inner.clone())), field("m", map(inner))];
    let mut decoder = decoder(fields.clone());
    for (text, expected) in [
        (r#"{"n":{"b":"x","d":18000},"a":1}"#, "n.b, n.d, a"),
        (r#"{"n":{"d":1,"d":null,"b":"x"},"a":[{"d":1},{"d":2},{"b":"x"}]}"#, "n.b, a.b, a.d"),
        (r#"{"m":{"k":{"b":[]},"l":1}}"#, "m, m.b"),
    ] {
        assert_eq!(error(&mut decoder, text.as_bytes()), format!("It does not fit the columns: {expected}"));
    }
    let many = format!("{{\"a\":[{}1]}}", "1,".repeat(1000));
    assert_eq!(error(&mut decoder, many.as_bytes()), "It does not fit the columns: a");
    let mut lenient = lenient(fields);
    assert_eq!(lenient.append(Some(br#"{"n":{"b":"x","d":"2020-01-02"},"a":[1,{"b":2}],"m":3}"#)), Decoded);
    let rows = lenient.finish();
    let row = rows.column(0).as_struct();
    assert!(row.column(0).is_null(0) && row.column(1).is_valid(0) && rows.column(2).is_null(0));
    let array = rows.column(1).as_list::<i32>().value(0);
    assert!(array.is_null(0) && array.is_valid(1));
}

#[test]
fn a_message_is_an_object() {
    let mut decoder = decoder(vec![field("a", DataType::Int32)]);
    let long = |digits: usize| format!("{{\"b\":{}}}", "1".repeat(digits));
    let deep = |levels: usize| format!("{{\"b\":{}{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1));
    for text in [
        " {\"a\" : 1} \r\n",
        "{\"b\":1,\"b\":2}",
        "{\"A\":{},\"\\n\":\"\\ud800\"}",
        "{\"a\":1}x",
        "{\"a\":1}{}",
        "\u{feff}{}",
        "{\"b\":{\"c\":[1,[],{\"d\":{}}],\"e\":[{\"f\":1}]}}",
        &long(1000),
        &deep(1000),
    ] {
        assert_eq!(decoder.append(Some(text.as_bytes())), Decoded, "{text}");
    }
    decoder.finish();
    for text in [
        "null",
        "[]",
        "1",
        " ",
        "{",
        "{\"a\":1",
        "{\"a\"1}",
        "{,}",
        "{\"a\":1,}",
        "{\"a\":01}",
        "{\"a\":+1}",
        "{\"a\":.5}",
        "{\"a\":1.}",
        "{\"a\":1e}",
        "{\"a\":-}",
        "{\"a\":NaN}",
        "{\"a\":truex}",
        "{\"a\":nul}",
        "{\"a\":\"\\q\"}",
        "{\"b\":\"\\u12\"}",
        "{'a':1}",
        "{a:1}",
        "{\"b\":[1,]}",
        "{\"b\":[,1]}",
        "{\"b\":[1}}",
        "{\"b\":{\"c\"}}",
        "{\"b\":{1:1}}",
        "{\"b\":[1 2]}",
        "{\"b\":\"",
        "\0",
        "/**/{}",
    ] {
        assert_eq!(error(&mut decoder, text.as_bytes()), "It is not a JSON object", "{text}");
        assert_eq!(lenient(vec![field("a", DataType::Int32)]).append(Some(text.as_bytes())), Null, "{text}");
    }
    for text in [&b"{\"b\":\"\xff\"}"[..], b"{\"b\":\"\xed\xa0\x80\"}"] {
        assert_eq!(error(&mut decoder, text), "It is not UTF-8");
    }
    assert_eq!(error(&mut decoder, long(1001).as_bytes()), "It has a name, a number or a text that is too long");
    for levels in [1001, 200_000] {
        let wanted = deep(levels).replacen('b', "a", 1);
        for text in [deep(levels), wanted] {
            assert_eq!(error(&mut decoder, text.as_bytes()), "It is not a JSON object of at most 1,000 levels");
        }
    }
}

#[test]
fn a_missing_field_is_null_or_an_error() {
    let fields = vec![field("a", DataType::Int32), field("r", list(structure(vec![field("b", DataType::Int32)])))];
    let options = json::Options { fail_on_missing_field: true, ..Default::default() };
    let mut strict = Decoder::new(&Spec::json(&fields.clone().into(), options)).unwrap();
    assert_eq!(strict.append(Some(br#"{"a":null,"r":null}"#)), Decoded);
    strict.finish();
    for (text, missing) in [(r#"{"r":[{"b":1}]}"#, "a"), (r#"{"a":1,"r":[{},null,{}]}"#, "r.b")] {
        assert_eq!(error(&mut strict, text.as_bytes()), format!("It lacks the field '{missing}'"));
        assert_eq!(decoder(fields.clone()).append(Some(text.as_bytes())), Decoded, "{text}");
    }
}

#[test]
fn what_fails_leaves_nothing_behind() {
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
        assert_eq!(rows.is_valid(i), *outcome != Null);
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
        let found = error(&mut decoder, message.as_bytes());
        assert_eq!(found, "It has arrays with many more values than their text has characters");
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
fn names_and_texts_have_the_limits_of_jackson() {
    let name = |length: usize| "n".repeat(length);
    for (length, expected) in [(50_000, Decoded), (50_001, Failed)] {
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
    for (length, expected) in [(20_000_000, Decoded), (20_000_001, Failed)] {
        let mut decoder = decoder(vec![field("a", DataType::Utf8)]);
        assert_eq!(decoder.append(Some(message(&format!("\"{}\"", name(length))).as_bytes())), expected, "{length}");
    }
}

#[test]
fn unused_columns_keep_nothing() {
    // Neither the keys of maps nor where arrays end, which a message needs while it is read.
    let unused = |field: Field| field.with_metadata([("unused".to_owned(), String::new())].into());
    let texts = structure(vec![field("l", list(list(DataType::Utf8))), field("m", map(map(DataType::Utf8)))]);
    let mut decoder =
        decoder(vec![field("a", DataType::Int32), unused(field("b", texts)), unused(field("c", DataType::Utf8))]);
    let message =
        format!(r#"{{"a":1,"b":{{"l":[["{0}"],[]],"m":{{"{0}":{{"{0}":"{0}"}}}}}},"c":"{0}"}}"#, "x".repeat(1000));
    for _ in 0..1000 {
        assert_eq!(decoder.append(Some(message.as_bytes())), Decoded);
        assert_eq!(decoder.append(None), Null);
    }
    assert!(decoder.size_bytes() < 20_000, "{}", decoder.size_bytes());
    let rows = decoder.finish();
    rows.to_data().validate_full().unwrap();
    assert_eq!(rows.column_names(), ["a", "__error"]);
    assert_eq!(decoder.append(Some(message.as_bytes())), Decoded); // also of the next batch
    assert_eq!(decoder.finish().len(), 1);
}
