//! The encoder of rows for Python.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StructArray};
use arrow_data::ArrayData;
use arrow_pyarrow::PyArrowType;
use arrow_schema::{DataType, Schema};
use dynamic_kafka_encode::{self as encode, Spec};
use pyo3::prelude::*;

use crate::calls::{Batch, guarded, refused};

type Encoded = (Batch, Vec<(usize, String, String)>);

/// Turns rows into messages.
#[pyclass(frozen, module = "dynamic_kafka._kernel")]
pub(crate) struct Encoder {
    encoder: encode::Encoder,
}

#[pymethods]
impl Encoder {
    /// Make an encoder.
    ///
    /// Raises:
    ///     ValueError: If rows cannot be encoded as the spec says.
    #[new]
    fn new(py: Python<'_>, columns: PyArrowType<Schema>, spec: &str) -> PyResult<Self> {
        let made = guarded(py, || Spec::new(spec, &columns.0.fields).and_then(|spec| encode::Encoder::new(&spec)))?;
        Ok(Self { encoder: made.map_err(refused)? })
    }

    /// Return a batch with the messages of rows as its only column, and the errors: the place of a row, its
    /// column and the reason.
    ///
    /// Raises:
    ///     ValueError: If the rows have other columns than the spec.
    fn encode(&self, py: Python<'_>, rows: PyArrowType<ArrayData>, prefix: &[u8]) -> PyResult<Encoded> {
        if !matches!(rows.0.data_type(), DataType::Struct(_)) {
            return Err(refused("the rows are no structs"));
        }
        let encoded = guarded(py, || self.encoder.encode(&StructArray::from(rows.0), prefix))?.map_err(refused)?;
        let messages: ArrayRef = Arc::new(encoded.messages);
        let batch = RecordBatch::try_from_iter_with_nullable([("messages", messages, true)]).map_err(refused)?;
        Ok((Batch { batch }, encoded.errors))
    }
}
