//! The metadata of a changelog message: fields beside the rows.

use serde_json::Value;

use super::scanner::{MOST_LEVELS, Scanner};
use super::{Read, Reader, timestamp};
use crate::columns::{Column, Values};
use crate::fault::Unsupported;
use crate::java;

/// How the metadata are in a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    /// Any value as a text.
    Text,
    /// An object with any values as texts.
    Texts,
    /// One of them.
    TextOf(Box<str>),
    /// A count since 1970, with so many microseconds each, as any value or as one of an object's. Anything else is null.
    Time(i64, Option<Box<str>>),
    /// A time in UTC. Anything else is null.
    Utc,
    /// A value of the column's type.
    Typed,
}

impl Form {
    pub(super) fn parse(item: &Value) -> Result<Self, Unsupported> {
        let key = item["key"].as_str().map(Box::from);
        let any = item["field_type"] == "string" || item["field_type"]["valueType"] == "string";
        match (item["form"].as_str(), key) {
            (Some("value"), Some(key)) => Ok(Self::TextOf(key)),
            (Some("value"), None) if item["type"] == "string" => Ok(Self::Text),
            (Some("value"), None) if any => Ok(Self::Texts),
            (Some("value"), None) => Ok(Self::Typed),
            (Some("milliseconds"), key) => Ok(Self::Time(1000, key)),
            (Some("seconds"), key) => Ok(Self::Time(1_000_000, key)),
            (Some("utc"), None) => Ok(Self::Utc),
            _ => Err(Unsupported(format!("metadata {item}"))),
        }
    }

    /// Append the metadata in a field's value, which is not null; return whether the value fits.
    pub(super) fn append<'a>(&self, text: &'a str, column: &mut Column, reader: &mut Reader<'a>) -> Read<bool> {
        let mut scanner = Scanner::new(text);
        let needs_object = matches!(self, Self::Texts | Self::TextOf(_) | Self::Time(_, Some(_)));
        if needs_object && scanner.peek() != Some(b'{') {
            column.push_null();
            return Ok(false);
        }
        let mut found = Vec::new();
        let is_valid = match self {
            Self::TextOf(key) | Self::Time(_, Some(key)) => text_of(&mut scanner, key, &mut found)?,
            Self::Text | Self::Time(..) | Self::Utc => scanner.any_text(MOST_LEVELS, &mut found)?,
            Self::Texts | Self::Typed => {
                reader.scanner = scanner;
                reader.value(column, None, MOST_LEVELS)?;
                return Ok(reader.wrong.take().is_nothing());
            }
        };
        let time = || std::str::from_utf8(&found).ok().filter(|_| is_valid);
        let appended = match (self, &mut column.values) {
            (Self::Time(micros, _), Values::Timestamp(times, _)) => {
                let count = time().and_then(|text| java::trim(text).parse::<i64>().ok());
                count.and_then(|count| count.checked_mul(*micros)).map(|time| times.push(time))
            }
            (Self::Utc, Values::Timestamp(times, _)) => time().and_then(timestamp).map(|time| times.push(time)),
            (_, Values::String(texts)) if is_valid => Some(texts.push(&found)?),
            _ => None,
        };
        match appended {
            Some(()) => column.valid.append_non_null(),
            None => column.push_null(),
        }
        Ok(true)
    }
}

/// Append the value of a key as a text, and return whether it is there and not null. Of several, the last one counts.
fn text_of(scanner: &mut Scanner<'_>, key: &str, to: &mut Vec<u8>) -> Read<bool> {
    let mut found = false;
    each_field(scanner, MOST_LEVELS, |scanner, name, levels| {
        if name != key {
            return scanner.skip_value(levels);
        }
        to.clear();
        found = scanner.any_text(levels, to)?;
        Ok(())
    })?;
    Ok(found)
}

/// Call a function for each field of the next object. It passes the value.
pub(super) fn each_field<'a>(
    scanner: &mut Scanner<'a>,
    levels: usize,
    mut each: impl FnMut(&mut Scanner<'a>, &str, usize) -> Read<()>,
) -> Read<()> {
    let mut buffer = String::new();
    let mut has_more = scanner.begin(b'{')?;
    while has_more {
        // The name is in the text, or in the buffer, which is not used by the function.
        let name = scanner.name(&mut buffer)?;
        each(scanner, name, levels - 1)?;
        has_more = scanner.has_more(b'{')?;
    }
    Ok(())
}
