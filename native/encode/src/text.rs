//! Texts as Jackson writes them, and as Java reads what is not UTF-8.

use std::borrow::Cow;

const HEX: &[u8; 16] = b"0123456789ABCDEF";
const REPLACEMENT: char = '\u{FFFD}';

/// Append a text in quotes. Characters beyond U+FFFF are escaped, too, as Flink does.
pub(crate) fn quoted(text: &[u8], out: &mut Vec<u8>) {
    let valid = valid(text);
    let bytes = valid.as_bytes();
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    let mut done = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if byte >= b' ' && byte != b'"' && byte != b'\\' && byte < 0xF0 {
            continue;
        }
        out.extend_from_slice(&bytes[done..at]);
        done = at + 1;
        let short = match byte {
            b'"' | b'\\' => byte,
            0x08 => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            0x0C => b'f',
            b'\r' => b'r',
            0xF0.. => {
                let character = valid[at..].chars().next().unwrap_or(REPLACEMENT);
                for unit in character.encode_utf16(&mut [0; 2]) {
                    escape(*unit, out);
                }
                done = at + character.len_utf8();
                continue;
            }
            _ => {
                escape(byte.into(), out);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', short]);
    }
    out.extend_from_slice(&bytes[done..]);
    out.push(b'"');
}

/// Return a text as Java reads it.
pub(crate) fn valid(text: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(text) {
        Ok(valid) => Cow::Borrowed(valid),
        Err(_) => Cow::Owned(replaced(text)),
    }
}

fn escape(unit: u16, out: &mut Vec<u8>) {
    let digit = |shift: u16| HEX[usize::from(unit >> shift & 0xF)];
    out.extend_from_slice(&[b'\\', b'u', digit(12), digit(8), digit(4), digit(0)]);
}

/// Return the text that Java's `new String(bytes, UTF_8)` makes: what is malformed becomes U+FFFD. Rust's `from_utf8_lossy`
/// differs for surrogates, which Java replaces by one character each.
fn replaced(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + 8);
    let mut rest = bytes;
    while !rest.is_empty() {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                break;
            }
            Err(error) => {
                let (valid, malformed) = rest.split_at(error.valid_up_to());
                text.push_str(std::str::from_utf8(valid).unwrap_or_default());
                text.push(REPLACEMENT);
                rest = &malformed[malformed_length(malformed)..];
            }
        }
    }
    text
}

/// Return how many bytes of a malformed sequence Java replaces by one character.
fn malformed_length(bytes: &[u8]) -> usize {
    let is_continuation = |at: usize| bytes.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
    let second = bytes.get(1).copied().unwrap_or(0);
    match bytes[0] {
        0xE0 if second & 0xE0 == 0x80 => 1,
        0xE0..=0xEF if is_continuation(1) => {
            // All three bytes are there only if they are a surrogate.
            if is_continuation(2) { 3 } else { 2 }
        }
        0xF0 if second < 0x90 => 1,
        0xF4 if second & 0xF0 != 0x80 => 1,
        0xF0..=0xF4 if is_continuation(1) => {
            if is_continuation(2) {
                3
            } else {
                2
            }
        }
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &[u8]) -> String {
        let mut out = Vec::new();
        quoted(text, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn texts_are_escaped_as_by_jackson() {
        assert_eq!(written(b""), r#""""#);
        assert_eq!(written("a\"b\\c/\u{7f}é\u{2028}".as_bytes()), "\"a\\\"b\\\\c/\u{7f}é\u{2028}\"");
        assert_eq!(written(b"\x08\t\n\x0c\r\0\x1f"), r#""\b\t\n\f\r\u0000\u001F""#);
        assert_eq!(written("😀x\u{10FFFF}".as_bytes()), r#""\uD83D\uDE00x\uDBFF\uDFFF""#);
    }

    #[test]
    fn what_is_not_utf_8_is_replaced_as_by_java() {
        for (bytes, count) in [
            (&b"\x80"[..], 1),
            (b"\xC0\x80", 2),
            (b"\xC3", 1),
            (b"\xE0\x80\x80", 3),
            (b"\xE2\x82", 1),
            (b"\xE2\x82\xE2", 2),
            (b"\xED\xA0\x80", 1), // a surrogate
            (b"\xED\xA0", 1),
            (b"\xF0\x9F\x98", 1),
            (b"\xF0\x80\x80\x80", 4),
            (b"\xF4\x90\x80\x80", 4),
            (b"\xF5\x80", 2),
            (b"\xFF\xFE", 2),
        ] {
            assert_eq!(replaced(bytes), "\u{FFFD}".repeat(count), "{bytes:x?}");
        }
        assert_eq!(replaced(b"a\xC3(\xE2\x82b\xF0\x9F\x98\x80"), "a\u{FFFD}(\u{FFFD}b😀");
    }
}
