//! The registration record of a server (GOV-202, GOV-203).

use std::collections::BTreeMap;
use std::time::Duration;

use portcullis_core::{
    DeclarationVersion, RegistrationEpoch, ServerIdentity, ServerVersion, Sha256Digest, Timestamp,
};
use portcullis_sandbox::{Limits, Profile};
use serde::{Deserialize, Serialize};

use crate::confinement;
use crate::endpoint::{HttpEndpoint, Pin};

/// Where Portcullis runs; a server is registered for some of these.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One person's machine.
    Local,
    /// A team's shared gateway.
    Team,
    /// A company's.
    Enterprise,
    /// Unattended pipelines.
    Ci,
}

/// How the server is reached.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "transport", rename_all = "lowercase")]
pub enum Transport {
    /// A child process of the gateway.
    Stdio {
        /// What is started.
        process: Process,
    },
    /// Streamable HTTP.
    Http {
        /// Where it listens.
        url: HttpEndpoint,
        /// SHA-256 of the key its certificate must hold, if the operator pinned one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tls_spki_sha256: Option<Sha256Digest>,
    },
    /// HTTP with a stream of events beside it, as in revision 2024-11-05.
    Sse {
        /// Where the stream is.
        url: HttpEndpoint,
        /// SHA-256 of the key its certificate must hold, if the operator pinned one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tls_spki_sha256: Option<Sha256Digest>,
    },
    /// A resource server of records, behind the built-in adapter (REC-1).
    Records {
        /// Its base.
        url: HttpEndpoint,
        /// The file that holds the bearer of its grant.
        credential_file: String,
    },
}

/// A program to start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Absolute path, symlinks resolved.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its working directory.
    pub cwd: String,
    /// Its whole environment: nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// How much each process of it may use, as configured when it was registered.
    #[serde(default, skip_serializing_if = "Limits::is_usual")]
    pub limits: Limits,
    /// How its tools are spread over processes. Records from before there was a choice say nothing of it.
    #[serde(default = "ProcessModel::before_there_was_a_choice")]
    pub process_model: ProcessModel,
    /// Whether a lasting process serves tools with credentials too, where the process itself never gets one: the
    /// operator chose `per_profile` in so many words (SBX-12).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lasting_with_credentials: bool,
    /// All that its declaration has, in one cage: what it is looked at in, and what confines a shared process. There is
    /// no process without one (SBX-73).
    pub profile: Box<Profile>,
    /// Digest of the profile, which permits and intents of a shared process repeat (SBX-11).
    pub profile_sha256: Sha256Digest,
}

/// How the tools of a server are spread over processes (SBX-12).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessModel {
    /// One process for each set of scopes and each principal: a tool that reads has its folders for reading.
    #[default]
    PerProfile,
    /// One process for each call.
    PerCall,
    /// One process for all tools, with the scopes of all of them.
    Shared,
}

impl ProcessModel {
    /// The word in records, approvals and intents.
    pub fn as_str(self) -> &'static str {
        match self {
            ProcessModel::PerProfile => "per_profile",
            ProcessModel::PerCall => "per_call",
            ProcessModel::Shared => "shared",
        }
    }

    fn before_there_was_a_choice() -> Self {
        ProcessModel::Shared
    }
}

impl Process {
    /// Puts the process into another cage.
    pub fn confine(&mut self, profile: Profile) {
        self.profile_sha256 = confinement::digest(&profile);
        *self.profile = profile;
    }
}

/// How far the server's effects are confined (SBX §10).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// A child process in a cage that was derived from its declaration, tested before every start.
    Enforced,
    /// A server on another host, vouched for by the operator.
    External,
    /// A loopback server that we did not start; the operator waived isolation, with a reason.
    UnmanagedLocal,
}

/// Whether the set of tools may change while the server runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Surface {
    /// The live server must equal the declaration.
    Static,
    /// Self-declared as changing; what is new waits for a new declaration.
    Dynamic,
}

/// Where in its life a registration is (GOV-203).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerState {
    /// Usable.
    Active,
    /// Stopped by a fault or an operator; only an operator resumes it.
    Halted,
    /// Replaced by a later record.
    Superseded,
    /// Gone; a tombstone.
    Removed,
}

impl ServerState {
    /// The word in records and listings.
    pub fn as_str(self) -> &'static str {
        match self {
            ServerState::Active => "active",
            ServerState::Halted => "halted",
            ServerState::Superseded => "superseded",
            ServerState::Removed => "removed",
        }
    }
}

/// What an operator registered.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RegistrationRecord {
    /// The operator's name for the server.
    pub server_identity: ServerIdentity,
    /// `mcp`; in-process units are `builtin` (GOV-103).
    pub boundary_kind: String,
    /// Version of this record's own shape.
    pub record_version: u32,
    /// This life of the server.
    pub registration_epoch: RegistrationEpoch,
    /// The first life under this name, where this one came from an update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_epoch: Option<RegistrationEpoch>,
    /// How it is reached.
    #[serde(flatten)]
    pub transport: Transport,
    /// The version the operator registered.
    pub server_version: ServerVersion,
    /// Static or dynamic.
    pub surface: Surface,
    /// What the operator asked for; informational.
    pub requested_trust_tier: u8,
    /// What policy gave (GOV-806).
    pub assigned_trust_tier: u8,
    /// Why the server is here.
    pub justification: String,
    /// Deployment modes in which it may be used.
    pub policy_tags: Vec<Mode>,
    /// How far it is confined.
    pub isolation_class: Isolation,
    /// Why isolation was waived or attested, where that applies.
    pub isolation_reason: Option<String>,
    /// SHA-256 pins of what runs.
    pub artifact_pins: Vec<Pin>,
    /// The accepted declaration.
    pub declaration_version: DeclarationVersion,
    /// Digest of what the server said of itself when it was accepted, if it said anything (SURF-14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions_sha256: Option<Sha256Digest>,
    /// Where in its life it is.
    pub state: ServerState,
    /// Why it is halted.
    pub halt: Option<String>,
    /// Which operator registered it.
    pub registered_by: String,
    /// When.
    pub registered_at: Timestamp,
}

/// How long an operator answers for a server that is not isolated.
pub const WAIVED_FOR: Duration = Duration::from_secs(90 * 86_400);

impl RegistrationRecord {
    /// Since when the name is here: an update keeps its place among the others (CAT-26).
    pub fn since(&self) -> RegistrationEpoch {
        self.first_epoch.unwrap_or(self.registration_epoch)
    }

    /// Whether somebody took it upon themselves that the server is not isolated, lately enough (SBX §10).
    pub fn isolation_is_waived(&self, now: Timestamp) -> bool {
        self.isolation_reason.is_some() && now.since(self.registered_at) <= WAIVED_FOR
    }
}

impl Mode {
    /// The word in configuration and policy.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Local => "local",
            Mode::Team => "team",
            Mode::Enterprise => "enterprise",
            Mode::Ci => "ci",
        }
    }
}

impl std::str::FromStr for Mode {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "local" => Ok(Mode::Local),
            "team" => Ok(Mode::Team),
            "enterprise" => Ok(Mode::Enterprise),
            "ci" => Ok(Mode::Ci),
            other => Err(format!(
                "{} is not a deployment mode; expected local, team, enterprise or ci",
                portcullis_core::name::printable(other)
            )),
        }
    }
}

impl Transport {
    /// The program, if we start one.
    pub fn process(&self) -> Option<&Process> {
        match self {
            Transport::Stdio { process } => Some(process),
            Transport::Http { .. } | Transport::Sse { .. } | Transport::Records { .. } => None,
        }
    }

    /// Whether the server is a unit of this process rather than an MCP server (GOV-103).
    pub fn is_builtin(&self) -> bool {
        matches!(self, Transport::Records { .. })
    }

    /// The word in records and policy.
    pub fn as_str(&self) -> &'static str {
        match self {
            Transport::Stdio { .. } => "stdio",
            Transport::Http { .. } => "http",
            Transport::Sse { .. } => "sse",
            Transport::Records { .. } => "records",
        }
    }
}

impl Isolation {
    /// The word in records and policy.
    pub fn as_str(self) -> &'static str {
        match self {
            Isolation::Enforced => "enforced",
            Isolation::External => "external",
            Isolation::UnmanagedLocal => "unmanaged-local",
        }
    }
}

impl Surface {
    /// The word in records and policy.
    pub fn as_str(self) -> &'static str {
        match self {
            Surface::Static => "static",
            Surface::Dynamic => "dynamic",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn nobody_answers_for_a_server_longer_than_ninety_days() {
        // SBX §10, S-ISO-1
        let mut record = fixture::record(&fixture::accepted(fixture::epoch(7), 3));
        let registered = record.registered_at.as_millis();
        let after = |days: u64| Timestamp::from_millis(registered + days * 86_400_000);
        let (last, over) = (after(90), after(91));
        record.isolation_reason = None;
        assert!(!record.isolation_is_waived(last));
        record.isolation_reason = Some("on my own desk".into());
        assert!(record.isolation_is_waived(last) && !record.isolation_is_waived(over));
    }
}
