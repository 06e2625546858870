//! What must hold for every text, held against a reading that is as naive as it can be.

use std::collections::HashMap;

use proptest::prelude::*;

use super::fold::fold;
use super::*;

static NAMES: LazyLock<HashMap<&str, String>> = LazyLock::new(|| {
    let code = |code| char::from_u32(u32::from_str_radix(code, 16).unwrap()).unwrap();
    let rows = include_str!("../../data/entities.tsv").lines().map(|line| line.split_once('\t').unwrap());
    rows.map(|(name, codes)| (name, codes.split(' ').map(code).collect())).collect()
});

/// One HTML unescape over strings, written without the code it checks: names by trying all lengths, longest first.
fn naive_unescape(text: &str, keep: bool) -> String {
    let names = &*NAMES;
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(number) = rest.strip_prefix('#') {
            let (digits, radix) = match number.strip_prefix(['x', 'X']) {
                Some(digits) => (digits, 16),
                None => (number, 10),
            };
            let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
            if end > 0 {
                let code = u32::from_str_radix(&digits[..end], radix).unwrap_or(u32::MAX);
                rest = digits[end..].strip_prefix(';').unwrap_or(&digits[end..]);
                let control = matches!(code, 0..=8 | 0xb | 0xc | 0xe..=0x1f | 0x7f..=0x9f)
                    || char::from_u32(code).is_none();
                let old: [char; 4] = ['\u{2039}', '\u{203a}', '\u{2026}', '\u{2022}'];
                match (control, keep, code) {
                    (true, false, _) => {}
                    (_, _, 0x8b) => out.push(old[0]),
                    (_, _, 0x9b) => out.push(old[1]),
                    (_, _, 0x80..=0x9f) => out.push(old[2]),
                    _ => out.push(char::from_u32(code).unwrap_or('\u{fffd}')),
                }
                continue;
            }
        }
        let longest = (1..=32)
            .rev()
            .find_map(|len| rest.get(..len).and_then(|name| names.get(name).map(|text| (len, text))));
        match longest {
            Some((len, text)) => {
                out.push_str(text);
                rest = &rest[len..];
            }
            None => out.push('&'),
        }
    }
    out + rest
}

fn folded(text: &str) -> String {
    fold(text).into_iter().collect()
}

/// Whether a marker shows in the text or in any of eight unescapes of either chain.
fn shows_a_marker(text: &str) -> bool {
    [true, false].iter().any(|keep| {
        let mut level = text.to_owned();
        (0..=8).any(|_| {
            let folded = folded(&level);
            level = naive_unescape(&level, *keep);
            MARKERS.iter().any(|marker| folded.contains(marker))
        })
    })
}

fn escaped_and_stripped(text: &str) -> String {
    let stripped: String = text.chars().filter(|c| !strip::is_stripped(*c)).collect();
    let escapes = [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\"", "&quot;"), ("'", "&#x27;")];
    escapes.iter().fold(stripped, |text, (from, to)| text.replace(from, to))
}

/// One character of a marker, disguised.
fn disguised(c: char, how: u8) -> String {
    match how {
        1 => c.to_ascii_uppercase().to_string(),
        2 => format!("&#{};", c as u32),
        3 => format!("&#x{:x}", c as u32) + ";",
        4 => char::from_u32(c as u32 - 0x20 + 0xff00).unwrap_or(c).to_string(),
        5 => format!("{c}\u{200b}"),
        6 => format!("\u{fe0f}{c}"),
        7 => format!("{c}\u{1b}"),
        8 => format!("{c}&#0;"),
        9 => format!("&amp;#{};", c as u32),
        _ => c.to_string(),
    }
}

/// A marker, each character in its own disguise, encoded again up to three times.
fn hidden_marker() -> impl Strategy<Value = String> {
    let marker = prop::sample::select(MARKERS.to_vec());
    (marker, prop::collection::vec(0u8..14, 12), 0usize..4).prop_map(|(marker, how, times)| {
        let text: String = marker.chars().zip(how).map(|(c, how)| disguised(c, how)).collect();
        (0..times).fold(text, |text, _| text.replace('&', "&amp;"))
    })
}

/// Markers inside markers, among other text.
fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => hidden_marker(),
        3 => prop::sample::select(vec!["__sys", "tem__", "<|im_", "start|>", "end|>", "&", "lt;", "amp;", "#60", ";", "_", "|", "\u{1b}"])
            .prop_map(str::to_owned),
        2 => "[a-z &<>_|;#0-9]{0,8}",
        1 => any::<String>(),
    ];
    (prop::collection::vec(piece, 1..7), any::<prop::sample::Index>(), hidden_marker()).prop_map(
        |(pieces, at, inner)| {
            let mut text = pieces.concat();
            let boundaries: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            if !boundaries.is_empty() {
                text.insert_str(*at.get(&boundaries), &inner);
            }
            text
        },
    )
}

/// How many cases of each property: `cargo xtask fuzz` asks for more.
fn cases() -> u32 {
    std::env::var("PORTCULLIS_FUZZ_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(192)
}

fn cleaned(text: &str) -> Option<(String, Report)> {
    let mut report = Report::default();
    let clean = Sanitiser::default().text(text, Escape::Html, usize::MAX, &mut report);
    clean.ok().map(|clean| (clean.into_owned(), report))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn no_marker_is_left_in_any_reading(text in hostile()) {
        // GNT-Z8
        if let Some((clean, _)) = cleaned(&text) {
            prop_assert!(!shows_a_marker(&clean), "{:?} became {:?}", text, clean);
        }
    }

    #[test]
    fn a_hidden_marker_leaves_nothing(text in hidden_marker()) {
        // GNT-Z2, GNT-Z3
        let (clean, report) = cleaned(&text).unwrap();
        // A disguise may put something invisible outside the marker proper.
        prop_assert!(folded(&naive_unescape(&naive_unescape(&clean, false), false)).trim_matches(|c| "&#0;amp".contains(c)).is_empty(), "{:?}: {:?}", text, clean);
        prop_assert!(report.markers > 0);
    }

    #[test]
    fn text_without_a_marker_is_stripped_and_escaped_and_nothing_else(text in prop_oneof![hostile(), any::<String>(), "[ -~\\n]{0,80}"]) {
        // GNT-Z9
        let stripped: String = text.chars().filter(|c| !strip::is_stripped(*c)).collect();
        if let Some((clean, report)) = cleaned(&text) {
            if report.markers == 0 {
                prop_assert_eq!(&clean, &escaped_and_stripped(&text));
            } else {
                // Something was removed, so some reading shows it: a strict one, or a lenient one with references.
                prop_assert!(shows_a_marker(&stripped) || stripped.contains('&'), "{:?}", text);
            }
        }
    }

    #[test]
    fn cleaning_the_unescaped_clean_text_changes_nothing(text in hostile()) {
        // GNT-Z14
        if let Some((clean, _)) = cleaned(&text) {
            prop_assert_eq!(cleaned(&naive_unescape(&clean, true)).unwrap().0, clean);
        }
    }

    #[test]
    fn labels_are_cleaned_once_and_for_all(text in hostile()) {
        // GNT-Z12, GNT-Z14: strip and removal are idempotent
        let sanitiser = Sanitiser::default();
        let label = |text: &str| sanitiser.text(text, Escape::None, usize::MAX, &mut Report::default()).map(Cow::into_owned);
        if let Ok(once) = label(&text) {
            prop_assert!(!shows_a_marker(&once));
            prop_assert_eq!(label(&once).unwrap(), once);
        }
    }

    #[test]
    fn neighbours_are_cleaned_as_one_text(pieces in prop::collection::vec(hostile(), 1..4)) {
        // GNT-Z7
        let sanitiser = Sanitiser::default();
        let texts: Vec<&str> = pieces.iter().map(String::as_str).collect();
        let together = sanitiser.neighbours(&texts, Escape::Html, usize::MAX, &mut Report::default());
        let joined = cleaned(&pieces.concat());
        prop_assert_eq!(together.ok().map(|texts| texts.concat()), joined.map(|(clean, _)| clean));
    }
}
