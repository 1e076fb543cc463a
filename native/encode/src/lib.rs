//! Arrow columns to Kafka messages: a struct array in, a message for each row out.
//!
//! All formats are encoded here alone: each row has a message, or an error with its column and its reason.
//!
//! There is no I/O and no `unsafe` here.

pub mod avro;
mod columns;
pub mod csv;
mod fault;
pub mod json;
mod numbers;
pub mod protobuf;
mod spec;
mod text;
mod types;

use arrow_array::{Array, BinaryArray, StructArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer};

use columns::Column;

pub use spec::Spec;
use types::Type;
pub use types::Unsupported;

/// Why a row has no message: Arrow counts the bytes of a batch's messages in 31 bits.
const TOO_LONG: &str = "is longer than a message can be, or does not fit into 2 GiB with the messages before it";

/// The messages of a batch.
#[derive(Debug)]
pub struct Encoded {
    /// A message for each row; null for a row that is null or has an error.
    pub messages: BinaryArray,
    /// The rows that cannot be encoded: which one, its column, and the reason.
    pub errors: Vec<(usize, String, String)>,
}

/// Turns the rows of one batch after the other into messages.
pub struct Encoder {
    columns: Type,
    format: Format,
}

enum Format {
    Json(json::Writer),
    Csv(csv::Writer),
    Avro(avro::Writer),
    Protobuf(protobuf::Writer),
}

impl Encoder {
    /// Return an encoder.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the format or the type of a column is not encoded natively.
    pub fn new(spec: &Spec) -> Result<Self, Unsupported> {
        let format = match &spec.format {
            spec::Format::Json(style) => Format::Json(json::Writer::new(&spec.columns, *style)?),
            spec::Format::Csv(dialect) => Format::Csv(csv::Writer::new(&spec.columns, dialect)?),
            spec::Format::Protobuf(plan) => Format::Protobuf(protobuf::Writer::new(&spec.columns, plan)?),
            spec::Format::Avro(plan) => Format::Avro(avro::Writer::new(plan)?),
        };
        Ok(Self { columns: spec.columns.clone(), format })
    }

    /// Return a message for each row, all of which begin with `prefix`.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the rows have other columns than the spec.
    pub fn encode(&self, rows: &StructArray, prefix: &[u8]) -> Result<Encoded, Unsupported> {
        let column = Column::of(&self.columns, rows)?;
        let mut data = Vec::with_capacity(rows.len() * (prefix.len() + 64));
        let mut ends: Vec<i32> = Vec::with_capacity(rows.len() + 1);
        let mut valid = NullBufferBuilder::new(rows.len());
        let mut errors = Vec::new();
        ends.push(0);
        for row in 0..rows.len() {
            let begin = data.len();
            let mut written = false;
            if column.is_valid(row) {
                data.extend_from_slice(prefix);
                let found = match &self.format {
                    Format::Json(writer) => writer.write(&column, row, &mut data),
                    Format::Csv(writer) => writer.write(&column, row, &mut data),
                    Format::Protobuf(writer) => writer.write(&column, row, &mut data),
                    Format::Avro(writer) => writer.write(&column, row, &mut data),
                };
                let error = match found {
                    Err(fault) => Some((row, fault.column(), fault.reason.to_string())),
                    Ok(()) if i32::try_from(data.len()).is_err() => Some((row, String::new(), TOO_LONG.to_owned())),
                    Ok(()) => None,
                };
                written = error.is_none();
                if !written {
                    data.truncate(begin);
                }
                errors.extend(error);
            }
            valid.append(written);
            ends.push(data.len() as i32);
        }
        let messages = BinaryArray::new(OffsetBuffer::new(ends.into()), data.into(), valid.finish());
        Ok(Encoded { messages, errors })
    }
}
