//! The tokens of a JSON text.
//!
//! It accepts what JSON's grammar says, and control characters within texts, as Spark's parser does here.

use crate::columns::{Certain, Uncertain};

pub(crate) struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    /// How many escapes with `\u` were passed in texts that are not wanted.
    pub(crate) unicode_escapes: usize,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, bytes: text.as_bytes(), at: 0, unicode_escapes: 0 }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// Return how many bytes were passed.
    #[inline]
    pub(crate) fn at(&self) -> usize {
        self.at
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
    pub(crate) fn expect(&mut self, character: u8) -> Certain<()> {
        if self.take(character) { Ok(()) } else { Err(Uncertain) }
    }

    #[inline]
    pub(crate) fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Pass the comma between two values, or the end of their array or object; return whether there is one more.
    #[inline]
    pub(crate) fn has_more(&mut self, end: u8) -> Certain<bool> {
        self.blanks();
        if self.take(b',') {
            self.blanks();
            return Ok(true);
        }
        self.expect(end)?;
        Ok(false)
    }

    /// Pass the name of a field up to its value, and return it. It has no escapes.
    #[inline]
    pub(crate) fn name(&mut self) -> Certain<&'a [u8]> {
        let name = self.quoted()?;
        if name.len() > super::MOST_NAME {
            return Err(Uncertain);
        }
        self.blanks();
        self.expect(b':')?;
        self.blanks();
        Ok(name)
    }

    pub(crate) fn literal(&mut self, literal: &[u8]) -> Certain<()> {
        if !self.bytes[self.at..].starts_with(literal) {
            return Err(Uncertain);
        }
        self.at += literal.len();
        Ok(())
    }

    pub(crate) fn boolean(&mut self) -> Certain<bool> {
        let value = self.peek() == Some(b't');
        self.literal(if value { b"true" } else { b"false" })?;
        Ok(value)
    }

    // --- numbers ---

    /// Return a whole number of 64 bits.
    #[inline]
    pub(crate) fn whole_number(&mut self) -> Certain<i64> {
        let negative = self.take(b'-');
        let begin = self.at;
        let mut value: u64 = 0;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            self.at += 1;
        }
        let digits = self.at - begin;
        // 19 digits fit into 64 bits without a sign.
        if digits == 0 || digits > 19 || (digits > 1 && self.bytes[begin] == b'0') {
            return Err(Uncertain);
        }
        if negative {
            0_i64.checked_sub_unsigned(value).ok_or(Uncertain)
        } else {
            i64::try_from(value).map_err(|_| Uncertain)
        }
    }

    /// Return the text of a number.
    pub(crate) fn number(&mut self) -> Certain<&'a str> {
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
        Ok(&self.text[begin..self.at])
    }

    fn digits(&mut self) -> Certain<()> {
        let begin = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at > begin { Ok(()) } else { Err(Uncertain) }
    }

    // --- texts ---

    /// Return a text without escapes.
    #[inline]
    pub(crate) fn quoted(&mut self) -> Certain<&'a [u8]> {
        self.expect(b'"')?;
        Ok(self.plain_text()?.as_bytes())
    }

    /// Return the rest of a text behind its quote. It has no escapes.
    #[inline]
    pub(crate) fn plain_text(&mut self) -> Certain<&'a str> {
        let begin = self.at;
        if self.pass_plain()? == b'\\' {
            return Err(Uncertain);
        }
        let found = &self.text[begin..self.at];
        self.at += 1;
        Ok(found)
    }

    /// Append the rest of a text behind its quote.
    #[inline]
    pub(crate) fn text(&mut self, to: &mut Vec<u8>) -> Certain<()> {
        loop {
            let begin = self.at;
            let found = self.pass_plain()?;
            to.extend_from_slice(&self.bytes[begin..self.at]);
            self.at += 1;
            if found == b'"' {
                return Ok(());
            }
            let character = self.escaped()?;
            to.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }

    /// Pass characters up to the next quote or backslash, and return which of them it is.
    #[inline]
    fn pass_plain(&mut self) -> Certain<u8> {
        const ONES: u64 = 0x0101_0101_0101_0101;
        const HIGHS: u64 = ONES << 7;
        let rest = &self.bytes[self.at..];
        let words = rest.chunks_exact(8);
        let tail = words.len() * 8;
        for (i, word) in words.enumerate() {
            let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            let (quotes, escapes) = (word ^ (ONES * b'"' as u64), word ^ (ONES * b'\\' as u64));
            // The lowest high bit marks the first byte that is zero; bits above it may be wrong.
            let found = ((quotes.wrapping_sub(ONES) & !quotes) | (escapes.wrapping_sub(ONES) & !escapes)) & HIGHS;
            if found != 0 {
                let offset = i * 8 + (found.trailing_zeros() / 8) as usize;
                self.at += offset;
                return Ok(rest[offset]);
            }
        }
        for (i, &byte) in rest.iter().enumerate().skip(tail) {
            if byte == b'"' || byte == b'\\' {
                self.at += i;
                return Ok(byte);
            }
        }
        Err(Uncertain)
    }

    /// Return the character that the escape behind a backslash stands for.
    fn escaped(&mut self) -> Certain<char> {
        let escape = self.peek().ok_or(Uncertain)?;
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
                    0xD800..0xDC00 => {
                        self.literal(b"\\u")?;
                        let low = self.hex()?;
                        if !(0xDC00..0xE000).contains(&low) {
                            return Err(Uncertain);
                        }
                        char::from_u32(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)).ok_or(Uncertain)?
                    }
                    _ => char::from_u32(unit).ok_or(Uncertain)?,
                }
            }
            _ => return Err(Uncertain),
        })
    }

    fn hex(&mut self) -> Certain<u32> {
        let digits = self.bytes.get(self.at..self.at + 4).ok_or(Uncertain)?;
        self.at += 4;
        digits.iter().try_fold(0, |value, &digit| Ok(value * 16 + char::from(digit).to_digit(16).ok_or(Uncertain)?))
    }

    // --- what is not wanted ---

    /// Pass a value of any kind.
    pub(crate) fn skip_value(&mut self, levels: usize) -> Certain<()> {
        match self.peek().ok_or(Uncertain)? {
            b'"' => {
                self.at += 1;
                self.skip_text()
            }
            b'{' => {
                let levels = levels.checked_sub(1).ok_or(Uncertain)?;
                self.at += 1;
                self.blanks();
                if self.take(b'}') {
                    return Ok(());
                }
                loop {
                    self.expect(b'"')?;
                    let begin = self.at;
                    self.skip_text()?;
                    if self.at - begin > super::MOST_NAME {
                        return Err(Uncertain);
                    }
                    self.blanks();
                    self.expect(b':')?;
                    self.blanks();
                    self.skip_value(levels)?;
                    if !self.has_more(b'}')? {
                        return Ok(());
                    }
                }
            }
            b'[' => {
                let levels = levels.checked_sub(1).ok_or(Uncertain)?;
                self.at += 1;
                self.blanks();
                if self.take(b']') {
                    return Ok(());
                }
                loop {
                    self.skip_value(levels)?;
                    if !self.has_more(b']')? {
                        return Ok(());
                    }
                }
            }
            b't' => self.literal(b"true"),
            b'f' => self.literal(b"false"),
            b'n' => self.literal(b"null"),
            _ => {
                let number = self.number()?;
                if number.len() > super::MOST_DIGITS { Err(Uncertain) } else { Ok(()) }
            }
        }
    }

    fn skip_text(&mut self) -> Certain<()> {
        while self.pass_plain()? == b'\\' {
            self.at += 1;
            let escape = self.peek().ok_or(Uncertain)?;
            self.at += 1;
            match escape {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                b'u' => {
                    self.hex()?;
                    self.unicode_escapes += 1;
                }
                _ => return Err(Uncertain),
            }
        }
        self.at += 1;
        Ok(())
    }
}
