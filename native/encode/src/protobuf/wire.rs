//! Protobuf's wire format: tags, numbers and lengths.

use std::cmp::Ordering;

use crate::fault::Written;

pub(super) const DELIMITED: u32 = 2;
pub(super) const GROUP: u32 = 3;
pub(super) const END_GROUP: u32 = 4;

#[inline]
pub(super) fn varint(value: u64, out: &mut Vec<u8>) {
    let mut rest = value;
    while rest > 0x7F {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[inline]
pub(super) fn tag(number: u32, wire_type: u32, out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | u64::from(wire_type), out);
}

pub(super) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

pub(super) fn text(value: &[u8], out: &mut Vec<u8>) {
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// Compare two texts in the order in which Google's library writes a map: a text before those that it begins with.
pub(super) fn compared_texts(one: &[u8], other: &[u8]) -> Ordering {
    let common = one.len().min(other.len());
    one[..common].cmp(&other[..common]).then(other.len().cmp(&one.len()))
}

/// Append the length of what is written, and then that.
pub(super) fn delimited(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Written) -> Written {
    let place = out.len();
    out.push(0); // most lengths have one byte
    write(out)?;
    let mut length = Vec::new();
    varint((out.len() - place - 1) as u64, &mut length);
    out.splice(place..=place, length);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_has_as_many_bytes_as_it_needs() {
        for (size, prefix) in [(0, &[0][..]), (127, &[127]), (128, &[0x80, 1]), (20_000, &[0xA0, 0x9C, 1])] {
            let mut out = vec![9];
            let written = delimited(&mut out, |out| {
                out.resize(out.len() + size, 7);
                Ok(())
            });
            assert!(written.is_ok());
            assert_eq!(out, [&[9][..], prefix, &vec![7; size]].concat());
        }
    }
}
