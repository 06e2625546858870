//! What a client says first: whom it wants to talk to, in its own words.

use std::io;
use std::time::Duration;

use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::timeout;

/// How long a client may take to say whom it wants.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest first message of either kind.
const LONGEST: usize = 64 << 10;
const MOST_HEADERS: usize = 100;

/// The first message of a connection.
#[derive(Debug)]
pub(super) enum Said<T> {
    /// Understood; the bytes are what was read so far.
    Understood(T, Vec<u8>),
    /// Something else.
    Otherwise,
    /// Nothing, or not all of it.
    Nothing,
}

/// Reads a TLS client's first message: the name of the server it wants, if it says one.
pub(super) async fn hello(stream: &mut (impl AsyncRead + Unpin)) -> Said<Option<String>> {
    let mut acceptor = Acceptor::default();
    let mut read = Vec::new();
    loop {
        let before = read.len();
        if !more(stream, &mut read).await {
            return Said::Nothing;
        }
        let mut fresh = &read[before..];
        while !fresh.is_empty() {
            match acceptor.read_tls(&mut fresh) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Said::Otherwise,
            }
            match acceptor.accept() {
                Ok(Some(accepted)) => {
                    let name = accepted.client_hello().server_name().map(str::to_ascii_lowercase);
                    return Said::Understood(name, read);
                }
                Ok(None) => {}
                Err(_) => return Said::Otherwise,
            }
        }
    }
}

/// An HTTP/1.1 request's head.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) method: String,
    pub(super) target: String,
    /// The one `Host` header; none if there is not exactly one.
    pub(super) host: Option<String>,
    headers: Vec<(String, Vec<u8>)>,
    /// How long it is.
    length: usize,
}

impl Head {
    /// Whether nothing was read behind it.
    pub(super) fn is_all_of(&self, read: &[u8]) -> bool {
        self.length == read.len()
    }

    /// The request as it is sent on: for this path, and the only one of its connection, so that what follows cannot be
    /// another request for another host.
    pub(super) fn alone(&self, path: &str, read: &[u8]) -> Vec<u8> {
        const HOP: [&str; 7] = [
            "connection",
            "keep-alive",
            "proxy-connection",
            "proxy-authorization",
            "upgrade",
            "te",
            "http2-settings",
        ];
        let mut bytes = format!("{} {path} HTTP/1.1\r\n", self.method).into_bytes();
        for (name, value) in &self.headers {
            if !HOP.iter().any(|hop| name.eq_ignore_ascii_case(hop)) {
                bytes.extend_from_slice(name.as_bytes());
                bytes.extend_from_slice(b": ");
                bytes.extend_from_slice(value);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        bytes.extend_from_slice(b"Connection: close\r\n\r\n");
        bytes.extend_from_slice(&read[self.length..]);
        bytes
    }
}

/// Reads the head of a request.
pub(super) async fn head(stream: &mut (impl AsyncRead + Unpin)) -> Said<Head> {
    let mut read = Vec::new();
    loop {
        if !more(stream, &mut read).await {
            return Said::Nothing;
        }
        match parse(&read) {
            Ok(Some(head)) => return Said::Understood(head, read),
            Ok(None) => {}
            Err(_) => return Said::Otherwise,
        }
    }
}

fn parse(read: &[u8]) -> Result<Option<Head>, httparse::Error> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(length) = request.parse(read)? else { return Ok(None) };
    if request.version != Some(1) {
        return Err(httparse::Error::Version);
    }
    let headers: Vec<(String, Vec<u8>)> =
        request.headers.iter().map(|header| (header.name.to_owned(), header.value.to_vec())).collect();
    let mut hosts = headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("host"));
    let host = match (hosts.next(), hosts.next()) {
        (Some((_, value)), None) => String::from_utf8(value.clone()).ok(),
        _ => None,
    };
    let (method, target) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
    Ok(Some(Head { method: method.to_owned(), target: target.to_owned(), host, headers, length }))
}

/// Reads something more; false if nothing comes, or too much has come already.
async fn more(stream: &mut (impl AsyncRead + Unpin), read: &mut Vec<u8>) -> bool {
    if read.len() >= LONGEST {
        return false;
    }
    let reading: io::Result<usize> =
        timeout(PATIENCE, stream.read_buf(read)).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()));
    matches!(reading, Ok(1..))
}

/// `host` and `port` of an authority; the port is `otherwise` if none is said.
pub(super) fn authority(text: &str, otherwise: u16) -> Option<(String, u16)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (text, otherwise),
    };
    (!host.is_empty() && !host.contains('@')).then(|| (host.to_ascii_lowercase(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_goes_on_alone_with_its_own_headers() {
        let text = b"GET http://api.example/x?y HTTP/1.1\r\nHost: api.example\r\nProxy-Connection: keep-alive\r\nX-A: 1\r\n\r\nbody";
        let Said::Understood(head, read) = head(&mut &text[..]).await else { panic!() };
        assert_eq!((head.method.as_str(), head.host.as_deref()), ("GET", Some("api.example")));
        let sent = String::from_utf8(head.alone("/x?y", &read)).unwrap();
        assert_eq!(sent, "GET /x?y HTTP/1.1\r\nHost: api.example\r\nX-A: 1\r\nConnection: close\r\n\r\nbody");
    }

    #[tokio::test]
    async fn what_is_neither_is_told_apart_from_silence() {
        assert!(matches!(hello(&mut &b"GET / HTTP/1.1\r\n\r\n"[..]).await, Said::Otherwise));
        assert!(matches!(hello(&mut &b""[..]).await, Said::Nothing));
        assert!(matches!(hello(&mut &b"\x16\x03\x01"[..]).await, Said::Nothing));
        assert!(matches!(head(&mut &b"\x16\x03\x01\x00\x05hello"[..]).await, Said::Otherwise));
        assert!(matches!(head(&mut &b"GET / HTTP/1.0\r\n\r\n"[..]).await, Said::Otherwise));
        let two = b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n";
        let Said::Understood(head, _) = head(&mut &two[..]).await else { panic!() };
        assert_eq!(head.host, None);
    }

    #[test]
    fn authorities_are_read_strictly() {
        assert_eq!(authority("API.example:8080", 80), Some(("api.example".into(), 8080)));
        assert_eq!(authority("api.example", 80), Some(("api.example".into(), 80)));
        assert_eq!(authority("[::1]", 80), Some(("[::1]".into(), 80)));
        for bad in ["", ":80", "a:b", "u@api.example", "api.example:99999"] {
            assert_eq!(authority(bad, 80), None, "{bad}");
        }
    }
}
