//! What an agent pays to know its tools: the whole list, names alone, or a search (CAT-123).
#![allow(clippy::print_stdout, missing_docs, reason = "a benchmark talks")]

use portcullis_core::tokens::Encoding;
use std::path::PathBuf;

use portcullis_catalog::{
    BrowseOptions, BuildOptions, CatalogSnapshot, Form, Request, ServerCtx, Source, ToolDef,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Server {
    server: String,
    tools: Vec<Box<RawValue>>,
}

fn main() {
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/data");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let servers: Vec<Server> = serde_json::from_str(&read("real-tools.json")).unwrap();
    println!("| tools | whole list | names and descriptions | one search, 10 cards | saved by searching |");
    println!("|---:|---:|---:|---:|---:|");
    let all: usize = servers.iter().map(|server| server.tools.len()).sum();
    for count in [50, 100, 500, all] {
        measure(&servers, count);
    }
    let pool: Vec<Value> = serde_json::from_str(&read("catalog-83.json")).unwrap();
    let definitions: Vec<Box<RawValue>> = pool
        .iter()
        .map(|tool| {
            let value = json!({"name": tool["name"], "description": tool["description"], "inputSchema": tool["args_schema"]});
            serde_json::value::to_raw_value(&value).unwrap()
        })
        .collect();
    let pool = [Server { server: "public".into(), tools: definitions }];
    println!("\nThe public 83 tools:\n");
    println!("| tools | whole list | names and descriptions | one search, 10 cards | saved by searching |");
    println!("|---:|---:|---:|---:|---:|");
    measure(&pool, 83);
}

fn measure(servers: &[Server], count: usize) {
    let mut left = count;
    let sources: Vec<Source<'_>> = servers
        .iter()
        .map(|server| {
            let take = server.tools.len().min(left);
            left -= take;
            Source {
                server: ServerCtx {
                    server: server.server.clone(),
                    namespace: Some(server.server.clone()),
                    ..ServerCtx::default()
                },
                definitions: server.tools[..take].iter().map(|raw| ToolDef::tool(raw)).collect(),
            }
        })
        .collect();
    let snapshot = CatalogSnapshot::build(1, &sources, &BuildOptions::default());
    let list: Vec<&str> =
        sources.iter().flat_map(|source| &source.definitions).map(|one| one.definition.get()).collect();
    let stripped: Vec<String> = snapshot
        .everything()
        .iter()
        .map(|index| {
            let item = &snapshot.items()[index];
            json!({"name": item.wire_name, "description": snapshot.card_description(index), "inputSchema": {"type": "object"}})
                .to_string()
        })
        .collect();
    // Ten searches, so that no single one decides.
    let queries = [
        "create a document",
        "search files",
        "list users",
        "delete a record",
        "send a message",
        "run a query",
        "get details",
        "update settings",
        "take a screenshot",
        "convert a file",
    ];
    let mut browse = [0usize; 2];
    let mut worst = 0;
    for query in queries {
        let request = Request { query: Some(query), ..Request::default() };
        let options = BrowseOptions { form: Form::Lines, ..BrowseOptions::default() };
        let text = snapshot.browse(request, snapshot.everything(), options, None).unwrap().text;
        let cost = tokens(&text);
        browse[0] += cost[0];
        browse[1] += cost[1];
        worst = worst.max(cost[0]).max(cost[1]);
    }
    let browse = browse.map(|sum| sum / queries.len());
    let whole = tokens(&format!("[{}]", list.join(",")));
    let names = tokens(&format!("[{}]", stripped.join(",")));
    let saved = 100.0 * (1.0 - browse[1] as f64 / whole[1] as f64);
    println!(
        "| {count} | {} / {} | {} / {} | {} / {} (most {worst}) | {saved:.1} % |",
        whole[0], whole[1], names[0], names[1], browse[0], browse[1]
    );
}

fn tokens(text: &str) -> [usize; 2] {
    [Encoding::Cl100k.count(text), Encoding::O200k.count(text)]
}
