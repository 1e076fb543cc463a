//! Protobuf's wire format: tags, and the values behind them.

use crate::columns::{Certain, Uncertain};

/// A tag or a length of more bytes is damaged, also if its value is small.
const MOST_BYTES_OF_32_BITS: usize = 5;
const FIRST_TIME_US: i64 = -62_135_596_800_000_000;
const LAST_TIME_US: i64 = 253_402_300_799_999_999;

pub(super) const VARINT: u32 = 0;
pub(super) const FIXED64: u32 = 1;
pub(super) const LENGTH: u32 = 2;
pub(super) const FIXED32: u32 = 5;

/// What is left of a message.
pub(super) struct Wire<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Wire<'a> {
    /// Return the number and the wire type of the next field; None at the end.
    #[inline]
    pub(super) fn tag(&mut self) -> Certain<Option<(u32, u32)>> {
        let tag = match *self.rest {
            [] => return Ok(None),
            [byte @ ..0x80, ref rest @ ..] => {
                self.rest = rest;
                u32::from(byte)
            }
            _ => {
                let before = self.rest.len();
                let tag = self.varint()?.try_into().map_err(|_| Uncertain)?;
                if before - self.rest.len() > MOST_BYTES_OF_32_BITS {
                    return Err(Uncertain);
                }
                tag
            }
        };
        if tag < 8 { Err(Uncertain) } else { Ok(Some((tag >> 3, tag & 7))) }
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Certain<u64> {
        if let [byte @ ..0x80, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok((*byte).into());
        }
        let mut value: u64 = 0;
        for (i, &byte) in self.rest.iter().take(10).enumerate() {
            if i == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7F) << (7 * i);
            if byte < 0x80 {
                self.rest = &self.rest[i + 1..];
                return Ok(value);
            }
        }
        Err(Uncertain)
    }

    #[inline]
    pub(super) fn take(&mut self, count: usize) -> Certain<&'a [u8]> {
        let (found, rest) = self.rest.split_at_checked(count).ok_or(Uncertain)?;
        self.rest = rest;
        Ok(found)
    }

    #[inline]
    pub(super) fn bytes(&mut self) -> Certain<&'a [u8]> {
        let before = self.rest.len();
        let count = usize::try_from(self.varint()?).map_err(|_| Uncertain)?;
        if before - self.rest.len() > MOST_BYTES_OF_32_BITS {
            return Err(Uncertain);
        }
        self.take(count)
    }

    #[inline]
    pub(super) fn text(&mut self) -> Certain<&'a [u8]> {
        let text = self.bytes()?;
        std::str::from_utf8(text).map(str::as_bytes).map_err(|_| Uncertain)
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Certain<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| Uncertain)
    }

    pub(super) fn skip(&mut self, wire_type: u32) -> Certain<()> {
        match wire_type {
            VARINT => self.varint().map(|_| ()),
            FIXED64 => self.take(8).map(|_| ()),
            LENGTH => self.bytes().map(|_| ()),
            FIXED32 => self.take(4).map(|_| ()),
            _ => Err(Uncertain),
        }
    }

    /// Return the microseconds since 1970 of a `google.protobuf.Timestamp`.
    pub(super) fn timestamp(&mut self) -> Certain<i64> {
        let (mut seconds, mut nanos) = (0, 0);
        while let Some(tag) = self.tag()? {
            match tag {
                (1, VARINT) => seconds = self.varint()? as i64,
                (2, VARINT) => nanos = self.varint()? as i32,
                (1 | 2, _) => return Err(Uncertain),
                (_, wire_type) => self.skip(wire_type)?,
            }
        }
        let micros = seconds.checked_mul(1_000_000).ok_or(Uncertain)?;
        let micros = micros.checked_add(nanos.div_euclid(1000).into()).ok_or(Uncertain)?;
        if (FIRST_TIME_US..=LAST_TIME_US).contains(&micros) { Ok(micros) } else { Err(Uncertain) }
    }

    /// Skip the header of a schema registry: a byte 0, an id, and message indexes, whose number comes first.
    pub(super) fn header(&mut self) -> Certain<()> {
        let [0, ..0x80, _, _, _] = *self.take(5)? else { return Err(Uncertain) };
        let count = zigzag(self.varint()?);
        if count < 0 {
            return Err(Uncertain);
        }
        for _ in 0..count {
            self.varint()?;
        }
        Ok(())
    }
}

pub(super) fn zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
