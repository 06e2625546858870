//! The words of an envelope: the beginning of a text, the lines that say something, what stands for a picture.

use std::fmt::Write as _;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use unicode_segmentation::UnicodeSegmentation;

use crate::envelope::NewArtifact;
use crate::part::text_of;

/// Characters of a summary (CTX-6).
pub const SUMMARY_CHARS: usize = 500;
/// Facts in one envelope.
pub const MAX_FACTS: usize = 20;
/// A fact is shorter than this.
pub const FACT_CHARS: usize = 200;

/// The first characters of a text, cut between graphemes, never inside one.
pub fn head(text: &str, chars: usize) -> &str {
    let Some((limit, _)) = text.char_indices().nth(chars) else { return text };
    let mut end = 0;
    for (at, grapheme) in text.grapheme_indices(true) {
        if at + grapheme.len() > limit {
            break;
        }
        end = at + grapheme.len();
    }
    // One grapheme of five hundred characters: an attack, not a letter. Then between characters.
    if end == 0 { &text[..limit] } else { &text[..end] }
}

/// The beginning of a text, and what no text stands for.
pub(crate) fn of_text(text: &str, counted: &[Counted]) -> String {
    let mut summary = head(text, SUMMARY_CHARS).to_owned();
    let unknown: Vec<String> = Counted::grouped(counted.iter().filter(|one| one.unknown));
    if !unknown.is_empty() {
        let _ = write!(summary, " (+ {})", unknown.join(", "));
    }
    summary
}

/// What is said when there is no text.
pub(crate) fn without_text(counted: &[Counted], artifacts: &[NewArtifact<'_>], nothing: bool) -> String {
    if nothing {
        return "(no content)".into();
    }
    let parts = Counted::grouped(counted.iter());
    if !parts.is_empty() {
        return parts.join(", ");
    }
    // Structured content without facts, or texts that are all empty.
    match artifacts.first() {
        Some(artifact) => format!("1 document ({}, {})", artifact.media_type, size(artifact.bytes.len())),
        None => "(empty text)".into(),
    }
}

/// A part that no text stands for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Counted {
    what: String,
    about: String,
    unknown: bool,
}

impl Counted {
    pub(crate) fn media(kind: &str, media_type: &str, bytes: usize) -> Self {
        let about = format!("{}, {}", self::media_type(media_type), size(bytes));
        Self { what: kind.into(), about, unknown: false }
    }

    pub(crate) fn plain(what: &str) -> Self {
        Self { what: what.into(), about: String::new(), unknown: false }
    }

    pub(crate) fn unknown(kind: &str) -> Self {
        let about = if kind.is_empty() { String::new() } else { format!("type {kind}") };
        Self { what: "unknown part".into(), about, unknown: true }
    }

    /// Equal ones together: `2 images (image/png, 40 B)`.
    fn grouped<'c>(counted: impl Iterator<Item = &'c Counted>) -> Vec<String> {
        let mut groups: Vec<(&Counted, usize)> = Vec::new();
        for one in counted {
            match groups.iter_mut().find(|(other, _)| *other == one) {
                Some((_, count)) => *count += 1,
                None => groups.push((one, 1)),
            }
        }
        let total = groups.len();
        let mut said: Vec<String> = (groups.iter().take(8))
            .map(|(one, count)| {
                let plural = if *count > 1 && one.what != "audio" { "s" } else { "" };
                let about = if one.about.is_empty() { String::new() } else { format!(" ({})", one.about) };
                format!("{count} {}{plural}{about}", one.what)
            })
            .collect();
        if total > 8 {
            said.push(format!("{} other kinds of parts", total - 8));
        }
        said
    }
}

/// `40 B`, `1.2 MB`.
pub(crate) fn size(bytes: usize) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// A media type in our own spelling; a claim that is none is not repeated.
pub(crate) fn media_type(claimed: &str) -> String {
    let is_token = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&b))
    };
    let essence = claimed.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.split_once('/') {
        Some((kind, sub)) if is_token(kind) && is_token(sub) && essence.len() <= 100 => essence,
        _ => "application/octet-stream".into(),
    }
}

/// A label on one line and not for ever.
pub(crate) fn label(text: &str) -> String {
    portcullis_core::error::one_line(head(text, 200))
}

/// `key: value` for each member of an object whose line is short enough.
pub(crate) fn facts_of_object(json: &str) -> Vec<String> {
    struct Reader;
    impl<'de> Visitor<'de> for Reader {
        type Value = Vec<String>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<String>, A::Error> {
            let mut facts = Vec::new();
            while let Some(key) = map.next_key::<String>()? {
                let value: &RawValue = map.next_value()?;
                if facts.len() < MAX_FACTS {
                    facts.extend(fact(&key, value));
                }
            }
            Ok(facts)
        }
    }
    serde_json::Deserializer::from_str(json).deserialize_map(Reader).unwrap_or_default()
}

fn fact(key: &str, value: &RawValue) -> Option<String> {
    // Spacing at most doubles what is short, so what is very long need not be looked at.
    if value.get().len() > 4 * FACT_CHARS || key.len() > 4 * FACT_CHARS {
        return None;
    }
    let value = match text_of(value) {
        Some(text) => text.into_owned(),
        None => compact(value)?,
    };
    let fact = one_line_of(&format!("{key}: {value}"));
    (fact.chars().count() < FACT_CHARS).then_some(fact)
}

fn compact(value: &RawValue) -> Option<String> {
    let json = value.get();
    // Numbers and words have no spacing, and numbers must keep their digits.
    if !json.starts_with(['{', '[']) {
        return Some(json.to_owned());
    }
    serde_json::from_str::<serde_json::Value>(json).ok().map(|value| value.to_string())
}

fn one_line_of(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Lines with a colon, until there are enough.
pub(crate) fn facts_of_text<'t>(texts: impl Iterator<Item = &'t str>, facts: &mut Vec<String>) {
    for line in texts.flat_map(str::lines) {
        if facts.len() >= MAX_FACTS {
            return;
        }
        let line = line.trim();
        if line.contains(':') && line.chars().nth(FACT_CHARS - 1).is_none() {
            facts.push(one_line_of(line));
        }
    }
}

/// What stands for parts that were too heavy to show.
pub(crate) fn media_of(artifacts: &[NewArtifact<'_>]) -> String {
    use crate::envelope::Source;
    let counted: Vec<Counted> = (artifacts.iter())
        .map(|artifact| {
            let kind = match artifact.source {
                Source::Image => "image",
                Source::Audio => "audio",
                _ => "blob",
            };
            Counted::media(kind, &artifact.media_type, artifact.bytes.len())
        })
        .collect();
    Counted::grouped(counted.iter()).join(", ")
}
