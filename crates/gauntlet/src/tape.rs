//! A JSON text, read once.
//!
//! A result is looked at again and again: what it is, whether it fits its schema, which of its strings are safe to
//! show. Reading it anew for each question costs more than all the answers. So it is read into a *tape*, a flat list of
//! where its values and member names stand, and everything else walks that list. Nothing is copied: a string that
//! nobody has to change is never more than a place in the text.
//!
//! What is on a tape was checked on the way (GNT-P1, and the caps of §5): it is JSON, and no escape names half a
//! character. A test holds the reader to `serde_json`'s verdicts. What two readers could read differently, a member that
//! occurs twice or a number beyond a double, is noted as a [flaw](Tape::flaw): part of a text may be given up for it.

#[cfg(test)]
#[path = "tape_tests.rs"]
mod tests;

use std::borrow::Cow;
use std::ops::Range;

use serde_json::{Map, Number, Value};

use crate::leaves::{Fault, MAX_DEPTH, MAX_KEY_BYTES, MAX_NODES};

const NOT_JSON: Fault = Fault::Shape("not valid JSON");
const HALF_A_CHARACTER: Fault = Fault::Shape("half a surrogate pair");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
    /// A member name; its value follows.
    Name,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    kind: Kind,
    /// Whether a string is written with escapes.
    escaped: bool,
    start: u32,
    end: u32,
    /// The first node behind this one and everything in it.
    next: u32,
}

/// A text and where everything in it stands.
#[derive(Debug)]
pub(crate) struct Tape<'s> {
    source: &'s str,
    nodes: Vec<Node>,
    has_space: bool,
    has_escapes: bool,
    flaw: Option<(u32, &'static str)>,
}

impl<'s> Tape<'s> {
    /// Reads a text that is one value without a flaw. `count` is how many values were read before, and then how many
    /// there are.
    pub(crate) fn read(source: &'s str, count: &mut usize) -> Result<Self, Fault> {
        let tape = Self::read_to(source, MAX_DEPTH, count)?;
        tape.flaw.map_or(Ok(()), |(_, reason)| Err(Fault::Shape(reason)))?;
        Ok(tape)
    }

    /// Reads a result, flaws and all: an object around values that may be as deep as values get.
    pub(crate) fn read_result(source: &'s str) -> Result<Self, Fault> {
        Self::read_to(source, MAX_DEPTH + 1, &mut 0)
    }

    fn read_to(source: &'s str, depth: usize, count: &mut usize) -> Result<Self, Fault> {
        let tape = Self {
            source,
            nodes: Vec::with_capacity((source.len() / 12).min(4_096)),
            has_space: false,
            has_escapes: false,
            flaw: None,
        };
        let mut reader = Reader { tape, at: 0, depth, open: Vec::new(), names: Vec::new(), count };
        reader.read()?;
        Ok(reader.tape)
    }

    /// The value that the text is.
    pub(crate) fn root(&self) -> View<'_, 's> {
        View { tape: self, at: 0 }
    }

    /// What is wrong with the text first, apart from what is in `exempt`.
    pub(crate) fn flaw(&self, exempt: Option<View<'_, '_>>) -> Option<&'static str> {
        let (at, reason) = self.flaw?;
        let is_exempt = exempt.is_some_and(|view| (view.at..view.node().next).contains(&at));
        (!is_exempt).then_some(reason)
    }

    pub(crate) fn source(&self) -> &'s str {
        self.source
    }

    /// Whether anything stands between the values that could be left out.
    pub(crate) fn has_space(&self) -> bool {
        self.has_space
    }

    /// Whether any string is written with escapes.
    pub(crate) fn has_escapes(&self) -> bool {
        self.has_escapes
    }
}

/// One value, or member name, of a tape.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'t, 's> {
    tape: &'t Tape<'s>,
    at: u32,
}

impl<'t, 's> View<'t, 's> {
    fn node(self) -> &'t Node {
        &self.tape.nodes[self.at as usize]
    }

    pub(crate) fn kind(self) -> Kind {
        self.node().kind
    }

    pub(crate) fn is_escaped(self) -> bool {
        self.node().escaped
    }

    /// Where it stands in the text; quotes included.
    pub(crate) fn place(self) -> Range<usize> {
        self.node().start as usize..self.node().end as usize
    }

    /// As it is written.
    pub(crate) fn raw(self) -> &'s str {
        &self.tape.source[self.place()]
    }

    /// What a string or a name says; nothing if it is neither.
    pub(crate) fn text(self) -> Cow<'s, str> {
        let Node { kind, escaped, .. } = *self.node();
        match (kind, escaped) {
            (Kind::String | Kind::Name, false) => {
                let raw = self.raw();
                Cow::Borrowed(&raw[1..raw.len() - 1])
            }
            (Kind::String | Kind::Name, true) => {
                Cow::Owned(serde_json::from_str(self.raw()).unwrap_or_default())
            }
            _ => Cow::Borrowed(""),
        }
    }

    /// What a string says; `None` if it is none.
    pub(crate) fn word(self) -> Option<Cow<'s, str>> {
        (self.kind() == Kind::String).then(|| self.text())
    }

    /// The number; zero if it is none.
    pub(crate) fn number(self) -> Number {
        self.raw().parse().unwrap_or_else(|_| 0.into())
    }

    /// Itself and everything in it, in the order it is written.
    pub(crate) fn everything(self) -> impl Iterator<Item = View<'t, 's>> {
        (self.at..self.node().next).map(move |at| View { tape: self.tape, at })
    }

    /// What stands directly in it, member names included.
    fn children(self) -> impl Iterator<Item = View<'t, 's>> {
        let end = if matches!(self.kind(), Kind::Array | Kind::Object) { self.node().next } else { 0 };
        let mut at = self.at + 1;
        std::iter::from_fn(move || {
            let view = (at < end).then_some(View { tape: self.tape, at })?;
            at = view.node().next;
            Some(view)
        })
    }

    /// The items of an array; none if it is none.
    pub(crate) fn items(self) -> impl Iterator<Item = View<'t, 's>> {
        let is_array = self.kind() == Kind::Array;
        self.children().take_while(move |_| is_array)
    }

    /// The members of an object, each with its name; none if it is none.
    pub(crate) fn members(self) -> impl Iterator<Item = (View<'t, 's>, View<'t, 's>)> {
        let is_object = self.kind() == Kind::Object;
        let mut children = self.children();
        std::iter::from_fn(move || {
            let name = children.next().filter(|_| is_object)?;
            Some((name, children.next()?))
        })
    }

    /// Whether a name is `name`.
    fn says(self, name: &str) -> bool {
        if self.is_escaped() {
            return self.text() == name;
        }
        let Node { start, end, .. } = *self.node();
        (end - start) as usize == name.len() + 2 && self.text() == name
    }

    /// A member of an object.
    pub(crate) fn get(self, name: &str) -> Option<View<'t, 's>> {
        self.members().find(|(own, _)| own.says(name)).map(|(_, value)| value)
    }

    /// A member that is a string.
    pub(crate) fn word_of(self, name: &str) -> Option<Cow<'s, str>> {
        self.get(name).and_then(View::word)
    }

    /// Everything, built. As deep as the tape at most, which is bounded.
    pub(crate) fn value(self) -> Value {
        match self.kind() {
            Kind::Null => Value::Null,
            Kind::Bool => Value::Bool(self.raw() == "true"),
            Kind::Number => Value::Number(self.number()),
            Kind::String | Kind::Name => Value::String(self.text().into_owned()),
            Kind::Array => self.items().map(View::value).collect(),
            Kind::Object => {
                let members = self.members().map(|(name, value)| (name.text().into_owned(), value.value()));
                Value::Object(Map::from_iter(members))
            }
        }
    }
}

struct Reader<'s, 'c> {
    tape: Tape<'s>,
    at: usize,
    /// How deep values may be.
    depth: usize,
    /// The arrays and objects that are open.
    open: Vec<u32>,
    /// Where names are compared, used again for every object.
    names: Vec<Cow<'s, str>>,
    count: &'c mut usize,
}

impl<'s> Reader<'s, '_> {
    fn read(&mut self) -> Result<(), Fault> {
        loop {
            self.value()?;
            // A value has ended, and with it perhaps those around it.
            loop {
                let byte = self.skip_space();
                let Some(open) = self.open.last().copied() else {
                    return if byte.is_none() { Ok(()) } else { Err(NOT_JSON) };
                };
                let is_object = self.tape.nodes[open as usize].kind == Kind::Object;
                self.at += 1;
                match byte {
                    Some(b',') if is_object => {
                        self.skip_space();
                        self.name()?;
                        break;
                    }
                    Some(b',') => break,
                    Some(b'}') if is_object => self.close(open),
                    Some(b']') if !is_object => self.close(open),
                    _ => return Err(NOT_JSON),
                }
            }
        }
    }

    /// A scalar, an empty array or object, or whatever opens up to its first scalar.
    fn value(&mut self) -> Result<(), Fault> {
        loop {
            let byte = self.skip_space().ok_or(NOT_JSON)?;
            *self.count += 1;
            if *self.count > MAX_NODES {
                return Err(Fault::TooManyNodes);
            }
            match byte {
                b'"' => return self.string(Kind::String),
                b'{' => {
                    self.open(Kind::Object)?;
                    if self.skip_space() == Some(b'}') {
                        return Ok(());
                    }
                    self.name()?;
                }
                b'[' => {
                    self.open(Kind::Array)?;
                    if self.skip_space() == Some(b']') {
                        return Ok(());
                    }
                }
                b't' => return self.literal("true", Kind::Bool),
                b'f' => return self.literal("false", Kind::Bool),
                b'n' => return self.literal("null", Kind::Null),
                _ => return self.number(),
            }
        }
    }

    fn bytes(&self) -> &'s [u8] {
        self.tape.source.as_bytes()
    }

    /// The next byte that is no white space.
    #[inline]
    fn skip_space(&mut self) -> Option<u8> {
        loop {
            match self.bytes().get(self.at) {
                Some(b' ' | b'\t' | b'\n' | b'\r') => {
                    self.tape.has_space = true;
                    self.at += 1;
                }
                byte => return byte.copied(),
            }
        }
    }

    #[inline]
    fn push(&mut self, kind: Kind, escaped: bool, start: usize) {
        let next = self.tape.nodes.len() as u32 + 1;
        self.tape.nodes.push(Node { kind, escaped, start: start as u32, end: self.at as u32, next });
    }

    fn open(&mut self, kind: Kind) -> Result<(), Fault> {
        if self.open.len() == self.depth {
            return Err(Fault::TooDeep);
        }
        self.open.push(self.tape.nodes.len() as u32);
        self.at += 1;
        self.push(kind, false, self.at - 1);
        Ok(())
    }

    fn close(&mut self, open: u32) {
        self.open.pop();
        let next = self.tape.nodes.len() as u32;
        let node = &mut self.tape.nodes[open as usize];
        node.next = next;
        node.end = self.at as u32;
        if node.kind == Kind::Object && self.has_repeat(open) {
            self.tape.flaw.get_or_insert((open, "a member occurs twice"));
        }
    }

    /// Whether two members have one name. Few names are compared with each other, many are sorted.
    fn has_repeat(&mut self, object: u32) -> bool {
        let Self { tape, names, .. } = self;
        names.clear();
        names.extend(View { tape, at: object }.members().map(|(name, _)| name.text()));
        if names.len() <= 8 {
            return (1..names.len()).any(|at| names[..at].contains(&names[at]));
        }
        names.sort_unstable();
        names.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// A member name and its colon.
    fn name(&mut self) -> Result<(), Fault> {
        if self.bytes().get(self.at) != Some(&b'"') {
            return Err(NOT_JSON);
        }
        let start = self.at;
        self.string(Kind::Name)?;
        // Escapes make a name longer, never shorter.
        if self.at - start > MAX_KEY_BYTES + 2 {
            let name = View { tape: &self.tape, at: self.tape.nodes.len() as u32 - 1 };
            if name.text().len() > MAX_KEY_BYTES {
                return Err(Fault::KeyTooLong);
            }
        }
        if self.skip_space() != Some(b':') {
            return Err(NOT_JSON);
        }
        self.at += 1;
        Ok(())
    }

    fn string(&mut self, kind: Kind) -> Result<(), Fault> {
        let start = self.at;
        let mut escaped = false;
        self.at += 1;
        loop {
            self.at += plain_len(&self.bytes()[self.at..]);
            match self.bytes().get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                _ => return Err(NOT_JSON),
            }
        }
        self.at += 1;
        self.tape.has_escapes |= escaped;
        self.push(kind, escaped, start);
        Ok(())
    }

    fn escape(&mut self) -> Result<(), Fault> {
        match self.bytes().get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') => match self.unit(self.at).ok_or(NOT_JSON)? {
                0xd800..=0xdbff => match self.unit(self.at + 6) {
                    Some(0xdc00..=0xdfff) => self.at += 12,
                    _ => return Err(HALF_A_CHARACTER),
                },
                0xdc00..=0xdfff => return Err(HALF_A_CHARACTER),
                _ => self.at += 6,
            },
            _ => return Err(NOT_JSON),
        }
        Ok(())
    }

    /// What `\uXXXX` at `at` names; `None` if nothing such stands there.
    fn unit(&self, at: usize) -> Option<u32> {
        let digits = self.bytes().get(at..at + 6)?.strip_prefix(b"\\u")?;
        digits.iter().try_fold(0, |unit, digit| Some(unit << 4 | char::from(*digit).to_digit(16)?))
    }

    fn literal(&mut self, word: &str, kind: Kind) -> Result<(), Fault> {
        let start = self.at;
        if !self.bytes()[start..].starts_with(word.as_bytes()) {
            return Err(NOT_JSON);
        }
        self.at += word.len();
        self.push(kind, false, start);
        Ok(())
    }

    fn number(&mut self) -> Result<(), Fault> {
        let start = self.at;
        if self.bytes().get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        if let (b'0', 2..) = self.digits()? {
            return Err(NOT_JSON);
        }
        if self.bytes().get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        let mut suspicious = self.at - start > 300;
        if let Some(b'e' | b'E') = self.bytes().get(self.at) {
            suspicious = true;
            self.at += 1;
            if let Some(b'+' | b'-') = self.bytes().get(self.at) {
                self.at += 1;
            }
            self.digits()?;
        }
        // Only an exponent or three hundred digits can lead beyond a double.
        let literal = &self.tape.source[start..self.at];
        if suspicious && !literal.parse().is_ok_and(f64::is_finite) {
            let flaw = (self.tape.nodes.len() as u32, "a number beyond what a double can hold");
            self.tape.flaw.get_or_insert(flaw);
        }
        self.push(Kind::Number, false, start);
        Ok(())
    }

    /// One digit or more: the first, and how many.
    fn digits(&mut self) -> Result<(u8, usize), Fault> {
        let rest = &self.bytes()[self.at..];
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let first = *rest.first().filter(|_| count > 0).ok_or(NOT_JSON)?;
        self.at += count;
        Ok((first, count))
    }
}

/// How many bytes at the start of a string's inside are what they say: no quote, backslash or control. Eight at a time:
/// each test leaves the top bit of the first byte that meets it, and of none before.
#[inline]
fn plain_len(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const TOPS: u64 = ONES << 7;
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word;
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let quote = below(word ^ (ONES * u64::from(b'"')), 1);
        let backslash = below(word ^ (ONES * u64::from(b'\\')), 1);
        let met = (quote | backslash | below(word, 0x20)) & TOPS;
        if met != 0 {
            return at * 8 + met.trailing_zeros() as usize / 8;
        }
    }
    let plain = |byte: &&u8| !matches!(**byte, b'"' | b'\\' | ..0x20);
    words.len() * 8 + rest.iter().take_while(plain).count()
}
