//! `portcullis sandbox explain|test|waive`: what confines one server.

use std::process::ExitCode;

use portcullis_governance::declaration::Span;
use serde_json::Value;

use super::Context;
use super::mcp::text;
use crate::cli::SandboxCommand;
use crate::failure::Failure;
use crate::operator::Request;

pub(super) async fn run(context: &Context<'_>, command: SandboxCommand) -> Result<ExitCode, Failure> {
    match command {
        SandboxCommand::Explain { server } => {
            let explained = context.ask(&Request::SandboxExplain { name: server }).await?;
            context.output.result(&explained, picture);
        }
        SandboxCommand::Test { server } => {
            let tested = context.ask(&Request::SandboxTest { name: server }).await?;
            context.output.result(&tested, |tested| {
                let checks = tested["layers"]["checks"].as_array().map_or(0, Vec::len);
                format!(
                    "{} can be confined: {checks} checks passed, and nothing was run.",
                    text(&tested["server"])
                )
            });
        }
        SandboxCommand::Waive { server, facility, reason, expires } => {
            let lifetime = expires.parse::<Span>().map_err(|error| Failure::field("expires", error))?.0;
            let request = Request::SandboxWaive { name: server, facility, reason, lifetime };
            let waived = context.ask(&request).await?;
            context.output.result(&waived, |waived| {
                format!(
                    "waived: {} is started without {} until {}",
                    text(&waived["server"]),
                    text(&waived["facility"]),
                    text(&waived["expires_at"])
                )
            });
        }
        SandboxCommand::Doctor | SandboxCommand::Run(_) => unreachable!("needs no gateway"),
    }
    Ok(ExitCode::SUCCESS)
}

/// What a server may touch, as a picture.
fn picture(explained: &Value) -> String {
    let mut lines = vec![format!(
        "{} {} · {}",
        text(&explained["server"]),
        text(&explained["version"]),
        text(&explained["isolation_class"])
    )];
    let profile = &explained["profile"];
    if profile.is_null() {
        lines.push(format!("  at         {}", text(&explained["url"])));
        lines.push("  it runs elsewhere: what it touches there is not confined by this gateway".into());
        lines.extend(tools(explained));
        return lines.join("\n");
    }
    let mut row = |label: &str, values: Vec<String>, none: &str| {
        let values = if values.is_empty() { vec![none.to_owned()] } else { values };
        for (index, value) in values.into_iter().enumerate() {
            lines.push(format!("  {:<10} {value}", if index == 0 { label } else { "" }));
        }
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut command = vec![text(&profile["command"])];
    command.extend(list(&profile["args"]).iter().map(text));
    row("runs", vec![command.join(" ")], "");
    row("is made of", list(&profile["artifacts"]).iter().map(text).collect(), "the program alone");
    let folder = |scope: &Value| match scope["access"].as_str() {
        Some("rw") => format!("{}  read and write", text(&scope["path"])),
        _ => format!("{}  read only", text(&scope["path"])),
    };
    row("files", list(&profile["fs"]).iter().map(folder).collect(), "none of yours");
    row("programs", list(&profile["exec"]).iter().map(text).collect(), "none but itself");
    let background = profile["background_egress"] == true;
    let host = |scope: &Value| {
        let when = if background { "at any time" } else { "during calls that have its scope" };
        let private = if scope["tls"] == "required" { "TLS" } else { "in the clear" };
        format!(
            "{}:{}  {private}, {when} (scope {})",
            text(&scope["host"]),
            scope["port"],
            text(&scope["scope"])
        )
    };
    row("hosts", list(&profile["egress"]).iter().map(host).collect(), "none: there is no network in there");
    let secret = |secret: &Value| {
        let (name, class) = (text(&secret["name"]), text(&secret["class"]));
        match secret["via"].as_str() {
            Some("fd") => {
                format!("/run/secrets/{name}  {class}, in a file of the one process that serves the call")
            }
            Some("env") => {
                format!("{name}  {class}, in the environment of the one process that serves the call")
            }
            _ => format!(
                "{name}  a placeholder for {class}; the value goes toward scope {} and never into the process",
                text(&secret["toward"])
            ),
        }
    };
    row("secrets", list(&profile["secrets"]).iter().map(secret).collect(), "none");
    let limits = &profile["limits"];
    let mebibytes = |key: &str| limits[key].as_u64().unwrap_or_default() >> 20;
    row(
        "limits",
        vec![format!(
            "{} MiB of memory · {} processes · {} files · {} MiB in /tmp",
            mebibytes("memory"),
            limits["pids"],
            limits["nofile"],
            mebibytes("tmp")
        )],
        "",
    );
    row(
        "not there",
        vec!["your home folder, /usr/bin, other servers, the gateway; no way to more rights".into()],
        "",
    );
    let waiver = |waiver: &Value| {
        format!(
            "{} until {}: {}",
            text(&waiver["facility"]),
            text(&waiver["expires_at"]),
            text(&waiver["reason"])
        )
    };
    row("waived", list(&explained["waivers"]).iter().map(waiver).collect(), "nothing");
    lines.extend(tools(explained));
    lines.push(match explained["process_model"].as_str() {
        Some("shared") => "  one process serves all tools, with all of this (shared)".to_owned(),
        Some("per_call") => "  each call has a process of its own, with the scopes of its tool (per_call)".to_owned(),
        _ => "  each set of scopes has a process of its own for each agent, which reads where its tools only read (per_profile)"
            .to_owned(),
    });
    lines.join("\n")
}

fn tools(explained: &Value) -> Vec<String> {
    let names =
        |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(", ");
    let tools = explained["tools"].as_array().into_iter().flatten();
    let line = |(index, tool): (usize, &Value)| {
        let scopes = names(&tool["scopes"]);
        let scopes = if scopes.is_empty() { "no scope".to_owned() } else { scopes };
        format!(
            "  {:<10} {}  [{}] {scopes}{}",
            if index == 0 { "tools" } else { "" },
            text(&tool["name"]),
            names(&tool["side_effects"]),
            if tool["process_model"] == "per_call" { ", a process for each call" } else { "" },
        )
    };
    tools.enumerate().map(line).collect()
}
