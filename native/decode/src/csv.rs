//! The format `csv`: a message is one line with the wanted columns in their order.
//!
//! A line is split as Flink's parser (Jackson's) splits it, and its texts become values as in Flink's converters (`java.rs`):
//!
//! * A field that begins with a quote ends with the next one that is not doubled. Blanks may follow. Elsewhere a quote is a
//!   character like others.
//! * An escape takes away the meaning of the next character; `n`, `r`, `t` and `0` get one. At the end of a line it is ignored.
//! * A delimiter at the end belongs to no field, and neither do line breaks. Before the line there may be comments.
//! * The text of null is null, also in quotes. An array of blanks is empty, and a row of blanks is null.

use serde_json::Value;

use crate::columns::{Column, Struct, Values};
use crate::fault::Failure;
use crate::fault::Full;
use crate::fault::Unsupported;
use crate::java;

const BYTE_ORDER_MARK: char = '\u{feff}';
const LINE_BREAKS: [char; 2] = ['\r', '\n'];
const BROKEN: &str = "It is empty, is not one line of UTF-8, or has quotes that do not match";

/// A special character of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Special {
    character: char,
    /// The first byte of the character, and the number of its bytes.
    first: u8,
    len: usize,
}

impl Special {
    fn new(character: char) -> Self {
        Self { character, first: character.encode_utf8(&mut [0; 4]).as_bytes()[0], len: character.len_utf8() }
    }

    /// Return what is behind the character, if a text begins with it.
    #[inline(always)]
    fn strip(self, text: &str) -> Option<&str> {
        let is_first = text.as_bytes().first() == Some(&self.first);
        if is_first && (self.len == 1 || text.starts_with(self.character)) { Some(&text[self.len..]) } else { None }
    }
}

/// The special characters of a line, and how values are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialect {
    delimiter: Special,
    /// None if fields are never in quotes.
    quote: Option<Special>,
    escape: Option<Special>,
    /// The character between the elements of an array or a row.
    element_delimiter: char,
    null: Option<String>,
    /// Lines that begin with `#` are skipped.
    allow_comments: bool,
    /// Fields that are missing or cannot be read are null, and lines that cannot be read have no row.
    ignore_parse_errors: bool,
    /// What ends a field without quotes, or is special within it.
    stops: Vec<Special>,
    /// Which bytes are the first of a character in `stops`.
    stop_bytes: [bool; 256],
}

impl Dialect {
    /// Return the dialect in a spec.
    pub(crate) fn parse(spec: &Value) -> Result<Self, Unsupported> {
        let character = |name: &str| {
            let mut found = spec[name].as_str().unwrap_or_default().chars();
            match (found.next(), found.next()) {
                (found, None) => Ok(found),
                _ => Err(Unsupported(format!("{name} {}", spec[name]))),
            }
        };
        let needed = |name: &str| character(name)?.ok_or_else(|| Unsupported(format!("no {name}")));
        let delimiter = Special::new(needed("delimiter")?);
        let escape = character("escape")?.map(Special::new);
        let line_breaks = LINE_BREAKS.map(Special::new);
        let stops: Vec<Special> = [delimiter].into_iter().chain(escape).chain(line_breaks).collect();
        let mut stop_bytes = [false; 256];
        for stop in &stops {
            stop_bytes[usize::from(stop.first)] = true;
        }
        Ok(Self {
            delimiter,
            quote: character("quote")?.map(Special::new),
            escape,
            element_delimiter: needed("element_delimiter")?,
            null: spec["null"].as_str().map(str::to_owned),
            allow_comments: spec["allow_comments"] == true,
            ignore_parse_errors: spec["ignore_parse_errors"] == true,
            stops,
            stop_bytes,
        })
    }
}

/// Append the columns of a line, and return whether it has a row.
pub(crate) fn read(message: &[u8], columns: &mut Struct, dialect: &Dialect) -> Result<bool, Failure> {
    match row(message, columns, dialect) {
        Err(Failure::Message(_)) if dialect.ignore_parse_errors => Ok(false),
        found => found.map(|()| true),
    }
}

fn row(message: &[u8], columns: &mut Struct, dialect: &Dialect) -> Result<(), Failure> {
    let text = std::str::from_utf8(message).map_err(|_| broken())?.trim_end_matches(LINE_BREAKS);
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let mut left = if dialect.allow_comments { without_comments(text) } else { text };
    if left.is_empty() {
        return Err(broken());
    }
    let count = columns.columns.len();
    let (mut changed, mut has_more, mut misfits) = (String::new(), true, Vec::new());
    for (index, column) in columns.columns.iter_mut().enumerate() {
        if has_more {
            let (text, more) = field(&mut left, dialect, &mut changed)?;
            has_more = more;
            if !append(text.unwrap_or(&changed), column, dialect)? {
                misfits.push(index);
            }
        } else if dialect.ignore_parse_errors {
            column.push_null();
        } else {
            return Err(of_another_length(count));
        }
    }
    if has_more {
        let (text, more) = field(&mut left, dialect, &mut changed)?;
        if more || !java::trim(text.unwrap_or(&changed)).is_empty() {
            return Err(of_another_length(count));
        }
    }
    columns.len += 1;
    if misfits.is_empty() { Ok(()) } else { Err(columns.misfit(&misfits)) }
}

#[cold]
fn broken() -> Failure {
    Failure::Message(BROKEN.to_owned())
}

#[cold]
fn of_another_length(count: usize) -> Failure {
    Failure::Message(format!("It does not have {count} fields, one for each column of the table"))
}

/// Return a text without comments, blanks and line breaks at its beginning.
fn without_comments(text: &str) -> &str {
    let mut left = text;
    loop {
        left = left.trim_start_matches([' ', '\r', '\n']);
        match left.strip_prefix('#') {
            Some(comment) => left = &comment[comment.find(LINE_BREAKS).unwrap_or(comment.len())..],
            None => return left,
        }
    }
}

// --- fields ---

/// Pass the next field and the delimiter behind it, and return the field, and whether there was a delimiter. A field that does
/// not stand in the line as it is, because of its quotes or escapes, is put into `changed` instead.
#[inline]
fn field<'a>(left: &mut &'a str, dialect: &Dialect, changed: &mut String) -> Result<(Option<&'a str>, bool), Failure> {
    let field = match dialect.quote.and_then(|quote| Some((quote, quote.strip(left)?))) {
        Some((quote, rest)) => {
            *left = rest;
            let field = in_quotes(left, quote, dialect, changed)?;
            let is_blank = |c: char| c <= ' ' && c != dialect.delimiter.character && !LINE_BREAKS.contains(&c);
            *left = left.trim_start_matches(is_blank);
            field
        }
        None => plain(left, dialect, changed),
    };
    match dialect.delimiter.strip(left) {
        Some(rest) => {
            *left = rest;
            Ok((field, true))
        }
        None if left.is_empty() => Ok((field, false)),
        None => Err(broken()),
    }
}

/// Pass a field without quotes, up to a delimiter or a line break.
#[inline]
fn plain<'a>(left: &mut &'a str, dialect: &Dialect, changed: &mut String) -> Option<&'a str> {
    let (field, rest) = left.split_at(stop(left, dialect));
    if dialect.escape.is_none_or(|escape| escape.strip(rest).is_none()) {
        *left = rest;
        return Some(field);
    }
    changed.clear();
    loop {
        let (part, rest) = left.split_at(stop(left, dialect));
        changed.push_str(part);
        *left = rest;
        match dialect.escape.and_then(|escape| escape.strip(rest)) {
            Some(rest) => *left = unescape(rest, changed),
            None => return None,
        }
    }
}

/// Return where the first of the special characters is, or the end.
#[inline]
fn stop(text: &str, dialect: &Dialect) -> usize {
    let mut at = 0;
    let bytes = text.as_bytes();
    while let Some(passed) = bytes[at..].iter().position(|byte| dialect.stop_bytes[usize::from(*byte)]) {
        at += passed;
        // Only characters beyond ASCII have others that begin with the same byte.
        if bytes[at].is_ascii() || dialect.stops.iter().any(|stop| stop.strip(&text[at..]).is_some()) {
            return at;
        }
        at += 1;
    }
    text.len()
}

/// Pass a field in quotes, from behind the first one.
fn in_quotes<'a>(
    left: &mut &'a str,
    quote: Special,
    dialect: &Dialect,
    changed: &mut String,
) -> Result<Option<&'a str>, Failure> {
    let next = |text: &str| {
        let at = match dialect.escape {
            Some(escape) => text.find([quote.character, escape.character]),
            None => text.find(quote.character),
        };
        at.ok_or_else(broken)
    };
    let (field, rest) = left.split_at(next(left)?);
    if let Some(rest) = quote.strip(rest).filter(|rest| quote.strip(rest).is_none()) {
        *left = rest;
        return Ok(Some(field));
    }
    changed.clear();
    loop {
        let (part, rest) = left.split_at(next(left)?);
        changed.push_str(part);
        let Some(rest) = quote.strip(rest) else {
            *left = unescape(&rest[dialect.escape.map_or(0, |escape| escape.len)..], changed);
            continue;
        };
        let doubled = quote.strip(rest);
        *left = doubled.unwrap_or(rest);
        if doubled.is_none() {
            return Ok(None);
        }
        changed.push(quote.character);
    }
}

/// Append what the first character of a text stands for behind an escape, and return the rest.
fn unescape<'a>(text: &'a str, changed: &mut String) -> &'a str {
    let mut characters = text.chars();
    changed.extend(characters.next().map(|character| match character {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        '0' => '\0',
        other => other,
    }));
    characters.as_str()
}

// --- values ---

/// Append the value that a text stands for, and return whether it fits its column.
#[inline]
fn append(text: &str, column: &mut Column, dialect: &Dialect) -> Result<bool, Failure> {
    let is_null = dialect.null.as_deref() == Some(text);
    if is_null || (matches!(column.values, Values::Struct(_)) && java::trim(text).is_empty()) {
        column.push_null();
        return Ok(true);
    }
    let mut fits = true;
    let found = match &mut column.values {
        Values::String(v) => {
            v.push(text.as_bytes())?;
            Some(())
        }
        Values::Binary(v) => v.push_with(|data| Ok::<_, Full>(java::base64(text, data)))?,
        Values::Time(v, digits) => java::time(text, *digits).map(|time| v.push(time)),
        Values::Timestamp(v, None) => java::timestamp(text, b' ').map(|time| v.push(time)),
        Values::Timestamp(v, Some(_)) => java::instant(text, b' ').map(|time| v.push(time)),
        Values::List(_, ends, element) => {
            if !java::trim(text).is_empty() {
                for part in text.split(dialect.element_delimiter) {
                    fits &= append(part, element, dialect)?;
                }
            }
            Some(ends.push(element.len())?)
        }
        Values::Struct(v) => {
            let mut parts = text.split(dialect.element_delimiter);
            for column in &mut v.columns {
                fits &= match parts.next() {
                    Some(part) => append(part, column, dialect)?,
                    None => {
                        column.push_null();
                        dialect.ignore_parse_errors
                    }
                };
            }
            v.len += 1;
            Some(())
        }
        values => java::append(text, values),
    };
    if found.is_none() {
        column.push_null();
        return Ok(dialect.ignore_parse_errors);
    }
    column.valid.append_non_null();
    Ok(fits)
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int32Type;
    use arrow_array::{Array, StructArray};
    use proptest::prelude::*;

    use crate::Outcome::{self, Decoded, Failed, Null};
    use crate::{Decoder, Spec};

    const COMMON: &str = r#""delimiter":",","quote":"\"","element_delimiter":";""#;
    const THREE: &str = r#"{"name":"s","type":"string"},{"name":"i","type":"integer"},{"name":"b","type":"boolean"}"#;

    fn decoder(dialect: &str, fields: &str) -> Decoder {
        let spec = format!(r#"{{"format":"csv",{dialect},"schema":{{"fields":[{fields}]}}}}"#);
        Decoder::new(&Spec::parse(&spec).unwrap()).unwrap()
    }

    fn outcomes<const N: usize>(decoder: &mut Decoder, messages: [&str; N]) -> [Outcome; N] {
        messages.map(|message| decoder.append(Some(message.as_bytes())))
    }

    fn texts(rows: &StructArray, column: usize) -> Vec<Option<&str>> {
        rows.column(column).as_string::<i32>().iter().collect()
    }

    #[test]
    fn a_line_has_a_field_for_each_column() {
        let mut decoder = decoder(COMMON, THREE);
        let lines = ["a,1,true", "\u{feff} a ,-2, TRUE \r\n", r#""a,""b""" ,"3","x""#, "\"a\nb\",4,", r#"a"b,+5,1,  "#];
        assert_eq!(outcomes(&mut decoder, lines), [Decoded; 5]);
        assert_eq!(decoder.append(None), Null);
        let rows = decoder.finish();
        assert_eq!(texts(&rows, 0)[..5], ["a", " a ", "a,\"b\"", "a\nb", "a\"b"].map(Some));
        assert_eq!(rows.column(1).as_primitive::<Int32Type>().values()[..5], [1, -2, 3, 4, 5]);
        let booleans: Vec<_> = rows.column(2).as_boolean().iter().collect();
        assert_eq!(booleans[..5], [true, true, false, false, false].map(Some));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let mut decoder = decoder(COMMON, THREE);
        for (line, expected) in [
            ("", super::BROKEN),
            ("\n", super::BROKEN),
            ("\na,1,true", super::BROKEN),
            ("a\rb,1,true", super::BROKEN),
            ("\"a,1,true", super::BROKEN),
            ("\"a\"b,1,true", super::BROKEN),
            ("\"a\"\n,1,true", super::BROKEN),
            ("a,1", "It does not have 3 fields, one for each column of the table"),
            ("a,1,true,,", "It does not have 3 fields, one for each column of the table"),
            ("a,1,true,x", "It does not have 3 fields, one for each column of the table"),
            ("a,99999999999,true", "It does not fit the columns: i"),
            ("a,,true", "It does not fit the columns: i"),
        ] {
            assert_eq!(outcomes(&mut decoder, [line]), [Failed], "{line:?}");
            assert_eq!(texts(&decoder.finish(), 3), [Some(expected)], "{line:?}");
        }
        assert_eq!(decoder.append(Some(b"\xff,1,true")), Failed);
    }

    #[test]
    fn errors_may_be_ignored() {
        let mut decoder = decoder(&format!(r#"{COMMON},"ignore_parse_errors":true"#), THREE);
        assert_eq!(
            outcomes(&mut decoder, ["a,x,true", "a", "a,1,true,x", "\"a", ""]),
            [Decoded, Decoded, Null, Null, Null]
        );
        let rows = decoder.finish();
        assert!(rows.column(1).is_null(0) && rows.column(2).is_valid(0));
        assert!(rows.column(1).is_null(1) && rows.column(2).is_null(1));
    }

    #[test]
    fn the_text_of_null_is_null() {
        let mut decoder = decoder(r#""delimiter":"\t","quote":"'","element_delimiter":";","null":"n/a""#, THREE);
        assert_eq!(outcomes(&mut decoder, ["n/a\t'n/a'\tn/a", "\"a\t1\tx"]), [Decoded; 2]);
        let rows = decoder.finish();
        assert!((0..3).all(|i| rows.column(i).is_null(0) && rows.column(i).is_valid(1)));
    }

    #[test]
    fn escapes_take_away_meanings() {
        let mut decoder = decoder(&format!(r#"{COMMON},"escape":"\\""#), r#"{"name":"s","type":"string"}"#);
        let lines = [r"a\,b", r#""a\"b""c\\""#, r"\x\n\t\0", r#"\"a"#, "a\\"];
        assert_eq!(outcomes(&mut decoder, lines), [Decoded; 5]);
        let rows = decoder.finish();
        assert_eq!(texts(&rows, 0), ["a,b", "a\"b\"c\\", "x\n\t\0", "\"a", "a"].map(Some));
    }

    #[test]
    fn special_characters_may_be_any() {
        let dialect = r#""delimiter":"é","quote":"€","escape":"Ā","element_delimiter":"è""#;
        let list = r#"{"name":"l","type":{"type":"array","elementType":"string","containsNull":false}}"#;
        let mut decoder = decoder(dialect, &format!(r#"{{"name":"s","type":"string"}},{list}"#));
        assert_eq!(outcomes(&mut decoder, ["êĀé€é1è2", "€é€€€éè"]), [Decoded; 2]);
        let rows = decoder.finish();
        assert_eq!(texts(&rows, 0), [Some("êé€"), Some("é€")]);
        let lists = rows.column(1).as_list::<i32>();
        assert_eq!([lists.value(0).len(), lists.value(1).len()], [2, 2]);
    }

    #[test]
    fn comments_stand_before_the_line() {
        let mut decoder = decoder(&format!(r#"{COMMON},"allow_comments":true"#), r#"{"name":"s","type":"string"}"#);
        let lines = ["# x\r\n #y\n\n a#b", "# x", " #", "\"\n#\""];
        assert_eq!(outcomes(&mut decoder, lines), [Decoded, Failed, Failed, Decoded]);
        let rows = decoder.finish();
        assert_eq!(texts(&rows, 0), [Some("a#b"), None, None, Some("\n#")]);
    }

    #[test]
    fn arrays_and_rows_have_elements() {
        let fields = r#"{"name":"a","type":{"type":"array","elementType":"integer","containsNull":false}},
            {"name":"r","type":{"type":"struct","fields":[{"name":"x","type":"integer"},{"name":"y","type":"time(3)"}]}}"#;
        for (ignore, expected) in [("false", [Decoded, Decoded, Failed, Failed, Failed]), ("true", [Decoded; 5])] {
            let mut decoder = decoder(&format!(r#"{COMMON},"ignore_parse_errors":{ignore}"#), fields);
            let lines = ["1; 2,3;01:02:03.4567;z", " ,", "1;;2,1;01:02", "1,1", "1,x;01:02"];
            assert_eq!(outcomes(&mut decoder, lines), expected);
            let rows = decoder.finish();
            assert_eq!(rows.column(0).as_list::<i32>().value(0).len(), 2);
            assert!(rows.column(1).is_null(1) && rows.column(0).is_valid(1));
        }
    }

    #[test]
    fn a_dialect_has_single_characters() {
        for dialect in [r#""delimiter":"ab""#, r#""quote":"'","element_delimiter":";""#, r#""delimiter":",""#] {
            let spec = format!(r#"{{"format":"csv",{dialect},"schema":{{"fields":[]}}}}"#);
            assert!(Spec::parse(&spec).is_err(), "{dialect}");
        }
        assert_eq!(outcomes(&mut decoder(COMMON, ""), ["a", " "]), [Failed, Decoded]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn texts_keep_their_characters(text in "\\PC*") {
            let mut decoder = decoder(COMMON, THREE);
            let line = format!("\"{}\",1,true", text.replace('"', "\"\""));
            prop_assert_eq!(decoder.append(Some(line.as_bytes())), Decoded);
            let rows = decoder.finish();
            prop_assert_eq!(rows.column(0).as_string::<i32>().value(0), text);
        }

        #[test]
        fn damaged_lines_are_harmless(noise in prop::collection::vec(prop::sample::select(&b"a1,\"\n\xff\xc3\\ \t"[..]), 0..30)) {
            for dialect in ["", r#","escape":"\\","null":"a","ignore_parse_errors":true,"allow_comments":true"#] {
                let mut decoder = decoder(&format!("{COMMON}{dialect}"), THREE);
                decoder.append(Some(&noise));
                prop_assert_eq!(decoder.append(Some(b"b,1,true")), Decoded);
                prop_assert_eq!(decoder.finish().len(), 2);
            }
        }
    }
}
