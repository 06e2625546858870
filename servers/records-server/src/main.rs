//! `cargo run -p records-server -- --seed demo`

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

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
    ready_file: Option<PathBuf>,
    /// Write the ready line to this open descriptor instead of standard output
    #[arg(long, value_name = "FD", conflicts_with = "ready_file")]
    ready_fd: Option<u32>,
}

impl Args {
    /// Says that clients can come, once and whole.
    fn tell(&self, ready: &str) -> std::io::Result<()> {
        match (&self.ready_file, self.ready_fd) {
            (Some(file), _) => {
                let part = file.with_extension("part");
                std::fs::write(&part, ready)?;
                std::fs::rename(part, file)
            }
            (None, Some(fd)) => {
                let open = std::fs::OpenOptions::new().append(true).open(format!("/dev/fd/{fd}"));
                let named = |error: std::io::Error| {
                    std::io::Error::new(
                        error.kind(),
                        format!("--ready-fd {fd} cannot be written to: {error}"),
                    )
                };
                writeln!(open.map_err(named)?, "{ready}").map_err(named)
            }
            (None, None) => writeln!(std::io::stdout(), "{ready}"),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let args = Args::parse();
    let server = Server::serve(Options {
        listen: args.listen,
        admin_listen: args.admin_listen,
        db: args.db.clone(),
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
    args.tell(&ready.to_string())?;
    let mut end = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        _ = end.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(())
}
