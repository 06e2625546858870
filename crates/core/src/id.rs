//! Identifiers as newtypes, so that a session can never be passed where a permit is meant.
//!
//! All but [`ApprovalId`] are ULIDs: 26 characters, sortable by birth. An approval id travels through agents'
//! hands inside an error message, so it is 128 random bits and says nothing about when or after what it was made.

use std::fmt;
use std::str::FromStr;

use rand::RngExt as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use ulid::Ulid;

use crate::clock::Timestamp;

/// The text is not an identifier of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a valid {what}: expected {expected}")]
pub struct IdError {
    what: &'static str,
    expected: &'static str,
}

macro_rules! ulid_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Ulid);

        impl $name {
            /// A fresh id born at `now`.
            pub fn new(now: Timestamp) -> Self {
                Self(Ulid::from_parts(now.as_millis(), rand::rng().random::<u128>()))
            }

            /// The sixteen bytes of the id.
            pub fn to_bytes(self) -> [u8; 16] {
                self.0.to_bytes()
            }

            /// The id with these sixteen bytes.
            pub fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Ulid::from_bytes(bytes))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut buf = [0; ulid::ULID_LEN];
                f.write_str(self.0.array_to_str(&mut buf))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                let error = IdError { what: $what, expected: "26 characters of Crockford base 32" };
                let ulid = Ulid::from_string(text).map_err(|_| error.clone())?;
                // The decoder is lenient about case; an identifier has one spelling.
                let mut buf = [0; ulid::ULID_LEN];
                if ulid.array_to_str(&mut buf) != text { return Err(error) }
                Ok(Self(ulid))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                let mut buf = [0; ulid::ULID_LEN];
                s.serialize_str(self.0.array_to_str(&mut buf))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                std::borrow::Cow::<'de, str>::deserialize(d)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

ulid_id!(
    /// One conversation of one principal with the gateway. Minted by the control plane (GOV-1202).
    SessionId, "session id");
ulid_id!(
    /// One thing an agent asked for, from intake to result.
    ProposalId, "proposal id");
ulid_id!(
    /// One permission to transmit one exact request once.
    PermitId, "permit id");
ulid_id!(
    /// One record in the audit log.
    EventId, "event id");
ulid_id!(
    /// One audit log; equal to the id of the replica that writes it.
    LogId, "log id");
ulid_id!(
    /// One defect that ended a call: told to its caller, and logged beside the line that says where.
    IncidentId, "incident id");
ulid_id!(
    /// One life of a registered server. Name and version can repeat after a removal, the epoch cannot (GOV-602).
    RegistrationEpoch, "registration epoch");

/// One pending or decided approval: 128 random bits in hex (GOV-901).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ApprovalId([u8; 16]);

impl ApprovalId {
    /// A fresh, unguessable id.
    pub fn random() -> Self {
        Self(rand::rng().random())
    }
}

impl fmt::Display for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::digest::write_hex(f, &self.0)
    }
}

impl fmt::Debug for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApprovalId({self})")
    }
}

impl FromStr for ApprovalId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        crate::digest::parse_hex(text)
            .map(Self)
            .ok_or(IdError { what: "approval id", expected: "32 lowercase hexadecimal digits" })
    }
}

impl Serialize for ApprovalId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ApprovalId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_the_round_trip_through_text() {
        let id = PermitId::new(Timestamp::from_millis(1_700_000_000_000));
        assert_eq!(id.to_string().parse::<PermitId>().unwrap(), id);
        assert_eq!(id.to_string().len(), 26);
        let approval = ApprovalId::random();
        assert_eq!(approval.to_string().parse::<ApprovalId>().unwrap(), approval);
    }

    #[test]
    fn a_second_spelling_of_an_id_is_refused() {
        let id = SessionId::new(Timestamp::from_millis(1)).to_string();
        assert!(id.to_lowercase().parse::<SessionId>().is_err());
        assert!("".parse::<SessionId>().is_err());
        assert!("8ZZZZZZZZZZZZZZZZZZZZZZZZZZ".parse::<SessionId>().is_err());
        assert!("ABCDEF0123456789ABCDEF0123456789".parse::<ApprovalId>().is_err());
    }
}
