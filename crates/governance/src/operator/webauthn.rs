//! Operators' passkeys: security keys and the like, used in the browser (GOV-104).
//!
//! The private half stays in the authenticator. What it signs names the page that asked (its origin), the host that the key
//! is for (the relying party), whether somebody was there and was recognised, and a challenge of ours; the challenge is the
//! digest of the request, so that a signature made for anything else is worth nothing. Attestation is not asked for: which
//! maker's key it is proves nothing about whose it is.

mod cbor;
mod key;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portcullis_core::Sha256Digest;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use url::{Host, Url};

use cbor::Item;
pub use key::{ALGORITHMS, PasskeyKey};

/// The longest credential id that authenticators may make.
const LONGEST_ID: usize = 1023;

/// Flags of what an authenticator says.
const USER_PRESENT: u8 = 1;
const USER_VERIFIED: u8 = 1 << 2;
const HAS_CREDENTIAL: u8 = 1 << 6;
const HAS_EXTENSIONS: u8 = 1 << 7;

/// Where passkeys of a gateway are used: the page's origin, and the host that browsers bind keys to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelyingParty {
    /// The one origin that is accepted.
    pub origin: String,
    /// The host alone.
    pub id: String,
}

impl RelyingParty {
    /// For a console at this address. Browsers bind keys to names, not to addresses, and only where nobody can listen in:
    /// by https, or on this machine, where its name is `localhost`.
    pub fn of(console: &Url) -> Result<Self, &'static str> {
        let loopback = match console.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => return Err("there is no host in it"),
        };
        match console.host() {
            Some(Host::Domain(name)) if loopback || console.scheme() == "https" => {
                Ok(Self { origin: console.origin().ascii_serialization(), id: name.to_owned() })
            }
            Some(Host::Domain(_)) => Err("browsers use security keys only by https, or at localhost"),
            _ if loopback && console.scheme() == "http" => {
                let port = console.port_or_known_default().unwrap_or(80);
                let origin =
                    if port == 80 { "http://localhost".into() } else { format!("http://localhost:{port}") };
                Ok(Self { origin, id: "localhost".to_owned() })
            }
            _ => Err("browsers bind security keys to a host's name, and this is an address"),
        }
    }
}

/// The name that an authenticator gave a credential: bytes, in base64url.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CredentialId(String);

impl CredentialId {
    fn of(bytes: &[u8]) -> Option<Self> {
        (1..=LONGEST_ID).contains(&bytes.len()).then(|| Self(URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// In base64url.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for CredentialId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = URL_SAFE_NO_PAD.decode(&text).map_err(|_| "not base64url")?;
        Self::of(&bytes).ok_or("not the id of a passkey")
    }
}

impl From<CredentialId> for String {
    fn from(id: CredentialId) -> Self {
        id.0
    }
}

/// What an authenticator answers when it is asked to make a key, as browsers give it; all in base64url.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registration {
    /// What the browser says: which page asked, and with which challenge.
    pub client_data: String,
    /// What the authenticator says.
    pub attestation: String,
}

/// A key that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// Its name.
    pub id: CredentialId,
    /// Its public half.
    pub key: PasskeyKey,
    /// How often it has signed, if it counts.
    pub counter: u32,
}

/// What an authenticator answers when it is asked to sign, as browsers give it; all in base64url.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assertion {
    /// Which key signed.
    pub id: CredentialId,
    /// What the browser says: which page asked, and with which challenge.
    pub client_data: String,
    /// What the authenticator says.
    pub authenticator_data: String,
    /// Its signature of both.
    pub signature: String,
}

/// What an answer must be about.
#[derive(Debug, Clone)]
pub struct Expected {
    /// Who asked.
    pub party: RelyingParty,
    /// For what.
    pub challenge: Sha256Digest,
}

impl Registration {
    /// The key, if it was made for us, here, now, by somebody whom the authenticator recognised.
    pub fn verified(&self, expected: &Expected) -> Result<Registered, &'static str> {
        expected.agrees("webauthn.create", &decoded(&self.client_data)?)?;
        let attestation = decoded(&self.attestation)?;
        let unreadable = "what the authenticator says is not readable";
        let (object, rest) = Item::first(&attestation).ok_or(unreadable)?;
        let data = object.named("authData").and_then(Item::bytes).filter(|_| rest.is_empty());
        let data = AuthenticatorData::read(data.ok_or(unreadable)?).ok_or(unreadable)?;
        data.is_for(&expected.party)?;
        let (id, key) =
            data.credential.ok_or("the authenticator made no key, or one of a kind that is not taken")?;
        Ok(Registered { id, key, counter: data.counter })
    }
}

impl Assertion {
    /// How often the key has signed, if it did sign this: for us, here, now, with somebody there whom it recognised.
    pub fn verified(&self, expected: &Expected, key: &PasskeyKey) -> Result<u32, &'static str> {
        let client = decoded(&self.client_data)?;
        expected.agrees("webauthn.get", &client)?;
        let authenticator = decoded(&self.authenticator_data)?;
        let data =
            AuthenticatorData::read(&authenticator).ok_or("what the authenticator says is not readable")?;
        data.is_for(&expected.party)?;
        let message = [authenticator.as_slice(), &Sha256::digest(&client)].concat();
        match key.verifies(&message, &decoded(&self.signature)?) {
            true => Ok(data.counter),
            false => Err("not signed with this key"),
        }
    }
}

/// Whether a key that counts has counted on. One that stands still or goes back may be a copy.
pub fn counted_on(before: u32, now: u32) -> bool {
    (before == 0 && now == 0) || now > before
}

/// What a browser says about a ceremony; it may say more than this.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientData {
    #[serde(rename = "type")]
    kind: String,
    challenge: String,
    origin: String,
    #[serde(default)]
    cross_origin: bool,
    top_origin: Option<String>,
}

impl Expected {
    fn agrees(&self, kind: &str, client: &[u8]) -> Result<(), &'static str> {
        let said: ClientData =
            serde_json::from_slice(client).map_err(|_| "what the browser says is not readable")?;
        if said.kind != kind {
            return Err("made for another ceremony");
        }
        if said.origin != self.party.origin || said.cross_origin || said.top_origin.is_some() {
            return Err("made on another page than the console's own");
        }
        let challenge = decoded(&said.challenge)?;
        match challenge.ct_eq(self.challenge.as_bytes()).into() {
            true => Ok(()),
            false => Err("made for another request, or not now"),
        }
    }
}

/// What an authenticator says in either ceremony.
struct AuthenticatorData {
    party: [u8; 32],
    flags: u8,
    counter: u32,
    credential: Option<(CredentialId, PasskeyKey)>,
}

impl AuthenticatorData {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (party, rest) = bytes.split_first_chunk::<32>()?;
        let (flags, rest) = rest.split_first()?;
        let (counter, mut rest) = rest.split_first_chunk::<4>()?;
        let mut credential = None;
        if flags & HAS_CREDENTIAL != 0 {
            let (_model, after) = rest.split_first_chunk::<16>()?;
            let (length, after) = after.split_first_chunk::<2>()?;
            let (id, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
            let (key, length) = PasskeyKey::read(after)?;
            credential = Some((CredentialId::of(id)?, key));
            rest = &after[length..];
        }
        if flags & HAS_EXTENSIONS != 0 {
            let (Item::Map(_), after) = Item::first(rest)? else { return None };
            rest = after;
        }
        let counter = u32::from_be_bytes(*counter);
        rest.is_empty().then_some(Self { party: *party, flags: *flags, counter, credential })
    }

    fn is_for(&self, party: &RelyingParty) -> Result<(), &'static str> {
        if self.party != *Sha256Digest::of(party.id.as_bytes()).as_bytes() {
            return Err("made for another host");
        }
        if self.flags & USER_PRESENT == 0 {
            return Err("nobody was there");
        }
        if self.flags & USER_VERIFIED == 0 {
            return Err("the key did not check who used it: it needs a PIN, a fingerprint or the like");
        }
        Ok(())
    }
}

fn decoded(text: &str) -> Result<Vec<u8>, &'static str> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| "not base64url")
}

#[cfg(test)]
#[path = "webauthn/tests.rs"]
mod tests;
