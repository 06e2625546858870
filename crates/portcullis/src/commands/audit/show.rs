//! `portcullis audit show`: one record, and the proof that it is in the log.

use std::path::Path;
use std::process::ExitCode;

use portcullis_audit::{Record, prove, read, read_from};
use portcullis_core::ErrorCode;
use serde_json::{Value, json};

use super::unreadable;
use crate::cli::ShowArgs;
use crate::commands::Context;
use crate::failure::Failure;

pub(super) fn run(context: &Context<'_>, args: &ShowArgs, dir: &Path) -> Result<ExitCode, Failure> {
    let record = find(dir, &args.record)?;
    let mut document = json!({"record": record});
    if args.proof {
        let proof = prove(dir, record.seq).map_err(|error| unreadable(&error))?.ok_or_else(|| {
            let message =
                format!("no checkpoint covers record {} yet; there is one every second", record.seq);
            Failure::new(ErrorCode::NotFound, message)
        })?;
        if proof.leaf != record.leaf {
            let message =
                format!("the tree has another record {}; run `portcullis audit verify`", record.seq);
            return Err(Failure::new(ErrorCode::Integrity, message));
        }
        document["proof"] = json!(proof);
    }
    context.output.result(&document, |document| {
        let shown = serde_json::to_string_pretty(&document["record"]).unwrap_or_default();
        match document.get("proof") {
            Some(proof) => format!("{shown}\n\n{}", render(proof)),
            None => shown,
        }
    });
    Ok(ExitCode::SUCCESS)
}

/// The record with this number or id.
pub(super) fn find(dir: &Path, wanted: &str) -> Result<Record, Failure> {
    let missing = || Failure::new(ErrorCode::NotFound, format!("there is no record {wanted}"));
    let found = match wanted.parse::<u64>() {
        Ok(seq) => read_from(dir, seq).map_err(|error| unreadable(&error))?.next(),
        Err(_) => (read(dir).map_err(|error| unreadable(&error))?)
            .find(|record| record.as_ref().map_or(true, |record| record.id.to_string() == wanted)),
    };
    found.ok_or_else(missing)?.map_err(|error| unreadable(&error))
}

fn render(proof: &Value) -> String {
    let path = proof["path"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let path: Vec<String> = path.map(|hash| format!("  {hash}")).collect();
    format!(
        "is record {} under this checkpoint: its leaf {} with\n{}\nhashes to the root {}.\n\n{}",
        proof["index"],
        proof["leaf"].as_str().unwrap_or_default(),
        path.join("\n"),
        proof["root"].as_str().unwrap_or_default(),
        proof["checkpoint"].as_str().unwrap_or_default().trim_end(),
    )
}
