//! From text to terms (CAT-61).
//!
//! One form of characters, split where a reader would split names (`camelCase`, `snake_case`, `v2`), lower case, and the
//! endings of English taken off lightly. Scripts that do not put spaces between words are searched by pairs of characters.

use std::borrow::Cow;

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfkc_quick};

/// Whether words that say nothing are left out. In a name every word says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopWords {
    Keep,
    Drop,
}

/// Calls `term` with each term of the text, in order: the word as written, in lower case, and its stem.
pub(crate) fn terms(text: &str, stop_words: StopWords, mut term: impl FnMut(&str, &str)) {
    let text: Cow<'_, str> = match is_nfkc_quick(text.chars()) {
        IsNormalized::Yes => Cow::Borrowed(text),
        _ => Cow::Owned(text.nfkc().collect()),
    };
    let mut word = String::new();
    let mut before = Class::Break;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let class = Class::of(c);
        if class == Class::Unspaced {
            emit(&mut word, stop_words, &mut term);
            if let Some(next) = rest.peek().filter(|next| Class::of(**next) == Class::Unspaced) {
                let pair: String = [c, *next].into_iter().collect();
                term(&pair, &pair);
            } else if before != Class::Unspaced {
                let mut alone = [0; 4];
                let alone = &*c.encode_utf8(&mut alone);
                term(alone, alone);
            }
            before = class;
            continue;
        }
        let starts_word = match (before, class) {
            (Class::Lower, Class::Upper) => true,
            // The last capital of `HTTPServer` belongs to what follows.
            (Class::Upper, Class::Upper) => rest.peek().is_some_and(|next| Class::of(*next) == Class::Lower),
            (before, class) => (before == Class::Digit) != (class == Class::Digit),
        };
        if class == Class::Break || starts_word {
            emit(&mut word, stop_words, &mut term);
        }
        if class != Class::Break {
            word.extend(c.to_lowercase());
        }
        before = class;
    }
    emit(&mut word, stop_words, &mut term);
}

/// The terms of a text, gathered.
pub(crate) fn all_terms(text: &str, stop_words: StopWords) -> Vec<String> {
    let mut found = Vec::new();
    terms(text, stop_words, |_, stem| found.push(stem.to_owned()));
    found
}

fn emit(word: &mut String, stop_words: StopWords, term: &mut impl FnMut(&str, &str)) {
    if word.is_empty() {
        return;
    }
    let is_letter = word.len() == 1 && word.as_bytes()[0].is_ascii_alphabetic();
    let says_nothing = stop_words == StopWords::Drop && is_stop_word(word);
    if !is_letter && !says_nothing {
        term(word, &stem(word));
    }
    word.clear();
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Break,
    Lower,
    Upper,
    Digit,
    /// Of a script without spaces between words.
    Unspaced,
}

impl Class {
    fn of(c: char) -> Self {
        match c {
            'a'..='z' => Class::Lower,
            'A'..='Z' => Class::Upper,
            '0'..='9' => Class::Digit,
            '\0'..='\x7f' => Class::Break,
            '\u{0e00}'..='\u{0eff}'
            | '\u{1780}'..='\u{17ff}'
            | '\u{3040}'..='\u{30ff}'
            | '\u{3400}'..='\u{4dbf}'
            | '\u{4e00}'..='\u{9fff}'
            | '\u{ac00}'..='\u{d7a3}'
            | '\u{f900}'..='\u{faff}'
            | '\u{20000}'..='\u{3ffff}' => Class::Unspaced,
            c if c.is_uppercase() => Class::Upper,
            c if c.is_alphabetic() => Class::Lower,
            c if c.is_numeric() => Class::Digit,
            _ => Class::Break,
        }
    }
}

/// Words that stand in most sentences and tell nothing about what is wanted. `get` is not one of them.
const STOP_WORDS: &[&str] = &[
    "a", "about", "after", "again", "also", "am", "an", "and", "any", "are", "as", "at", "be", "because",
    "been", "before", "being", "but", "by", "can", "could", "did", "do", "does", "doing", "each", "for",
    "from", "had", "has", "have", "having", "he", "her", "here", "him", "his", "how", "i", "if", "in",
    "into", "is", "it", "its", "just", "let", "like", "may", "me", "more", "most", "must", "my", "need",
    "needs", "no", "nor", "not", "of", "on", "only", "or", "other", "our", "out", "over", "own", "please",
    "same", "she", "should", "so", "some", "such", "than", "that", "the", "their", "them", "then", "there",
    "these", "they", "this", "those", "through", "to", "too", "tool", "tools", "under", "until", "up", "us",
    "use", "used", "uses", "using", "very", "via", "want", "wants", "was", "we", "were", "what", "when",
    "where", "whether", "which", "while", "who", "whom", "why", "will", "with", "within", "without", "would",
    "you", "your",
];

fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

/// The word without the commonest endings of English. What it gives need not be a word, only the same for all forms.
pub(super) fn stem(word: &str) -> Cow<'_, str> {
    if word.len() <= 3 || !word.bytes().all(|b| b.is_ascii_lowercase()) {
        return Cow::Borrowed(word);
    }
    let mut stem = singular(word);
    if let Some(root) = stem.strip_suffix("ification").filter(|root| root.len() >= 2) {
        return format!("{root}ify").into();
    }
    stem = match_ending(stem);
    if let Some(root) = ["ation", "ate"].iter().find_map(|ending| stem.strip_suffix(ending)) {
        // `creation` and `create` meet in `creat`, `validation` and `validate` in `valid`.
        return if root.len() >= 4 { root.to_owned().into() } else { format!("{root}at").into() };
    }
    if stem.len() >= 5 && stem.ends_with('e') {
        stem.truncate(stem.len() - 1);
    }
    stem.into()
}

fn singular(word: &str) -> String {
    if let Some(root) = word.strip_suffix("ies").filter(|root| root.len() >= 2) {
        return format!("{root}y");
    }
    for ending in ["sses", "shes", "ches", "xes", "zzes"] {
        if word.ends_with(ending) {
            return word[..word.len() - 2].to_owned();
        }
    }
    let plain = word.ends_with("ss") || word.ends_with("us") || word.ends_with("is");
    match word.strip_suffix('s') {
        Some(root) if !plain => root.to_owned(),
        _ => word.to_owned(),
    }
}

/// `-ing` and `-ed`, with what they did to the word.
fn match_ending(word: String) -> String {
    if let Some(root) = word.strip_suffix("ied").filter(|root| root.len() >= 2) {
        return format!("{root}y");
    }
    for ending in ["ating", "ated"] {
        if let Some(root) = word.strip_suffix(ending).filter(|root| root.len() >= 2) {
            return format!("{root}ate");
        }
    }
    let has_vowel = |root: &str| root.bytes().any(|b| b"aeiouy".contains(&b));
    let root = ["ing", "ed"].iter().find_map(|ending| word.strip_suffix(ending));
    let Some(root) = root.filter(|root| root.len() >= 3 && has_vowel(root)) else { return word };
    let bytes = root.as_bytes();
    let (last, before) = (bytes[bytes.len() - 1], bytes[bytes.len() - 2]);
    let is_vowel = |b: u8| b"aeiou".contains(&b);
    if last == before && !is_vowel(last) && !b"lsz".contains(&last) {
        return root[..root.len() - 1].to_owned();
    }
    let short = bytes.len() == 3 && !is_vowel(bytes[0]) && is_vowel(bytes[1]) && !is_vowel(last);
    if short && !b"wxy".contains(&last) { format!("{root}e") } else { root.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<String> {
        all_terms(text, StopWords::Drop)
    }

    #[test]
    fn names_are_split_where_a_reader_would() {
        // CAT-61
        assert_eq!(of("createIssue_v2"), ["creat", "issu", "2"]);
        assert_eq!(of("HTTPServer getURL"), ["http", "server", "get", "url"]);
        assert_eq!(of("ＦＵＬＬ　width ﬁle"), ["full", "width", "file"]);
        assert_eq!(of("s3 bucket"), ["3", "bucket"]);
        assert_eq!(of("x 7 y"), ["7"]);
    }

    #[test]
    fn forms_of_one_word_meet() {
        // CAT-61
        for forms in [
            &["create", "creates", "created", "creating", "creation"][..],
            &["validate", "validation", "validating", "validated"],
            &["issue", "issues"],
            &["query", "queries", "queried"],
            &["run", "running", "runs"],
            &["move", "moving", "moved", "moves"],
            &["configure", "configuration", "configured", "configuring"],
            &["notify", "notification", "notifies"],
            &["branch", "branches"],
            &["merge", "merged", "merging"],
            &["box", "boxes"],
            &["process", "processes", "processing"],
        ] {
            let stems: std::collections::BTreeSet<_> = forms.iter().map(|form| stem(form)).collect();
            assert_eq!(stems.len(), 1, "{forms:?}: {stems:?}");
        }
        for kept in ["status", "address", "this", "sing", "red", "bus", "analysis"] {
            assert_eq!(stem(kept), kept);
        }
    }

    #[test]
    fn stop_words_are_dropped_from_sentences_and_never_from_names() {
        // CAT-61
        assert_eq!(of("get the user of it"), ["get", "user"]);
        assert_eq!(all_terms("list_all_of_them", StopWords::Keep), ["list", "all", "of", "them"]);
        assert!(STOP_WORDS.is_sorted(), "they are searched");
    }

    #[test]
    fn scripts_without_spaces_are_searched_by_pairs() {
        // CAT-61
        assert_eq!(of("查询数据库"), ["查询", "询数", "数据", "据库"]);
        assert_eq!(of("查 db ค้นหา"), ["查", "db", "ค้", "้น", "นห", "หา"]);
        assert_eq!(of("größe ändern"), ["größe", "ändern"]);
        assert!(of("🙂🙂").is_empty());
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics_and_the_same_text_has_the_same_terms(text in ".{0,80}") {
            proptest::prop_assert_eq!(of(&text), of(&text));
        }
    }
}
