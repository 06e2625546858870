//! Where a server is.

use std::collections::BTreeMap;
use std::path::PathBuf;

use portcullis_core::Sha256Digest;
use portcullis_governance::endpoint::{HttpEndpoint, Pin};
use portcullis_governance::record::{RegistrationRecord, Transport};
use portcullis_sandbox::Profile;

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A child process of ours.
    Stdio(StdioEndpoint),
    /// Streamable HTTP.
    Http(Remote),
    /// HTTP with a stream of events beside it, as in 2024-11-05.
    LegacySse(Remote),
}

/// A URL, and the key its server must have, if an operator pinned one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// Where.
    pub url: HttpEndpoint,
    /// SHA-256 of the public key in the server's certificate.
    pub spki: Option<Sha256Digest>,
}

/// A program to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StdioEndpoint {
    /// The program, an absolute path.
    pub command: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its working directory.
    pub cwd: PathBuf,
    /// Its whole environment: nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// Files whose bytes must still be what they were; checked before each start.
    pub pins: Vec<Pin>,
    /// What confines it, if anything does.
    pub profile: Option<Box<Profile>>,
}

impl Remote {
    fn new(url: &HttpEndpoint, spki: Option<Sha256Digest>) -> Self {
        Self { url: url.clone(), spki }
    }
}

impl Endpoint {
    /// Where a transport leads; `pins` are compared before each start, and none are for a server only looked at.
    pub fn of_transport(transport: &Transport, pins: &[Pin]) -> Self {
        match transport {
            Transport::Stdio { process } => Self::Stdio(StdioEndpoint {
                command: process.command.clone().into(),
                args: process.args.clone(),
                cwd: process.cwd.clone().into(),
                env: process.env.clone(),
                pins: pins.to_vec(),
                profile: process.profile.clone(),
            }),
            Transport::Http { url, tls_spki_sha256 } => Self::Http(Remote::new(url, *tls_spki_sha256)),
            Transport::Sse { url, tls_spki_sha256 } => Self::LegacySse(Remote::new(url, *tls_spki_sha256)),
        }
    }
}

impl From<&RegistrationRecord> for Endpoint {
    fn from(record: &RegistrationRecord) -> Self {
        Self::of_transport(&record.transport, &record.artifact_pins)
    }
}
