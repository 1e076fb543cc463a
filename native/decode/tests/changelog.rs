//! Messages about changed rows: what they become, their errors, and that nothing of another message is left behind.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, TimestampMicrosecondType};
use arrow_array::{Array, StructArray};
use dynamic_kafka_decode::Outcome::{self, Decoded, Failed, Null};
use dynamic_kafka_decode::{Decoder, Spec};
use proptest::prelude::*;

const SCHEMA: &str = r#""schema":{"fields":[{"name":"id","type":"integer"},{"name":"name","type":"string"},
    {"name":"paid","type":"boolean"},{"name":"x","type":"double"}]}"#;
const DEBEZIUM: &str = r#""format":"changelog","tool":"Debezium","hints":{"t":"exclude it"},"advice":"; set it","whole_rows":"keep it","images":["before","after"],"kind":"op","inserts":["c","r"],"update":"u",
    "delete":"d","metadata":[{"name":"schema","type":"string","field":"schema","field_type":"string","form":"value"},
    {"name":"time","type":"timestamp","field":"ts_ms","field_type":"string","form":"milliseconds"},
    {"name":"db","type":"string","field":"source","key":"db","form":"value"}]"#;
const CANAL: &str = r#""format":"changelog","images":["old","data"],"kind":"type","inserts":["INSERT"],"update":"UPDATE",
    "delete":"DELETE","partial":true,"batched":true,"tool":"Canal","skipped":["CREATE"],"metadata":[{"name":"keys","field":"pkNames",
    "type":{"type":"array","elementType":"string"},"field_type":{"type":"array","elementType":"string"},"form":"value"}]"#;
const MAXWELL: &str = r#""format":"changelog","images":["old","data"],"kind":"type","inserts":["insert"],
    "update":"update","delete":"delete","partial":true,"metadata":[]"#;

fn decoder(envelope: &str, more: &str) -> Decoder {
    Decoder::new(&Spec::parse(&format!("{{{envelope},{SCHEMA}{more}}}")).unwrap()).unwrap()
}

fn error(decoder: &mut Decoder, message: &str) -> String {
    assert_eq!(outcome(decoder, message), Failed, "{message}");
    decoder.finish().column(2).as_string::<i32>().value(0).to_owned()
}

fn outcome(decoder: &mut Decoder, message: &str) -> Outcome {
    decoder.append(Some(message.as_bytes()))
}

/// The kinds, ids and names of the changes in all messages.
fn changes(rows: &StructArray) -> Vec<(String, Option<i32>, Option<String>)> {
    rows.to_data().validate_full().unwrap();
    let changes = rows.column(0).as_list::<i32>().values().as_struct().clone();
    let row = changes.column(1).as_struct();
    let (kinds, ids) = (changes.column(0).as_string::<i32>(), row.column(0).as_primitive::<Int32Type>());
    let names = row.column(1).as_string::<i32>();
    (0..changes.len())
        .map(|i| {
            let name = names.is_valid(i).then(|| names.value(i).to_owned());
            (kinds.value(i).to_owned(), ids.is_valid(i).then(|| ids.value(i)), name)
        })
        .collect()
}

fn change(kind: &str, id: i32, name: &str) -> (String, Option<i32>, Option<String>) {
    (kind.to_owned(), Some(id), (!name.is_empty()).then(|| name.to_owned()))
}

#[test]
fn whole_rows_before_and_after_become_changes() {
    let mut decoder = decoder(DEBEZIUM, "");
    for message in [
        r#"{"before":null,"after":{"id":1,"name":"a"},"op":"c"}"#,
        r#" {"op":"r", "after":{"id":2}} "#,
        r#"{"op":"u","after":{"id":3,"name":"c"},"before":{"id":2},"source":{"db":"x"},"ts_ms":1}"#,
        r#"{"before":{"id":3},"after":null,"op":"d"}"#,
    ] {
        assert_eq!(outcome(&mut decoder, message), Decoded, "{message}");
    }
    assert_eq!([None, Some(&b""[..])].map(|message| decoder.append(message)), [Null, Null]);
    let expected =
        [change("+I", 1, "a"), change("+I", 2, ""), change("-U", 2, ""), change("+U", 3, "c"), change("-D", 3, "")];
    assert_eq!(changes(&decoder.finish()), expected);
}

#[test]
fn errors_say_what_is_wrong() {
    let mut strict = decoder(DEBEZIUM, "");
    let mut lenient = decoder(DEBEZIUM, r#","ignore_parse_errors":true"#);
    for (message, expected) in [
        (r#"{"after":{"id":1}}"#, "It does not have the field \"op\" of Debezium's messages about rows; set it"),
        (
            r#"{"after":{"id":1},"op":null}"#,
            "It does not have the field \"op\" of Debezium's messages about rows; set it",
        ),
        (r#"{"after":{"id":1},"op":"t"}"#, "Unknown \"op\" value \"t\": exclude it"),
        (
            r#"{"after":{"id":1},"op":5}"#,
            "Unknown \"op\" value \"5\", which is not about a row; exclude such messages in Debezium or with \
             'format.on-error'",
        ),
        (r#"{"after":null,"op":"c"}"#, "Its \"after\" is null"),
        (r#"{"before":{},"op":"u"}"#, "Its \"after\" is null"),
        (r#"{"after":{"id":1},"op":"u"}"#, "The \"before\" field of UPDATE message is null; keep it"),
        (r#"{"after":{"id":1},"op":"d"}"#, "The \"before\" field of DELETE message is null; keep it"),
        (r#"{"after":{"id":"x","name":"y","x":[]},"op":"c"}"#, "It does not fit the columns: after.id, after.x"),
        (r#"{"after":{"id":1},"before":{"id":"x"},"op":"c"}"#, "It does not fit the columns: before.id"),
        (r#"{"after":[{"id":1}],"op":"c"}"#, "It does not fit the columns: after"),
        (r#"{"after":{"id":1},"op":"c","source":"x"}"#, "It does not fit the columns: source"),
        (r#"{"after":{"id":1},"op":"c""#, "It is not a JSON object"),
        ("[]", "It is not a JSON object"),
    ] {
        assert_eq!(error(&mut strict, message), expected, "{message}");
        let (kept, null) = (message.contains("source") || message.contains("\"x\""), message.contains(":[{"));
        assert_eq!(outcome(&mut lenient, message), if kept && !null { Decoded } else { Null }, "{message}");
    }
    assert_eq!(outcome(&mut strict, r#"{"after":{"id":1},"op":"d","op":"c","source":{"a":["\ud800"]}}x"#), Decoded);
    assert_eq!(outcome(&mut strict, r#"{"after":{"id":1},"before":{"id":2},"op":"c"}"#), Decoded);
    assert_eq!(outcome(&mut strict, r#"{"after":{"id":1},"before":{"id":2},"op":"d"}"#), Decoded);
    assert_eq!(changes(&strict.finish()), [change("+I", 1, ""), change("+I", 1, ""), change("-D", 2, "")]);
}

#[test]
fn metadata_are_read_only_if_they_are_wanted() {
    let message = r#"{"after":{},"op":"c","ts_ms":"12","source":{"db":"shop","a":1.5},"schema":{"a" : [1, "x"]}}"#;
    let mut decoders = [decoder(DEBEZIUM, ""), decoder(DEBEZIUM, r#","wanted":[]"#)];
    let [wanted, not] = decoders.each_mut().map(|decoder| {
        assert_eq!(outcome(decoder, message), Decoded);
        decoder.finish().column(1).as_struct().clone()
    });
    assert_eq!(wanted.column(0).as_string::<i32>().value(0), r#"{"a":[1,"x"]}"#);
    assert_eq!(wanted.column(1).as_primitive::<TimestampMicrosecondType>().value(0), 12_000);
    assert_eq!(wanted.column(2).as_string::<i32>().value(0), "shop");
    assert!(not.columns().iter().all(|column| column.is_null(0)));
    for (message, expected) in [
        (r#"{"after":{},"op":"c","ts_ms":"x"}"#, [None; 3]),
        (r#"{"after":{},"op":"c","ts_ms":1.5,"source":{"db":null}}"#, [None; 3]),
        (r#"{"after":{},"op":"c","schema":[1.0, "\u0061\u0001"]}"#, [Some("[1.0,\"a\\u0001\"]"), None, None]),
        (r#"{"after":{},"op":"c","source":{"db":"a","db":{"b": true}}}"#, [None, None, Some("{\"b\":true}")]),
    ] {
        let [wanted, _] = decoders.each_mut().map(|decoder| {
            assert_eq!(outcome(decoder, message), Decoded, "{message}");
            decoder.finish().column(1).as_struct().clone()
        });
        for (column, expected) in wanted.columns().iter().zip(expected) {
            assert_eq!(column.is_valid(0), expected.is_some(), "{message}");
            assert!(expected.is_none_or(|text| column.as_string::<i32>().value(0) == text), "{message}");
        }
    }
    assert_eq!(outcome(&mut decoders[1], r#"{"after":{},"op":"c","source":1}"#), Decoded);
}

#[test]
fn a_message_may_be_in_a_payload() {
    let mut decoder = decoder(DEBEZIUM, r#","payload":true,"wanted":["schema"]"#);
    let message = r#"{"schema":{"a":null},"payload":{"after":{"id":1},"op":"c","schema":1}}"#;
    assert_eq!(outcome(&mut decoder, message), Decoded);
    let rows = decoder.finish();
    assert_eq!(rows.column(1).as_struct().column(0).as_string::<i32>().value(0), r#"{"a":null}"#);
    assert_eq!(changes(&rows), [change("+I", 1, "")]);
    let no_kind = "It does not have the field \"op\" of Debezium's messages about rows; set it";
    for (message, expected) in [
        (r#"{"after":{"id":1},"op":"c"}"#, no_kind),
        (r#"{"schema":{},"payload":null}"#, no_kind),
        (r#"{"payload":[]}"#, "It does not fit the columns: payload"),
    ] {
        assert_eq!(error(&mut decoder, message), expected, "{message}");
    }
}

#[test]
fn of_an_old_row_only_what_changed_is_there() {
    let mut decoder = decoder(MAXWELL, "");
    for message in [
        r#"{"type":"update","data":{"id":1,"name":"n"},"old":{"name":null}}"#,
        r#"{"type":"update","data":{"name":"m","id":2},"old":{}}"#,
        r#"{"type":"delete","data":{"id":2}}"#,
    ] {
        assert_eq!(outcome(&mut decoder, message), Decoded, "{message}");
    }
    let expected =
        [change("-U", 1, ""), change("+U", 1, "n"), change("-U", 2, "m"), change("+U", 2, "m"), change("-D", 2, "")];
    assert_eq!(changes(&decoder.finish()), expected);
    for (message, expected) in [
        (r#"{"type":"update","data":{"id":1}}"#, "Update event: \"old\" has fewer rows than \"data\""),
        (r#"{"type":"insert","old":{"id":1}}"#, "Its \"data\" is null"),
        (r#"{"type":"update","data":{"id":"x"},"old":{"id":[]}}"#, "It does not fit the columns: old.id, data.id"),
        (r#"{"type":"insert","data":{"id":1},"old":{"id":[]}}"#, "It does not fit the columns: old.id"),
    ] {
        assert_eq!(error(&mut decoder, message), expected, "{message}");
    }
    for message in [
        r#"{"type":"update","data":{"id":1,"id":2},"old":{"id":3,"id":4,"other":["\u0041"]}}"#,
        r#"{"type":"insert","data":{"id":5},"old":{"id":6}}"#,
    ] {
        assert_eq!(outcome(&mut decoder, message), Decoded, "{message}");
    }
    assert_eq!(changes(&decoder.finish()), [change("-U", 4, ""), change("+U", 2, ""), change("+I", 5, "")]);
}

#[test]
fn a_message_may_have_several_rows_of_texts() {
    let mut decoder = decoder(CANAL, r#","include":{"database":"d"}"#);
    for message in [
        r#"{"database":"d","type":"INSERT","data":[{"id":"1","paid":"TRUE","x":"-0"}, {"id":2,"paid":"1"}],"old":null}"#,
        r#"{"database":"d","type":"UPDATE","data":[{"id":"1","name":"a"}],"old":[{"name":"b"}],"pkNames":["id"]}"#,
        r#"{"database":"d","type":"DELETE","data":[]}"#,
    ] {
        assert_eq!(outcome(&mut decoder, message), Decoded, "{message}");
    }
    assert_eq!(outcome(&mut decoder, r#"{"database":"e","type":"INSERT","data":[{"id":"1"}]}"#), Null);
    let rows = decoder.finish();
    let expected = [change("+I", 1, ""), change("+I", 2, ""), change("-U", 1, "b"), change("+U", 1, "a")];
    assert_eq!(changes(&rows), expected);
    let row = rows.column(0).as_list::<i32>().values().as_struct().column(1).as_struct().clone();
    let paid = row.column(2).as_boolean();
    assert_eq!([paid.value(0), paid.value(1)], [true, false]);
    let no_row = "Its \"data\" is null, or one of its rows is";
    for (message, expected) in [
        (r#"{"type":"INSERT","data":[{"id":"1"}]}"#, "It does not have the field \"database\""),
        (r#"{"database":"d","type":"INSERT","data":[{"id":"1.0"}]}"#, "It does not fit the columns: data.id"),
        (r#"{"database":"d","type":"INSERT","data":[{},null]}"#, no_row),
        (r#"{"database":"d","type":"INSERT"}"#, no_row),
        (r#"{"database":"d","type":"INSERT","data":{}}"#, "It does not fit the columns: data"),
        (r#"{"database":"d","type":"INSERT","data":[1]}"#, "It does not fit the columns: data"),
        (
            r#"{"database":"d","type":"UPDATE","data":[{},{}],"old":[{}]}"#,
            "Update event: \"old\" has fewer rows than \"data\"",
        ),
        (r#"{"database":"d","type":"INSERT","data":[{}],"pkNames":1}"#, "It does not fit the columns: pkNames"),
    ] {
        assert_eq!(error(&mut decoder, message), expected, "{message}");
    }
    for (message, expected) in [
        (r#"{"database":"d","type":"UPDATE","data":[{}],"old":[{},{}]}"#, Decoded),
        (r#"{"database":"d","type":"CREATE","data":null}"#, Null),
        (r#"{"database":"e","type":"ALTER","data":1}"#, Null),
        (r#"{"database":"d","type":"INSERT","data":[{"paid":"é","x":1.5}],"pkNames":[1]}"#, Decoded),
    ] {
        assert_eq!(outcome(&mut decoder, message), expected, "{message}");
    }
}

#[test]
fn what_is_no_envelope_is_named() {
    for (text, expected) in [
        (r#"{"format":"changelog","schema":{"fields":[]}}"#, "images null"),
        (r#"{"format":"changelog","images":["a"],"kind":"k","schema":{"fields":[]}}"#, r#"images ["a"]"#),
    ] {
        assert_eq!(Spec::parse(text).unwrap_err().to_string(), expected);
    }
}

const WHOLE: [(&str, &str); 3] = [
    (
        DEBEZIUM,
        r#"{"before":{"id":1,"name":"a\n"},"after":{"id":2,"x":1e3},"source":{"db":"d","s":[1]},"op":"u","ts_ms":1}"#,
    ),
    (CANAL, r#"{"data":[{"id":"1","x":"1.5"},{"id":2}],"old":[{"id":"3"},{}],"type":"UPDATE","pkNames":["id"]}"#),
    (MAXWELL, r#"{"data":{"id":1,"name":"ä"},"old":{"paid":true,"q":{"r":"s"}},"type":"update"}"#),
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_messages_are_harmless(
        which in 0..WHOLE.len(),
        cuts in prop::collection::vec((0..130_usize, 0..4_usize, prop::collection::vec(any::<u8>(), 0..4)), 1..6),
        noise in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let (envelope, whole) = WHOLE[which];
        let mut message = whole.as_bytes().to_vec();
        for (at, removed, put) in cuts {
            let at = at.min(message.len());
            message.splice(at..(at + removed).min(message.len()), put);
        }
        let mut decoder = decoder(envelope, r#","wanted":["schema","time","db","keys"]"#);
        decoder.append(Some(&message));
        decoder.append(Some(&noise));
        prop_assert_eq!(outcome(&mut decoder, whole), Decoded);
        let rows = decoder.finish();
        rows.to_data().validate_full().unwrap();
        prop_assert_eq!(rows.len(), 3);
    }
}
