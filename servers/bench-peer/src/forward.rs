//! The bare forwarder: the least that a process in the middle can do. Toward an HTTP upstream, bodies pass as they
//! stream and only hop-by-hop headers change; each client connection has one upstream connection. Toward a stdio
//! child, ids are renumbered, since many clients share the pipe; nothing else is looked at.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

use crate::ForwardArguments;
use crate::http_caller::connect;
use crate::stdio_child::StdioChild;

type Reply = Response<Either<Incoming, Full<Bytes>>>;

/// Serves until the process ends.
pub(crate) async fn serve(arguments: ForwardArguments) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, arguments.listen)).await?;
    let target = match arguments.target.url {
        Some(url) => Target::Http(url),
        None => Target::Stdio(Arc::new(StdioChild::start(&arguments.target.command)?)),
    };
    crate::announce(listener.local_addr()?)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(client(stream, target.clone()));
    }
}

#[derive(Clone)]
enum Target {
    Http(Uri),
    Stdio(Arc<StdioChild>),
}

async fn client(stream: TcpStream, target: Target) {
    let upstream = &Mutex::new(None);
    let target = &target;
    let service = service_fn(|request| async move {
        let reply = match target {
            Target::Http(url) => to_http(request, url, upstream).await,
            Target::Stdio(child) => to_stdio(request, child).await,
        };
        Ok::<_, std::convert::Infallible>(reply.unwrap_or_else(|_| bad_gateway()))
    });
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

type Upstream = Mutex<Option<(SendRequest<Incoming>, HeaderValue)>>;

async fn to_http(mut request: Request<Incoming>, url: &Uri, upstream: &Upstream) -> io::Result<Reply> {
    let mut upstream = upstream.lock().await;
    let alive = match upstream.as_mut() {
        Some((sender, _)) => sender.ready().await.is_ok(),
        None => false,
    };
    if !alive {
        *upstream = Some(connect(url).await?);
    }
    let Some((sender, host)) = upstream.as_mut() else { return Err(io::Error::other("no upstream")) };
    *request.uri_mut() = url.path().parse().map_err(io::Error::other)?;
    request.headers_mut().insert(HOST, host.clone());
    request.headers_mut().remove(CONNECTION);
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    Ok(response.map(Either::Left))
}

#[derive(Deserialize)]
struct Question<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

async fn to_stdio(request: Request<Incoming>, child: &StdioChild) -> io::Result<Reply> {
    let body = request.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
    let question: Question<'_> = serde_json::from_slice(&body)?;
    let Some(id) = question.id else {
        child.tell(body.to_vec());
        let mut accepted = Response::new(Either::Right(Full::default()));
        *accepted.status_mut() = StatusCode::ACCEPTED;
        return Ok(accepted);
    };
    let (method, params) = (text(question.method), question.params.map_or("{}", RawValue::get));
    let line = child
        .ask(|number| format!(r#"{{"jsonrpc":"2.0","id":{number},"method":{method},"params":{params}}}"#))
        .await?;
    let answer: Answer<'_> = serde_json::from_slice(&line)?;
    let (key, value) = match answer.error {
        Some(error) => ("error", error.get()),
        None => ("result", text(answer.result)),
    };
    let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"{key}":{value}}}"#);
    let mut response = Response::new(Either::Right(Full::new(Bytes::from(answer))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

fn text(raw: Option<&RawValue>) -> &str {
    raw.map_or("null", RawValue::get)
}

fn bad_gateway() -> Reply {
    let mut response = Response::new(Either::Right(Full::default()));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}
