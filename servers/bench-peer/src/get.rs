//! The least that a client of a resource server can do: one connection, the same GET again and again.

use std::io;
use std::process::ExitCode;
use std::time::Instant;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper::header::{ACCEPT, AUTHORIZATION, HOST};

use crate::GetArguments;
use crate::http_caller::connect;
use crate::load::{Tally, cpu_time};

/// Runs the loop and prints its report; fails if every request did.
pub(crate) async fn run(arguments: GetArguments) -> io::Result<ExitCode> {
    let token = std::fs::read_to_string(&arguments.bearer_file)?;
    let bearer = format!("Bearer {}", token.trim());
    let (mut sender, host) = connect::<Empty<Bytes>>(&arguments.url).await?;
    let target = arguments.url.path_and_query().map_or("/", |target| target.as_str());
    let mut tally = Tally::default();
    let (began, cpu) = (Instant::now(), cpu_time());
    for _ in 0..arguments.calls {
        let request = Request::get(target)
            .header(HOST, &host)
            .header(AUTHORIZATION, &bearer)
            .header(ACCEPT, "application/json")
            .body(Empty::new())
            .map_err(io::Error::other)?;
        let asked = Instant::now();
        sender.ready().await.map_err(io::Error::other)?;
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
        // What is fetched is also read, as any client would.
        match serde_json::from_slice::<serde_json::Value>(&body) {
            Ok(_) if status.is_success() => tally.took(asked.elapsed()),
            _ => tally.failed(format!("status {status}")),
        }
    }
    tally.report(began.elapsed().as_secs_f64(), cpu_time().saturating_sub(cpu), &mut io::stdout())?;
    Ok(if tally.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
