//! The canonical request: the one form in which a call is decided, approved, permitted and sent (GOV-703).

use std::ops::Range;
use std::sync::Arc;

use portcullis_core::canon::to_jcs;
use portcullis_core::digest::to_hex;
use portcullis_core::{Lineage, Secret, Sha256Digest};
use portcullis_gauntlet::Screened;
use rand::RngExt as _;
use serde::Serialize;

use crate::accepted::AcceptedTool;
use crate::binding::{OutOfScope, Resolved};

/// The version of these rules, in every document, permit and event.
pub const CANON: &str = "canon-v1";

/// Why a request has no canonical form.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// An argument lies outside its scope.
    #[error(transparent)]
    OutOfScope(#[from] OutOfScope),
    /// The canonical arguments are larger than declared.
    #[error("the arguments are larger than the declared {limit} bytes")]
    TooLarge {
        /// The declared limit.
        limit: usize,
    },
    /// The arguments were screened for another tool, or cannot be written canonically.
    #[error("the arguments cannot be made canonical")]
    NotCanonical,
}

/// A call in canonical form. It exists only for an accepted tool and screened arguments (INV-MP-001, GOV-1602): its fields
/// are private, and so are those of the tool.
///
/// ```compile_fail,E0451
/// use portcullis_governance::request::CanonicalRequest;
/// fn rewrite(request: CanonicalRequest, document: Vec<u8>) -> CanonicalRequest {
///     CanonicalRequest { document, ..request }
/// }
/// ```
///
/// ```compile_fail,E0451
/// use portcullis_governance::accepted::AcceptedTool;
/// fn undeclared(tool: AcceptedTool) -> AcceptedTool {
///     AcceptedTool { bound: true, ..tool }
/// }
/// ```
#[derive(Debug)]
pub struct CanonicalRequest {
    tool: Arc<AcceptedTool>,
    lineage: Lineage,
    args: String,
    args_value: serde_json::Value,
    bindings: Vec<Resolved>,
    document: Vec<u8>,
    sha256: Sha256Digest,
    fingerprint: Fingerprint,
}

/// Matches equal requests of one principal, whatever the session: keyed, so that it tells nothing to who does
/// not hold the installation's key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of no request.
    pub(crate) const NONE: Self = Self([0; 32]);
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&to_hex(&self.0))
    }
}

impl<'de> serde::Deserialize<'de> for Fingerprint {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        portcullis_core::digest::parse_hex(&text)
            .map(Self)
            .ok_or_else(|| serde::de::Error::custom("not a fingerprint"))
    }
}

/// The document of GOV-703, written member by member in canonical (sorted) order, so that it is RFC 8785 without
/// being sorted; a test holds it to that.
struct Document {
    bytes: Vec<u8>,
    /// The members that say which call this is, and not what it is: they are not in the fingerprint.
    nonce: Range<usize>,
    session: Range<usize>,
}

impl Document {
    fn write(tool: &AcceptedTool, args: &str, bindings: &[Resolved], lineage: &Lineage) -> Self {
        let nonce: [u8; 16] = rand::rng().random();
        let mut out = Vec::with_capacity(args.len() + 768);
        out.extend_from_slice(b"{\"args\":");
        out.extend_from_slice(args.as_bytes());
        member(&mut out, "bindings", &bindings);
        member(&mut out, "canon", &CANON);
        member(&mut out, "credential_classes", &tool.credentials());
        member(&mut out, "method", &tool.subject().method());
        let nonce = member(&mut out, "nonce", &to_hex(&nonce));
        member(&mut out, "principal", &lineage.principal);
        member(&mut out, "registration_epoch", &tool.epoch());
        member(&mut out, "scopes", &tool.scopes());
        let session = member(&mut out, "session", &lineage.session);
        member(&mut out, "side_effects", &tool.side_effects());
        member(&mut out, "tool_id", tool.id());
        out.push(b'}');
        Self { bytes: out, nonce, session }
    }

    fn fingerprint(&self, key: &Secret<[u8; 32]>) -> Fingerprint {
        let mut hasher = blake3::Hasher::new_keyed(key.expose());
        hasher.update(&self.bytes[..self.nonce.start]);
        hasher.update(&self.bytes[self.nonce.end..self.session.start]);
        hasher.update(&self.bytes[self.session.end..]);
        Fingerprint(*hasher.finalize().as_bytes())
    }
}

/// Writes a member behind others and says where it is, its comma included.
fn member(out: &mut Vec<u8>, name: &str, value: &impl Serialize) -> Range<usize> {
    let start = out.len();
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    serde_json::to_writer(&mut *out, value).expect("writing plain values to memory does not fail");
    start..out.len()
}

impl CanonicalRequest {
    /// Makes screened arguments canonical for `tool`.
    pub fn new(
        tool: &Arc<AcceptedTool>,
        screened: &Screened,
        lineage: Lineage,
        fingerprint_key: &Secret<[u8; 32]>,
    ) -> Result<Self, RequestError> {
        // A `Screened` of another tool would carry arguments this tool's schema never saw.
        if !Arc::ptr_eq(screened.spec(), tool.spec()) {
            return Err(RequestError::NotCanonical);
        }
        let args = to_jcs(screened.args()).map_err(|_| RequestError::NotCanonical)?;
        let limit = tool.spec().max_request_bytes;
        if args.len() > limit {
            return Err(RequestError::TooLarge { limit });
        }
        let args = String::from_utf8(args).map_err(|_| RequestError::NotCanonical)?;
        let mut bindings = Vec::new();
        for binding in tool.bindings() {
            binding.resolve(screened.args(), &mut bindings)?;
        }
        let document = Document::write(tool, &args, &bindings, &lineage);
        let fingerprint = document.fingerprint(fingerprint_key);
        let sha256 = Self::digest_of(&document.bytes);
        Ok(Self {
            tool: tool.clone(),
            args_value: screened.args().clone(),
            args,
            bindings,
            document: document.bytes,
            sha256,
            fingerprint,
            lineage,
        })
    }

    /// The request digest of a document's bytes.
    pub(crate) fn digest_of(document: &[u8]) -> Sha256Digest {
        Sha256Digest::of_parts(&[b"portcullis/canon-v1\n", document])
    }

    /// The tool.
    pub fn tool(&self) -> &Arc<AcceptedTool> {
        &self.tool
    }

    /// Who asks, where.
    pub fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    /// The canonical arguments: the bytes that are shown, hashed and sent.
    pub fn args(&self) -> &str {
        &self.args
    }

    /// The arguments as a value, for policy.
    pub fn args_value(&self) -> &serde_json::Value {
        &self.args_value
    }

    /// The arguments that lie in scopes.
    pub fn bindings(&self) -> &[Resolved] {
        &self.bindings
    }

    /// The whole document, with its nonce: evidence.
    pub fn document(&self) -> &[u8] {
        &self.document
    }

    /// Digest of the document; unguessable, because the document holds a nonce.
    pub fn sha256(&self) -> Sha256Digest {
        self.sha256
    }

    /// Matches approvals and counts (GOV-703).
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// For the tests of the boundary, which must be able to damage one.
    #[cfg(test)]
    pub(crate) fn tamper(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.document);
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
