//! The changelog formats: a message in a tool's envelope says how rows changed (`formats/changelog` in Python).
//!
//! A message becomes `rows`, an array of `row_kind` and `row`, and `metadata`. Certain are messages
//!
//! * whose envelope and rows are certain as JSON (see the module above); with `texts`, numbers and booleans of rows may also
//!   be texts,
//! * of a kind that the envelope knows, with just the rows that belong to it: a deletion with a new row is left,
//! * whose metadata are certain: times are whole numbers or times as in SQL, and of other values see `loose`.
//!
//! Everything that is an error is left. The parts of the envelope that no column needs are read as well: Spark reads them,
//! so that something wrong in them is an error.

use arrow_schema::{DataType, Field, Fields};
use serde_json::Value;

use super::metadata::{Form, Span, bytes, each_field};
use super::scanner::Scanner;
use super::{MOST_LEVELS, Reader, text_of};
use crate::Unsupported;
use crate::columns::{Certain, Column, Struct, Uncertain, Values};
use crate::spark::data_type;

const OLD: usize = 0;
const NEW: usize = 1;
const KIND: usize = 2;
/// How many fields of an envelope can be read.
const MOST_FIELDS: usize = 16;
/// The form of a tool's messages.
#[derive(Debug, Clone)]
pub struct Envelope {
    /// The fields that are read: the row before, the row after, the kind, and those with metadata.
    fields: Vec<Box<[u8]>>,
    inserts: Vec<Box<[u8]>>,
    update: Box<[u8]>,
    delete: Box<[u8]>,
    /// Whether the row before an update has only what changed.
    partial: bool,
    /// Whether a message has several rows.
    batched: bool,
    /// Whether numbers and booleans may be texts.
    texts: bool,
    /// The field with the message, and the field beside it with its schema; the latter is the last of `fields`.
    payload: Option<[Box<[u8]>; 2]>,
    /// Fields whose text has to be this one; other messages have no row.
    include: Vec<(usize, Box<[u8]>)>,
    metadata: Vec<Metadata>,
}

#[derive(Debug, Clone)]
struct Metadata {
    field: usize,
    form: Form,
    /// Whether a column needs it.
    wanted: bool,
}

type Found<'a> = [Option<Span<'a>>; MOST_FIELDS];

impl Envelope {
    /// Return the envelope that a spec describes, and the columns of its messages for a table with these columns.
    pub(crate) fn parse(spec: &Value, row: Fields) -> Result<(Self, Fields), Unsupported> {
        let is = |name: &str| spec[name].as_bool().unwrap_or(false);
        let mut fields: Vec<Box<[u8]>> = Vec::new();
        for name in spec["images"].as_array().into_iter().flatten().chain([&spec["kind"]]) {
            fields.push(bytes(name)?);
        }
        if fields.len() != KIND + 1 {
            return Err(Unsupported(format!("images {}", spec["images"])));
        }
        let payload = is("payload").then(|| [b"payload"[..].into(), b"schema"[..].into()]);
        let mut place = |name: &Value| -> Result<usize, Unsupported> {
            let name = bytes(name)?;
            let found = fields.iter().position(|field| *field == name);
            Ok(found.unwrap_or_else(|| {
                fields.push(name);
                fields.len() - 1
            }))
        };
        let (mut metadata, mut columns, mut outer) = (Vec::new(), Vec::new(), Vec::new());
        for item in spec["metadata"].as_array().into_iter().flatten() {
            let is_outer = payload.is_some() && item["field"] == "schema";
            let field = if is_outer { usize::MAX } else { place(&item["field"])? };
            if is_outer {
                outer.push(metadata.len());
            }
            metadata.push(Metadata {
                field,
                form: Form::parse(item)?,
                wanted: spec["wanted"].as_array().is_some_and(|wanted| wanted.contains(&item["name"])),
            });
            let name = item["name"].as_str().unwrap_or_default();
            columns.push(Field::new(name, data_type(&item["type"])?, true));
        }
        let include = spec["include"].as_object().into_iter().flatten();
        let include = include
            .map(|(name, text)| Ok((place(&Value::String(name.clone()))?, bytes(text)?)))
            .collect::<Result<_, _>>()?;
        for index in outer {
            metadata[index].field = fields.len();
        }
        if fields.len() >= MOST_FIELDS {
            return Err(Unsupported("too many fields of an envelope".to_owned()));
        }
        let envelope = Self {
            fields,
            inserts: spec["inserts"].as_array().into_iter().flatten().map(bytes).collect::<Result<_, _>>()?,
            update: bytes(&spec["update"])?,
            delete: bytes(&spec["delete"])?,
            partial: is("partial"),
            batched: is("batched"),
            texts: is("texts"),
            payload,
            include,
            metadata,
        };
        let change = vec![Field::new("row_kind", DataType::Utf8, true), Field::new("row", DataType::Struct(row), true)];
        let changes = Field::new("element", DataType::Struct(change.into()), true);
        let columns = vec![
            Field::new("rows", DataType::List(changes.into()), true),
            Field::new("metadata", DataType::Struct(columns.into()), true),
        ];
        Ok((envelope, columns.into()))
    }

    /// Return the values of the fields; none for null.
    fn spans<'a>(&self, text: &'a str) -> Certain<Found<'a>> {
        let mut found = [None; MOST_FIELDS];
        let mut scanner = Scanner::new(text);
        scanner.blanks();
        match &self.payload {
            None => find(&mut scanner, &self.fields, &mut found, MOST_LEVELS)?,
            Some(names) => {
                let mut outer = [None; 2];
                find(&mut scanner, names, &mut outer, MOST_LEVELS)?;
                let payload: Span<'_> = outer[0].ok_or(Uncertain)?;
                find(&mut Scanner::new(payload.text), &self.fields, &mut found, MOST_LEVELS - 1)?;
                found[self.fields.len()] = outer[1];
            }
        }
        scanner.blanks();
        if scanner.is_at_end() { Ok(found) } else { Err(Uncertain) }
    }
}

/// Find the values of fields in the next object.
fn find<'a>(
    scanner: &mut Scanner<'a>,
    names: &[Box<[u8]>],
    found: &mut [Option<Span<'a>>],
    levels: usize,
) -> Certain<()> {
    let mut seen = 0_u32;
    each_field(scanner, |scanner, name| {
        let (begin, escapes) = (scanner.at(), scanner.unicode_escapes);
        scanner.skip_value(levels)?;
        if let Some(field) = names.iter().position(|wanted| **wanted == *name) {
            if seen & (1 << field) != 0 {
                return Err(Uncertain);
            }
            seen |= 1 << field;
            let text = scanner.since(begin);
            let has_unicode_escapes = scanner.unicode_escapes > escapes;
            found[field] = (text != "null").then_some(Span { text, has_unicode_escapes });
        }
        Ok(())
    })
}

/// Append the rows and the metadata of a message, and return whether it has any.
pub(crate) fn read(message: &[u8], columns: &mut Struct, envelope: &Envelope) -> Certain<bool> {
    if message.is_empty() {
        return Ok(false);
    }
    let text = text_of(message)?;
    let found = envelope.spans(text)?;
    let [rows, metadata] = &mut columns.columns[..] else { return Err(Uncertain) };
    let Values::List(_, offsets, change) = &mut rows.values else { return Err(Uncertain) };
    let mut reader = Reader::new(text);
    reader.texts = envelope.texts;
    append_rows(&found, change, &mut reader, envelope)?;
    offsets.push(change.len() as i32);
    rows.valid.append_non_null();
    reader.texts = false;
    append_metadata(&found, metadata, &mut reader, envelope)?;
    columns.len += 1;
    for (field, included) in &envelope.include {
        let text = Scanner::new(found[*field].ok_or(Uncertain)?.text).quoted()?;
        if *text != **included {
            return Ok(false);
        }
    }
    Ok(true)
}

// --- rows ---

fn append_rows<'a>(
    found: &Found<'a>,
    change: &mut Column,
    reader: &mut Reader<'a>,
    envelope: &Envelope,
) -> Certain<()> {
    let kind = Scanner::new(found[KIND].ok_or(Uncertain)?.text).quoted()?;
    let is_insert = envelope.inserts.iter().any(|insert| **insert == *kind);
    let is_update = *kind == *envelope.update;
    if !is_insert && !is_update && *kind != *envelope.delete {
        return Err(Uncertain);
    }
    let images = (found[OLD].map(|span| span.text), found[NEW].map(|span| span.text));
    let word: &[u8] = if is_insert { b"+I" } else { b"-D" };
    match images {
        (Some(old), Some(new)) if is_update && !envelope.partial => {
            push(change, b"-U", |row| reader.whole(old, row))?;
            push(change, b"+U", |row| reader.whole(new, row))
        }
        (Some(old), Some(new)) if is_update && !envelope.batched => update(change, old, new, reader),
        (Some(old), Some(new)) if is_update => {
            let (mut old, mut new) = (Elements::new(old)?, Elements::new(new)?);
            loop {
                match (old.next()?, new.next()?) {
                    (Some(old), Some(new)) => update(change, old, new, reader)?,
                    (None, None) => return Ok(()),
                    _ => return Err(Uncertain),
                }
            }
        }
        (Some(old), None) if !is_insert && !is_update && !envelope.partial => {
            push(change, word, |row| reader.whole(old, row))
        }
        (None, Some(new)) if envelope.batched && !is_update => {
            let mut new = Elements::new(new)?;
            while let Some(new) = new.next()? {
                push(change, word, |row| reader.whole(new, row))?;
            }
            Ok(())
        }
        (None, Some(new)) if is_insert || (envelope.partial && !is_update) => {
            push(change, word, |row| reader.whole(new, row))
        }
        _ => Err(Uncertain),
    }
}

/// Append an update whose old row has only what changed.
fn update<'a>(change: &mut Column, old: &'a str, new: &'a str, reader: &mut Reader<'a>) -> Certain<()> {
    push(change, b"-U", |row| reader.merged(old, new, row))?;
    push(change, b"+U", |row| reader.whole(new, row))
}

/// Append a change.
fn push(change: &mut Column, kind: &[u8], row: impl FnOnce(&mut Column) -> Certain<()>) -> Certain<()> {
    let Values::Struct(change_fields) = &mut change.values else { return Err(Uncertain) };
    let [kinds, rows] = &mut change_fields.columns[..] else { return Err(Uncertain) };
    let Values::String(texts) = &mut kinds.values else { return Err(Uncertain) };
    texts.data.extend_from_slice(kind);
    texts.end()?;
    kinds.valid.append_non_null();
    row(rows)?;
    change_fields.len += 1;
    change.valid.append_non_null();
    Ok(())
}

/// The objects in an array.
struct Elements<'a> {
    scanner: Scanner<'a>,
    is_first: bool,
}

impl<'a> Elements<'a> {
    fn new(array: &'a str) -> Certain<Self> {
        let mut scanner = Scanner::new(array);
        scanner.expect(b'[')?;
        scanner.blanks();
        Ok(Self { scanner, is_first: true })
    }

    fn next(&mut self) -> Certain<Option<&'a str>> {
        let is_first = std::mem::replace(&mut self.is_first, false);
        let more = if is_first { !self.scanner.take(b']') } else { self.scanner.has_more(b']')? };
        if !more {
            return Ok(None);
        }
        let begin = self.scanner.at();
        self.scanner.skip_value(MOST_LEVELS)?;
        Ok(Some(self.scanner.since(begin)))
    }
}

impl<'a> Reader<'a> {
    /// Append a value to a column.
    pub(super) fn whole(&mut self, text: &'a str, column: &mut Column) -> Certain<()> {
        self.spend(column)?;
        self.scanner = Scanner::new(text);
        if matches!(column.values, Values::Struct(_)) && self.scanner.peek() == Some(b'n') {
            return Err(Uncertain); // a row is not null
        }
        self.value(column, MOST_LEVELS)?;
        if self.scanner.is_at_end() { Ok(()) } else { Err(Uncertain) }
    }

    /// Append a row: what changed from the old one, the rest from the new one.
    fn merged(&mut self, old: &'a str, new: &'a str, row: &mut Column) -> Certain<()> {
        self.spend(row)?;
        let Values::Struct(fields) = &mut row.values else { return Err(Uncertain) };
        let (len, mut guess) = (fields.len, 0);
        let mut from = |text: &'a str, is_old: bool| {
            self.scanner = Scanner::new(text);
            self.scanner.expect(b'{')?;
            self.scanner.blanks();
            if self.scanner.take(b'}') {
                return Ok(());
            }
            loop {
                let name = self.scanner.name()?;
                let found = fields.find(name, guess);
                let column = found.map(|found| &mut fields.columns[found]).filter(|column| column.len() == len);
                let is_nested = matches!(self.scanner.peek(), Some(b'{' | b'['));
                let escapes = self.scanner.unicode_escapes;
                match (column, found) {
                    (Some(column), _) => self.value(column, MOST_LEVELS)?,
                    (None, Some(_)) if is_old => return Err(Uncertain), // twice
                    (None, _) => self.scanner.skip_value(MOST_LEVELS)?,
                }
                // Spark reads all of the old row as texts, too, and fails for halves of surrogate pairs.
                if is_old && is_nested && self.scanner.unicode_escapes > escapes {
                    return Err(Uncertain);
                }
                guess = found.map_or(guess, |found| found + 1);
                if !self.scanner.has_more(b'}')? {
                    return if self.scanner.is_at_end() { Ok(()) } else { Err(Uncertain) };
                }
            }
        };
        from(old, true)?;
        from(new, false)?;
        for column in &mut fields.columns {
            if column.len() == len {
                column.push_null();
            }
        }
        fields.len += 1;
        row.valid.append_non_null();
        Ok(())
    }
}

// --- metadata ---

fn append_metadata<'a>(
    found: &Found<'a>,
    metadata: &mut Column,
    reader: &mut Reader<'a>,
    envelope: &Envelope,
) -> Certain<()> {
    let Values::Struct(fields) = &mut metadata.values else { return Err(Uncertain) };
    for (column, one) in fields.columns.iter_mut().zip(&envelope.metadata) {
        match found[one.field] {
            None => column.push_null(),
            Some(span) if one.wanted => {
                if matches!(one.form, Form::TextOf(_) | Form::Time(_, Some(_))) {
                    one.form.check(span, column, reader)?; // the values beside it
                }
                one.form.append(span.text, column, reader)?;
            }
            Some(span) => {
                one.form.check(span, column, reader)?;
                column.push_null();
            }
        }
    }
    fields.len += 1;
    metadata.valid.append_non_null();
    Ok(())
}
