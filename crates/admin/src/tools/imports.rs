//! `portcullis_imports_*`: servers that clients of this user reach today.

use portcullis_gateway::control::ImportSource;

use crate::args::NonBlank;
use crate::error::AdminError;
use crate::grant::{AdminGrant, TargetId};
use crate::registry::Module;
use crate::reply::{Committed, Reply};
use crate::services::{FoundRecord, ImportRecord};
use crate::tool::{admin_tool, read_tool};
use crate::{Cx, args, words};

words! {
    pub(crate) enum Source { McpJson = "mcp_json", ClaudeDesktop = "claude_desktop", Vscode = "vscode" }
}

args! {
    pub(crate) struct Scan { source: Option<Source> }
}

args! {
    pub(crate) struct Run {
        source: Source, server_names: Vec<NonBlank<80>>, vendor: Option<bool>, accept: Option<bool>,
    }
}

pub(super) fn module() -> Module {
    Module {
        name: "integrations/imports",
        tools: vec![
            read_tool("imports", "scan", "Find servers in clients' configurations.", scan),
            admin_tool("imports", "run", "Draft servers of a client's configuration.", run),
        ],
    }
}

fn source(word: Source) -> ImportSource {
    match word {
        Source::McpJson => ImportSource::McpJson,
        Source::ClaudeDesktop => ImportSource::ClaudeDesktop,
        Source::Vscode => ImportSource::Vscode,
    }
}

async fn scan(cx: Cx, args: Scan) -> Result<Reply<Vec<FoundRecord>>, AdminError> {
    Ok(Reply::ok(cx.imports().scan(args.source.map(source))))
}

async fn run(cx: Cx, grant: AdminGrant, args: Run) -> Result<Committed<ImportRecord>, AdminError> {
    let (imports, from) = (cx.imports(), source(args.source));
    let names: Vec<String> = args.server_names.into_iter().map(String::from).collect();
    let how = (args.vendor.unwrap_or(false), args.accept.unwrap_or(false));
    let target = TargetId::new("import", args.source.as_str());
    grant.answer(target, move |op| async move { imports.run(&op, from, &names, how).await }).await
}
