//! Messages about changed rows: which are certain, and that nothing of another message is left behind.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, TimestampMicrosecondType};
use arrow_array::{Array, StructArray};
use dynamic_kafka_decode::Outcome::{self, Decoded, Left, Null};
use dynamic_kafka_decode::{Decoder, Spec};
use proptest::prelude::*;

const SCHEMA: &str = r#""schema":{"fields":[{"name":"id","type":"integer"},{"name":"name","type":"string"},
    {"name":"paid","type":"boolean"},{"name":"x","type":"double"}]}"#;
const DEBEZIUM: &str = r#""format":"changelog","images":["before","after"],"kind":"op","inserts":["c","r"],"update":"u",
    "delete":"d","metadata":[{"name":"schema","type":"string","field":"schema","field_type":"string","form":"value"},
    {"name":"time","type":"timestamp","field":"ts_ms","field_type":"string","form":"milliseconds"},
    {"name":"db","type":"string","field":"source","key":"db","form":"value"}]"#;
const CANAL: &str = r#""format":"changelog","images":["old","data"],"kind":"type","inserts":["INSERT"],"update":"UPDATE",
    "delete":"DELETE","partial":true,"batched":true,"texts":true,"metadata":[{"name":"keys","field":"pkNames",
    "type":{"type":"array","elementType":"string"},"field_type":{"type":"array","elementType":"string"},"form":"value"}]"#;
const MAXWELL: &str = r#""format":"changelog","images":["old","data"],"kind":"type","inserts":["insert"],
    "update":"update","delete":"delete","partial":true,"metadata":[]"#;

fn decoder(envelope: &str, more: &str) -> Decoder {
    Decoder::new(&Spec::parse(&format!("{{{envelope},{SCHEMA}{more}}}")).unwrap()).unwrap()
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
fn what_is_not_certain_is_left() {
    let mut decoder = decoder(DEBEZIUM, "");
    for message in [
        r#"{"after":{"id":1}}"#,
        r#"{"after":{"id":1},"op":"t"}"#,
        r#"{"after":{"id":1},"op":null}"#,
        r#"{"after":{"id":1},"op":"c","op":"c"}"#,
        r#"{"after":{"id":1},"op":5}"#,
        r#"{"after":null,"op":"c"}"#,
        r#"{"after":{"id":"1"},"op":"c"}"#,
        r#"{"before":{"id":1},"after":{"id":1},"op":"c"}"#,
        r#"{"before":null,"after":{"id":1},"op":"u"}"#,
        r#"{"before":{"id":1},"after":{"id":1},"op":"d"}"#,
        r#"{"after":{"id":1},"op":"c","source":"x"}"#,
        r#"{"after":{"id":1},"op":"c","source":{"a":["\ud800"]}}"#,
        r#"{"after":{"id":1},"op":"c"}x"#,
        r#"{"after":[{"id":1}],"op":"c"}"#,
        r#"{"payload":{"after":{"id":1},"op":"c"}}"#,
        "{}",
        "[]",
    ] {
        assert_eq!(outcome(&mut decoder, message), Left, "{message}");
    }
    assert_eq!(changes(&decoder.finish()), []);
}

#[test]
fn metadata_are_read_only_if_they_are_wanted() {
    let message = r#"{"after":{},"op":"c","ts_ms":"12","source":{"db":"shop","a":1.5},"schema":{"a" : [1, "x"]}}"#;
    let mut decoders = [decoder(DEBEZIUM, r#","wanted":["schema","time","db"]"#), decoder(DEBEZIUM, "")];
    let [wanted, not] = decoders.each_mut().map(|decoder| {
        assert_eq!(outcome(decoder, message), Decoded);
        decoder.finish().column(1).as_struct().clone()
    });
    assert_eq!(wanted.column(0).as_string::<i32>().value(0), r#"{"a":[1,"x"]}"#);
    assert_eq!(wanted.column(1).as_primitive::<TimestampMicrosecondType>().value(0), 12_000);
    assert_eq!(wanted.column(2).as_string::<i32>().value(0), "shop");
    assert!(not.columns().iter().all(|column| column.is_null(0)));
    for message in [
        r#"{"after":{},"op":"c","ts_ms":"x"}"#,
        r#"{"after":{},"op":"c","ts_ms":1.5}"#,
        r#"{"after":{},"op":"c","schema":[1.0]}"#,
        r#"{"after":{},"op":"c","source":{"db":"a","db":"b"}}"#,
    ] {
        assert_eq!(decoders.each_mut().map(|decoder| outcome(decoder, message)), [Left, Decoded], "{message}");
    }
}

#[test]
fn a_message_may_be_in_a_payload() {
    let mut decoder = decoder(DEBEZIUM, r#","payload":true,"wanted":["schema"]"#);
    let message = r#"{"schema":{"a":null},"payload":{"after":{"id":1},"op":"c","schema":1}}"#;
    assert_eq!(outcome(&mut decoder, message), Decoded);
    let rows = decoder.finish();
    assert_eq!(rows.column(1).as_struct().column(0).as_string::<i32>().value(0), r#"{"a":null}"#);
    assert_eq!(changes(&rows), [change("+I", 1, "")]);
    for message in [r#"{"after":{"id":1},"op":"c"}"#, r#"{"schema":{},"payload":null}"#, r#"{"payload":[]}"#] {
        assert_eq!(outcome(&mut decoder, message), Left, "{message}");
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
    for message in [
        r#"{"type":"update","data":{"id":1}}"#,
        r#"{"type":"update","data":{"id":1},"old":{"id":2,"id":3}}"#,
        r#"{"type":"update","data":{"id":1,"id":1},"old":{"id":2}}"#,
        r#"{"type":"update","data":{"id":1},"old":{"other":["\u0041"]}}"#,
        r#"{"type":"insert","data":{"id":1},"old":{}}"#,
    ] {
        assert_eq!(outcome(&mut decoder, message), Left, "{message}");
    }
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
    for message in [
        r#"{"type":"INSERT","data":[{"id":"1"}]}"#,
        r#"{"database":"d","type":"INSERT","data":[{"id":"1.0"}]}"#,
        r#"{"database":"d","type":"INSERT","data":[{"paid":"é"}]}"#,
        r#"{"database":"d","type":"INSERT","data":[{"x":1.5}]}"#,
        r#"{"database":"d","type":"INSERT","data":[{},null]}"#,
        r#"{"database":"d","type":"INSERT","data":{}}"#,
        r#"{"database":"d","type":"UPDATE","data":[{},{}],"old":[{}]}"#,
        r#"{"database":"d","type":"UPDATE","data":[{}],"old":[{},{}]}"#,
        r#"{"database":"d","type":"CREATE","data":null}"#,
        r#"{"database":"d","type":"INSERT","data":[{}],"pkNames":[1]}"#,
    ] {
        assert_eq!(outcome(&mut decoder, message), Left, "{message}");
    }
}

#[test]
fn what_is_no_envelope_is_named() {
    for (text, expected) in [
        (r#"{"format":"changelog","schema":{"fields":[]}}"#, "null is no text"),
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
