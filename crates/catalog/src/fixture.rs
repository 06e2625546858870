//! Catalogues for tests.

use std::collections::BTreeMap;

use serde_json::json;
use serde_json::value::RawValue;

use crate::ingest::{ServerCtx, ToolDef};
use crate::semantic::StaticTable;
use crate::snapshot::{BuildOptions, CatalogSnapshot, Source};

/// One server's tools, by name and description.
pub(crate) fn catalogue(tools: &[(String, String)]) -> CatalogSnapshot {
    catalogue_with(tools, &BuildOptions::default())
}

/// The same, built otherwise.
pub(crate) fn catalogue_with(tools: &[(String, String)], options: &BuildOptions) -> CatalogSnapshot {
    let raw: Vec<Box<RawValue>> = tools
        .iter()
        .map(|(name, description)| {
            serde_json::value::to_raw_value(&json!({"name": name, "description": description})).unwrap()
        })
        .collect();
    let definitions = raw.iter().map(|raw| ToolDef::tool(raw)).collect();
    let server = ServerCtx { server: "srv".into(), acceptance: 1, ..ServerCtx::default() };
    CatalogSnapshot::build(1, &[Source { server, definitions }], options)
}

/// Tools whose names say everything.
pub(crate) fn tools(names: &[&str]) -> CatalogSnapshot {
    let named = names.iter().map(|name| ((*name).to_owned(), name.replace(['.', '_'], " ")));
    catalogue(&named.collect::<Vec<_>>())
}

/// A table of embeddings that knows two things: money, and the weather.
pub(crate) fn embeddings() -> Vec<u8> {
    const MONEY: [f32; 4] = [1.0, 0.1, 0.0, 0.0];
    const WEATHER: [f32; 4] = [0.0, 0.1, 1.0, 0.0];
    let mut pieces: BTreeMap<(usize, String), [f32; 4]> = BTreeMap::new();
    for (word, vector) in [
        ("owes", MONEY),
        ("money", MONEY),
        ("invoices", MONEY),
        ("invoice", MONEY),
        ("weather", WEATHER),
        ("umbrella", WEATHER),
    ] {
        // Every word from its letters: each beginning of it is a piece, and shorter ones have their turn first.
        let word: Vec<char> = std::iter::once('\u{2581}').chain(word.chars()).collect();
        for end in 1..=word.len() {
            pieces.entry((1, word[end - 1].to_string())).or_default();
            let beginning = pieces.entry((end, word[..end].iter().collect())).or_default();
            if end == word.len() {
                *beginning = vector;
            }
        }
    }
    StaticTable::encode(pieces.iter().map(|((_, piece), vector)| (piece.as_str(), &vector[..]))).unwrap()
}
