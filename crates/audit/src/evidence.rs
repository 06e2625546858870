//! The words of evidence: what role an object plays, how long it is kept, and how a record refers to it.
//!
//! A record says what happened in a few hundred bytes; the exact bytes it happened with are evidence objects,
//! sealed and stored apart so that they can be destroyed on schedule while the log stays whole (AUD-40..43).

use std::fmt;
use std::str::FromStr;

use portcullis_core::{Sha256Digest, Timestamp};
use serde::{Deserialize, Serialize};

/// What an evidence object is to the record that names it (AUD-40). Always exact bytes, never a cleaned form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The client's message as it was received.
    Proposal,
    /// The canonical request document with its nonce.
    Canonical,
    /// The frame sent upstream.
    Request,
    /// The bytes received from upstream, before any check.
    Response,
    /// What the server wrote to its standard error.
    Stderr,
    /// The view an operator approved.
    Presented,
    /// A capability declaration.
    Declaration,
    /// A policy bundle.
    Policy,
    /// What a server said when it was probed.
    Probe,
    /// A member of `data` too large for the record (AUD-10).
    Data,
}

impl Role {
    /// The word in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Proposal => "proposal",
            Role::Canonical => "canonical",
            Role::Request => "request",
            Role::Response => "response",
            Role::Stderr => "stderr",
            Role::Presented => "presented",
            Role::Declaration => "declaration",
            Role::Policy => "policy",
            Role::Probe => "probe",
            Role::Data => "data",
        }
    }
}

/// How long an object is kept (AUD-43). Its key is destroyed with the class's day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RetentionClass {
    /// Ninety days.
    Standard,
    /// Thirty days: tools with credentials or access to secrets.
    Sensitive,
    /// Thirty days: what probing a server brought up.
    Probe,
    /// Until somebody says otherwise.
    Hold,
}

impl RetentionClass {
    /// Every class.
    pub const ALL: [RetentionClass; 4] =
        [RetentionClass::Standard, RetentionClass::Sensitive, RetentionClass::Probe, RetentionClass::Hold];

    /// The word in records, and the name of the folder of its packs.
    pub const fn as_str(self) -> &'static str {
        match self {
            RetentionClass::Standard => "standard",
            RetentionClass::Sensitive => "sensitive",
            RetentionClass::Probe => "probe",
            RetentionClass::Hold => "hold",
        }
    }

    const fn prefix(self) -> &'static str {
        match self {
            RetentionClass::Standard => "std",
            RetentionClass::Sensitive => "sens",
            RetentionClass::Probe => "probe",
            RetentionClass::Hold => "hold",
        }
    }
}

/// A UTC day, `20261116`: the unit in which evidence is kept and destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Day(u32);

impl Day {
    pub(crate) fn of(time: Timestamp) -> Self {
        Self(time.yyyymmdd().parse().unwrap_or(0))
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08}", self.0)
    }
}

/// The name of a data key: `std-20261116-1` (AUD-42).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyName {
    pub(crate) class: RetentionClass,
    pub(crate) day: Day,
    pub(crate) number: u32,
}

impl KeyName {
    /// The retention class of everything sealed with this key.
    pub fn class(self) -> RetentionClass {
        self.class
    }

    /// The UTC day it was used on, `20261116`.
    pub fn day(self) -> String {
        self.day.to_string()
    }
}

/// The text is not the name of a data key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a data key name: expected something like std-20261116-1")]
pub struct KeyNameError;

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.class.prefix(), self.day, self.number)
    }
}

impl FromStr for KeyName {
    type Err = KeyNameError;
    fn from_str(text: &str) -> Result<Self, KeyNameError> {
        let mut parts = text.split('-');
        let (Some(prefix), Some(day), Some(number), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(KeyNameError);
        };
        let class = RetentionClass::ALL.into_iter().find(|class| class.prefix() == prefix);
        let name = Self {
            class: class.ok_or(KeyNameError)?,
            day: Day(day.parse().map_err(|_| KeyNameError)?),
            number: number.parse().map_err(|_| KeyNameError)?,
        };
        if name.to_string() == text { Ok(name) } else { Err(KeyNameError) }
    }
}

impl Serialize for KeyName {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for KeyName {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// How a record refers to an evidence object. Fields are in canonical order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvidenceRef {
    /// Length of the exact bytes, before compression and sealing.
    pub bytes: u64,
    /// The data key it is sealed with.
    pub key: KeyName,
    /// Its address: SHA-256 of nonce and ciphertext.
    pub object: Sha256Digest,
    /// What it is.
    pub role: Role,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_name_has_one_spelling() {
        let name: KeyName = "std-20261116-1".parse().unwrap();
        assert_eq!((name.class(), name.to_string().as_str()), (RetentionClass::Standard, "std-20261116-1"));
        for bad in ["std-20261116-01", "std-20261116", "xyz-20261116-1", "std-2026-1", "std-20261116-1-1", ""]
        {
            assert!(bad.parse::<KeyName>().is_err(), "{bad}");
        }
    }
}
