//! One exchange with the server: no redirects, no cookies, no proxies, a bounded body, and one header that is secret
//! (REC-4).

use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};
use url::Url;

use super::credential::Token;
use super::refusal::Refusal;

/// What is asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    /// Decoded segments; each is encoded by itself.
    pub(crate) path: Vec<String>,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) body: Option<Value>,
}

impl Request {
    pub(crate) fn get(path: &[&str]) -> Self {
        Self { method: "GET", path: path.iter().map(|part| (*part).to_owned()).collect(), ..Self::default() }
    }

    /// Path and query as they are sent.
    pub(crate) fn target(&self) -> String {
        let path: Vec<String> = self.path.iter().map(|part| encoded(part)).collect();
        let query: Vec<String> =
            self.query.iter().map(|(key, value)| format!("{}={}", encoded(key), encoded(value))).collect();
        match query.is_empty() {
            true => format!("/{}", path.join("/")),
            false => format!("/{}?{}", path.join("/"), query.join("&")),
        }
    }
}

/// Everything but unreserved characters, as octets.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Exchanged {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) request_id: Option<String>,
}

impl Exchanged {
    /// For evidence: what was asked and what came of it, without anything secret.
    pub(crate) fn note(&self, request: &Request) -> Value {
        json!({"method": request.method, "target": request.target(), "status": self.status, "request_id": self.request_id})
    }
}

/// The client of one server.
#[derive(Debug)]
pub(crate) struct Http {
    base: Url,
    connect_timeout: Duration,
    timeout: Duration,
    most: usize,
    agent: String,
    // Made when first needed: reading the machine's certificates takes a while.
    client: OnceLock<reqwest::Client>,
}

impl Http {
    pub(crate) fn new(
        base: Url,
        (connect_timeout, timeout): (Duration, Duration),
        most: usize,
        version: &str,
    ) -> Self {
        let agent = format!("portcullis/{version}");
        Self { base, connect_timeout, timeout, most, agent, client: OnceLock::new() }
    }

    pub(crate) async fn send(&self, request: &Request, token: &Token) -> Result<Exchanged, Refusal> {
        self.within(request, token, self.timeout, self.most).await
    }

    /// Likewise, with limits of its own.
    pub(crate) async fn within(
        &self,
        request: &Request,
        token: &Token,
        timeout: Duration,
        most: usize,
    ) -> Result<Exchanged, Refusal> {
        let url = format!("{}{}", self.base.as_str().trim_end_matches('/'), request.target());
        let url =
            Url::parse(&url).map_err(|_| Refusal::internal("no address can be made of the arguments"))?;
        let method = request.method.parse().unwrap_or(reqwest::Method::GET);
        let mut sent = self
            .client()
            .request(method, url)
            .timeout(timeout)
            .header("accept", "application/json")
            .header("authorization", token.header());
        if let Some(body) = &request.body {
            sent = sent.header("content-type", "application/json").body(body.to_string());
        }
        let mut response = sent.send().await.map_err(|error| failure(&error))?;
        let status = response.status().as_u16();
        if (300..400).contains(&status) {
            return Err(Refusal::malformed(
                "redirect",
                "the records server answers with a redirect, which is not followed",
            ));
        }
        let header = |name: &str| response.headers().get(name)?.to_str().ok().map(ToOwned::to_owned);
        let request_id = header("request-id").or_else(|| header("x-request-id"));
        let is_json = header("content-type").is_some_and(|kind| {
            let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
            kind == "application/json" || kind.ends_with("+json")
        });
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| failure(&error))? {
            if body.len() + chunk.len() > most {
                return Err(Refusal::too_large(most));
            }
            body.extend_from_slice(&chunk);
        }
        let success = (200..300).contains(&status);
        let body = match (body.is_empty(), is_json) {
            (true, _) => Value::Null,
            (false, true) => match serde_json::from_slice(&body) {
                Ok(body) => body,
                Err(_) if !success => Value::from(String::from_utf8_lossy(&body).into_owned()),
                Err(_) => {
                    return Err(Refusal::malformed("bad_json", "the records server's answer is not JSON"));
                }
            },
            (false, false) if success => {
                return Err(Refusal::malformed(
                    "not_json",
                    "the records server's answer is of another type than JSON",
                ));
            }
            (false, false) => Value::from(String::from_utf8_lossy(&body).into_owned()),
        };
        Ok(Exchanged { status, body, request_id })
    }

    fn client(&self) -> &reqwest::Client {
        self.client.get_or_init(|| {
            // An error says that one is installed already, which is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
            reqwest::Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .no_proxy()
                .connect_timeout(self.connect_timeout)
                .user_agent(&self.agent)
                .build()
                .expect("a client with fixed settings")
        })
    }
}

/// Never with an address in it.
fn failure(error: &reqwest::Error) -> Refusal {
    if error.is_timeout() {
        return Refusal::timeout();
    }
    if error.is_connect() {
        return Refusal::unavailable("connect", "the records server cannot be reached");
    }
    Refusal::unavailable("reset", "the connection to the records server broke off")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_an_address_are_encoded_one_by_one() {
        // REC-4, REC-30
        let mut request = Request::get(&["v1", "streams", "a&connection_id=b", "records", "%2e%2e"]);
        request.query.push(("filter[a b]".into(), "x']..[?(@&y=1".into()));
        assert_eq!(
            request.target(),
            "/v1/streams/a%26connection_id%3Db/records/%252e%252e?filter%5Ba%20b%5D=x%27%5D..%5B%3F%28%40%26y%3D1"
        );
    }
}
