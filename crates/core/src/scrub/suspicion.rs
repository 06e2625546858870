//! Which shapes of secrets a text can hold at all, seen without trying a pattern.
//!
//! Patterns are exact and slow; what they need of a text is simple and found fast. Every shape has something that each match
//! of it contains: a mark, a word before a `:` or `=`, the first letters of a token. A text without it is not searched for
//! that shape. A suspicion may be wrong; that a text is above suspicion may not.

use memchr::memmem::Finder;
use memchr::{memchr_iter, memchr2, memchr2_iter, memchr3, memmem};
use std::sync::LazyLock;

use super::{SECRET_HEADERS, SECRET_KEYS};

/// What a text may hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Suspicion {
    /// A private key.
    pub(super) pem: bool,
    /// A header with a secret.
    pub(super) header: bool,
    /// `bearer` and what follows it.
    pub(super) bearer: bool,
    /// A name and its value.
    pub(super) key: bool,
    /// A code in an address.
    pub(super) code: bool,
    /// Somebody in an address.
    pub(super) userinfo: bool,
    /// A token by itself.
    pub(super) token: bool,
}

impl Suspicion {
    /// Of everything.
    const ALL: Self =
        Self { pem: true, header: true, bearer: true, key: true, code: true, userinfo: true, token: true };

    /// Of a text.
    pub(super) fn of(text: &str) -> Self {
        let bytes = text.as_bytes();
        if folds_to_ascii(bytes) {
            return Self::ALL;
        }
        let mut found = Self { bearer: has_bearer(bytes), token: is_lettered(bytes), ..Self::default() };
        if memchr3(b':', b'=', b'@', bytes).is_some() {
            found.look_at_names(text);
            found.userinfo = has_userinfo(bytes);
        }
        // All other tokens and private keys have one of these.
        if memchr2(b'-', b'_', bytes).is_some() {
            found.token = found.token || is_dashed(bytes);
            found.pem = BEGIN.find(bytes).is_some();
        }
        found
    }

    /// Whether it is of anything.
    pub(super) fn is_any(self) -> bool {
        self != Self::default()
    }

    /// What stands before each `:` and `=`: a name, perhaps in quotes, perhaps with space behind.
    fn look_at_names(&mut self, text: &str) {
        let bytes = text.as_bytes();
        for at in memchr2_iter(b':', b'=', bytes) {
            let before = spaceless(text, at);
            self.code |= bytes[at] == b'=' && is_code(&bytes[..at]);
            let name = match before {
                [quoted @ .., b'"' | b'\''] => {
                    let slashes = quoted.iter().rev().take_while(|byte| **byte == b'\\').count();
                    &quoted[..quoted.len() - slashes]
                }
                bare => bare,
            };
            if !ends_like_a_name(name) {
                continue;
            }
            let is_one = |names: &[&str]| names.iter().any(|one| ends_with(name, one.as_bytes()));
            self.key = self.key || is_one(&SECRET_KEYS);
            self.header = self.header || is_one(&SECRET_HEADERS);
        }
    }
}

/// How the first line of a private key begins.
static BEGIN: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("-----BEGIN "));

/// The pairs of letters that names of secrets end in: for each last one, those before it.
static ENDS: LazyLock<[u32; 26]> = LazyLock::new(|| {
    let mut ends = [0; 26];
    for name in SECRET_KEYS.iter().chain(&SECRET_HEADERS) {
        if let [.., before, last] = name.as_bytes() {
            ends[usize::from(last - b'a')] |= 1 << (before - b'a');
        }
    }
    ends
});

/// Whether a word ends as one of the names does: nearly none does.
fn ends_like_a_name(word: &[u8]) -> bool {
    let [.., before, last] = word else { return false };
    let [before, last] = [before, last].map(|letter| letter.to_ascii_lowercase().wrapping_sub(b'a'));
    before < 26 && last < 26 && ENDS[usize::from(last)] & (1 << before) != 0
}

/// What stands before a place, without the space at its end.
fn spaceless(text: &str, at: usize) -> &[u8] {
    let before = &text.as_bytes()[..at];
    match before {
        // Nearly always nothing is between.
        [.., last] if last.is_ascii_graphic() => before,
        _ => text[..at].trim_end().as_bytes(),
    }
}

fn ends_with(text: &[u8], name: &[u8]) -> bool {
    text.len() >= name.len() && text[text.len() - name.len()..].eq_ignore_ascii_case(name)
}

fn is_code(before: &[u8]) -> bool {
    matches!(before, [.., b'?' | b'&', _, _, _, _]) && ends_with(before, b"code")
}

/// Whether there are letters that patterns take for others, however they are written: the long s and the sign for kelvin.
fn folds_to_ascii(bytes: &[u8]) -> bool {
    !bytes.is_ascii()
        && (memmem::find(bytes, "\u{17f}".as_bytes()).is_some()
            || memmem::find(bytes, "\u{212a}".as_bytes()).is_some())
}

/// Whether somebody stands in an address: `@` behind `://`.
fn has_userinfo(bytes: &[u8]) -> bool {
    let last = memchr::memrchr(b'@', bytes);
    last.is_some_and(|last| memmem::find(&bytes[..last], b"://").is_some())
}

/// Whether there is `bearer`, however it is written.
fn has_bearer(bytes: &[u8]) -> bool {
    let Some(places) = bytes.len().checked_sub(5) else { return false };
    // Three letters of it at once, without a branch for each place, which compilers make wide instructions of.
    let (first, third, sixth) = (&bytes[..places], &bytes[2..places + 2], &bytes[5..]);
    let is = |byte: u8, letter: u8| byte | 0x20 == letter;
    let mut maybe = false;
    for ((first, third), sixth) in first.iter().zip(third).zip(sixth) {
        maybe |= is(*first, b'b') & is(*third, b'a') & is(*sixth, b'r');
    }
    maybe && bytes.windows(6).any(|word| word.eq_ignore_ascii_case(b"bearer"))
}

/// Whether there is the beginning of a token that is all letters. Their rarest letters are looked for.
fn is_lettered(bytes: &[u8]) -> bool {
    memchr2_iter(b'A', b'J', bytes).any(|at| {
        let (before, from) = (&bytes[..at], &bytes[at..]);
        [&b"AKIA"[..], b"ASIA", b"AIza", b"AAAA"].iter().any(|begin| from.starts_with(begin))
            || (bytes[at] == b'J' && before.ends_with(b"ey"))
    })
}

/// Whether there is the beginning of a token with a dash or a bar in it: what stands up to that is looked at.
fn is_dashed(bytes: &[u8]) -> bool {
    memchr2_iter(b'-', b'_', bytes).any(|at| {
        matches!(
            &bytes[..=at],
            [.., b's', b'k', b'-']
                | [.., b'g', b'h', b'p' | b'o' | b'u' | b's' | b'r', b'_']
                | [.., b'h', b'u', b'b', b'_', b'p', b'a', b't', b'_']
                | [.., b'g', b'l', b'p', b'a', b't', b'-']
                | [.., b'x', b'o', b'x', _, b'-']
                | [.., b'n', b'p', b'm', b'_']
                | [.., b'h', b'f', b'_']
                | [.., b'p', b'y', b'p', b'i', b'-']
                | [.., b'p', b'c', b'k' | b'l' | b'o', b'_']
        )
    })
}

/// Whether something may be percent-encoded.
pub(super) fn is_encoded(text: &str) -> bool {
    memchr_iter(b'%', text.as_bytes()).any(|at| {
        let digits = text.as_bytes().get(at + 1..at + 3);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_may_hold_a_secret_is_suspected_of_it() {
        // ADM-61, ADM-83
        for text in [
            "",
            "the answer is forty-two",
            "a_b-c \"d\" (e) x/y/z",
            "Zürich, 50 tokens; 3 passwords",
            "status_code=404 session_id: s1, total_tokens = 5",
            "a bear, a bearing; mail a@b.example, see http://h/x",
            "code=7; promo?codes=1",
        ] {
            assert!(!Suspicion::of(text).is_any(), "{text}: {:?}", Suspicion::of(text));
        }
        let of = |text: &str, what: fn(Suspicion) -> bool| {
            let found = Suspicion::of(text);
            assert!(what(found), "{text}: {found:?}");
        };
        of("-----BEGIN PRIVATE KEY-----", |found| found.pem);
        of("Set-Cookie\u{a0}\u{2003}: x", |found| found.header);
        of(r#"{\\"AUTHORIZATION\\" : 1"#, |found| found.header);
        of("a BeArEr x", |found| found.bearer);
        of("'pwd' = x", |found| found.key);
        of("pa\u{17f}\u{17f}word=x", |found| found.key);
        of("x?CODE=1", |found| found.code);
        of("a@b postgres://u:p@h", |found| found.userinfo);
        for text in ["xoxb-123456", "a github_pat_11AAAAAA", "sk-abcdef", "AKIAIOSFODNN7EXAMPLE", "eyJx.y"] {
            of(text, |found| found.token);
        }
    }

    #[test]
    fn what_is_encoded_is_seen_by_its_digits() {
        assert!(is_encoded("a%3Db") && is_encoded("%%41"));
        assert!(!is_encoded("50 % of it") && !is_encoded("100%") && !is_encoded("%4") && !is_encoded(""));
    }
}
