//! Times and decimals as Kafka Connect, Debezium and Avro count them.

const NANOS_A_DAY: i64 = 86_400_000_000_000;

/// The least and the most that a value may be.
pub(crate) type Limits = (i64, i64);

/// Return a value in the unit of its column.
#[inline]
pub(crate) fn scaled(value: i64, unit_ns: i64, column_ns: i64) -> Result<i64, Limits> {
    if unit_ns < column_ns {
        return Ok(value.div_euclid(column_ns / unit_ns.max(1)));
    }
    let factor = unit_ns / column_ns;
    // Spark's times begin one later than 64 bits.
    let (least, most) = (i64::MIN.div_euclid(factor) + 1, i64::MAX / factor);
    if (least..=most).contains(&value) { Ok(value * factor) } else { Err((least, most)) }
}

/// Return a time of day in nanoseconds, cut to a number of digits of a second.
#[inline]
pub(crate) fn time(value: i64, unit_ns: i64, digits: usize) -> Result<i64, Limits> {
    let most = (NANOS_A_DAY - 1) / unit_ns;
    if (0..=most).contains(&value) { Ok(cut(value * unit_ns, digits)) } else { Err((0, most)) }
}

/// Return nanoseconds, cut to a number of digits of a second.
#[inline]
pub(crate) fn cut(nanos: i64, digits: usize) -> i64 {
    let unit = 10_i64.pow(9 - digits.min(9) as u32);
    nanos / unit * unit
}

/// Return the number that a two's complement stands for, highest byte first; none if it has more than 128 bits.
pub(crate) fn unscaled(bytes: &[u8]) -> Option<i128> {
    let is_negative = bytes.first().is_some_and(|byte| *byte >= 0x80);
    let (repeated, digits) = bytes.split_at(bytes.len().saturating_sub(16));
    let sign = if is_negative { 0xFF } else { 0 };
    let value = digits.iter().fold(-i128::from(is_negative), |value, &byte| (value << 8) | i128::from(byte));
    (repeated.iter().all(|byte| *byte == sign) && (value < 0) == is_negative).then_some(value)
}
