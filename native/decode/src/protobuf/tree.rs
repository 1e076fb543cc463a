//! Any message to a regular one, as Google's parser understands it.
//!
//! A message becomes a tree: of a field that may be there once the last value counts, messages in it are merged, of a oneof
//! the last field is kept, of a map's key the last value. What is unknown is left out: fields, also with another wire type
//! than their own, and numbers that a closed enum does not have. The tree is then written as a serializer does it.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::plan::{Field, Kind, Message, Plan, Shape};
use super::wire::{END_GROUP, FIXED32, FIXED64, GROUP, Irregular, LENGTH, VARINT, Wire, put_varint};

/// A message ends too early, or has a tag, a length or a number that is none, in the words of Google's parser.
const CORRUPT: &str = "Wire format was corrupt";
/// The most levels of messages in a message, as in Google's parser. Entries of maps and groups count too.
pub(super) const MOST_LEVELS: usize = 100;

/// A message.
#[derive(Debug, Default)]
pub(super) struct Node<'a> {
    /// The fields by their numbers.
    pub(super) slots: BTreeMap<u32, Slot<'a>>,
    /// The numbers of the fields of oneofs.
    cases: BTreeMap<u64, u32>,
    /// Whether the last number of a closed enum was one that it does not have. An entry of a map is unknown then.
    is_unknown: bool,
}

/// The content of a field.
#[derive(Debug)]
pub(super) enum Slot<'a> {
    One(Raw<'a>),
    Many(Vec<Raw<'a>>),
    Node(Node<'a>),
    Nodes(Vec<Node<'a>>),
    /// The places of the entries by their keys, and the entries.
    Map(HashMap<Raw<'a>, usize>, Vec<Node<'a>>),
}

/// A value that is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Raw<'a> {
    Varint(u64),
    Fixed(&'a [u8]),
    Sized(&'a [u8]),
}

/// Why a message cannot be parsed.
#[derive(Debug)]
pub(super) struct Fault {
    words: &'static str,
    /// The names of the fields around the place, the innermost first.
    path: Vec<Arc<str>>,
}

type Parsed<T> = Result<T, Box<Fault>>;

impl Fault {
    #[cold]
    fn new(words: &'static str) -> Box<Self> {
        Box::new(Self { words, path: Vec::new() })
    }

    #[cold]
    fn within(mut self: Box<Self>, field: &Field) -> Box<Self> {
        self.path.push(Arc::clone(&field.name));
        self
    }

    /// Return the reason as a clause.
    pub(super) fn text(&self) -> String {
        let names: Vec<&str> = self.path.iter().rev().map(|name| &**name).collect();
        let place = if names.is_empty() { "the message".to_owned() } else { names.join(".") };
        if self.words == CORRUPT { format!("{CORRUPT} in {place}") } else { format!("{place} {}", self.words) }
    }
}

impl From<Irregular> for Box<Fault> {
    fn from(_: Irregular) -> Self {
        Fault::new(CORRUPT)
    }
}

/// Return the tree of a message, by its place in the plan. There may be so many levels of messages in it.
pub(super) fn parse<'a>(plan: &Plan, index: usize, message: &'a [u8], levels: usize) -> Parsed<Node<'a>> {
    let mut node = Node::default();
    let parser = Parser { plan };
    parser.message(&plan.messages[index], &mut Wire { rest: message }, &mut node, levels, None)?;
    Ok(node)
}

struct Parser<'p> {
    plan: &'p Plan,
}

impl Parser<'_> {
    /// Put the fields of a message into a node. A group ends with its number.
    fn message<'a>(
        &self,
        message: &Message,
        wire: &mut Wire<'a>,
        node: &mut Node<'a>,
        levels: usize,
        group: Option<u32>,
    ) -> Parsed<()> {
        while let Some((number, wire_type)) = wire.tag()? {
            if wire_type == END_GROUP {
                return if group == Some(number) { Ok(()) } else { Err(no_group()) };
            }
            let Some(field) = message.field(number) else {
                skip(wire, number, wire_type, levels)?;
                continue;
            };
            self.field(field, wire_type, wire, node, levels).map_err(|fault| fault.within(field))?;
        }
        if group.is_some() { Err(no_group()) } else { Ok(()) }
    }

    fn field<'a>(
        &self,
        field: &Field,
        wire_type: u32,
        wire: &mut Wire<'a>,
        node: &mut Node<'a>,
        levels: usize,
    ) -> Parsed<()> {
        let own = if field.is_group { GROUP } else { field.kind.wire_type() };
        let is_many = matches!(field.shape, Shape::Repeated);
        if wire_type == LENGTH && !field.is_group && own != LENGTH && is_many {
            let mut packed = Wire { rest: wire.bytes()? };
            while !packed.rest.is_empty() {
                let value = raw(&mut packed, own)?;
                put(field, value, node)?;
            }
            return Ok(());
        }
        if wire_type != own {
            return skip(wire, field.number, wire_type, levels);
        }
        if let Shape::Map(entry) = &field.shape {
            let mut found = Node::default();
            let levels = levels.checked_sub(1).ok_or_else(too_deep)?;
            self.message(entry, &mut Wire { rest: wire.bytes()? }, &mut found, levels, None)?;
            return put_entry(field, entry, found, node);
        }
        let Some(index) = field.kind.message() else {
            let value = raw(wire, wire_type)?;
            return put(field, value, node);
        };
        let message = &self.plan.messages[index];
        let levels = levels.checked_sub(1).ok_or_else(too_deep)?;
        let inner = inner_node(field, node);
        if field.is_group {
            return self.message(message, wire, inner, levels, Some(field.number));
        }
        self.message(message, &mut Wire { rest: wire.bytes()? }, inner, levels, None)
    }
}

/// Return a value that is no message.
fn raw<'a>(wire: &mut Wire<'a>, wire_type: u32) -> Result<Raw<'a>, Irregular> {
    Ok(match wire_type {
        VARINT => Raw::Varint(wire.varint()?),
        FIXED64 => Raw::Fixed(wire.take(8)?),
        FIXED32 => Raw::Fixed(wire.take(4)?),
        _ => Raw::Sized(wire.bytes()?),
    })
}

/// Put a value that is no message into a node.
fn put<'a>(field: &Field, value: Raw<'a>, node: &mut Node<'a>) -> Parsed<()> {
    match (&field.kind, value) {
        (Kind::String(true), Raw::Sized(text)) if std::str::from_utf8(text).is_err() => {
            return Err(Fault::new("is not valid UTF-8"));
        }
        (Kind::Enum(names), Raw::Varint(number)) => {
            node.is_unknown = names.excludes(number as i32);
            if node.is_unknown {
                return Ok(());
            }
        }
        _ => {}
    }
    if matches!(field.shape, Shape::Repeated) {
        match node.slots.entry(field.number).or_insert_with(|| Slot::Many(Vec::new())) {
            Slot::Many(values) => values.push(value),
            _ => unreachable!("a field has one shape"),
        }
    } else {
        choose(field, node);
        node.slots.insert(field.number, Slot::One(value));
    }
    Ok(())
}

/// Return the node of a message in a node: the last one if it is merged with what is there.
fn inner_node<'n, 'a>(field: &Field, node: &'n mut Node<'a>) -> &'n mut Node<'a> {
    if matches!(field.shape, Shape::Repeated) {
        let Slot::Nodes(nodes) = node.slots.entry(field.number).or_insert_with(|| Slot::Nodes(Vec::new())) else {
            unreachable!("a field has one shape")
        };
        nodes.push(Node::default());
        let last = nodes.len() - 1;
        return &mut nodes[last];
    }
    choose(field, node);
    match node.slots.entry(field.number).or_insert_with(|| Slot::Node(Node::default())) {
        Slot::Node(inner) => inner,
        _ => unreachable!("a field has one shape"),
    }
}

/// Take away another field of the same oneof.
fn choose(field: &Field, node: &mut Node<'_>) {
    let Some(oneof) = field.oneof else { return };
    if let Some(other) = node.cases.insert(oneof, field.number).filter(|other| *other != field.number) {
        node.slots.remove(&other);
    }
}

/// Put an entry into a map, with the defaults of a key or a value that is missing.
fn put_entry<'a>(field: &Field, entry: &Message, mut found: Node<'a>, node: &mut Node<'a>) -> Parsed<()> {
    let [key, value] = &entry.fields[..] else { unreachable!("an entry has two fields") };
    if found.is_unknown {
        return Ok(());
    }
    let key = normal(&key.kind, found.slots.get(&1));
    found.slots.insert(1, Slot::One(key));
    if value.kind.message().is_some() {
        found.slots.entry(2).or_insert_with(|| Slot::Node(Node::default()));
    }
    let Slot::Map(places, entries) =
        node.slots.entry(field.number).or_insert_with(|| Slot::Map(HashMap::new(), Vec::new()))
    else {
        unreachable!("a field has one shape")
    };
    match places.entry(key) {
        Entry::Occupied(place) => entries[*place.get()] = found,
        Entry::Vacant(place) => {
            place.insert(entries.len());
            entries.push(found);
        }
    }
    Ok(())
}

/// Return a key in the one form that it has in Google's parser.
fn normal<'a>(kind: &Kind, key: Option<&Slot<'a>>) -> Raw<'a> {
    const ZEROS: &[u8] = &[0; 8];
    match (kind, key) {
        (Kind::Bool, Some(Slot::One(Raw::Varint(value)))) => Raw::Varint((*value != 0).into()),
        (Kind::Int32, Some(Slot::One(Raw::Varint(value)))) => Raw::Varint(i64::from(*value as i32) as u64),
        (Kind::UInt32 | Kind::SInt32, Some(Slot::One(Raw::Varint(value)))) => Raw::Varint((*value as u32).into()),
        (_, Some(Slot::One(raw))) => *raw,
        _ => match kind.wire_type() {
            VARINT => Raw::Varint(0),
            FIXED32 => Raw::Fixed(&ZEROS[..4]),
            FIXED64 => Raw::Fixed(ZEROS),
            _ => Raw::Sized(&[]),
        },
    }
}

/// Skip a field that is unknown. Groups may be in groups.
fn skip(wire: &mut Wire<'_>, number: u32, wire_type: u32, levels: usize) -> Parsed<()> {
    if wire_type != GROUP {
        return Ok(wire.skip(wire_type)?);
    }
    let mut open = vec![number];
    while let Some(last) = open.last() {
        if open.len() > levels {
            return Err(too_deep());
        }
        match wire.tag()?.ok_or_else(no_group)? {
            (number, GROUP) => open.push(number),
            (number, END_GROUP) if number == *last => _ = open.pop(),
            (_, END_GROUP) => return Err(no_group()),
            (_, wire_type) => wire.skip(wire_type)?,
        }
    }
    Ok(())
}

#[cold]
fn too_deep() -> Box<Fault> {
    Fault::new("is nested too deeply")
}

#[cold]
fn no_group() -> Box<Fault> {
    Fault::new("has a group that does not end, or the end of another one")
}

// --- writing ---

/// Append the fields of a message. Groups are written as other messages are.
pub(super) fn write(plan: &Plan, message: &Message, node: &Node<'_>, out: &mut Vec<u8>) {
    for (number, slot) in &node.slots {
        let Some(field) = message.field(*number) else { continue };
        let tag = |wire_type: u32, out: &mut Vec<u8>| put_varint(u64::from(*number) << 3 | u64::from(wire_type), out);
        let inner = |node: &Node<'_>, message: &Message, out: &mut Vec<u8>| {
            let mut written = Vec::new();
            write(plan, message, node, &mut written);
            tag(LENGTH, out);
            put_varint(written.len() as u64, out);
            out.append(&mut written);
        };
        let value = |raw: &Raw<'_>, out: &mut Vec<u8>| {
            tag(field.kind.wire_type(), out);
            match raw {
                Raw::Varint(number) => put_varint(*number, out),
                Raw::Fixed(bytes) => out.extend_from_slice(bytes),
                Raw::Sized(bytes) => {
                    put_varint(bytes.len() as u64, out);
                    out.extend_from_slice(bytes);
                }
            }
        };
        match (slot, &field.shape, field.kind.message().map(|index| &plan.messages[index])) {
            (Slot::One(raw), ..) => value(raw, out),
            (Slot::Many(raws), ..) => raws.iter().for_each(|raw| value(raw, out)),
            (Slot::Node(node), _, Some(message)) => inner(node, message, out),
            (Slot::Nodes(nodes), _, Some(message)) => nodes.iter().for_each(|node| inner(node, message, out)),
            (Slot::Map(_, entries), Shape::Map(entry), _) => entries.iter().for_each(|node| inner(node, entry, out)),
            _ => {}
        }
    }
}

// --- required fields ---

/// Append the paths of the required fields that a message lacks, such as `lines[0].item`, until there are as many as `most`.
pub(super) fn lacking(
    plan: &Plan,
    message: &Message,
    node: &Node<'_>,
    path: &str,
    most: usize,
    found: &mut Vec<String>,
) {
    for field in message.fields.iter().filter(|field| field.is_required && !node.slots.contains_key(&field.number)) {
        if found.len() < most {
            found.push(format!("{path}{}", field.name));
        }
    }
    for field in &message.fields {
        if found.len() >= most {
            return;
        }
        let Some(slot) = node.slots.get(&field.number) else { continue };
        let inner = |of: &Field| of.kind.message().map(|index| &plan.messages[index]);
        let name = &field.name;
        match (slot, &field.shape, inner(field)) {
            (Slot::Node(node), _, Some(message)) => {
                lacking(plan, message, node, &format!("{path}{name}."), most, found);
            }
            (Slot::Nodes(nodes), _, Some(message)) => {
                for (index, node) in nodes.iter().enumerate() {
                    lacking(plan, message, node, &format!("{path}{name}[{index}]."), most, found);
                }
            }
            (Slot::Map(_, entries), Shape::Map(entry), _) => {
                let [key, value] = &entry.fields[..] else { continue };
                let Some(message) = inner(value) else { continue };
                for node in entries {
                    if let (Some(Slot::One(raw)), Some(Slot::Node(value))) = (node.slots.get(&1), node.slots.get(&2)) {
                        let path = format!("{path}{name}[{}].", shown(&key.kind, *raw));
                        lacking(plan, message, value, &path, most, found);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Return a map's key as it is shown in a path.
fn shown(kind: &Kind, key: Raw<'_>) -> String {
    let mut encoded = Vec::new();
    match key {
        Raw::Sized(text) => return format!("\"{}\"", String::from_utf8_lossy(text)),
        Raw::Varint(value) if matches!(kind, Kind::Bool) => {
            return if value == 0 { "False" } else { "True" }.to_owned();
        }
        Raw::Varint(value) => put_varint(value, &mut encoded),
        Raw::Fixed(bytes) => encoded.extend_from_slice(bytes),
    }
    let number = kind.number(&mut Wire { rest: &encoded }).unwrap_or_default();
    if matches!(kind, Kind::UInt64 | Kind::Fixed64) { (number as u64).to_string() } else { number.to_string() }
}
