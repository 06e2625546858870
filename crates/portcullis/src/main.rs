//! `portcullis`: the governed gateway for MCP.
//!
//! The binary is wiring: [`cli`] says what can be typed, [`config`] what can be configured, [`commands`] what
//! happens, [`operator`] how a command reaches a running gateway. Everything it does is done by the crates below.

mod cli;
mod commands;
mod config;
mod failure;
mod home;
mod identity;
mod image;
mod mcp_client;
mod operator;
mod operator_listener;
mod output;
mod receipt;
mod ssh_agent;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    // The embedded demo server is started as a child of the gateway and must stay as small as it is.
    let mut args = std::env::args_os();
    let first = args.nth(1).unwrap_or_default();
    if first == "demo-server" {
        return demo_server::run(std::iter::once("portcullis demo-server".into()).chain(args));
    }
    // The launcher of confined programs is this program again, before it has done anything.
    if first == portcullis_sandbox::launch::MODE {
        portcullis_sandbox::stage::main(&args.next().unwrap_or_default().to_string_lossy());
    }
    let cli = cli::Cli::parse();
    let output = output::Output::new(&cli);
    install_log(cli.command.stays());
    install_panic_hook();
    match commands::run(cli, &output) {
        Ok(code) => code,
        Err(failure) => output.failure(&failure),
    }
}

/// Diagnostics go to stderr, quietly unless asked for with RUST_LOG. A command that `stays` has nobody else to tell; one that
/// ends says itself what went wrong, but for what may become of the evidence.
fn install_log(stays: bool) {
    let usual = if stays { "warn" } else { "error,portcullis_audit=warn" };
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(usual));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
}

/// A panic is a bug: it is said in one line, without the values that may have caused it, and the call or process it
/// happened in ends. What was not durable was not done.
fn install_panic_hook() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(|at| format!("{}:{}", at.file(), at.line())).unwrap_or_default();
        tracing::error!(place, "a defect of portcullis; please report it with this line");
    }));
}
