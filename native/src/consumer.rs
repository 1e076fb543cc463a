//! Fetching of ranges: what the contract of `source/executor/fetcher.py` says, on one client.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dynamic_kafka_decode::caught;

use crate::columns::{Column, Columns, Problem, Record};
use crate::librdkafka::{Client, Error, Message, Messages, PARTITION_EOF, Partition};

/// The most records of a batch.
pub const BATCH_RECORDS: usize = 20_000;
/// The most bytes of a batch's keys, values and headers, unless it has only one record.
pub const BATCH_BYTES: usize = 16 << 20;
/// The most messages that are taken from librdkafka at once: they stay in the processor's cache until they are copied.
const CHUNK: usize = 1_000;
/// What a record may have, before one was seen: Kafka's default for the largest. The first chunk of a batch is as small.
const RECORD_BYTES: usize = 1 << 20;
/// The errors of records that cannot be decoded: _BAD_MSG, _BAD_COMPRESSION, CORRUPT_MESSAGE.
pub const DAMAGED: [i32; 3] = [-199, -198, 2];

impl Record for Message<'_> {
    fn offset(&self) -> i64 {
        Message::offset(self)
    }
    fn key(&self) -> Option<&[u8]> {
        Message::key(self)
    }
    fn value(&self) -> Option<&[u8]> {
        Message::value(self)
    }
    fn timestamp(&self) -> (i64, i32) {
        Message::timestamp(self)
    }
    fn leader_epoch(&self) -> Option<i32> {
        Message::leader_epoch(self)
    }
    fn for_each_header(&self, each: impl FnMut(&str, Option<&[u8]>)) -> Result<(), String> {
        Message::for_each_header(self, each)
    }
}

/// What is left of a range: the offsets from `position` to before `end`.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// The next offset.
    pub position: i64,
    /// The offset behind the range.
    pub end: i64,
    is_damaged: bool,
    has_moved: bool,
}

impl Span {
    /// Return the span of these offsets.
    pub fn new(position: i64, end: i64) -> Self {
        Self { position, end, is_damaged: false, has_moved: false }
    }

    fn left(&self) -> i64 {
        self.end - self.position
    }

    fn is_finished(&self) -> bool {
        self.position >= self.end
    }

    fn move_to(&mut self, position: i64) {
        self.position = position.min(self.end);
        self.has_moved = true;
    }
}

/// An error about a partition: topic, partition, offset, code and text.
pub type Event = (String, i32, i64, i32, String);

/// The result of a fetch, as in `source/executor/fetcher.py`.
pub struct Fetched {
    /// The ranges that have moved: topic, partition and position.
    pub positions: Vec<(Arc<str>, i32, i64)>,
    /// The records.
    pub columns: Columns,
    /// The errors.
    pub events: Vec<Event>,
    /// True if nothing has arrived.
    pub is_empty: bool,
}

/// Why a fetch failed.
#[derive(Debug)]
pub enum Failure {
    /// librdkafka refuses something.
    Client(Error),
    /// There is something wrong with a record.
    Record(Problem),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

/// The ranges that are fetched, by topic and partition.
type Spans = HashMap<Arc<str>, HashMap<i32, Span>>;

/// A consumer of ranges.
pub struct Consumer {
    client: Arc<Client>,
    /// What has arrived and did not fit into the last batch.
    arrived: Messages,
    spans: Spans,
    wanted: Vec<Column>,
    cluster: Arc<str>,
    bytes_per_record: usize,
}

impl Consumer {
    /// Make a consumer that fetches nothing yet.
    ///
    /// # Errors
    /// If librdkafka does not accept the properties.
    pub fn new(properties: &[(String, String)], wants_tokens: bool) -> Result<Self, Error> {
        let client = Arc::new(Client::new(properties, wants_tokens)?);
        Ok(Self {
            arrived: Messages::none(&client),
            client,
            spans: Spans::new(),
            wanted: Vec::new(),
            cluster: Arc::from(""),
            bytes_per_record: RECORD_BYTES,
        })
    }

    /// Return the name of the cluster.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Return the client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Fetch these ranges (topic, partition, position, end) and no others, into these columns.
    ///
    /// # Errors
    /// If librdkafka refuses it.
    pub fn assign(
        &mut self,
        ranges: &[(String, i32, i64, i64)],
        wanted: Vec<Column>,
        cluster: &str,
    ) -> Result<(), Error> {
        self.spans.clear();
        self.arrived = Messages::none(&self.client);
        for (topic, partition, position, end) in ranges {
            self.set(topic, *partition, Span::new(*position, *end));
        }
        self.wanted = wanted;
        self.cluster = Arc::from(cluster);
        let partitions: Vec<Partition<'_>> =
            ranges.iter().map(|(topic, partition, position, _)| (&**topic, *partition, *position)).collect();
        self.client.assign(&partitions)
    }

    /// Fetch a range from a position on.
    ///
    /// # Errors
    /// If librdkafka refuses it.
    pub fn seek(&mut self, topic: &str, partition: i32, span: Span) -> Result<(), Error> {
        self.arrived.forget(topic, partition);
        self.set(topic, partition, span);
        self.client.remove(&[(topic, partition, -1)])?;
        self.client.add(&[(topic, partition, span.position)])
    }

    /// Fetch these partitions no more.
    ///
    /// # Errors
    /// If librdkafka refuses it.
    pub fn stop(&mut self, partitions: &[(String, i32)]) -> Result<(), Error> {
        let known: Vec<Partition<'_>> = partitions
            .iter()
            .filter(|(topic, partition)| {
                self.spans.get_mut(&**topic).is_some_and(|found| found.remove(partition).is_some())
            })
            .map(|(topic, partition)| (&**topic, *partition, -1))
            .collect();
        self.spans.retain(|_, found| !found.is_empty());
        // The assignment of the last one ends with the task.
        if known.is_empty() || self.spans.is_empty() { Ok(()) } else { self.client.remove(&known) }
    }

    /// Return what arrives within a time, up to a whole batch.
    ///
    /// # Errors
    /// If librdkafka refuses to end a range, or if a record cannot be put into a batch.
    pub fn fetch(&mut self, timeout: Duration) -> Result<Fetched, Failure> {
        let began = Instant::now();
        let mut columns = Columns::new(&self.wanted, &self.cluster);
        let mut events = Vec::new();
        let mut is_empty = true;
        loop {
            if self.arrived.is_empty() {
                let count = self.room(&columns);
                if count == 0 {
                    break;
                }
                self.arrived = self.client.consume(count, Duration::ZERO);
                if self.arrived.is_empty() {
                    let left = timeout.saturating_sub(began.elapsed());
                    if left.is_zero() {
                        break;
                    }
                    self.arrived = self.client.consume(1, left);
                }
            }
            is_empty &= self.arrived.is_empty();
            let took = caught(|| take(&self.arrived, &mut self.spans, &mut columns, &mut events));
            let count =
                took.unwrap_or_else(|panic| Err(columns.problem(usize::MAX, panic))).map_err(Failure::Record)?;
            self.arrived.release(count);
            // What is left did not fit.
            if !events.is_empty() || !self.arrived.is_empty() || began.elapsed() >= timeout {
                break;
            }
        }
        if is_empty {
            self.move_to_positions_of_client()?;
        }
        if columns.records() > 0 {
            self.bytes_per_record = columns.bytes() / columns.records();
        }
        let positions = self.moved();
        let finished: Vec<_> = positions
            .iter()
            .filter(|(topic, partition, _)| self.spans[topic][partition].is_finished())
            .map(|(topic, partition, _)| (topic.to_string(), *partition))
            .collect();
        self.stop(&finished)?;
        Ok(Fetched { positions, columns, events, is_empty })
    }

    fn set(&mut self, topic: &str, partition: i32, span: Span) {
        self.spans.entry(Arc::from(topic)).or_default().insert(partition, span);
    }

    /// Return how many messages to take next: what is left of the ranges, of the batch's records and of its bytes.
    fn room(&self, columns: &Columns) -> usize {
        let left: i64 = self.spans.values().flat_map(HashMap::values).map(Span::left).sum();
        let records = BATCH_RECORDS.saturating_sub(columns.records());
        let bytes = BATCH_BYTES.saturating_sub(columns.bytes());
        if left <= 0 || records == 0 || bytes == 0 {
            return 0;
        }
        let fitting = match columns.records() {
            0 => BATCH_BYTES / self.bytes_per_record.max(1),
            count => bytes / (columns.bytes() / count).max(1),
        };
        fitting.clamp(1, CHUNK).min(records).min(usize::try_from(left).unwrap_or(CHUNK))
    }

    /// Move the ranges to their ends that the client has passed: the rest of a range may contain no records.
    fn move_to_positions_of_client(&mut self) -> Result<(), Error> {
        let asked: Vec<Partition<'_>> = self
            .spans
            .iter()
            .flat_map(|(topic, found)| found.keys().map(move |partition| (&**topic, *partition, -1)))
            .collect();
        let positions = self.client.positions(&asked)?;
        let passed: Vec<_> =
            asked.iter().zip(positions).map(|(tp, position)| (tp.0.to_owned(), tp.1, position)).collect();
        for (topic, partition, position) in passed {
            let span = self.spans.get_mut(&*topic).and_then(|found| found.get_mut(&partition));
            if let Some(span) = span.filter(|span| position >= span.end) {
                span.move_to(position);
            }
        }
        Ok(())
    }

    /// Return the positions that have moved since the last call.
    fn moved(&mut self) -> Vec<(Arc<str>, i32, i64)> {
        let mut moved = Vec::new();
        for (topic, found) in &mut self.spans {
            for (partition, span) in found {
                if std::mem::take(&mut span.has_moved) {
                    moved.push((Arc::clone(topic), *partition, span.position));
                }
            }
        }
        moved
    }
}

/// Put the records within the ranges into the columns, and move the positions. Return how many messages were taken: all, or
/// those in front of the first one that does not fit.
fn take(
    messages: &Messages,
    spans: &mut Spans,
    columns: &mut Columns,
    events: &mut Vec<Event>,
) -> Result<usize, Problem> {
    let mut current: Option<(Message<'_>, Option<Span>)> = None;
    let mut last: Option<Message<'_>> = None;
    let mut taken = 0;
    for message in messages.iter() {
        let same = current.as_ref().is_some_and(|(first, _)| first.is_of_partition_of(&message));
        if !same || message.error().is_some() {
            store(current.take(), spans);
            end_run(last.take(), columns);
        }
        if let Some(error) = message.error() {
            note(&message, error, spans, events);
            taken += 1;
            continue;
        }
        let (_, span) = current.get_or_insert_with(|| {
            let topic = message.topic();
            let known = spans.get_key_value(&*topic);
            let span = known.and_then(|(_, found)| found.get(&message.partition())).copied();
            if let (Some((topic, _)), Some(_)) = (known, span) {
                columns.begin_run(topic, message.partition());
            }
            (message, span)
        });
        // None: fetched before the range was finished. Behind damage: it would hide that records are missing.
        if let Some(span) = span.as_mut().filter(|span| !span.is_damaged) {
            let offset = message.offset();
            if offset >= span.position && !span.is_finished() {
                if offset < span.end {
                    let weight = columns.weight(&message).map_err(|reason| Problem {
                        place: Some((message.topic(), message.partition(), offset)),
                        reason,
                    })?;
                    let is_full = columns.records() == BATCH_RECORDS || columns.bytes() + weight > BATCH_BYTES;
                    if is_full && columns.records() > 0 {
                        break;
                    }
                    columns.push(&message, weight);
                    last = Some(message);
                }
                span.move_to(offset + 1);
            }
        }
        taken += 1;
    }
    store(current, spans);
    end_run(last, columns);
    Ok(taken)
}

/// Note the time of the last record of a run. Only that one is asked for its time, unless the times are wanted.
fn end_run(last: Option<Message<'_>>, columns: &mut Columns) {
    if let Some((time_ms, kind)) = last.map(|message| message.timestamp()) {
        columns.end_run((kind > 0).then_some(time_ms));
    }
}

fn store(current: Option<(Message<'_>, Option<Span>)>, spans: &mut Spans) {
    let Some((first, Some(span))) = current else { return };
    let place = spans.get_mut(&*first.topic()).and_then(|found| found.get_mut(&first.partition()));
    if let Some(place) = place {
        *place = span;
    }
}

fn note(message: &Message<'_>, error: Error, spans: &mut Spans, events: &mut Vec<Event>) {
    let (topic, partition, offset) = (message.topic(), message.partition(), message.offset());
    let span = spans.get_mut(&*topic).and_then(|found| found.get_mut(&partition));
    if error.code == PARTITION_EOF {
        if let Some(span) = span.filter(|span| !span.is_damaged && offset >= span.end && !span.is_finished()) {
            span.move_to(offset);
        }
        return;
    }
    if let Some(span) = span.filter(|_| DAMAGED.contains(&error.code)) {
        span.is_damaged = true;
    }
    events.push((topic, partition, offset, error.code, error.text));
}
