//! Values that are written as texts: dates, times, timestamps and decimal numbers.
//!
//! Each function takes the common form only, and returns None for all others.

const SECONDS_A_DAY: i64 = 86_400;

/// Return the days since 1970 of a date as in `2020-12-31`, from the year 1 on.
pub(crate) fn date(text: &[u8]) -> Option<i32> {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = *text else {
        return None;
    };
    let year = two(y1, y2)? * 100 + two(y3, y4)?;
    let (month, day) = (two(m1, m2)?, two(d1, d2)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i32::from(leap),
        1..=12 => 31,
        _ => return None,
    };
    if year == 0 || day == 0 || day > days {
        return None;
    }
    // Count years from March on, so that the leap day is the last one.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    Some(y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day - 1 - 719_468)
}

/// Return the nanoseconds since midnight of a time as in `23:59:59` or `23:59:59.123`, with at most `digits` behind the point.
pub(crate) fn time(text: &[u8], digits: usize) -> Option<i64> {
    let [h1, h2, b':', m1, m2, b':', s1, s2, ref rest @ ..] = *text else {
        return None;
    };
    let (hour, minute, second) = (two(h1, h2)?, two(m1, m2)?, two(s1, s2)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut nanos = 0;
    if let [b'.', fraction @ ..] = rest {
        if fraction.is_empty() || fraction.len() > digits.min(9) {
            return None;
        }
        for &digit in fraction {
            nanos = nanos * 10 + i64::from(one(digit)?);
        }
        nanos *= 10_i64.pow(9 - fraction.len() as u32);
    } else if !rest.is_empty() {
        return None;
    }
    Some(i64::from(hour * 3600 + minute * 60 + second) * 1_000_000_000 + nanos)
}

/// Return the microseconds since 1970 of a time as in `2020-12-31 23:59:59.123`, also with `T` between date and time.
pub(crate) fn timestamp(text: &[u8]) -> Option<i64> {
    let Some((day, [b' ' | b'T', time_of_day @ ..])) = text.split_at_checked(10) else {
        return None;
    };
    let seconds = i64::from(date(day)?) * SECONDS_A_DAY;
    Some(seconds * 1_000_000 + time(time_of_day, 9)? / 1000)
}

/// Return the microseconds since 1970 of an instant as in `2020-12-31T23:59:59.123+01:00`. Seconds and the minutes of the zone
/// may be missing. Digits of less than a microsecond are cut.
pub(crate) fn zoned_timestamp(text: &[u8]) -> Option<i64> {
    let at = text.iter().rposition(|byte| matches!(byte, b'Z' | b'+' | b'-')).filter(|at| *at > 10)?;
    let (local, zone) = text.split_at(at);
    let offset = match *zone {
        [b'Z'] => 0,
        [sign, h1, h2] => signed(sign, two(h1, h2)?, 0)?,
        [sign, h1, h2, m1, m2] | [sign, h1, h2, b':', m1, m2] => signed(sign, two(h1, h2)?, two(m1, m2)?)?,
        _ => return None,
    };
    let end = local.iter().position(|byte| *byte == b'.').map_or(local.len(), |point| local.len().min(point + 10));
    if !local[end..].iter().all(u8::is_ascii_digit) {
        return None;
    }
    let found = match local.len() {
        16 => timestamp(&[local, b":00"].concat())?, // without seconds
        _ => timestamp(&local[..end])?,
    };
    Some(found - offset * 1_000_000)
}

/// Return the seconds of a zone.
fn signed(sign: u8, hours: i32, minutes: i32) -> Option<i64> {
    if hours > 23 || minutes > 59 || sign == b'Z' {
        return None;
    }
    let seconds = i64::from(hours * 3600 + minutes * 60);
    Some(if sign == b'-' { -seconds } else { seconds })
}

/// Return the unscaled value of a number as in `-12.34`; it fits the precision and the scale without rounding.
pub(crate) fn decimal(text: &[u8], precision: u8, scale: i8) -> Option<i128> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let point = digits.iter().position(|&c| c == b'.');
    let (whole, fraction) = match point {
        Some(at) => (&digits[..at], &digits[at + 1..]),
        None => (digits, &[][..]),
    };
    let (precision, scale) = (usize::from(precision), scale as usize);
    if whole.is_empty() || (point.is_some() && fraction.is_empty()) || fraction.len() > scale {
        return None;
    }
    let significant = whole.iter().position(|&c| c != b'0').map_or(0, |at| whole.len() - at);
    if significant + scale > precision || whole.len() > 38 {
        return None;
    }
    let mut value: i128 = 0;
    for part in [whole, fraction] {
        // 18 digits fit into 64 bits, where a multiplication is cheaper.
        for chunk in part.chunks(18) {
            let mut number: i64 = 0;
            for &digit in chunk {
                number = number * 10 + i64::from(one(digit)?);
            }
            value = value * 10_i128.pow(chunk.len() as u32) + i128::from(number);
        }
    }
    value *= 10_i128.pow((scale - fraction.len()) as u32);
    Some(if negative { -value } else { value })
}

#[inline]
fn one(digit: u8) -> Option<i32> {
    let value = digit.wrapping_sub(b'0');
    if value > 9 { None } else { Some(i32::from(value)) }
}

#[inline]
fn two(tens: u8, ones: u8) -> Option<i32> {
    Some(one(tens)? * 10 + one(ones)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_counted_from_1970() {
        for (text, days) in [
            ("1970-01-01", 0),
            ("1969-12-31", -1),
            ("2000-02-29", 11_016),
            ("2020-12-31", 18_627),
            ("0001-01-01", -719_162),
            ("9999-12-31", 2_932_896),
        ] {
            assert_eq!(date(text.as_bytes()), Some(days), "{text}");
        }
        for text in [
            "2021-02-29",
            "1900-02-29",
            "2020-13-01",
            "2020-00-01",
            "2020-01-00",
            "0000-01-01",
            "2020-1-01",
            "",
            "2020-04-31",
        ] {
            assert_eq!(date(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn times_have_at_most_the_digits_of_their_type() {
        assert_eq!(time(b"23:59:59", 0), Some(86_399_000_000_000));
        assert_eq!(time(b"00:00:00.12", 3), Some(120_000_000));
        for text in ["24:00:00", "23:60:00", "23:59:60", "1:00:00", "01:00", "01:00:00.", "01:00:00.1234", "01:00:00Z"]
        {
            assert_eq!(time(text.as_bytes(), 3), None, "{text}");
        }
    }

    #[test]
    fn timestamps_are_in_microseconds() {
        assert_eq!(timestamp(b"1970-01-01 00:00:01"), Some(1_000_000));
        assert_eq!(timestamp(b"1969-12-31T23:59:59.999999999"), Some(-1));
        for text in ["1970-01-01", "1970-01-01 00:00:00Z", "1970-01-01_00:00:00", ""] {
            assert_eq!(timestamp(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn instants_have_a_zone() {
        for (text, micros) in [
            ("1970-01-01T00:00:00.000001Z", 1),
            ("1970-01-01T01:00:00+01:00", 0),
            ("1970-01-01 01:30+0130", 0),
            ("1969-12-31T23:00:00.9999999999-01", 999_999),
        ] {
            assert_eq!(zoned_timestamp(text.as_bytes()), Some(micros), "{text}");
        }
        for text in [
            "1970-01-01T00:00:00",
            "1970-01-01Z",
            "1970-01-01T00:00:00.1x2345678901Z",
            "1970-01-01T00:00:00+24:00",
            "1970-01-01T00:00:00+1:00",
            "1970-01-01T00:00:00ZZ",
            "1970-01-01T00Z",
            "Z",
            "",
        ] {
            assert_eq!(zoned_timestamp(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn decimals_fit_without_rounding() {
        assert_eq!(decimal(b"-12.3", 10, 2), Some(-1230));
        assert_eq!(decimal(b"0.00", 2, 2), Some(0));
        assert_eq!(decimal(b"-0", 2, 2), Some(0));
        assert_eq!(decimal(&[b'9'; 38], 38, 0), Some(10_i128.pow(38) - 1));
        for text in ["1.234", "100000000", "1e3", "", "-", ".5", "5.", "+1", "1.2.3", "١"] {
            assert_eq!(decimal(text.as_bytes(), 10, 2), None, "{text}");
        }
    }
}
