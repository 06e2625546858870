//! Names with a grammar.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The text breaks the grammar of the name it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} must match {grammar}, got {shown}")]
pub struct NameError {
    what: &'static str,
    grammar: &'static str,
    shown: String,
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $grammar:literal, $valid:path) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                if $valid(text) {
                    Ok(Self(text.into()))
                } else {
                    Err(NameError { what: $what, grammar: $grammar, shown: printable(text) })
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:?})"), &self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                std::borrow::Cow::<'de, str>::deserialize(d)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

name!(
    /// The operator's name for a server, stable and unique (GOV-202).
    ServerIdentity, "server identity", "^[a-z][a-z0-9-]{0,62}$", is_server_identity);
name!(
    /// A server's version: opaque, printable, free of the separators of a tool id (GOV-202).
    ServerVersion, "server version", "1 to 64 printable ASCII characters without `/`, `@`, `#` or space",
    is_server_version);
name!(
    /// A tool's name, byte-equal to what the server calls it (GOV-402).
    ToolName, "tool name", "^[A-Za-z0-9_./-]{1,128}$", is_tool_name);
name!(
    /// The name of a scope inside one declaration (GOV-402).
    ScopeName, "scope name", "^[a-z][a-z0-9_]{0,62}$", is_scope_name);

fn is_server_identity(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.as_bytes()[0].is_ascii_lowercase()
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn is_server_version(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'/' | b'@' | b'#'))
}

fn is_tool_name(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'/' | b'-'))
}

fn is_scope_name(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.as_bytes()[0].is_ascii_lowercase()
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// Hostile text, made safe to show: quoted, escaped, cut at 80 characters.
pub fn printable(text: &str) -> String {
    // Between double quotes a single one stands for itself.
    let escaped = |c: char| if c == '\'' { "'".to_owned() } else { c.escape_debug().to_string() };
    let mut shown: String = text.chars().take(80).map(escaped).collect();
    if text.chars().nth(80).is_some() {
        shown.push('…');
    }
    format!("\"{shown}\"")
}

/// Whether a person would see anything: a justification of zero-width characters is blank (GOV-202).
pub fn has_visible_character(text: &str) -> bool {
    text.chars().any(|c| {
        !c.is_whitespace()
            && !c.is_control()
            // Default_Ignorable_Code_Point and the blank-looking letters people hide behind.
            && !matches!(c,
                '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
                | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
                | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_their_grammar() {
        // GOV-202
        for good in ["a", "filesystem", "a-1", &"a".repeat(63)] {
            assert!(good.parse::<ServerIdentity>().is_ok(), "{good}");
        }
        for bad in ["", "A", "1a", "-a", "a_b", "a b", "ä", &"a".repeat(64)] {
            assert!(bad.parse::<ServerIdentity>().is_err(), "{bad}");
        }
        for bad in ["", "1 0", "1/0", "1@0", "1#0", "1\n", &"1".repeat(65)] {
            assert!(bad.parse::<ServerVersion>().is_err(), "{bad:?}");
        }
        for good in ["read_file", "a/b", "a.b-c", &"x".repeat(128)] {
            assert!(good.parse::<ToolName>().is_ok(), "{good}");
        }
        for bad in ["", "a b", "a:b", "a@b", "a#b", "read_file ", "réad", &"x".repeat(129)] {
            assert!(bad.parse::<ToolName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_error_shows_hostile_text_escaped_and_cut() {
        let error = "\u{1b}[31mred\u{202e}".parse::<ToolName>().unwrap_err().to_string();
        assert!(!error.contains('\u{1b}') && !error.contains('\u{202e}'), "{error}");
        assert!("x ".repeat(4000).parse::<ToolName>().unwrap_err().to_string().len() < 300);
    }

    #[test]
    fn zero_width_text_is_blank() {
        // GOV-202: "\u200b" is refused as a justification.
        for blank in ["", " \t\n", "\u{200b}", "\u{2060}\u{feff}", "\u{3164}", "\u{e0041}"] {
            assert!(!has_visible_character(blank), "{blank:?}");
        }
        assert!(has_visible_character("\u{200b}x"));
    }
}
