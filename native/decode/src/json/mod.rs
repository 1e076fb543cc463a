//! The format `json`: a message is a JSON object with the wanted columns, read from left to right into them.
//!
//! Values are read by the rules of Flink's default parser (`JsonParserToRowDataConverters`):
//!
//! | type | is read from |
//! |---|---|
//! | all | `null`, or nothing at all |
//! | BOOLEAN | `true`, `false`; any other text or number is false, unless it is the text `true` |
//! | TINYINT, SMALLINT | a whole number, also in quotes |
//! | INT, BIGINT | a number, of which a part behind the point is cut; a whole number in quotes |
//! | FLOAT, DOUBLE, DECIMAL | a number, also in quotes |
//! | STRING | a text; any other value as it stands in the message, without blanks |
//! | BYTES | base64 with padding |
//! | DATE, TIME(p) | `2020-12-31`, `23:59:59.123` |
//! | TIMESTAMP | `2020-12-31 23:59:59.123`, also with `T` and then also without seconds |
//! | TIMESTAMP_LTZ | the same followed by `Z` |
//! | intervals | a number of milliseconds or of months |
//! | ARRAY, MAP, ROW | an array, an object, an object |
//!
//! A value that does not fit is an error with the path of its field, or null. Of a field or a key that is there twice the last
//! value counts. What follows the object is ignored. Fields that are not wanted are skipped, but have to be JSON.

pub(crate) mod changelog;
mod metadata;
mod scanner;
mod semantic;
mod wrong;

use serde_json::Value;

use crate::columns::{Column, Struct, Values};
use crate::fault::Full;
use crate::fault::{Failure, Unsupported};
use crate::schema_ids::Plans;
use crate::{java, text};
use scanner::{MOST_LEVELS, Scanner};
use semantic::{Meaning, Registered};
use wrong::Wrong;

const BYTE_ORDER_MARK: char = '\u{feff}';
const MICROS_A_MILLISECOND: i64 = 1000;

/// The options of the format that matter for reading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// `json.fail-on-missing-field`
    pub fail_on_missing_field: bool,
    /// `json.ignore-parse-errors`
    pub ignore_parse_errors: bool,
}

impl Options {
    /// Return the options of a spec.
    pub(crate) fn parse(spec: &Value) -> Self {
        let option = |name: &str| spec["options"][name].as_bool().unwrap_or(false);
        Self {
            fail_on_missing_field: option("json.fail-on-missing-field"),
            ignore_parse_errors: option("json.ignore-parse-errors"),
        }
    }
}

/// Messages with the ids of their schemas. Columns say what is read, and a schema which values stand for times and decimals.
#[derive(Debug, Clone)]
pub(crate) struct Messages {
    pub(crate) plans: Plans<Registered>,
    options: Options,
}

impl Messages {
    /// Return what reads the messages of a spec.
    pub(crate) fn parse(spec: &Value) -> Result<Self, Unsupported> {
        Ok(Self { plans: Plans::parse(spec, true)?, options: Options::parse(spec) })
    }
}

/// Append the columns of a message with the id of its schema, and return whether it has a row.
pub(crate) fn read_registered(
    message: &[u8],
    header: Option<&[u8]>,
    columns: &mut Struct,
    messages: &mut Messages,
) -> Result<bool, Failure> {
    let options = messages.options;
    let found = match messages.plans.plan(message, header) {
        Err(words) => Err(Failure::Message(words.to_string())),
        Ok((_, body)) if body.trim_ascii().is_empty() => {
            let words = if header.is_some() { "it is empty" } else { "nothing follows its schema id" };
            Err(Failure::Message(words.to_owned()))
        }
        Ok((Registered(meaning), body)) => row(body, columns, options, meaning.as_ref()),
    };
    match found {
        Err(Failure::Message(_)) if options.ignore_parse_errors => Ok(false),
        found => found.map(|()| true),
    }
}

/// Why a message has no row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    Broken,
    TooDeep,
    TooLong,
    TooMany,
    Full,
}

type Read<T> = Result<T, Fault>;

impl From<Full> for Fault {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

impl From<Fault> for Failure {
    #[cold]
    fn from(fault: Fault) -> Self {
        Self::Message(String::from(match fault {
            Fault::Full => return Self::Full,
            Fault::Broken => "It is not a JSON object",
            Fault::TooDeep => "It is not a JSON object of at most 1,000 levels",
            Fault::TooLong => "It has a name, a number or a text that is too long",
            Fault::TooMany => "It has arrays with many more values than their text has characters",
        }))
    }
}

/// Append the columns of a message, and return whether it has a row.
pub(crate) fn read(message: &[u8], columns: &mut Struct, options: &Options) -> Result<bool, Failure> {
    if message.is_empty() {
        return Ok(false);
    }
    match row(message, columns, *options, None) {
        Err(Failure::Message(_)) if options.ignore_parse_errors => Ok(false),
        found => found.map(|()| true),
    }
}

fn row(message: &[u8], columns: &mut Struct, options: Options, meaning: Option<&Meaning>) -> Result<(), Failure> {
    let mut reader = Reader::new(text_of(message)?, options);
    reader.scanner.blanks();
    reader.object(columns, meaning, MOST_LEVELS)?;
    reader.wrong.checked()
}

fn text_of(message: &[u8]) -> Result<&str, Failure> {
    let text = std::str::from_utf8(message).map_err(|_| Failure::Message("It is not UTF-8".to_owned()))?;
    Ok(text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text))
}

struct Reader<'a> {
    scanner: Scanner<'a>,
    options: Options,
    /// A text with escapes.
    buffer: String,
    /// What is wrong with the value that was read last. Who reads a value takes it.
    wrong: Wrong,
    /// How many more values may be put into arrays and maps.
    budget: usize,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str, options: Options) -> Self {
        // Arrays of wide structs could take much more memory than their text.
        let budget = 16 * text.len() + 16 * 1024;
        Self { scanner: Scanner::new(text), options, buffer: String::new(), wrong: Wrong::default(), budget }
    }

    /// Read an object into the columns of a struct.
    fn object(&mut self, columns: &mut Struct, meaning: Option<&Meaning>, levels: usize) -> Read<()> {
        let levels = levels.checked_sub(1).ok_or(Fault::TooDeep)?;
        let row = columns.len;
        let mut wrong = Wrong::default();
        let mut guess = 0;
        let mut has_more = self.scanner.begin(b'{')?;
        while has_more {
            match self.name(columns, guess)? {
                Some(found) => {
                    if columns.columns[found].len() != row {
                        columns.columns[found].truncate(row); // the field is there twice
                        wrong.forget_field(found);
                    }
                    let meaning = meaning.and_then(|meaning| meaning.field(columns.name(found)));
                    self.field(columns, found, meaning, levels, &mut wrong)?;
                    guess = found + 1;
                }
                None => self.scanner.skip_value(levels)?,
            }
            has_more = self.scanner.has_more(b'{')?;
        }
        let mut fails = self.options.fail_on_missing_field;
        for index in 0..columns.columns.len() {
            if columns.columns[index].len() == row {
                columns.columns[index].push_null();
                if fails {
                    wrong.add_field(index, columns.name(index), Wrong::missing());
                    fails = false; // one is an error already
                }
            }
        }
        columns.len += 1;
        self.wrong = wrong;
        Ok(())
    }

    /// Pass the name of a field, and return the field's place; `guess` is looked at first.
    #[inline]
    fn name(&mut self, columns: &Struct, guess: usize) -> Read<Option<usize>> {
        if let Some(name) = columns.quoted(guess) {
            if self.scanner.take_name(name)? {
                return Ok(Some(guess));
            }
        }
        Ok(columns.find(self.scanner.name(&mut self.buffer)?.as_bytes(), guess))
    }

    /// Read the value of a field of an object, and add what is wrong with it to what is wrong with the object.
    #[inline]
    fn field(
        &mut self,
        columns: &mut Struct,
        index: usize,
        meaning: Option<&Meaning>,
        levels: usize,
        wrong: &mut Wrong,
    ) -> Read<()> {
        self.value(&mut columns.columns[index], meaning, levels)?;
        if !self.wrong.is_nothing() {
            wrong.add_field(index, columns.name(index), self.wrong.take());
        }
        Ok(())
    }

    /// Append the next value to a column. One that does not fit is null.
    #[inline]
    fn value(&mut self, column: &mut Column, meaning: Option<&Meaning>, levels: usize) -> Read<()> {
        let token = self.scanner.peek().ok_or(Fault::Broken)?;
        if token == b'n' {
            self.scanner.null()?;
            column.push_null();
            return Ok(());
        }
        let begin = self.scanner.at();
        if self.fits(token, column, meaning, levels)? {
            column.valid.append_non_null();
            return Ok(());
        }
        self.scanner.back_to(begin);
        self.scanner.skip_value(levels)?;
        column.push_null();
        self.wrong = self.misfit();
        Ok(())
    }

    /// Return what is wrong with a value that does not fit.
    #[cold]
    fn misfit(&self) -> Wrong {
        if self.options.ignore_parse_errors { Wrong::default() } else { Wrong::misfit() }
    }

    /// Append the next value, which is not null and begins with `token`, without its bit; return whether it fits.
    #[inline]
    fn fits(&mut self, token: u8, column: &mut Column, meaning: Option<&Meaning>, levels: usize) -> Read<bool> {
        if let Some(Meaning::Value(kind)) = meaning {
            if let Some(fits) = self.meant(token, *kind, &mut column.values, levels)? {
                return Ok(fits);
            }
        }
        let is_number = matches!(token, b'-' | b'0'..=b'9');
        let found = match &mut column.values {
            Values::String(v) => {
                if token == b'"' {
                    Some(v.push(self.scanner.text(&mut self.buffer)?.as_bytes())?)
                } else {
                    v.push_with(|data| Ok::<_, Fault>(self.scanner.any_text(levels, data)?.then_some(())))?
                }
            }
            Values::Int32(v) if is_number => {
                self.scanner.whole_number(i32::MIN.into(), i32::MAX.into())?.map(|number| v.push(number as i32))
            }
            Values::Int64(v) if is_number => {
                self.scanner.whole_number(i64::MIN, i64::MAX)?.map(|number| v.push(number))
            }
            Values::Interval(v) if is_number => {
                let number = self.scanner.whole_number(i64::MIN, i64::MAX)?;
                number.and_then(|number| number.checked_mul(MICROS_A_MILLISECOND)).map(|micros| v.push(micros))
            }
            // All numbers of JSON are numbers of Rust.
            Values::Float32(v) if is_number => v.push_text(self.scanner.number()?),
            Values::Float64(v) if is_number => v.push_text(self.scanner.number()?),
            Values::Boolean(v) if matches!(token, b't' | b'f') => {
                v.push(self.scanner.boolean()?);
                Some(())
            }
            Values::List(_, ends, element) if token == b'[' => {
                self.array(element, meaning, levels)?;
                Some(ends.push(element.len())?)
            }
            Values::Map(_, ends, key, value) if token == b'{' => {
                self.map(key, value, meaning, levels)?;
                Some(ends.push(value.len())?)
            }
            Values::Struct(v) if token == b'{' => {
                self.object(v, meaning, levels)?;
                Some(())
            }
            Values::List(..) | Values::Map(..) | Values::Struct(_) => None,
            values if is_number => java::append(self.scanner.number()?, values),
            values if token == b'"' => append(self.scanner.text(&mut self.buffer)?, values)?,
            _ => None,
        };
        Ok(found.is_some())
    }

    fn array(&mut self, element: &mut Column, meaning: Option<&Meaning>, levels: usize) -> Read<()> {
        let levels = levels.checked_sub(1).ok_or(Fault::TooDeep)?;
        let mut wrong = Wrong::default();
        let mut has_more = self.scanner.begin(b'[')?;
        while has_more {
            self.element(element, meaning, levels, &mut wrong)?;
            has_more = self.scanner.has_more(b'[')?;
        }
        self.wrong = wrong;
        Ok(())
    }

    /// Append the next value of an array or a map, and add what is wrong with it to what is wrong with the whole.
    #[inline]
    fn element(
        &mut self,
        column: &mut Column,
        meaning: Option<&Meaning>,
        levels: usize,
        wrong: &mut Wrong,
    ) -> Read<()> {
        self.spend(column)?;
        self.value(column, meaning.and_then(Meaning::element), levels)?;
        if !self.wrong.is_nothing() {
            wrong.add(self.wrong.take());
        }
        Ok(())
    }

    /// Read a map. Of entries with the same key, the last one is kept, as in Java.
    fn map(&mut self, key: &mut Column, value: &mut Column, meaning: Option<&Meaning>, levels: usize) -> Read<()> {
        let levels = levels.checked_sub(1).ok_or(Fault::TooDeep)?;
        let (first, begin) = (key.len(), self.scanner.at());
        let mut wrong = Wrong::default();
        let Values::String(names) = &mut key.values else { return Err(Fault::Broken) }; // the format checks that
        let mut has_more = self.scanner.begin(b'{')?;
        while has_more {
            names.push(self.scanner.name(&mut self.buffer)?.as_bytes())?;
            key.valid.append_non_null();
            self.element(value, meaning, levels, &mut wrong)?;
            has_more = self.scanner.has_more(b'{')?;
        }
        if names.are_different(first) {
            self.wrong = wrong;
            return Ok(());
        }
        let last = names.last_places(first);
        key.truncate(first);
        value.truncate(first);
        wrong = Wrong::default();
        self.scanner.back_to(begin);
        let (mut place, mut has_more) = (first, self.scanner.begin(b'{')?);
        while has_more {
            let name = self.scanner.name(&mut self.buffer)?;
            if last.contains(&place) {
                let Values::String(names) = &mut key.values else { return Err(Fault::Broken) };
                names.push(name.as_bytes())?;
                key.valid.append_non_null();
                self.element(value, meaning, levels, &mut wrong)?;
            } else {
                self.scanner.skip_value(levels)?;
            }
            place += 1;
            has_more = self.scanner.has_more(b'{')?;
        }
        self.wrong = wrong;
        Ok(())
    }

    fn spend(&mut self, column: &Column) -> Read<()> {
        self.budget = self.budget.checked_sub(column.width).ok_or(Fault::TooMany)?;
        Ok(())
    }
}

/// Append the value that a text in quotes stands for; none if it stands for no value of the type.
fn append(text: &str, values: &mut Values) -> Read<Option<()>> {
    Ok(match values {
        Values::Binary(v) => v.push_with(|data| Ok::<_, Full>(java::base64(text, data)))?,
        Values::Date(v) => date(text).map(|days| v.push(days)),
        Values::Time(v, digits) => java::time(text, *digits).filter(|_| text.len() >= 8).map(|time| v.push(time)),
        Values::Timestamp(v, None) => timestamp(text).map(|time| v.push(time)),
        Values::Timestamp(v, Some(_)) => text.strip_suffix('Z').and_then(timestamp).map(|time| v.push(time)),
        Values::Interval(v) => {
            let number = java::trim(text).parse::<i64>().ok();
            number.and_then(|number| number.checked_mul(MICROS_A_MILLISECOND)).map(|micros| v.push(micros))
        }
        values => java::append(text, values),
    })
}

/// Return the days since 1970 of a date as in `2020-12-31`.
fn date(text: &str) -> Option<i32> {
    match text::date(text.as_bytes()) {
        Some(days) => Some(days), // the common form
        None => i32::try_from(java::iso_date(text.as_bytes())?).ok(),
    }
}

/// Return the microseconds since 1970 of a time in one of the two standards.
fn timestamp(text: &str) -> Option<i64> {
    if let Some(micros) = text::timestamp(text.as_bytes()) {
        return Some(micros); // the common form
    }
    if let Some(micros) = java::local(text.as_bytes(), b' ') {
        return Some(micros);
    }
    let has_seconds = text.split_once('T')?.1.len() != "23:59".len();
    if has_seconds { java::local(text.as_bytes(), b'T') } else { java::local(format!("{text}:00").as_bytes(), b'T') }
}
