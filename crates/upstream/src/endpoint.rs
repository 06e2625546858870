//! Where a server is.

use portcullis_core::Sha256Digest;
use portcullis_governance::endpoint::{HttpEndpoint, Pin};
use portcullis_governance::record::{RegistrationRecord, Transport};
use portcullis_sandbox::Profile;

use crate::records::RecordsEndpoint;

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A child process of ours.
    Stdio(StdioEndpoint),
    /// Streamable HTTP.
    Http(Remote),
    /// HTTP with a stream of events beside it, as in 2024-11-05.
    LegacySse(Remote),
    /// The records adapter, in this process.
    Records(RecordsEndpoint),
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
    /// What is started, and all it may touch.
    pub profile: Box<Profile>,
    /// Files whose bytes must still be what they were; checked before each start.
    pub pins: Vec<Pin>,
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
            Transport::Stdio { process } => {
                Self::Stdio(StdioEndpoint { profile: process.profile.clone(), pins: pins.to_vec() })
            }
            Transport::Http { url, tls_spki_sha256 } => Self::Http(Remote::new(url, *tls_spki_sha256)),
            Transport::Sse { url, tls_spki_sha256 } => Self::LegacySse(Remote::new(url, *tls_spki_sha256)),
            Transport::Records { url, credential_file } => {
                Self::Records(RecordsEndpoint { url: url.clone(), credential_file: credential_file.into() })
            }
        }
    }
}

impl From<&RegistrationRecord> for Endpoint {
    fn from(record: &RegistrationRecord) -> Self {
        Self::of_transport(&record.transport, &record.artifact_pins)
    }
}
