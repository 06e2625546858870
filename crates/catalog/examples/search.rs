//! Searches a file of tool definitions, as an agent would: `search FILE WORDS…`.
//!
//! The file is a `tools/list` result, or an array of definitions. Nothing else of Portcullis is needed.
#![allow(clippy::print_stdout, reason = "an example talks")]

use portcullis_catalog::{BrowseOptions, BuildOptions, CatalogSnapshot, Request, ServerCtx, Source, ToolDef};
use serde_json::Value;
use serde_json::value::RawValue;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("usage: search FILE WORDS…")?;
    let words = arguments.collect::<Vec<_>>().join(" ");
    let document: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    let tools = document.get("tools").unwrap_or(&document).as_array().ok_or("no tools in the file")?;
    let raw: Vec<Box<RawValue>> =
        tools.iter().map(serde_json::value::to_raw_value).collect::<Result<_, _>>()?;

    let server = ServerCtx { server: "file".into(), ..ServerCtx::default() };
    let source = Source { server, definitions: raw.iter().map(|raw| ToolDef::tool(raw)).collect() };
    let catalogue = CatalogSnapshot::build(1, &[source], &BuildOptions::default());
    for finding in catalogue.findings() {
        println!("# {}: {}: {}", finding.kind.as_str(), finding.name, finding.detail);
    }
    let request = Request { query: Some(&words), ..Request::default() };
    let answer = catalogue.browse(request, catalogue.everything(), BrowseOptions::default(), None)?;
    println!("{}", answer.text);
    Ok(())
}
