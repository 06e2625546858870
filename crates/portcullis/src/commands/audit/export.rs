//! `portcullis audit export`: the log as a folder for others.

use std::process::ExitCode;

use crate::cli::ExportArgs;
use crate::commands::Context;
use crate::failure::Failure;
use crate::operator::Request;

pub(super) async fn run(context: &Context<'_>, args: &ExportArgs) -> Result<ExitCode, Failure> {
    let out = std::path::absolute(&args.out)
        .map_err(|error| Failure::field("out", format!("{}: {error}", args.out.display())))?;
    let exported =
        context.ask(&Request::AuditExport { out: out.clone(), from: args.from, to: args.to }).await?;
    context.output.result(&exported, |exported| {
        format!(
            "{} records of log {} under a checkpoint of {}, in {}\nanybody can check them: portcullis audit verify --dir {}",
            exported["records"],
            exported["log"].as_str().unwrap_or_default(),
            exported["size"],
            out.display(),
            out.display(),
        )
    });
    Ok(ExitCode::SUCCESS)
}
