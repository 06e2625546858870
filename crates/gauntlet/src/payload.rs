//! Reading a result's bytes without building what nobody asked for.
//!
//! A result may be megabytes of text that only passes through. Here it is walked once, borrowing: the members
//! that decide what it is are looked at, the rest is skipped over. Only a structured result that a schema will
//! judge becomes a [`Value`], and then by a reader that refuses what two readers could read differently.
//!
//! The strict reader of `core` is not used for that one step: it refuses integers beyond 2^53, which is right
//! for arguments that will be digested and wrong for a server's 64-bit row ids (GNT-P1 refuses only what no
//! double can approximate).

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use portcullis_core::Limits;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::leaves::{Fault, walk};

/// The members of a tool result that decide what it is.
#[derive(Debug, Default)]
pub(crate) struct Shape<'a> {
    pub(crate) has_content: bool,
    pub(crate) is_error: bool,
    pub(crate) structured: Option<&'a RawValue>,
    pub(crate) result_type: Option<Cow<'a, str>>,
}

/// Reads the shape of a result (GNT-P1). The error says what is wrong without quoting anything.
pub(crate) fn shape(bytes: &[u8]) -> Result<Shape<'_>, &'static str> {
    let text = std::str::from_utf8(bytes).map_err(|_| "not UTF-8")?;
    if has_lone_surrogate(text) {
        return Err("half a surrogate pair");
    }
    // The visitors below name their complaint in this cell; what serde reports would quote the document.
    let complaint = Cell::new("not valid JSON");
    let mut reader = serde_json::Deserializer::from_str(text);
    reader
        .deserialize_any(ResultVisitor { complaint: &complaint })
        .and_then(|shape| reader.end().map(|()| shape))
        .map_err(|_| complaint.get())
}

/// Whether an escape names half a character. Skipped text is not decoded, so nobody else would notice.
fn has_lone_surrogate(text: &str) -> bool {
    // Most escapes are of quotes; only these can name half of anything.
    if [&b"\\ud"[..], b"\\uD"].iter().all(|half| memchr::memmem::find(text.as_bytes(), half).is_none()) {
        return false;
    }
    let bytes = text.as_bytes();
    let unit = |at: usize| -> Option<u16> {
        let escape = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(escape, 16).ok()
    };
    let mut at = 0;
    // In valid JSON a backslash occurs only inside a string, and always with its successor.
    while let Some(offset) = text.get(at..).and_then(|rest| rest.find('\\')) {
        at += offset;
        match unit(at) {
            Some(0xd800..=0xdbff) if matches!(unit(at + 6), Some(0xdc00..=0xdfff)) => at += 12,
            Some(0xd800..=0xdfff) => return true,
            _ if bytes.get(at + 1).is_some_and(u8::is_ascii) => at += 2,
            _ => return false,
        }
    }
    false
}

/// A member name, borrowed unless it is written with escapes.
#[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// The names met in one object; sorted at the end, so that a hostile object costs no more than n log n.
#[derive(Default)]
struct Names<'a>(Vec<Key<'a>>);

impl Names<'_> {
    fn repeat(mut self) -> bool {
        self.0.sort_unstable();
        self.0.windows(2).any(|pair| pair[0] == pair[1])
    }
}

struct ResultVisitor<'c> {
    complaint: &'c Cell<&'static str>,
}

impl ResultVisitor<'_> {
    fn refuse<E: serde::de::Error>(&self, complaint: &'static str) -> E {
        self.complaint.set(complaint);
        E::custom("refused")
    }
}

impl<'de> Visitor<'de> for ResultVisitor<'_> {
    type Value = Shape<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.complaint.set("the result is not an object");
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Shape<'de>, A::Error> {
        let mut shape = Shape::default();
        let mut names = Names::default();
        while let Some(key) = map.next_key::<Key<'de>>()? {
            match key.0.as_ref() {
                "content" => {
                    map.next_value_seed(Content { complaint: self.complaint })?;
                    shape.has_content = true;
                }
                "isError" => {
                    let raw: &RawValue = map.next_value()?;
                    shape.is_error = match raw.get() {
                        "true" => true,
                        "false" => false,
                        _ => return Err(self.refuse("isError is not a boolean")),
                    };
                }
                "structuredContent" => shape.structured = Some(map.next_value()?),
                "resultType" => {
                    let raw: &RawValue = map.next_value()?;
                    let word: Key<'de> = serde_json::from_str(raw.get())
                        .map_err(|_| self.refuse("resultType is not a string"))?;
                    shape.result_type = Some(word.0);
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            names.0.push(key);
        }
        if names.repeat() {
            return Err(self.refuse("a member occurs twice"));
        }
        Ok(shape)
    }
}

/// `content`: an array of blocks.
struct Content<'c> {
    complaint: &'c Cell<&'static str>,
}

impl<'de> DeserializeSeed<'de> for Content<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Content<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.complaint.set("content is not an array");
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut blocks: A) -> Result<(), A::Error> {
        while blocks.next_element_seed(Block { complaint: self.complaint })?.is_some() {}
        Ok(())
    }
}

/// One content block: an object with a `type`.
struct Block<'c> {
    complaint: &'c Cell<&'static str>,
}

impl<'de> DeserializeSeed<'de> for Block<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Block<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.complaint.set("a content block is not an object");
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut names = Names::default();
        let mut typed = false;
        while let Some(key) = map.next_key::<Key<'de>>()? {
            if key.0 == "type" {
                let raw: &RawValue = map.next_value()?;
                typed = raw.get().starts_with('"');
            } else {
                map.next_value::<IgnoredAny>()?;
            }
            names.0.push(key);
        }
        if !typed {
            self.complaint.set("a content block has no type");
            return Err(A::Error::custom("refused"));
        }
        if names.repeat() {
            self.complaint.set("a member of a content block occurs twice");
            return Err(A::Error::custom("refused"));
        }
        Ok(())
    }
}

/// Why a structured result could not be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    Shape(&'static str),
    TooDeep(usize),
    TooManyNodes(usize),
}

/// Reads a structured result whole, within the limits for results.
pub(crate) fn value(raw: &RawValue) -> Result<Value, Unreadable> {
    let limits = Limits::result(raw.get().len());
    let guard = Guard { limits, nodes: Cell::new(0), fault: Cell::new(None) };
    Node { guard: &guard, depth: 0 }.deserialize(&mut serde_json::Deserializer::from_str(raw.get())).map_err(
        |_| {
            // The reader below has a limit of its own and gets there first.
            let nested = || walk(raw.get(), 0..raw.get().len(), &mut 0, |_, _| Ok(())) == Err(Fault::TooDeep);
            guard.fault.take().unwrap_or_else(|| match nested() {
                true => Unreadable::TooDeep(guard.limits.depth),
                false => Unreadable::Shape("a number beyond what a double can hold"),
            })
        },
    )
}

struct Guard {
    limits: Limits,
    nodes: Cell<usize>,
    fault: Cell<Option<Unreadable>>,
}

impl Guard {
    fn refuse<E: serde::de::Error>(&self, fault: Unreadable) -> E {
        self.fault.set(Some(fault));
        E::custom("refused")
    }
}

#[derive(Clone, Copy)]
struct Node<'g> {
    guard: &'g Guard,
    depth: usize,
}

impl Node<'_> {
    fn enter<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth == self.guard.limits.depth {
            return Err(self.guard.refuse(Unreadable::TooDeep(self.guard.limits.depth)));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let nodes = self.guard.nodes.get() + 1;
        if nodes > self.guard.limits.nodes {
            return Err(self.guard.refuse(Unreadable::TooManyNodes(self.guard.limits.nodes)));
        }
        self.guard.nodes.set(nodes);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let child = self.enter()?;
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(child)? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let child = self.enter()?;
        let mut members = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = map.next_value_seed(child)?;
            if members.insert(key, value).is_some() {
                return Err(self
                    .guard
                    .refuse(Unreadable::Shape("a member of structured content occurs twice")));
            }
        }
        Ok(members.into())
    }
}

/// The result again without its structured content, every other member as it was written (GNT-P6).
pub(crate) fn without_structured(bytes: &[u8]) -> Option<Vec<u8>> {
    let members = Members::read(std::str::from_utf8(bytes).ok()?)?;
    let mut text = Vec::with_capacity(bytes.len());
    text.push(b'{');
    for (name, value) in members.iter().filter(|(name, _)| *name != "structuredContent") {
        if text.len() > 1 {
            text.push(b',');
        }
        serde_json::to_writer(&mut text, name).ok()?;
        text.push(b':');
        text.extend_from_slice(value.get().as_bytes());
    }
    text.push(b'}');
    Some(text)
}

/// An object's members in the order they were written.
#[derive(Debug)]
pub(crate) struct Members<'a>(Vec<(Key<'a>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// The members of an object; `None` if it is none.
    pub(crate) fn read(json: &'a str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, raw)| (name.0.as_ref(), *raw))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.iter().find(|(other, _)| *other == name).map(|(_, raw)| raw)
    }

    /// A member that is a string.
    pub(crate) fn word(&self, name: &str) -> Option<Cow<'a, str>> {
        serde_json::from_str::<Key<'a>>(self.get(name)?.get()).ok().map(|word| word.0)
    }

    /// Whether two members have one name.
    pub(crate) fn repeat(&self) -> bool {
        let mut names: Vec<&str> = self.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        names.windows(2).any(|pair| pair[0] == pair[1])
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Vec<(Key<'de>, &'de RawValue)>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(InOrder).map(Members)
    }
}
