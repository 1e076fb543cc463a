//! Values of any kind that become texts: what Spark's parser makes of them for a STRING column.
//!
//! A text is itself, and another value is written as JSON again: without blanks, each number as Java writes it.

use super::scanner::Scanner;
use crate::columns::{Certain, Uncertain};

impl Scanner<'_> {
    /// Append the next value as a text, and return whether it is not null.
    ///
    /// Certain are texts, whole numbers of 64 bits, booleans, and objects and arrays of these whose texts have no escapes.
    pub(crate) fn any_text(&mut self, to: &mut Vec<u8>, levels: usize) -> Certain<bool> {
        match self.peek() {
            Some(b'"') => {
                self.take(b'"');
                self.text(to)?;
            }
            Some(b'n') => {
                self.literal(b"null")?;
                return Ok(false);
            }
            _ => self.compact(to, levels)?,
        }
        Ok(true)
    }

    fn compact(&mut self, to: &mut Vec<u8>, levels: usize) -> Certain<()> {
        let begin = self.at();
        let opening = self.peek().ok_or(Uncertain)?;
        match opening {
            b'{' | b'[' => {
                let levels = levels.checked_sub(1).ok_or(Uncertain)?;
                let end = opening + 2; // in ASCII the closing bracket
                self.take(opening);
                to.push(opening);
                self.blanks();
                if !self.take(end) {
                    loop {
                        if opening == b'{' {
                            let begin = self.at();
                            self.compact_text(to)?;
                            if self.at() - begin > super::MOST_NAME {
                                return Err(Uncertain);
                            }
                            self.blanks();
                            self.expect(b':')?;
                            self.blanks();
                            to.push(b':');
                        }
                        self.compact(to, levels)?;
                        if !self.has_more(end)? {
                            break;
                        }
                        to.push(b',');
                    }
                }
                to.push(end);
                return Ok(());
            }
            b'"' => return self.compact_text(to),
            b't' => self.literal(b"true")?,
            b'f' => self.literal(b"false")?,
            b'n' => self.literal(b"null")?,
            _ => {
                self.whole_number()?;
                let is_whole = !matches!(self.peek(), Some(b'.' | b'e' | b'E'));
                if !is_whole || self.since(begin) == "-0" {
                    return Err(Uncertain);
                }
            }
        }
        to.extend_from_slice(self.since(begin).as_bytes());
        Ok(())
    }

    fn compact_text(&mut self, to: &mut Vec<u8>) -> Certain<()> {
        let text = self.quoted()?;
        // Java escapes control characters, and those beyond 16 bits.
        if !text.iter().all(|c| (b' '..0xF0).contains(c)) {
            return Err(Uncertain);
        }
        to.push(b'"');
        to.extend_from_slice(text);
        to.push(b'"');
        Ok(())
    }
}
