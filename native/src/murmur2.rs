//! The partition of a record with a key, as Kafka's Java client and librdkafka's `murmur2_random` choose it.

const SEED: u32 = 0x9747_b28c;
const FACTOR: u32 = 0x5bd1_e995;
const SHIFT: u32 = 24;

/// Return the partition of a key, of so many partitions (at least one).
pub fn partition_of(key: &[u8], partitions: i32) -> i32 {
    (hash(key) & 0x7fff_ffff) as i32 % partitions.max(1)
}

fn hash(key: &[u8]) -> u32 {
    let mut hash = SEED ^ key.len() as u32; // as in Java, where a length is an int
    let mut words = key.chunks_exact(4);
    for word in &mut words {
        let mut mixed = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(FACTOR);
        mixed = (mixed ^ (mixed >> SHIFT)).wrapping_mul(FACTOR);
        hash = hash.wrapping_mul(FACTOR) ^ mixed;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        for (place, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * place);
        }
        hash = hash.wrapping_mul(FACTOR);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(FACTOR);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::{hash, partition_of};

    /// The values of Kafka's Java client for these keys, which librdkafka's own tests have too.
    #[test]
    fn hashes_as_java_does() {
        let known: [(&[u8], u32); 7] = [
            (b"kafka", 0xd067_cf64),
            (b"giberish123456789", 0x8f55_2b0c),
            (b"1234", 0x9fc9_7b14),
            (b"234", 0xe7c0_09ca),
            (b"34", 0x8739_30da),
            (b"4", 0x5a4b_5ca1),
            (b"", 0x106e_08d9),
        ];
        for (key, expected) in known {
            assert_eq!(hash(key), expected, "{}", String::from_utf8_lossy(key));
        }
    }

    #[test]
    fn partitions_are_within_their_number() {
        for n in 0..10_000_u32 {
            let partition = partition_of(&n.to_le_bytes(), 7);
            assert!((0..7).contains(&partition));
        }
    }
}
