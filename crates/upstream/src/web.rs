//! Fetching what is not MCP: the keys of token issuers, their metadata, tokens, the signatures of witnesses.
//!
//! Never on the path of a call. An address out of a configuration file or out of another server's answer can be
//! hostile, so: `https` only, except to this machine; no redirects; no proxies from the environment; bounded in
//! time and size.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use portcullis_sandbox::egress::is_global;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

const PATIENCE: Duration = Duration::from_secs(10);
const MOST_BYTES: usize = 1 << 20;

/// Why nothing was fetched. Never holds what the other side said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebError {
    /// The address may not be fetched.
    #[error("{0} is not https; plain http is for loopback addresses only")]
    Insecure(String),
    /// Nobody there, or not in time.
    #[error("{0} cannot be reached")]
    Unreachable(String),
    /// An answer, but not the one asked for.
    #[error("{url} answered with status {status}")]
    Status {
        /// The address, without its query.
        url: String,
        /// What it said.
        status: u16,
    },
    /// The answer is too long, or not the JSON that was expected.
    #[error("{0} did not answer with the expected JSON document")]
    Malformed(String),
}

/// What came back for a form.
#[derive(Debug)]
pub(crate) struct FormAnswer {
    pub(crate) status: u16,
    pub(crate) document: Value,
    /// What the next proof of a key must repeat, if the other side says.
    pub(crate) nonce: Option<String>,
}

/// A client for small JSON documents.
#[derive(Debug, Default)]
pub struct Web {
    // Made when first needed: reading the machine's certificates takes longer than starting the gateway.
    client: OnceLock<reqwest::Client>,
    /// Whether only the public network is reached: what a stranger names must not lead to this machine or its neighbours,
    /// whatever names resolve to (SSRF).
    public: bool,
}

impl Web {
    /// For what a server names. One of the public network leads nowhere else; one on this machine or a network of ours may
    /// name others there.
    pub async fn toward(server: &Url) -> Self {
        Self { public: !is_near(server).await, ..Self::default() }
    }

    /// Whether an address that a stranger named may be asked for something.
    pub(crate) fn may_reach(&self, url: &Url) -> bool {
        !self.public || url.scheme() == "https" && !is_near_by_name(url)
    }

    /// The JSON document at `url`.
    pub async fn get<T: DeserializeOwned>(&self, url: &Url) -> Result<T, WebError> {
        let request = self.client().get(self.permitted(url)?);
        self.document(url, request).await
    }

    /// Posts a text; the status and the text of the answer, whatever the status is.
    pub async fn post_text(&self, url: &Url, body: String) -> Result<(u16, String), WebError> {
        let unreachable = |_| WebError::Unreachable(shown(url));
        let mut response =
            self.client().post(self.permitted(url)?).body(body).send().await.map_err(unreachable)?;
        let status = response.status().as_u16();
        let mut answer = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if answer.len() + chunk.len() > MOST_BYTES {
                return Err(WebError::Malformed(shown(url)));
            }
            answer.extend_from_slice(&chunk);
        }
        Ok((status, String::from_utf8_lossy(&answer).into_owned()))
    }

    /// Posts a form, with a client's name and secret in a header if it has them, and a proof that it has a key.
    pub(crate) async fn post_form(
        &self,
        url: &Url,
        form: &[(&str, &str)],
        basic: Option<(&str, &str)>,
        proof: Option<&str>,
    ) -> Result<FormAnswer, WebError> {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let mut request = self.client().post(self.permitted(url)?).body(body);
        request = request.header("Content-Type", "application/x-www-form-urlencoded");
        request = request.header("Accept", "application/json");
        if let Some((name, secret)) = basic {
            request = request.basic_auth(name, Some(secret));
        }
        if let Some(proof) = proof {
            request = request.header("DPoP", proof);
        }
        let response = request.send().await.map_err(|_| WebError::Unreachable(shown(url)))?;
        let status = response.status().as_u16();
        let nonce = response.headers().get("dpop-nonce").and_then(|nonce| nonce.to_str().ok());
        let nonce = nonce.map(str::to_owned);
        Ok(FormAnswer { status, nonce, document: read_whatever(url, response).await? })
    }

    /// Posts a JSON document; the status and the document that comes back.
    pub async fn post_json(&self, url: &Url, document: &Value) -> Result<(u16, Value), WebError> {
        let request = self.client().post(self.permitted(url)?).body(document.to_string());
        let request = request.header("Content-Type", "application/json").header("Accept", "application/json");
        self.whatever(url, request).await
    }

    /// What a server says to who asks without a token: the status, and its challenges.
    pub async fn challenge(
        &self,
        url: &Url,
        message: &Value,
        headers: &[(&str, &str)],
    ) -> Result<(u16, Vec<String>), WebError> {
        let request = self.client().post(self.permitted(url)?).body(message.to_string());
        let request = request.header("Content-Type", "application/json");
        let mut request = request.header("Accept", "application/json, text/event-stream");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.map_err(|_| WebError::Unreachable(shown(url)))?;
        let challenges = response.headers().get_all("www-authenticate").iter();
        let challenges = challenges.filter_map(|value| value.to_str().ok().map(str::to_owned)).collect();
        Ok((response.status().as_u16(), challenges))
    }

    async fn whatever(&self, url: &Url, request: reqwest::RequestBuilder) -> Result<(u16, Value), WebError> {
        let response = request.send().await.map_err(|_| WebError::Unreachable(shown(url)))?;
        let status = response.status().as_u16();
        Ok((status, read_whatever(url, response).await?))
    }

    async fn document<T: DeserializeOwned>(
        &self,
        url: &Url,
        request: reqwest::RequestBuilder,
    ) -> Result<T, WebError> {
        let unreachable = |_| WebError::Unreachable(shown(url));
        let mut response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        if !status.is_success() {
            return Err(WebError::Status { url: shown(url), status: status.as_u16() });
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if body.len() + chunk.len() > MOST_BYTES {
                return Err(WebError::Malformed(shown(url)));
            }
            body.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&body).map_err(|_| WebError::Malformed(shown(url)))
    }

    fn permitted(&self, url: &Url) -> Result<Url, WebError> {
        let url = permitted(url)?;
        if self.may_reach(&url) { Ok(url) } else { Err(WebError::Unreachable(shown(&url))) }
    }

    fn client(&self) -> &reqwest::Client {
        self.client.get_or_init(|| {
            // An error says that one is installed already, which is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let mut client = reqwest::Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .no_proxy()
                .timeout(PATIENCE);
            if self.public {
                client = client.dns_resolver(PublicNames);
            }
            client.build().expect("a client with fixed settings")
        })
    }
}

/// The machine's resolver, without what is not of the public network. The addresses are those that are connected to, so that
/// a name cannot mean one thing when it is looked at and another when it is used.
struct PublicNames;

impl Resolve for PublicNames {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|address| is_global(address.ip())).collect();
            if public.is_empty() {
                return Err("the name leads to no public address".into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

/// Whether a URL leads to this machine or to a network that is not public, by what its name resolves to. A name that resolves
/// to nothing leads nowhere.
async fn is_near(url: &Url) -> bool {
    if is_near_by_name(url) {
        return true;
    }
    let Some(url::Host::Domain(name)) = url.host() else { return false };
    let found = tokio::net::lookup_host((name, 0)).await;
    found.is_ok_and(|mut addresses| addresses.any(|address| !is_global(address.ip())))
}

/// The same, by what can be seen.
fn is_near_by_name(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(ip)) => !is_global(IpAddr::V4(ip)),
        Some(url::Host::Ipv6(ip)) => !is_global(IpAddr::V6(ip)),
        Some(url::Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            let local = ["localhost", "internal", "local"];
            local.iter().any(|zone| {
                name.strip_suffix(zone).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            })
        }
        None => true,
    }
}

/// The document of an answer; nothing if it is not JSON.
async fn read_whatever(url: &Url, mut response: reqwest::Response) -> Result<Value, WebError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| WebError::Unreachable(shown(url)))? {
        if body.len() + chunk.len() > MOST_BYTES {
            return Err(WebError::Malformed(shown(url)));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(serde_json::from_slice(&body).unwrap_or(Value::Null))
}

/// Posts a signed JSON document to addresses that somebody has looked at, and to no others, whatever the name leads to by
/// then; gives the status. `authorities` are certificates besides the machine's own.
pub async fn post_signed(
    url: &Url,
    addresses: &[SocketAddr],
    authorities: Option<&Path>,
    body: String,
    signature: &str,
) -> Result<u16, WebError> {
    let unreachable = |_| WebError::Unreachable(shown(url));
    let url = permitted(url)?;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let host = url.host_str().unwrap_or_default().to_owned();
    let mut client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .timeout(PATIENCE)
        .resolve_to_addrs(&host, addresses);
    if let Some(pem) = authorities.and_then(|path| std::fs::read(path).ok()) {
        for certificate in reqwest::Certificate::from_pem_bundle(&pem).unwrap_or_default() {
            client = client.add_root_certificate(certificate);
        }
    }
    let client = client.build().map_err(unreachable)?;
    let request = client.post(url.clone()).header("content-type", "application/json");
    let request = request.header("portcullis-signature", signature).body(body);
    Ok(request.send().await.map_err(unreachable)?.status().as_u16())
}

fn permitted(url: &Url) -> Result<Url, WebError> {
    let loopback = match url.host() {
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    };
    match url.scheme() {
        "https" => Ok(url.clone()),
        "http" if loopback => Ok(url.clone()),
        _ => Err(WebError::Insecure(shown(url))),
    }
}

/// Without user info, query and fragment, where secrets are put.
fn shown(url: &Url) -> String {
    format!("{}://{}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_this_machine_only() {
        for good in
            ["https://login.example.org/x", "http://127.0.0.1:9/x", "http://[::1]/x", "http://localhost/"]
        {
            assert!(permitted(&good.parse().unwrap()).is_ok(), "{good}");
        }
        for bad in
            ["http://login.example.org/", "http://127.0.0.1.example.org/", "file:///etc/passwd", "ftp://h/"]
        {
            assert!(permitted(&bad.parse().unwrap()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_public_server_cannot_send_us_to_this_machine() {
        // PRO §6: SSRF by metadata URL
        let web = Web { public: true, ..Web::default() };
        for bad in [
            "http://login.example/",
            "https://127.0.0.1/",
            "https://localhost/",
            "https://a.localhost./",
            "https://10.1.2.3/",
            "https://100.64.0.1/",
            "https://169.254.169.254/latest",
            "https://[::1]/",
            "https://[::ffff:127.0.0.1]/",
            "https://[::ffff:10.0.0.1]/",
            "https://[fd00::1]/",
            "https://metadata.google.internal/",
            "https://0x7f000001/",
        ] {
            assert!(!web.may_reach(&bad.parse().unwrap()), "{bad}");
        }
        assert!(web.may_reach(&"https://login.example/".parse().unwrap()));
        assert!(Web::default().may_reach(&"http://127.0.0.1:9/x".parse().unwrap()));
    }

    #[tokio::test]
    async fn a_name_counts_for_what_it_resolves_to() {
        // PRO §6: whoever is asked about a name is not asked again by who connects
        assert!(PublicNames.resolve("localhost".parse().unwrap()).await.is_err());
        assert!(is_near(&"https://localhost/".parse().unwrap()).await);
        assert!(!is_near(&"https://8.8.8.8/".parse().unwrap()).await);
    }

    #[test]
    fn an_address_is_shown_without_what_could_be_secret() {
        let url = "https://user:hunter2@example.org/a?code=hunter3#hunter4".parse().unwrap();
        assert_eq!(shown(&url), "https://example.org/a");
    }
}
