//! The tokens of a JSON text, as Jackson's parser reads them for Flink.
//!
//! It accepts what JSON's grammar says, and control characters within texts. A half of a surrogate pair becomes `?`, as where
//! Java writes a text in UTF-8. Nothing here recurses.

use super::{Fault, Read};

/// Jackson's limits: levels, characters of a name, of a number and of a text.
pub(crate) const MOST_LEVELS: usize = 1000;
const MOST_NAME: usize = 50_000;
const MOST_DIGITS: usize = 1000;
const MOST_TEXT: usize = 20_000_000;
const LOST: char = '?';

pub(crate) struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, bytes: text.as_bytes(), at: 0 }
    }

    /// Return how many bytes were passed.
    #[inline]
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Go back to an earlier place.
    #[inline]
    pub(crate) fn back_to(&mut self, at: usize) {
        self.at = at;
    }

    /// Return the text from an earlier place to here.
    #[inline]
    pub(crate) fn since(&self, begin: usize) -> &'a str {
        &self.text[begin..self.at]
    }

    #[inline]
    pub(crate) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Pass a character if it is the next one.
    #[inline]
    pub(crate) fn take(&mut self, character: u8) -> bool {
        let found = self.peek() == Some(character);
        self.at += usize::from(found);
        found
    }

    #[inline]
    fn expect(&mut self, character: u8) -> Read<()> {
        if self.take(character) { Ok(()) } else { Err(Fault::Broken) }
    }

    #[inline]
    pub(crate) fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Pass the beginning of an array or object, and return whether it has a value.
    #[inline]
    pub(crate) fn begin(&mut self, opening: u8) -> Read<bool> {
        self.expect(opening)?;
        self.blanks();
        Ok(!self.take(closing(opening)))
    }

    /// Pass the comma between two values, or the end of their array or object; return whether there is one more.
    #[inline]
    pub(crate) fn has_more(&mut self, opening: u8) -> Read<bool> {
        self.blanks();
        if self.take(b',') {
            self.blanks();
            return Ok(true);
        }
        self.expect(closing(opening))?;
        Ok(false)
    }

    /// Pass the name of a field up to its value, and return it.
    #[inline]
    pub(crate) fn name<'b>(&mut self, buffer: &'b mut String) -> Read<&'b str>
    where
        'a: 'b,
    {
        let name = self.quoted(buffer, MOST_NAME)?;
        self.colon()?;
        Ok(name)
    }

    /// Pass a field up to its value if it has this name, which is given in quotes and without escapes.
    #[inline]
    pub(crate) fn take_name(&mut self, quoted: &[u8]) -> Read<bool> {
        if !self.bytes[self.at..].starts_with(quoted) {
            return Ok(false);
        }
        self.at += quoted.len();
        self.colon()?;
        Ok(true)
    }

    #[inline]
    fn colon(&mut self) -> Read<()> {
        self.blanks();
        self.expect(b':')?;
        self.blanks();
        Ok(())
    }

    fn literal(&mut self, literal: &[u8]) -> Read<()> {
        if !self.bytes[self.at..].starts_with(literal) {
            return Err(Fault::Broken);
        }
        self.at += literal.len();
        Ok(())
    }

    pub(crate) fn boolean(&mut self) -> Read<bool> {
        let value = self.peek() == Some(b't');
        self.literal(if value { b"true" } else { b"false" })?;
        Ok(value)
    }

    pub(crate) fn null(&mut self) -> Read<()> {
        self.literal(b"null")
    }

    // --- numbers ---

    /// Return a whole number in a range; none if it is outside. Of a number with a point or an exponent, Jackson takes what is
    /// before the point.
    #[inline]
    pub(crate) fn whole_number(&mut self, least: i64, most: i64) -> Read<Option<i64>> {
        let begin = self.at;
        let negative = self.take(b'-');
        let first = self.at;
        let (mut value, mut digits): (i64, usize) = (0, 0);
        for byte in &self.bytes[first..] {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            value = value.wrapping_mul(10).wrapping_add(i64::from(digit));
            digits += 1;
        }
        self.at += digits;
        // 18 digits fit into 64 bits.
        let is_common = digits > 0 && digits <= 18 && (digits == 1 || self.bytes[first] != b'0');
        if is_common && !matches!(self.peek(), Some(b'.' | b'e' | b'E')) {
            let value = if negative { -value } else { value };
            return Ok((least..=most).contains(&value).then_some(value));
        }
        self.at = begin;
        let number = self.number()?;
        if !number.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E')) {
            return Ok(number.parse().ok().filter(|value| (least..=most).contains(value)));
        }
        let value: f64 = number.parse().map_err(|_| Fault::Broken)?;
        Ok((least as f64 <= value && value <= most as f64).then_some(value as i64))
    }

    /// Return the text of a number.
    pub(crate) fn number(&mut self) -> Read<&'a str> {
        let begin = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        if self.at - begin > MOST_DIGITS { Err(Fault::TooLong) } else { Ok(self.since(begin)) }
    }

    fn digits(&mut self) -> Read<()> {
        let begin = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at > begin { Ok(()) } else { Err(Fault::Broken) }
    }

    // --- texts ---

    /// Return a text. It is put into `buffer` if it has escapes.
    #[inline]
    pub(crate) fn text<'b>(&mut self, buffer: &'b mut String) -> Read<&'b str>
    where
        'a: 'b,
    {
        self.quoted(buffer, MOST_TEXT)
    }

    #[inline(always)]
    fn quoted<'b>(&mut self, buffer: &'b mut String, most: usize) -> Read<&'b str>
    where
        'a: 'b,
    {
        self.expect(b'"')?;
        let begin = self.at;
        let text = if self.pass_plain()? == b'"' {
            self.at += 1;
            &self.text[begin..self.at - 1]
        } else {
            self.at = begin;
            self.unescaped(buffer)?;
            buffer
        };
        if text.len() > most { short(text, most) } else { Ok(text) }
    }

    #[cold]
    fn unescaped(&mut self, to: &mut String) -> Read<()> {
        to.clear();
        loop {
            let begin = self.at;
            let found = self.pass_plain()?;
            to.push_str(self.since(begin));
            self.at += 1;
            if found == b'"' {
                return Ok(());
            }
            to.push(self.escaped()?);
        }
    }

    /// Pass characters up to the next quote or backslash, and return which of them it is.
    #[inline]
    fn pass_plain(&mut self) -> Read<u8> {
        const ONES: u64 = 0x0101_0101_0101_0101;
        const HIGHS: u64 = ONES << 7;
        let mut at = self.at;
        while let Some(word) = self.bytes.get(at..at + 8) {
            let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            let (quotes, escapes) = (word ^ (ONES * b'"' as u64), word ^ (ONES * b'\\' as u64));
            // The lowest high bit marks the first byte that is zero; bits above it may be wrong.
            let found = ((quotes.wrapping_sub(ONES) & !quotes) | (escapes.wrapping_sub(ONES) & !escapes)) & HIGHS;
            if found != 0 {
                let shift = found.trailing_zeros() & !7;
                self.at = at + (shift / 8) as usize;
                return Ok((word >> shift) as u8);
            }
            at += 8;
        }
        while let Some(&byte) = self.bytes.get(at) {
            if byte == b'"' || byte == b'\\' {
                self.at = at;
                return Ok(byte);
            }
            at += 1;
        }
        Err(Fault::Broken)
    }

    /// Return the character that the escape behind a backslash stands for.
    fn escaped(&mut self) -> Read<char> {
        let escape = self.peek().ok_or(Fault::Broken)?;
        self.at += 1;
        Ok(match escape {
            b'"' | b'\\' | b'/' => char::from(escape),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let unit = self.hex()?;
                match unit {
                    0xD800..0xDC00 => self.low_half(unit)?,
                    _ => char::from_u32(unit).unwrap_or(LOST),
                }
            }
            _ => return Err(Fault::Broken),
        })
    }

    /// Return the character of a surrogate pair, whose first half was passed.
    fn low_half(&mut self, high: u32) -> Read<char> {
        let begin = self.at;
        if self.take(b'\\') && self.take(b'u') {
            let low = self.hex()?;
            if (0xDC00..0xE000).contains(&low) {
                let found = char::from_u32(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00));
                return found.ok_or(Fault::Broken);
            }
        }
        self.at = begin;
        Ok(LOST)
    }

    fn hex(&mut self) -> Read<u32> {
        let digits = self.bytes.get(self.at..self.at + 4).ok_or(Fault::Broken)?;
        self.at += 4;
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(Fault::Broken);
        digits.iter().try_fold(0, |value, &byte| Ok(value * 16 + digit(byte)?))
    }

    // --- whole values ---

    /// Pass a value of any kind.
    #[inline]
    pub(crate) fn skip_value(&mut self, levels: usize) -> Read<()> {
        match self.peek() {
            Some(b'{' | b'[') => self.walk(levels, |_, _| {}),
            _ => self.skip_simple(),
        }
    }

    /// Pass a value that is neither an array nor an object.
    fn skip_simple(&mut self) -> Read<()> {
        match self.peek().ok_or(Fault::Broken)? {
            b'"' => self.skip_text(),
            b't' | b'f' => self.boolean().map(drop),
            b'n' => self.null(),
            _ => self.number().map(drop),
        }
    }

    /// Append a value of any kind as a text, and return whether it is not null. A text is itself, and any other value is
    /// written as it stands here, without blanks.
    pub(crate) fn any_text(&mut self, levels: usize, to: &mut Vec<u8>) -> Read<bool> {
        match self.peek() {
            Some(b'"') => to.extend_from_slice(self.text(&mut String::new())?.as_bytes()),
            Some(b'n') => {
                self.null()?;
                return Ok(false);
            }
            _ => self.walk(
                levels,
                |token, is_text| {
                    if is_text { normal(token, to) } else { to.extend_from_slice(token.as_bytes()) }
                },
            )?,
        }
        Ok(true)
    }

    /// Pass a value of any kind, and call a function with each of its tokens, and with whether it is a text.
    #[inline]
    fn walk(&mut self, levels: usize, mut each: impl FnMut(&'a str, bool)) -> Read<()> {
        let mut kinds = Kinds::default();
        loop {
            let begin = self.at;
            let mut has_ended = true;
            match self.peek().ok_or(Fault::Broken)? {
                opening @ (b'{' | b'[') => {
                    if kinds.depth >= levels.min(MOST_LEVELS) {
                        return Err(Fault::TooDeep);
                    }
                    self.at += 1;
                    each(self.since(begin), false);
                    kinds.push(opening == b'{');
                    self.blanks();
                    has_ended = self.peek() == Some(closing(opening));
                }
                first => {
                    self.skip_simple()?;
                    each(self.since(begin), first == b'"');
                }
            }
            let mut is_first = !has_ended;
            while !is_first {
                let Some(opening) = kinds.last() else { return Ok(()) };
                self.blanks();
                let begin = self.at;
                if self.take(closing(opening)) {
                    each(self.since(begin), false);
                    kinds.depth -= 1;
                    continue;
                }
                self.expect(b',')?;
                each(self.since(begin), false);
                self.blanks();
                is_first = true;
            }
            if kinds.last() == Some(b'{') {
                let begin = self.at;
                if self.peek() != Some(b'"') {
                    return Err(Fault::Broken);
                }
                self.skip_text()?;
                let name = self.since(begin);
                if name.len() > MOST_NAME + 2 && name.encode_utf16().count() > MOST_NAME + 2 {
                    return Err(Fault::TooLong);
                }
                each(name, true);
                self.blanks();
                let begin = self.at;
                self.expect(b':')?;
                each(self.since(begin), false);
                self.blanks();
            }
        }
    }

    fn skip_text(&mut self) -> Read<()> {
        self.at += 1;
        while self.pass_plain()? == b'\\' {
            self.at += 1;
            self.escaped()?;
        }
        self.at += 1;
        Ok(())
    }
}

/// Return a text if it has no more than so many characters of UTF-16.
#[cold]
fn short(text: &str, most: usize) -> Read<&str> {
    if text.encode_utf16().count() > most { Err(Fault::TooLong) } else { Ok(text) }
}

/// For each level, whether it is an object.
struct Kinds {
    objects: [u64; MOST_LEVELS.div_ceil(64)],
    depth: usize,
}

impl Default for Kinds {
    #[inline]
    fn default() -> Self {
        Self { objects: [0; MOST_LEVELS.div_ceil(64)], depth: 0 }
    }
}

impl Kinds {
    #[inline]
    fn push(&mut self, is_object: bool) {
        let (word, bit) = (self.depth / 64, self.depth % 64);
        self.objects[word] = self.objects[word] & !(1 << bit) | u64::from(is_object) << bit;
        self.depth += 1;
    }

    #[inline]
    fn last(&self) -> Option<u8> {
        let at = self.depth.checked_sub(1)?;
        Some(if self.objects[at / 64] >> (at % 64) & 1 == 1 { b'{' } else { b'[' })
    }
}

#[inline]
fn closing(opening: u8) -> u8 {
    opening + 2 // in ASCII
}

/// Append a text in quotes with the escapes that Jackson would write, and no others.
fn normal(quoted: &str, to: &mut Vec<u8>) {
    if quoted.bytes().all(|byte| byte >= b' ' && byte != b'\\') {
        return to.extend_from_slice(quoted.as_bytes());
    }
    let mut buffer = String::new();
    let text = Scanner::new(quoted).text(&mut buffer).unwrap_or_default();
    to.push(b'"');
    for character in text.chars() {
        match character {
            '"' | '\\' => to.extend([b'\\', character as u8]),
            '\u{8}' => to.extend_from_slice(b"\\b"),
            '\t' => to.extend_from_slice(b"\\t"),
            '\n' => to.extend_from_slice(b"\\n"),
            '\u{c}' => to.extend_from_slice(b"\\f"),
            '\r' => to.extend_from_slice(b"\\r"),
            ..' ' => to.extend_from_slice(format!("\\u{:04X}", u32::from(character)).as_bytes()),
            _ => to.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    to.push(b'"');
}
