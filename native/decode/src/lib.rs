//! Kafka messages to Arrow columns: bytes in, a struct of the wanted columns out.
//!
//! A decoder reads only what it is certain to read exactly as the expressions do that Spark evaluates without it (the
//! package `dynamic_kafka.formats`). A message with anything else in it is `Left`: the caller keeps its bytes, and Spark
//! decodes that message. So there is one truth, and no message is read in two ways. The documentation of each format's
//! module says what it is certain about.
//!
//! There is no I/O and no `unsafe` here. Damaged and hostile messages cost no more memory than in proportion to their size.

pub mod avro;
mod cast;
mod columns;
mod csv;
pub mod json;
mod protobuf;
mod spec;
mod text;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, StructArray, new_null_array};
use arrow_schema::{DataType, Field};

use columns::{Column, Struct, Uncertain, Values};
pub use spec::{Spec, Unsupported};

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Its row is in the columns.
    Decoded,
    /// It has no row, and no error: the row is null.
    Null,
    /// It is left to Spark: the row is null, and its bytes have to be kept.
    Left,
}

/// Turns messages into the columns of one batch after the other.
pub struct Decoder {
    format: Format,
    rows: Column,
}

#[derive(Debug, Clone)]
enum Format {
    Json(json::Options),
    Changelog(json::changelog::Envelope),
    Csv(csv::Dialect),
    Avro(avro::Writers),
    Protobuf(Arc<protobuf::Plan>),
}

impl Decoder {
    /// Return a decoder.
    ///
    /// # Errors
    ///
    /// `Unsupported` if a column has a type that the decoder does not read.
    pub fn new(spec: &Spec) -> Result<Self, Unsupported> {
        let rows = Column::of(Values::Struct(Struct::new(&spec.columns)?));
        Ok(Self { format: spec.format.clone(), rows })
    }

    /// Append a message as one row of the batch; null is a message without a value.
    pub fn append(&mut self, message: Option<&[u8]>) -> Outcome {
        let len = self.rows.len();
        let Values::Struct(columns) = &mut self.rows.values else { unreachable!("rows are structs") };
        let read = match (&mut self.format, message) {
            (_, None) => Ok(false),
            (Format::Json(options), Some(message)) => json::read(message, columns, options),
            (Format::Changelog(envelope), Some(message)) => json::changelog::read(message, columns, envelope),
            (Format::Csv(dialect), Some(message)) => csv::read(message, columns, dialect),
            (Format::Avro(writers), Some(message)) => avro::read(message, columns, writers),
            (Format::Protobuf(plan), Some(message)) => protobuf::read(message, columns, plan),
        };
        match read {
            Ok(true) => {
                self.rows.valid.append_non_null();
                Outcome::Decoded
            }
            Ok(false) => {
                self.rows.truncate(len); // a format may find out late
                self.rows.push_null();
                Outcome::Null
            }
            Err(Uncertain) => {
                self.rows.truncate(len);
                self.rows.push_null();
                Outcome::Left
            }
        }
    }

    /// Return the id of a message's schema, if that is not known yet (see `Spec::learn`). The message would be left.
    pub fn unknown_schema(&mut self, message: Option<&[u8]>) -> Option<u32> {
        match (&mut self.format, message) {
            (Format::Avro(writers), Some(message)) => writers.unknown(message),
            _ => None,
        }
    }

    /// Return the number of messages in the batch.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Return whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Return about how many bytes the columns of the batch take.
    pub fn size_bytes(&self) -> usize {
        self.rows.size_bytes()
    }

    /// Return the rows of the batch, one for each message, and begin the next batch. Behind the wanted columns they have the
    /// field `__error`, which is null.
    pub fn finish(&mut self) -> StructArray {
        let len = self.len();
        let (fields, mut arrays, nulls) = self.rows.finish().as_struct().clone().into_parts();
        let error: ArrayRef = new_null_array(&DataType::Utf8, len);
        let error_field = Arc::new(Field::new(spec::ERROR, DataType::Utf8, true));
        arrays.push(error);
        StructArray::try_new_with_length(fields.iter().cloned().chain([error_field]).collect(), arrays, nulls, len)
            .expect("a column has as many values as there are messages")
    }
}
