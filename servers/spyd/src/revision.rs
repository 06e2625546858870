//! The protocol's revisions, and which of them this process speaks.

use std::str::FromStr;

/// Legacy revisions, the newest first.
pub(crate) const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// The modern revision.
pub(crate) const MODERN: &str = "2026-07-28";

/// Before or after the protocol lost its opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    Legacy,
    Modern,
}

/// What the process is willing to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Revisions {
    /// Every legacy revision.
    Legacy,
    /// Only the modern one.
    Modern,
    /// Whichever the client opens with.
    Both,
    /// One legacy revision, whatever the client proposes.
    Exactly(&'static str),
}

impl Revisions {
    pub(crate) fn speaks(self, era: Era) -> bool {
        match self {
            Self::Both => true,
            Self::Modern => era == Era::Modern,
            Self::Legacy | Self::Exactly(_) => era == Era::Legacy,
        }
    }

    /// The revision with which to answer an `initialize` that proposes `asked`.
    pub(crate) fn negotiate(self, asked: &str) -> &'static str {
        match self {
            Self::Exactly(revision) => revision,
            _ => LEGACY.into_iter().find(|known| *known == asked).unwrap_or(LEGACY[0]),
        }
    }
}

impl FromStr for Revisions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "legacy" => Ok(Self::Legacy),
            "modern" | MODERN => Ok(Self::Modern),
            "both" => Ok(Self::Both),
            _ => LEGACY
                .into_iter()
                .find(|known| *known == text)
                .map(Self::Exactly)
                .ok_or_else(|| format!("legacy, modern, both, {MODERN} or one of {}", LEGACY.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_revision_is_answered_whatever_was_proposed() {
        let only: Revisions = "2025-03-26".parse().unwrap();
        assert_eq!(only.negotiate("2025-11-25"), "2025-03-26");
        assert!(!only.speaks(Era::Modern));
        assert_eq!(Revisions::Both.negotiate("2024-11-05"), "2024-11-05");
        assert_eq!(Revisions::Both.negotiate("2026-07-28"), "2025-11-25");
        assert!("2023-01-01".parse::<Revisions>().is_err());
    }
}
