//! The sanitiser's data is made here, from the tables of the crates that carry Unicode's own.

use std::fmt::Write as _;

use unicode_normalization::UnicodeNormalization as _;
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory as _};
use unicode_security::confusable_detection::skeleton;

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/fold.tsv");

/// The prototype of a character in the sense of UTS #39.
fn prototype(c: char) -> String {
    skeleton(c.encode_utf8(&mut [0; 4])).collect()
}

/// Which printable ASCII character stands for a prototype. Where several have the same one, the one that is
/// punctuation does: what looks like `l` and is no letter is most likely meant as a bar.
fn meant(prototypes: &[(String, char)], c: char) -> Option<char> {
    let wanted = prototype(c);
    let candidates = prototypes.iter().filter(|(prototype, _)| *prototype == wanted).map(|(_, c)| *c);
    candidates.min_by_key(|c| (c.is_ascii_alphanumeric(), *c))
}

fn is_invisible(c: char) -> bool {
    use GeneralCategory::{Control, EnclosingMark, Format, NonspacingMark};
    // What a skeleton drops is Default_Ignorable_Code_Point.
    prototype(c).is_empty()
        || matches!(c.general_category(), Control | Format | NonspacingMark | EnclosingMark)
}

/// GNT-Z3, for one code point.
fn folded(prototypes: &[(String, char)], c: char) -> String {
    let decomposed: String = c.nfkd().collect();
    // Full case folding; upper-casing first takes characters along that only have an upper case.
    let cased: String = decomposed
        .chars()
        .flat_map(char::to_lowercase)
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .collect();
    (cased.nfkd())
        .filter(|c| !is_invisible(*c))
        .map(|d| {
            if d.is_ascii() { d } else { meant(prototypes, d).or_else(|| meant(prototypes, c)).unwrap_or(d) }
        })
        .map(|d| d.to_ascii_lowercase())
        .collect()
}

/// Every fold but those of Hangul syllables, which are computed; no others lie between the ranges.
fn table() -> String {
    let (major, minor, patch) = unicode_security::UNICODE_VERSION;
    let mut text =
        format!("# Unicode {major}.{minor}.{patch}: code points (hexadecimal), what they fold to\n");
    let prototypes: Vec<(String, char)> = ('!'..='~').map(|c| (prototype(c), c)).collect();
    let mut run: Option<(u32, u32, String)> = None;
    let mut close = |run: &mut Option<(u32, u32, String)>| {
        if let Some((first, last, fold)) = run.take() {
            let last = if first == last { String::new() } else { format!("-{last:X}") };
            writeln!(text, "{first:X}{last}\t{fold}").unwrap();
        }
    };
    for c in ('\u{80}'..='\u{9fff}')
        .chain('\u{a000}'..='\u{abff}')
        .chain('\u{f900}'..='\u{1ffff}')
        .chain('\u{2f800}'..='\u{2fa1f}')
        .chain('\u{e0000}'..='\u{e0fff}')
    {
        let fold = folded(&prototypes, c);
        if fold.chars().eq([c]) {
            continue;
        }
        match &mut run {
            Some((_, last, text)) if *last + 1 == c as u32 && *text == fold => *last = c as u32,
            _ => {
                close(&mut run);
                run = Some((c as u32, c as u32, fold));
            }
        }
    }
    close(&mut run);
    text
}

#[test]
fn the_fold_table_is_current() {
    // GNT-Z3. `UPDATE_TABLES=1 cargo test -p portcullis-gauntlet fold_table` writes it anew.
    let current = table();
    if std::env::var_os("UPDATE_TABLES").is_some() {
        std::fs::write(TABLE, &current).unwrap();
    }
    let stored = std::fs::read_to_string(TABLE).unwrap();
    assert!(stored == current, "data/fold.tsv is not what the Unicode tables give; run with UPDATE_TABLES=1");
    let (major, minor, patch) = unicode_security::UNICODE_VERSION;
    assert_eq!(portcullis_gauntlet::sanitise::UNICODE_VERSION, format!("{major}.{minor}.{patch}"));
}
