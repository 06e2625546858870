//! A caller over HTTP: one keep-alive connection of its own, one request on it at a time.

use std::io;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::call::{Call, INITIALIZED, MODERN_VERSION, Revision, initialize};

const SESSION: &str = "mcp-session-id";

pub(crate) struct HttpCaller {
    sender: SendRequest<Full<Bytes>>,
    url: Uri,
    host: HeaderValue,
    session: Option<HeaderValue>,
}

impl HttpCaller {
    /// Connects and, in the legacy era, initialises.
    pub(crate) async fn open(url: &Uri, revision: Revision) -> io::Result<Self> {
        let (sender, host) = connect(url).await?;
        let mut caller = Self { sender, url: url.clone(), host, session: None };
        if revision == Revision::Legacy {
            let response = caller.post(initialize(0), None).await?;
            caller.session = response.headers().get(SESSION).cloned();
            body(response).await?;
            body(caller.post(INITIALIZED.to_owned(), None).await?).await?;
        }
        Ok(caller)
    }

    /// One call; the JSON of its answer.
    pub(crate) async fn call(&mut self, call: &Call, id: u64) -> io::Result<Bytes> {
        let response = self.post(call.with_id(id), Some(call)).await?;
        let streams = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let body = body(response).await?;
        Ok(if streams { last_event(&body) } else { body })
    }

    async fn post(
        &mut self,
        message: String,
        call: Option<&Call>,
    ) -> io::Result<Response<hyper::body::Incoming>> {
        let mut request = Request::post(self.url.path())
            .header(HOST, &self.host)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream");
        match call {
            Some(call) if call.revision == Revision::Modern => {
                request = request
                    .header("mcp-protocol-version", MODERN_VERSION)
                    .header("mcp-method", "tools/call")
                    .header("mcp-name", &call.tool);
            }
            Some(_) => request = request.header("mcp-protocol-version", "2025-11-25"),
            None => {}
        }
        if let Some(session) = &self.session {
            request = request.header(SESSION, session);
        }
        let request = request.body(Full::new(Bytes::from(message))).map_err(io::Error::other)?;
        self.sender.ready().await.map_err(io::Error::other)?;
        self.sender.send_request(request).await.map_err(io::Error::other)
    }
}

/// A connection to the host of `url`, driven by a task of its own.
pub(crate) async fn connect<B>(url: &Uri) -> io::Result<(SendRequest<B>, HeaderValue)>
where
    B: hyper::body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let authority = url.authority().ok_or_else(|| io::Error::other("the URL has no host"))?;
    let host = HeaderValue::from_str(authority.as_str()).map_err(io::Error::other)?;
    let stream = TcpStream::connect((authority.host(), authority.port_u16().unwrap_or(80))).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    Ok((sender, host))
}

async fn body(response: Response<hyper::body::Incoming>) -> io::Result<Bytes> {
    Ok(response.into_body().collect().await.map_err(io::Error::other)?.to_bytes())
}

/// The data of the last event: notifications come before the answer.
fn last_event(stream: &Bytes) -> Bytes {
    let line = stream.split(|byte| *byte == b'\n').rev().find_map(|line| line.strip_prefix(b"data:"));
    line.map(|line| stream.slice_ref(line.trim_ascii())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_the_last_event_of_a_stream() {
        let stream =
            Bytes::from_static(b": hi\n\nevent: message\ndata: {\"a\":1}\n\ndata: {\"b\":2}\r\n\r\n");
        assert_eq!(last_event(&stream), Bytes::from_static(b"{\"b\":2}"));
        assert_eq!(last_event(&Bytes::new()), Bytes::new());
    }
}
