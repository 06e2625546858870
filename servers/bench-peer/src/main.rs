//! `bench-peer`: the other ends of the spine benchmark.
//!
//! To say what a gateway costs, three things must stand around it that cost next to nothing: an upstream that answers
//! at once (`echo`), a generator that keeps a fixed number of calls in flight (`load`), and the least that a process
//! in between can do (`forward`): bytes in, bytes out, no governance. All ratios are taken against these.
//!
//! | module | the idea |
//! |---|---|
//! | `message` | the echo server's answers, made of slices of the question |
//! | `echo` | that server on stdio and HTTP |
//! | `load` | closed-loop callers and their report |
//! | `call` | one call: how it is written, and whether its answer is a success |
//! | `http_caller`, `stdio_child` | one keep-alive connection each; one child shared by all |
//! | `get` | a bare client of a resource server, to compare the records adapter to |
//! | `forward` | the bare forwarder, to an HTTP upstream or a stdio child |

mod call;
mod echo;
mod forward;
mod get;
mod http_caller;
mod load;
mod message;
mod stdio_child;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use hyper::Uri;

use crate::call::Revision;

#[derive(Debug, Parser)]
#[command(name = "bench-peer", version, about = "The other ends of the spine benchmark")]
struct Arguments {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// A fast MCP upstream with the tools `echo {text}` and `blob {}` (4 KiB).
    Echo(EchoArguments),
    /// A closed loop of callers; prints one JSON line.
    Load(LoadArguments),
    /// A bare HTTP client that fetches one address again and again; prints one JSON line.
    Get(GetArguments),
    /// A bare forwarder, without any governance.
    Forward(ForwardArguments),
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct EchoArguments {
    /// Serve on stdin and stdout.
    #[arg(long)]
    stdio: bool,
    /// Serve on 127.0.0.1:PORT (0 takes a free port) and print the address.
    #[arg(long, value_name = "PORT")]
    http: Option<u16>,
}

#[derive(Debug, Args)]
struct Target {
    /// Address of a streamable HTTP server.
    #[arg(
        long,
        visible_alias = "upstream",
        value_name = "URL",
        conflicts_with = "stdio",
        required_unless_present = "stdio"
    )]
    url: Option<Uri>,
    /// Start the command after `--` and talk to it through its pipes.
    #[arg(long, requires = "command")]
    stdio: bool,
    /// The command of --stdio.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Args)]
struct LoadArguments {
    #[command(flatten)]
    target: Target,
    /// How many calls are in flight at any time.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    callers: u32,
    /// How many calls are measured, over all callers.
    #[arg(long, default_value_t = 1000)]
    calls: u32,
    /// How many calls are made first and not measured.
    #[arg(long, default_value_t = 0)]
    warmup: u32,
    /// Name of the tool.
    #[arg(long, default_value = "echo")]
    tool: String,
    /// Its arguments, as a JSON object.
    #[arg(long, default_value = r#"{"text":"hello"}"#)]
    args: String,
    /// Era of the protocol to speak.
    #[arg(long, value_enum, default_value_t = Revision::Legacy)]
    revision: Revision,
}

#[derive(Debug, Args)]
struct GetArguments {
    /// What to fetch.
    #[arg(long)]
    url: Uri,
    /// The file that holds the bearer.
    #[arg(long, value_name = "FILE")]
    bearer_file: std::path::PathBuf,
    /// How many times.
    #[arg(long, default_value_t = 1000)]
    calls: u32,
}

#[derive(Debug, Args)]
struct ForwardArguments {
    /// Listen on 127.0.0.1:PORT (0 takes a free port) and print the address.
    #[arg(long, value_name = "PORT")]
    listen: u16,
    #[command(flatten)]
    target: Target,
}

fn main() -> ExitCode {
    match run(Arguments::parse().role) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(io::stderr(), "bench-peer: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(role: Role) -> io::Result<ExitCode> {
    match role {
        Role::Echo(EchoArguments { http: Some(port), .. }) => single()?.block_on(echo::serve_http(port))?,
        Role::Echo(_) => echo::serve_stdio()?,
        Role::Load(arguments) => return several()?.block_on(load::run(arguments)),
        Role::Get(arguments) => return single()?.block_on(get::run(arguments)),
        Role::Forward(arguments) => several()?.block_on(forward::serve(arguments))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The upstream does next to nothing: a second thread would only add switches.
fn single() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn several() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

/// Tells whoever started us where we are.
fn announce(address: std::net::SocketAddr) -> io::Result<()> {
    writeln!(io::stdout(), "listening on http://{address}/mcp")?;
    io::stdout().flush()
}
