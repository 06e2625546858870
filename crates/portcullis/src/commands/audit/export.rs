//! `portcullis audit export`: the log as a folder for others, or recorded results as a cassette.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Map, Value};

use crate::cli::ExportArgs;
use crate::commands::Context;
use crate::failure::Failure;
use crate::operator::Request;

pub(super) async fn run(context: &Context<'_>, args: &ExportArgs) -> Result<ExitCode, Failure> {
    let mut done = Map::new();
    if let Some(out) = &args.out {
        let out = absolute("out", out)?;
        done.insert("out".into(), out.display().to_string().into());
        let (recipient, reason) = (args.recipient.clone(), args.reason.clone());
        let request = Request::AuditExport { out, from: args.from, to: args.to, recipient, reason };
        let exported = context.ask(&request).await?;
        done.extend(exported.as_object().cloned().unwrap_or_default());
    }
    if let Some(cassette) = &args.cassette {
        let out = absolute("cassette", cassette)?;
        done.insert("cassette".into(), out.display().to_string().into());
        let recorded = context.ask(&Request::AuditCassette { out, session: args.session.clone() }).await?;
        done.insert("entries".into(), recorded["entries"].clone());
    }
    context.output.result(&Value::Object(done), render);
    Ok(ExitCode::SUCCESS)
}

/// The gateway that writes it may have another working folder.
fn absolute(field: &str, path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::field(field, format!("{}: {error}", path.display())))
}

fn render(done: &Value) -> String {
    let mut lines = Vec::new();
    if let Some(out) = done["out"].as_str() {
        lines.push(format!(
            "{} records of log {} under a checkpoint of {}, in {out}",
            done["records"],
            done["log"].as_str().unwrap_or_default(),
            done["size"],
        ));
        lines.push(format!("anybody can check them: portcullis audit verify --dir {out}"));
        if let Some(evidence) = done["evidence"].as_object() {
            lines.push(format!(
                "{} objects of evidence; the recipient opens their keys with: age -d -i IDENTITY {out}/evidence/keys.age",
                evidence["objects"]
            ));
        }
    }
    if let Some(cassette) = done["cassette"].as_str() {
        lines.push(format!("{} recorded results in {cassette}", done["entries"]));
        lines.push(format!("play them: portcullis serve --replay {cassette}"));
    }
    lines.join("\n")
}
