//! The format `csv`: a row is one line, as Flink writes it.
//!
//! Jackson's writer puts a text in quotes if it has more than 24 characters, or one that may need quotes: the escape or the
//! backslash, and any character up to the greater one of delimiter and quote in Unicode, such as a blank.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::columns::{Column, Values, part, range};
use crate::fault::{Fault, Written};
use crate::types::{Type, Unsupported};
use crate::{numbers, text};

const LONGEST_CHECKED: usize = 24;

/// The special characters of a line, and how values are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialect {
    delimiter: char,
    /// None if fields are never in quotes.
    quote: Option<char>,
    escape: Option<char>,
    /// The character between the elements of an array or a row.
    element_delimiter: char,
    /// The text of null.
    null: String,
    /// Decimal numbers may have an exponent.
    scientific: bool,
}

impl Dialect {
    pub(crate) fn parse(spec: &Value) -> Result<Self, Unsupported> {
        let character = |name: &str| spec[name].as_str().unwrap_or_default().chars().next();
        let needed = |name: &str| character(name).ok_or_else(|| Unsupported(format!("no {name}")));
        Ok(Self {
            delimiter: needed("delimiter")?,
            quote: character("quote"),
            escape: character("escape"),
            element_delimiter: needed("element_delimiter")?,
            null: spec["null"].as_str().unwrap_or_default().to_owned(),
            scientific: spec["scientific"] == true,
        })
    }
}

/// Writes rows as lines.
pub(crate) struct Writer {
    columns: Vec<Type>,
    dialect: Dialect,
}

impl Writer {
    pub(crate) fn new(columns: &Type, dialect: &Dialect) -> Result<Self, Unsupported> {
        let Type::Struct(fields) = columns else { return Err(Unsupported(format!("type {columns:?}"))) };
        let columns = fields.iter().map(|(_, type_)| type_.clone()).collect();
        Ok(Self { columns, dialect: dialect.clone() })
    }

    /// Append a row, which is not null.
    pub(crate) fn write(&self, rows: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Written {
        let Values::Struct(columns) = &rows.values else { return Err(Fault::plan()) };
        let mut buffer = Vec::new();
        for (index, (type_, column)) in self.columns.iter().zip(columns).enumerate() {
            if index > 0 {
                append(self.dialect.delimiter, out);
            }
            if !column.is_valid(row) {
                out.extend_from_slice(self.dialect.null.as_bytes());
                continue;
            }
            match self.dialect.quote {
                Some(quote) if may_need_quotes(type_) => {
                    buffer.clear();
                    self.value(type_, column, row, &mut buffer)?;
                    self.enclosed(&buffer, quote, out);
                }
                _ => self.value(type_, column, row, out)?,
            }
        }
        Ok(())
    }

    /// Append a value, which is not null.
    fn value(&self, type_: &Type, column: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Written {
        match (type_, &column.values) {
            (Type::Boolean, Values::Boolean(v)) => {
                out.extend_from_slice(if v.value(row) { b"true" } else { b"false" });
            }
            (Type::Int8, Values::Int8(v)) => numbers::whole(v[row].into(), out),
            (Type::Int16, Values::Int16(v)) => numbers::whole(v[row].into(), out),
            (Type::Int32, Values::Int32(v)) => numbers::whole(v[row].into(), out),
            (Type::Int64, Values::Int64(v)) => numbers::whole(v[row], out),
            (Type::Float32, Values::Float32(v)) => numbers::float(v[row], out),
            (Type::Float64, Values::Float64(v)) => numbers::double(v[row], out),
            (Type::Decimal(..), Values::Decimal(v, scale)) => {
                let write = if self.dialect.scientific { numbers::decimal } else { numbers::plain_decimal };
                write(v[row], usize::try_from(*scale).map_err(|_| Fault::plan())?, out);
            }
            (Type::String, Values::Bytes(offsets, data)) => {
                out.extend_from_slice(text::valid(part(offsets, data, row)).as_bytes());
            }
            (Type::Binary, Values::Bytes(offsets, data)) => {
                out.extend_from_slice(STANDARD.encode(part(offsets, data, row)).as_bytes());
            }
            (Type::Date, Values::Int32(v)) => numbers::date(v[row].into(), out),
            (Type::Time, Values::Int64(v)) => numbers::time(v[row], out),
            (Type::Timestamp | Type::TimestampNtz, Values::Int64(v)) => {
                numbers::timestamp(v[row], b' ', out);
                if *type_ == Type::Timestamp {
                    out.push(b'Z');
                }
            }
            (Type::List(element), Values::List(offsets, elements)) => {
                for (index, at) in range(offsets, row).enumerate() {
                    self.element(index, element, elements, at, out)?;
                }
            }
            (Type::Struct(fields), Values::Struct(columns)) => {
                for (index, ((_, type_), column)) in fields.iter().zip(columns).enumerate() {
                    self.element(index, type_, column, row, out)?;
                }
            }
            _ => return Err(Fault::plan()),
        }
        Ok(())
    }

    /// Append an element of an array or a row, behind the delimiter.
    fn element(&self, index: usize, type_: &Type, column: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Written {
        if index > 0 {
            append(self.dialect.element_delimiter, out);
        }
        if column.is_valid(row) {
            return self.value(type_, column, row, out);
        }
        out.extend_from_slice(self.dialect.null.as_bytes());
        Ok(())
    }

    /// Append a text, in quotes if Jackson would put it in quotes.
    fn enclosed(&self, text: &[u8], quote: char, out: &mut Vec<u8>) {
        let text = text::valid(text);
        let last = self.dialect.delimiter.max(quote);
        let escape = self.dialect.escape;
        let is_unsafe = |c: char| c <= last || c == escape.unwrap_or('\\');
        let is_long = text.len() > LONGEST_CHECKED && text.encode_utf16().nth(LONGEST_CHECKED).is_some();
        if !is_long && !text.chars().any(is_unsafe) {
            out.extend_from_slice(text.as_bytes());
            return;
        }
        append(quote, out);
        let mut begin = 0;
        for (at, special) in text.match_indices(|c| c == quote || Some(c) == escape) {
            out.extend_from_slice(&text.as_bytes()[begin..at]);
            out.extend_from_slice(special.as_bytes());
            begin = at;
        }
        out.extend_from_slice(&text.as_bytes()[begin..]);
        append(quote, out);
    }
}

fn may_need_quotes(type_: &Type) -> bool {
    use Type::*;
    !matches!(type_, Boolean | Int8 | Int16 | Int32 | Int64 | Float32 | Float64 | Decimal(..))
}

fn append(character: char, out: &mut Vec<u8>) {
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int32Type;
    use arrow_array::{Array, ArrayRef, Float64Array, ListArray, StringArray, StructArray};

    use crate::{Encoder, Spec};

    fn lines(dialect: &str, columns: Vec<(&str, ArrayRef)>) -> Vec<String> {
        let rows = StructArray::try_from(columns).unwrap();
        let encoder =
            Encoder::new(&Spec::new(&format!(r#"{{"format":"csv",{dialect}}}"#), rows.fields()).unwrap()).unwrap();
        let encoded = encoder.encode(&rows, b"").unwrap();
        assert!(encoded.errors.is_empty());
        let lines = encoded.messages.iter().flatten();
        lines.map(|line| String::from_utf8(line.to_vec()).unwrap()).collect()
    }

    fn texts<const N: usize>(texts: [&str; N]) -> Vec<(&'static str, ArrayRef)> {
        vec![("s", Arc::new(StringArray::from(texts.to_vec())))]
    }

    #[test]
    fn texts_are_in_quotes_where_jackson_puts_them() {
        let long = "x".repeat(25);
        let found = lines(
            r#""delimiter":",","quote":"\"","element_delimiter":";""#,
            texts(["a", "a b", "a\"b", "é-}", "\\", &long, &long[1..], "😀😀😀😀😀😀😀😀😀😀😀😀", ""]),
        );
        let quoted = format!("\"{long}\"");
        let expected =
            ["a", "\"a b\"", "\"a\"\"b\"", "é-}", "\"\\\"", &quoted, &long[1..], "😀😀😀😀😀😀😀😀😀😀😀😀", ""];
        assert_eq!(found, expected);
    }

    #[test]
    fn escapes_are_doubled() {
        let dialect = r#""delimiter":"|","quote":"'","escape":"^","element_delimiter":";""#;
        assert_eq!(lines(dialect, texts(["a^b", "it's", "\\"])), ["'a^^b'", "'it''s'", "'\\'"]);
        let dialect = r#""delimiter":",","quote":"","element_delimiter":";""#;
        assert_eq!(lines(dialect, texts(["a,\"b"])), ["a,\"b"]);
    }

    #[test]
    fn nulls_and_elements_have_their_texts() {
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None, Some(vec![])]);
        let numbers = Float64Array::from(vec![Some(1.5), None, Some(1e10)]);
        let columns: Vec<(&str, ArrayRef)> = vec![("l", Arc::new(lists)), ("d", Arc::new(numbers))];
        assert_eq!(columns[0].1.len(), 3);
        let dialect = r#""delimiter":",","quote":"\"","element_delimiter":";","null":"n/a""#;
        assert_eq!(lines(dialect, columns), ["1;n/a,1.5", "n/a,n/a", ",1.0E10"]);
    }
}
