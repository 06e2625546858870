//! `spyd`: an MCP server that writes down every frame it receives and misbehaves on demand.
//!
//! A gateway's promises are mostly about what must *not* reach a server: a refused call, a second copy of an allowed
//! one, a credential. Only the far end can witness that. So every frame is appended to a log before anything is done
//! about it, and a test reads that log. The other half is what a server may do to a gateway: a control file, read
//! anew before each frame, switches on lies, silence, noise and death.
//!
//! | module | the idea |
//! |---|---|
//! | `frame_log` | one JSON line per frame, one write per line, before it is acted on |
//! | `control` | the switches, and the file they come from |
//! | `catalogue` | what is listed, honest or not |
//! | `revision` | the protocol's revisions and which of them this process speaks |
//! | `outbox` | where answers go: lines of stdout, or the events of one HTTP response |
//! | `spy` | one frame in: eras, cancellation, answers and the misbehaviour around them |
//! | `tools` | what the tools do |
//! | `offerings` | what there is besides tools: resources, prompts, completions |
//! | `frame` | what a received text is |
//! | `stdio`, `http` | the transports |
//!
//! # Invariants
//! - A frame is in the log before the spy acts on it, and in one piece.
//! - With an empty control file it is an ordinary server of the era that its client speaks.

mod catalogue;
mod control;
mod frame;
mod frame_log;
mod http;
mod http_reply;
mod offerings;
mod outbox;
mod revision;
mod spy;
mod stdio;
mod tools;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};

use crate::control::ControlFile;
use crate::frame_log::FrameLog;
use crate::revision::Revisions;
use crate::spy::Spy;

/// A test server that logs every frame it gets and misbehaves on demand.
#[derive(Debug, Parser)]
#[command(name = "spyd", version)]
struct Arguments {
    /// File to which every received frame is appended, as one JSON line.
    #[arg(long, value_name = "FILE")]
    log: PathBuf,
    /// JSON file of switches, read anew before each frame.
    #[arg(long, value_name = "FILE")]
    control: Option<PathBuf>,
    /// Serve streamable HTTP on 127.0.0.1:PORT (0 takes a free port) and print the address.
    #[arg(long, value_name = "PORT", conflicts_with = "stdio")]
    http: Option<u16>,
    /// Serve on stdin and stdout (the default).
    #[arg(long)]
    stdio: bool,
    /// `legacy`, `modern`, `both`, or one revision such as 2025-06-18.
    #[arg(long, default_value = "both")]
    revision: Revisions,
    /// A folder that it is told of, as many servers are; it does nothing with it.
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// With --http: end when stdin ends, so that no orphan outlives a test.
    #[arg(long, requires = "http")]
    end_with_stdin: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "spyd: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> io::Result<()> {
    let log = FrameLog::open(&arguments.log)?;
    let transport = if arguments.http.is_some() { "http" } else { "stdio" };
    log.event("start", &[("transport", transport.into())]);
    let control = ControlFile::new(arguments.control.clone());
    let spy = Arc::new(Spy::new(log, control, arguments.revision));
    spy.clone().watch_control();

    let mut terminate = signal(SignalKind::terminate())?;
    let served = async {
        match arguments.http {
            Some(port) => http::serve(spy.clone(), port).await,
            None => stdio::serve(spy.clone()).await,
        }
    };
    let reason = tokio::select! {
        served = served => served.map(|()| "stdin closed")?,
        _ = terminate.recv() => "terminated",
        () = stdin_end(), if arguments.end_with_stdin => "stdin closed",
    };
    spy.end(reason);
    // Not a return: a thread blocked in a read of stdin would hold the runtime's shutdown.
    std::process::exit(0)
}

async fn stdin_end() {
    let (mut stdin, mut byte) = (tokio::io::stdin(), [0; 64]);
    while matches!(stdin.read(&mut byte).await, Ok(1..)) {}
}
