//! A second opinion on an audit log.
//!
//! Written from `docs/evidence.md` and sharing no code with the gateway: a mistake there should not be one here. It
//! favours plainness over speed and memory; it reads everything, then judges.
//!
//! `auditck DIR... [--vkey KEY] [--checkpoint FILE]... [--evidence-keys FILE]` prints one JSON document and exits 0 if nothing was found, 1 if
//! something was, 5 if a folder cannot be read.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod chain;
mod evidence;
mod log;
mod note;
mod rules;
mod tree;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use serde_json::{Value, json};

/// Checks audit logs and exports of Portcullis.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// A log's folder, or an export
    #[arg(required = true)]
    dir: Vec<PathBuf>,
    /// The key that must have signed the checkpoints
    #[arg(long)]
    vkey: Option<String>,
    /// A checkpoint that was kept elsewhere
    #[arg(long)]
    checkpoint: Vec<PathBuf>,
    /// What `evidence/keys.age` of an export holds, unsealed: every object is opened
    #[arg(long)]
    evidence_keys: Option<PathBuf>,
}

/// One thing that is wrong.
#[derive(Debug, Clone)]
struct Finding {
    seq: u64,
    kind: String,
    detail: String,
}

impl Finding {
    fn new(seq: u64, kind: &str, detail: impl Into<String>) -> Self {
        Self { seq, kind: kind.into(), detail: detail.into() }
    }

    fn document(&self) -> Value {
        json!({"seq": self.seq, "kind": self.kind, "detail": self.detail})
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("auditck: {error}");
            ExitCode::from(5)
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, String> {
    let mut kept = Vec::new();
    for path in &arguments.checkpoint {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        kept.push(text);
    }
    let keys = arguments
        .evidence_keys
        .as_ref()
        .map(|path| std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display())));
    let keys = keys.transpose()?;
    let (mut reports, mut ok, mut all) = (Vec::new(), true, Vec::new());
    for dir in &arguments.dir {
        let log = log::read(dir)?;
        let mut found = log.damage.clone();
        let records = chain::check(&log, &mut found);
        let root = tree::check(&log, &mut found);
        note::check(&log, &records, arguments.vkey.as_deref(), &kept, &mut found);
        let looked = evidence::check(dir, &log, &records, keys.as_deref(), &mut found)?;
        ok &= found.is_empty();
        reports.push(json!({
            "log": log.id, "size": log.records.len(), "root": root,
            "evidence": {"intact": looked.intact, "opened": looked.opened, "absent": looked.absent},
            "problems": found.iter().map(Finding::document).collect::<Vec<_>>(),
        }));
        all.extend(records);
    }
    // What happened, by time; within a log by number.
    all.sort_by_key(|record| {
        (record["time"].as_str().unwrap_or_default().to_owned(), record["seq"].as_u64())
    });
    let broken = rules::check(&all);
    ok &= broken.is_empty();
    let rules: Vec<Value> = broken.iter().map(Finding::document).collect();
    println!("{}", json!({"ok": ok, "logs": reports, "invariants": rules}));
    Ok(ok)
}
