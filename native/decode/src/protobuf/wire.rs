//! Protobuf's wire format: tags, and the values after them.

/// A message has a form that a serializer does not write, or is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Irregular;

pub(super) type Regular<T> = Result<T, Irregular>;

/// A tag or a length of more bytes is damaged, also if its value is small.
const MOST_BYTES_OF_32_BITS: usize = 5;
const MOST_BYTES: usize = 10;

pub(super) const VARINT: u32 = 0;
pub(super) const FIXED64: u32 = 1;
pub(super) const LENGTH: u32 = 2;
pub(super) const GROUP: u32 = 3;
pub(super) const END_GROUP: u32 = 4;
pub(super) const FIXED32: u32 = 5;

/// What is left of a message.
#[derive(Clone, Copy)]
pub(super) struct Wire<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Wire<'a> {
    /// Return the number and the wire type of the next field; None at the end.
    #[inline]
    pub(super) fn tag(&mut self) -> Regular<Option<(u32, u32)>> {
        let tag = match *self.rest {
            [] => return Ok(None),
            [byte @ ..0x80, ref rest @ ..] => {
                self.rest = rest;
                u32::from(byte)
            }
            _ => {
                let before = self.rest.len();
                let tag = self.varint()?.try_into().map_err(|_| Irregular)?;
                if before - self.rest.len() > MOST_BYTES_OF_32_BITS {
                    return Err(Irregular);
                }
                tag
            }
        };
        if tag < 8 { Err(Irregular) } else { Ok(Some((tag >> 3, tag & 7))) }
    }

    /// Return a number. Of ten bytes, those bits do not count that are more than 64.
    #[inline]
    pub(super) fn varint(&mut self) -> Regular<u64> {
        if let [byte @ ..0x80, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok((*byte).into());
        }
        let mut value: u64 = 0;
        for (i, &byte) in self.rest.iter().take(MOST_BYTES).enumerate() {
            value |= u64::from(byte & 0x7F) << (7 * i);
            if byte < 0x80 {
                self.rest = &self.rest[i + 1..];
                return Ok(value);
            }
        }
        Err(Irregular)
    }

    #[inline]
    pub(super) fn take(&mut self, count: usize) -> Regular<&'a [u8]> {
        let (found, rest) = self.rest.split_at_checked(count).ok_or(Irregular)?;
        self.rest = rest;
        Ok(found)
    }

    #[inline]
    pub(super) fn bytes(&mut self) -> Regular<&'a [u8]> {
        let before = self.rest.len();
        let count = usize::try_from(self.varint()?).map_err(|_| Irregular)?;
        if before - self.rest.len() > MOST_BYTES_OF_32_BITS {
            return Err(Irregular);
        }
        self.take(count)
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Regular<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| Irregular)
    }

    /// Skip a value, which is not a group.
    pub(super) fn skip(&mut self, wire_type: u32) -> Regular<()> {
        match wire_type {
            VARINT => self.varint().map(|_| ()),
            FIXED64 => self.take(8).map(|_| ()),
            LENGTH => self.bytes().map(|_| ()),
            FIXED32 => self.take(4).map(|_| ()),
            _ => Err(Irregular),
        }
    }

    /// Return the seconds and nanoseconds of a `google.protobuf.Timestamp` or `Duration`.
    pub(super) fn seconds(&mut self) -> Regular<(i64, i32)> {
        let (mut seconds, mut nanos) = (0, 0);
        while let Some(tag) = self.tag()? {
            match tag {
                (1, VARINT) => seconds = self.varint()? as i64,
                (2, VARINT) => nanos = self.varint()? as i32,
                (1 | 2, _) => return Err(Irregular),
                (_, wire_type) => self.skip(wire_type)?,
            }
        }
        Ok((seconds, nanos))
    }
}

pub(super) fn zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Append a number.
pub(super) fn put_varint(value: u64, out: &mut Vec<u8>) {
    let mut rest = value;
    while rest > 0x7F {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}
