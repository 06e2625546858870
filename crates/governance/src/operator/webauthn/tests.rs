use super::*;
use proptest::prelude::*;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};

/// An authenticator of ours, which says what it is told to.
struct Authenticator {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

/// What one ceremony says; a test changes one thing of it.
#[derive(Clone)]
struct Said {
    kind: &'static str,
    origin: &'static str,
    party: &'static str,
    challenge: Sha256Digest,
    flags: u8,
    counter: u32,
    more: &'static str,
}

const ID: [u8; 16] = [5; 16];

fn said(kind: &'static str) -> Said {
    Said {
        kind,
        origin: "https://gate.example",
        party: "gate.example",
        challenge: Sha256Digest::of(b"request"),
        flags: USER_PRESENT | USER_VERIFIED,
        counter: 7,
        more: "",
    }
}

fn expected() -> Expected {
    let party = RelyingParty::of(&Url::parse("https://gate.example/").unwrap()).unwrap();
    Expected { party, challenge: Sha256Digest::of(b"request") }
}

fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Said {
    fn client_data(&self) -> Vec<u8> {
        let challenge = encoded(self.challenge.as_bytes());
        let (kind, origin, more) = (self.kind, self.origin, self.more);
        format!(r#"{{"type":"{kind}","challenge":"{challenge}","origin":"{origin}"{more}}}"#).into_bytes()
    }

    fn data(&self) -> Vec<u8> {
        let party = Sha256Digest::of(self.party.as_bytes());
        [party.as_bytes(), [self.flags].as_slice(), &self.counter.to_be_bytes()].concat()
    }
}

impl Authenticator {
    fn new() -> Self {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &random).unwrap();
        Self { pair, random }
    }

    fn made(&self) -> Vec<u8> {
        let point = &self.pair.public_key().as_ref()[1..];
        let cose = [
            b"\xa5\x01\x02\x03\x26\x20\x01\x21\x58\x20".as_slice(),
            &point[..32],
            b"\x22\x58\x20",
            &point[32..],
        ];
        [[0; 16].as_slice(), &16u16.to_be_bytes(), &ID, &cose.concat()].concat()
    }

    fn registers(&self, said: &Said) -> Registration {
        let data = [said.data(), self.made()].concat();
        let length = u8::try_from(data.len()).unwrap();
        let object =
            [b"\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x58".as_slice(), &[length], &data].concat();
        Registration { client_data: encoded(&said.client_data()), attestation: encoded(&object) }
    }

    fn signs(&self, said: &Said) -> Assertion {
        let (client, data) = (said.client_data(), said.data());
        let message = [data.as_slice(), &Sha256::digest(&client)].concat();
        let signature = self.pair.sign(&self.random, &message).unwrap();
        Assertion {
            id: CredentialId::of(&ID).unwrap(),
            client_data: encoded(&client),
            authenticator_data: encoded(&data),
            signature: encoded(signature.as_ref()),
        }
    }
}

/// A change of one thing, and what is said about it.
type Wrong = (fn(&mut Said), &'static str);

const WRONG: [Wrong; 10] = [
    (|said| said.origin = "https://evil.example", "another page"),
    (|said| said.origin = "https://gate.example:8443", "another page"),
    (|said| said.origin = "http://gate.example", "another page"),
    (|said| said.more = r#","crossOrigin":true"#, "another page"),
    (|said| said.more = r#","topOrigin":"https://evil.example""#, "another page"),
    (|said| said.party = "evil.example", "another host"),
    (|said| said.challenge = Sha256Digest::of(b"another"), "another request"),
    (|said| said.flags &= !USER_PRESENT, "nobody was there"),
    (|said| said.flags &= !USER_VERIFIED, "did not check who"),
    (|said| said.kind = "payment.get", "another ceremony"),
];

#[test]
fn a_key_is_enrolled_only_for_us_here_and_now() {
    // GOV-104
    let authenticator = Authenticator::new();
    let mut right = said("webauthn.create");
    right.flags |= HAS_CREDENTIAL;
    let made = authenticator.registers(&right).verified(&expected()).unwrap();
    assert_eq!((made.id, made.counter), (CredentialId::of(&ID).unwrap(), 7));
    for (change, about) in WRONG {
        let mut wrong = right.clone();
        change(&mut wrong);
        let refused = authenticator.registers(&wrong).verified(&expected()).unwrap_err();
        assert!(refused.contains(about), "{about}: {refused}");
    }
    let mut assertion = right.clone();
    assertion.kind = "webauthn.get";
    assert!(authenticator.registers(&assertion).verified(&expected()).unwrap_err().contains("ceremony"));
    let none = Said { flags: USER_PRESENT | USER_VERIFIED, ..right };
    assert!(authenticator.registers(&none).verified(&expected()).is_err(), "a key that no flag announces");
}

#[test]
fn a_signature_is_good_for_one_request_on_one_page() {
    // GOV-104
    let authenticator = Authenticator::new();
    let right = said("webauthn.get");
    let mut enrolling = said("webauthn.create");
    enrolling.flags |= HAS_CREDENTIAL;
    let key = authenticator.registers(&enrolling).verified(&expected()).unwrap().key;
    let assertion = authenticator.signs(&right);
    assert_eq!(assertion.verified(&expected(), &key), Ok(7));
    // Browsers say more than we ask.
    let chatty = Said { more: r#","crossOrigin":false,"other_keys":"x""#, ..right.clone() };
    assert_eq!(authenticator.signs(&chatty).verified(&expected(), &key), Ok(7));
    for (change, about) in WRONG {
        let mut wrong = right.clone();
        change(&mut wrong);
        let refused = authenticator.signs(&wrong).verified(&expected(), &key).unwrap_err();
        assert!(refused.contains(about), "{about}: {refused}");
    }
    let foreign = Authenticator::new().signs(&right);
    assert_eq!(foreign.verified(&expected(), &key), Err("not signed with this key"));
    // What was signed cannot be exchanged afterwards.
    let other = authenticator.signs(&Said { counter: 8, ..right.clone() });
    let mixed = Assertion { authenticator_data: other.authenticator_data, ..assertion.clone() };
    assert_eq!(mixed.verified(&expected(), &key), Err("not signed with this key"));
    let twice = Said { more: r#","origin":"https://gate.example""#, ..right };
    assert!(authenticator.signs(&twice).verified(&expected(), &key).unwrap_err().contains("not readable"));
}

#[test]
fn a_counter_that_stands_still_or_goes_back_betrays_a_copy() {
    // GOV-104
    assert!(counted_on(0, 0) && counted_on(0, 1) && counted_on(7, 8));
    assert!(!counted_on(7, 7) && !counted_on(7, 6) && !counted_on(7, 0));
}

#[test]
fn keys_are_bound_to_a_name_by_https_or_to_this_machine() {
    // GOV-104
    let party = |url: &str| RelyingParty::of(&Url::parse(url).unwrap());
    let is = |url: &str, origin: &str, id: &str| {
        assert_eq!(party(url), Ok(RelyingParty { origin: origin.into(), id: id.into() }), "{url}");
    };
    is("https://gate.example/", "https://gate.example", "gate.example");
    is("https://gate.example:8443", "https://gate.example:8443", "gate.example");
    is("http://127.0.0.1:7412", "http://localhost:7412", "localhost");
    is("http://[::1]:7412", "http://localhost:7412", "localhost");
    is("http://localhost:7412", "http://localhost:7412", "localhost");
    is("http://127.0.0.1", "http://localhost", "localhost");
    for wrong in ["http://gate.example", "https://10.0.0.5", "http://10.0.0.5:7412", "https://127.0.0.1"] {
        assert!(party(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn half_an_answer_is_none() {
    // GOV-104
    let authenticator = Authenticator::new();
    let mut right = said("webauthn.create");
    right.flags |= HAS_CREDENTIAL;
    let data = [right.data(), authenticator.made()].concat();
    assert!(AuthenticatorData::read(&data).is_some());
    for length in 0..data.len() {
        assert!(AuthenticatorData::read(&data[..length]).is_none(), "{length}");
    }
    assert!(AuthenticatorData::read(&[data.as_slice(), b"x"].concat()).is_none(), "more than was announced");
    let mut long = data.clone();
    long[53..55].copy_from_slice(&u16::MAX.to_be_bytes());
    assert!(AuthenticatorData::read(&long).is_none(), "an id longer than everything");
    for text in ["", "!", &"A".repeat(2000)] {
        assert!(CredentialId::try_from(text.to_owned()).is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn no_answer_makes_it_panic(client in ".*", bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let registration =
            Registration { client_data: encoded(client.as_bytes()), attestation: encoded(&bytes) };
        prop_assert!(registration.verified(&expected()).is_err());
        let _ = AuthenticatorData::read(&bytes);
    }
}
