//! The revisions of the protocol, and the two eras they fall into.

use std::fmt;

/// Which era a client speaks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Era {
    /// 2024-11-05 to 2025-11-25: `initialize`, sessions.
    Legacy,
    /// 2026-07-28: every request stands alone.
    Modern,
}

/// One published revision. Later ones compare greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)]
pub enum Revision {
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
}

/// The one revision of the modern era.
pub const MODERN: Revision = Revision::V2026_07_28;
/// The newest revision of the legacy era: what a client gets that asks for one we do not know (PRO-4).
pub const NEWEST_LEGACY: Revision = Revision::V2025_11_25;
/// All revisions a client may speak, newest first.
pub const SUPPORTED: [Revision; 5] = [
    Revision::V2026_07_28,
    Revision::V2025_11_25,
    Revision::V2025_06_18,
    Revision::V2025_03_26,
    Revision::V2024_11_05,
];

impl Revision {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Revision::V2024_11_05 => "2024-11-05",
            Revision::V2025_03_26 => "2025-03-26",
            Revision::V2025_06_18 => "2025-06-18",
            Revision::V2025_11_25 => "2025-11-25",
            Revision::V2026_07_28 => "2026-07-28",
        }
    }

    /// The revision with this name, if it is one.
    pub fn named(name: &str) -> Option<Self> {
        SUPPORTED.into_iter().find(|revision| revision.as_str() == name)
    }

    /// The era it falls into.
    pub const fn era(self) -> Era {
        match self {
            Revision::V2026_07_28 => Era::Modern,
            _ => Era::Legacy,
        }
    }

    /// What `initialize` settles on: the client's revision if it is a legacy one, else our newest (PRO-4).
    pub(crate) fn agree(asked: &str) -> Self {
        Self::named(asked).filter(|revision| revision.era() == Era::Legacy).unwrap_or(NEWEST_LEGACY)
    }

    /// Tasks came with 2025-11-25, and are an extension since.
    pub(crate) fn has_tasks(self) -> bool {
        self >= Revision::V2025_11_25
    }

    /// Only 2025-03-26 knows batches.
    pub(crate) fn has_batches(self) -> bool {
        self == Revision::V2025_03_26
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_legacy_revision_is_agreed_to_and_anything_else_gets_the_newest() {
        // PRO-4
        assert_eq!(Revision::agree("2025-03-26"), Revision::V2025_03_26);
        for other in ["2026-07-28", "1999-01-01", ""] {
            assert_eq!(Revision::agree(other), NEWEST_LEGACY, "{other}");
        }
        assert!(SUPPORTED.windows(2).all(|pair| pair[0] > pair[1]));
    }
}
