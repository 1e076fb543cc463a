//! What is wrong with a value, by the fields in it.

use std::collections::BTreeMap;

use crate::fault::Failure;

const MOST_NAMED: usize = 10;

/// What is wrong with a value; mostly nothing.
///
/// All elements of an array, and all values of a map, are one here. So it is not larger than the type of the value, and nothing
/// has to be left out that an error of the message would hang on.
#[derive(Default)]
pub(super) struct Wrong(Option<Box<Parts>>);

#[derive(Default)]
struct Parts {
    /// The value itself does not fit.
    misfit: bool,
    /// The value itself is missing.
    missing: bool,
    /// What is wrong within it: by the places of its fields, with their names.
    fields: BTreeMap<usize, (Box<str>, Parts)>,
}

impl Wrong {
    /// Return that a value does not fit.
    #[cold]
    pub(super) fn misfit() -> Self {
        Self(Some(Box::new(Parts { misfit: true, ..Parts::default() })))
    }

    /// Return that a value is missing.
    #[cold]
    pub(super) fn missing() -> Self {
        Self(Some(Box::new(Parts { missing: true, ..Parts::default() })))
    }

    /// Return whether nothing is wrong.
    #[inline]
    pub(super) fn is_nothing(&self) -> bool {
        self.0.is_none()
    }

    /// Return what is wrong; nothing is wrong any longer.
    #[inline]
    pub(super) fn take(&mut self) -> Self {
        Self(self.0.take())
    }

    /// Add what is wrong with another value, which is in the same place.
    #[cold]
    pub(super) fn add(&mut self, other: Self) {
        match (&mut self.0, other.0) {
            (_, None) => {}
            (None, other) => self.0 = other,
            (Some(parts), Some(other)) => parts.add(*other),
        }
    }

    /// Add what is wrong with a field.
    #[cold]
    pub(super) fn add_field(&mut self, place: usize, name: &str, wrong: Self) {
        let Some(parts) = wrong.0 else { return };
        let fields = &mut self.0.get_or_insert_default().fields;
        fields.entry(place).or_insert_with(|| (name.into(), Parts::default())).1.add(*parts);
    }

    /// Forget what is wrong with a field.
    #[cold]
    pub(super) fn forget_field(&mut self, place: usize) {
        let Some(parts) = &mut self.0 else { return };
        parts.fields.remove(&place);
        if !parts.misfit && !parts.missing && parts.fields.is_empty() {
            self.0 = None;
        }
    }

    /// Return the error of a message with which this is wrong.
    pub(super) fn checked(&self) -> Result<(), Failure> {
        let Some(parts) = &self.0 else { return Ok(()) };
        let misfits = parts.paths(|parts| parts.misfit);
        if !misfits.is_empty() {
            return Err(Failure::Message(format!("It does not fit the columns: {}", misfits.join(", "))));
        }
        let missing = parts.paths(|parts| parts.missing);
        Err(Failure::Message(format!("It lacks the field '{}'", missing.first().map_or("", |path| path))))
    }
}

impl Parts {
    fn add(&mut self, other: Self) {
        self.misfit |= other.misfit;
        self.missing |= other.missing;
        for (place, (name, parts)) in other.fields {
            self.fields.entry(place).or_insert_with(|| (name, Self::default())).1.add(parts);
        }
    }

    /// Return the paths of the first parts that are as wanted.
    fn paths(&self, is_wanted: fn(&Self) -> bool) -> Vec<String> {
        let mut found = Vec::new();
        self.find(is_wanted, &mut Vec::new(), &mut found);
        found
    }

    fn find<'a>(&'a self, is_wanted: fn(&Self) -> bool, path: &mut Vec<&'a str>, found: &mut Vec<String>) {
        if found.len() < MOST_NAMED && is_wanted(self) {
            found.push(path.join("."));
        }
        for (name, parts) in self.fields.values() {
            path.push(name);
            parts.find(is_wanted, path, found);
            path.pop();
        }
    }
}
