//! `google.protobuf.Struct`, `Value` and `ListValue` as JSON, as Python's `json` writes it.

use super::plan::{Json, Plan};
use super::tree::{Node, Raw, Slot, parse};

/// Append the JSON of a message, by its place in the plan; or fail with what is wrong with it, or with None if it has to be
/// made regular.
pub(super) fn write(
    plan: &Plan,
    index: usize,
    json: Json,
    message: &[u8],
    levels: usize,
    out: &mut Vec<u8>,
) -> Result<(), Option<String>> {
    let node = parse(plan, index, message, levels).map_err(|_| None)?;
    let written = match json {
        Json::Struct => write_struct(&node, out),
        Json::Value => write_value(&node, out),
        Json::List => write_list(&node, out),
    };
    written.map_err(|number| Some(format!("has the number {number}, which JSON does not have")))
}

fn write_struct(node: &Node<'_>, out: &mut Vec<u8>) -> Result<(), f64> {
    out.push(b'{');
    if let Some(Slot::Map(_, entries)) = node.slots.get(&1) {
        for (place, entry) in entries.iter().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            if let Some(Slot::One(Raw::Sized(key))) = entry.slots.get(&1) {
                text(key, out);
            }
            out.push(b':');
            match entry.slots.get(&2) {
                Some(Slot::Node(value)) => write_value(value, out)?,
                _ => out.extend_from_slice(b"null"),
            }
        }
    }
    out.push(b'}');
    Ok(())
}

fn write_list(node: &Node<'_>, out: &mut Vec<u8>) -> Result<(), f64> {
    out.push(b'[');
    if let Some(Slot::Nodes(values)) = node.slots.get(&1) {
        for (place, value) in values.iter().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            write_value(value, out)?;
        }
    }
    out.push(b']');
    Ok(())
}

/// Append a value. It has one field at most, because its fields are a oneof.
fn write_value(node: &Node<'_>, out: &mut Vec<u8>) -> Result<(), f64> {
    match node.slots.first_key_value() {
        Some((2, Slot::One(Raw::Fixed(bytes)))) => {
            let value = (*bytes).try_into().map(f64::from_le_bytes).unwrap_or_default();
            if !value.is_finite() {
                return Err(value);
            }
            out.extend_from_slice(number(value).as_bytes());
        }
        Some((3, Slot::One(Raw::Sized(value)))) => text(value, out),
        Some((4, Slot::One(Raw::Varint(value)))) => {
            out.extend_from_slice(if *value == 0 { b"false" } else { b"true" });
        }
        Some((5, Slot::Node(value))) => write_struct(value, out)?,
        Some((6, Slot::Node(value))) => write_list(value, out)?,
        _ => out.extend_from_slice(b"null"),
    }
    Ok(())
}

/// Return a number in the fewest digits, with an exponent if that is below -4 or above 15.
fn number(value: f64) -> String {
    let scientific = format!("{value:e}");
    let exponent = scientific.split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok()).unwrap_or(0);
    if value == 0.0 || (-4..16).contains(&exponent) {
        return format!("{value:?}");
    }
    let digits = scientific.split('e').next().unwrap_or_default();
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// Append a text. It is valid UTF-8.
fn text(value: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in value {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0C => out.extend_from_slice(b"\\f"),
            ..0x20 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_in_python() {
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.5, "1.5"),
            (-3.0, "-3.0"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (-1.25e300, "-1.25e+300"),
            (5e-324, "5e-324"),
        ] {
            assert_eq!(number(value), expected);
        }
    }

    #[test]
    fn texts_are_escaped_as_in_python() {
        let mut out = Vec::new();
        text("a\"\\\n\r\t\u{8}\u{c}\u{1}\u{7f}ü".as_bytes(), &mut out);
        assert_eq!(out, "\"a\\\"\\\\\\n\\r\\t\\b\\f\\u0001\u{7f}ü\"".as_bytes());
    }
}
