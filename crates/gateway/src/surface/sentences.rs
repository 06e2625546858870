//! Sentences of a description, as duplicates are counted and rewrites made (SURF-31).

/// Shorter ones are not worth counting.
pub(super) const COUNTED: usize = 25;

/// The sentences of a text, line by line, with whitespace collapsed.
pub(super) fn lines_of_sentences(text: &str) -> Vec<Vec<String>> {
    text.split('\n').map(sentences_of_line).filter(|line| !line.is_empty()).collect()
}

/// The sentences of a text.
pub(super) fn sentences(text: &str) -> Vec<String> {
    lines_of_sentences(text).concat()
}

fn sentences_of_line(line: &str) -> Vec<String> {
    let line: Vec<char> = line.split_whitespace().collect::<Vec<_>>().join(" ").chars().collect();
    let (mut found, mut start, mut quoted) = (Vec::new(), 0, false);
    let mut take = |from: usize, to: usize| {
        let sentence: String = line[from..to].iter().collect();
        if !sentence.trim().is_empty() {
            found.push(sentence.trim().to_owned());
        }
    };
    for (at, c) in line.iter().enumerate() {
        quoted ^= *c == '`';
        if matches!(c, '.' | '!' | '?') && !quoted && ends_here(&line[at + 1..]) {
            take(start, at + 1);
            start = at + 1;
        }
    }
    take(start, line.len());
    found
}

/// Whether what follows begins something new.
fn ends_here(rest: &[char]) -> bool {
    match rest {
        [] => true,
        [' ', next, ..] => {
            next.is_uppercase() || next.is_ascii_digit() || matches!(next, '`' | '"' | '\'' | '(' | '[')
        }
        _ => false,
    }
}

/// A text put together again from what is left of its sentences.
pub(super) fn joined(lines: &[Vec<String>]) -> String {
    let lines = lines.iter().filter(|line| !line.is_empty()).map(|line| line.join(" "));
    lines.collect::<Vec<_>>().join("\n")
}

/// Length as clients count it: UTF-16 units (SURF-60).
pub(super) fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

/// The leading whole sentences of `text` that fit into `most` units; empty if not even the first does.
pub(super) fn leading(text: &str, most: usize) -> String {
    let mut kept = String::new();
    for sentence in sentences(text) {
        let longer = if kept.is_empty() { sentence } else { format!("{kept} {sentence}") };
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
