//! Numbers, dates and times as Flink writes them.

const MICROS_A_DAY: i64 = 86_400_000_000;
const NANOS_A_SECOND: u64 = 1_000_000_000;

pub(crate) fn whole(value: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Append a number as Java's `Double.toString` does since version 19: the shortest text that only this number is read from.
pub(crate) fn double(value: f64, out: &mut Vec<u8>) {
    if !special(value, out) {
        floating(&format!("{value:e}"), &format!("{value:.1e}"), |text| text.parse() == Ok(value), out);
    }
}

/// Append a number as Java's `Float.toString` does since version 19.
pub(crate) fn float(value: f32, out: &mut Vec<u8>) {
    if !special(value.into(), out) {
        floating(&format!("{value:e}"), &format!("{value:.1e}"), |text| text.parse() == Ok(value), out);
    }
}

fn special(value: f64, out: &mut Vec<u8>) -> bool {
    let text: &[u8] = match value {
        f64::INFINITY => b"Infinity",
        f64::NEG_INFINITY => b"-Infinity",
        _ if value.is_nan() => b"NaN",
        _ => return false,
    };
    out.extend_from_slice(text);
    true
}

/// Append a number that is given as the shortest text with an exponent, and with two digits. Of numbers that one digit is
/// enough for, Java takes the nearest one of two digits.
fn floating(shortest: &str, two_digits: &str, is_value: impl Fn(&str) -> bool, out: &mut Vec<u8>) {
    let text = if !shortest.contains('.') && is_value(two_digits) { two_digits } else { shortest };
    let (number, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let number = number.strip_prefix('-').inspect(|_| out.push(b'-')).unwrap_or(number);
    let digits: Vec<u8> = number.bytes().filter(|digit| *digit != b'.').collect();
    let digits = &digits[..digits.len() - zeros(digits[1..].iter().rev())];
    let (whole, fraction) = match exponent {
        -3..0 => {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + (-1 - exponent) as usize, b'0');
            out.extend_from_slice(digits);
            return;
        }
        0..7 => digits.split_at(digits.len().min(exponent as usize + 1)),
        _ => digits.split_at(1),
    };
    out.extend_from_slice(whole);
    if (0..7).contains(&exponent) {
        out.resize(out.len() + exponent as usize + 1 - whole.len(), b'0');
    }
    out.push(b'.');
    out.extend_from_slice(if fraction.is_empty() { b"0" } else { fraction });
    if !(0..7).contains(&exponent) {
        out.push(b'E');
        self::whole(exponent.into(), out);
    }
}

/// Append a decimal number with all digits of its scale, as Java's `BigDecimal.toPlainString` does.
pub(crate) fn plain_decimal(value: i128, scale: usize, out: &mut Vec<u8>) {
    let (digits, whole) = split(value, scale, out);
    out.extend_from_slice(&digits[..whole]);
    if scale > 0 {
        out.push(b'.');
        out.extend_from_slice(&digits[whole..]);
    }
}

/// Append a decimal number as Java's `BigDecimal.stripTrailingZeros().toString()` does, with an exponent for multiples of
/// ten and below a millionth.
pub(crate) fn decimal(value: i128, scale: usize, out: &mut Vec<u8>) {
    let (digits, place) = split(value, scale, out);
    let (whole, fraction) = digits.split_at(place);
    let fraction = &fraction[..fraction.len() - zeros(fraction.iter().rev())];
    if fraction.is_empty() && whole.last() == Some(&b'0') && whole != b"0" {
        scientific(&whole[..whole.len() - zeros(whole.iter().rev())], b"E+", whole.len() - 1, out);
    } else if whole == b"0" && fraction.starts_with(b"000000") {
        let leading = zeros(fraction.iter());
        scientific(&fraction[leading..], b"E-", leading + 1, out);
    } else {
        out.extend_from_slice(whole);
        if !fraction.is_empty() {
            out.push(b'.');
            out.extend_from_slice(fraction);
        }
    }
}

/// Append the sign, and return the digits, one before the point at least, and the place of the point.
fn split(value: i128, scale: usize, out: &mut Vec<u8>) -> (Vec<u8>, usize) {
    if value < 0 {
        out.push(b'-');
    }
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(value.unsigned_abs()).as_bytes();
    let mut padded = vec![b'0'; (scale + 1).saturating_sub(digits.len())];
    padded.extend_from_slice(digits);
    let whole = padded.len() - scale;
    (padded, whole)
}

fn zeros<'a>(digits: impl Iterator<Item = &'a u8>) -> usize {
    digits.take_while(|digit| **digit == b'0').count()
}

fn scientific(digits: &[u8], sign: &[u8], exponent: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&digits[..1]);
    if digits.len() > 1 {
        out.push(b'.');
        out.extend_from_slice(&digits[1..]);
    }
    out.extend_from_slice(sign);
    whole(exponent as i64, out);
}

/// Append a date, given in days since 1970: a year of four digits or more, the latter with a sign.
pub(crate) fn date(days: i64, out: &mut Vec<u8>) {
    // Howard Hinnant's civil_from_days: years begin in March, and 400 of them have 146,097 days.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    let year = year + 400 * era;
    if year < 0 {
        out.push(b'-');
    } else if year > 9999 {
        out.push(b'+');
    }
    padded(year.unsigned_abs(), 4, out);
    out.push(b'-');
    padded(month.unsigned_abs(), 2, out);
    out.push(b'-');
    padded(day.unsigned_abs(), 2, out);
}

/// Append a timestamp, given in microseconds since 1970, without zeros at the end of its fraction.
pub(crate) fn timestamp(micros: i64, separator: u8, out: &mut Vec<u8>) {
    date(micros.div_euclid(MICROS_A_DAY), out);
    out.push(separator);
    time(micros.rem_euclid(MICROS_A_DAY) * 1000, out);
}

/// Append a time, given in nanoseconds since midnight, without zeros at the end of its fraction.
pub(crate) fn time(nanos: i64, out: &mut Vec<u8>) {
    let (seconds, fraction) = (nanos.unsigned_abs() / NANOS_A_SECOND, nanos.unsigned_abs() % NANOS_A_SECOND);
    padded(seconds / 3600, 2, out);
    out.push(b':');
    padded(seconds / 60 % 60, 2, out);
    out.push(b':');
    padded(seconds % 60, 2, out);
    if fraction > 0 {
        out.push(b'.');
        padded(fraction, 9, out);
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
}

fn padded(value: u64, width: usize, out: &mut Vec<u8>) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(value).as_bytes();
    out.resize(out.len() + width.saturating_sub(digits.len()), b'0');
    out.extend_from_slice(digits);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn decimals_are_written_as_by_java() {
        for (value, scale, expected, plain) in [
            (0, 0, "0", "0"),
            (0, 2, "0", "0.00"),
            (-5, 0, "-5", "-5"),
            (1250, 3, "1.25", "1.250"),
            (10_000, 2, "1E+2", "100.00"),
            (-12_000, 0, "-1.2E+4", "-12000"),
            (1, 6, "0.000001", "0.000001"),
            (1, 7, "1E-7", "0.0000001"),
            (-270, 10, "-2.7E-8", "-0.0000000270"),
            (105, 1, "10.5", "10.5"),
            (i128::MIN, 38, "-1.70141183460469231731687303715884105728", "-1.70141183460469231731687303715884105728"),
        ] {
            assert_eq!(text(|out| decimal(value, scale, out)), expected);
            assert_eq!(text(|out| plain_decimal(value, scale, out)), plain);
        }
    }

    #[test]
    fn floating_point_numbers_are_written_as_by_java() {
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-12.5, "-12.5"),
            (1e10, "1.0E10"),
            (9_999_999.0, "9999999.0"),
            (1e7, "1.0E7"),
            (1_234_567.5, "1234567.5"),
            (0.001, "0.001"),
            (0.00125, "0.00125"),
            (0.000_999, "9.99E-4"),
            (100.0, "100.0"),
            (2e23, "2.0E23"),
            (1e23, "1.0E23"),
            (f64::from_bits(1), "4.9E-324"),
            (f64::from_bits(2), "9.9E-324"),
            (f64::MAX, "1.7976931348623157E308"),
            (2.2250738585072014e-308, "2.2250738585072014E-308"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(text(|out| double(value, out)), expected);
        }
        for (value, expected) in [
            (0.1, "0.1"),
            (1.0E10, "1.0E10"),
            (f32::from_bits(1), "1.4E-45"),
            (f32::MAX, "3.4028235E38"),
            (f32::INFINITY, "Infinity"),
        ] {
            assert_eq!(text(|out| float(value, out)), expected);
        }
    }

    #[test]
    fn times_have_as_few_digits_as_possible() {
        for (nanos, expected) in
            [(0, "00:00:00"), (86_399_000_000_001, "23:59:59.000000001"), (120_000_000, "00:00:00.12")]
        {
            assert_eq!(text(|out| time(nanos, out)), expected);
        }
    }

    #[test]
    fn dates_and_timestamps_have_as_few_digits_as_possible() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (11_016, "2000-02-29"),
            (2_932_896, "9999-12-31"),
            (2_932_897, "+10000-01-01"),
            (-719_528, "0000-01-01"),
            (-719_529, "-0001-12-31"),
        ] {
            assert_eq!(text(|out| date(days, out)), expected);
        }
        for (micros, expected) in [
            (0, "1970-01-01T00:00:00"),
            (-1, "1969-12-31T23:59:59.999999"),
            (1_600_000_000_120_000, "2020-09-13T12:26:40.12"),
            (i64::MAX, "+294247-01-10T04:00:54.775807"),
            (i64::MIN, "-290308-12-21T19:59:05.224192"),
        ] {
            assert_eq!(text(|out| timestamp(micros, b'T', out)), expected);
        }
    }
}
