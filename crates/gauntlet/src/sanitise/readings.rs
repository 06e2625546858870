//! Every way a text may be read, and removing what shows in any of them (GNT-Z2, GNT-Z6).
//!
//! A marker that is spelt with references, and references to references, is no marker until somebody unescapes
//! the text. So the text is read as it stands, then unescaped up to eight times, in two chains that differ in
//! what a reference to a control character yields, each level also leniently. A marker in any reading is
//! deleted from the text itself. A deletion can build a reference out of what stood around it, so the search
//! starts again until nothing is found.

//!
//! A text falls into *stretches*: a character that no reference and no marker is made of, a space most often, ends
//! whatever was under way in every reading, and is never deleted. So each stretch is read for itself, and those in which
//! no marker can begin are not read at all.

use std::borrow::Cow;
use std::ops::Range;

use super::ascii_set::AsciiSet;
use super::automaton::{Automaton, Ranges, Unit, units};
use super::lookalikes::Lookalikes;
use super::references::{Control, Decoder};

/// How often a text is unescaped.
const LEVELS: usize = 8;
/// How many times something may be deleted; a text that needs more is built to need more.
const DELETING_PASSES: usize = 8;

/// A text from which something was deleted eight times, and that still holds a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unstable;

/// The markers, and where in a text they can be.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(super) automaton: Automaton,
    /// ASCII characters a marker can begin with, or be spelt with: `&`.
    pub(super) openers: AsciiSet,
    /// Everything but them that folds to such a character.
    pub(super) lookalikes: Lookalikes,
    /// ASCII characters that end a stretch.
    barriers: AsciiSet,
}

impl Reader {
    pub(super) fn new(markers: &[Vec<char>]) -> Self {
        let first: Vec<char> = markers.iter().filter_map(|marker| marker.first().copied()).collect();
        // Folding lower-cases, so a marker that begins with a letter begins with either case of it.
        let openers = (first.iter().filter_map(|c| u8::try_from(*c).ok()).filter(u8::is_ascii))
            .flat_map(|byte| [byte, byte.to_ascii_uppercase()])
            .chain([b'&']);
        let is_spelt_with = |byte: u8| {
            byte.is_ascii_alphanumeric()
                || b"&#;".contains(&byte)
                || markers.iter().flatten().any(|c| *c == char::from(byte))
        };
        // Other controls are invisible to a reader: they separate nothing.
        let visible = (b' '..=b'~').chain(*b"\t\n\r");
        Self {
            automaton: Automaton::new(markers),
            lookalikes: Lookalikes::new(&first),
            openers: AsciiSet::new(openers),
            barriers: AsciiSet::new(visible.filter(|byte| !is_spelt_with(*byte))),
        }
    }

    /// Whether a marker may begin anywhere in the text.
    pub(super) fn opens(&self, text: &str) -> bool {
        let (any, high) = self.openers.survey(text.as_bytes());
        any || (high && self.lookalikes.occur_in(text))
    }

    /// Deletes every marker of every reading; says how many there were. `cuts` are positions in the text, in order, that
    /// are kept pointing to the same places.
    pub(crate) fn remove<'t>(
        &self,
        text: Cow<'t, str>,
        cuts: &mut [usize],
    ) -> Result<(Cow<'t, str>, usize), Unstable> {
        let mut out = String::new();
        let (mut done, mut markers, mut first_cut) = (0, 0, 0);
        let mut scratch = Scratch::default();
        for stretch in self.stretches(&text) {
            // Cuts before the stretch, then those in it.
            let before = cuts[first_cut..].partition_point(|cut| *cut < stretch.start);
            shift(&mut cuts[first_cut..first_cut + before], done, out.len());
            first_cut += before;
            let inside = cuts[first_cut..].partition_point(|cut| *cut <= stretch.end);
            let own = &mut cuts[first_cut..first_cut + inside];
            first_cut += inside;
            let base = out.len() + (stretch.start - done);
            own.iter_mut().for_each(|cut| *cut -= stretch.start);
            if let Some((settled, found)) = self.settle(&text[stretch.clone()], own, &mut scratch)? {
                out.push_str(&text[done..stretch.start]);
                out.push_str(&settled);
                done = stretch.end;
                markers += found;
            }
            own.iter_mut().for_each(|cut| *cut += base);
        }
        shift(&mut cuts[first_cut..], done, out.len());
        if markers == 0 {
            return Ok((text, 0));
        }
        out.push_str(&text[done..]);
        Ok((Cow::Owned(out), markers))
    }

    /// Whether any reading of the text holds a marker.
    pub(crate) fn has_marker(&self, text: &str) -> bool {
        let mut scratch = Scratch::default();
        self.stretches(text)
            .into_iter()
            .any(|stretch| !self.search(&text[stretch], &mut scratch).spans.is_empty())
    }

    /// The stretches in which a marker may begin, in order.
    fn stretches(&self, text: &str) -> Vec<Range<usize>> {
        let bytes = text.as_bytes();
        let is_barrier = |byte: &u8| self.barriers.contains(*byte);
        let mut stretches: Vec<Range<usize>> = Vec::new();
        let mut around = |at: usize| {
            let end = stretches.last().map_or(0, |last| last.end);
            if at < end {
                return;
            }
            let start = bytes[end..at].iter().rposition(is_barrier).map_or(end, |offset| end + offset + 1);
            let end = bytes[at..].iter().position(is_barrier).map_or(bytes.len(), |offset| at + offset);
            stretches.push(start..end);
        };
        if text.is_ascii() || !self.lookalikes.occur_in(text) {
            self.openers.each(bytes, around);
        } else {
            for (at, c) in text.char_indices() {
                let opens = u8::try_from(c).is_ok_and(|byte| self.openers.contains(byte));
                if opens || self.lookalikes.contain(c) {
                    around(at);
                }
            }
        }
        stretches
    }

    /// A stretch without its markers, and how many there were; `None` if there were none.
    fn settle(
        &self,
        stretch: &str,
        cuts: &mut [usize],
        scratch: &mut Scratch,
    ) -> Result<Option<(String, usize)>, Unstable> {
        let mut settled: Option<(String, usize)> = None;
        for _ in 0..=DELETING_PASSES {
            let text = settled.as_ref().map_or(stretch, |(text, _)| text);
            let found = self.search(text, scratch);
            if found.spans.is_empty() {
                return Ok(settled);
            }
            let markers = settled.as_ref().map_or(0, |(_, markers)| *markers) + found.markers;
            settled = Some((without(text, &found.spans, cuts), markers));
        }
        // GNT-Z6: the ninth pass was to find nothing.
        Err(Unstable)
    }

    /// What the first reading with a marker says must go.
    fn search(&self, text: &str, scratch: &mut Scratch) -> Ranges {
        let plain = self.automaton.scan(units(text));
        if !plain.spans.is_empty() || !text.contains('&') {
            return plain;
        }
        let (found, met_control) = self.chain(text, Control::Keep, scratch);
        if !found.spans.is_empty() || !met_control {
            return found;
        }
        self.chain(text, Control::Drop, scratch).0
    }

    /// Follows one chain of unescapes; says also whether the other chain would read anything differently.
    fn chain(&self, text: &str, control: Control, scratch: &mut Scratch) -> (Ranges, bool) {
        let Scratch { level, decoder } = scratch;
        level.clear();
        level.extend(units(text));
        let mut met_control = false;
        for _ in 0..=LEVELS {
            let decoded = decoder.decode(level, control);
            met_control |= decoded.met_control;
            for reading in decoded.loose.into_iter().chain(decoded.strict) {
                let found = self.automaton.scan(reading.iter().copied());
                if !found.spans.is_empty() {
                    return (found, met_control);
                }
            }
            if decoded.strict.is_none() {
                break;
            }
            decoder.take_strict(level);
        }
        (Ranges::default(), met_control)
    }
}

/// Buffers that every stretch uses again.
#[derive(Default)]
struct Scratch {
    level: Vec<Unit>,
    decoder: Decoder,
}

fn shift(cuts: &mut [usize], from: usize, to: usize) {
    cuts.iter_mut().for_each(|cut| *cut = *cut - from + to);
}

fn without(text: &str, spans: &[(u32, u32)], cuts: &mut [usize]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut cuts = cuts.iter_mut().peekable();
    let mut done = 0;
    for (start, end) in spans.iter().map(|(start, end)| (*start as usize, *end as usize)) {
        while let Some(cut) = cuts.next_if(|cut| **cut <= end) {
            *cut = out.len() + (*cut).min(start).saturating_sub(done);
        }
        out.push_str(&text[done..start]);
        done = end;
    }
    for cut in cuts {
        *cut = out.len() + *cut - done;
    }
    out.push_str(&text[done..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_keep_pointing_to_the_same_places() {
        let mut cuts = [0, 2, 4, 6, 9];
        assert_eq!(without("abXXcXXde", &[(2, 4), (5, 7)], &mut cuts), "abcde");
        assert_eq!(cuts, [0, 2, 2, 3, 5]);
    }
}
