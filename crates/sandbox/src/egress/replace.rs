//! Replacing texts by others in what goes by, also where a text is cut in two by the way it comes.

use aho_corasick::{AhoCorasick, MatchKind};
use bytes::Bytes;

/// Texts and what takes their place.
pub(super) struct Replacement {
    automaton: AhoCorasick,
    by: Vec<Vec<u8>>,
    /// The longest text.
    longest: usize,
}

impl Replacement {
    /// None if there is nothing to replace.
    pub(super) fn of(pairs: Vec<(Vec<u8>, Vec<u8>)>) -> Option<Self> {
        let (texts, by): (Vec<_>, Vec<_>) = pairs.into_iter().filter(|(text, _)| !text.is_empty()).unzip();
        let longest = texts.iter().map(Vec::len).max()?;
        let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&texts).ok()?;
        Some(Self { automaton, by, longest })
    }

    pub(super) fn whole(&self, text: &[u8]) -> Option<Vec<u8>> {
        self.automaton.is_match(text).then(|| self.automaton.replace_all_bytes(text, &self.by))
    }
}

/// The same for something that comes in pieces.
pub(super) struct Passing {
    replacement: Replacement,
    held: Vec<u8>,
}

impl Passing {
    pub(super) fn new(replacement: Replacement) -> Self {
        Self { replacement, held: Vec::new() }
    }

    /// What may go on after this piece; the last bytes are held until it is clear what they begin.
    pub(super) fn push(&mut self, piece: &[u8]) -> Bytes {
        self.held.extend_from_slice(piece);
        let Replacement { automaton, by, longest } = &self.replacement;
        let (mut out, mut done) = (Vec::with_capacity(self.held.len()), 0);
        for found in automaton.find_iter(&self.held) {
            out.extend_from_slice(&self.held[done..found.start()]);
            out.extend_from_slice(&by[found.pattern().as_usize()]);
            done = found.end();
        }
        let certain = self.held.len().saturating_sub(longest - 1).max(done);
        out.extend_from_slice(&self.held[done..certain]);
        self.held.drain(..certain);
        out.into()
    }

    /// What was still held.
    pub(super) fn end(&mut self) -> Bytes {
        std::mem::take(&mut self.held).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_replaced_however_they_are_cut() {
        let said = b"xxsecretxxsecresecret-and-longersecre";
        for size in 1..=said.len() {
            let pairs =
                vec![(b"secret".to_vec(), b"P".to_vec()), (b"secret-and-longer".to_vec(), b"Q".to_vec())];
            let mut passing = Passing::new(Replacement::of(pairs).unwrap());
            let mut out = Vec::new();
            for piece in said.chunks(size) {
                out.extend_from_slice(&passing.push(piece));
            }
            out.extend_from_slice(&passing.end());
            let out = String::from_utf8(out).unwrap();
            assert!(!out.contains("secret"), "{size}: {out}");
        }
        assert!(Replacement::of(Vec::new()).is_none());
        let one = Replacement::of(vec![(b"a".to_vec(), b"bb".to_vec())]).unwrap();
        assert_eq!(one.whole(b"banana").as_deref(), Some(&b"bbbnbbnbb"[..]));
        assert_eq!(one.whole(b"xyz"), None);
    }
}
