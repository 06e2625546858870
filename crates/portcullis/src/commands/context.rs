//! `portcullis context build`: a prompt out of a recorded conversation (CTX-61).

use std::process::ExitCode;

use portcullis_context::session_log::{Strictness, load};
use portcullis_context::{Build, ContextBuilder, Encoding, Phase};
use serde_json::{Value, json};

use super::mcp::text;
use crate::cli::ContextBuildArgs;
use crate::failure::Failure;
use crate::output::{Output, table, visible};

pub(super) fn build(output: &Output, args: &ContextBuildArgs) -> Result<ExitCode, Failure> {
    let shown = args.session.display();
    let bytes = std::fs::read(&args.session)
        .map_err(|error| Failure::field("session", format!("{shown}: {error}")))?;
    let strictness = if args.lenient { Strictness::Lenient } else { Strictness::Strict };
    let loaded =
        load(&bytes, strictness).map_err(|error| Failure::field("session", format!("{shown}:\n{error}")))?;
    for odd in loaded.skipped.iter().chain(&loaded.warnings) {
        output.note(format!("{shown}: {odd}"));
    }
    let mut builder = ContextBuilder::new();
    for item in loaded.items {
        builder.ingest(item).map_err(|error| Failure::field("session", error.to_string()))?;
    }
    let build = Build {
        query_tags: &args.tags,
        header: &args.header,
        footer: &args.footer,
        budget: args.budget,
        encoder: Encoding::named(&args.encoder).unwrap_or_default(),
        redact_sensitive: args.redact_sensitive,
        ..Build::new(Phase::named(&args.phase).unwrap_or(Phase::Answer), &args.query)
    };
    let built = builder.build(&build).map_err(|error| Failure::field("budget", error.to_string()))?;
    let kinds: Vec<Value> = builder.items().iter().map(|item| json!([item.id, item.kind])).collect();
    let value = json!(built);
    output
        .result(&value, |built| if args.explain { explained(built, &kinds) } else { text(&built["prompt"]) });
    Ok(ExitCode::SUCCESS)
}

fn explained(built: &Value, kinds: &[Value]) -> String {
    let included: Vec<&str> =
        built["included"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let rows = kinds.iter().map(|item| {
        let id = text(&item[0]);
        let dropped =
            built["dropped"].as_array().into_iter().flatten().find(|dropped| dropped["id"] == item[0]);
        let fate = match dropped {
            Some(dropped) => format!("left out: {}", text(&dropped["reason"])),
            None => "in the prompt".into(),
        };
        vec![visible(&id), text(&item[1]), fate]
    });
    let summary = format!("{} tokens, {} of {} items", built["tokens"], included.len(), kinds.len());
    format!("{}\n\n{summary}", table(&["item", "kind", ""], rows.collect()))
}
