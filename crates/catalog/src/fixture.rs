//! Catalogues for tests.

use serde_json::json;
use serde_json::value::RawValue;

use crate::ingest::{ServerCtx, ToolDef};
use crate::snapshot::{BuildOptions, CatalogSnapshot, Source};

/// One server's tools, by name and description.
pub(crate) fn catalogue(tools: &[(String, String)]) -> CatalogSnapshot {
    let raw: Vec<Box<RawValue>> = tools
        .iter()
        .map(|(name, description)| {
            serde_json::value::to_raw_value(&json!({"name": name, "description": description})).unwrap()
        })
        .collect();
    let definitions = raw.iter().map(|raw| ToolDef::tool(raw)).collect();
    let server = ServerCtx { server: "srv".into(), acceptance: 1, ..ServerCtx::default() };
    CatalogSnapshot::build(1, &[Source { server, definitions }], &BuildOptions::default())
}

/// Tools whose names say everything.
pub(crate) fn tools(names: &[&str]) -> CatalogSnapshot {
    let named = names.iter().map(|name| ((*name).to_owned(), name.replace(['.', '_'], " ")));
    catalogue(&named.collect::<Vec<_>>())
}
