//! `portcullis audit verify`: one line when all is well; what is wrong, and where, when not.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use portcullis_audit::{Checks, NoteKey, SignedCheckpoint, Verdict};
use portcullis_core::ErrorCode;
use serde_json::{Value, json};

use super::unreadable;
use crate::cli::VerifyArgs;
use crate::commands::Context;
use crate::failure::Failure;

pub(super) fn run(context: &Context<'_>, args: &VerifyArgs) -> Result<ExitCode, Failure> {
    let checks = Checks {
        from: args.from.unwrap_or(0),
        to: args.to,
        checkpoints: args.checkpoint.iter().map(|path| checkpoint(path)).collect::<Result<_, _>>()?,
        evidence: args.evidence,
        vkey: args.vkey.as_deref().map(key).transpose()?,
    };
    let default = [context.home.join("audit")];
    let dirs = if args.dir.is_empty() { &default[..] } else { &args.dir };
    let mut reports = Vec::new();
    for dir in dirs {
        let report = portcullis_audit::verify_with(dir, &checks).map_err(|error| unreadable(&error))?;
        let document = serde_json::to_value(&report)
            .map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))?;
        reports.push(document);
    }
    if args.invariants {
        let verdicts = portcullis_audit::check_invariants(dirs).map_err(|error| unreadable(&error))?;
        for report in &mut reports {
            add_invariants(report, &verdicts);
        }
    }
    let whole = reports.iter().all(|report| report["ok"] == json!(true));
    let text = |_: &Value| reports.iter().map(render).collect::<Vec<_>>().join("\n");
    match reports.as_slice() {
        [one] => context.output.result(one, text),
        several => context.output.result(&json!(several), text),
    }
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// What the records say is checked over all logs together and reported with each log.
fn add_invariants(report: &mut Value, verdicts: &BTreeMap<&'static str, Verdict>) {
    report["invariants"] = json!(verdicts);
    let log = report["log"].clone();
    let broken = verdicts.iter().flat_map(|(name, verdict)| {
        (verdict.violations.iter()).filter(|violation| json!(violation.log) == log).map(move |violation| {
            json!({"seq": violation.seq, "kind": "invariant", "detail": format!("{name}: {}", violation.detail)})
        })
    });
    let broken: Vec<Value> = broken.collect();
    if !broken.is_empty() {
        report["ok"] = json!(false);
    }
    if let Some(problems) = report["problems"].as_array_mut() {
        let room = 1000usize.saturating_sub(problems.len());
        problems.extend(broken.into_iter().take(room));
    }
}

/// A verifier key, or the file it is in.
fn key(text: &str) -> Result<NoteKey, Failure> {
    let wrong = |what: String| Failure::field("vkey", what);
    let read = if Path::new(text).exists() {
        std::fs::read_to_string(text).map_err(|error| wrong(format!("{text}: {error}")))?
    } else {
        text.to_owned()
    };
    read.trim().parse().map_err(|error: portcullis_audit::NoteError| wrong(error.to_string()))
}

fn checkpoint(path: &Path) -> Result<(String, SignedCheckpoint), Failure> {
    let wrong = |what: String| Failure::field("checkpoint", format!("{}: {what}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let note = text.parse().map_err(|error: portcullis_audit::NoteError| wrong(error.to_string()))?;
    Ok((format!("checkpoint {}", path.display()), note))
}

fn render(report: &Value) -> String {
    let text = |name: &str| report[name].as_str().unwrap_or_default().to_owned();
    if report["ok"] == json!(true) {
        let checked: u64 = (report["invariants"].as_object().into_iter().flatten())
            .filter_map(|(_, verdict)| verdict["checked"].as_u64())
            .sum();
        let kept = if checked > 0 { format!(", {checked} invariant checks hold") } else { String::new() };
        return format!(
            "log {} is whole: {} records{kept}, root {}",
            text("log"),
            report["size"],
            text("root")
        );
    }
    let problems = report["problems"].as_array().into_iter().flatten().map(|problem| {
        let part = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
        format!("  record {}: {}: {}", problem["seq"], part("kind"), part("detail"))
    });
    format!("log {} does NOT verify:\n{}", text("log"), problems.collect::<Vec<_>>().join("\n"))
}
