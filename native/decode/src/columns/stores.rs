//! Where the values of a column are kept. Those of a column that no query uses are counted and not kept.

use std::collections::{HashMap, HashSet};
use std::mem::replace;
use std::ops::Deref;
use std::str::FromStr;

use arrow_buffer::{ArrowNativeType, BooleanBuffer, BooleanBufferBuilder, Buffer, OffsetBuffer, ScalarBuffer};

use crate::fault::Full;

/// The most bytes of text in one column of a batch. Arrow counts them in 31 bits.
const MOST_BYTES: usize = i32::MAX as usize;
const FEW_ENTRIES: usize = 16;

/// Numbers of one size.
pub(crate) struct Numbers<T> {
    values: Vec<T>,
    is_kept: bool,
}

impl<T: ArrowNativeType> Numbers<T> {
    pub(super) fn new(is_kept: bool) -> Self {
        Self { values: Vec::new(), is_kept }
    }

    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        if self.is_kept {
            self.values.push(value);
        }
    }

    /// Append a number by its text, which is known to be one.
    #[inline]
    pub(crate) fn push_text(&mut self, text: &str) -> Option<()>
    where
        T: FromStr,
    {
        if self.is_kept {
            self.values.push(text.parse().ok()?);
        }
        Some(())
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.values.truncate(len);
    }

    /// Return the values. It is empty afterwards, with room for as many again.
    pub(super) fn take(&mut self) -> ScalarBuffer<T> {
        let empty = Vec::with_capacity(self.values.len());
        replace(&mut self.values, empty).into()
    }
}

impl<T> Deref for Numbers<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values
    }
}

/// Booleans, each of a bit.
pub(crate) struct Booleans {
    bits: BooleanBufferBuilder,
    is_kept: bool,
}

impl Booleans {
    pub(super) fn new(is_kept: bool) -> Self {
        Self { bits: BooleanBufferBuilder::new(0), is_kept }
    }

    #[inline]
    pub(crate) fn push(&mut self, value: bool) {
        if self.is_kept {
            self.bits.append(value);
        }
    }

    pub(crate) fn get(&self, index: usize) -> bool {
        self.bits.get_bit(index)
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.bits.truncate(len);
    }

    pub(super) fn take(&mut self) -> BooleanBuffer {
        self.bits.finish()
    }
}

/// Where arrays and maps end among their elements. They are kept in any case: a format looks at the last one.
pub(crate) struct Ends {
    /// How many values were forgotten. They end where the first one of `ends` says.
    forgotten: usize,
    ends: Vec<i32>,
}

impl Ends {
    pub(super) fn new() -> Self {
        Self { forgotten: 0, ends: vec![0] }
    }

    /// Return where the last value ends.
    #[inline]
    pub(crate) fn last(&self) -> usize {
        self.ends[self.ends.len() - 1] as usize
    }

    /// End a value where there are so many elements.
    #[inline]
    pub(crate) fn push(&mut self, elements: usize) -> Result<(), Full> {
        self.ends.push(i32::try_from(elements).map_err(|_| Full)?);
        Ok(())
    }

    /// Append an empty value.
    pub(super) fn push_empty(&mut self) {
        self.ends.push(self.ends[self.ends.len() - 1]);
    }

    /// Give back all values from `len` on, and return how many elements are left.
    pub(super) fn truncate(&mut self, len: usize) -> usize {
        self.ends.truncate(len - self.forgotten + 1);
        self.last()
    }

    /// Forget `len` values, which are all, and their elements.
    pub(super) fn forget(&mut self, len: usize) {
        self.forgotten = len;
        self.ends.truncate(1);
    }

    pub(super) fn take(&mut self) -> OffsetBuffer<i32> {
        OffsetBuffer::new(replace(&mut self.ends, vec![0]).into())
    }
}

/// Texts or byte strings, one after the other.
pub(crate) struct Bytes {
    offsets: Vec<i32>,
    data: Vec<u8>,
    is_kept: bool,
}

impl Bytes {
    pub(super) fn new(is_kept: bool) -> Self {
        Self { offsets: vec![0], data: Vec::new(), is_kept }
    }

    #[inline]
    pub(crate) fn push(&mut self, value: &[u8]) -> Result<(), Full> {
        if !self.is_kept {
            return Ok(());
        }
        self.data.extend_from_slice(value);
        self.end()
    }

    /// Append the value that a function puts after the data. There is none if the function returns None or an error, and then
    /// a part of it may be left for `truncate`.
    #[inline]
    pub(crate) fn push_with<E: From<Full>>(
        &mut self,
        put: impl FnOnce(&mut Vec<u8>) -> Result<Option<()>, E>,
    ) -> Result<Option<()>, E> {
        let found = put(&mut self.data)?;
        if !self.is_kept {
            self.data.clear();
        } else if found.is_some() {
            self.end()?;
        }
        Ok(found)
    }

    fn end(&mut self) -> Result<(), Full> {
        if self.data.len() > MOST_BYTES {
            return Err(Full);
        }
        self.offsets.push(self.data.len() as i32);
        Ok(())
    }

    pub(super) fn push_empty(&mut self) {
        if self.is_kept {
            self.offsets.push(self.data.len() as i32);
        }
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.offsets.truncate(len + 1);
        self.data.truncate(self.offsets[self.offsets.len() - 1] as usize);
    }

    pub(super) fn size_bytes(&self) -> usize {
        4 * self.offsets.len() + self.data.len()
    }

    fn get(&self, index: usize) -> &[u8] {
        &self.data[self.offsets[index] as usize..self.offsets[index + 1] as usize]
    }

    /// Return whether the values from an index on are all different.
    pub(crate) fn are_different(&self, first: usize) -> bool {
        let end = self.offsets.len() - 1;
        if end - first <= FEW_ENTRIES {
            return (first..end).all(|i| (first..i).all(|j| self.get(i) != self.get(j)));
        }
        let mut sorted: Vec<&[u8]> = (first..end).map(|i| self.get(i)).collect();
        sorted.sort_unstable();
        sorted.windows(2).all(|pair| pair[0] != pair[1])
    }

    /// Return, of each value from an index on, the last place.
    pub(crate) fn last_places(&self, first: usize) -> HashSet<usize> {
        let places = first..self.offsets.len() - 1;
        let last: HashMap<&[u8], usize> = places.map(|place| (self.get(place), place)).collect();
        last.into_values().collect()
    }

    pub(super) fn take(&mut self) -> (OffsetBuffer<i32>, Buffer) {
        let data = Vec::with_capacity(self.data.len());
        let mut offsets = Vec::with_capacity(self.offsets.len());
        offsets.push(0);
        let offsets = replace(&mut self.offsets, offsets);
        (OffsetBuffer::new(offsets.into()), replace(&mut self.data, data).into())
    }
}
