//! `cargo run -p records-server -- --seed demo`

use std::io::Write as _;
use std::net::SocketAddr;

use clap::Parser;
use records_server::{Options, Profile, Server, Shape};
use serde_json::json;

/// A small resource server for personal records.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Args {
    /// Where clients connect
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where it is turned and looked at; loopback only
    #[arg(long, default_value = "127.0.0.1:0")]
    admin_listen: SocketAddr,
    /// The database file, or :memory:
    #[arg(long, default_value = ":memory:")]
    db: String,
    /// What is in it at first
    #[arg(long, value_parser = ["demo", "none"], default_value = "demo")]
    seed: String,
    /// What client tokens may do: v01 (no filters, no expansion) or rich
    #[arg(long, default_value = "rich")]
    profile: Profile,
    /// What a schema document looks like: nested, flat, wrapped, wrapped-nested
    #[arg(long, default_value = "nested")]
    schema_shape: Shape,
    /// The same ids, keys, tokens and time in every run; for tests
    #[arg(long)]
    deterministic: bool,
    /// Write the ready line to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    ready_file: Option<std::path::PathBuf>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let args = Args::parse();
    let server = Server::serve(Options {
        listen: args.listen,
        admin_listen: args.admin_listen,
        db: args.db,
        seed: args.seed == "demo",
        profile: args.profile,
        shape: args.schema_shape,
        deterministic: args.deterministic,
    })
    .await?;
    let tokens = &server.tokens;
    let ready = json!({
        "rs": server.rs, "admin": server.admin,
        "tokens": {"client": tokens.client, "narrow": tokens.narrow, "owner": tokens.owner},
    });
    match &args.ready_file {
        Some(file) => {
            let part = file.with_extension("part");
            std::fs::write(&part, ready.to_string())?;
            std::fs::rename(part, file)?;
        }
        None => writeln!(std::io::stdout(), "{ready}")?,
    }
    let mut end = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        _ = end.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(())
}
