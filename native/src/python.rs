//! The Python module: thin, and without a decision of its own. `dynamic_kafka.native` is the one that imports it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_array::{RecordBatch, StructArray, ffi};
use dynamic_kafka_decode::{Decoder, Spec};
use pyo3::exceptions::{PyOverflowError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::columns::{Column, Columns, Problem};
use crate::consumer::{self, Span};
use crate::encoder::Encoder;
use crate::librdkafka::{self, Report};

/// The version of this interface. `dynamic_kafka.native` takes only its own.
const INTERFACE: u32 = 5;

type Range = (String, i32, i64, i64);
type Reports = (Vec<(i32, String)>, Vec<String>);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Return confluent-kafka's exception, which is what Python's side expects of a client.
fn raised(py: Python<'_>, error: &librdkafka::Error) -> PyErr {
    let made = || -> PyResult<PyErr> {
        let module = py.import("confluent_kafka")?;
        let inner = module.getattr("KafkaError")?.call1((error.code, &error.text))?;
        Ok(PyErr::from_value(module.getattr("KafkaException")?.call1((inner,))?))
    };
    made().unwrap_or_else(|other| other)
}

/// A batch, which pyarrow takes over by the Arrow C data interface.
#[pyclass(frozen, module = "dynamic_kafka_native")]
pub(crate) struct Batch {
    pub(crate) batch: RecordBatch,
}

#[pymethods]
impl Batch {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let _ = requested_schema; // the interface allows to ignore it
        let refused = |error: arrow_schema::ArrowError| PyRuntimeError::new_err(error.to_string());
        let data = arrow_array::Array::into_data(StructArray::from(self.batch.clone()));
        let (array, schema) = ffi::to_ffi(&data).map_err(refused)?;
        let schema = PyCapsule::new_with_value(py, schema, c"arrow_schema")?;
        let array = PyCapsule::new_with_value(py, array, c"arrow_array")?;
        PyTuple::new(py, [schema, array])
    }
}

/// The result of a fetch.
#[pyclass(frozen, module = "dynamic_kafka_native")]
struct Fetched {
    #[pyo3(get)]
    positions: Vec<(String, i32, i64)>,
    #[pyo3(get)]
    records: usize,
    #[pyo3(get)]
    events: Vec<consumer::Event>,
    #[pyo3(get)]
    is_empty: bool,
    #[pyo3(get)]
    unknown_schemas: Vec<u32>,
    columns: Mutex<Option<Columns>>,
}

#[pymethods]
impl Fetched {
    /// Return the records as a batch without those of some topics; None if none is left, or if it was called before.
    ///
    /// Raises:
    ///     OverflowError: If a record's time does not fit: with topic, partition, offset, and the time in milliseconds.
    fn batch(&self, py: Python<'_>, without: Vec<String>) -> PyResult<Option<Batch>> {
        let Some(columns) = locked(&self.columns).take() else { return Ok(None) };
        match py.detach(|| columns.finish(&without)) {
            Ok(batch) => Ok(batch.map(|batch| Batch { batch })),
            Err(Problem::Time(topic, partition, offset, time_ms)) => {
                Err(PyOverflowError::new_err((topic, partition, offset, time_ms)))
            }
            Err(Problem::Arrow(error)) => Err(PyRuntimeError::new_err(error.to_string())),
        }
    }
}

/// A consumer of ranges.
#[pyclass(frozen, module = "dynamic_kafka_native")]
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
        let closed = || librdkafka::Error { code: librdkafka::INVALID_ARG, text: "the consumer is closed".to_owned() };
        py.detach(|| locked(&self.consumer).as_mut().ok_or_else(closed).and_then(call))
            .map_err(|error| raised(py, &error))
    }
}

#[pymethods]
impl Consumer {
    /// Make a consumer from librdkafka's properties.
    #[new]
    fn new(py: Python<'_>, properties: Vec<(String, String)>) -> PyResult<Self> {
        let made = py.detach(|| consumer::Consumer::new(&properties)).map_err(|error| raised(py, &error))?;
        Ok(Self { consumer: Mutex::new(Some(made)) })
    }

    /// Fetch these ranges (topic, partition, position, end), and no others, into these columns. `decode` is the spec of the
    /// column `value_row`.
    #[pyo3(signature = (ranges, columns, cluster, decode=None))]
    fn assign(
        &self,
        py: Python<'_>,
        ranges: Vec<Range>,
        columns: Vec<String>,
        cluster: &str,
        decode: Option<&str>,
    ) -> PyResult<()> {
        let decode = decode.map(Spec::parse).transpose().map_err(|error| PyValueError::new_err(error.to_string()))?;
        let wanted = columns
            .iter()
            .map(|name| Column::named(name).ok_or_else(|| PyValueError::new_err(format!("no column '{name}'"))))
            .collect::<PyResult<Vec<_>>>()?;
        self.detached(py, |consumer| consumer.assign(&ranges, wanted, decode, cluster))
    }

    /// Let the decoder know schemas by their id (see `Fetched.unknown_schemas`); None leaves the messages of a schema.
    fn learn(&self, py: Python<'_>, schemas: Vec<(u32, Option<String>)>) -> PyResult<()> {
        self.detached(py, |consumer| {
            consumer.learn(&schemas);
            Ok(())
        })
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
    fn fetch(&self, py: Python<'_>, timeout_s: f64) -> PyResult<Fetched> {
        let fetched = self.detached(py, |consumer| consumer.fetch(Duration::from_secs_f64(timeout_s.max(0.0))))?;
        let named = |(topic, partition, position): (Arc<str>, i32, i64)| (topic.to_string(), partition, position);
        Ok(Fetched {
            positions: fetched.positions.into_iter().map(named).collect(),
            records: fetched.columns.records(),
            events: fetched.events,
            is_empty: fetched.is_empty,
            unknown_schemas: fetched.columns.unknown_schemas(),
            columns: Mutex::new(Some(fetched.columns)),
        })
    }

    /// Ask a broker about a topic, which the client then knows.
    fn look_up(&self, py: Python<'_>, topic: &str, timeout_s: f64) -> PyResult<()> {
        let timeout = Duration::from_secs_f64(timeout_s.max(0.0));
        self.detached(py, |consumer| consumer.client().look_up(topic, timeout))
    }

    /// Return the errors (code and text) and the lines of the log since the last call.
    fn reports(&self, py: Python<'_>) -> PyResult<Reports> {
        let reports = self.detached(py, |consumer| Ok(consumer.client().reports()))?;
        let (mut errors, mut lines) = (Vec::new(), Vec::new());
        for report in reports {
            match report {
                Report::Failed(error) => errors.push((error.code, error.text)),
                Report::Logged(level, facility, text) => lines.push(format!("{facility} [{level}] {text}")),
            }
        }
        Ok((errors, lines))
    }

    /// Close the consumer; waits for no broker.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(locked(&self.consumer).take()));
    }
}

/// Load librdkafka from a file, and return its version.
#[pyfunction]
fn load_librdkafka(path: &str) -> PyResult<String> {
    librdkafka::load(path).map_err(PyRuntimeError::new_err)
}

/// Return whether values can be decoded as a spec says.
#[pyfunction]
fn can_decode(spec: &str) -> bool {
    Spec::parse(spec).is_ok_and(|spec| Decoder::new(&spec).is_ok())
}

/// The native kernel.
#[pymodule]
fn dynamic_kafka_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE", INTERFACE)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(load_librdkafka, module)?)?;
    module.add_function(wrap_pyfunction!(can_decode, module)?)?;
    module.add_class::<Batch>()?;
    module.add_class::<Fetched>()?;
    module.add_class::<Consumer>()?;
    module.add_class::<Encoder>()
}
