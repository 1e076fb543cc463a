//! The Python module: thin, and without a decision of its own. `dynamic_kafka.native` is the one that imports it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_pyarrow::PyArrowType;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::calls::{Batch, guarded, locked, refused};
use crate::columns::{Column, Columns, Problem};
use crate::consumer::{self, Failure, Span};
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::librdkafka::{self, Report, Token, producer};
use crate::producer::{self as rows, Stop};

/// The version of this interface. `dynamic_kafka.native` takes only its own.
const INTERFACE: u32 = 15;

type Range = (String, i32, i64, i64);
type Run = (String, i32, usize, Option<i64>);
/// Errors (code and text), lines of the log, the last statistics, and whether a token is wanted.
type Reports = (Vec<(i32, String)>, Vec<String>, Option<String>, bool);
/// Of a task: its number, how many records, and of the first one the code, topic, partition and size of the key.
type Failures = (u32, u64, i32, String, i32, Option<usize>);

/// Return confluent-kafka's exception, which is what Python's side expects of a client.
fn raised(py: Python<'_>, error: &librdkafka::Error) -> PyErr {
    let made = || -> PyResult<PyErr> {
        let module = py.import("confluent_kafka")?;
        let flags = error.flags;
        let said = (error.code, &error.text, flags.fatal, flags.retriable, flags.requires_abort);
        let inner = module.getattr("KafkaError")?.call1(said)?;
        Ok(PyErr::from_value(module.getattr("KafkaException")?.call1((inner,))?))
    };
    made().unwrap_or_else(|other| other)
}

/// Return the error of a record, or of a cluster if no record is known.
fn record_error(py: Python<'_>, cluster: &str, problem: Problem) -> PyErr {
    let made = || -> PyResult<PyErr> {
        let errors = py.import("dynamic_kafka.errors")?;
        let about = PyDict::new(py);
        about.set_item("cluster_id", cluster)?;
        let Some((topic, partition, offset)) = problem.place else {
            let words = format!("Cluster '{cluster}': {}", problem.reason);
            return Ok(PyErr::from_value(errors.getattr("DynamicKafkaError")?.call((words,), Some(&about))?));
        };
        about.set_item("topic", topic)?;
        about.set_item("partition", partition)?;
        about.set_item("offset", offset)?;
        Ok(PyErr::from_value(errors.getattr("RecordError")?.call((problem.reason,), Some(&about))?))
    };
    made().unwrap_or_else(|other| other)
}

/// The result of a fetch.
#[pyclass(frozen, module = "dynamic_kafka._kernel")]
struct Fetched {
    #[pyo3(get)]
    positions: Vec<(String, i32, i64)>,
    #[pyo3(get)]
    records: usize,
    #[pyo3(get)]
    events: Vec<consumer::Event>,
    #[pyo3(get)]
    is_empty: bool,
    cluster: String,
    columns: Mutex<Option<Columns>>,
}

#[pymethods]
impl Fetched {
    /// Return what the records are of: topic, partition, number of records, and the time of the last one in milliseconds if
    /// it has one. Nothing is left to return after `batch`.
    fn runs(&self) -> Vec<Run> {
        let columns = locked(&self.columns);
        let runs = columns.iter().flat_map(Columns::runs);
        runs.map(|(topic, partition, records, time_ms)| (topic.to_owned(), partition, records, time_ms)).collect()
    }

    /// Return the records as a batch without those of some topics; None if none is left, or if it was called before.
    ///
    /// Raises:
    ///     RecordError: If a record's time does not fit.
    fn batch(&self, py: Python<'_>, without: Vec<String>) -> PyResult<Option<Batch>> {
        let Some(columns) = locked(&self.columns).take() else { return Ok(None) };
        let batch = guarded(py, || columns.finish(&without))?;
        batch
            .map(|batch| batch.map(|batch| Batch { batch }))
            .map_err(|problem| record_error(py, &self.cluster, problem))
    }
}

/// A consumer of ranges.
#[pyclass(frozen, module = "dynamic_kafka._kernel")]
struct Consumer {
    consumer: Mutex<Option<consumer::Consumer>>,
}

impl Consumer {
    /// Call a function without the GIL.
    fn detached<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut consumer::Consumer) -> Result<T, librdkafka::Error> + Send,
    ) -> PyResult<T> {
        let closed = || librdkafka::Error::new(librdkafka::INVALID_ARG, "the consumer is closed");
        guarded(py, || locked(&self.consumer).as_mut().ok_or_else(closed).and_then(call))?
            .map_err(|error| raised(py, &error))
    }
}

#[pymethods]
impl Consumer {
    /// Make a consumer from librdkafka's properties. With `wants_tokens` it reports when it wants a token.
    #[new]
    fn new(py: Python<'_>, properties: Vec<(String, String)>, wants_tokens: bool) -> PyResult<Self> {
        let made =
            guarded(py, || consumer::Consumer::new(&properties, wants_tokens))?.map_err(|error| raised(py, &error))?;
        Ok(Self { consumer: Mutex::new(Some(made)) })
    }

    /// Fetch these ranges (topic, partition, position, end), and no others, into these columns.
    fn assign(&self, py: Python<'_>, ranges: Vec<Range>, columns: Vec<String>, cluster: &str) -> PyResult<()> {
        let wanted = columns
            .iter()
            .map(|name| Column::named(name).ok_or_else(|| refused(format!("no column '{name}'"))))
            .collect::<PyResult<Vec<_>>>()?;
        self.detached(py, |consumer| consumer.assign(&ranges, wanted, cluster))
    }

    /// Fetch a range from a position on.
    fn seek(&self, py: Python<'_>, topic: &str, partition: i32, position: i64, end: i64) -> PyResult<()> {
        self.detached(py, |consumer| consumer.seek(topic, partition, Span::new(position, end)))
    }

    /// Fetch these partitions no more.
    fn stop(&self, py: Python<'_>, partitions: Vec<(String, i32)>) -> PyResult<()> {
        self.detached(py, |consumer| consumer.stop(&partitions))
    }

    /// Return what arrives within a time, up to a whole batch.
    ///
    /// Raises:
    ///     RecordError: If a record cannot be put into a batch.
    fn fetch(&self, py: Python<'_>, timeout_s: f64) -> PyResult<Fetched> {
        let (cluster, fetched) = self.detached(py, |consumer| {
            let fetched = consumer.fetch(seconds(timeout_s));
            Ok((consumer.cluster().to_owned(), fetched))
        })?;
        let fetched = fetched.map_err(|failure| match failure {
            Failure::Client(error) => raised(py, &error),
            Failure::Record(problem) => record_error(py, &cluster, problem),
        })?;
        let named = |(topic, partition, position): (Arc<str>, i32, i64)| (topic.to_string(), partition, position);
        Ok(Fetched {
            positions: fetched.positions.into_iter().map(named).collect(),
            records: fetched.columns.records(),
            events: fetched.events,
            is_empty: fetched.is_empty,
            cluster,
            columns: Mutex::new(Some(fetched.columns)),
        })
    }

    /// Ask a broker about a topic, which the client then knows.
    fn look_up(&self, py: Python<'_>, topic: &str, timeout_s: f64) -> PyResult<()> {
        self.detached(py, |consumer| consumer.client().look_up(topic, seconds(timeout_s)))
    }

    /// Give the client the token that it wants: the text, when it expires in milliseconds since 1970, the principal, and the
    /// extensions by name.
    #[pyo3(signature = (text, expires_at_ms, principal, extensions))]
    fn give_token(
        &self,
        py: Python<'_>,
        text: String,
        expires_at_ms: i64,
        principal: String,
        extensions: Vec<(String, String)>,
    ) -> PyResult<()> {
        let token = Token { text, expires_at_ms, principal, extensions };
        self.detached(py, |client| client.client().give_token(Ok(&token)))
    }

    /// Tell the client that there is no token, with the reason.
    fn refuse_token(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        self.detached(py, |client| client.client().give_token(Err(reason)))
    }

    /// Return the errors (code and text) and the lines of the log since the last call, the last statistics if there are new
    /// ones, and whether a token is wanted.
    fn reports(&self, py: Python<'_>) -> PyResult<Reports> {
        Ok(separated(self.detached(py, |consumer| Ok(consumer.client().reports()))?))
    }

    /// Close the consumer; waits for no broker.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(locked(&self.consumer).take()));
    }
}

/// Rows for one cluster, of which a producer takes one after the other.
#[pyclass(frozen, module = "dynamic_kafka._kernel")]
struct Rows {
    rows: Mutex<rows::Rows>,
}

#[pymethods]
impl Rows {
    /// Take the columns over; nothing is copied. See `sink/records.py`.
    #[new]
    fn new(py: Python<'_>, batch: PyArrowType<RecordBatch>, topics: Vec<String>) -> PyResult<Self> {
        let rows = guarded(py, || rows::Rows::new(&batch.0, topics))?.map_err(refused)?;
        Ok(Self { rows: Mutex::new(rows) })
    }
}

/// A producer. Its calls may come from several threads.
#[pyclass(frozen, module = "dynamic_kafka._kernel")]
struct Producer {
    producer: Mutex<Option<Arc<producer::Producer>>>,
}

impl Producer {
    /// Call a function without the GIL.
    fn detached<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&producer::Producer) -> Result<T, librdkafka::Error> + Send,
    ) -> PyResult<T> {
        let closed = || librdkafka::Error::new(librdkafka::INVALID_ARG, "the producer is closed");
        guarded(py, || {
            let producer = locked(&self.producer).clone();
            producer.ok_or_else(closed).and_then(|producer| call(&producer))
        })?
        .map_err(|error| raised(py, &error))
    }
}

#[pymethods]
impl Producer {
    /// Make a producer from librdkafka's properties. With `wants_tokens` it reports when it wants a token.
    #[new]
    fn new(py: Python<'_>, properties: Vec<(String, String)>, wants_tokens: bool) -> PyResult<Self> {
        let made =
            guarded(py, || producer::Producer::new(&properties, wants_tokens))?.map_err(|error| raised(py, &error))?;
        Ok(Self { producer: Mutex::new(Some(Arc::new(made))) })
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.detached(py, |producer| Ok(producer.waiting()))
    }

    /// Produce rows until all are taken, or until one is refused: then return it with the code of the error.
    fn produce(&self, py: Python<'_>, rows: &Rows, task: u32) -> PyResult<Option<Stop>> {
        self.detached(py, |producer| locked(&rows.rows).produce(producer, task))
    }

    /// Ask a broker for the number of a topic's partitions, and the code of its error.
    fn look_up(&self, py: Python<'_>, topic: &str, timeout_s: f64) -> PyResult<(usize, i32)> {
        self.detached(py, |producer| producer.look_up(topic, seconds(timeout_s)))
    }

    /// Take what librdkafka reports; wait for it up to a time.
    fn poll(&self, py: Python<'_>, timeout_s: f64) -> PyResult<()> {
        self.detached(py, |producer| producer.poll(seconds(timeout_s)))
    }

    /// Wait for acknowledgements up to a time, and return how many are missing.
    fn flush(&self, py: Python<'_>, timeout_s: f64) -> PyResult<usize> {
        self.detached(py, |producer| producer.flush(seconds(timeout_s)))
    }

    /// Drop all records that are not acknowledged.
    fn purge(&self, py: Python<'_>) -> PyResult<()> {
        self.detached(py, |producer| {
            producer.purge();
            Ok(())
        })
    }

    /// Have the cluster fence earlier producers of the transactional id.
    fn init_transactions(&self, py: Python<'_>, timeout_s: f64) -> PyResult<()> {
        self.detached(py, |producer| producer.init_transactions(seconds(timeout_s)))
    }

    /// Begin a transaction.
    fn begin_transaction(&self, py: Python<'_>) -> PyResult<()> {
        self.detached(py, producer::Producer::begin_transaction)
    }

    /// Abort the transaction.
    fn abort_transaction(&self, py: Python<'_>, timeout_s: f64) -> PyResult<()> {
        self.detached(py, |producer| producer.abort_transaction(seconds(timeout_s)))
    }

    /// Give the client the token that it wants: the text, when it expires in milliseconds since 1970, the principal, and the
    /// extensions by name.
    #[pyo3(signature = (text, expires_at_ms, principal, extensions))]
    fn give_token(
        &self,
        py: Python<'_>,
        text: String,
        expires_at_ms: i64,
        principal: String,
        extensions: Vec<(String, String)>,
    ) -> PyResult<()> {
        let token = Token { text, expires_at_ms, principal, extensions };
        self.detached(py, |client| client.give_token(Ok(&token)))
    }

    /// Tell the client that there is no token, with the reason.
    fn refuse_token(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        self.detached(py, |client| client.give_token(Err(reason)))
    }

    /// Return the errors (code and text) and the lines of the log since the last call, the last statistics if there are new
    /// ones, and whether a token is wanted.
    fn reports(&self, py: Python<'_>) -> PyResult<Reports> {
        Ok(separated(self.detached(py, |producer| Ok(producer.take_reports()))?))
    }

    /// Return the records that were not acknowledged since the last call, by task.
    fn failures(&self, py: Python<'_>) -> PyResult<Vec<Failures>> {
        let found = self.detached(py, |producer| Ok(producer.take_failures()))?;
        let flat = |found: producer::Failures| {
            let first = found.first;
            (found.task, found.count, first.code, first.topic, first.partition, first.key_bytes)
        };
        Ok(found.into_iter().map(flat).collect())
    }

    /// Close the producer; waits for no broker.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(locked(&self.producer).take()));
    }
}

/// Return a time; librdkafka counts milliseconds in 31 bits. What is no number is no time at all.
fn seconds(time: f64) -> Duration {
    const MOST_S: f64 = (i32::MAX / 1000) as f64;
    Duration::try_from_secs_f64(time.clamp(0.0, MOST_S)).unwrap_or_default()
}

fn separated(reports: Vec<Report>) -> Reports {
    let (mut errors, mut lines, mut statistics, mut is_token_wanted) = (Vec::new(), Vec::new(), None, false);
    for report in reports {
        match report {
            Report::Failed(error) => errors.push((error.code, error.text)),
            Report::Logged(level, facility, text) => lines.push(format!("{facility} [{level}] {text}")),
            Report::Statistics(text) => statistics = Some(text),
            Report::TokenWanted => is_token_wanted = true,
        }
    }
    (errors, lines, statistics, is_token_wanted)
}

/// Load librdkafka from a file, if it has this version.
///
/// Raises:
///     RuntimeError: If it cannot be loaded or used, with the reason.
#[pyfunction]
fn load_librdkafka(path: &str, version: &str) -> PyResult<()> {
    librdkafka::load(path, version).map_err(PyRuntimeError::new_err)
}

/// The native kernel.
#[pymodule]
fn _kernel(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE", INTERFACE)?;
    module.add("BATCH_RECORDS", consumer::BATCH_RECORDS)?;
    module.add("BATCH_BYTES", consumer::BATCH_BYTES)?;
    module.add("DAMAGED", consumer::DAMAGED)?;
    module.add("__version__", env!("CARGO_PKG_VERSION").replace('-', ""))?; // as Python writes it
    module.add_function(wrap_pyfunction!(load_librdkafka, module)?)?;
    module.add_class::<Batch>()?;
    module.add_class::<Fetched>()?;
    module.add_class::<Consumer>()?;
    module.add_class::<Decoder>()?;
    module.add_class::<Encoder>()?;
    module.add_class::<Rows>()?;
    module.add_class::<Producer>()
}
