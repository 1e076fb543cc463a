//! Tests of the columns: what becomes of messages.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use dynamic_kafka_decode::caught;
use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone, Default)]
struct Given {
    offset: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    time: (i64, i32),
    epoch: Option<i32>,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Record for Given {
    fn offset(&self) -> i64 {
        self.offset
    }
    fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }
    fn value(&self) -> Option<&[u8]> {
        match self.value.as_deref() {
            Some(b"panic") => panic!("it was asked for"),
            value => value,
        }
    }
    fn timestamp(&self) -> (i64, i32) {
        self.time
    }
    fn leader_epoch(&self) -> Option<i32> {
        self.epoch
    }
    fn for_each_header(&self, mut each: impl FnMut(&str, Option<&[u8]>)) -> Result<(), String> {
        self.headers.iter().for_each(|(name, value)| each(name, value.as_deref()));
        if self.headers.iter().any(|(name, _)| name == "damaged") {
            Err("its headers are odd".to_owned())
        } else {
            Ok(())
        }
    }
}

fn add(columns: &mut Columns, record: &Given) {
    let weight = columns.weight(record).unwrap();
    columns.push(record, weight);
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
    Given { offset, value: Some(b"v".to_vec()), time: (1_700_000_000_123, 1), ..Given::default() }
}

fn columns(records: Vec<(&str, i32, Given)>) -> Columns {
    let wanted: Vec<Column> = NAMES.iter().filter_map(|name| Column::named(name)).collect();
    let mut columns = Columns::new(&wanted, &Arc::from("c"));
    for (topic, partition, given) in records {
        columns.begin_run(&Arc::from(topic), partition);
        add(&mut columns, &given);
    }
    columns
}

#[test]
fn a_batch_has_all_columns() {
    let headers = vec![("h".to_owned(), Some(b"1".to_vec())), ("h".to_owned(), None)];
    let tombstone = Given { value: None, time: (-1, 0), headers, ..record(9) };
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
    let problem = problem.unwrap_err();
    assert_eq!(problem.place, Some(("u".to_owned(), 4, 8)));
    assert!(
        problem.reason.starts_with("the record's timestamp 9223372036854776 ms does not fit"),
        "{}",
        problem.reason
    );
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
fn a_batch_may_have_no_column() {
    let mut columns = Columns::new(&[], &Arc::from("c"));
    columns.begin_run(&Arc::from("t"), 0);
    add(&mut columns, &record(1));
    assert_eq!(columns.finish(&[]).unwrap().unwrap().num_rows(), 1);
}

#[test]
fn a_record_weighs_what_is_wanted_of_it() {
    let headers = vec![("ä".to_owned(), Some(vec![0; 90])), (String::new(), None)];
    let given = Given { key: Some(vec![0; 5]), value: Some(vec![0; 7]), headers, ..Given::default() };
    for (wanted, weight) in [
        (vec![], 0),
        (vec![Column::Key], 5),
        (vec![Column::Value, Column::Key], 12),
        (vec![Column::Headers], 2 + 90 + 2 * HEADER_BYTES),
        (vec![Column::Offset, Column::Topic], 0),
    ] {
        let mut columns = Columns::new(&wanted, &Arc::from("c"));
        assert_eq!(columns.weight(&given), Ok(weight), "{wanted:?}");
        columns.begin_run(&Arc::from("t"), 0);
        add(&mut columns, &given);
        add(&mut columns, &given);
        assert_eq!(columns.bytes(), 2 * weight);
    }
}

#[test]
fn a_record_that_is_too_large_or_damaged_has_no_weight() {
    let large = Given { headers: vec![("h".to_owned(), Some(vec![0; 1000]))], ..record(1) };
    let mut columns = Columns::new(&[Column::Value, Column::Headers], &Arc::from("c"));
    columns.most_bytes = 1001 + HEADER_BYTES;
    assert_eq!(columns.weight(&large).unwrap_err(), "the record has 1010 bytes, and a batch of Arrow has at most 1009");
    columns.most_bytes += 1;
    assert_eq!(columns.weight(&large), Ok(1010));
    let damaged = Given { headers: vec![("damaged".to_owned(), None)], ..record(1) };
    assert_eq!(columns.weight(&damaged).unwrap_err(), "its headers are odd");
    assert!(Columns::new(&[Column::Value], &Arc::from("c")).weight(&damaged).is_ok());
}

#[test]
fn a_panic_names_the_record() {
    let bad = Given { value: Some(b"panic".to_vec()), ..record(8) };
    let mut columns = columns(vec![("t", 3, record(7)), ("u", 4, record(9))]);
    columns.begin_run(&Arc::from("t"), 3);
    let reason = caught(|| columns.push(&bad, 0)).unwrap_err();
    assert!(reason.starts_with("the native kernel failed (it was asked for); this is a defect"), "{reason}");
    assert_eq!(columns.problem(usize::MAX, reason).place, Some(("t".to_owned(), 3, 8)));
    assert_eq!(columns.problem(1, "").place, Some(("u".to_owned(), 4, 9)));
    assert_eq!(columns.problem(0, "").place, Some(("t".to_owned(), 3, 7)));
    assert_eq!(Columns::new(&[], &Arc::from("c")).problem(0, "").place, None);
    // A column that cannot be finished is one of the whole batch.
    columns.times = None;
    columns.keys = None;
    assert_eq!(columns.finish(&[]).unwrap_err().place, Some(("t".to_owned(), 3, 7)));
}

// --- any records, against a model ---

const TOPICS: [&str; 3] = ["t", "u", "v"];
const COLUMNS: [Column; 10] = [
    Column::Key,
    Column::Value,
    Column::Topic,
    Column::Partition,
    Column::Offset,
    Column::Timestamp,
    Column::TimestampType,
    Column::Cluster,
    Column::Headers,
    Column::LeaderEpoch,
];

fn some_bytes() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop::option::of(prop::collection::vec(any::<u8>(), 0..20))
}

fn extreme() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(i64::MIN),
        Just(i64::MAX),
        Just(i64::MAX / 1000),
        Just(i64::MAX / 1000 + 1),
        Just(i64::MIN / 1000),
        Just(i64::MIN / 1000 - 1),
        Just(0),
        -2000..2000_i64,
    ]
}

fn any_record() -> impl Strategy<Value = Given> {
    let headers = prop::collection::vec(("[a-zä\u{fffd}]{0,3}", some_bytes()), 0..4);
    let time = (prop_oneof![4 => -5000..5000_i64, 1 => extreme()], 0..3_i32);
    (any::<i64>(), some_bytes(), some_bytes(), time, prop::option::of(0..9_i32), headers)
        .prop_map(|(offset, key, value, time, epoch, headers)| Given { offset, key, value, time, epoch, headers })
}

/// Return what a column has in a row, as text.
fn shown(array: &ArrayRef, column: Column, row: usize) -> String {
    let bytes = |array: &ArrayRef, row| array.is_valid(row).then(|| array.as_binary::<i32>().value(row).to_vec());
    match column {
        Column::Key | Column::Value => format!("{:?}", bytes(array, row)),
        Column::Topic | Column::Cluster => array.as_string::<i32>().value(row).to_owned(),
        Column::Partition | Column::TimestampType => array.as_primitive::<Int32Type>().value(row).to_string(),
        Column::Offset => array.as_primitive::<Int64Type>().value(row).to_string(),
        Column::Timestamp => array.as_primitive::<TimestampMicrosecondType>().value(row).to_string(),
        Column::LeaderEpoch => {
            format!("{:?}", array.is_valid(row).then(|| array.as_primitive::<Int32Type>().value(row)))
        }
        Column::Headers if array.is_null(row) => "none".to_owned(),
        Column::Headers => {
            let list = array.as_list::<i32>().value(row);
            let fields = list.as_struct();
            let one = |i| (fields.column(0).as_string::<i32>().value(i).to_owned(), bytes(fields.column(1), i));
            format!("{:?}", (0..fields.len()).map(one).collect::<Vec<_>>())
        }
    }
}

fn expected(topic: &str, partition: i32, record: &Given, column: Column) -> String {
    match column {
        Column::Key => format!("{:?}", record.key),
        Column::Value => format!("{:?}", record.value),
        Column::Topic => topic.to_owned(),
        Column::Cluster => "c".to_owned(),
        Column::Partition => partition.to_string(),
        Column::TimestampType => (record.time.1 - 1).to_string(),
        Column::Offset => record.offset.to_string(),
        Column::Timestamp => (record.time.0 * 1000).to_string(),
        Column::LeaderEpoch => format!("{:?}", record.epoch),
        Column::Headers if record.headers.is_empty() => "none".to_owned(),
        Column::Headers => format!("{:?}", record.headers),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_records_become_their_columns(
        runs in prop::collection::vec((0..3_usize, 0..3_i32, prop::collection::vec(any_record(), 0..6)), 0..8),
        wanted in prop::sample::subsequence(COLUMNS.to_vec(), 0..=COLUMNS.len()),
        without in prop::sample::subsequence(TOPICS.to_vec(), 0..=TOPICS.len()),
    ) {
        let mut columns = Columns::new(&wanted, &Arc::from("c"));
        let mut given = Vec::new();
        for (topic, partition, records) in &runs {
            columns.begin_run(&Arc::from(TOPICS[*topic]), *partition);
            for record in records {
                add(&mut columns, record);
                given.push((TOPICS[*topic], *partition, record));
            }
            columns.end_run(records.last().map(|record| record.time.0));
        }
        prop_assert_eq!(columns.records(), given.len());
        prop_assert_eq!(columns.runs().map(|run| run.2).sum::<usize>(), given.len());
        for (index, (topic, partition, record)) in given.iter().enumerate() {
            let place = Some(((*topic).to_owned(), *partition, record.offset));
            prop_assert_eq!(columns.problem(index, "").place, place);
        }
        let kept: Vec<_> = given.iter().filter(|(topic, ..)| !without.contains(topic)).collect();
        let late = |record: &Given| wanted.contains(&Column::Timestamp) && record.time.0.checked_mul(1000).is_none();
        let names: Vec<String> = without.iter().map(|topic| (*topic).to_owned()).collect();
        match columns.finish(&names) {
            Err(problem) => {
                let (topic, partition, record) = kept.iter().find(|(_, _, record)| late(record)).unwrap();
                prop_assert_eq!(problem.place, Some(((*topic).to_owned(), *partition, record.offset)));
            }
            Ok(None) => prop_assert!(kept.is_empty()),
            Ok(Some(batch)) => {
                prop_assert!(!kept.iter().any(|(_, _, record)| late(record)));
                prop_assert_eq!(batch.num_rows(), kept.len());
                for (array, column) in batch.columns().iter().zip(&wanted) {
                    array.to_data().validate_full().unwrap();
                    for (row, (topic, partition, record)) in kept.iter().enumerate() {
                        prop_assert_eq!(shown(array, *column, row), expected(topic, *partition, record, *column));
                    }
                }
            }
        }
    }
}
