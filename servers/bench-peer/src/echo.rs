//! The echo upstream. On stdio it is a plain loop that writes when it has read everything there is; on HTTP, one hyper
//! connection per client.

use std::convert::Infallible;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::net::Ipv4Addr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::message;

/// Serves until stdin ends.
pub(crate) fn serve_stdio() -> io::Result<()> {
    let mut input = BufReader::with_capacity(64 * 1024, io::stdin().lock());
    let mut output = BufWriter::with_capacity(64 * 1024, io::stdout().lock());
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return output.flush();
        }
        if let Some(answer) = message::answer(&line) {
            output.write_all(answer.as_bytes())?;
            output.write_all(b"\n")?;
        }
        // More questions may be waiting already: their answers leave together.
        if input.buffer().is_empty() {
            output.flush()?;
        }
    }
}

/// Serves until the process ends.
pub(crate) async fn serve_http(port: u16) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    crate::announce(listener.local_addr()?)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let service = service_fn(|request| async { Ok::<_, Infallible>(respond(request).await) });
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn respond(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    if request.method() != Method::POST {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        return response;
    }
    let Ok(body) = request.into_body().collect().await else {
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return response;
    };
    match message::answer(&body.to_bytes()) {
        Some(answer) => {
            *response.body_mut() = Full::new(Bytes::from(answer));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        None => *response.status_mut() = StatusCode::ACCEPTED,
    }
    response
}
