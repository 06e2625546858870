//! `portcullis audit show`: one record, the proof that it is in the log, and the exact bytes behind it.

use std::path::Path;
use std::process::ExitCode;

use portcullis_audit::{Record, prove, read_from};
use portcullis_core::ErrorCode;
use portcullis_gateway::index::{Wanted, search};
use serde_json::{Value, json};

use super::unreadable;
use crate::cli::ShowArgs;
use crate::commands::Context;
use crate::failure::Failure;
use crate::operator::Request;
use crate::output::visible;

pub(super) async fn run(context: &Context<'_>, args: &ShowArgs, dir: &Path) -> Result<ExitCode, Failure> {
    let record = find(dir, &args.record).await?;
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
    if args.evidence {
        let reason = args.reason.clone().unwrap_or_default();
        if reason.trim().is_empty() {
            return Err(Failure::field("reason", "say why the evidence is read; it is recorded"));
        }
        document["evidence"] =
            context.ask(&Request::AuditEvidence { seqs: vec![record.seq], reason }).await?;
    }
    context.output.result(&document, |document| {
        let mut shown = vec![serde_json::to_string_pretty(&document["record"]).unwrap_or_default()];
        shown.extend(document["evidence"].as_array().into_iter().flatten().map(render_piece));
        shown.extend(document.get("proof").map(render));
        shown.join("\n\n")
    });
    Ok(ExitCode::SUCCESS)
}

/// The record with this number or id.
pub(crate) async fn find(dir: &Path, wanted: &str) -> Result<Record, Failure> {
    let missing = || Failure::new(ErrorCode::NotFound, format!("there is no record {wanted}"));
    let found = match wanted.parse::<u64>() {
        Ok(seq) => read_from(dir, seq).map_err(|error| unreadable(&error))?.next(),
        Err(_) => {
            let by_id = Wanted { id: Some(wanted.to_owned()), ..Wanted::default() };
            search(dir, &by_id, 1).await.map_err(|error| unreadable(&error))?.pop().map(Ok)
        }
    };
    found.ok_or_else(missing)?.map_err(|error| unreadable(&error))
}

/// One piece of evidence. What servers and agents wrote is made visible, never printed as it is.
pub(crate) fn render_piece(piece: &Value) -> String {
    let head = format!("{}, {} bytes", piece["role"].as_str().unwrap_or_default(), piece["bytes"]);
    match (piece["text"].as_str(), piece["base64"].as_str(), piece["evidence"].as_str()) {
        (Some(text), ..) => format!("{head}:\n{}", visible(text)),
        (_, Some(base64), _) => format!("{head}, in base64:\n{base64}"),
        (.., gone) => format!("{head}: {}", gone.unwrap_or("missing")),
    }
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
