//! Why a message has no row, and why a spec has no decoder.

use std::fmt;

/// A column of the batch has as many bytes as Arrow can count. Nothing is wrong with the message.
#[derive(Debug)]
pub(crate) struct Full;

/// Why a message has no row.
pub(crate) enum Failure {
    /// What is wrong with it.
    Message(String),
    /// Nothing is wrong with it, but the row does not fit into the batch.
    Full,
}

impl From<Full> for Failure {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

/// A spec cannot be read, or asks for something that is not decoded natively.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported(pub String);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}
