//! JSON texts to `google.protobuf.Struct`, `Value` and `ListValue`, as Google's library for Python reads them.
//!
//! All numbers are doubles. A whole number has to be exactly one, and no number may be too large.

use std::collections::HashMap;

use super::wire::{DELIMITED, compared_texts, tag, text};

/// The most levels of messages in such a message, which are as many as a reader allows. A struct has two of its own.
const MOST_LEVELS: usize = 100;

/// Why a text is not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It is not JSON, or of another type, or nested too deeply.
    Json,
    /// It has a number that is not a double.
    Number,
}

/// The message that a text becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Struct,
    Value,
    List,
}

type Read<T> = Result<T, Wrong>;

/// Append the fields of a message.
pub(super) fn write(form: Form, json: &str, out: &mut Vec<u8>) -> Read<()> {
    let mut reader = Reader { rest: json.as_bytes() };
    reader.space();
    match form {
        Form::Struct => reader.object(out, MOST_LEVELS)?,
        Form::List => reader.list(out, MOST_LEVELS)?,
        Form::Value => reader.value(out, MOST_LEVELS)?,
    }
    reader.space();
    if reader.rest.is_empty() { Ok(()) } else { Err(Wrong::Json) }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn space(&mut self) {
        while let [b' ' | b'\t' | b'\n' | b'\r', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    fn take(&mut self, word: &[u8]) -> bool {
        match self.rest.strip_prefix(word) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, word: &[u8]) -> Read<()> {
        if self.take(word) { Ok(()) } else { Err(Wrong::Json) }
    }

    /// Append the fields of a `Value`.
    fn value(&mut self, out: &mut Vec<u8>, levels: usize) -> Read<()> {
        let levels = levels.checked_sub(1).ok_or(Wrong::Json)?;
        match self.rest.first() {
            Some(b'{') => nested(5, out, |out| self.object(out, levels)),
            Some(b'[') => nested(6, out, |out| self.list(out, levels)),
            Some(b'"') => {
                let found = self.text()?;
                tag(3, DELIMITED, out);
                text(found.as_bytes(), out);
                Ok(())
            }
            Some(b'n') => self.word(b"null", &[1 << 3, 0], out),
            Some(b't') => self.word(b"true", &[4 << 3, 1], out),
            Some(b'f') => self.word(b"false", &[4 << 3, 0], out),
            _ => {
                let number = self.number()?;
                out.push(2 << 3 | 1);
                out.extend_from_slice(&number.to_le_bytes());
                Ok(())
            }
        }
    }

    fn word(&mut self, word: &[u8], written: &[u8], out: &mut Vec<u8>) -> Read<()> {
        self.expect(word)?;
        out.extend_from_slice(written);
        Ok(())
    }

    /// Append the fields of a `Struct`, in the order of their names. Of several with one name, the last one counts.
    fn object(&mut self, out: &mut Vec<u8>, levels: usize) -> Read<()> {
        let levels = levels.checked_sub(2).ok_or(Wrong::Json)?;
        let mut fields = HashMap::new();
        self.expect(b"{")?;
        self.space();
        if !self.take(b"}") {
            loop {
                let name = self.text()?;
                self.space();
                self.expect(b":")?;
                self.space();
                let mut value = Vec::new();
                self.value(&mut value, levels)?;
                fields.insert(name, value);
                self.space();
                if self.take(b"}") {
                    break;
                }
                self.expect(b",")?;
                self.space();
            }
        }
        let mut fields: Vec<(String, Vec<u8>)> = fields.into_iter().collect();
        fields.sort_by(|one, other| compared_texts(one.0.as_bytes(), other.0.as_bytes()));
        for (name, value) in fields {
            nested(1, out, |out| {
                tag(1, DELIMITED, out);
                text(name.as_bytes(), out);
                tag(2, DELIMITED, out);
                text(&value, out);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Append the fields of a `ListValue`.
    fn list(&mut self, out: &mut Vec<u8>, levels: usize) -> Read<()> {
        let levels = levels.checked_sub(1).ok_or(Wrong::Json)?;
        self.expect(b"[")?;
        self.space();
        if self.take(b"]") {
            return Ok(());
        }
        loop {
            nested(1, out, |out| self.value(out, levels))?;
            self.space();
            if self.take(b"]") {
                return Ok(());
            }
            self.expect(b",")?;
            self.space();
        }
    }

    fn number(&mut self) -> Read<f64> {
        let digits = |bytes: &[u8]| bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let bytes = self.rest;
        let mut end = usize::from(bytes.first() == Some(&b'-'));
        let whole = digits(&bytes[end..]);
        if whole == 0 || (whole > 1 && bytes[end] == b'0') {
            return Err(Wrong::Json);
        }
        let first = end;
        end += whole;
        let end_of_whole = end;
        if bytes.get(end) == Some(&b'.') {
            let fraction = digits(&bytes[end + 1..]);
            end += if fraction > 0 { 1 + fraction } else { return Err(Wrong::Json) };
        }
        if let Some(b'e' | b'E') = bytes.get(end) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let exponent = digits(&bytes[end + 1 + sign..]);
            end += if exponent > 0 { 1 + sign + exponent } else { return Err(Wrong::Json) };
        }
        let (found, rest) = bytes.split_at(end);
        self.rest = rest;
        let number: f64 = std::str::from_utf8(found).ok().and_then(|text| text.parse().ok()).ok_or(Wrong::Json)?;
        if number.is_infinite() {
            return Err(Wrong::Number);
        }
        if end > end_of_whole {
            return Ok(number);
        }
        // A whole number, of which all digits have to be there.
        if format!("{:.0}", number.abs()).as_bytes() != &bytes[first..end] {
            return Err(Wrong::Number);
        }
        Ok(number + 0.0) // -0 is 0
    }

    /// Return a text without its quotes and escapes.
    fn text(&mut self) -> Read<String> {
        self.expect(b"\"")?;
        let mut found = Vec::new();
        loop {
            let (&byte, rest) = self.rest.split_first().ok_or(Wrong::Json)?;
            self.rest = rest;
            match byte {
                b'"' => return String::from_utf8(found).map_err(|_| Wrong::Json),
                b'\\' => {
                    let character = self.escaped()?;
                    found.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                ..0x20 => return Err(Wrong::Json),
                _ => found.push(byte),
            }
        }
    }

    fn escaped(&mut self) -> Read<char> {
        let (&byte, rest) = self.rest.split_first().ok_or(Wrong::Json)?;
        self.rest = rest;
        Ok(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let unit = self.unit()?;
                if !(0xD800..0xDC00).contains(&unit) {
                    return char::from_u32(unit).ok_or(Wrong::Json);
                }
                self.expect(b"\\u")?;
                let low = self.unit()?;
                if !(0xDC00..0xE000).contains(&low) {
                    return Err(Wrong::Json);
                }
                char::from_u32(0x1_0000 + ((unit - 0xD800) << 10) + (low - 0xDC00)).ok_or(Wrong::Json)?
            }
            _ => return Err(Wrong::Json),
        })
    }

    fn unit(&mut self) -> Read<u32> {
        let (digits, rest) = self.rest.split_at_checked(4).ok_or(Wrong::Json)?;
        self.rest = rest;
        digits.iter().try_fold(0, |unit, digit| Ok(unit << 4 | char::from(*digit).to_digit(16).ok_or(Wrong::Json)?))
    }
}

/// Append a message in a field.
fn nested(number: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Read<()>) -> Read<()> {
    let mut inner = Vec::new();
    write(&mut inner)?;
    tag(number, DELIMITED, out);
    text(&inner, out);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(json: &str) -> Read<Vec<u8>> {
        let mut out = Vec::new();
        write(Form::Value, json, &mut out).map(|()| out)
    }

    #[test]
    fn values_are_written() {
        assert_eq!(value(" null "), Ok(vec![8, 0]));
        assert_eq!(value("true"), Ok(vec![32, 1]));
        assert_eq!(value(r#""a\u00fc\ud83d\ude00\n""#), Ok("\x1a\x08aü😀\n".into()));
        assert_eq!(value("-0"), Ok([&[17][..], &0_f64.to_le_bytes()].concat()));
        assert_eq!(value("-0.0"), Ok([&[17][..], &(-0_f64).to_le_bytes()].concat()));
        assert_eq!(value("10000000000000000000000"), Ok([&[17][..], &1e22_f64.to_le_bytes()].concat()));
        assert_eq!(value("[ null , false]"), Ok(b"\x32\x08\x0a\x02\x08\x00\x0a\x02\x20\x00".into()));
        let expected = b"\x2a\x12\x0a\x07\x0a\x01a\x12\x02\x20\x01\x0a\x07\x0a\x01b\x12\x02\x08\x00";
        assert_eq!(value(r#"{"b": null, "a": null, "a": true}"#), Ok(expected.into()));
    }

    #[test]
    fn what_is_wrong_is_told() {
        for json in [
            "",
            "{",
            "[1,]",
            "01",
            "1.",
            "1e",
            "NaN",
            "-",
            "nul",
            "\"",
            "\"\\x\"",
            "\"\\ud800\"",
            "\"\\udc00\"",
            "1 2",
            "\u{c}1",
            "\"\t\"",
            "+1",
            "{a:1}",
        ] {
            assert_eq!(value(json), Err(Wrong::Json), "{json}");
        }
        for json in ["9007199254740993", "1e400", &"9".repeat(400)] {
            assert_eq!(value(json), Err(Wrong::Number), "{json}");
        }
        for (json, fits) in [("[".repeat(50) + &"]".repeat(50), true), ("[".repeat(51) + &"]".repeat(51), false)] {
            assert_eq!(value(&json).is_ok(), fits);
        }
        assert_eq!(value(&"[".repeat(1_000_000)), Err(Wrong::Json));
        assert_eq!(write(Form::Struct, "[]", &mut Vec::new()), Err(Wrong::Json));
        assert_eq!(write(Form::List, "{}", &mut Vec::new()), Err(Wrong::Json));
    }
}
