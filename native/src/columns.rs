//! From messages to Arrow columns, as `rows.py` declares them.
//!
//! A record's key and value are copied once, into the buffer of their column. What is the same for a whole run of records of
//! one partition is kept once for the run until the batch is finished.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, Int32Builder, ListBuilder, StringBuilder, StructBuilder};
use arrow_array::{
    Array, ArrayRef, BinaryArray, Int32Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
    TimestampMicrosecondArray, make_array,
};
use arrow_buffer::{Buffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_data::transform::MutableArrayData;
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema};
use dynamic_kafka_decode::{caught, defect};

/// A record, as the columns need it.
pub trait Record {
    /// Return the offset.
    fn offset(&self) -> i64;
    /// Return the key.
    fn key(&self) -> Option<&[u8]>;
    /// Return the value.
    fn value(&self) -> Option<&[u8]>;
    /// Return the time in milliseconds, and its type: 0 for none, 1 for the creation, 2 for the append.
    fn timestamp(&self) -> (i64, i32);
    /// Return the epoch of the leader; None if it is unknown.
    fn leader_epoch(&self) -> Option<i32>;
    /// Call a function with name and value of each header, in order.
    ///
    /// # Errors
    /// What is wrong if the headers cannot be read, as a clause.
    fn for_each_header(&self, each: impl FnMut(&str, Option<&[u8]>)) -> Result<(), String>;
}

/// The most bytes of a batch: Arrow counts the bytes of a column in 31 bits.
const MOST_BYTES: usize = i32::MAX as usize;

/// A column of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// The key.
    Key,
    /// The value.
    Value,
    /// The topic.
    Topic,
    /// The partition.
    Partition,
    /// The offset.
    Offset,
    /// The time, in microseconds.
    Timestamp,
    /// -1 for no time, 0 for the time of creation, 1 for the time of the append.
    TimestampType,
    /// The name of the cluster.
    Cluster,
    /// The headers; null if there are none.
    Headers,
    /// The epoch of the leader.
    LeaderEpoch,
}

impl Column {
    /// Return the column with this name.
    pub fn named(name: &str) -> Option<Self> {
        use Column::*;
        let all = [Key, Value, Topic, Partition, Offset, Timestamp, TimestampType, Cluster, Headers, LeaderEpoch];
        all.into_iter().find(|column| column.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Value => "value",
            Self::Topic => "topic",
            Self::Partition => "partition",
            Self::Offset => "offset",
            Self::Timestamp => "timestamp",
            Self::TimestampType => "timestampType",
            Self::Cluster => "cluster",
            Self::Headers => "headers",
            Self::LeaderEpoch => "leader_epoch",
        }
    }
}

/// Why there is no batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The topic, the partition and the offset of the record; for a problem of the whole batch, those of its first one. None if
    /// there is no record.
    pub place: Option<(String, i32, i64)>,
    /// What is wrong, as a clause.
    pub reason: String,
}

/// Records of one partition that follow each other.
#[derive(Debug)]
struct Run {
    topic: Arc<str>,
    partition: i32,
    records: usize,
    last_ms: Option<i64>,
}

/// Optional bytes of records: a binary column.
struct Bytes {
    values: Vec<u8>,
    ends: Vec<i32>,
    nulls: NullBufferBuilder,
}

impl Bytes {
    fn new() -> Self {
        Self { values: Vec::new(), ends: vec![0], nulls: NullBufferBuilder::new(0) }
    }

    fn push(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => {
                self.values.extend_from_slice(bytes);
                self.nulls.append_non_null();
            }
            None => self.nulls.append_null(),
        }
        self.ends.push(self.values.len() as i32); // it fits: see `weight`
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(std::mem::take(&mut self.ends)));
        let values = Buffer::from_vec(std::mem::take(&mut self.values));
        Ok(Arc::new(BinaryArray::try_new(offsets, values, self.nulls.finish())?))
    }
}

/// What a header takes beside its name and its value: so that many empty ones end a batch, too.
const HEADER_BYTES: usize = 8;

/// The fields of a header.
fn header_fields() -> Fields {
    vec![Field::new("key", DataType::Utf8, true), Field::new("value", DataType::Binary, true)].into()
}

/// The columns of a batch while it is filled.
pub struct Columns {
    wanted: Vec<Column>,
    cluster: Arc<str>,
    runs: Vec<Run>,
    records: usize,
    bytes: usize,
    most_bytes: usize,
    keys: Option<Bytes>,
    values: Option<Bytes>,
    offsets: Vec<i64>,
    times: Option<Vec<i64>>,
    time_types: Option<Vec<i32>>,
    epochs: Option<Int32Builder>,
    headers: Option<ListBuilder<StructBuilder>>,
}

impl Columns {
    /// Begin a batch with these columns, of records of this cluster.
    pub fn new(wanted: &[Column], cluster: &Arc<str>) -> Self {
        let has = |column| wanted.contains(&column);
        let headers = || {
            let columns = vec![Box::new(StringBuilder::new()) as _, Box::new(BinaryBuilder::new()) as _];
            let element = Field::new("element", DataType::Struct(header_fields()), true); // as Spark names it
            ListBuilder::new(StructBuilder::new(header_fields(), columns)).with_field(element)
        };
        Self {
            wanted: wanted.to_vec(),
            cluster: Arc::clone(cluster),
            runs: Vec::new(),
            records: 0,
            bytes: 0,
            most_bytes: MOST_BYTES,
            keys: has(Column::Key).then(Bytes::new),
            values: has(Column::Value).then(Bytes::new),
            offsets: Vec::new(), // always: an error names the record
            times: has(Column::Timestamp).then(Vec::new),
            time_types: has(Column::TimestampType).then(Vec::new),
            epochs: has(Column::LeaderEpoch).then(Int32Builder::new),
            headers: has(Column::Headers).then(headers),
        }
    }

    /// Return the number of records.
    pub fn records(&self) -> usize {
        self.records
    }

    /// Return the bytes of keys, values and headers, of those that are wanted.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Return how many bytes a record would add.
    ///
    /// # Errors
    /// If its headers cannot be read, or if it is too large for any batch.
    pub fn weight(&self, record: &impl Record) -> Result<usize, String> {
        let len = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        let mut bytes = if self.keys.is_some() { len(record.key()) } else { 0 };
        bytes += if self.values.is_some() { len(record.value()) } else { 0 };
        if self.headers.is_some() {
            record.for_each_header(|name, value| bytes += HEADER_BYTES + name.len() + len(value))?;
        }
        if bytes > self.most_bytes {
            return Err(format!("the record has {bytes} bytes, and a batch of Arrow has at most {}", self.most_bytes));
        }
        Ok(bytes)
    }

    /// Return the problem of a record of this batch, by its index; the last one stands for those behind it.
    pub fn problem(&self, index: usize, reason: impl Into<String>) -> Problem {
        let index = index.min(self.offsets.len().saturating_sub(1));
        let mut end = 0;
        let run = self.runs.iter().find(|run| {
            end += run.records;
            index < end
        });
        let place = run.zip(self.offsets.get(index));
        Problem {
            place: place.map(|(run, offset)| (run.topic.to_string(), run.partition, *offset)),
            reason: reason.into(),
        }
    }

    /// Add a run of records of one partition: begin it, and then `push` each record.
    pub fn begin_run(&mut self, topic: &Arc<str>, partition: i32) {
        match self.runs.last() {
            Some(run) if run.partition == partition && run.topic == *topic => (),
            _ => self.runs.push(Run { topic: Arc::clone(topic), partition, records: 0, last_ms: None }),
        }
    }

    /// Note the time of the last record of the last run, in milliseconds; None if it has none.
    pub fn end_run(&mut self, time_ms: Option<i64>) {
        if let Some(run) = self.runs.last_mut() {
            run.last_ms = time_ms;
        }
    }

    /// Return the runs: topic, partition, number of records, and the time of the last one.
    pub fn runs(&self) -> impl Iterator<Item = (&str, i32, usize, Option<i64>)> {
        self.runs.iter().filter(|run| run.records > 0).map(|run| (&*run.topic, run.partition, run.records, run.last_ms))
    }

    /// Add a record to the last run. `weight` is what the function of this name has returned for it; together with `bytes`
    /// it is not more than a batch may have.
    pub fn push(&mut self, record: &impl Record, weight: usize) {
        if let Some(run) = self.runs.last_mut() {
            run.records += 1;
        }
        self.records += 1;
        self.bytes += weight;
        self.offsets.push(record.offset()); // first: a problem names the record
        if let Some(keys) = &mut self.keys {
            keys.push(record.key());
        }
        if let Some(values) = &mut self.values {
            values.push(record.value());
        }
        if self.times.is_some() || self.time_types.is_some() {
            let (time_ms, kind) = record.timestamp();
            if let Some(times) = &mut self.times {
                times.push(time_ms);
            }
            if let Some(kinds) = &mut self.time_types {
                kinds.push(kind - 1); // librdkafka: 0 none, 1 create time, 2 append time; Spark and Java: -1, 0, 1
            }
        }
        if let Some(epochs) = &mut self.epochs {
            epochs.append_option(record.leader_epoch());
        }
        if let Some(headers) = &mut self.headers {
            let mut count = 0;
            let read = record.for_each_header(|name, value| {
                count += 1;
                let fields = headers.values();
                if let Some(names) = fields.field_builder::<StringBuilder>(0) {
                    names.append_value(name);
                }
                if let Some(values) = fields.field_builder::<BinaryBuilder>(1) {
                    values.append_option(value);
                }
                fields.append(true);
            });
            debug_assert!(read.is_ok(), "they were read by `weight`");
            headers.append(count > 0);
        }
    }

    /// Return the batch without the records of some topics; None if none is left.
    ///
    /// # Errors
    /// If a record's time does not fit, or if something panics.
    pub fn finish(mut self, without: &[String]) -> Result<Option<RecordBatch>, Problem> {
        let first = self.problem(0, "");
        let made = caught(|| {
            let is_out = |run: &Run| without.iter().any(|topic| **topic == *run.topic);
            let times = self.times.take().map(|times_ms| self.microseconds(times_ms, &is_out)).transpose()?;
            self.batch(times, &is_out).map_err(|error| Problem { reason: defect(&error.to_string()), ..first.clone() })
        });
        made.unwrap_or_else(|reason| Err(Problem { reason, ..first }))
    }

    fn batch(
        &mut self,
        times: Option<ScalarBuffer<i64>>,
        is_out: &impl Fn(&Run) -> bool,
    ) -> Result<Option<RecordBatch>, ArrowError> {
        let mut fields = Vec::with_capacity(self.wanted.len());
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.wanted.len());
        for column in self.wanted.clone() {
            let array: ArrayRef = match column {
                Column::Key => finished(self.keys.as_mut().map(Bytes::finish))?,
                Column::Value => finished(self.values.as_mut().map(Bytes::finish))?,
                Column::Topic => self.topics(),
                Column::Partition => self.partitions(),
                Column::Offset => Arc::new(Int64Array::from(std::mem::take(&mut self.offsets))),
                Column::Timestamp => {
                    let values = times.clone().unwrap_or_else(|| ScalarBuffer::from(Vec::<i64>::new()));
                    Arc::new(TimestampMicrosecondArray::new(values, None).with_timezone("UTC"))
                }
                Column::TimestampType => Arc::new(Int32Array::from(self.time_types.take().unwrap_or_default())),
                Column::Cluster => Arc::new(StringArray::new_repeated(&*self.cluster, self.records)),
                Column::Headers => finished(self.headers.as_mut().map(|list| Ok(Arc::new(list.finish()) as ArrayRef)))?,
                Column::LeaderEpoch => {
                    finished(self.epochs.as_mut().map(|epochs| Ok(Arc::new(epochs.finish()) as ArrayRef)))?
                }
            };
            fields.push(Field::new(column.name(), array.data_type().clone(), true));
            arrays.push(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.records));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?;
        if self.runs.iter().any(is_out) {
            return self.kept(&batch, is_out);
        }
        Ok((self.records > 0).then_some(batch))
    }

    fn kept(&self, batch: &RecordBatch, is_out: &impl Fn(&Run) -> bool) -> Result<Option<RecordBatch>, ArrowError> {
        let mut begin = 0;
        let mut parts = Vec::new();
        for run in &self.runs {
            if !is_out(run) && run.records > 0 {
                parts.push((begin, begin + run.records));
            }
            begin += run.records;
        }
        let left = parts.iter().map(|(begin, end)| end - begin).sum();
        if left == 0 {
            return Ok(None);
        }
        let copy = |array: &ArrayRef| -> Result<ArrayRef, ArrowError> {
            let data = array.to_data();
            let mut copied = MutableArrayData::new(vec![&data], false, left);
            for (begin, end) in &parts {
                copied.try_extend(0, *begin, *end)?;
            }
            Ok(make_array(copied.freeze()))
        };
        let options = RecordBatchOptions::new().with_row_count(Some(left));
        let arrays = batch.columns().iter().map(copy).collect::<Result<_, _>>()?;
        Ok(Some(RecordBatch::try_new_with_options(batch.schema(), arrays, &options)?))
    }

    fn microseconds(&self, times_ms: Vec<i64>, is_out: &impl Fn(&Run) -> bool) -> Result<ScalarBuffer<i64>, Problem> {
        const LIMIT_MS: i64 = i64::MAX / 1000;
        let mut times = times_ms;
        if times.iter().any(|time_ms| !(-LIMIT_MS..=LIMIT_MS).contains(time_ms)) {
            let mut begin = 0;
            for run in &self.runs {
                for (index, time_ms) in times[begin..begin + run.records].iter_mut().enumerate() {
                    if time_ms.checked_mul(1000).is_some() {
                        continue;
                    }
                    if !is_out(run) {
                        return Err(self.problem(
                            begin + index,
                            format!(
                                "the record's timestamp {time_ms} ms does not fit into a Spark timestamp; leave the \
                                 timestamp column out with a schema of your own, or start after this record"
                            ),
                        ));
                    }
                    *time_ms = 0; // left out later
                }
                begin += run.records;
            }
        }
        times.iter_mut().for_each(|time| *time *= 1000);
        Ok(ScalarBuffer::from(times))
    }

    fn topics(&self) -> ArrayRef {
        if let [run] = &*self.runs {
            return Arc::new(StringArray::new_repeated(&*run.topic, self.records));
        }
        let topics = self.runs.iter().flat_map(|run| std::iter::repeat_n(&*run.topic, run.records));
        Arc::new(StringArray::from_iter_values(topics.collect::<Vec<_>>())) // it asks how many they are
    }

    fn partitions(&self) -> ArrayRef {
        let mut values = Vec::with_capacity(self.records);
        for run in &self.runs {
            values.resize(values.len() + run.records, run.partition);
        }
        Arc::new(Int32Array::from(values))
    }
}

/// Return the array of a column that was begun, because it is wanted.
fn finished(array: Option<Result<ArrayRef, ArrowError>>) -> Result<ArrayRef, ArrowError> {
    array.unwrap_or_else(|| Err(ArrowError::InvalidArgumentError("a column was not begun".to_owned())))
}

#[cfg(test)]
mod tests;
