//! As much CBOR as authenticators speak (CTAP2 canonical form): definite lengths, numbers, byte and text strings, maps.
//!
//! What comes in was written by a stranger. Nothing is allocated by a length that is only claimed, nesting has an end, and
//! what is not in the form that authenticators must use is refused.

/// How deep maps and arrays may be in one another.
const DEEPEST: u8 = 8;

/// One value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item<'a> {
    Integer(i64),
    Bytes(&'a [u8]),
    Text(&'a str),
    Array(Vec<Item<'a>>),
    Map(Vec<(Item<'a>, Item<'a>)>),
    Bool(bool),
    Null,
}

impl<'a> Item<'a> {
    /// The first value of some bytes, and what comes after it.
    pub(super) fn first(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        item(bytes, DEEPEST)
    }

    /// A member of a map, by a number as COSE keys have them.
    pub(super) fn at(&self, wanted: i64) -> Option<&Item<'a>> {
        self.find(|key| *key == Item::Integer(wanted))
    }

    /// A member of a map, by name.
    pub(super) fn named(&self, wanted: &str) -> Option<&Item<'a>> {
        self.find(|key| *key == Item::Text(wanted))
    }

    pub(super) fn integer(&self) -> Option<i64> {
        match self {
            Item::Integer(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn bytes(&self) -> Option<&'a [u8]> {
        match self {
            Item::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    fn find(&self, is: impl Fn(&Item<'a>) -> bool) -> Option<&Item<'a>> {
        match self {
            Item::Map(members) => members.iter().find(|(key, _)| is(key)).map(|(_, value)| value),
            _ => None,
        }
    }
}

fn item(bytes: &[u8], depth: u8) -> Option<(Item<'_>, &[u8])> {
    let (kind, number, rest) = head(bytes)?;
    let depth = depth.checked_sub(1)?;
    Some(match kind {
        0 => (Item::Integer(i64::try_from(number).ok()?), rest),
        1 => (Item::Integer(-1 - i64::try_from(number).ok()?), rest),
        2 | 3 => {
            let length = usize::try_from(number).ok()?;
            let (content, rest) = rest.split_at_checked(length)?;
            let content =
                if kind == 2 { Item::Bytes(content) } else { Item::Text(std::str::from_utf8(content).ok()?) };
            (content, rest)
        }
        4 => {
            let (mut items, mut rest) = (Vec::new(), rest);
            for _ in 0..number {
                let (next, after) = item(rest, depth)?;
                items.push(next);
                rest = after;
            }
            (Item::Array(items), rest)
        }
        5 => {
            let (mut members, mut rest) = (Vec::new(), rest);
            for _ in 0..number {
                let (key, after) = item(rest, depth)?;
                let (value, after) = item(after, depth)?;
                // Of two values under one key, two readers would take two different ones.
                if members.iter().any(|(known, _)| *known == key) {
                    return None;
                }
                members.push((key, value));
                rest = after;
            }
            (Item::Map(members), rest)
        }
        7 => match number {
            20 => (Item::Bool(false), rest),
            21 => (Item::Bool(true), rest),
            22 => (Item::Null, rest),
            _ => return None,
        },
        _ => return None,
    })
}

/// The kind of a value, its number or length, and what comes after that. Numbers are written as short as they can be.
fn head(bytes: &[u8]) -> Option<(u8, u64, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let (kind, short) = (first >> 5, first & 0x1f);
    let width = match short {
        0..24 => return Some((kind, u64::from(short), rest)),
        24..28 => 1usize << (short - 24),
        _ => return None,
    };
    let (digits, rest) = rest.split_at_checked(width)?;
    let number = digits.iter().fold(0u64, |number, digit| number << 8 | u64::from(*digit));
    let least = match width {
        1 => 24,
        2 => 1 << 8,
        4 => 1 << 16,
        _ => 1 << 32,
    };
    (kind != 7 && number >= least).then_some((kind, number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_authenticators_write_is_read() {
        let (map, rest) = Item::first(b"\xa3\x01\x02\x20\x43abc\x61k\xf5tail").unwrap();
        assert_eq!((map.at(1).and_then(Item::integer), rest), (Some(2), &b"tail"[..]));
        assert_eq!(map.at(-1).and_then(Item::bytes), Some(&b"abc"[..]));
        assert_eq!((map.named("k"), map.named("x")), (Some(&Item::Bool(true)), None));
        assert_eq!(Item::first(b"\x39\x01\x00").unwrap().0, Item::Integer(-257));
        assert_eq!(Item::first(b"\x82\x00\xf6").unwrap().0, Item::Array(vec![Item::Integer(0), Item::Null]));
    }

    #[test]
    fn what_is_not_in_their_form_is_not() {
        let hostile: [&[u8]; 14] = [
            b"",
            b"\x18\x01",                             // longer than need be
            b"\x19\x00\xff",                         // likewise
            b"\x5f\x41a\xff",                        // no definite length
            b"\x9f\xff",                             // likewise
            b"\x5b\xff\xff\xff\xff\xff\xff\xff\xff", // a length that nothing has
            b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff", // likewise
            b"\xbb\xff\xff\xff\xff\xff\xff\xff\xff", // likewise
            b"\x1b\xff\xff\xff\xff\xff\xff\xff\xff", // a number that does not fit
            b"\x62\xff\xfe",                         // text that is none
            b"\xa2\x01\x02\x01\x03",                 // one key twice
            b"\xc0\x00",                             // a tag
            b"\xf9\x00\x00",                         // a fraction
            b"\xa1\x01",                             // half a member
        ];
        for bytes in hostile {
            assert_eq!(Item::first(bytes), None, "{bytes:x?}");
        }
        assert_eq!(Item::first(&[0x81; 1 << 16]), None, "arrays in arrays");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Item::first(&bytes);
        }
    }
}
