//! Which family of tools a name belongs to (CAT-10).
//!
//! A namespace is presentation: it groups what is shown and grants nothing. It is read off the name, because that is
//! where servers put it: `github.create_issue`, `filesystem/read`, `slack_send_message`.

/// Where items go whose name tells nothing.
pub const FALLBACK: &str = "mcp";

/// First words that are what a tool does, not where it belongs.
const VERBS: &str = "get list create delete update set add remove read write search find fetch query run execute \
    start stop send post put patch show check open close move copy make new is has do convert generate validate \
    upload download import export";

/// A namespace, and how it was come by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inferred {
    pub(crate) namespace: String,
    /// The text had to be changed, so another text may have become the same.
    pub(crate) lossy: bool,
    /// The byte index of the separator it ends at, if it was one that does not belong to the name.
    pub(crate) separator: Option<usize>,
}

/// The namespace of a name.
///
/// ```
/// use portcullis_catalog::infer_namespace;
/// assert_eq!(infer_namespace("github.create_issue"), "github");
/// assert_eq!(infer_namespace("slack_send_message"), "slack");
/// assert_eq!(infer_namespace("search_database"), "mcp");
/// ```
pub fn infer_namespace(name: &str) -> String {
    infer(name).namespace
}

pub(crate) fn infer(name: &str) -> Inferred {
    let none = || Inferred { namespace: FALLBACK.into(), lossy: false, separator: None };
    match name.find(['.', '/']) {
        Some(0) => none(),
        Some(index) => normalised(&name[..index], Some(index)),
        None => {
            let mut pieces = name.split('_');
            let first = pieces.next().unwrap_or_default();
            if pieces.count() >= 2 && !first.is_empty() && !is_verb(first) {
                normalised(first, None)
            } else {
                none()
            }
        }
    }
}

/// Whether a word of a name says what a tool does.
pub(crate) fn is_verb(word: &str) -> bool {
    VERBS.split_ascii_whitespace().any(|verb| verb.eq_ignore_ascii_case(word))
}

/// Whether the text is a namespace: `[a-z][a-z0-9_-]{0,63}`.
pub fn is_namespace(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
}

fn normalised(candidate: &str, separator: Option<usize>) -> Inferred {
    let mut text = String::with_capacity(candidate.len());
    for c in candidate.chars() {
        let c = c.to_ascii_lowercase();
        if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-' {
            text.push(c);
        } else if !text.ends_with('\u{0}') {
            // One mark per run; real dashes beside it stay.
            text.push('\u{0}');
        }
    }
    let text = text.replace('\u{0}', "-");
    let mut text = text.trim_matches(['-', '_']).to_owned();
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        text.insert(0, 'x');
    }
    text.truncate(64);
    if text.is_empty() {
        text.push_str(FALLBACK);
    }
    Inferred { lossy: text != candidate, namespace: text, separator }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_has_its_namespace() {
        // CAT-10, T-CAT-1
        for (name, namespace) in [
            ("github.create_issue", "github"),
            ("filesystem/read", "filesystem"),
            ("slack_send_message", "slack"),
            ("search_database", "mcp"),
            ("read_file", "mcp"),
            ("", "mcp"),
            (".x", "mcp"),
            ("/y", "mcp"),
            ("_a_b", "mcp"),
            ("a__b", "a"),
            ("a.b/c", "a"),
            ("a/b.c", "a"),
            ("get_current_time", "mcp"),
            ("GET_current_time", "mcp"),
            ("GitHub.create", "github"),
            ("3scale.list", "x3scale"),
            ("café.order", "caf"),
            ("--.x", "mcp"),
            ("查询.x", "mcp"),
            ("a b.c", "a-b"),
        ] {
            assert_eq!(infer_namespace(name), namespace, "{name:?}");
            assert!(is_namespace(&infer_namespace(name)), "{name:?}");
        }
        assert!(infer("café.order").lossy && infer("GitHub.create").lossy && !infer("github.x").lossy);
        assert!(infer(&format!("{}.x", "a".repeat(70))).lossy);
    }

    proptest::proptest! {
        #[test]
        fn whatever_the_name_the_namespace_is_one(name in ".{0,90}") {
            proptest::prop_assert!(is_namespace(&infer_namespace(&name)));
        }
    }
}
