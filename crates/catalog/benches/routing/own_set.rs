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
    let [asked, foreign] = ["real-queries.jsonl", "foreign-queries.jsonl"].map(|file| {
        data(file).lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Asked>>()
    });
    for one in asked.iter().chain(&foreign) {
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
    let rankers = Rankers::of(&tools);
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
        head();
        for style in styles.iter().copied().chain(["all"]) {
            let of_style = asked.iter().filter(|one| style == "all" || one.style == style);
            let queries: Vec<(&str, &[String])> = of_style
                .filter(|one| is_dev(one) == dev)
                .map(|one| (one.query.as_str(), one.expected.as_slice()))
                .collect();
            rankers.rows(style, &queries);
        }
    }
    println!(
        "\nWithout a target, all of both halves: every fifth word misspelt, and requests in other languages.\n"
    );
    head();
    let misspelt: Vec<String> =
        asked.iter().filter(|one| one.style != "misspelt").map(|one| with_typos(&one.query)).collect();
    let expected = asked.iter().filter(|one| one.style != "misspelt").map(|one| one.expected.as_slice());
    rankers.rows("20 % typos", &misspelt.iter().map(String::as_str).zip(expected).collect::<Vec<_>>());
    for language in ["French", "German", "Portuguese", "Spanish", "all"] {
        let of_language = foreign.iter().filter(|one| language == "all" || one.style == language);
        let queries: Vec<(&str, &[String])> =
            of_language.map(|one| (one.query.as_str(), one.expected.as_slice())).collect();
        rankers.rows(language, &queries);
    }
}

fn head() {
    println!("| style | ranker | recall@1 | @3 | @5 | @10 | MRR@10 |");
    println!("|---|---|---:|---:|---:|---:|---:|");
}

/// The ways to search that are compared.
struct Rankers {
    ours: Catalogue,
    without_synonyms: Catalogue,
    by_meaning: Catalogue,
}

impl Rankers {
    fn of(tools: &[Tool]) -> Self {
        let plain = BuildOptions { synonyms: Some(Synonyms::none().into()), ..BuildOptions::default() };
        Self {
            ours: Catalogue::new(tools, &BuildOptions::default()),
            without_synonyms: Catalogue::new(tools, &plain),
            by_meaning: Catalogue::new(tools, &with_meaning()),
        }
    }

    fn rows(&self, style: &str, queries: &[(&str, &[String])]) {
        let label = format!("{style} ({})", queries.len());
        row(&label, "Portcullis", self.ours.quality(queries, 1));
        row(&label, "Portcullis, no synonyms", self.without_synonyms.quality(queries, 1));
        row(&label, "Portcullis, embeddings", self.by_meaning.quality(queries, 1));
        row(&label, "flat BM25", self.ours.flat_quality(queries));
    }
}

/// Every fifth word of four letters or more with one mistake: two letters swapped, one left out, or one twice.
fn with_typos(query: &str) -> String {
    let mut words: Vec<String> = query.split(' ').map(str::to_owned).collect();
    let seed = query.bytes().fold(7, |seed: usize, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    let long: Vec<usize> = (0..words.len()).filter(|at| words[*at].chars().count() >= 4).collect();
    let wanted = (words.len() as f64 / 5.0).round().max(1.0) as usize;
    for number in 0..wanted.min(long.len()) {
        let word = &mut words[long[(seed + number * 3) % long.len()]];
        let mut letters: Vec<char> = word.chars().collect();
        let at = 1 + (seed >> 3) % (letters.len() - 2);
        match (seed >> 7) % 3 {
            0 => letters.swap(at, at + 1),
            1 => drop(letters.remove(at)),
            _ => letters.insert(at, letters[at]),
        }
        *word = letters.into_iter().collect();
    }
    words.join(" ")
}
