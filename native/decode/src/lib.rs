//! Kafka messages to Arrow columns: bytes in, a struct of the wanted columns out.
//!
//! A decoder reads only what it is certain to read exactly as the expressions do that Spark evaluates without it (the
//! package `dynamic_kafka.formats`). A message with anything else in it is `Left`: the caller keeps its bytes, and Spark
//! decodes that message. So there is one truth, and no message is read in two ways. The documentation of each format's
//! module says what it is certain about.
//!
//! There is no I/O and no `unsafe` here. Damaged and hostile messages cost no more memory than in proportion to their size.

mod columns;
pub mod json;
mod text;

use std::fmt;

use arrow_array::{Array, StructArray};
use arrow_schema::{Field, Fields};

use columns::{Column, Struct, Uncertain, Values};

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

/// A column has a type that the decoder does not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    /// The name and the type of the column.
    pub column: String,
}

impl Unsupported {
    fn of(field: &Field) -> Self {
        Self { column: format!("{} {}", field.name(), field.data_type()) }
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {} cannot be decoded natively", self.column)
    }
}

impl std::error::Error for Unsupported {}

/// Turns messages into the columns of one batch after the other.
pub struct Decoder {
    format: Format,
    rows: Column,
}

enum Format {
    Json(json::Options),
}

impl Decoder {
    /// Return a decoder for the format `json`.
    ///
    /// # Errors
    ///
    /// `Unsupported` if a column has a type that the decoder does not read.
    pub fn json(columns: &Fields, options: json::Options) -> Result<Self, Unsupported> {
        Self::new(columns, Format::Json(options))
    }

    fn new(columns: &Fields, format: Format) -> Result<Self, Unsupported> {
        let values = Values::Struct(Struct::new(columns)?);
        Ok(Self { format, rows: Column::of(values) })
    }

    /// Append a message as one row of the batch; null is a message without a value.
    pub fn append(&mut self, message: Option<&[u8]>) -> Outcome {
        let len = self.rows.len();
        let Values::Struct(columns) = &mut self.rows.values else { unreachable!("rows are structs") };
        let read = match (&self.format, message) {
            (_, None) => Ok(false),
            (Format::Json(options), Some(message)) => json::read(message, columns, options),
        };
        match read {
            Ok(true) => {
                self.rows.valid.append_non_null();
                Outcome::Decoded
            }
            Ok(false) => {
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

    /// Return the rows of the batch, one for each message, and begin the next batch.
    pub fn finish(&mut self) -> StructArray {
        self.rows.finish().as_any().downcast_ref::<StructArray>().expect("rows are structs").clone()
    }
}
