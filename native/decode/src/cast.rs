//! Texts to numbers and booleans, as Spark casts them: for JSON that has them in quotes.
//!
//! Certain are numbers as JSON writes them, and booleans of ASCII characters. A cast takes more than that.

use crate::columns::{Bytes, Certain, Uncertain, Values};
use crate::json::scanner::Scanner;

const MOST_DIGITS: usize = 100;

/// Return whether values are numbers or booleans, which some tools write as texts. A decimal number is none of them: as
/// JSON it may be in quotes anyway.
#[inline]
pub(crate) fn is_weak(values: &Values) -> bool {
    use Values::*;
    matches!(values, Boolean(_) | Int8(_) | Int16(_) | Int32(_) | Int64(_) | Float32(_) | Float64(_))
}

/// Append the number or boolean that a text stands for.
pub(crate) fn append(text: &str, values: &mut Values) -> Certain<()> {
    match values {
        Values::Boolean(v) => {
            if !text.is_ascii() {
                return Err(Uncertain); // Spark has rules of Unicode for lower case
            }
            v.append(text.trim_matches(' ').eq_ignore_ascii_case("true"));
        }
        Values::Int8(v) => v.push(whole(text)?.try_into().map_err(|_| Uncertain)?),
        Values::Int16(v) => v.push(whole(text)?.try_into().map_err(|_| Uncertain)?),
        Values::Int32(v) => v.push(whole(text)?.try_into().map_err(|_| Uncertain)?),
        Values::Int64(v) => v.push(whole(text)?),
        Values::Float32(v) => v.push(number(text)?.parse().ok().filter(|f: &f32| f.is_finite()).ok_or(Uncertain)?),
        Values::Float64(v) => v.push(number(text)?.parse().ok().filter(|f: &f64| f.is_finite()).ok_or(Uncertain)?),
        _ => return Err(Uncertain),
    }
    Ok(())
}

/// Return the whole number that a text is.
pub(crate) fn whole(text: &str) -> Certain<i64> {
    let mut scanner = Scanner::new(text);
    let number = scanner.whole_number()?;
    if scanner.is_at_end() { Ok(number) } else { Err(Uncertain) }
}

/// Return a text that is a number.
fn number(text: &str) -> Certain<&str> {
    let mut scanner = Scanner::new(text);
    let number = scanner.number()?;
    if scanner.is_at_end() && text.len() <= MOST_DIGITS { Ok(number) } else { Err(Uncertain) }
}

/// Append the bytes that a text in base64 stands for.
pub(crate) fn base64(text: &str, bytes: &mut Bytes) -> Certain<()> {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    STANDARD.decode_vec(text, &mut bytes.data).map_err(|_| Uncertain)?;
    Ok(bytes.end()?)
}
