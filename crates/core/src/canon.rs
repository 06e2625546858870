//! Strict JSON in, canonical JSON out (GOV-701).
//!
//! RFC 8785 (JCS) says how to write a JSON value so that equal values have equal bytes. It does not say what
//! to do with input that two readers may read differently: a repeated key, an integer no double can hold, a
//! tree too deep to walk. [`parse`] refuses those, with the RFC 6901 pointer of the place, so that whatever it
//! returns means the same to every reader; [`to_jcs`] then gives it its one spelling.
//!
//! No Unicode normalisation happens anywhere: NFC and NFD are different documents.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::Serialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The largest magnitude at which every integer is a double of its own. Beyond it JCS maps neighbours to one
/// text (…993 and …992), so beyond it nothing is accepted.
pub const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// How large a document may be.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Length of the text in bytes.
    pub bytes: usize,
    /// Nesting of arrays and objects. At most 127: the reader below stops there.
    pub depth: usize,
    /// Number of values, containers included.
    pub nodes: usize,
}

impl Limits {
    /// The limits for a call's arguments (GOV-701); the byte limit is the tool's own.
    pub const fn arguments(bytes: usize) -> Self {
        Self { bytes, depth: 64, nodes: 10_000 }
    }

    /// The limits for an upstream's result (gauntlet §5); the byte limit is the tool's own.
    pub const fn result(bytes: usize) -> Self {
        Self { bytes, depth: 127, nodes: 500_000 }
    }
}

/// Why a document was refused, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}{}", At(pointer))]
pub struct CanonError {
    /// RFC 6901 pointer to the offending value; empty at the root and for errors of the text as a whole.
    pub pointer: String,
    /// What is wrong. Carries no text of the document.
    pub reason: CanonReason,
}

/// What can be wrong with a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CanonReason {
    /// Not JSON.
    #[error("not valid JSON at line {line} column {column}")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// Two members with one name.
    #[error("duplicate key")]
    DuplicateKey,
    /// A number that a double cannot hold exactly or at all.
    #[error("number beyond ±(2^53-1)")]
    NumberRange,
    /// Nested too deeply.
    #[error("nested deeper than {0}")]
    TooDeep(usize),
    /// Too many values.
    #[error("more than {0} values")]
    TooManyNodes(usize),
    /// Too long.
    #[error("longer than {0} bytes")]
    TooLong(usize),
}

struct At<'a>(&'a str);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " at {}", self.0) }
    }
}

/// Reads one JSON document within `limits`, refusing everything two readers could read differently.
///
/// ```
/// use portcullis_core::canon::{parse, to_jcs, Limits};
/// let value = parse(br#"{"b": 1.0, "a": "x"}"#, Limits::arguments(1024)).unwrap();
/// assert_eq!(to_jcs(&value).unwrap(), br#"{"a":"x","b":1}"#);
/// let error = parse(br#"{"a": [{"k": 1, "k": 2}]}"#, Limits::arguments(1024)).unwrap_err();
/// assert_eq!(error.to_string(), "duplicate key at /a/0/k");
/// ```
pub fn parse(text: &[u8], limits: Limits) -> Result<Value, CanonError> {
    if text.len() > limits.bytes {
        return Err(CanonError { pointer: String::new(), reason: CanonReason::TooLong(limits.bytes) });
    }
    let guard = Guard {
        max_depth: limits.depth.min(127),
        max_nodes: limits.nodes,
        nodes: Cell::new(0),
        fault: RefCell::new(None),
    };
    let mut reader = serde_json::Deserializer::from_slice(text);
    let read = Node { guard: &guard, depth: 0 }.deserialize(&mut reader).and_then(|value| {
        reader.end()?;
        Ok(value)
    });
    read.map_err(|error| guard.explain(&error))
}

/// The RFC 8785 bytes of `value`.
///
/// Fails only for what JSON cannot say (NaN, infinities, keys that are not strings).
pub fn to_jcs<T: Serialize>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    serde_json_canonicalizer::to_vec(value)
}

/// Appends one segment to an RFC 6901 pointer.
pub fn push_segment(pointer: &mut String, segment: &str) {
    pointer.push('/');
    for c in segment.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            c => pointer.push(c),
        }
    }
}

struct Guard {
    max_depth: usize,
    max_nodes: usize,
    nodes: Cell<usize>,
    // The reason, and the path from the fault outwards, filled in while the error unwinds: a document that
    // is fine pays nothing for its pointers.
    fault: RefCell<Option<(CanonReason, Vec<String>)>>,
}

impl Guard {
    fn refuse<E: serde::de::Error>(&self, reason: CanonReason) -> E {
        *self.fault.borrow_mut() = Some((reason, Vec::new()));
        E::custom("refused")
    }

    fn inside<E>(&self, segment: impl FnOnce() -> String, error: E) -> E {
        if let Some((_, path)) = &mut *self.fault.borrow_mut() {
            path.push(segment());
        }
        error
    }

    fn explain(&self, error: &serde_json::Error) -> CanonError {
        match self.fault.take() {
            Some((reason, path)) => {
                let mut pointer = String::new();
                for segment in path.iter().rev() {
                    push_segment(&mut pointer, segment);
                }
                CanonError { pointer, reason }
            }
            None => CanonError {
                pointer: String::new(),
                reason: if error.to_string().starts_with("number out of range") {
                    CanonReason::NumberRange
                } else {
                    CanonReason::Syntax { line: error.line(), column: error.column() }
                },
            },
        }
    }
}

#[derive(Clone, Copy)]
struct Node<'g> {
    guard: &'g Guard,
    depth: usize,
}

impl<'g> Node<'g> {
    fn enter<E: serde::de::Error>(self) -> Result<Node<'g>, E> {
        if self.depth == self.guard.max_depth {
            return Err(self.guard.refuse(CanonReason::TooDeep(self.guard.max_depth)));
        }
        Ok(Node { guard: self.guard, depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let nodes = self.guard.nodes.get() + 1;
        if nodes > self.guard.max_nodes {
            return Err(self.guard.refuse(CanonReason::TooManyNodes(self.guard.max_nodes)));
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
        Ok(Value::Bool(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        if value > MAX_SAFE_INTEGER {
            return Err(self.guard.refuse(CanonReason::NumberRange));
        }
        Ok(value.into())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        if value.unsigned_abs() > MAX_SAFE_INTEGER {
            return Err(self.guard.refuse(CanonReason::NumberRange));
        }
        Ok(value.into())
    }

    // Every double beyond 2^53 is an integer, whether it was written 1e30 or with thirty digits.
    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        if !value.is_finite() || value.abs() > MAX_SAFE_INTEGER as f64 {
            return Err(self.guard.refuse(CanonReason::NumberRange));
        }
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let child = self.enter()?;
        let mut items = Vec::new();
        loop {
            match seq.next_element_seed(child) {
                Ok(Some(item)) => items.push(item),
                Ok(None) => return Ok(Value::Array(items)),
                Err(error) => return Err(self.guard.inside(|| items.len().to_string(), error)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let child = self.enter()?;
        let mut members = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if members.contains_key(&key) {
                let error = self.guard.refuse(CanonReason::DuplicateKey);
                return Err(self.guard.inside(|| key, error));
            }
            match map.next_value_seed(child) {
                Ok(value) => members.insert(key, value),
                Err(error) => return Err(self.guard.inside(|| key, error)),
            };
        }
        Ok(Value::Object(members))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, _: D) -> Result<Value, D::Error> {
        Err(D::Error::custom("not JSON"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { bytes: 100_000, depth: 64, nodes: 10_000 };

    fn refused(text: &str) -> (String, CanonReason) {
        let error = parse(text.as_bytes(), LIMITS).expect_err(text);
        (error.pointer, error.reason)
    }

    #[test]
    fn ambiguous_documents_are_refused_with_their_pointer() {
        // GOV-701, T-CAN-1
        use CanonReason::*;
        assert_eq!(refused(r#"{"a":1,"a":2}"#), ("/a".into(), DuplicateKey));
        assert_eq!(refused(r#"{"x":{"a":1,"\u0061":2}}"#), ("/x/a".into(), DuplicateKey));
        assert_eq!(refused(r#"[0,{"a/b~c":9007199254740992}]"#), ("/1/a~1b~0c".into(), NumberRange));
        assert_eq!(refused("-9007199254740992").1, NumberRange);
        assert_eq!(refused("36893488147419103232").1, NumberRange);
        assert_eq!(refused("1e30").1, NumberRange);
        assert_eq!(refused("1e400").1, NumberRange);
        assert!(matches!(refused(r#""\ud800""#).1, Syntax { .. }));
        assert!(matches!(refused("{} {}").1, Syntax { .. }));
        assert!(matches!(refused("").1, Syntax { .. }));
        assert!(matches!(refused("NaN").1, Syntax { .. }));
    }

    #[test]
    fn depth_nodes_and_length_are_limited() {
        let nested = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(parse(nested(64).as_bytes(), LIMITS).is_ok());
        assert_eq!(refused(&nested(65)).1, CanonReason::TooDeep(64));
        assert_eq!(refused(&nested(40_000)).1, CanonReason::TooDeep(64));
        let wide = |n: usize| format!("[{}]", vec!["1"; n].join(","));
        assert!(parse(wide(9_999).as_bytes(), LIMITS).is_ok());
        assert_eq!(refused(&wide(10_000)).1, CanonReason::TooManyNodes(10_000));
        assert_eq!(refused(&" ".repeat(100_001)).1, CanonReason::TooLong(100_000));
    }

    #[test]
    fn equal_values_have_one_spelling_and_different_values_do_not_share_it() {
        // T-CAN-1: 1.0 and 1 equal, NFC and NFD differ, key order does not matter.
        let jcs = |text: &str| {
            String::from_utf8(to_jcs(&parse(text.as_bytes(), LIMITS).unwrap()).unwrap()).unwrap()
        };
        assert_eq!(jcs("1.0"), jcs("1"));
        assert_eq!(jcs("-0"), jcs("0"));
        assert_ne!(jcs("\"\u{e9}\""), jcs("\"e\u{301}\""));
        assert_eq!(jcs(r#"{"b":1, "a":2}"#), jcs(r#"{"a":2,"b":1}"#));
        // RFC 8785 sorts by UTF-16 code units: U+1F600 (D83D…) before U+FB33.
        assert_eq!(jcs("{\"\u{fb33}\":1,\"\u{1f600}\":2}"), "{\"\u{1f600}\":2,\"\u{fb33}\":1}");
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-(MAX_SAFE_INTEGER as i64)..=MAX_SAFE_INTEGER as i64).prop_map(Value::from),
            (-1e15f64..1e15).prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(".{0,6}", inner, 0..6)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn canonical_bytes_are_a_fixed_point(value in any_json()) {
            let once = to_jcs(&value).unwrap();
            let again = to_jcs(&parse(&once, LIMITS).unwrap()).unwrap();
            prop_assert_eq!(once, again);
        }

        #[test]
        fn no_bytes_panic_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes, LIMITS);
        }

        #[test]
        fn what_is_accepted_means_the_same_to_the_plain_reader(value in any_json()) {
            let text = serde_json::to_vec(&value).unwrap();
            let strict = parse(&text, LIMITS).unwrap();
            let plain: Value = serde_json::from_slice(&text).unwrap();
            prop_assert_eq!(strict, plain);
        }
    }
}
