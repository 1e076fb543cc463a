//! Kafka messages to Arrow columns: bytes in, a struct of the wanted columns out.
//!
//! All formats are decoded here alone: each message has a row, or an error with its place and its reason.
//!
//! There is no I/O and no `unsafe` here. Damaged and hostile messages cost no more memory than in proportion to their size.

mod avro;
mod columns;
mod connect;
mod csv;
mod fault;
mod java;
pub mod json;
mod protobuf;
mod schema_ids;
mod spark;
mod spec;
mod text;

use std::sync::Arc;

use arrow_array::builder::{ArrayBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, StructArray};
use arrow_schema::{DataType, Field};

use columns::{Column, Struct, Values};
use fault::Failure;
pub use fault::{Unsupported, caught, defect};
pub use schema_ids::Key;
use schema_ids::Plans;
pub use spec::Spec;

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Its row is in the columns.
    Decoded,
    /// It has no row, and no error: the row is null.
    Null,
    /// It has an error, which is in the columns.
    Failed,
}

/// Turns messages into the columns of one batch after the other.
pub struct Decoder {
    format: Format,
    rows: Column,
    /// The errors, with the places of their messages, ascending.
    errors: Vec<(usize, String)>,
    is_full: bool,
}

#[derive(Debug, Clone)]
enum Format {
    Json(json::Options),
    JsonById(json::Messages),
    Changelog(json::changelog::Envelope),
    Csv(csv::Dialect),
    Avro(Plans<avro::Plan>),
    Protobuf(protobuf::Messages),
}

impl Decoder {
    /// Return a decoder.
    ///
    /// # Errors
    ///
    /// `Unsupported` if a column has a type that the decoder does not read.
    pub fn new(spec: &Spec) -> Result<Self, Unsupported> {
        let rows = Column::of(Values::Struct(Struct::new(&spec.columns, true)?), true);
        Ok(Self { format: spec.format.clone(), rows, errors: Vec::new(), is_full: false })
    }

    /// Append a message as one row of the batch; null is a message without a value.
    pub fn append(&mut self, message: Option<&[u8]>) -> Outcome {
        self.append_with(message, None)
    }

    /// Append a message whose schema's id may be in a header.
    pub fn append_with(&mut self, message: Option<&[u8]>, header: Option<&[u8]>) -> Outcome {
        self.append_by(|format, rows| read(message, header, format, rows))
    }

    fn append_by(&mut self, read: impl FnOnce(&mut Format, &mut Column) -> Result<bool, Failure>) -> Outcome {
        let len = self.rows.len();
        self.rows.begin_message();
        let read = caught(|| read(&mut self.format, &mut self.rows));
        match read.unwrap_or_else(|panic| Err(Failure::Message(panic))) {
            Ok(true) => return Outcome::Decoded,
            Ok(false) => {
                self.rows.truncate(len); // a format may find out late
                self.rows.push_null();
                return Outcome::Null;
            }
            Err(Failure::Message(error)) => {
                self.rows.truncate(len);
                self.fail(error);
            }
            Err(Failure::Full) => {
                self.rows.truncate(len);
                self.is_full = true;
                self.fail("it does not fit into the batch".to_owned());
            }
        }
        Outcome::Failed
    }

    /// Append a message with an error.
    pub fn fail(&mut self, error: String) {
        self.errors.push((self.rows.len(), error));
        let Values::Struct(columns) = &mut self.rows.values else { unreachable!("rows are structs") };
        columns.push_nulls();
        self.rows.valid.append_non_null();
    }

    /// Return the id of a message's schema, if that is not known yet (see `Spec::learn`). The message would have an error.
    pub fn unknown_schema(&mut self, message: Option<&[u8]>, header: Option<&[u8]>) -> Option<Key> {
        match (&mut self.format, message) {
            (Format::Avro(plans), Some(message)) => plans.unknown(message, header),
            (Format::JsonById(messages), Some(message)) => messages.plans.unknown(message, header),
            (Format::Protobuf(messages), Some(message)) => messages.plans.unknown(message, header),
            _ => None,
        }
    }

    /// Return whether a message did not fit into the batch, because a column has as many bytes as Arrow can count. Nothing is
    /// wrong with the message, so the batch is of no use.
    pub fn is_full(&self) -> bool {
        self.is_full
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

    /// Return the rows of the batch, one for each message, and begin the next batch. After the wanted columns they have the
    /// field `__error`: null, or the reason why the message cannot be read. Then the columns are null.
    pub fn finish(&mut self) -> StructArray {
        let len = self.len();
        self.is_full = false;
        match &mut self.format {
            Format::Avro(plans) => plans.forget(),
            Format::JsonById(messages) => messages.plans.forget(),
            Format::Protobuf(messages) => messages.plans.forget(),
            _ => {}
        }
        let (fields, mut arrays, nulls) = self.rows.finish().as_struct().clone().into_parts();
        let mut errors = StringBuilder::with_capacity(len, 0);
        for (place, error) in self.errors.drain(..) {
            errors.append_nulls(place - errors.len());
            errors.append_value(error);
        }
        errors.append_nulls(len - errors.len());
        let errors: ArrayRef = Arc::new(errors.finish());
        arrays.push(errors);
        let error_field = Arc::new(Field::new(spec::ERROR, DataType::Utf8, true));
        StructArray::try_new_with_length(fields.iter().cloned().chain([error_field]).collect(), arrays, nulls, len)
            .expect("a column has as many values as there are messages")
    }
}

/// Append the row of a message, and return whether it has one. If not, a part of the row may be there.
fn read(
    message: Option<&[u8]>,
    header: Option<&[u8]>,
    format: &mut Format,
    rows: &mut Column,
) -> Result<bool, Failure> {
    let Some(message) = message else { return Ok(false) };
    if let Format::Avro(plans) = format {
        return avro::read(message, header, rows, plans).map(|()| true);
    }
    let Values::Struct(columns) = &mut rows.values else { unreachable!("rows are structs") };
    let has_row = match format {
        Format::Json(options) => json::read(message, columns, options)?,
        Format::JsonById(messages) => json::read_registered(message, header, columns, messages)?,
        Format::Changelog(envelope) => json::changelog::read(message, columns, envelope)?,
        Format::Csv(dialect) => csv::read(message, columns, dialect)?,
        Format::Avro(_) => unreachable!("it was read above"),
        Format::Protobuf(messages) => protobuf::read(message, header, columns, messages)?,
    };
    if has_row {
        rows.valid.append_non_null();
    }
    Ok(has_row)
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;
    use arrow_array::types::Int32Type;

    use super::*;

    /// As for a message that is damaged: what it has put into the columns is gone, and the others have their rows.
    #[test]
    fn a_panic_is_the_error_of_its_message() {
        let spec = Spec::new(r#"{"format": "json"}"#, &vec![Field::new("id", DataType::Int32, true)].into()).unwrap();
        let mut decoder = Decoder::new(&spec).unwrap();
        assert_eq!(decoder.append(Some(br#"{"id": 1}"#)), Outcome::Decoded);
        let outcome = decoder.append_by(|format, rows| {
            read(Some(br#"{"id": 2}"#), None, format, rows)?;
            panic!("it was asked for")
        });
        assert_eq!(outcome, Outcome::Failed);
        assert_eq!(decoder.append(Some(br#"{"id": 3}"#)), Outcome::Decoded);
        let rows = decoder.finish();
        let ids = rows.column(0).as_primitive::<Int32Type>();
        assert_eq!(ids.iter().collect::<Vec<_>>(), [Some(1), None, Some(3)]);
        let errors = rows.column(1).as_string::<i32>();
        assert!(errors.value(1).starts_with("the native kernel failed (it was asked for)"), "{}", errors.value(1));
        assert_eq!((errors.null_count(), rows.len()), (2, 3));
    }
}
