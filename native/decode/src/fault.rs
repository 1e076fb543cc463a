//! Why a message has no row, and why a spec has no decoder.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

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

/// Call a function, and return what a panic in it says, as a clause of an error.
///
/// No panic is known. This is the last resort, so that Python gets an error that names the message.
///
/// # Errors
/// If it panics.
pub fn caught<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        defect(text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words"))
    })
}

/// Return the words of an error that is no fault of the data.
pub fn defect(text: &str) -> String {
    format!("the native kernel failed ({text}); this is a defect of pyspark-dynamic-kafka, please report it")
}
