//! Characters that are not ASCII and look like one a marker begins with.

use super::fold;

/// Non-ASCII characters that fold to the first character of a marker.
#[derive(Debug)]
pub(crate) struct Lookalikes {
    /// Which pages of 256 code points have any.
    pages: Vec<bool>,
    sorted: Vec<char>,
}

impl Lookalikes {
    pub(crate) fn new(first: &[char]) -> Self {
        let mut sorted = fold::lookalikes_of(|c| first.contains(&c));
        sorted.extend(first.iter().filter(|c| !c.is_ascii()));
        // A syllable may hold a marker's first letter as one of its parts.
        if first.iter().any(|c| matches!(c, '\u{1100}'..='\u{11ff}')) {
            sorted.extend('\u{ac00}'..='\u{d7a3}');
        }
        sorted.sort_unstable();
        sorted.dedup();
        let mut pages = vec![false; 0x1100];
        for c in &sorted {
            pages[*c as usize >> 8] = true;
        }
        Self { pages, sorted }
    }

    pub(crate) fn contain(&self, c: char) -> bool {
        self.pages[c as usize >> 8] && self.sorted.binary_search(&c).is_ok()
    }

    /// Whether the text has any.
    pub(crate) fn occur_in(&self, text: &str) -> bool {
        text.chars().any(|c| self.contain(c))
    }
}
