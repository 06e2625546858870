//! Fetching what is not MCP: the keys of token issuers, their metadata, tokens, the signatures of witnesses.
//!
//! Never on the path of a call. An address out of a configuration file or out of another server's answer can be
//! hostile, so: `https` only, except to this machine; no redirects; no proxies from the environment; bounded in
//! time and size.

use std::sync::OnceLock;
use std::time::Duration;

use serde::de::DeserializeOwned;
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

/// A client for small JSON documents.
#[derive(Debug, Default)]
pub struct Web {
    // Made when first needed: reading the machine's certificates takes longer than starting the gateway.
    client: OnceLock<reqwest::Client>,
}

impl Web {
    /// The JSON document at `url`.
    pub async fn get<T: DeserializeOwned>(&self, url: &Url) -> Result<T, WebError> {
        let request = self.client().get(permitted(url)?);
        self.document(url, request).await
    }

    /// Posts a text; the status and the text of the answer, whatever the status is.
    pub async fn post_text(&self, url: &Url, body: String) -> Result<(u16, String), WebError> {
        let unreachable = |_| WebError::Unreachable(shown(url));
        let mut response =
            self.client().post(permitted(url)?).body(body).send().await.map_err(unreachable)?;
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

    fn client(&self) -> &reqwest::Client {
        self.client.get_or_init(|| {
            // An error says that one is installed already, which is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
            reqwest::Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .no_proxy()
                .timeout(PATIENCE)
                .build()
                .expect("a client with fixed settings")
        })
    }
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
    fn an_address_is_shown_without_what_could_be_secret() {
        let url = "https://user:hunter2@example.org/a?code=hunter3#hunter4".parse().unwrap();
        assert_eq!(shown(&url), "https://example.org/a");
    }
}
