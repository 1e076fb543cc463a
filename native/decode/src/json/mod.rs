//! The format `json`: a message is a JSON object with the wanted columns, read from left to right into them.
//!
//! What the decoder is certain about, in a message of valid UTF-8 that is one JSON object and nothing else:
//!
//! | type | certain | examples of what is left to Spark |
//! |---|---|---|
//! | all | `null`, a missing field | the same field twice, an escape in a field's name, a value of another kind |
//! | BOOLEAN | `true`, `false` | numbers, texts |
//! | TINYINT to BIGINT | a whole number within the type's range | `1.0`, `1e3`, `"1"`, a number out of range |
//! | FLOAT, DOUBLE | a finite number of at most 100 characters; a whole one of at most 18 digits | `"NaN"`, `1e400` |
//! | DECIMAL | a number without exponent that fits without rounding, also in quotes | `1e3`, more digits than the type has |
//! | STRING | a text | numbers and objects, half of a surrogate pair |
//! | BYTES | base64 with padding, without escapes | line breaks, missing padding |
//! | DATE | `2020-12-31`, from the year 1 to 9999 | `2020-1-2`, numbers |
//! | TIME(p) | `23:59:59`, with up to p digits behind the point | more digits, numbers |
//! | TIMESTAMP | `2020-12-31 23:59:59`, also with `T`, with up to 9 digits behind the point | a zone, a date alone |
//! | TIMESTAMP_LTZ | the same followed by `Z` | another zone, none, numbers |
//! | ARRAY | an array of such values | |
//! | MAP | an object with different names | a name twice |
//! | ROW | an object | an array |
//!
//! Fields that are not wanted are skipped. They have to be JSON, too, but may be anything and may appear twice. More than 60
//! levels are left, and so are messages of more than 20,000,000 bytes and names of more than 50,000: Spark's parser refuses texts
//! and names of more characters. With `fail_on_missing_field` a message that lacks a field is left: that is an error for Spark to report.

pub(crate) mod changelog;
mod loose;
mod metadata;
pub(crate) mod scanner;

use crate::columns::{Certain, Column, Struct, Uncertain, Values};
use crate::{cast, text};
use scanner::Scanner;

const MOST_LEVELS: usize = 60;
/// The limits of Jackson for a text and for a name. A character has a byte at least.
const MOST_TEXT: usize = 20_000_000;
const MOST_NAME: usize = 50_000;
const MOST_DIGITS: usize = 100;

/// The options of the format that matter for reading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// `json.fail-on-missing-field`
    pub fail_on_missing_field: bool,
}

/// Append the columns of a message, and return whether it has a row.
pub(crate) fn read(message: &[u8], columns: &mut Struct, options: &Options) -> Certain<bool> {
    if message.is_empty() {
        return Ok(false);
    }
    let text = text_of(message)?;
    let mut reader = Reader::new(text);
    reader.complete = options.fail_on_missing_field;
    reader.scanner.blanks();
    reader.scanner.expect(b'{')?;
    reader.object(columns, MOST_LEVELS)?;
    reader.scanner.blanks();
    if reader.scanner.is_at_end() { Ok(true) } else { Err(Uncertain) }
}

fn text_of(message: &[u8]) -> Certain<&str> {
    if message.len() > MOST_TEXT {
        return Err(Uncertain);
    }
    std::str::from_utf8(message).map_err(|_| Uncertain)
}

struct Reader<'a> {
    scanner: Scanner<'a>,
    /// Whether each field has to be there.
    complete: bool,
    /// Whether numbers and booleans may be written as texts.
    texts: bool,
    /// How many more values may be put into arrays and maps.
    budget: usize,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        // Arrays of wide structs could take much more memory than their text.
        let budget = 16 * text.len() + 1024;
        Self { scanner: Scanner::new(text), complete: false, texts: false, budget }
    }

    /// Read an object behind its brace into the columns of a struct.
    fn object(&mut self, columns: &mut Struct, levels: usize) -> Certain<()> {
        let row = columns.len;
        let mut guess = 0;
        self.scanner.blanks();
        if !self.scanner.take(b'}') {
            loop {
                let name = self.scanner.name()?;
                match columns.find(name, guess) {
                    Some(found) => {
                        let column = &mut columns.columns[found];
                        if column.len() != row {
                            return Err(Uncertain); // the field is there twice
                        }
                        self.value(column, levels)?;
                        guess = found + 1;
                    }
                    None => self.scanner.skip_value(levels)?,
                }
                if !self.scanner.has_more(b'}')? {
                    break;
                }
            }
        }
        for column in &mut columns.columns {
            if column.len() == row {
                if self.complete {
                    return Err(Uncertain);
                }
                column.push_null();
            }
        }
        columns.len += 1;
        Ok(())
    }

    fn value(&mut self, column: &mut Column, levels: usize) -> Certain<()> {
        let scanner = &mut self.scanner;
        if scanner.peek() == Some(b'n') {
            scanner.literal(b"null")?;
            column.push_null();
            return Ok(());
        }
        if self.texts && scanner.peek() == Some(b'"') && cast::is_weak(&column.values) {
            scanner.take(b'"');
            cast::append(scanner.plain_text()?, &mut column.values)?;
            column.valid.append_non_null();
            return Ok(());
        }
        match &mut column.values {
            Values::Boolean(v) => v.append(scanner.boolean()?),
            Values::Int8(v) => v.push(scanner.whole_number()?.try_into().map_err(|_| Uncertain)?),
            Values::Int16(v) => v.push(scanner.whole_number()?.try_into().map_err(|_| Uncertain)?),
            Values::Int32(v) => v.push(scanner.whole_number()?.try_into().map_err(|_| Uncertain)?),
            Values::Int64(v) => v.push(scanner.whole_number()?),
            Values::Float32(v) if self.texts => v.push(whole(scanner.number()?)?.ok_or(Uncertain)? as f32),
            Values::Float64(v) if self.texts => v.push(whole(scanner.number()?)?.ok_or(Uncertain)? as f64),
            Values::Float32(v) => v.push(float32(scanner.number()?)?),
            Values::Float64(v) => v.push(float64(scanner.number()?)?),
            Values::Decimal(v, precision, scale) => {
                let number = if scanner.take(b'"') { scanner.plain_text()? } else { scanner.number()? };
                v.push(text::decimal(number.as_bytes(), *precision, *scale)?);
            }
            Values::String(v) => {
                scanner.expect(b'"')?;
                scanner.text(&mut v.data)?;
                v.end()?;
            }
            Values::Binary(v) => {
                scanner.expect(b'"')?;
                cast::base64(scanner.plain_text()?, v)?;
            }
            Values::Date(v) => v.push(text::date(scanner.quoted()?)?),
            Values::Time(v, digits) => v.push(text::time(scanner.quoted()?, *digits)?),
            Values::Timestamp(v, None) => v.push(text::timestamp(scanner.quoted()?)?),
            Values::Timestamp(v, Some(_)) => v.push(text::instant(scanner.quoted()?)?),
            Values::List(_, offsets, element) => {
                scanner.expect(b'[')?;
                self.array(element, levels.checked_sub(1).ok_or(Uncertain)?)?;
                offsets.push(element.len() as i32);
            }
            Values::Map(_, offsets, key, value) => {
                scanner.expect(b'{')?;
                self.map(key, value, levels.checked_sub(1).ok_or(Uncertain)?)?;
                offsets.push(value.len() as i32);
            }
            Values::Struct(v) => {
                scanner.expect(b'{')?;
                self.object(v, levels.checked_sub(1).ok_or(Uncertain)?)?;
            }
        }
        column.valid.append_non_null();
        Ok(())
    }

    fn array(&mut self, element: &mut Column, levels: usize) -> Certain<()> {
        self.scanner.blanks();
        if self.scanner.take(b']') {
            return Ok(());
        }
        loop {
            self.spend(element)?;
            self.value(element, levels)?;
            if !self.scanner.has_more(b']')? {
                return Ok(());
            }
        }
    }

    fn map(&mut self, key: &mut Column, value: &mut Column, levels: usize) -> Certain<()> {
        let first = key.len();
        self.scanner.blanks();
        if self.scanner.take(b'}') {
            return Ok(());
        }
        loop {
            self.spend(value)?;
            let name = self.scanner.name()?;
            let Values::String(names) = &mut key.values else {
                return Err(Uncertain);
            };
            names.data.extend_from_slice(name);
            names.end()?;
            key.valid.append_non_null();
            self.value(value, levels)?;
            if !self.scanner.has_more(b'}')? {
                break;
            }
        }
        let Values::String(names) = &key.values else {
            return Err(Uncertain);
        };
        if names.are_different(first) { Ok(()) } else { Err(Uncertain) }
    }

    fn spend(&mut self, column: &Column) -> Certain<()> {
        self.budget = self.budget.checked_sub(column.width).ok_or(Uncertain)?;
        Ok(())
    }
}

fn float64(number: &str) -> Certain<f64> {
    if number.len() > MOST_DIGITS {
        return Err(Uncertain);
    }
    let value = match whole(number)? {
        Some(whole) => whole as f64, // not -0.0 for -0
        None => number.parse::<f64>().map_err(|_| Uncertain)?,
    };
    if value.is_finite() { Ok(value) } else { Err(Uncertain) }
}

fn float32(number: &str) -> Certain<f32> {
    let double = float64(number)?;
    let value = match whole(number)? {
        Some(whole) => whole as f32,
        None => number.parse::<f32>().map_err(|_| Uncertain)?,
    };
    // A few numbers are rounded to another value if they are rounded to a double first.
    if value.is_finite() && value == double as f32 { Ok(value) } else { Err(Uncertain) }
}

/// Return a whole number of at most 18 digits; none if the number has a point or an exponent.
fn whole(number: &str) -> Certain<Option<i64>> {
    if number.bytes().any(|c| matches!(c, b'.' | b'e' | b'E')) {
        return Ok(None);
    }
    if number.len() > 18 {
        return Err(Uncertain);
    }
    number.parse().map(Some).map_err(|_| Uncertain)
}
