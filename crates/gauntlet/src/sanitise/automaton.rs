//! Finding markers in folded text, nested ones included, in one scan (GNT-Z4).
//!
//! An Aho-Corasick automaton over folded characters, whose history is kept on a stack. When a marker is
//! complete, the characters it is made of are popped and the automaton goes on from the state before them, as
//! if they had never been there: `__sys__system__tem__` loses its inner marker and then, with the next
//! character, its outer one. Whenever no marker is under way the stack is empty, so it stays short.

use std::collections::{BTreeMap, VecDeque};

use super::fold::Folded;

/// One character of a reading, and which part of the text it was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) ch: char,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// The units of a text as it stands: every character for itself.
pub(crate) fn units(text: &str) -> impl Iterator<Item = Unit> {
    text.char_indices().map(|(at, ch)| Unit { ch, start: at as u32, end: (at + ch.len_utf8()) as u32 })
}

type State = u16;
const ROOT: State = 0;
/// No marker character.
const OTHER: u8 = 0;

/// The automaton of a set of markers, already folded.
#[derive(Debug)]
pub(crate) struct Automaton {
    /// Columns of `next`, for ASCII and for the rest; column 0 is every other character.
    ascii: [u8; 128],
    others: BTreeMap<char, u8>,
    columns: usize,
    next: Vec<State>,
    /// How long the longest marker is that ends in a state; 0 if none does.
    accepts: Vec<u8>,
}

/// Stretches of the text to delete, in order and apart from each other.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    pub(crate) spans: Vec<(u32, u32)>,
    /// How many markers were met, the ones inside others counted too.
    pub(crate) markers: usize,
}

impl Automaton {
    /// At most 255 different characters and 255 characters per marker; the limits on markers keep it far below.
    pub(crate) fn new(markers: &[Vec<char>]) -> Self {
        let mut ascii = [OTHER; 128];
        let mut others = BTreeMap::new();
        let mut columns = 1usize;
        for c in markers.iter().flatten().copied() {
            let column = match u8::try_from(c).ok().filter(u8::is_ascii) {
                Some(byte) => &mut ascii[usize::from(byte)],
                None => others.entry(c).or_insert(OTHER),
            };
            if *column == OTHER {
                *column = u8::try_from(columns).expect("markers are made of fewer characters");
                columns += 1;
            }
        }
        let mut automaton = Self { ascii, others, columns, next: vec![ROOT; columns], accepts: vec![0] };
        for marker in markers {
            automaton.add(marker);
        }
        automaton.link();
        automaton
    }

    fn add(&mut self, marker: &[char]) {
        let mut state = ROOT;
        for c in marker {
            let slot = usize::from(state) * self.columns + usize::from(self.column(*c));
            if self.next[slot] == ROOT {
                self.next[slot] = State::try_from(self.accepts.len()).expect("fewer states than that");
                self.accepts.push(0);
                self.next.extend(std::iter::repeat_n(ROOT, self.columns));
            }
            state = self.next[slot];
        }
        self.accepts[usize::from(state)] = u8::try_from(marker.len()).expect("markers are short");
    }

    /// Turns the tree into an automaton: where it has no branch, it goes where the longest suffix goes.
    fn link(&mut self) {
        let mut fall = vec![ROOT; self.accepts.len()];
        let mut queue: VecDeque<State> = VecDeque::from([ROOT]);
        while let Some(state) = queue.pop_front() {
            for column in 1..self.columns {
                let slot = usize::from(state) * self.columns + column;
                let target = self.next[slot];
                let beside = if state == ROOT {
                    ROOT
                } else {
                    self.next[usize::from(fall[usize::from(state)]) * self.columns + column]
                };
                if target == ROOT {
                    self.next[slot] = beside;
                } else {
                    fall[usize::from(target)] = beside;
                    let inherited = self.accepts[usize::from(beside)];
                    let own = &mut self.accepts[usize::from(target)];
                    *own = (*own).max(inherited);
                    queue.push_back(target);
                }
            }
        }
    }

    #[inline]
    fn column(&self, c: char) -> u8 {
        match self.ascii.get(c as usize) {
            Some(column) => *column,
            None => self.others.get(&c).copied().unwrap_or(OTHER),
        }
    }

    #[inline]
    fn step(&self, state: State, c: char) -> State {
        self.next[usize::from(state) * self.columns + usize::from(self.column(c))]
    }

    /// Scans a reading and says what of the text must go.
    pub(crate) fn scan(&self, reading: impl Iterator<Item = Unit>) -> Ranges {
        let mut found = Ranges::default();
        // (start of the unit, how many folded characters it has, state after it)
        let mut history: Vec<(u32, u8, State)> = Vec::new();
        let mut state = ROOT;
        for unit in reading {
            if state == ROOT && unit.ch.is_ascii() && self.step(ROOT, unit.ch.to_ascii_lowercase()) == ROOT {
                continue;
            }
            let mut length = 0u8;
            let mut complete = 0u8;
            let mut advance = |c| {
                state = self.step(state, c);
                length = length.saturating_add(1);
                complete = self.accepts[usize::from(state)];
                complete != 0
            };
            // Most of any text; the same as folding it, without asking how.
            if matches!(unit.ch, ' '..='~') {
                advance(unit.ch.to_ascii_lowercase());
            } else {
                Folded::of(unit.ch).any(advance);
            }
            if complete == 0 {
                if state == ROOT {
                    history.clear();
                } else {
                    history.push((unit.start, length, state));
                }
                continue;
            }
            let mut start = unit.start;
            let mut covered = length;
            while covered < complete {
                let (before, length, _) = history.pop().expect("a marker is made of what was read");
                start = before;
                covered = covered.saturating_add(length);
            }
            state = history.last().map_or(ROOT, |(_, _, state)| *state);
            found.markers += 1;
            while found.spans.last().is_some_and(|(inner, _)| *inner >= start) {
                found.spans.pop();
            }
            // Two units may share one reference: the second then starts inside what is already gone.
            match found.spans.last_mut() {
                Some((_, end)) if *end >= start => *end = unit.end,
                _ => found.spans.push((start, unit.end)),
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sanitise::fold::fold;

    fn left(markers: &[&str], text: &str) -> String {
        let folded: Vec<_> = markers.iter().map(|marker| fold(marker)).collect();
        let found = Automaton::new(&folded).scan(units(text));
        let mut out = text.to_owned();
        for (start, end) in found.spans.iter().rev() {
            out.replace_range(*start as usize..*end as usize, "");
        }
        out
    }

    #[test]
    fn nested_markers_vanish_in_one_scan() {
        let markers = ["__system__", "<|im_start|>", "<|im_end|>"];
        for text in [
            "__system__",
            "__sys__system__tem__",
            "____system__system__",
            "__sys__sys__system__tem__tem__",
            "<|im_<|im_end|>start|>",
            "__sy\u{fb06}em__",
        ] {
            assert_eq!(left(&markers, text), "", "{text}");
        }
        assert_eq!(left(&markers, "a__SYSTEM__b _system_ __syste"), "ab _system_ __syste");
        let deep = "__sys".repeat(50_000) + "__system__" + &"tem__".repeat(50_000);
        assert_eq!(left(&markers, &deep), "");
    }

    #[test]
    fn a_marker_inside_another_and_one_that_ends_another_are_both_found() {
        assert_eq!(left(&["<abcd>", "bcd>"], "x<abcd>y"), "xy");
        assert_eq!(left(&["abcdef!", "c!!!"], "abc!!!cdef!c!!!"), "");
        assert_eq!(left(&["한국어!"], "x\u{1112}\u{1161}\u{11ab}국어!y"), "xy");
    }
}
