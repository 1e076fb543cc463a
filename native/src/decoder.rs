//! The decoder of messages for Python.

use std::sync::{Arc, Mutex};

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch, StructArray, make_array};
use arrow_data::ArrayData;
use arrow_pyarrow::PyArrowType;
use arrow_schema::{DataType, Schema};
use dynamic_kafka_decode::{self as decode, Spec};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

use crate::calls::{Batch, SchemaId, guarded, locked, refused};

/// Turns messages into rows.
#[pyclass(frozen, module = "dynamic_kafka._kernel")]
pub(crate) struct Decoder {
    spec: Spec,
    /// None after a panic: then the next batch has a new one.
    decoder: Mutex<Option<decode::Decoder>>,
}

#[pymethods]
impl Decoder {
    /// Make a decoder.
    ///
    /// Raises:
    ///     ValueError: If messages cannot be decoded to these columns as the spec says.
    #[new]
    fn new(py: Python<'_>, columns: PyArrowType<Schema>, spec: &str) -> PyResult<Self> {
        let made = guarded(py, || {
            let spec = Spec::new(spec, &columns.0.fields)?;
            decode::Decoder::new(&spec).map(|decoder| (spec, decoder))
        })?;
        let (spec, decoder) = made.map_err(refused)?;
        Ok(Self { spec, decoder: Mutex::new(Some(decoder)) })
    }

    /// Return the ids of schemas that are not known yet. `headers` has the ids that are not before the messages.
    ///
    /// Raises:
    ///     ValueError: If the messages are not binary.
    #[pyo3(signature = (messages, headers=None))]
    fn unknown_schemas(
        &self,
        py: Python<'_>,
        messages: PyArrowType<ArrayData>,
        headers: Option<PyArrowType<ArrayData>>,
    ) -> PyResult<Vec<SchemaId>> {
        let (messages, headers) = (binary(messages)?, headers.map(binary).transpose()?);
        let found = self.with(py, |decoder| {
            let all = 0..messages.len();
            let unknown = all.filter_map(|i| decoder.unknown_schema(value(&messages, i), header(&headers, i)));
            unknown.collect::<std::collections::HashSet<_>>()
        })?;
        Ok(found.into_iter().map(SchemaId::from).collect())
    }

    /// Let the decoder know schemas by their id; see `Spec::learn`.
    ///
    /// Raises:
    ///     ValueError: If one of them is not a schema.
    fn learn(&self, py: Python<'_>, schemas: Vec<(SchemaId, String)>) -> PyResult<()> {
        guarded(py, || schemas.into_iter().try_for_each(|(id, schema)| self.spec.learn(id.into(), &schema)))?
            .map_err(refused)
    }

    /// Return a batch with the rows of messages as its only column. `errors` has the places of messages that are known to be
    /// unreadable, ascending, and the reasons.
    ///
    /// Raises:
    ///     ValueError: If the messages are not binary.
    ///     OverflowError: If their rows have more bytes in a column than Arrow can count.
    #[pyo3(signature = (messages, headers=None, errors=vec![]))]
    fn decode(
        &self,
        py: Python<'_>,
        messages: PyArrowType<ArrayData>,
        headers: Option<PyArrowType<ArrayData>>,
        errors: Vec<(usize, String)>,
    ) -> PyResult<Batch> {
        let (messages, headers) = (binary(messages)?, headers.map(binary).transpose()?);
        let rows = self.with(py, |decoder| {
            let mut errors = errors.into_iter().peekable();
            for i in 0..messages.len() {
                match errors.next_if(|(place, _)| *place == i) {
                    Some((_, error)) => decoder.fail(error),
                    None => {
                        decoder.append_with(value(&messages, i), header(&headers, i));
                    }
                }
            }
            (!decoder.is_full()).then(|| decoder.finish())
        })?;
        let rows: StructArray =
            rows.ok_or_else(|| PyOverflowError::new_err("the rows have more than 2 GiB in a column"))?;
        let rows: ArrayRef = Arc::new(rows);
        Ok(Batch { batch: RecordBatch::try_from_iter_with_nullable([("rows", rows, true)]).map_err(refused)? })
    }
}

impl Decoder {
    fn with<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&mut decode::Decoder) -> T + Send) -> PyResult<T> {
        let called = guarded(py, || {
            let mut held = locked(&self.decoder);
            let mut decoder = held.take().map_or_else(|| decode::Decoder::new(&self.spec), Ok)?;
            let result = call(&mut decoder);
            *held = Some(decoder);
            Ok(result)
        })?;
        called.map_err(|error: decode::Unsupported| refused(error))
    }
}

fn binary(array: PyArrowType<ArrayData>) -> PyResult<BinaryArray> {
    if *array.0.data_type() != DataType::Binary {
        return Err(refused(format!("the messages are {}", array.0.data_type())));
    }
    Ok(make_array(array.0).as_binary::<i32>().clone())
}

fn value(array: &BinaryArray, index: usize) -> Option<&[u8]> {
    array.is_valid(index).then(|| array.value(index))
}

fn header(headers: &Option<BinaryArray>, index: usize) -> Option<&[u8]> {
    headers.as_ref().and_then(|headers| value(headers, index))
}
