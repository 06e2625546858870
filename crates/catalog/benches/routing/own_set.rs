//! The second set: requests of five styles over real servers' lists, written by name alone (CAT-121).

use serde::Deserialize;
use serde_json::Value;

use crate::{BuildOptions, Catalogue, Synonyms, Tool, data, row, with_meaning};

#[derive(Deserialize)]
struct Server {
    server: String,
    tools: Vec<Value>,
}

#[derive(Deserialize)]
struct Asked {
    style: String,
    query: String,
    expected: Vec<String>,
}

pub(crate) fn run() {
    let servers: Vec<Server> = serde_json::from_str(&data("real-tools.json")).unwrap();
    let mut tools: Vec<Tool> = Vec::new();
    for server in &servers {
        for tool in &server.tools {
            let text = |key: &str| tool[key].as_str().unwrap_or_default().to_owned();
            tools.push(Tool {
                id: format!("{}/{}", server.server, text("name")),
                name: text("name"),
                description: text("description"),
                tags: Vec::new(),
                namespace: server.server.clone(),
                args_schema: tool["inputSchema"].clone(),
            });
        }
    }
    let asked: Vec<Asked> =
        data("real-queries.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for one in &asked {
        for id in &one.expected {
            assert!(tools.iter().any(|tool| tool.id == *id), "there is no {id}");
        }
    }
    println!(
        "\n#### Real lists: {} servers, {} tools, {} requests written by name alone",
        servers.len(),
        tools.len(),
        asked.len()
    );
    let catalogue = Catalogue::new(&tools, &BuildOptions::default());
    let plain = BuildOptions { synonyms: Some(Synonyms::none().into()), ..BuildOptions::default() };
    let without = Catalogue::new(&tools, &plain);
    let near = Catalogue::new(&tools, &with_meaning());
    // CAT-121: the servers are split in two. What is looked at while improving search is one half, what is told is the other.
    let mut names: Vec<&str> = servers.iter().map(|server| server.server.as_str()).collect();
    names.sort_unstable();
    let is_dev = |one: &Asked| {
        let server = one.expected[0].split('/').next().unwrap_or_default();
        names.iter().position(|name| *name == server).is_some_and(|place| place % 2 == 0)
    };
    let mut styles: Vec<&str> = asked.iter().map(|one| one.style.as_str()).collect();
    styles.sort_unstable();
    styles.dedup();
    for (half, dev) in [("reported half", false), ("half that was looked at", true)] {
        println!("\nThe {half}:\n");
        println!("| style | ranker | recall@1 | @3 | @5 | @10 | MRR@10 |");
        println!("|---|---|---:|---:|---:|---:|---:|");
        for style in styles.iter().copied().chain(["all"]) {
            let of_style = asked.iter().filter(|one| style == "all" || one.style == style);
            let queries: Vec<(&str, &[String])> = of_style
                .filter(|one| is_dev(one) == dev)
                .map(|one| (one.query.as_str(), one.expected.as_slice()))
                .collect();
            let label = format!("{style} ({})", queries.len());
            row(&label, "Portcullis", catalogue.quality(&queries, 1));
            row(&label, "Portcullis, no synonyms", without.quality(&queries, 1));
            row(&label, "Portcullis, embeddings", near.quality(&queries, 1));
            row(&label, "flat BM25", catalogue.flat_quality(&queries));
        }
    }
}
