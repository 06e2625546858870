//! What a character looks like to a reader who does not look closely (GNT-Z3).
//!
//! Each code point is folded on its own: compatibility decomposition, full case folding, decomposition again;
//! what is invisible folds to nothing; and a look-alike of a character that markers are written with folds to
//! that character. ASCII is only lower-cased: `rn` is two letters, not an `m`.
//!
//! The table is data (`data/fold.tsv`), made by the test `tables::the_fold_table_is_current` from Unicode's own
//! tables and checked by it: what is removed from a result must not depend on which crate version was built in.

use std::sync::LazyLock;

/// The version of Unicode the table was made from, for the evidence.
pub const UNICODE_VERSION: &str = "18.0.0";

/// The table, read once.
static TABLE: LazyLock<Table> = LazyLock::new(|| Table::read(include_str!("../../data/fold.tsv")));

const PAGE: usize = 256;

struct Table {
    /// For each page of 256 code points, which block of `folds` describes it; 0 is the page that folds nothing.
    pages: Vec<u16>,
    /// Indices into `texts`, plus one; 0 for a code point that folds to itself.
    folds: Vec<[u16; PAGE]>,
    texts: Vec<&'static str>,
}

impl Table {
    /// One line per run: `first[-last] TAB folded text`.
    fn read(lines: &'static str) -> Self {
        let mut table = Self { pages: vec![0; 0x11_0000 / PAGE], folds: vec![[0; PAGE]], texts: Vec::new() };
        for line in lines.lines().filter(|line| !line.starts_with('#')) {
            let (run, text) = line.split_once('\t').expect("a line has two columns");
            let (first, last) = run.split_once('-').unwrap_or((run, run));
            let code = |text| usize::from_str_radix(text, 16).expect("a code point");
            if table.texts.last() != Some(&text) {
                table.texts.push(text);
            }
            let text = u16::try_from(table.texts.len()).expect("fewer texts than that");
            for code in code(first)..=code(last) {
                let page = &mut table.pages[code / PAGE];
                if *page == 0 {
                    *page = u16::try_from(table.folds.len()).expect("fewer pages than that");
                    table.folds.push([0; PAGE]);
                }
                table.folds[usize::from(*page)][code % PAGE] = text;
            }
        }
        table
    }

    fn get(&self, c: char) -> Option<&'static str> {
        let code = c as usize;
        let fold = self.folds[usize::from(self.pages[code / PAGE])][code % PAGE];
        (fold != 0).then(|| self.texts[usize::from(fold) - 1])
    }
}

/// What one code point folds to: nothing, itself, or some characters.
#[derive(Clone)]
pub(crate) enum Folded {
    One(char),
    Text(&'static str),
    /// A Hangul syllable: its parts are computed, not tabled.
    Parts([char; 3], u8),
}

impl Folded {
    pub(crate) fn of(c: char) -> Self {
        match c {
            // Controls that stay in the text are white space: they separate (GNT-Z5).
            '\t' | '\n' | '\r' => Self::One(c),
            '\0'..='\x1f' | '\x7f' => Self::Text(""),
            '\x20'..='\x7e' => Self::One(c.to_ascii_lowercase()),
            '\u{ac00}'..='\u{d7a3}' => {
                let (parts, count) = hangul(c);
                Self::Parts(parts, count)
            }
            c => TABLE.get(c).map_or(Self::One(c), Self::Text),
        }
    }

    /// Calls `each` with the folded characters until it says stop; says whether it did.
    pub(crate) fn any(&self, mut each: impl FnMut(char) -> bool) -> bool {
        match self {
            Self::One(c) => each(*c),
            Self::Text(text) => text.chars().any(each),
            Self::Parts(parts, count) => parts[..usize::from(*count)].iter().any(|c| each(*c)),
        }
    }
}

/// The arithmetic of the Unicode standard, section 3.12.
fn hangul(c: char) -> ([char; 3], u8) {
    let index = c as u32 - 0xac00;
    let part = |base: u32, offset: u32| char::from_u32(base + offset).expect("a conjoining jamo");
    let parts = [part(0x1100, index / 588), part(0x1161, index % 588 / 28), part(0x11a7, index % 28)];
    (parts, if index.is_multiple_of(28) { 2 } else { 3 })
}

/// The fold of a text.
pub(crate) fn fold(text: &str) -> Vec<char> {
    let mut folded = Vec::with_capacity(text.len());
    for c in text.chars() {
        Folded::of(c).any(|f| {
            folded.push(f);
            false
        });
    }
    folded
}

/// Every non-ASCII code point whose fold holds one of `wanted`, in order.
pub(crate) fn lookalikes_of(wanted: impl Fn(char) -> bool) -> Vec<char> {
    let table = &*TABLE;
    (table.pages.iter().enumerate())
        .filter(|(_, page)| **page != 0)
        .flat_map(|(page, _)| (page * PAGE..(page + 1) * PAGE).filter_map(|code| char::from_u32(code as u32)))
        .filter(|c| !c.is_ascii() && table.get(*c).is_some_and(|text| text.chars().any(&wanted)))
        .collect()
}
