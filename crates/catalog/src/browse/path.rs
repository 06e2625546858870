//! `/github/issue/create_issue` (CAT-75).

use crate::namespace::is_namespace;

/// A well-formed path; a trailing `*` is as good as nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path<'p> {
    pub(crate) namespace: Option<&'p str>,
    pub(crate) rest: Vec<&'p str>,
}

impl<'p> Path<'p> {
    /// Reads a path, or says what is wrong with it.
    pub(crate) fn parse(text: &'p str) -> Result<Self, &'static str> {
        let Some(body) = text.strip_prefix('/') else { return Err("a path starts with /") };
        if body.is_empty() || body == "*" {
            return Ok(Self { namespace: None, rest: Vec::new() });
        }
        let mut segments: Vec<&str> = body.split('/').collect();
        if segments.last() == Some(&"*") {
            segments.pop();
        }
        if segments.iter().any(|segment| segment.is_empty()) {
            return Err("a path has no empty segment and no slash at its end");
        }
        let (namespace, rest) = (segments[0], &segments[1..]);
        if !is_namespace(namespace) || !rest.iter().all(|segment| is_segment(segment)) {
            return Err(
                "a segment is of lower-case letters, digits, - and _, at most 64; * only as the last one",
            );
        }
        Ok(Self { namespace: Some(namespace), rest: rest.to_vec() })
    }
}

pub(crate) fn is_segment(text: &str) -> bool {
    let first = text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    first
        && text.len() <= 64
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
}

/// The last segment of an item's path: its name in lower case, everything else an underscore.
pub(crate) fn leaf(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { '_' };
    let text: String = name.chars().map(plain).collect();
    let text = text.trim_start_matches(['_', '-']);
    match &text[..text.len().min(64)] {
        "" => "x".into(),
        leaf => leaf.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_one_grammar() {
        // CAT-75, T-CAT-21
        for good in ["/", "/*", "/github", "/github/*", "/github/issue/create_issue", "/a/0-x"] {
            assert!(Path::parse(good).is_ok(), "{good}");
        }
        assert_eq!(Path::parse("/github/*"), Path::parse("/github"));
        for bad in
            ["", "github", "//x", "/X", "/a/", "/*/a", "/a//b", "/a/*/b", "/a b", "/a/_b", "/a/é", "/a/B"]
        {
            assert!(Path::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_name_has_a_leaf_that_can_be_asked_for() {
        // CAT-76
        for (name, wanted) in [("createIssue", "createissue"), ("a.b", "a_b"), ("_x", "x"), ("查询", "x")] {
            assert_eq!(leaf(name), wanted);
            assert!(is_segment(wanted));
        }
        assert_eq!(leaf(&"n".repeat(90)).len(), 64);
    }
}
