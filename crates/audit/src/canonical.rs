//! Canonical bytes, the short way where there is one.
//!
//! `data` is made canonical once per record, and the general canonicaliser in `core` pays for its generality
//! with a handful of allocations per member. But what plain serialisation gives is nearly always canonical
//! already: members declared or sorted in order, small integers, ASCII names. So it is tried first and
//! *checked*, by a scan that says yes only when it is sure; everything else goes the long way. The scan decides
//! nothing about what canonical means: the property test holds it to `core`.

use portcullis_core::canon::to_jcs;
use serde::Serialize;

/// Deeper documents go the long way.
const MAX_DEPTH: usize = 16;
/// Every integer of this many digits is a double of its own.
const MAX_DIGITS: usize = 15;

/// The RFC 8785 bytes of `value`. A number that is none (NaN, infinity) becomes `null` or an error; nobody
/// should rely on which.
pub(crate) fn bytes_of<T: Serialize>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    let plain = serde_json::to_vec(value)?;
    if is_canonical(&plain) { Ok(plain) } else { to_jcs(value) }
}

/// Whether `bytes`, which a JSON serialiser wrote, are surely canonical.
pub(crate) fn is_canonical(bytes: &[u8]) -> bool {
    Scan::over(bytes).finds_one_value()
}

/// Whether `bytes`, which anybody may have written, are surely canonical.
pub(crate) fn is_surely_canonical(bytes: &[u8]) -> bool {
    Scan::over_plain(bytes).is_some_and(Scan::finds_one_value)
}

/// Steps over canonical JSON. Order, numbers and words are held to what they must be; of what stands in strings only
/// where they end is looked at, which is enough for text that a serialiser wrote, and for [plain](Scan::over_plain) text.
pub(crate) struct Scan<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Scan<'t> {
    /// Over text that a JSON serialiser wrote: it escapes exactly what RFC 8785 wants escaped, and as it wants.
    fn over(text: &'t [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Over text of any origin, if it has nothing that could be spelled in two ways: no escape, no control character,
    /// no broken UTF-8.
    pub(crate) fn over_plain(text: &'t [u8]) -> Option<Self> {
        // Without a way out in the middle this is done for many bytes at once.
        let (odd, wide) = text.iter().fold((false, false), |(odd, wide), &byte| {
            (odd | (byte < b' ') | (byte == b'\\'), wide | (byte >= 0x80))
        });
        let plain = !odd && (!wide || std::str::from_utf8(text).is_ok());
        plain.then_some(Self { text, at: 0 })
    }

    fn finds_one_value(mut self) -> bool {
        self.value().is_some() && self.is_at_end()
    }

    /// Whether everything was stepped over.
    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.text.len()
    }

    /// Steps over a value and returns its bytes. `None`, here and below: not surely canonical.
    pub(crate) fn value(&mut self) -> Option<&'t [u8]> {
        let start = self.at;
        self.any(0)?;
        self.text.get(start..self.at)
    }

    /// Steps over exactly these bytes.
    pub(crate) fn literal(&mut self, bytes: &[u8]) -> Option<()> {
        self.text.get(self.at..)?.starts_with(bytes).then(|| self.at += bytes.len())
    }

    fn any(&mut self, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        match *self.text.get(self.at)? {
            b'{' => self.members(depth),
            b'[' => self.items(depth),
            b'"' => self.string().map(drop),
            b't' => self.literal(b"true"),
            b'n' => self.literal(b"null"),
            b'f' => self.literal(b"false"),
            _ => self.integer(),
        }
    }

    fn members(&mut self, depth: usize) -> Option<()> {
        self.expect(b'{')?;
        if self.skip_if(b'}') {
            return Some(());
        }
        let mut last: Option<&[u8]> = None;
        loop {
            let name = self.string()?;
            // Beyond ASCII the order of bytes is not the order of UTF-16 units, and an escape hides its character.
            let plain = name.iter().all(|&b| b.is_ascii() && b != b'\\');
            if !plain || last.is_some_and(|last| last >= name) {
                return None;
            }
            last = Some(name);
            self.expect(b':')?;
            self.any(depth + 1)?;
            if !self.skip_if(b',') {
                return self.expect(b'}');
            }
        }
    }

    fn items(&mut self, depth: usize) -> Option<()> {
        self.expect(b'[')?;
        if self.skip_if(b']') {
            return Some(());
        }
        loop {
            self.any(depth + 1)?;
            if !self.skip_if(b',') {
                return self.expect(b']');
            }
        }
    }

    /// Steps over a string and returns its inside.
    pub(crate) fn string(&mut self) -> Option<&'t [u8]> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            self.at += memchr::memchr2(b'"', b'\\', self.text.get(self.at..)?)?;
            if self.text[self.at] == b'"' {
                break;
            }
            self.at += 2;
        }
        self.at += 1;
        self.text.get(start..self.at - 1)
    }

    fn integer(&mut self) -> Option<()> {
        let negative = self.skip_if(b'-');
        let value = self.unsigned()?;
        (!negative || value > 0).then_some(())
    }

    /// Steps over an integer without a sign that is short enough to be spelled alike by everybody; one with a fraction or
    /// an exponent is not.
    pub(crate) fn unsigned(&mut self) -> Option<u64> {
        let rest = self.text.get(self.at..)?;
        let digits = rest.iter().take(MAX_DIGITS + 1).take_while(|b| b.is_ascii_digit()).count();
        let ends = !matches!(rest.get(digits), Some(b'.' | b'e' | b'E'));
        if !(1..=MAX_DIGITS).contains(&digits) || !ends || (rest[0] == b'0' && digits > 1) {
            return None;
        }
        self.at += digits;
        Some(rest[..digits].iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
    }

    /// Steps over this byte if it is there.
    pub(crate) fn skip_if(&mut self, byte: u8) -> bool {
        let there = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(there);
        there
    }

    /// Steps over this byte.
    pub(crate) fn expect(&mut self, byte: u8) -> Option<()> {
        self.skip_if(byte).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::canon::{Limits, parse};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    #[test]
    fn the_short_way_is_taken_for_ordinary_data_and_not_where_spellings_differ() {
        assert!(is_canonical(r#"{"a":1,"b":[true,null,"x\n\u0001é"],"c":{}}"#.as_bytes()));
        for long_way in [
            r#"{"b":1,"a":2}"#,
            r#"{"a":1,"a":2}"#,
            "1.0",
            "1e3",
            "12345678901234567890",
            r#"{"é":1}"#,
            r#"{"a\n":1}"#,
            r#"{"a":1.5}"#,
            "-0",
            "01",
            "nulk",
            "tru",
            "[1,]",
        ] {
            assert!(!is_canonical(long_way.as_bytes()), "{long_way}");
        }
    }

    #[derive(Serialize)]
    struct OutOfOrder {
        b: f64,
        a: u64,
    }

    #[test]
    fn members_declared_out_of_order_are_sorted() {
        assert_eq!(bytes_of(&OutOfOrder { b: 1.0, a: 2 }).unwrap(), br#"{"a":2,"b":1}"#);
        assert_eq!(bytes_of(&json!(1e21)).unwrap(), b"1e+21");
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<i16>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 60, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map("[a-c\"\\\\é\u{fb33}\u{1f600}]{0,2}", inner, 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn both_ways_lead_to_the_same_bytes(value in any_value()) {
            prop_assert_eq!(bytes_of(&value).unwrap(), to_jcs(&value).unwrap());
        }

        #[test]
        fn no_text_panics_the_scan(text in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = is_canonical(&text);
        }

        #[test]
        fn what_a_stranger_wrote_passes_only_if_it_is_json_and_canonical(
            value in any_value(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
        ) {
            // AUD-50: one byte of something honest is changed.
            let mut text = to_jcs(&value).unwrap();
            let at = at.index(text.len());
            text[at] = byte;
            if is_surely_canonical(&text) {
                let limits = Limits { bytes: text.len(), depth: 127, nodes: text.len() };
                prop_assert_eq!(to_jcs(&parse(&text, limits).unwrap()).unwrap(), text);
            }
        }
    }
}
