//! What is before a message of Confluent's serializers, or in a header of its record: the id of its schema, and the message
//! indexes, which lead to its type in the schema (`formats/protobuf/message_header.py`).

use super::wire::{Irregular, Regular, Wire, zigzag};
use crate::schema_ids::{GUID_BYTES, ID_BYTES, Key, NoKey, hex, id_size};

/// The most bytes of a header that are shown, apart from the id.
const SHOWN: usize = 2 * GUID_BYTES;

/// Return the id of a message with its message indexes, and the message itself.
#[inline]
pub(super) fn key<'a>(message: &'a [u8], header: Option<&[u8]>) -> Result<(Key, &'a [u8]), NoKey> {
    if let Some(header) = header {
        return Ok((key_of_header(header)?, message));
    }
    match message {
        // The usual case: the first message of the schema.
        [0, a @ ..0x80, b, c, d, 0, body @ ..] => Ok((Key::Id(u32::from_be_bytes([*a, *b, *c, *d])), body)),
        [0, ..0x80, _, _, _, indexes @ ..] => {
            let size = ID_BYTES + size_of_indexes(indexes).map_err(|_| NoKey::Foreign)?;
            Ok((Key::Header(message[..size].to_vec()), &message[size..]))
        }
        _ => Err(NoKey::Foreign),
    }
}

fn key_of_header(header: &[u8]) -> Result<Key, NoKey> {
    let ids = id_size(header)?;
    let size = size_of_indexes(&header[ids..]).map_err(|_| {
        let shown = hex(&header[..header.len().min(SHOWN)]);
        NoKey::Header(format!("its header with a schema id, 0x{shown}, has no message indexes").into())
    })?;
    Ok(Key::Header(header[..ids + size].to_vec()))
}

/// Return the number of bytes of the message indexes at the beginning of some bytes. Their number comes first.
fn size_of_indexes(bytes: &[u8]) -> Regular<usize> {
    let mut wire = Wire { rest: bytes };
    let count = zigzag(wire.varint()?);
    if count < 0 {
        return Err(Irregular);
    }
    for _ in 0..count {
        wire.varint()?;
    }
    Ok(bytes.len() - wire.rest.len())
}
