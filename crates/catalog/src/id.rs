//! How agents address items (CAT-20, CAT-30): `github:create_issue@1.4.0#34afee88`.
//!
//! An id addresses; it authorises nothing (CAT-25). Approvals, permits and audit use the governed identity and the
//! digest of the definition: eight hexadecimal digits can be met by whoever chooses property names.

use std::fmt;

use crate::CatalogError;
use crate::item::Kind;
use crate::namespace::is_namespace;

const MAX_CHARS: usize = 240;

/// The parts of an id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdParts {
    /// Tool, resource or prompt.
    pub kind: Kind,
    /// `[a-z][a-z0-9_-]{0,63}`.
    pub namespace: String,
    /// `[A-Za-z_][A-Za-z0-9_.-]{0,127}`.
    pub name: String,
    /// `[A-Za-z0-9._-]{1,32}`.
    pub version: Option<String>,
    /// Eight lowercase hexadecimal digits.
    pub hash: Option<String>,
}

impl IdParts {
    /// `namespace:name`, which may stand for the item as long as no other one has it (CAT-23).
    pub fn base_id(&self) -> String {
        format!("{}{}:{}", prefix(self.kind), self.namespace, self.name)
    }
}

impl fmt::Display for IdParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}:{}", prefix(self.kind), self.namespace, self.name)?;
        if let Some(version) = &self.version {
            write!(f, "@{version}")?;
        }
        if let Some(hash) = &self.hash {
            write!(f, "#{hash}")?;
        }
        Ok(())
    }
}

fn prefix(kind: Kind) -> &'static str {
    match kind {
        Kind::Resource => "resource::",
        Kind::Prompt => "prompt::",
        Kind::Tool | Kind::Internal => "",
    }
}

/// Reads an id; the inverse of [`format_id`].
pub fn parse_id(text: &str) -> Result<IdParts, CatalogError> {
    let malformed = |field| Err(CatalogError::malformed(text, field));
    if text.chars().count() > MAX_CHARS {
        return malformed("length");
    }
    // `::` cannot occur in a tool's id, so the three spaces are disjoint.
    let (kind, body) = match text.split_once("::") {
        None => (Kind::Tool, text),
        Some(("resource", body)) => (Kind::Resource, body),
        Some(("prompt", body)) => (Kind::Prompt, body),
        Some(_) => return malformed("kind"),
    };
    let Some((namespace, rest)) = body.split_once(':') else { return malformed("namespace") };
    let (rest, hash) = rest.rsplit_once('#').map_or((rest, None), |(rest, hash)| (rest, Some(hash)));
    let (name, version) = rest.rsplit_once('@').map_or((rest, None), |(name, version)| (name, Some(version)));
    let field = if !is_namespace(namespace) {
        "namespace"
    } else if !is_name(name) {
        "name"
    } else if version.is_some_and(|version| !is_version(version)) {
        "version"
    } else if hash.is_some_and(|hash| !is_hash(hash)) {
        "hash"
    } else {
        return Ok(IdParts {
            kind,
            namespace: namespace.into(),
            name: name.into(),
            version: version.map(Into::into),
            hash: hash.map(Into::into),
        });
    };
    malformed(field)
}

/// Writes an id; refuses parts that do not fit the grammar, so that what is written can be read.
pub fn format_id(parts: &IdParts) -> Result<String, CatalogError> {
    let text = parts.to_string();
    match parse_id(&text)? {
        read if read == *parts => Ok(text),
        _ => Err(CatalogError::malformed(&text, "name")),
    }
}

/// The name inside an id: a slug of what is left of the upstream name, and whether that changed it (CAT-12).
pub(crate) fn slug(text: &str) -> (String, bool) {
    let mut slug = String::with_capacity(text.len());
    let mut in_run = false;
    for c in text.chars() {
        let fits = c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        if fits {
            slug.push(c);
        } else if !in_run {
            slug.push('_');
        }
        in_run = !fits;
    }
    if slug.starts_with(|c: char| !c.is_ascii_alphabetic() && c != '_') {
        slug.insert(0, '_');
    }
    slug.truncate(128);
    if slug.is_empty() {
        slug.push('_');
    }
    let lossy = slug != text;
    (slug, lossy)
}

fn is_name(text: &str) -> bool {
    text.len() <= 128
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

pub(crate) fn is_version(text: &str) -> bool {
    (1..=32).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

fn is_hash(text: &str) -> bool {
    text.len() == 8 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_id_says_which_part_is_wrong() {
        // CAT-20
        for (text, field) in [
            ("create_issue", "namespace"),
            ("GitHub:x", "namespace"),
            ("a:9x", "name"),
            ("a:", "name"),
            ("a:b@", "version"),
            ("a:b@1 2", "version"),
            ("a:b#12", "hash"),
            ("a:b#ABCDEF12", "hash"),
            ("tool::a:b", "kind"),
            ("agent::a:b", "kind"),
        ] {
            let error = parse_id(text).unwrap_err();
            assert!(
                matches!(error, CatalogError::IdMalformed { field: found, .. } if found == field),
                "{text}: {error}"
            );
        }
        let long = format!("{}:{}@{}#12345678", "a".repeat(64), "b".repeat(128), "1".repeat(60));
        assert!(matches!(parse_id(&long), Err(CatalogError::IdMalformed { field: "length", .. })));
    }

    #[test]
    fn slugs_keep_what_they_can() {
        // CAT-12
        for (text, wanted, lossy) in [
            ("b/c", "b_c", true),
            ("9lives", "_9lives", true),
            ("查询", "_", true),
            ("", "_", true),
            ("a.b-c_d", "a.b-c_d", false),
            (".x", "_.x", true),
        ] {
            assert_eq!(slug(text), (wanted.to_owned(), lossy), "{text}");
        }
        assert_eq!(slug(&"x".repeat(300)), ("x".repeat(128), true));
    }

    #[test]
    fn parse_and_format_are_inverse() {
        // T-CAT-2: a hundred thousand ids made of parts drawn by a small generator, so that it stays quick.
        let mut state = 42u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let mut text = |first: &str, rest: &str, most: usize| {
            let pick = |letters: &str, at: usize| letters.as_bytes()[at] as char;
            let mut text: String = pick(first, next(first.len())).into();
            (0..next(most)).for_each(|_| text.push(pick(rest, next(rest.len()))));
            text
        };
        let (lower, digits) = ("abcdefghijklmnopqrstuvwxyz", "0123456789");
        let letters = format!("{lower}ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
        let any = format!("{letters}{digits}.-");
        for round in 0..100_000u32 {
            let parts = IdParts {
                kind: [Kind::Tool, Kind::Resource, Kind::Prompt][round as usize % 3],
                namespace: text(lower, &format!("{lower}{digits}_-"), 20),
                name: text(&letters, &any, 40),
                version: (round % 2 == 0).then(|| text(&any, &any, 32)),
                hash: (round % 5 != 0).then(|| format!("{:08x}", round.wrapping_mul(2_654_435_761))),
            };
            let id = format_id(&parts).unwrap();
            assert_eq!(parse_id(&id).unwrap(), parts);
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_the_parser_and_what_it_reads_it_writes(text in "[a-z:@#._~-]{0,40}|.{0,60}") {
            if let Ok(parts) = parse_id(&text) {
                prop_assert_eq!(format_id(&parts).unwrap(), text);
            }
        }
    }
}
