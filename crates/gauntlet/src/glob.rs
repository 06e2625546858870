//! Patterns with `*`, `?`, `[..]` and `\` (GNT-C5). A star crosses `/`.

/// A pattern that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    source: Box<str>,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    One(char),
    Any,
    Many,
    Class { negated: bool, ranges: Vec<(char, char)> },
}

/// The longest pattern, in characters: with it, matching is linear in the text.
const MAX_PARTS: usize = 512;

impl Glob {
    /// Reads a pattern; the error says what is wrong with it.
    pub fn parse(source: &str) -> Result<Self, &'static str> {
        let mut parts = Vec::new();
        let mut chars = source.chars();
        while let Some(c) = chars.next() {
            let part = match c {
                '*' if parts.last() == Some(&Part::Many) => continue,
                '*' => Part::Many,
                '?' => Part::Any,
                '\\' => Part::One(chars.next().ok_or("ends with a backslash")?),
                '[' => class(&mut chars)?,
                c => Part::One(c),
            };
            parts.push(part);
        }
        if parts.len() > MAX_PARTS {
            return Err("is longer than 512 characters");
        }
        Ok(Self { source: source.into(), parts })
    }

    /// Whether the whole text matches. A failed attempt goes back to the last star only: what an earlier one took
    /// can stay as it is.
    pub fn matches(&self, text: &str) -> bool {
        let mut part = 0;
        let mut rest = text.chars();
        let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            if self.parts.get(part) == Some(&Part::Many) {
                part += 1;
                retry = Some((part, rest.clone()));
                continue;
            }
            let mut ahead = rest.clone();
            match (ahead.next(), self.parts.get(part)) {
                (None, None) => return true,
                (Some(c), Some(expected)) if expected.admits(c) => {
                    part += 1;
                    rest = ahead;
                    continue;
                }
                _ => {}
            }
            let Some((after_star, taken)) = &mut retry else { return false };
            if taken.next().is_none() {
                return false;
            }
            part = *after_star;
            rest = taken.clone();
        }
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.source
    }
}

impl Part {
    fn admits(&self, c: char) -> bool {
        match self {
            Part::One(one) => *one == c,
            Part::Any | Part::Many => true,
            Part::Class { negated, ranges } => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&c)) != *negated
            }
        }
    }
}

/// The rest of a class, behind its bracket.
fn class(chars: &mut std::str::Chars<'_>) -> Result<Part, &'static str> {
    let negated = chars.as_str().starts_with(['!', '^']);
    if negated {
        chars.next();
    }
    let mut ranges: Vec<(char, char)> = Vec::new();
    loop {
        let first = match chars.next().ok_or("has a bracket that is not closed")? {
            ']' if !ranges.is_empty() => return Ok(Part::Class { negated, ranges }),
            '\\' => chars.next().ok_or("has a bracket that is not closed")?,
            c => c,
        };
        let mut ahead = chars.clone();
        let last = match (ahead.next(), ahead.next()) {
            (Some('-'), Some(last)) if last != ']' => {
                *chars = ahead;
                last
            }
            _ => first,
        };
        ranges.push((first, last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_texts() {
        // GNT-C5
        let matches = |pattern: &str, text: &str| Glob::parse(pattern).unwrap().matches(text);
        for (pattern, text) in [
            ("/secrets/*", "/secrets/a/b/c"),
            ("/secrets/*", "/secrets/"),
            ("*", ""),
            ("a?c", "abc"),
            ("[a-c]x[!0-9]", "bxy"),
            ("[]]", "]"),
            (r"\*", "*"),
            ("*a*b*c", "xxaybzc"),
            ("ä*", "äö"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("/secrets/*", "/secrets"),
            ("a?c", "ac"),
            ("[a-c]", "d"),
            (r"\*", "x"),
            ("a*b", "ab c"),
            ("", "x"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
        for bad in ["[", "[a", "a\\", "[!"] {
            assert!(Glob::parse(bad).is_err(), "{bad}");
        }
        // A backtracking matcher would not come back from this.
        assert!(!matches(&"*a".repeat(200), &"a".repeat(150_000).replace('a', "ab")));
    }
}
