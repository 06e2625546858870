//! A reference server for the official conformance suite: everything its scenarios call, and nothing else.
//!
//! It stands on the official SDK's server side, so that it shares no code with the gateway: what the suite finds
//! here directly, it must find through the gateway too (PRO-50, PRO-51).
//!
//! | module | the idea |
//! |---|---|
//! | `reference` | the server: which handler answers what |
//! | `catalogue` | what there is: tools, prompts, resources, as data |
//! | `tools`, `prompts`, `resources` | what they do |
//! | `asking` | questions to the client, in the way of its era |
//! | `tasks` | tools that go on after their answer |
//! | `state` | request state that cannot be forged |

#![allow(clippy::print_stdout, reason = "the address it listens on is what a starter waits for")]
// The protocol's newest revision retires sampling, roots and logging; the older ones have them.
#![allow(deprecated)]

mod asking;
mod catalogue;
mod prompts;
mod reference;
mod resources;
mod state;
mod tasks;
mod tools;

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use rmcp::ServiceExt as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService, stdio};

use crate::reference::Reference;

/// The reference server of the conformance runs
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    /// Where to listen; the address is printed once it is open
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0", conflicts_with = "stdio")]
    listen: SocketAddr,
    /// Serve stdin and stdout instead
    #[arg(long)]
    stdio: bool,
    /// Which revisions to speak
    #[arg(long, value_enum, default_value_t = Eras::Both)]
    eras: Eras,
}

/// Which revisions to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Eras {
    /// All
    Both,
    /// 2024-11-05 to 2025-11-25
    Legacy,
    /// 2026-07-28
    Modern,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let reference = Reference::new(arguments.eras);
    if arguments.stdio {
        reference.serve(stdio()).await?.waiting().await?;
        return Ok(());
    }
    let listener = tokio::net::TcpListener::bind(arguments.listen).await?;
    println!("listening on http://{}/mcp", listener.local_addr()?);
    std::io::stdout().flush()?;
    let config = StreamableHttpServerConfig::default().with_allowed_origins([
        "http://localhost:*",
        "http://127.0.0.1:*",
        "http://[::1]:*",
    ]);
    let service = StreamableHttpService::new(
        move || Ok(reference.clone()),
        Arc::new(LocalSessionManager::default()),
        config,
    );
    loop {
        let (stream, _) = listener.accept().await?;
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
