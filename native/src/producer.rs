//! Producing of rows: what the contract of `sink/producing.py` says, on one client.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, Int32Array, Int64Array, LargeBinaryArray, LargeStringArray, OffsetSizeTrait,
    RecordBatch, StringArray,
};
use arrow_schema::DataType;

use crate::librdkafka::Error;
use crate::librdkafka::producer::{Producer, ProducerTopic, Record};
use crate::murmur2::partition_of;

/// The most records that librdkafka gets in one call.
const CHUNK: usize = 1_000;
/// The bytes of the two lengths of a header, at most.
const HEADER_OVERHEAD: usize = 20;
/// librdkafka's partitioner chooses.
const UNASSIGNED: i32 = -1;

/// A column of bytes or of text.
enum Bytes {
    Binary(BinaryArray),
    LargeBinary(LargeBinaryArray),
    Text(StringArray),
    LargeText(LargeStringArray),
}

impl Bytes {
    fn of(array: &dyn Array) -> Result<Self, String> {
        match array.data_type() {
            DataType::Binary => Ok(Self::Binary(array.as_binary().clone())),
            DataType::LargeBinary => Ok(Self::LargeBinary(array.as_binary().clone())),
            DataType::Utf8 => Ok(Self::Text(array.as_string().clone())),
            DataType::LargeUtf8 => Ok(Self::LargeText(array.as_string().clone())),
            other => Err(format!("{other} is not a type of bytes or text")),
        }
    }

    fn get(&self, row: usize) -> Option<&[u8]> {
        match self {
            Self::Binary(array) => array.is_valid(row).then(|| array.value(row)),
            Self::LargeBinary(array) => array.is_valid(row).then(|| array.value(row)),
            Self::Text(array) => array.is_valid(row).then(|| array.value(row).as_bytes()),
            Self::LargeText(array) => array.is_valid(row).then(|| array.value(row).as_bytes()),
        }
    }
}

/// The headers of all rows.
struct Headers {
    names: Bytes,
    values: Bytes,
    ranges: Vec<Range<usize>>,
}

impl Headers {
    fn of(array: &dyn Array) -> Result<Self, String> {
        match array.data_type() {
            DataType::List(_) => Self::of_list::<i32>(array),
            DataType::LargeList(_) => Self::of_list::<i64>(array),
            other => Err(format!("{other} is not a type of headers")),
        }
    }

    fn of_list<O: OffsetSizeTrait>(array: &dyn Array) -> Result<Self, String> {
        let lists = array.as_list::<O>();
        let headers = lists.values().as_struct_opt().ok_or("headers are no structs")?;
        let named = |name: &str| -> Result<Bytes, String> {
            let column = headers.column_by_name(name).ok_or_else(|| format!("headers have no field '{name}'"))?;
            Bytes::of(column)
        };
        let ranges = (0..lists.len())
            .map(|row| match lists.is_valid(row) {
                true => lists.value_offsets()[row].as_usize()..lists.value_offsets()[row + 1].as_usize(),
                false => 0..0,
            })
            .collect();
        Ok(Self { names: named("key")?, values: named("value")?, ranges })
    }
}

/// Rows for one cluster, and which of them were taken.
pub struct Rows {
    topics: Vec<String>,
    numbers: Option<Int32Array>,
    keys: Option<Bytes>,
    values: Option<Bytes>,
    partitions: Option<Int32Array>,
    timestamps: Option<Int64Array>,
    headers: Option<Headers>,
    /// The partition of each row, if it is known of all.
    targets: Option<Vec<i32>>,
    /// The rows in the order in which they are produced: by `spans`, topic and `targets`, and else as they came. None if that
    /// is the same.
    order: Option<Vec<usize>>,
    /// Numbers that grow with the rows, if one of them may be too large: such a row has one of its own. So the rows before it
    /// are produced before it, and none of those after it if it is refused.
    spans: Option<Vec<usize>>,
    arranged: bool,
    len: usize,
    place: usize,
}

/// A row that was not taken, and the code of the error.
pub type Stop = (usize, i32);

impl Rows {
    /// Return rows with these columns: `topic` (a number of one of the topics), `key`, `value`, `partition`, `timestamp` (in
    /// milliseconds) and `headers`. All may be missing; without `topic` there is one topic.
    ///
    /// # Errors
    /// A text if a column has the wrong type, or a number names no topic.
    pub fn new(batch: &RecordBatch, topics: Vec<String>) -> Result<Self, String> {
        let column = |name: &str| batch.column_by_name(name);
        let bytes = |name: &str| column(name).map(|array| Bytes::of(array)).transpose();
        let int32 = |name: &str| -> Result<Option<Int32Array>, String> {
            let typed = |array: &ArrayRef| array.as_primitive_opt::<Int32Type>().cloned();
            column(name).map(|array| typed(array).ok_or_else(|| format!("'{name}' has no int32"))).transpose()
        };
        let millis =
            |array: &ArrayRef| array.as_primitive_opt::<Int64Type>().cloned().ok_or("'timestamp' has no int64");
        let numbers = int32("topic")?;
        let known = 0..i32::try_from(topics.len()).unwrap_or(i32::MAX);
        let named = numbers.iter().flatten().all(|number| number.is_some_and(|number| known.contains(&number)));
        if topics.is_empty() || !named {
            return Err("a row names no topic".to_owned());
        }
        Ok(Self {
            numbers,
            keys: bytes("key")?,
            values: bytes("value")?,
            partitions: int32("partition")?,
            timestamps: column("timestamp").map(millis).transpose()?,
            headers: column("headers").map(|array| Headers::of(array)).transpose()?,
            targets: None,
            order: None,
            spans: None,
            arranged: false,
            len: batch.num_rows(),
            place: 0,
            topics,
        })
    }

    fn row(&self, place: usize) -> usize {
        self.order.as_ref().map_or(place, |order| order[place])
    }

    fn topic(&self, row: usize) -> usize {
        self.numbers.as_ref().map_or(0, |numbers| usize::try_from(numbers.value(row)).unwrap_or(0))
    }

    fn key_and_value(&self, row: usize) -> (Option<&[u8]>, Option<&[u8]>) {
        (self.keys.as_ref().and_then(|keys| keys.get(row)), self.values.as_ref().and_then(|values| values.get(row)))
    }

    fn has_only_payloads(&self) -> bool {
        self.timestamps.is_none() && self.headers.is_none()
    }

    /// Choose the order of the rows.
    fn arrange(&mut self, producer: &Producer) {
        self.targets = self.known_partitions(producer);
        self.spans = self.spans_around(|row| producer.may_refuse(self.bytes(row)));
        if self.numbers.is_some() || self.targets.is_some() {
            let mut order: Vec<usize> = (0..self.len).collect();
            order.sort_by_key(|row| self.run(*row)); // rows of one partition keep their order
            self.order = Some(order);
        }
    }

    /// Return what the rows that are produced together have in common.
    fn run(&self, row: usize) -> (usize, usize, i32) {
        (self.spans.as_ref().map_or(0, |spans| spans[row]), self.topic(row), self.target(row))
    }

    fn spans_around(&self, is_alone: impl Fn(usize) -> bool) -> Option<Vec<usize>> {
        let mut span = 0;
        let spans = (0..self.len).map(|row| {
            let alone = usize::from(is_alone(row));
            span += 2 * alone;
            span - alone
        });
        let spans: Vec<usize> = spans.collect();
        (span > 0).then_some(spans)
    }

    /// Return the bytes of a row, not less than librdkafka counts of key, value and headers.
    fn bytes(&self, row: usize) -> usize {
        let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        let (key, value) = self.key_and_value(row);
        let headers = self.headers.as_ref().map_or(0, |Headers { names, values, ranges }| {
            ranges[row].clone().map(|i| length(names.get(i)) + length(values.get(i)) + HEADER_OVERHEAD).sum()
        });
        length(key) + length(value) + headers
    }

    /// Return the partition of each row: the given one, or the one that murmur2 chooses by the key. None if that leaves a row
    /// to librdkafka: its place among the others of its partition is not known. Rows with times and headers are produced one
    /// by one, so it would save nothing for them.
    fn known_partitions(&self, producer: &Producer) -> Option<Vec<i32>> {
        if !self.has_only_payloads() || (self.partitions.is_none() && self.keys.is_none()) {
            return None;
        }
        let counts: Vec<Option<i32>> = self.topics.iter().map(|topic| producer.murmur2_partitions(topic)).collect();
        let target = |row: usize| match self.partitions.as_ref().filter(|given| given.is_valid(row)) {
            Some(given) => Some(given.value(row)),
            None => Some(partition_of(self.keys.as_ref()?.get(row)?, counts[self.topic(row)]?)),
        };
        (0..self.len).map(target).collect()
    }

    fn target(&self, row: usize) -> i32 {
        self.targets.as_ref().map_or(UNASSIGNED, |targets| targets[row])
    }

    /// Produce the rows that were not taken yet, until one is refused: for example because the queue is full.
    ///
    /// # Errors
    /// If a topic cannot be used.
    pub fn produce(&mut self, producer: &Producer, task: u32) -> Result<Option<Stop>, Error> {
        if !self.arranged {
            self.arrange(producer);
            self.arranged = true;
        }
        while self.place < self.len {
            let first = self.row(self.place);
            let (_, number, target) = self.run(first);
            let topic = producer.topic(&self.topics[number])?;
            let others = |place: &usize| self.run(self.row(*place)) != self.run(first);
            let end = (self.place..self.len).find(others).unwrap_or(self.len);
            let all_at_once = self.targets.is_some() || (self.partitions.is_none() && self.has_only_payloads());
            let (taken, stop) = match all_at_once {
                true => self.produce_all(&topic, target, end, task),
                false => self.produce_each(&topic, end, task),
            };
            self.place += taken;
            if let Some(code) = stop {
                return Ok(Some((self.row(self.place), code)));
            }
        }
        Ok(None)
    }

    /// Produce to one topic and partition, and return how many were taken, with the code of the error that stopped it.
    fn produce_all(&self, topic: &ProducerTopic<'_>, target: i32, end: usize, task: u32) -> (usize, Option<i32>) {
        let mut place = self.place;
        while place < end {
            let next = end.min(place + CHUNK);
            let records = (place..next).map(|place| self.key_and_value(self.row(place)));
            if let Some((taken, code)) = topic.produce_all(target, records, task) {
                return (place + taken - self.place, Some(code));
            }
            place = next;
        }
        (end - self.place, None)
    }

    fn produce_each(&self, topic: &ProducerTopic<'_>, end: usize, task: u32) -> (usize, Option<i32>) {
        for place in self.place..end {
            let row = self.row(place);
            let (key, value) = self.key_and_value(row);
            let given = self.partitions.as_ref().filter(|given| given.is_valid(row));
            let times = self.timestamps.as_ref().filter(|times| times.is_valid(row));
            let record = Record {
                key,
                value,
                partition: given.map_or(UNASSIGNED, |given| given.value(row)),
                timestamp_ms: times.map_or(0, |times| times.value(row)),
            };
            let refused = match &self.headers {
                None => topic.produce(&record, std::iter::empty(), task),
                Some(Headers { names, values, ranges }) => {
                    let headers = ranges[row].clone().map(|i| (names.get(i).unwrap_or_default(), values.get(i)));
                    topic.produce(&record, headers, task)
                }
            };
            if let Err(code) = refused {
                return (place - self.place, Some(code));
            }
        }
        (end - self.place, None)
    }
}
