//! The metadata of a changelog message: what Spark makes of a field beside the rows.

use serde_json::Value;

use super::scanner::Scanner;
use super::{MOST_LEVELS, Reader};
use crate::cast;
use crate::columns::{Certain, Column, Uncertain, Values};
use crate::spec::Unsupported;
use crate::text;

/// Beyond these, Spark's microseconds do not fit into 64 bits: the time is null.
const MOST_SECONDS: i64 = i64::MAX / 1_000_000;

/// How the metadata are in a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    /// Any value as a text.
    Text,
    /// An object with any values as texts.
    Texts,
    /// One of them.
    TextOf(Box<[u8]>),
    /// A count since 1970, with so many microseconds each, as any value or as one of an object's.
    Time(i64, Option<Box<[u8]>>),
    /// A time in UTC.
    Utc,
    /// A value of the column's type.
    Typed,
}

/// A field's value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span<'a> {
    pub(super) text: &'a str,
    pub(super) has_unicode_escapes: bool,
}

impl Form {
    pub(super) fn parse(item: &Value) -> Result<Self, Unsupported> {
        let key = if item["key"].is_null() { None } else { Some(bytes(&item["key"])?) };
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
}

impl Form {
    /// Append the metadata in a field's value.
    pub(super) fn append<'a>(&self, text: &'a str, column: &mut Column, reader: &mut Reader<'a>) -> Certain<()> {
        let mut scanner = Scanner::new(text);
        match (self, &mut column.values) {
            (Self::Text, Values::String(texts)) => {
                if !scanner.any_text(&mut texts.data, MOST_LEVELS)? {
                    return Err(Uncertain);
                }
                texts.end()?;
            }
            (Self::Texts, Values::Map(_, offsets, keys, values)) => {
                let first = keys.len();
                each_field(&mut scanner, |scanner, name| {
                    reader.spend(values)?;
                    let (Values::String(names), Values::String(texts)) = (&mut keys.values, &mut values.values) else {
                        return Err(Uncertain);
                    };
                    names.data.extend_from_slice(name);
                    names.end()?;
                    keys.valid.append_non_null();
                    let is_valid = scanner.any_text(&mut texts.data, MOST_LEVELS)?;
                    texts.end()?;
                    values.valid.append(is_valid);
                    Ok(())
                })?;
                let Values::String(names) = &keys.values else { return Err(Uncertain) };
                if !names.are_different(first) {
                    return Err(Uncertain);
                }
                offsets.push(values.len() as i32);
            }
            (Self::TextOf(key), Values::String(texts)) => match text_of(&mut scanner, key, &mut texts.data)? {
                true => texts.end()?,
                false => {
                    column.push_null();
                    return Ok(());
                }
            },
            (Self::Time(micros, key), Values::Timestamp(times, _)) => {
                let mut count = Vec::new();
                let is_valid = match key {
                    Some(key) => text_of(&mut scanner, key, &mut count)?,
                    None => scanner.any_text(&mut count, MOST_LEVELS)?,
                };
                let count = if is_valid {
                    Some(cast::whole(std::str::from_utf8(&count).map_err(|_| Uncertain)?)?)
                } else {
                    None
                };
                let limit = MOST_SECONDS * (1_000_000 / micros);
                match count.filter(|count| (-limit..=limit).contains(count)) {
                    Some(count) => times.push(count * micros),
                    None => {
                        column.push_null();
                        return Ok(());
                    }
                }
            }
            (Self::Utc, Values::Timestamp(times, _)) => times.push(text::timestamp(scanner.quoted()?)?),
            (Self::Typed, _) => return reader.whole(text, column),
            _ => return Err(Uncertain),
        }
        column.valid.append_non_null();
        Ok(())
    }

    /// Check that Spark can read a field's value that no column needs.
    pub(super) fn check<'a>(&self, span: Span<'a>, column: &mut Column, reader: &mut Reader<'a>) -> Certain<()> {
        let is_object = span.text.starts_with('{');
        match self {
            Self::Texts | Self::TextOf(_) | Self::Time(_, Some(_)) if !is_object => Err(Uncertain),
            Self::Typed => {
                let len = column.len();
                reader.whole(span.text, column)?;
                column.truncate(len);
                Ok(())
            }
            // Spark cannot write half of a surrogate pair as JSON.
            _ if (is_object || span.text.starts_with('[')) && span.has_unicode_escapes => Err(Uncertain),
            _ => Ok(()),
        }
    }
}

/// Append the value of a key as a text, and return whether it is there and not null.
fn text_of(scanner: &mut Scanner<'_>, key: &[u8], to: &mut Vec<u8>) -> Certain<bool> {
    let mut found = None;
    each_field(scanner, |scanner, name| {
        if *name != *key {
            return scanner.skip_value(MOST_LEVELS);
        }
        if found.is_some() {
            return Err(Uncertain);
        }
        found = Some(scanner.any_text(to, MOST_LEVELS)?);
        Ok(())
    })?;
    Ok(found.unwrap_or(false))
}

/// Call a function for each field of the next object. It passes the value.
pub(super) fn each_field<'a>(
    scanner: &mut Scanner<'a>,
    mut each: impl FnMut(&mut Scanner<'a>, &'a [u8]) -> Certain<()>,
) -> Certain<()> {
    scanner.expect(b'{')?;
    scanner.blanks();
    if scanner.take(b'}') {
        return Ok(());
    }
    loop {
        let name = scanner.name()?;
        each(scanner, name)?;
        if !scanner.has_more(b'}')? {
            return Ok(());
        }
    }
}

/// Return the bytes of a text in a spec.
pub(super) fn bytes(text: &Value) -> Result<Box<[u8]>, Unsupported> {
    text.as_str().map(|text| text.as_bytes().into()).ok_or_else(|| Unsupported(format!("{text} is no text")))
}
