//! A small token issuer: metadata, keys, and tokens of every kind, good and bad.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

/// PKCS #8 before the 32 bytes of an Ed25519 key (RFC 8410).
const ED25519: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// What the issuer publishes, changed while it runs.
struct Published {
    keys: Vec<Value>,
    requests: Vec<String>,
}

pub(crate) struct Issuer {
    pub(crate) url: String,
    published: Arc<Mutex<Published>>,
}

/// A signing key with a name.
pub(crate) struct SigningKey {
    kid: String,
    key: EncodingKey,
}

impl SigningKey {
    pub(crate) fn new(kid: &str, seed: u8) -> Self {
        let der: Vec<u8> = ED25519.iter().copied().chain([seed; 32]).collect();
        Self { kid: kid.into(), key: EncodingKey::from_ed_der(&der) }
    }

    fn public(&self) -> Value {
        let mut jwk = json!(Jwk::from_encoding_key(&self.key, Algorithm::EdDSA).unwrap());
        jwk["kid"] = json!(self.kid);
        jwk
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        let mut header = Header::new(Algorithm::EdDSA);
        header.kid = Some(self.kid.clone());
        encode(&header, claims, &self.key).unwrap()
    }
}

/// The same claims under the algorithm `none`.
pub(crate) fn unsigned(claims: &Value) -> String {
    use base64::Engine as _;
    let text = |value: &Value| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.", text(&json!({"alg": "none", "typ": "JWT"})), text(claims))
}

/// The same claims, signed with a "shared secret" that everybody knows: the public key.
pub(crate) fn signed_with_public_key(key: &SigningKey, claims: &Value) -> String {
    let public = key.public();
    let mut header = Header::new(Algorithm::HS256);
    header.kid = Some(key.kid.clone());
    encode(&header, claims, &EncodingKey::from_secret(public["x"].as_str().unwrap().as_bytes())).unwrap()
}

impl Issuer {
    /// An issuer on a free port, with these keys.
    pub(crate) fn start(keys: &[&SigningKey]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let published = Arc::new(Mutex::new(Published { keys: Vec::new(), requests: Vec::new() }));
        let issuer = Self { url: url.clone(), published: published.clone() };
        issuer.publish(keys);
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serve(stream, &url, &published);
            }
        });
        issuer
    }

    pub(crate) fn publish(&self, keys: &[&SigningKey]) {
        self.published.lock().unwrap().keys = keys.iter().map(|key| key.public()).collect();
    }

    /// How often the keys were fetched.
    pub(crate) fn key_fetches(&self) -> usize {
        self.published.lock().unwrap().requests.iter().filter(|path| *path == "/keys").count()
    }

    /// Claims that hold for an hour.
    pub(crate) fn claims(&self, audience: &str) -> Value {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        json!({
            "iss": self.url, "aud": audience, "sub": "someone", "client_id": "ide", "scope": "openid mcp",
            "iat": now, "nbf": now - 5, "exp": now + 3600,
        })
    }
}

fn serve(stream: TcpStream, url: &str, published: &Mutex<Published>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    while line.trim_end() != "" {
        line.clear();
        reader.read_line(&mut line).ok()?;
    }
    let mut published = published.lock().unwrap();
    let document = match path.as_str() {
        "/.well-known/oauth-authorization-server" => {
            json!({"issuer": url, "jwks_uri": format!("{url}/keys")})
        }
        "/keys" => json!({"keys": published.keys}),
        _ => Value::Null,
    };
    published.requests.push(path);
    let (status, body) = if document.is_null() { (404, String::new()) } else { (200, document.to_string()) };
    let head = format!("HTTP/1.1 {status} x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    reader.into_inner().write_all(format!("{head}{body}").as_bytes()).ok()
}
