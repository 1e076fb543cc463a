//! What all calls from Python have in common: locks, errors, and what is handed over.

use std::sync::{Mutex, MutexGuard, PoisonError};

use arrow_array::{RecordBatch, StructArray, ffi};
use dynamic_kafka_decode::{Key, caught};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Return the error of an argument that is not accepted.
pub(crate) fn refused(error: impl ToString) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Call a function without the GIL. If it panics, the error is an ordinary one of Python.
pub(crate) fn guarded<T: Send>(py: Python<'_>, call: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| caught(call)).map_err(|reason| {
        let made = || -> PyResult<PyErr> {
            let errors = py.import("dynamic_kafka.errors")?;
            let (first, rest) = reason.split_at(reason.chars().next().map_or(0, char::len_utf8));
            let words = first.to_uppercase() + rest;
            Ok(PyErr::from_value(errors.getattr("DynamicKafkaError")?.call1((words,))?))
        };
        made().unwrap_or_else(|other| other)
    })
}

/// The id of a schema: a number, or the beginning of a header.
#[derive(FromPyObject, IntoPyObject)]
pub(crate) enum SchemaId {
    Id(u32),
    Header(Vec<u8>),
}

impl From<SchemaId> for Key {
    fn from(id: SchemaId) -> Self {
        match id {
            SchemaId::Id(id) => Self::Id(id),
            SchemaId::Header(header) => Self::Header(header),
        }
    }
}

impl From<Key> for SchemaId {
    fn from(key: Key) -> Self {
        match key {
            Key::Id(id) => Self::Id(id),
            Key::Header(header) => Self::Header(header),
        }
    }
}

/// A batch, which pyarrow takes over by the Arrow C data interface.
#[pyclass(frozen, module = "dynamic_kafka._kernel")]
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
