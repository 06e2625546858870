//! `portcullis catalog …`: what agents can find, what is odd about it, and what servers changed.

use std::path::Path;
use std::process::ExitCode;

use portcullis_catalog::drift::{Capabilities, Class, compare};
use serde_json::Value;

use super::Context;
use super::mcp::text;
use crate::cli::{CatalogCommand, FailOn, ItemKind};
use crate::failure::Failure;
use crate::operator::Request;
use crate::output::{table, visible};

pub(super) async fn run(context: &Context<'_>, command: CatalogCommand) -> Result<ExitCode, Failure> {
    match command {
        CatalogCommand::Search { query, path, top_k, kind } => {
            let query = (!query.is_empty()).then(|| query.join(" "));
            let request = Request::CatalogBrowse { query, path, top_k, kind: kind.word().into() };
            let found = context.ask(&request).await?;
            context.output.result(&found, |found| visible_lines(&text(&found["text"])));
        }
        CatalogCommand::Findings => {
            let findings = context.ask(&Request::CatalogFindings).await?;
            context.output.result(&findings, render_findings);
        }
        CatalogCommand::Refresh => {
            let counts = context.ask(&Request::CatalogRefresh).await?;
            context.output.result(&counts, |counts| {
                format!(
                    "{} items, {} quarantined, {} skipped, {} findings",
                    counts["registered"], counts["quarantined"], counts["skipped"], counts["findings"]
                )
            });
        }
        CatalogCommand::Snapshot { server, live } => {
            let file = context.ask(&Request::CatalogSnapshot { server, live }).await?;
            // The file is canonical JSON whatever the format of other results: it is compared byte for byte.
            let file = Capabilities::parse(&file.to_string())
                .map_err(|error| Failure::field("server", error.to_string()))?;
            let bytes = String::from_utf8_lossy(&file.to_bytes()).into_owned();
            context.output.bytes(&bytes);
        }
        CatalogCommand::Diff { before, after, fail_on } => return diff(context, &before, &after, fail_on),
    }
    Ok(ExitCode::SUCCESS)
}

/// Compares two files; needs no gateway.
fn diff(context: &Context<'_>, before: &Path, after: &Path, fail_on: FailOn) -> Result<ExitCode, Failure> {
    let report = compare(&read(before)?, &read(after)?);
    let value = serde_json::to_value(&report).unwrap_or_default();
    context.output.result(&value, render_report);
    let class = match fail_on {
        FailOn::Breaking => Class::Breaking,
        FailOn::NonBreaking => Class::NonBreaking,
        FailOn::Documentation => Class::Documentation,
    };
    Ok(if report.has(class) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn read(path: &Path) -> Result<Capabilities, Failure> {
    let fail = |problem: String| Failure::field("file", format!("{}: {problem}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
    Capabilities::parse(&text).map_err(|error| fail(error.to_string()))
}

fn render_report(report: &Value) -> String {
    let changes = report["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
    if changes.is_empty() {
        return "nothing changed".into();
    }
    let rows = changes.iter().map(|change| {
        let mut rule = text(&change["rule"]);
        for finding in change["text_findings"].as_array().into_iter().flatten() {
            rule.push_str(&format!(" ({})", text(finding)));
        }
        vec![
            text(&change["class"]),
            text(&change["server"]),
            visible(&text(&change["item"])),
            visible(&text(&change["pointer"])),
            rule,
        ]
    });
    let summary = &report["summary"];
    format!(
        "{}\n\n{} breaking, {} non-breaking, {} documentation",
        table(&["class", "server", "item", "where", "rule"], rows.collect()),
        summary["breaking"],
        summary["non_breaking"],
        summary["documentation"],
    )
}

fn render_findings(findings: &Value) -> String {
    let findings = findings.as_array().map(Vec::as_slice).unwrap_or_default();
    if findings.is_empty() {
        return "nothing odd was found".into();
    }
    let rows = findings.iter().map(|finding| {
        vec![
            text(&finding["kind"]),
            text(&finding["server"]),
            visible(&text(&finding["name"])),
            text(&finding["tool_id"]),
            text(&finding["detail"]),
        ]
    });
    table(&["finding", "server", "name", "id", "detail"], rows.collect())
}

fn visible_lines(answer: &str) -> String {
    answer.lines().map(visible).collect::<Vec<_>>().join("\n")
}

impl ItemKind {
    fn word(self) -> &'static str {
        match self {
            ItemKind::Tool => "tool",
            ItemKind::Resource => "resource",
            ItemKind::Prompt => "prompt",
        }
    }
}
