//! Tests of the columns: what becomes of messages.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};

use dynamic_kafka_decode::Spec;

use super::*;

struct Given {
    offset: i64,
    value: Option<&'static [u8]>,
    time: (i64, i32),
    headers: Vec<(&'static str, Option<&'static [u8]>)>,
}

impl Record for Given {
    fn offset(&self) -> i64 {
        self.offset
    }
    fn key(&self) -> Option<&[u8]> {
        None
    }
    fn value(&self) -> Option<&[u8]> {
        self.value
    }
    fn timestamp(&self) -> (i64, i32) {
        self.time
    }
    fn leader_epoch(&self) -> Option<i32> {
        None
    }
    fn for_each_header(&self, mut each: impl FnMut(&str, Option<&[u8]>)) {
        self.headers.iter().for_each(|(name, value)| each(name, *value));
    }
}

const NAMES: [&str; 10] = [
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "cluster",
    "headers",
    "leader_epoch",
];

fn record(offset: i64) -> Given {
    Given { offset, value: Some(b"v"), time: (1_700_000_000_123, 1), headers: vec![] }
}

fn columns(records: Vec<(&str, i32, Given)>) -> Columns {
    let wanted: Vec<Column> = NAMES.iter().filter_map(|name| Column::named(name)).collect();
    let mut columns = Columns::new(&wanted, &Arc::from("c"), None);
    for (topic, partition, given) in records {
        columns.begin_run(&Arc::from(topic), partition);
        columns.push(&given);
    }
    columns
}

#[test]
fn a_batch_has_all_columns() {
    let tombstone = Given { value: None, time: (-1, 0), headers: vec![("h", Some(b"1")), ("h", None)], ..record(9) };
    let batch = columns(vec![("t", 3, record(7)), ("u", 4, tombstone)]).finish(&[]).unwrap().unwrap();
    let names: Vec<_> = batch.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, NAMES);
    assert_eq!(batch.column(0).null_count(), 2);
    assert_eq!(batch.column(1).as_binary::<i32>().iter().collect::<Vec<_>>(), [Some(&b"v"[..]), None]);
    assert_eq!(batch.column(2).as_string::<i32>().iter().collect::<Vec<_>>(), [Some("t"), Some("u")]);
    assert_eq!(batch.column(3).as_primitive::<Int32Type>().values(), &[3, 4]);
    assert_eq!(batch.column(4).as_primitive::<Int64Type>().values(), &[7, 9]);
    let times = batch.column(5).as_primitive::<TimestampMicrosecondType>();
    assert_eq!(times.values(), &[1_700_000_000_123_000, -1000]);
    assert_eq!(batch.column(6).as_primitive::<Int32Type>().values(), &[0, -1]);
    let headers = batch.column(8).as_list::<i32>();
    assert!(headers.is_null(0));
    assert_eq!(headers.value(1).as_struct().column(1).null_count(), 1);
    assert!(batch.column(9).is_null(0));
}

#[test]
fn runs_are_told_with_the_time_of_their_last_record() {
    let mut columns = columns(vec![("t", 3, record(7)), ("t", 3, record(8)), ("u", 4, record(1))]);
    columns.end_run(Some(5));
    columns.begin_run(&Arc::from("v"), 0); // of which no record is within a range
    assert_eq!(columns.runs().collect::<Vec<_>>(), [("t", 3, 2, None), ("u", 4, 1, Some(5))]);
}

#[test]
fn a_time_that_does_not_fit_names_its_record() {
    let late = Given { time: (i64::MAX / 1000 + 1, 1), ..record(8) };
    let problem = columns(vec![("t", 3, record(7)), ("u", 4, late)]).finish(&[]);
    assert!(matches!(problem, Err(Problem::Time(topic, 4, 8, _)) if topic == "u"));
}

#[test]
fn topics_are_left_out_with_their_wrong_times() {
    let late = Given { time: (i64::MIN, 1), ..record(8) };
    let batch = columns(vec![("t", 3, record(7)), ("u", 4, late), ("t", 3, record(8))]);
    let batch = batch.finish(&["u".to_owned()]).unwrap().unwrap();
    assert_eq!(batch.column(4).as_primitive::<Int64Type>().values(), &[7, 8]);
    assert!(columns(vec![("t", 3, record(7))]).finish(&["t".to_owned()]).unwrap().is_none());
}

#[test]
fn values_are_decoded_or_left() {
    let spec = r#"{"format":"json","schema":{"fields":[{"name":"a","type":"long"}]}}"#;
    let decoder = Decoder::new(&Spec::parse(spec).unwrap()).unwrap();
    let mut columns = Columns::new(&[Column::Value, Column::ValueRow], &Arc::from("c"), Some(decoder));
    columns.begin_run(&Arc::from("t"), 0);
    for value in [Some(&br#"{"a":7}"#[..]), Some(br#"{"a":"7"}"#), None, Some(b"")] {
        columns.push(&Given { value, ..record(1) });
    }
    let batch = columns.finish(&[]).unwrap().unwrap();
    let values = batch.column(0).as_binary::<i32>();
    assert_eq!(values.iter().collect::<Vec<_>>(), [None, Some(&br#"{"a":"7"}"#[..]), None, Some(b"")]);
    let rows = batch.column(1).as_struct();
    assert_eq!((0..4).map(|i| rows.is_valid(i)).collect::<Vec<_>>(), [true, false, false, false]);
    assert_eq!(rows.column(0).as_primitive::<Int64Type>().value(0), 7);
}

#[test]
fn values_of_an_unknown_schema_wait_for_it() {
    let spec = Spec::parse(
        r#"{"format":"avro-confluent","schema":{"fields":[{"name":"a","type":"long"}]},
            "writers":{"1":{"type":"record","fields":[{"name":"a","type":"long"}]}}}"#,
    )
    .unwrap();
    let values = [
        Some(&b"\0\0\0\0\x01\x02"[..]),
        Some(b"odd"),
        Some(b"\0\0\0\0\x02\x04\x08"),
        None,
        Some(b"\0\0\0\0\x01\x06"),
        Some(b"\0\0\0\0\x03\x06"),
    ];
    for is_first in [true, false] {
        let decoder = Decoder::new(&spec).unwrap();
        let mut columns = Columns::new(&[Column::Value, Column::ValueRow], &Arc::from("c"), Some(decoder));
        columns.begin_run(&Arc::from("t"), 0);
        for value in values {
            columns.push(&Given { value, ..record(1) });
        }
        assert_eq!(columns.unknown_schemas(), if is_first { vec![2, 3] } else { vec![] });
        spec.learn(2, Some(r#"{"type":"record","fields":[{"type":"long"},{"name":"a","type":"long"}]}"#));
        spec.learn(3, None);
        let batch = columns.finish(&[]).unwrap().unwrap();
        let kept: Vec<_> = batch.column(0).as_binary::<i32>().iter().collect();
        assert_eq!(kept, [None, values[1], None, None, None, values[5]]);
        let rows = batch.column(1).as_struct();
        assert_eq!((0..6).map(|i| rows.is_valid(i)).collect::<Vec<_>>(), [true, false, true, false, true, false]);
        assert_eq!(rows.column(0).as_primitive::<Int64Type>().values(), &[1, 0, 4, 0, 3, 0]);
    }
}

#[test]
fn a_batch_may_have_no_column() {
    let mut columns = Columns::new(&[], &Arc::from("c"), None);
    columns.begin_run(&Arc::from("t"), 0);
    columns.push(&record(1));
    assert_eq!(columns.finish(&[]).unwrap().unwrap().num_rows(), 1);
}
