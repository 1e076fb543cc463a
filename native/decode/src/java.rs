//! Values from texts, as Java's classes parse them for Flink: numbers, bytes, dates and times.
//!
//! All take time in proportion to the length of the text.

use std::ops::RangeInclusive;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::columns::Values;
use crate::text;

/// The first and the last day, and microsecond, of the years 1 to 9999.
pub(crate) const DAYS: RangeInclusive<i64> = -719_162..=2_932_896;
pub(crate) const MICROS: RangeInclusive<i64> = -719_162 * 86_400_000_000..=2_932_897 * 86_400_000_000 - 1;
const MICROS_A_SECOND: i64 = 1_000_000;
const SECONDS_A_DAY: i64 = 86_400;
const MOST_DIGITS: usize = 9;

/// Return a text without blanks and control characters around it, as `String.trim` does.
#[inline]
pub(crate) fn trim(text: &str) -> &str {
    match text.as_bytes() {
        [first, .., last] if *first > b' ' && *last > b' ' => text,
        _ => text.trim_matches(|c| c <= ' '),
    }
}

/// Append the number, boolean or date that a text stands for; none if it stands for no value of the type.
pub(crate) fn append(text: &str, values: &mut Values) -> Option<()> {
    match values {
        Values::Boolean(v) => v.push(trim(text).eq_ignore_ascii_case("true")),
        Values::Int8(v) => v.push(trim(text).parse().ok()?),
        Values::Int16(v) => v.push(trim(text).parse().ok()?),
        Values::Int32(v) => v.push(trim(text).parse().ok()?),
        Values::Int64(v) => v.push(trim(text).parse().ok()?),
        Values::Float32(v) => v.push(float(text, hexadecimal::<24, -149>)?),
        Values::Float64(v) => v.push(float(text, hexadecimal::<53, -1074>)?),
        Values::Decimal(v, precision, scale) => v.push(decimal(text, *precision, *scale)?),
        Values::Date(v) => v.push(date(text)?),
        _ => return None,
    }
    Some(())
}

// --- numbers ---

/// Return the number of `Double.parseDouble` or `Float.parseFloat`.
fn float<T: std::str::FromStr + Number>(text: &str, hexadecimal: fn(&str) -> Option<f64>) -> Option<T> {
    let text = trim(text);
    let (negative, digits) = sign(text);
    let value = match digits {
        "NaN" => return Some(T::of(f64::NAN)), // in Java it has no sign
        "Infinity" => T::of(f64::INFINITY),
        _ => {
            let plain = digits.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(digits);
            match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
                Some(digits) => T::of(hexadecimal(digits)?),
                // Rust also reads `inf` and `nan`.
                None if plain.starts_with(|c: char| c.is_ascii_digit() || c == '.') => plain.parse().ok()?,
                None => return None,
            }
        }
    };
    Some(if negative { -value } else { value })
}

/// A floating-point number.
trait Number: std::ops::Neg<Output = Self> {
    fn of(value: f64) -> Self;
}

impl Number for f32 {
    fn of(value: f64) -> Self {
        value as Self
    }
}

impl Number for f64 {
    fn of(value: f64) -> Self {
        value
    }
}

/// Return the number behind `0x`, such as `1.8p3`, rounded to `BITS` bits of which the lowest one is 2 to the `LOWEST` at least.
fn hexadecimal<const BITS: i64, const LOWEST: i64>(text: &str) -> Option<f64> {
    let (digits, exponent) = text.split_once(['p', 'P'])?;
    let exponent = exponent.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(exponent);
    let exponent: i64 = exponent.parse::<i64>().ok()?.clamp(-1 << 40, 1 << 40);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let (mut value, mut lowest, mut more) = (0_u64, exponent, false);
    for (place, digit) in whole.chars().chain(fraction.chars()).enumerate() {
        let digit = u64::from(digit.to_digit(16)?);
        let is_whole = place < whole.len();
        if value >> 60 == 0 {
            value = value << 4 | digit;
            lowest -= if is_whole { 0 } else { 4 };
        } else {
            more |= digit != 0;
            lowest += if is_whole { 4 } else { 0 };
        }
    }
    let length = i64::from(u64::BITS - value.leading_zeros());
    let dropped = (length - BITS).max(LOWEST - lowest).clamp(0, 65);
    let (kept, rest) = (u128::from(value) >> dropped, u128::from(value) & ((1 << dropped) - 1));
    let half = 1_u128 << dropped >> 1;
    let up = dropped > 0 && (rest > half || (rest == half && (more || kept & 1 == 1)));
    // In two steps, neither of which is beyond the range of the exponent.
    let exponent = (lowest + dropped).clamp(-2000, 2000) as i32;
    let (first, second) = (exponent / 2, exponent - exponent / 2);
    Some((kept + u128::from(up)) as f64 * 2_f64.powi(first) * 2_f64.powi(second))
}

/// Return the unscaled value of `new BigDecimal`, rounded to a scale half up; none if it has more digits than the precision.
/// Blanks around it are skipped.
pub(crate) fn decimal(text: &str, precision: u8, scale: i8) -> Option<i128> {
    if let Some(value) = text::decimal(text.as_bytes(), precision, scale) {
        return Some(value); // the common form
    }
    let (negative, text) = sign(trim(text));
    let (digits, exponent) = match text.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, i64::from(exponent.parse::<i32>().ok()?)),
        None => (text, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let digits = || whole.bytes().chain(fraction.bytes());
    if digits().next().is_none() || !digits().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let limit = 10_i128.pow(precision.into());
    let mut value = 0_i128;
    let first = whole.len() as i64 - 1 + exponent + i64::from(scale);
    let mut place = first;
    for digit in digits() {
        let digit = i128::from(digit - b'0');
        if place >= 0 {
            value = value.checked_mul(10)?.checked_add(digit)?;
        } else if place == -1 {
            value += i128::from(digit >= 5);
        }
        if value >= limit {
            return None;
        }
        place -= 1;
    }
    while value != 0 && place >= 0 {
        value = value.checked_mul(10)?;
        if value >= limit {
            return None;
        }
        place -= 1;
    }
    Some(if negative { -value } else { value })
}

fn sign(text: &str) -> (bool, &str) {
    match text.as_bytes().first() {
        Some(sign @ (b'-' | b'+')) => (*sign == b'-', &text[1..]),
        _ => (false, text),
    }
}

// --- bytes ---

/// Append the bytes of a text in base64, as Jackson decodes it: blanks may be between groups of four characters, and a last
/// group that is shorter has to be padded.
pub(crate) fn base64(text: &str, bytes: &mut Vec<u8>) -> Option<()> {
    let begin = bytes.len();
    if STANDARD.decode_vec(text, bytes).is_ok() {
        return Some(());
    }
    bytes.truncate(begin);
    let found = groups(text, bytes);
    if found.is_none() {
        bytes.truncate(begin);
    }
    found
}

fn groups(text: &str, bytes: &mut Vec<u8>) -> Option<()> {
    let mut left = text.bytes();
    while let Some(first) = left.find(|c| *c > b' ') {
        let mut group = u32::from(sextet(first)?) << 18 | u32::from(sextet(left.next()?)?) << 12;
        let mut count = 1;
        let (third, fourth) = (left.next()?, left.next()?);
        if third != b'=' {
            group |= u32::from(sextet(third)?) << 6;
            count = 2;
        }
        if fourth != b'=' {
            if count == 1 {
                return None;
            }
            group |= u32::from(sextet(fourth)?);
            count = 3;
        }
        bytes.extend_from_slice(&group.to_be_bytes()[1..=count]);
    }
    Some(())
}

fn sextet(character: u8) -> Option<u8> {
    Some(match character {
        b'A'..=b'Z' => character - b'A',
        b'a'..=b'z' => character - b'a' + 26,
        b'0'..=b'9' => character - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

// --- dates and times ---

/// Return the days since 1970 of a date as in `2020-12-31` or `2020-1-2`, with a year of four digits.
pub(crate) fn date(text: &str) -> Option<i32> {
    let mut parts = text.splitn(3, '-');
    let mut next = |lengths: std::ops::RangeInclusive<usize>| {
        digits(parts.next().filter(|part| lengths.contains(&part.len()))?.as_bytes())
    };
    let (year, month, day) = (next(4..=4)?, next(1..=2)?, next(1..=2)?);
    i32::try_from(days(year, month, day)?).ok()
}

/// Return the days since 1970 of a day that is in the calendar.
pub(crate) fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(leap),
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    // Count years from March on, so that the leap day is the last one.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400);
    Some(y * 365 + leap_days + (m * 153 + 2) / 5 + day - 1 - 719_468)
}

/// Return the nanoseconds since midnight of a time as in `23:59` or `23:59:59.123`, cut to a number of digits of a second.
pub(crate) fn time(text: &str, precision: usize) -> Option<i64> {
    let nanos = match text.len() {
        5 => clock(format!("{text}:00").as_bytes())?,
        _ => clock(text.as_bytes())?,
    };
    Some(crate::connect::cut(nanos, precision))
}

/// Return the microseconds since 1970 of a time as in `2020-12-31 23:59:59.123`. A year of more than four digits has a sign.
pub(crate) fn timestamp(text: &str, separator: u8) -> Option<i64> {
    local(trim(text).as_bytes(), separator)
}

/// Return the microseconds since 1970 of an instant as in `2020-12-31 23:59:59.123Z`.
pub(crate) fn instant(text: &str, separator: u8) -> Option<i64> {
    local(trim(text).strip_suffix('Z')?.as_bytes(), separator)
}

/// Return the microseconds since 1970 of a time without blanks around it.
pub(crate) fn local(text: &[u8], separator: u8) -> Option<i64> {
    let at = text.iter().position(|byte| *byte == separator)?;
    let (days, micros) = (iso_date(&text[..at])?, clock(&text[at + 1..])?.div_euclid(1000));
    (days * SECONDS_A_DAY).checked_mul(MICROS_A_SECOND)?.checked_add(micros)
}

/// Return the days since 1970 of a date as in `2020-12-31`. A year of more than four digits has a sign.
pub(crate) fn iso_date(date: &[u8]) -> Option<i64> {
    let (year, [b'-', m1, m2, b'-', d1, d2]) = date.split_at_checked(date.len().checked_sub(6)?)? else {
        return None;
    };
    let year = match year {
        [b'-', digits_ @ ..] => -digits(digits_).filter(|year| digits_.len() >= 4 && *year > 0)?,
        [b'+', digits_ @ ..] if digits_.len() > 4 => digits(digits_)?,
        [_, _, _, _] => digits(year)?,
        _ => return None,
    };
    days(year, digits(&[*m1, *m2])?, digits(&[*d1, *d2])?)
}

/// Return the nanoseconds since midnight of a time as in `23:59:59` or `23:59:59.123`.
fn clock(text: &[u8]) -> Option<i64> {
    let [h1, h2, b':', m1, m2, b':', s1, s2, fraction @ ..] = text else {
        return None;
    };
    let (hour, minute, second) = (digits(&[*h1, *h2])?, digits(&[*m1, *m2])?, digits(&[*s1, *s2])?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let nanos = match fraction {
        [] | [b'.'] => 0,
        [b'.', fraction @ ..] if fraction.len() <= 9 => digits(fraction)? * 10_i64.pow(9 - fraction.len() as u32),
        _ => return None,
    };
    Some((hour * 3600 + minute * 60 + second) * 1_000_000_000 + nanos)
}

/// Return the number of at least one digit, and at most nine.
fn digits(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > MOST_DIGITS {
        return None;
    }
    text.iter().try_fold(0, |value, digit| match digit.wrapping_sub(b'0') {
        digit @ 0..=9 => Some(value * 10 + i64::from(digit)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float64(text: &str) -> Option<f64> {
        float(text, hexadecimal::<53, -1074>)
    }

    #[test]
    fn floating_point_numbers_are_those_of_java() {
        for (text, expected) in [
            (" 1.5\t", 1.5),
            ("-.5", -0.5),
            ("+1.", 1.0),
            ("1e3f", 1000.0),
            ("1E-3D", 0.001),
            ("1e400", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("0x1p3", 8.0),
            ("-0X.8P1f", -1.0),
            ("0x1.fffffffffffff8p0", 2.0),
            ("0x1.fffffffffffff7p0", 1.999_999_999_999_999_8),
            ("0x10000000000000000000000p-80", 256.0),
            ("0x1p-1074", 5e-324),
            ("0x1p-1075", 0.0),
            ("0x1.0001p-1075", 5e-324),
            ("0x1p-99999", 0.0),
            ("0x1p1024", f64::INFINITY),
            ("0x0p1", 0.0),
        ] {
            assert_eq!(float64(text), Some(expected), "{text}");
        }
        assert!(float64("NaN").is_some_and(f64::is_nan));
        for text in ["", "inf", "nan", "infinity", "1e", ".", "e5", "1_0", "0x1", "0x.p1", "0xgp1", "1 2", "--1", "1ff"]
        {
            assert_eq!(float64(text), None, "{text}");
        }
        // Not rounded to a double first.
        assert_eq!(
            float::<f32>("1.00000017881393421514957253748434595763683319091796875001", |_| None),
            Some(1.000_000_1)
        );
        assert_eq!(float("0x1.000003p0", hexadecimal::<24, -149>), Some(1.000_000_2_f32));
        assert_eq!(float("0x1p128", hexadecimal::<24, -149>), Some(f32::INFINITY));
    }

    #[test]
    fn decimals_are_rounded_half_up() {
        for (text, expected) in [
            ("1.235", Some(124)),
            ("-1.235", Some(-124)),
            ("1.2349", Some(123)),
            (" +1e3 ", Some(100_000)),
            (".5", Some(50)),
            ("5.", Some(500)),
            ("0.004999999999", Some(0)),
            ("0.005", Some(1)),
            ("5e-3", Some(1)),
            ("5e-4", Some(0)),
            ("99e-5", Some(0)),
            ("99999999.99", Some(9_999_999_999)),
            ("99999999.995", None),
            ("1e8", None),
            ("1e2147483647", None),
            ("1e-2147483647", Some(0)),
            ("0e2147483647", Some(0)),
            ("1e99999999999", None),
            ("", None),
            ("-", None),
            (".", None),
            ("1e", None),
            ("1.2.3", None),
            ("x", None),
            ("1 2", None),
        ] {
            assert_eq!(decimal(text, 10, 2), expected, "{text}");
        }
        assert_eq!(decimal(&"9".repeat(38), 38, 0), Some(10_i128.pow(38) - 1));
        assert_eq!(decimal(&"9".repeat(39), 38, 0), None);
        assert_eq!(decimal(&format!("{}1.{}", "0".repeat(100_000), "3".repeat(100_000)), 10, 2), Some(133));
    }

    #[test]
    fn base64_has_padding() {
        for (text, expected) in [
            ("", Some("")),
            ("YWJj", Some("abc")),
            (" YWJj\n YQ== ", Some("abca")),
            ("YQ==YWI=", Some("aab")),
            ("YR==", Some("a")),
            ("YQ", None),
            ("YQ=", None),
            ("YWI", None),
            ("Y Q==", None),
            ("YQ=x", None),
            ("Y===", None),
            ("####", None),
            ("YWJjY", None),
        ] {
            let mut bytes = Vec::new();
            let found = base64(text, &mut bytes).map(|()| String::from_utf8(bytes).unwrap());
            assert_eq!(found.as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn dates_are_in_the_calendar() {
        for (text, expected) in [
            ("1970-01-01", Some(0)),
            ("1970-1-2", Some(1)),
            ("0000-03-01", Some(-719_468)),
            ("9999-12-31", Some(2_932_896)),
            ("2020-02-30", None),
            ("1900-02-29", None),
            ("2020-13-01", None),
            ("2020-00-01", None),
            ("2020-01-00", None),
            ("20-01-01", None),
            ("2-12-31", None),
            ("20200-1-1", None),
            ("2020-001-01", None),
            ("2020-01-01 ", None),
            ("2020-01", None),
            ("2020--1-01", None),
            ("", None),
        ] {
            assert_eq!(date(text), expected, "{text}");
        }
    }

    #[test]
    fn times_are_cut_to_their_digits() {
        assert_eq!(time("23:59:59.129", 2), Some(86_399_120_000_000));
        assert_eq!(time("00:00:00.123456789", 9), Some(123_456_789));
        assert_eq!(time("00:01", 0), Some(60_000_000_000));
        assert_eq!(time("00:00:01.", 3), Some(1_000_000_000));
        for text in
            ["24:00:00", "00:60:00", "00:00:60", "0:0:0", "00:00:", "00:00:00.1234567890", " 00:00", "00:00:00Z"]
        {
            assert_eq!(time(text, 3), None, "{text}");
        }
    }

    #[test]
    fn years_of_timestamps_may_have_a_sign() {
        for (text, expected) in [
            ("1970-01-01 00:00:00", Some(0)),
            (" 1969-12-31 23:59:59.9999999 ", Some(-1)),
            ("-0001-01-01 00:00:00", Some(-62_198_755_200_000_000)),
            ("+10000-01-01 00:00:00.", Some(253_402_300_800_000_000)),
            ("+294247-01-10 04:00:54.775807", Some(i64::MAX)),
            ("+294247-01-10 04:00:54.775808", None),
            ("+999999999-01-01 00:00:00", None),
            ("+2020-01-01 00:00:00", None),
            ("10000-01-01 00:00:00", None),
            ("-0000-01-01 00:00:00", None),
            ("2020-01-01T00:00:00", None),
            ("2020-01-01  00:00:00", None),
            ("2020-01-01 00:00", None),
            ("2020-02-30 00:00:00", None),
            ("2020-01-01 24:00:00", None),
            ("2020-1-1 00:00:00", None),
            ("", None),
        ] {
            assert_eq!(timestamp(text, b' '), expected, "{text}");
        }
        assert_eq!(instant("1970-01-01T00:00:01Z\n", b'T'), Some(1_000_000));
        assert_eq!(instant("1970-01-01T00:00:01 Z", b'T'), None);
        assert_eq!(instant("1970-01-01T00:00:01", b'T'), None);
    }
}
