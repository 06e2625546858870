//! Every way a text may be read, and removing what shows in any of them (GNT-Z2, GNT-Z6).
//!
//! A marker that is spelt with references, and references to references, is no marker until somebody unescapes
//! the text. So the text is read as it stands, then unescaped up to eight times, in two chains that differ in
//! what a reference to a control character yields, each level also leniently. A marker in any reading is
//! deleted from the text itself. A deletion can build a reference out of what stood around it, so the search
//! starts again until nothing is found.

use std::borrow::Cow;

use super::automaton::{Automaton, Ranges, Unit, units};
use super::references::{self, Control, unescape, unescape_loosely};

/// How often a text is unescaped.
const LEVELS: usize = 8;
/// How many times something may be deleted; a text that needs more is built to need more.
const DELETING_PASSES: usize = 8;

/// A text from which something was deleted eight times, and that still holds a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unstable;

/// Deletes every marker of every reading; says how many there were. `cuts` are positions in the text that are
/// kept pointing to the same places.
pub(crate) fn remove<'t>(
    automaton: &Automaton,
    mut text: Cow<'t, str>,
    cuts: &mut [usize],
) -> Result<(Cow<'t, str>, usize), Unstable> {
    let mut markers = 0;
    for _ in 0..DELETING_PASSES {
        let found = search(automaton, &text);
        if found.spans.is_empty() {
            return Ok((text, markers));
        }
        markers += found.markers;
        text = Cow::Owned(without(&text, &found.spans, cuts));
    }
    if search(automaton, &text).spans.is_empty() { Ok((text, markers)) } else { Err(Unstable) }
}

/// What the first reading with a marker says must go.
pub(crate) fn search(automaton: &Automaton, text: &str) -> Ranges {
    let plain = automaton.scan(units(text));
    if !plain.spans.is_empty() || !references::any(text) {
        return plain;
    }
    let level: Vec<Unit> = units(text).collect();
    let (found, met_control) = chain(automaton, &level, Control::Keep);
    if !found.spans.is_empty() || !met_control {
        return found;
    }
    chain(automaton, &level, Control::Drop).0
}

/// Follows one chain of unescapes; says also whether the other chain would read anything differently.
fn chain(automaton: &Automaton, text: &[Unit], control: Control) -> (Ranges, bool) {
    let mut met_control = false;
    let mut level = Cow::Borrowed(text);
    for _ in 0..=LEVELS {
        let loose = unescape_loosely(&level, control);
        met_control |= loose.met_control;
        if loose.changed {
            let found = automaton.scan(loose.units.into_iter());
            if !found.spans.is_empty() {
                return (found, met_control);
            }
        }
        let next = unescape(&level, control);
        met_control |= next.met_control;
        if !next.changed {
            break;
        }
        let found = automaton.scan(next.units.iter().copied());
        if !found.spans.is_empty() {
            return (found, met_control);
        }
        level = Cow::Owned(next.units);
    }
    (Ranges::default(), met_control)
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
