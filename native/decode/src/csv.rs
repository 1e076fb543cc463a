//! The format `csv`: a message is one line with the wanted columns in their order.
//!
//! What the decoder is certain about, in a line of valid UTF-8 with as many fields as there are columns and without control
//! characters (other than a tab that separates fields):
//!
//! * A field without quotes has none inside. A field in quotes begins and ends with one, and those inside are doubled.
//! * A text is any text. The text of null, if there is one, is null in every column, also in quotes.
//! * Numbers are as in JSON, within their type's range; a decimal number needs no rounding. Booleans are `true`, and
//!   everything else of ASCII characters is false. Bytes are in base64 with padding.
//! * Dates and times are as `2020-12-31` and `2020-12-31 23:59:59`, with up to 9 digits behind the point, and for an instant
//!   `Z`.
//! * With `ignore_parse_errors` an empty field of a number, date or time is null.
//!
//! One line break at the end belongs to no field. Arrays and rows are not decoded. A line with more than 20,000 delimiters, in
//! quotes or not, is left: Spark's parser does not read it.

use serde_json::Value;

use crate::columns::{Certain, Column, Struct, Uncertain, Values};
use crate::spec::Unsupported;
use crate::{cast, text};

const BYTE_ORDER_MARK: char = '\u{feff}';
/// Python's expressions use this character for a text in quotes.
const STAND_IN: char = '\u{fdd8}';

/// As in Python (`formats/csv/lines.py`).
const MOST_DELIMITERS: usize = 20_000;

/// The special characters of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialect {
    delimiter: u8,
    /// None if fields are never in quotes.
    quote: Option<u8>,
    null: Option<String>,
    ignore_parse_errors: bool,
}

impl Dialect {
    /// Return the dialect in a spec.
    pub(crate) fn parse(spec: &Value) -> Result<Self, Unsupported> {
        let character = |name: &str| match spec[name].as_str().map(str::as_bytes) {
            Some([c]) if c.is_ascii_punctuation() || *c == b'\t' => Ok(Some(*c)),
            None | Some([]) => Ok(None),
            _ => Err(Unsupported(format!("{name} {}", spec[name]))),
        };
        let delimiter = character("delimiter")?.ok_or_else(|| Unsupported("no delimiter".to_owned()))?;
        let quote = character("quote")?;
        if quote == Some(delimiter) {
            return Err(Unsupported("a delimiter that is the quote".to_owned()));
        }
        let null = spec["null"].as_str().map(str::to_owned);
        Ok(Self { delimiter, quote, null, ignore_parse_errors: spec["ignore_parse_errors"] == true })
    }
}

/// Append the columns of a line, and return whether it has a row.
pub(crate) fn read(message: &[u8], columns: &mut Struct, dialect: &Dialect) -> Certain<bool> {
    let text = std::str::from_utf8(message).map_err(|_| Uncertain)?;
    let line = text.trim_end_matches(['\r', '\n']).trim_start_matches(BYTE_ORDER_MARK);
    if !line.bytes().any(|c| c > b' ') || line.contains(STAND_IN) {
        return Err(Uncertain);
    }
    let delimiters = || line.bytes().filter(|c| *c == dialect.delimiter).count();
    if line.len() > MOST_DELIMITERS && delimiters() > MOST_DELIMITERS {
        return Err(Uncertain);
    }
    let mut left = line;
    let mut unquoted = String::new();
    let last = columns.columns.len().checked_sub(1).ok_or(Uncertain)?;
    for (index, column) in columns.columns.iter_mut().enumerate() {
        match dialect.quote.filter(|quote| left.as_bytes().first() == Some(quote)) {
            Some(quote) => {
                left = in_quotes(left, quote, &mut unquoted)?;
                append(&unquoted, column, dialect)?;
            }
            None => {
                let (field, rest) = plain(left, dialect)?;
                append(field, column, dialect)?;
                left = rest;
            }
        }
        match left.as_bytes().first() {
            Some(c) if *c == dialect.delimiter && index < last => left = &left[1..],
            None if index == last => {}
            _ => return Err(Uncertain),
        }
    }
    columns.len += 1;
    Ok(true)
}

/// Return a field without quotes, and what is behind it.
fn plain<'a>(text: &'a str, dialect: &Dialect) -> Certain<(&'a str, &'a str)> {
    let end = text.bytes().position(|c| c == dialect.delimiter).unwrap_or(text.len());
    let (field, rest) = text.split_at(end);
    if field.bytes().any(|c| c < b' ' || Some(c) == dialect.quote) { Err(Uncertain) } else { Ok((field, rest)) }
}

/// Put a field in quotes into `unquoted`, and return what is behind it.
fn in_quotes<'a>(text: &'a str, quote: u8, unquoted: &mut String) -> Certain<&'a str> {
    unquoted.clear();
    let mut left = &text[1..];
    loop {
        let end = left.bytes().position(|c| c == quote).ok_or(Uncertain)?;
        let (part, rest) = left.split_at(end);
        if part.bytes().any(|c| c < b' ') {
            return Err(Uncertain);
        }
        unquoted.push_str(part);
        left = &rest[1..];
        if left.as_bytes().first() != Some(&quote) {
            return Ok(left);
        }
        unquoted.push(char::from(quote));
        left = &left[1..];
    }
}

fn append(field: &str, column: &mut Column, dialect: &Dialect) -> Certain<()> {
    if dialect.null.as_deref() == Some(field) {
        column.push_null();
        return Ok(());
    }
    match &mut column.values {
        Values::String(v) => {
            v.data.extend_from_slice(field.as_bytes());
            v.end()?;
        }
        Values::Binary(v) => cast::base64(field, v)?,
        Values::Boolean(_) => cast::append(field, &mut column.values)?,
        _ if field.is_empty() && dialect.ignore_parse_errors => {
            column.push_null();
            return Ok(());
        }
        Values::Timestamp(v, zone) => {
            if field.as_bytes().get(10) != Some(&b' ') {
                return Err(Uncertain);
            }
            let read = if zone.is_some() { text::instant } else { text::timestamp };
            v.push(read(field.as_bytes())?);
        }
        values => cast::append(field, values)?,
    }
    column.valid.append_non_null();
    Ok(())
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int32Type;
    use proptest::prelude::*;

    use crate::Outcome::{self, Decoded, Left, Null};
    use crate::{Decoder, Spec};

    const COMMON: &str = r#""delimiter":",","quote":"\"""#;

    fn decoder(dialect: &str) -> Decoder {
        let schema = r#""schema":{"fields":[{"name":"s","type":"string"},{"name":"i","type":"integer"},
            {"name":"b","type":"boolean"}]}"#;
        Decoder::new(&Spec::parse(&format!(r#"{{"format":"csv",{dialect},{schema}}}"#)).unwrap()).unwrap()
    }

    fn outcomes<const N: usize>(decoder: &mut Decoder, messages: [&str; N]) -> [Outcome; N] {
        messages.map(|message| decoder.append(Some(message.as_bytes())))
    }

    #[test]
    fn a_line_has_a_field_for_each_column() {
        let mut decoder = decoder(COMMON);
        let lines = ["a,1,true", "\u{feff} a ,-2, TRUE \r\n", r#""a,""b""","3","x""#, r#""",4,"#];
        assert_eq!(outcomes(&mut decoder, lines), [Decoded; 4]);
        assert_eq!(decoder.append(None), Null);
        let rows = decoder.finish();
        let texts = rows.column(0).as_string::<i32>();
        assert_eq!((0..4).map(|i| texts.value(i)).collect::<Vec<_>>(), ["a", " a ", "a,\"b\"", ""]);
        assert_eq!(rows.column(1).as_primitive::<Int32Type>().values()[..4], [1, -2, 3, 4]);
        let booleans = rows.column(2).as_boolean();
        assert_eq!((0..4).map(|i| booleans.value(i)).collect::<Vec<_>>(), [true, true, false, false]);
    }

    #[test]
    fn what_is_not_certain_is_left() {
        let mut decoder = decoder(COMMON);
        for line in [
            "",
            "\n",
            "a,1",
            "a,1,true,",
            "a,1,true,x",
            "a,,true",
            "a,1.0,true",
            "a, 1,true",
            "a,99999999999,true",
            "a\"b,1,true",
            "\"a\"b,1,true",
            "\"a,1,true",
            " \"a\",1,true",
            "a\nb,1,true",
            "\"a\nb\",1,true",
            "a\tb,1,true",
            "a,1,\u{212a}",
            "\u{fdd8},1,true",
        ] {
            assert_eq!(decoder.append(Some(line.as_bytes())), Left, "{line:?}");
        }
        assert_eq!(decoder.append(Some(b"\xff,1,true")), Left);
        assert_eq!(decoder.finish().len(), 19);
    }

    #[test]
    fn a_line_of_too_many_delimiters_is_left() {
        for (count, expected) in [(20_000, Decoded), (20_001, Left)] {
            let line = format!("\"{}\",1,true", ",".repeat(count - 2));
            assert_eq!(outcomes(&mut decoder(COMMON), [&line]), [expected]);
        }
        let long = format!("{},1,true", "a".repeat(1 << 20));
        assert_eq!(outcomes(&mut decoder(COMMON), [&long]), [Decoded]);
    }

    #[test]
    fn nulls_are_literals_or_empty_fields() {
        let mut decoders = [
            decoder(r#""delimiter":"\t","quote":"","null":"n/a""#),
            decoder(r#""delimiter":"\t","quote":"'","ignore_parse_errors":true"#),
        ];
        assert_eq!(outcomes(&mut decoders[0], ["n/a\tn/a\tn/a", "\"a\t1\tx", "\t\t"]), [Decoded, Decoded, Left]);
        assert_eq!(outcomes(&mut decoders[1], ["'a'\t\t", "n/a\tn/a\tn/a"]), [Decoded, Left]);
        let [first, second] = decoders.each_mut().map(Decoder::finish);
        assert!(first.columns()[..3].iter().all(|column| column.is_null(0) && column.is_valid(1)));
        assert!(second.column(1).is_null(0) && second.column(2).is_valid(0));
    }

    #[test]
    fn a_dialect_has_characters_of_ascii() {
        let schema = r#""schema":{"fields":[]}"#;
        for dialect in [r#""delimiter":"é""#, r#""delimiter":",","quote":",""#, r#""quote":"'""#, r#""delimiter":" ""#]
        {
            assert!(Spec::parse(&format!(r#"{{"format":"csv",{dialect},{schema}}}"#)).is_err(), "{dialect}");
        }
        let empty = format!(r#"{{"format":"csv",{COMMON},{schema}}}"#);
        assert_eq!(Decoder::new(&Spec::parse(&empty).unwrap()).unwrap().append(Some(b"a")), Left);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn texts_keep_their_characters(text in "[^\\x00-\\x1f\u{fdd8}\u{feff}]*") {
            let mut decoder = decoder(COMMON);
            let line = format!("\"{}\",1,true", text.replace('"', "\"\""));
            prop_assert_eq!(decoder.append(Some(line.as_bytes())), Decoded);
            let rows = decoder.finish();
            prop_assert_eq!(rows.column(0).as_string::<i32>().value(0), text);
        }

        #[test]
        fn damaged_lines_are_harmless(noise in prop::collection::vec(prop::sample::select(&b"a1,\"\n\xff\xc3 \t"[..]), 0..30)) {
            let mut decoder = decoder(COMMON);
            decoder.append(Some(&noise));
            prop_assert_eq!(decoder.append(Some(b"a,1,true")), Decoded);
            prop_assert_eq!(decoder.finish().len(), 2);
        }
    }
}
