//! The changelog formats: a message in a tool's envelope says how rows changed (`formats/changelog` in Python).
//!
//! A message becomes `rows`, an array of `row_kind` and `row`, and `metadata`. Rows are read as in the format `json`, and both
//! images are, also where one of them is not needed. Metadata are read if a column needs them.

use arrow_schema::{DataType, Field, Fields};
use serde_json::Value;

use super::metadata::{Form, each_field};
use super::scanner::{MOST_LEVELS, Scanner};
use super::semantic::{Included, Meaning};
use super::wrong::Wrong;
use super::{Options, Read, Reader, text_of};
use crate::columns::{Column, Struct, Values};
use crate::fault::{Failure, Unsupported};
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
    fields: Vec<Box<str>>,
    tool: Box<str>,
    inserts: Vec<Box<str>>,
    update: Box<str>,
    delete: Box<str>,
    /// Kinds of messages that are not about rows and have none.
    skipped: Vec<Box<str>>,
    /// Advice for messages that cannot become rows: by their kind, without a kind, and without the row before the change.
    hints: Vec<(Box<str>, Box<str>)>,
    advice: Box<str>,
    whole_rows: Box<str>,
    /// Whether the row before an update has only what changed.
    partial: bool,
    /// Whether a message has several rows.
    batched: bool,
    /// Whether the message is in the field `payload`, beside `schema`; the latter is the last of `fields`.
    payload: bool,
    /// What the rows stand for, by that schema.
    included: Included,
    /// Fields whose text has to be this one, or has to be there; other messages have no row.
    include: Vec<(usize, Option<Box<str>>)>,
    metadata: Vec<Metadata>,
    options: Options,
}

#[derive(Debug, Clone)]
struct Metadata {
    field: usize,
    form: Form,
    /// Whether a column needs it.
    wanted: bool,
}

/// The values of fields; none for null.
type Found<'a> = [Option<&'a str>; MOST_FIELDS];

impl Envelope {
    /// Return the envelope that a spec describes, and the columns of its messages for a table with these columns.
    pub(crate) fn parse(spec: &Value, row: Fields) -> Result<(Self, Fields), Unsupported> {
        let is = |name: &str| spec[name].as_bool().unwrap_or(false);
        let mut fields = texts(&spec["images"]);
        fields.extend(spec["kind"].as_str().map(Box::from));
        if fields.len() != KIND + 1 {
            return Err(Unsupported(format!("images {}", spec["images"])));
        }
        let mut place = |name: &str| {
            let found = fields.iter().position(|field| **field == *name);
            found.unwrap_or_else(|| {
                fields.push(name.into());
                fields.len() - 1
            })
        };
        let (mut metadata, mut columns) = (Vec::new(), Vec::new());
        for item in spec["metadata"].as_array().into_iter().flatten() {
            let field = item["field"].as_str().unwrap_or_default();
            let field = if is("payload") && field == "schema" { MOST_FIELDS - 1 } else { place(field) };
            let wanted = spec["wanted"].as_array().is_none_or(|wanted| wanted.contains(&item["name"]));
            metadata.push(Metadata { field, form: Form::parse(item)?, wanted });
            columns.push(Field::new(text(&item["name"]), data_type(&item["type"])?, true));
        }
        let include = spec["include"].as_object().into_iter().flatten();
        let include = include.map(|(name, text)| (place(name), text.as_str().map(Box::from))).collect();
        if fields.len() >= MOST_FIELDS {
            return Err(Unsupported("too many fields of an envelope".to_owned()));
        }
        let hints = spec["hints"].as_object().into_iter().flatten();
        let envelope = Self {
            fields,
            tool: text(&spec["tool"]).into(),
            inserts: texts(&spec["inserts"]),
            update: text(&spec["update"]).into(),
            delete: text(&spec["delete"]).into(),
            skipped: texts(&spec["skipped"]),
            hints: hints.map(|(kind, hint)| (kind.as_str().into(), text(hint).into())).collect(),
            advice: text(&spec["advice"]).into(),
            whole_rows: text(&spec["whole_rows"]).into(),
            partial: is("partial"),
            batched: is("batched"),
            payload: is("payload"),
            included: Included::default(),
            include,
            metadata,
            options: Options { fail_on_missing_field: false, ignore_parse_errors: is("ignore_parse_errors") },
        };
        let change = vec![Field::new("row_kind", DataType::Utf8, true), Field::new("row", DataType::Struct(row), true)];
        let changes = Field::new("element", DataType::Struct(change.into()), true);
        let columns = vec![
            Field::new("rows", DataType::List(changes.into()), true),
            Field::new("metadata", DataType::Struct(columns.into()), true),
        ];
        Ok((envelope, columns.into()))
    }

    /// Return the values of the fields.
    fn find<'a>(&self, text: &'a str) -> Result<Found<'a>, Failure> {
        let mut scanner = Scanner::new(text);
        scanner.blanks();
        let mut found = [None; MOST_FIELDS];
        if !self.payload {
            find(&mut scanner, &self.fields, &mut found)?;
            return Ok(found);
        }
        let mut outer = [None; 2];
        find(&mut scanner, &["payload".into(), "schema".into()], &mut outer)?;
        if let Some(payload) = outer[0] {
            if !payload.starts_with('{') {
                return Err(misfit("payload"));
            }
            find(&mut Scanner::new(payload), &self.fields, &mut found)?;
        }
        found[MOST_FIELDS - 1] = outer[1];
        Ok(found)
    }

    /// Return the error of a message of a kind that cannot become rows.
    #[cold]
    fn unknown(&self, kind: &str) -> Failure {
        let advice = match self.hints.iter().find(|(of, _)| **of == *kind) {
            Some((_, hint)) => format!(": {hint}"),
            None => {
                format!(", which is not about a row; exclude such messages in {} or with 'format.on-error'", self.tool)
            }
        };
        Failure::Message(format!("Unknown \"{}\" value \"{kind}\"{advice}", self.fields[KIND]))
    }

    #[cold]
    fn without_old(&self, kind: &str) -> Failure {
        let field = &self.fields[OLD];
        Failure::Message(if self.partial {
            format!("Update event: \"{field}\" has fewer rows than \"{}\"", self.fields[NEW])
        } else {
            format!("The \"{field}\" field of {kind} message is null; {}", self.whole_rows)
        })
    }

    #[cold]
    fn without_new(&self) -> Failure {
        let or_row = if self.batched { ", or one of its rows is" } else { "" };
        Failure::Message(format!("Its \"{}\" is null{or_row}", self.fields[NEW]))
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn texts(values: &Value) -> Vec<Box<str>> {
    values.as_array().into_iter().flatten().map(|value| text(value).into()).collect()
}

#[cold]
fn misfit(path: &str) -> Failure {
    Failure::Message(format!("It does not fit the columns: {path}"))
}

/// Find the values of fields in the next object. Of several, the last one counts.
fn find<'a>(scanner: &mut Scanner<'a>, names: &[Box<str>], found: &mut [Option<&'a str>]) -> Read<()> {
    each_field(scanner, MOST_LEVELS, |scanner, name, levels| {
        let begin = scanner.at();
        scanner.skip_value(levels)?;
        if let Some(field) = names.iter().position(|wanted| **wanted == *name) {
            let text = scanner.since(begin);
            found[field] = (text != "null").then_some(text);
        }
        Ok(())
    })
}

/// Append the rows and the metadata of a message, and return whether it has any.
pub(crate) fn read(message: &[u8], columns: &mut Struct, envelope: &mut Envelope) -> Result<bool, Failure> {
    if message.is_empty() {
        return Ok(false);
    }
    match changes(message, columns, envelope) {
        Err(Failure::Message(_)) if envelope.options.ignore_parse_errors => Ok(false),
        found => found,
    }
}

fn changes(message: &[u8], columns: &mut Struct, envelope: &mut Envelope) -> Result<bool, Failure> {
    let text = text_of(message)?;
    let found = envelope.find(text)?;
    let meaning = if envelope.payload { envelope.included.find(found[MOST_FIELDS - 1])? } else { None };
    let envelope = &*envelope;
    for (field, included) in &envelope.include {
        let name = as_text(found[*field])?
            .ok_or_else(|| Failure::Message(format!("It does not have the field \"{}\"", envelope.fields[*field])))?;
        if included.as_ref().is_some_and(|included| **included != *name) {
            return Ok(false);
        }
    }
    let kind = as_text(found[KIND])?.ok_or_else(|| {
        let (field, tool, advice) = (&envelope.fields[KIND], &envelope.tool, &envelope.advice);
        Failure::Message(format!("It does not have the field \"{field}\" of {tool}'s messages about rows{advice}"))
    })?;
    if envelope.skipped.iter().any(|skipped| **skipped == *kind) {
        return Ok(false);
    }
    let [rows, metadata] = &mut columns.columns[..] else { unreachable!("the envelope has two columns") };
    let Values::List(_, ends, change) = &mut rows.values else { unreachable!("the rows are an array") };
    let mut reader = Reader::new(text, envelope.options);
    let mut wrong = Wrong::default();
    append_rows((&kind, &found), change, &mut reader, envelope, meaning.as_deref(), &mut wrong)?;
    ends.push(change.len())?;
    rows.valid.append_non_null();
    append_metadata(&found, metadata, &mut reader, envelope, &mut wrong)?;
    columns.len += 1;
    wrong.checked().map(|()| true)
}

/// Return the text of a value.
fn as_text(value: Option<&str>) -> Read<Option<String>> {
    let Some(value) = value else { return Ok(None) };
    let mut found = Vec::new();
    Scanner::new(value).any_text(MOST_LEVELS, &mut found)?;
    Ok(Some(String::from_utf8(found).unwrap_or_default()))
}

// --- rows ---

fn append_rows<'a>(
    (kind, found): (&str, &Found<'a>),
    change: &mut Column,
    reader: &mut Reader<'a>,
    envelope: &Envelope,
    meaning: Option<&Meaning>,
    wrong: &mut Wrong,
) -> Result<(), Failure> {
    let is_insert = envelope.inserts.iter().any(|insert| **insert == *kind);
    let is_update = *kind == *envelope.update;
    if !is_insert && !is_update && *kind != *envelope.delete {
        return Err(envelope.unknown(kind));
    }
    if envelope.partial {
        let [old, new] =
            [OLD, NEW].map(|image| rows_of(found[image], envelope.batched, &envelope.fields[image], reader));
        return partial_rows((old?, new?), (is_insert, is_update), change, reader, envelope, wrong);
    }
    let [old, new] = [OLD, NEW].map(|image| row_of(found[image], &envelope.fields[image], reader));
    let (old, new) = (old?, new?);
    if old.is_none() && !is_insert {
        return Err(envelope.without_old(if is_update { "UPDATE" } else { "DELETE" }));
    }
    match (old, new) {
        (_, None) if is_insert || is_update => return Err(envelope.without_new()),
        (Some(old), Some(new)) if is_update => {
            envelope.append(("-U", OLD), old, change, reader, meaning, wrong)?;
            envelope.append(("+U", NEW), new, change, reader, meaning, wrong)?;
        }
        (old, new) => {
            let (word, images) =
                if is_insert { ("+I", [(NEW, new), (OLD, old)]) } else { ("-D", [(OLD, old), (NEW, new)]) };
            for (place, (image, row)) in images.into_iter().enumerate() {
                let Some(row) = row else { continue };
                let len = change.len();
                envelope.append((word, image), row, change, reader, meaning, wrong)?;
                if place > 0 {
                    change.truncate(len); // only its errors count
                }
            }
        }
    }
    Ok(())
}

/// Return a row, if it is one.
fn row_of<'a>(row: Option<&'a str>, name: &str, reader: &mut Reader<'a>) -> Result<Option<&'a str>, Failure> {
    match row {
        Some(row) if !row.starts_with('{') => {
            if reader.options.ignore_parse_errors {
                Ok(None)
            } else {
                Err(misfit(name))
            }
        }
        row => Ok(row),
    }
}

/// Return the rows of an image that may have several.
fn rows_of<'a>(
    image: Option<&'a str>,
    batched: bool,
    name: &str,
    reader: &mut Reader<'a>,
) -> Result<Option<Vec<Option<&'a str>>>, Failure> {
    let Some(image) = image else { return Ok(None) };
    if !batched {
        return Ok(row_of(Some(image), name, reader)?.map(|row| vec![Some(row)]));
    }
    let mut scanner = Scanner::new(image);
    if scanner.peek() != Some(b'[') {
        return if reader.options.ignore_parse_errors { Ok(None) } else { Err(misfit(name)) };
    }
    let mut rows = Vec::new();
    let mut has_more = scanner.begin(b'[')?;
    while has_more {
        let begin = scanner.at();
        scanner.skip_value(MOST_LEVELS)?;
        let row = scanner.since(begin);
        rows.push(if row == "null" { None } else { row_of(Some(row), name, reader)? });
        has_more = scanner.has_more(b'[')?;
    }
    Ok(Some(rows))
}

type Rows<'a> = Option<Vec<Option<&'a str>>>;

/// Append the rows of a message whose row before an update has only what changed.
fn partial_rows<'a>(
    (old, new): (Rows<'a>, Rows<'a>),
    (is_insert, is_update): (bool, bool),
    change: &mut Column,
    reader: &mut Reader<'a>,
    envelope: &Envelope,
    wrong: &mut Wrong,
) -> Result<(), Failure> {
    let whole = |rows: Rows<'a>| rows.and_then(|rows| rows.into_iter().collect::<Option<Vec<_>>>());
    let new = whole(new).ok_or_else(|| envelope.without_new())?;
    if !is_update {
        let len = change.len();
        for old in old.into_iter().flatten().flatten() {
            envelope.append(("-U", OLD), old, change, reader, None, wrong)?;
        }
        change.truncate(len); // only its errors count
        for new in new {
            envelope.append((if is_insert { "+I" } else { "-D" }, NEW), new, change, reader, None, wrong)?;
        }
        return Ok(());
    }
    let old = whole(old).filter(|old| old.len() >= new.len()).ok_or_else(|| envelope.without_old(""))?;
    for (old, new) in old.into_iter().zip(new) {
        envelope.append(("-U", NEW), new, change, reader, None, wrong)?;
        reader.overlay(old, change)?;
        wrong.add_field(OLD, &envelope.fields[OLD], reader.wrong.take());
        envelope.append(("+U", NEW), new, change, reader, None, wrong)?;
    }
    Ok(())
}

impl Envelope {
    /// Append a change of a kind, whose row is of an image.
    fn append<'a>(
        &self,
        (kind, image): (&str, usize),
        row: &'a str,
        change: &mut Column,
        reader: &mut Reader<'a>,
        meaning: Option<&Meaning>,
        wrong: &mut Wrong,
    ) -> Read<()> {
        let name = &self.fields[image];
        reader.change(kind, row, change, meaning.and_then(|meaning| meaning.field(name)))?;
        wrong.add_field(image, name, reader.wrong.take());
        Ok(())
    }
}

impl<'a> Reader<'a> {
    /// Append a change with a row.
    fn change(&mut self, kind: &str, row: &'a str, change: &mut Column, meaning: Option<&Meaning>) -> Read<()> {
        self.spend(change)?;
        let Values::Struct(fields) = &mut change.values else { unreachable!("a change is a struct") };
        let [kinds, rows] = &mut fields.columns[..] else { unreachable!("a change has two fields") };
        let Values::String(texts) = &mut kinds.values else { unreachable!("a kind is a text") };
        texts.push(kind.as_bytes())?;
        kinds.valid.append_non_null();
        self.scanner = Scanner::new(row);
        self.value(rows, meaning, MOST_LEVELS)?;
        fields.len += 1;
        change.valid.append_non_null();
        Ok(())
    }

    /// Put the fields of a row into the row of the last change.
    fn overlay(&mut self, row: &'a str, change: &mut Column) -> Read<()> {
        let Values::Struct(fields) = &mut change.values else { unreachable!("a change is a struct") };
        let Values::Struct(columns) = &mut fields.columns[1].values else { unreachable!("a row is a struct") };
        let place = columns.len - 1;
        let (mut wrong, mut guess) = (Wrong::default(), 0);
        self.scanner = Scanner::new(row);
        let mut has_more = self.scanner.begin(b'{')?;
        while has_more {
            match self.name(columns, guess)? {
                Some(found) => {
                    columns.columns[found].truncate(place);
                    wrong.forget_field(found);
                    self.field(columns, found, None, MOST_LEVELS, &mut wrong)?;
                    guess = found + 1;
                }
                None => self.scanner.skip_value(MOST_LEVELS)?,
            }
            has_more = self.scanner.has_more(b'{')?;
        }
        self.wrong = wrong;
        Ok(())
    }
}

// --- metadata ---

fn append_metadata<'a>(
    found: &Found<'a>,
    metadata: &mut Column,
    reader: &mut Reader<'a>,
    envelope: &Envelope,
    wrong: &mut Wrong,
) -> Read<()> {
    let Values::Struct(fields) = &mut metadata.values else { unreachable!("metadata are a struct") };
    for (column, one) in fields.columns.iter_mut().zip(&envelope.metadata) {
        match found[one.field].filter(|_| one.wanted) {
            None => column.push_null(),
            Some(text) => {
                if !one.form.append(text, column, reader)? {
                    let name = envelope.fields.get(one.field).map_or("schema", |name| name);
                    wrong.add_field(one.field, name, reader.misfit());
                }
            }
        }
    }
    fields.len += 1;
    metadata.valid.append_non_null();
    Ok(())
}
