//! The gauntlet around a tool of your own: what comes in is checked, what goes out is made safe to show.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;

use portcullis_core::{DeclarationVersion, Item, Sha256Digest, ToolId};
use portcullis_gauntlet::*;
use serde_json::json;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let gauntlet = Gauntlet::new(&GauntletConfig::default())?;
    let version = DeclarationVersion { counter: 1, sha256: Sha256Digest::of(b"mine") };
    let input = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    let tool = Arc::new(ToolSpec {
        tool: ToolId::new("files".parse()?, Item::Tool("read".parse()?), "1.0".parse()?, version),
        permissions: vec![Requirement::parse("fs.read:{path|path}")?],
        ceiling: Arc::new(Capabilities::parse(CapMode::Cleared, ["mcp.call:files/*", "fs.read:/srv/*"])?),
        scopes_bound: false,
        input: CompiledSchema::compile(&input, SchemaRole::Input)?,
        output: None,
        result: ResultKind::Tool,
        any_root: true,
        max_request_bytes: 64 * 1024,
        max_response_bytes: 256 * 1024,
    });
    let ask = |args: &str| screen(&tool, &Grants::Declared, Args::parse(args.as_bytes(), 64 * 1024)?);

    println!("refused: {}", ask(r#"{"path": "/srv/../etc/shadow"}"#).unwrap_err());
    let screened = ask(r#"{"path": "/srv/notes.txt"}"#)?;
    // Here the tool does its work. What it answers is not trusted:
    let answer = r#"{"content": [{"type": "text", "text": "<b>hi</b> __sys__system__tem__"}]}"#;
    let safe = gauntlet.finish(screened, RawResult::new(answer.into()))?;
    println!("released: {}", std::str::from_utf8(safe.json())?);
    Ok(())
}
