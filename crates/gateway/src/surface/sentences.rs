//! Sentences of a description, as duplicates are counted and rewrites made (SURF-31).

use std::borrow::Cow;

/// Shorter ones are not worth counting.
pub(super) const COUNTED: usize = 25;

/// The sentences of a text, line by line, with whitespace collapsed.
pub(super) fn lines_of_sentences(text: &str) -> Vec<Vec<Cow<'_, str>>> {
    text.split('\n').map(sentences_of_line).filter(|line| !line.is_empty()).collect()
}

/// The sentences of a text.
pub(super) fn sentences(text: &str) -> Vec<Cow<'_, str>> {
    text.split('\n').flat_map(sentences_of_line).collect()
}

/// The first sentence of a text; nothing if it has none.
pub(super) fn first_sentence(text: &str) -> Option<Cow<'_, str>> {
    text.split('\n').find_map(|line| sentences_of_line(line).into_iter().next())
}

fn sentences_of_line(line: &str) -> Vec<Cow<'_, str>> {
    match collapsed(line) {
        Cow::Borrowed(line) => split(line).into_iter().map(Cow::Borrowed).collect(),
        Cow::Owned(line) => split(&line).into_iter().map(|one| Cow::Owned(one.to_owned())).collect(),
    }
}

/// A text with one space between words and none around them: itself, where it is so already.
pub(super) fn collapsed(text: &str) -> Cow<'_, str> {
    let text = text.trim();
    if !text.contains("  ") && text.chars().all(|c| c == ' ' || !c.is_whitespace()) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn split(line: &str) -> Vec<&str> {
    let (mut found, mut start, mut quoted) = (Vec::new(), 0, false);
    for (at, byte) in line.bytes().enumerate() {
        quoted ^= byte == b'`';
        if matches!(byte, b'.' | b'!' | b'?') && !quoted && ends_here(&line[at + 1..]) {
            found.push(line[start..=at].trim_start());
            start = at + 1;
        }
    }
    let rest = line[start..].trim_start();
    if !rest.is_empty() {
        found.push(rest);
    }
    found
}

/// Whether what follows begins something new.
fn ends_here(rest: &str) -> bool {
    let mut rest = rest.chars();
    match (rest.next(), rest.next()) {
        (None, _) => true,
        (Some(' '), Some(next)) => {
            next.is_uppercase() || next.is_ascii_digit() || matches!(next, '`' | '"' | '\'' | '(' | '[')
        }
        _ => false,
    }
}

/// A text put together again from what is left of its sentences.
pub(super) fn joined<S: AsRef<str>>(lines: &[Vec<S>]) -> String {
    let mut text = String::new();
    for line in lines.iter().filter(|line| !line.is_empty()) {
        if !text.is_empty() {
            text.push('\n');
        }
        for (at, sentence) in line.iter().enumerate() {
            if at > 0 {
                text.push(' ');
            }
            text.push_str(sentence.as_ref());
        }
    }
    text
}

/// Length as clients count it: UTF-16 units (SURF-60).
pub(super) fn units(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.encode_utf16().count() }
}

/// The leading whole sentences of `text` that fit into `most` units; empty if not even the first does.
pub(super) fn leading(text: &str, most: usize) -> String {
    let mut kept = String::new();
    for sentence in sentences(text) {
        let longer = if kept.is_empty() { sentence.into_owned() } else { format!("{kept} {sentence}") };
        if units(&longer) > most {
            break;
        }
        kept = longer;
    }
    kept
}

/// A text cut to `most` units: at a sentence, else behind a word.
pub(super) fn cut(text: &str, most: usize) -> String {
    if units(text) <= most {
        return text.to_owned();
    }
    let whole = leading(text, most);
    if !whole.is_empty() {
        return whole;
    }
    let mut kept = String::new();
    for word in text.split_whitespace() {
        let longer = if kept.is_empty() { word.to_owned() } else { format!("{kept} {word}") };
        if units(&longer) + 1 > most {
            break;
        }
        kept = longer;
    }
    if kept.is_empty() { kept } else { format!("{kept}…") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_where_something_new_begins() {
        // SURF-31
        let text = "Call `a. B` first. It is v1.2 of e.g. this. (See below.)  2 more!\nA line";
        assert_eq!(
            sentences(text),
            ["Call `a. B` first.", "It is v1.2 of e.g. this.", "(See below.) 2 more!", "A line"]
        );
        assert_eq!(joined(&lines_of_sentences("A  b. C\n\nd")), "A b. C\nd");
        assert!(sentences(" \n ").is_empty());
    }

    #[test]
    fn texts_are_cut_at_sentences_else_at_words() {
        assert_eq!(leading("One two. Three four.", 12), "One two.");
        assert_eq!(cut("One two. Three four.", 12), "One two.");
        assert_eq!(cut("one two three", 9), "one two…");
        assert_eq!(cut("abcdefghij", 5), "");
        // Counted in UTF-16 units.
        assert_eq!(units("😀"), 2);
    }
}
