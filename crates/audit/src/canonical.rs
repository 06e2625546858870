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
    (Scan { text: bytes, at: 0 }).finds_canonical()
}

/// Reads text that a JSON serialiser wrote, so it looks for order and numbers, not for syntax.
struct Scan<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Scan<'t> {
    fn finds_canonical(mut self) -> bool {
        self.value(0).is_some() && self.at == self.text.len()
    }

    /// `None`: not surely canonical.
    fn value(&mut self, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        match *self.text.get(self.at)? {
            b'{' => self.members(depth),
            b'[' => self.items(depth),
            b'"' => self.string().map(drop),
            b't' | b'n' => self.skip(4),
            b'f' => self.skip(5),
            _ => self.integer(),
        }
    }

    fn members(&mut self, depth: usize) -> Option<()> {
        self.skip(1)?;
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
            self.value(depth + 1)?;
            if !self.skip_if(b',') {
                return self.expect(b'}');
            }
        }
    }

    fn items(&mut self, depth: usize) -> Option<()> {
        self.skip(1)?;
        if self.skip_if(b']') {
            return Some(());
        }
        loop {
            self.value(depth + 1)?;
            if !self.skip_if(b',') {
                return self.expect(b']');
            }
        }
    }

    /// The inside of a string. Plain serialisation escapes exactly what RFC 8785 wants escaped, and as it wants.
    fn string(&mut self) -> Option<&'t [u8]> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            match *self.text.get(self.at)? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        self.text.get(start..self.at - 1)
    }

    /// An integer short enough to be spelled alike by everybody; a fraction or an exponent is not.
    fn integer(&mut self) -> Option<()> {
        let _ = self.skip_if(b'-');
        let digits = self.text[self.at..].iter().take_while(|b| b.is_ascii_digit()).count();
        self.at += digits;
        let ends = !matches!(self.text.get(self.at), Some(b'.' | b'e' | b'E'));
        ((1..=MAX_DIGITS).contains(&digits) && ends).then_some(())
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.at += bytes;
        Some(())
    }

    fn skip_if(&mut self, byte: u8) -> bool {
        let there = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.skip_if(byte).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
            let _ = (Scan { text: &text, at: 0 }).finds_canonical();
        }
    }
}
