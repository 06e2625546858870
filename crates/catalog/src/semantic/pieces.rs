//! Words taken apart into the pieces that a table knows.
//!
//! Pieces were once joined in a fixed order, the most useful joints first; a word is taken apart by joining its characters
//! again in that order. The place of a piece in the list is its turn.

/// Longer words are nothing anybody says.
const MAX_CHARACTERS: usize = 48;
/// What stands before the first piece of a word.
const WORD_START: char = '\u{2581}';

/// The pieces, by turn and by text.
#[derive(Debug)]
pub(super) struct Pieces {
    text: Box<str>,
    /// Where each piece starts; one more at the end.
    starts: Box<[u32]>,
    /// Numbers of pieces, sorted by their text.
    by_text: Box<[u32]>,
}

impl Pieces {
    /// `lengths` in bytes, in the order of turns, over `text`. Nothing if they do not fit, or if a piece is there twice.
    pub(super) fn new(text: &str, lengths: &[u8]) -> Option<Self> {
        let mut starts = Vec::with_capacity(lengths.len() + 1);
        let mut end = 0usize;
        starts.push(0);
        for length in lengths {
            end += usize::from(*length);
            if *length == 0 || !text.is_char_boundary(end) {
                return None;
            }
            starts.push(u32::try_from(end).ok()?);
        }
        if end != text.len() {
            return None;
        }
        let piece =
            |number: u32| &text[starts[number as usize] as usize..starts[number as usize + 1] as usize];
        let mut by_text: Vec<u32> = (0..lengths.len() as u32).collect();
        by_text.sort_unstable_by_key(|number| piece(*number));
        if by_text.windows(2).any(|two| piece(two[0]) == piece(two[1])) {
            return None;
        }
        Some(Self { by_text: by_text.into(), text: text.into(), starts: starts.into() })
    }

    fn piece(&self, number: u32) -> &str {
        &self.text[self.starts[number as usize] as usize..self.starts[number as usize + 1] as usize]
    }

    fn number(&self, text: &str) -> Option<u32> {
        self.by_text
            .binary_search_by(|number| self.piece(*number).cmp(text))
            .ok()
            .map(|place| self.by_text[place])
    }

    /// The pieces of one word; characters that are no piece are left out.
    pub(super) fn of(&self, word: &str) -> Vec<u32> {
        let mut joined = String::with_capacity(word.len() + WORD_START.len_utf8());
        joined.push(WORD_START);
        joined.extend(word.chars().take(MAX_CHARACTERS));
        // Where each part of the word ends; joining two parts removes the end between them.
        let mut ends: Vec<usize> = joined.char_indices().map(|(start, c)| start + c.len_utf8()).collect();
        let part = |ends: &[usize], first: usize, last: usize| {
            let start = if first == 0 { 0 } else { ends[first - 1] };
            joined[start..ends[last]].to_owned()
        };
        loop {
            let turns = (1..ends.len()).filter_map(|at| Some((self.number(&part(&ends, at - 1, at))?, at)));
            let Some((_, at)) = turns.min() else { break };
            ends.remove(at - 1);
        }
        (0..ends.len()).filter_map(|at| self.number(&part(&ends, at, at))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(list: &[&str]) -> Pieces {
        let lengths: Vec<u8> = list.iter().map(|piece| piece.len() as u8).collect();
        Pieces::new(&list.concat(), &lengths).unwrap()
    }

    #[test]
    fn a_word_is_joined_in_the_order_of_turns() {
        // CAT-69
        let pieces = pieces(&["▁", "a", "b", "c", "ab", "bc", "▁a", "▁ab"]);
        let of = |word: &str| {
            pieces.of(word).into_iter().map(|number| pieces.piece(number).to_owned()).collect::<Vec<_>>()
        };
        // `ab` has its turn before `bc` and before `▁a`.
        assert_eq!(of("abc"), ["▁ab", "c"]);
        assert_eq!(of("bc"), ["▁", "bc"]);
        assert_eq!(of("azb"), ["▁a", "b"], "what is no piece is left out");
        assert_eq!(of(""), ["▁"]);
        assert_eq!(of(&"a".repeat(10_000)).len(), MAX_CHARACTERS);
    }

    #[test]
    fn a_list_that_does_not_add_up_is_none() {
        // CAT-69
        assert!(Pieces::new("ab", &[1, 1]).is_some());
        assert!(Pieces::new("ab", &[1, 2]).is_none(), "too long");
        assert!(Pieces::new("ab", &[1]).is_none(), "too short");
        assert!(Pieces::new("ab", &[2, 0]).is_none(), "an empty piece");
        assert!(Pieces::new("aa", &[1, 1]).is_none(), "twice the same");
        assert!(Pieces::new("é", &[1, 1]).is_none(), "half a character");
    }
}
