//! `portcullis doctor`: what is not as it should be, and what to do about each of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use portcullis_governance::approval::State;
use portcullis_governance::record::Mode;
use portcullis_sandbox::{Launcher, OWN_USER, doctor};
use serde::Serialize;
use serde_json::{Value, json};

use super::Context;
use super::mcp::text;
use crate::failure::Failure;
use crate::operator::Request;

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    /// What it is about: the machine, the gateway, or a server by its name.
    about: String,
    status: Status,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    /// Works, but somebody should look at it.
    Warning,
    /// Does not work.
    Problem,
}

impl Finding {
    fn ok(about: &str, what: impl Into<String>) -> Self {
        Self { about: about.into(), status: Status::Ok, what: what.into(), fix: None }
    }

    fn warning(about: &str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { about: about.into(), status: Status::Warning, what: what.into(), fix: Some(fix.into()) }
    }

    fn problem(about: &str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { status: Status::Problem, ..Self::warning(about, what, fix) }
    }
}

pub(super) async fn run(context: &Context<'_>) -> Result<ExitCode, Failure> {
    let needs_own_users = context.options()?.mode == Mode::Enterprise;
    let mut findings = machine(needs_own_users).await?;
    findings.extend(approvals(context).await?);
    findings.extend(checkpoints(context).await?);
    findings.extend(alarms(context).await?);
    findings.extend(separation(context).await?);
    let servers = context.ask(&Request::McpList).await?;
    let servers = servers.as_array().map(Vec::as_slice).unwrap_or_default();
    if servers.is_empty() {
        let fix = "portcullis up shows one; portcullis mcp add registers yours";
        findings.push(Finding::warning("gateway", "no server is registered", fix));
    }
    for server in servers {
        findings.extend(examine(context, server).await?);
    }
    let healthy = findings.iter().all(|finding| finding.status != Status::Problem);
    let report = json!({"healthy": healthy, "findings": findings});
    context.output.result(&report, render);
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What this machine can confine. User ids of their own are something that servers need or do without (SBX-70).
async fn machine(needs_own_users: bool) -> Result<Vec<Finding>, Failure> {
    let lost = |error: String| Failure::unavailable(format!("cannot find this program: {error}"));
    let own = std::env::current_exe().and_then(fs::canonicalize).map_err(|e| lost(e.to_string()))?;
    let examined = tokio::task::spawn_blocking(move || {
        Launcher::own().map(|launcher| doctor::examine(&launcher, &own)).map_err(|error| error.to_string())
    });
    let diagnosis = examined.await.map_err(|error| lost(error.to_string()))?.map_err(lost)?;
    let mut findings: Vec<Finding> = (diagnosis.facilities.iter())
        .filter(|facility| facility.status != doctor::Status::Ok)
        .filter(|facility| needs_own_users || facility.name != OWN_USER)
        .map(|facility| {
            let what = format!("{}: {}", facility.name, facility.detail);
            let fix = facility.fix.unwrap_or("portcullis sandbox doctor says more");
            match facility.status {
                doctor::Status::Degraded if facility.name != OWN_USER => {
                    Finding::warning("machine", what, fix)
                }
                _ => Finding::problem("machine", what, fix),
            }
        })
        .collect();
    if findings.is_empty() {
        findings.push(Finding::ok("machine", "servers can be confined here"));
    }
    Ok(findings)
}

/// Calls that wait for somebody, or waited for nobody.
async fn approvals(context: &Context<'_>) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    for (state, words, fix) in [
        (State::Pending, "waiting for an operator", "portcullis approve list --status pending"),
        (State::Expired, "expired before anybody decided", "portcullis approve list --status expired"),
    ] {
        let list = context.ask(&Request::ApproveList { status: Some(state) }).await?;
        match list.as_array().map_or(0, Vec::len) {
            0 => {}
            1 => findings.push(Finding::warning("gateway", format!("one call is {words}"), fix)),
            n => findings.push(Finding::warning("gateway", format!("{n} calls are {words}"), fix)),
        }
    }
    Ok(findings)
}

/// Sessions that are stopped until somebody has looked.
async fn checkpoints(context: &Context<'_>) -> Result<Option<Finding>, Failure> {
    let list = context.ask(&Request::CheckpointList).await?;
    let what = match list.as_array().map_or(0, Vec::len) {
        0 => return Ok(None),
        1 => "one session is stopped at a checkpoint".to_owned(),
        n => format!("{n} sessions are stopped at checkpoints"),
    };
    Ok(Some(Finding::warning("gateway", what, "portcullis checkpoint list")))
}

/// GOV-105: what an approval is worth where agents and operators are one user.
async fn separation(context: &Context<'_>) -> Result<Option<Finding>, Failure> {
    let found = context.ask(&Request::Separation).await?;
    let what = "an agent runs as the user that operators are: one that is hostile and not confined could act as an operator";
    let fix = "run agents as a user of their own, or have operators prove themselves with a passphrase (operator.auth)";
    Ok((found["shared"] == true).then(|| Finding::warning("gateway", what, fix)))
}

/// What no call fails for and somebody should look at all the same (SURF-95).
async fn alarms(context: &Context<'_>) -> Result<Vec<Finding>, Failure> {
    let alarms = context.ask(&Request::Alarms).await?;
    let alarms = alarms.as_array().cloned().unwrap_or_default();
    let finding =
        |alarm: &Value| Finding::problem(&text(&alarm["about"]), text(&alarm["what"]), text(&alarm["fix"]));
    Ok(alarms.iter().map(finding).collect())
}

/// One server: halted, gone, changed, or left behind.
async fn examine(context: &Context<'_>, server: &Value) -> Result<Vec<Finding>, Failure> {
    let name = text(&server["name"]);
    let shown = context.ask(&Request::McpShow { name: name.clone() }).await?;
    let mut findings = Vec::new();
    if let Some(command) = shown["process"]["command"].as_str() {
        let left = left_behind(Path::new(command));
        if !left.is_empty() {
            let pids: Vec<String> = left.iter().map(u32::to_string).collect();
            let what = format!("processes of it run without a gateway: {}", pids.join(", "));
            findings.push(Finding::problem(&name, what, format!("kill {}", pids.join(" "))));
        }
    }
    if server["state"] == "halted" {
        let what = format!("halted: {}", text(&shown["halt"]));
        let fix = format!("portcullis mcp show {name}; then mcp accept, mcp update or mcp resume");
        findings.push(Finding::problem(&name, what, fix));
        return Ok(findings);
    }
    let report = context.ask(&Request::McpTest { name: name.clone(), emit: false }).await?;
    let declaration = &report["declaration"];
    if report["reachable"] != true {
        let reason = text(&report["reason"]);
        let fix = if reason.contains("has changed since") {
            format!("if that was you: portcullis mcp update {name}")
        } else {
            format!("portcullis mcp test {name}, once it should work again")
        };
        findings.push(Finding::problem(&name, format!("cannot be reached: {reason}"), fix));
    } else if report["version_ok"] != true {
        let fix = format!("portcullis mcp update {name}");
        findings.push(Finding::problem(&name, "it says that it is another version", fix));
    } else if declaration["match"] != true {
        let count = declaration["fields"].as_array().map_or(0, Vec::len);
        let what = format!("differs from its declaration in {count} fields");
        findings.push(Finding::problem(&name, what, format!("portcullis mcp test {name} shows them")));
    } else {
        findings.push(Finding::ok(&name, "reachable, and as it was accepted"));
    }
    Ok(findings)
}

/// Processes of a program that no gateway is an ancestor of.
fn left_behind(command: &Path) -> Vec<u32> {
    let own = std::env::current_exe().ok();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| executable(*pid).as_deref() == Some(command))
        .filter(|pid| {
            let mut next = parent(*pid);
            while let Some(ancestor) = next {
                let gateway = executable(ancestor);
                if gateway.is_some() && (gateway == own || gateway.as_deref().is_some_and(is_portcullis)) {
                    return false;
                }
                next = parent(ancestor);
            }
            true
        })
        .collect()
}

fn is_portcullis(executable: &Path) -> bool {
    // A launcher was started through a descriptor; a binary that was replaced is told as deleted.
    executable.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("portcullis"))
}

fn executable(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok().filter(|parent| *parent > 0)
}

fn render(report: &Value) -> String {
    let findings = report["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
    let width = findings.iter().map(|finding| text(&finding["about"]).len()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for finding in findings {
        let mark = match finding["status"].as_str() {
            Some("ok") => "✓",
            Some("warning") => "!",
            _ => "✗",
        };
        lines.push(format!("{mark} {:width$}  {}", text(&finding["about"]), text(&finding["what"])));
        if let Some(fix) = finding["fix"].as_str() {
            lines.push(format!("  {:width$}  → {fix}", ""));
        }
    }
    lines.join("\n")
}
