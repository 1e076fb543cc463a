//! Why a row cannot be written.

use std::borrow::Cow;
use std::sync::Arc;

/// The reason, and where in the row.
pub(crate) struct Fault {
    pub(crate) reason: Cow<'static, str>,
    /// The names of the fields around the value, the innermost first.
    path: Vec<Arc<str>>,
}

pub(crate) type Written = Result<(), Box<Fault>>;

impl Fault {
    #[cold]
    pub(crate) fn is(reason: impl Into<Cow<'static, str>>) -> Box<Self> {
        Box::new(Self { reason: reason.into(), path: Vec::new() })
    }

    #[cold]
    pub(crate) fn plan() -> Box<Self> {
        Self::is("has another type than in the spec; this is a defect of pyspark-dynamic-kafka")
    }

    /// Return the fault of a value in a field.
    #[cold]
    pub(crate) fn within(mut self: Box<Self>, name: &Arc<str>) -> Box<Self> {
        self.path.push(Arc::clone(name));
        self
    }

    /// Return the fault of a value in an element of an array or a map, which has an index.
    #[cold]
    pub(crate) fn at(mut self: Box<Self>, index: usize) -> Box<Self> {
        self.path.push(format!("[{index}]").into());
        self
    }

    /// Return the fault with another reason, which has the column in it.
    #[cold]
    pub(crate) fn because(mut self: Box<Self>, reason: impl FnOnce(&str) -> String) -> Box<Self> {
        self.reason = reason(&self.column()).into();
        self
    }

    /// Return the column.
    pub(crate) fn column(&self) -> String {
        let names: Vec<&str> = self.path.iter().rev().map(|name| &**name).collect();
        names.join(".").replace(".[", "[")
    }
}
