//! How well and how fast search finds, beside flat BM25 on the same catalogues and queries in the same run (CAT-120, CAT-122).
//!
//! Quality is a share, so it means the same on every machine; times are for comparing with the other column.
#![allow(clippy::print_stdout, missing_docs, reason = "a benchmark talks")]

mod flat_bm25;
mod own_set;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flat_bm25::FlatBm25;
use portcullis_catalog::{
    BuildOptions, CatalogSnapshot, SearchOptions, SemanticScorer, ServerCtx, Source, StaticTable, Synonyms,
    ToolDef,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Gold {
    query: String,
    expected: Vec<String>,
}

#[derive(Deserialize, Clone)]
struct Tool {
    id: String,
    name: String,
    description: String,
    tags: Vec<String>,
    namespace: String,
    args_schema: Value,
}

/// A catalogue with whatever its definitions borrow.
pub(crate) struct Catalogue {
    ids: Vec<String>,
    pub(crate) snapshot: CatalogSnapshot,
    flat: FlatBm25,
}

/// Shares of queries answered among the first 1, 3, 5 and 10, and the mean reciprocal rank.
#[derive(Default, Clone, Copy)]
pub(crate) struct Quality {
    recall: [f64; 4],
    mrr: f64,
    queries: usize,
}

const CUTS: [usize; 4] = [1, 3, 5, 10];

fn main() {
    // `cargo test --benches` runs this too; it has nothing to test.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    println!("#### Public set: 200 queries\n");
    println!("| tools | ranker | recall@1 | @3 | @5 | @10 | MRR@10 |");
    println!("|---|---|---:|---:|---:|---:|---:|");
    let gold: Vec<Gold> = serde_json::from_str(&data("gold.json")).unwrap();
    for (label, file) in [
        ("83", "catalog-83.json"),
        ("500", "catalog-500.json"),
        ("1,000", "catalog-1000.json"),
        ("500 mixed", "catalog-500-mixed.json"),
    ] {
        let tools: Vec<Tool> = serde_json::from_str(&data(file)).unwrap();
        let catalogue = Catalogue::new(&tools, &BuildOptions::default());
        let near = Catalogue::new(&tools, &with_meaning());
        let plain = BuildOptions { synonyms: Some(Synonyms::none().into()), ..BuildOptions::default() };
        let without = Catalogue::new(&tools, &plain);
        let queries: Vec<(&str, &[String])> =
            gold.iter().map(|gold| (gold.query.as_str(), gold.expected.as_slice())).collect();
        row(label, "Portcullis", catalogue.quality(&queries, 1));
        row(label, "Portcullis, families off", catalogue.quality(&queries, 0));
        row(label, "Portcullis, no synonyms", without.quality(&queries, 1));
        row(label, "Portcullis, embeddings", near.quality(&queries, 1));
        row(label, "flat BM25, split at non-alphanumerics", catalogue.flat_quality(&queries));
    }
    own_set::run();
    println!("\n#### Time of one search, 200 queries\n");
    println!(
        "| tools | p50 | p99 | embeddings p50 | flat BM25 p50 | refresh, all of it | with embeddings | resident |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|");
    let queries: Vec<&str> = gold.iter().map(|gold| gold.query.as_str()).collect();
    let pool: Vec<Tool> = serde_json::from_str(&data("catalog-83.json")).unwrap();
    for count in [83, 500, 1_000, 10_000, 100_000] {
        times(&pool, count, &queries);
    }
    beside_the_original(&queries);
    during_a_refresh(&queries);
}

/// CPU of one search over the same 1,000 tools, here and there (CAT-122); `cargo xtask bench routing` says what it was there.
fn beside_the_original(queries: &[&str]) {
    let told = std::env::var("PORTCULLIS_ORIGINAL_SECONDS").ok().and_then(|text| text.trim().parse().ok());
    let Some(theirs): Option<f64> = told else { return };
    let tools: Vec<Tool> = serde_json::from_str(&data("catalog-1000.json")).unwrap();
    let snapshot = Catalogue::new(&tools, &BuildOptions::default()).snapshot;
    let search = |query: &&str| {
        let hits = snapshot.search(query, snapshot.everything(), SearchOptions::default());
        std::hint::black_box(hits.unwrap_or_default().len())
    };
    let rounds = 20;
    queries.iter().map(search).for_each(drop);
    let begun = cpu();
    (0..rounds).flat_map(|_| queries).map(search).for_each(drop);
    let ours = (cpu() - begun).as_secs_f64() / (rounds * queries.len()) as f64;
    println!("\n#### CPU of one search, 1,000 tools, beside the original\n");
    println!("| the original (contextweaver 0.18.2) | Portcullis | original ÷ Portcullis | wanted |");
    println!("|---:|---:|---:|---:|");
    println!("| {:.1} µs | {:.1} µs | {:.0} | ≥ 500 |", theirs * 1e6, ours * 1e6, theirs / ours);
}

/// Whoever searches while the catalogue is made anew has the old one meanwhile, and should hardly notice (CAT-122).
fn during_a_refresh(queries: &[&str]) {
    let tools: Vec<Tool> = serde_json::from_str(&data("catalog-1000.json")).unwrap();
    let snapshot = Catalogue::new(&tools, &BuildOptions::default()).snapshot;
    let browse = |query: &str| {
        snapshot.search(query, snapshot.everything(), SearchOptions::default()).unwrap_or_default().len()
    };
    // Long enough for several refreshes.
    let queries = &queries.repeat(20);
    let idle = measure(queries, browse);
    let done = AtomicBool::new(false);
    let (busy, refreshes) = std::thread::scope(|scope| {
        let refreshing = scope.spawn(|| {
            let mut refreshes = 0;
            while !done.load(Ordering::Relaxed) {
                std::hint::black_box(Catalogue::new(&tools, &BuildOptions::default()).ids.len());
                refreshes += 1;
            }
            refreshes
        });
        let busy = measure(queries, browse);
        done.store(true, Ordering::Relaxed);
        (busy, refreshing.join().unwrap_or_default())
    });
    println!(
        "\n#### A search while the catalogue of 1,000 tools is made anew ({refreshes} times meanwhile)\n"
    );
    println!("| | p50 | p99 |");
    println!("|---|---:|---:|");
    println!("| idle | {} | {} |", micros(idle.0), micros(idle.1));
    println!("| during a refresh | {} | {} |", micros(busy.0), micros(busy.1));
    println!(
        "| ratio | {:.2} | {:.2} (wanted ≤ 2) |",
        busy.0.as_secs_f64() / idle.0.as_secs_f64(),
        busy.1.as_secs_f64() / idle.1.as_secs_f64()
    );
}

/// What this process has used of the processors.
fn cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// By meaning too (CAT-69a); `cargo xtask bench routing` says where the table is.
pub(crate) fn with_meaning() -> BuildOptions {
    let path =
        std::env::var_os("PORTCULLIS_EMBEDDINGS").expect("PORTCULLIS_EMBEDDINGS names a table of embeddings");
    let table = StaticTable::parse(&std::fs::read(path).expect("the table can be read"), None);
    let scorer = table.map(|table| Arc::new(table) as Arc<dyn SemanticScorer>);
    BuildOptions { semantic: Some(scorer), ..BuildOptions::default() }
}

fn data(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/data").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn row(label: &str, ranker: &str, quality: Quality) {
    let cells: Vec<String> =
        quality.recall.iter().chain([&quality.mrr]).map(|value| format!("{value:.4}")).collect();
    println!("| {label} | {ranker} | {} |", cells.join(" | "));
}

impl Catalogue {
    fn new(tools: &[Tool], options: &BuildOptions) -> Self {
        let raw: Vec<Box<RawValue>> = tools
            .iter()
            .map(|tool| {
                let definition = json!({"name": tool.name, "description": tool.description, "inputSchema": tool.args_schema});
                serde_json::value::to_raw_value(&definition).unwrap()
            })
            .collect();
        let sources: Vec<Source<'_>> = tools
            .iter()
            .zip(&raw)
            .map(|(tool, raw)| Source {
                server: ServerCtx {
                    server: tool.namespace.clone(),
                    namespace: Some(tool.namespace.clone()),
                    ..ServerCtx::default()
                },
                definitions: vec![ToolDef {
                    identity: tool.id.clone(),
                    tags: tool.tags.clone(),
                    ..ToolDef::tool(raw)
                }],
            })
            .collect();
        let snapshot = CatalogSnapshot::build(1, &sources, options);
        assert_eq!(snapshot.everything().len(), tools.len(), "every tool is one item");
        let flat = FlatBm25::new(
            tools.iter().map(|tool| format!("{} {} {}", tool.name, tool.description, tool.tags.join(" "))),
        );
        Self { ids: tools.iter().map(|tool| tool.id.clone()).collect(), snapshot, flat }
    }

    fn quality(&self, queries: &[(&str, &[String])], family_max: usize) -> Quality {
        Quality::of(queries, |query| {
            let options = SearchOptions { top_k: 10, family_max, ..SearchOptions::default() };
            let hits = self.snapshot.search(query, self.snapshot.everything(), options).unwrap_or_default();
            hits.iter().map(|hit| self.snapshot.items()[hit.index].identity.as_str()).collect()
        })
    }

    fn flat_quality(&self, queries: &[(&str, &[String])]) -> Quality {
        Quality::of(queries, |query| {
            self.flat.top(query, 10).into_iter().map(|index| self.ids[index].as_str()).collect()
        })
    }
}

impl Quality {
    pub(crate) fn of<'f>(queries: &[(&str, &[String])], find: impl Fn(&str) -> Vec<&'f str>) -> Self {
        let mut quality = Quality::default();
        for (query, expected) in queries {
            let found = find(query);
            for (share, cut) in quality.recall.iter_mut().zip(CUTS) {
                let among = expected.iter().filter(|id| found.iter().take(cut).any(|one| one == id)).count();
                *share += among as f64 / expected.len() as f64;
            }
            let rank = found.iter().position(|one| expected.iter().any(|id| id == one));
            quality.mrr += rank.map_or(0.0, |rank| 1.0 / (rank + 1) as f64);
            quality.queries += 1;
        }
        let count = quality.queries.max(1) as f64;
        quality.recall.iter_mut().for_each(|share| *share /= count);
        quality.mrr /= count;
        quality
    }
}

/// Many tools: the pool and clones of it, each with a schema of four fields.
fn times(pool: &[Tool], count: usize, queries: &[&str]) {
    let raw: Vec<(String, Box<RawValue>)> = (0..count)
        .map(|number| {
            let (tool, clone) = (&pool[number % pool.len()], number / pool.len());
            let suffix = if clone == 0 { String::new() } else { format!("_v{}", clone + 1) };
            let definition = json!({
                "name": format!("{}{suffix}", tool.name),
                "description": format!("{}{}", tool.description, if clone == 0 { String::new() } else { format!(" (variant {})", clone + 1) }),
                "inputSchema": {"type": "object", "required": ["id"], "properties": {
                    "id": {"type": "string", "description": "which one"}, "limit": {"type": "integer"},
                    "filter": {"type": "string"}, "verbose": {"type": "boolean"},
                }},
            });
            (tool.namespace.clone(), serde_json::value::to_raw_value(&definition).unwrap())
        })
        .collect();
    let mut namespaces: Vec<&String> = raw.iter().map(|(namespace, _)| namespace).collect();
    namespaces.sort();
    namespaces.dedup();
    let sources: Vec<Source<'_>> = namespaces
        .iter()
        .map(|namespace| Source {
            server: ServerCtx {
                server: (*namespace).clone(),
                namespace: Some((*namespace).clone()),
                ..ServerCtx::default()
            },
            definitions: raw
                .iter()
                .filter(|(own, _)| own == *namespace)
                .map(|(_, raw)| ToolDef::tool(raw))
                .collect(),
        })
        .collect();
    // The tokenisers are loaded once per process, and not by a refresh.
    portcullis_catalog::cards::tokens("warm");
    let start = Instant::now();
    let options = BuildOptions { forms: vec![portcullis_catalog::Form::Lines], ..BuildOptions::default() };
    let snapshot = CatalogSnapshot::build(1, &sources, &options);
    let refresh = start.elapsed();
    let ours = measure(queries, |query| {
        let hits = snapshot.search(query, snapshot.everything(), SearchOptions::default());
        hits.unwrap_or_default().len()
    });
    let resident = resident_mb();
    let start = Instant::now();
    let near =
        CatalogSnapshot::build(1, &sources, &BuildOptions { forms: options.forms.clone(), ..with_meaning() });
    let near_refresh = start.elapsed();
    let by_meaning = measure(queries, |query| {
        near.search(query, near.everything(), SearchOptions::default()).unwrap_or_default().len()
    });
    drop(near);
    let flat = (count <= 10_000).then(|| {
        let flat =
            FlatBm25::new(snapshot.items().iter().map(|item| format!("{} {}", item.name, item.description)));
        measure(queries, |query| flat.top(query, 10).len())
    });
    let flat = flat.map_or("-".to_owned(), |flat| micros(flat.0));
    println!(
        "| {count} | {} | {} | {} | {flat} | {} ms | {} ms | {resident} MB |",
        micros(ours.0),
        micros(ours.1),
        micros(by_meaning.0),
        refresh.as_millis(),
        near_refresh.as_millis(),
    );
}

fn measure(queries: &[&str], mut search: impl FnMut(&str) -> usize) -> (Duration, Duration) {
    let mut taken: Vec<Duration> = Vec::new();
    for round in 0..6 {
        for query in queries {
            let start = Instant::now();
            std::hint::black_box(search(query));
            if round > 0 {
                taken.push(start.elapsed());
            }
        }
    }
    taken.sort_unstable();
    (taken[taken.len() / 2], taken[taken.len() * 99 / 100])
}

fn micros(duration: Duration) -> String {
    format!("{:.1} µs", duration.as_nanos() as f64 / 1_000.0)
}

fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) / 1024
}
