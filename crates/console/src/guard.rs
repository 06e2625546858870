//! What is refused before anything is looked at, and the headers of every answer.
//!
//! A page on another site can make a browser send requests here. It cannot make it say a `Host` of ours (DNS
//! rebinding), nor hide its own `Origin`; and it is given nothing to frame, embed or read.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use url::Url;

use crate::Console;

/// Where the console is, as browsers say it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    local: SocketAddr,
    public: Option<Url>,
    origin: String,
}

impl Place {
    pub(crate) fn new(local: SocketAddr, public: Option<&Url>) -> Self {
        let origin = match public {
            Some(url) => url.origin().ascii_serialization(),
            None => format!("http://{local}"),
        };
        Self { local, public: public.cloned(), origin }
    }

    /// Where operators open it.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    /// Whether browsers reach us with TLS all the way.
    pub(crate) fn is_secure(&self) -> bool {
        self.public.as_ref().is_some_and(|url| url.scheme() == "https")
    }

    /// The cookie of a session. Cookies are shared between ports of a host, so the port is part of the name: two
    /// gateways on one machine do not end each other's sessions.
    pub(crate) fn cookie(&self) -> String {
        match self.is_secure() {
            true => "__Host-portcullis".to_owned(),
            false => format!("portcullis-{}", self.local.port()),
        }
    }

    /// Whether a `Host` is one of ours.
    fn is_ours(&self, host: &str) -> bool {
        let Ok(url) = Url::parse(&format!("http://{host}/")) else { return false };
        let (Some(name), path) = (url.host_str(), url.path()) else { return false };
        if path != "/" || !url.username().is_empty() {
            return false;
        }
        let port = url.port_or_known_default();
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        let address = bare.parse::<IpAddr>().ok();
        let loopback = name == "localhost" || address.is_some_and(|ip| ip.is_loopback());
        let itself = address.is_some_and(|ip| ip == self.local.ip() && !ip.is_unspecified());
        let public = self.public.as_ref().is_some_and(|public| public.host_str() == Some(name));
        (loopback && self.local.ip().is_loopback() && port == Some(self.local.port()))
            || (itself && port == Some(self.local.port()))
            || public
    }

    /// Whether an `Origin` is the one that the request itself was sent to.
    fn is_same(&self, origin: &str, host: &str) -> bool {
        origin == self.origin || (!self.is_secure() && origin == format!("http://{host}"))
    }
}

/// A page may load what we serve and send what it has to us, and nothing else; no script and no style in its markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // Not `no-referrer`: with that, forms are sent with the origin `null`.
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), microphone=(), geolocation=(), payment=()"),
];

/// Stands before everything.
pub(crate) async fn guard(State(console): State<Arc<Console>>, request: Request, next: Next) -> Response {
    let mut response = match refusal(&console.place, request.method(), request.headers()) {
        Some(reason) => (StatusCode::FORBIDDEN, reason).into_response(),
        // Pages are for people who logged in. An agent's credential is worth nothing here, and is told so at once.
        None if request.headers().contains_key(header::AUTHORIZATION) => {
            (StatusCode::UNAUTHORIZED, "operators log in at /login; no credential is taken here")
                .into_response()
        }
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // What a page says is for who is logged in now.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if console.place.is_secure() {
        let always = HeaderValue::from_static("max-age=31536000");
        headers.insert(header::STRICT_TRANSPORT_SECURITY, always);
    }
    response
}

fn refusal(place: &Place, method: &Method, headers: &HeaderMap) -> Option<&'static str> {
    let said = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("\u{0}"));
    let host = said(&header::HOST).unwrap_or_default();
    if !place.is_ours(host) {
        return Some("this Host is not ours");
    }
    let origin = said(&header::ORIGIN);
    if origin.is_some_and(|origin| !place.is_same(origin, host)) {
        return Some("this Origin is not ours");
    }
    let changes = !matches!(*method, Method::GET | Method::HEAD);
    let site = said(&HeaderName::from_static("sec-fetch-site"));
    // Browsers say where a request comes from. Programs do not, and carry no cookies either.
    if changes && origin.is_none() && site.is_some_and(|site| site != "same-origin") {
        return Some("this comes from another site");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(place: &Place, method: Method, said: &[(&'static str, &str)]) -> bool {
        let pairs = said
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
        refusal(place, &method, &pairs.collect()).is_some()
    }

    #[test]
    fn only_our_own_host_is_answered() {
        let place = Place::new("127.0.0.1:7412".parse().unwrap(), None);
        for ours in ["127.0.0.1:7412", "localhost:7412", "[::1]:7412"] {
            assert!(!refused(&place, Method::GET, &[("host", ours)]), "{ours}");
        }
        let others = [
            "",
            "evil.example",
            "evil.example:7412",
            "localhost",
            "127.0.0.1:7411",
            "localhost:7412@evil.example",
            "127.0.0.1.evil.example:7412",
            "localhost:7412/x",
        ];
        for other in others {
            assert!(refused(&place, Method::GET, &[("host", other)]), "{other}");
        }
        let url = Url::parse("https://gate.example/").unwrap();
        let behind = Place::new("10.0.0.5:7412".parse().unwrap(), Some(&url));
        assert!(!refused(&behind, Method::GET, &[("host", "gate.example")]));
        assert!(!refused(&behind, Method::GET, &[("host", "10.0.0.5:7412")]));
        assert!(refused(&behind, Method::GET, &[("host", "localhost:7412")]), "not a loopback listener");
        assert_eq!(
            (behind.cookie().as_str(), behind.origin()),
            ("__Host-portcullis", "https://gate.example")
        );
    }

    #[test]
    fn no_other_origin_is_answered_and_no_other_site_changes_anything() {
        let place = Place::new("127.0.0.1:7412".parse().unwrap(), None);
        let host = ("host", "localhost:7412");
        let post = |more: &[(&'static str, &str)]| refused(&place, Method::POST, &[&[host], more].concat());
        assert!(!post(&[("origin", "http://localhost:7412")]));
        assert!(!post(&[("sec-fetch-site", "same-origin")]));
        assert!(!post(&[]), "a program, without a cookie");
        for origin in ["null", "http://evil.example", "http://localhost:7411", "https://localhost:7412", ""] {
            assert!(post(&[("origin", origin)]), "{origin}");
            assert!(refused(&place, Method::GET, &[host, ("origin", origin)]), "{origin}");
        }
        for site in ["cross-site", "same-site", "none"] {
            assert!(post(&[("sec-fetch-site", site)]), "{site}");
            assert!(!refused(&place, Method::GET, &[host, ("sec-fetch-site", site)]), "a link: {site}");
        }
    }
}
