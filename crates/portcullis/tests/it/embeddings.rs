//! Finding by meaning: a table installed, used, changed behind the gateway's back, and removed (CAT-69, CAT-69a).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use portcullis_catalog::StaticTable;
use serde_json::Value;

use crate::support::{Home, Spy, open_home};

/// A table in which `parrot` means what `echo` means, and which knows nothing else.
fn table() -> Vec<u8> {
    let mut pieces: BTreeMap<(usize, String), [f32; 2]> = BTreeMap::new();
    for word in ["parrot", "echo"] {
        let word: Vec<char> = std::iter::once('\u{2581}').chain(word.chars()).collect();
        for end in 1..=word.len() {
            pieces.entry((1, word[end - 1].to_string())).or_default();
            let beginning = pieces.entry((end, word[..end].iter().collect())).or_default();
            if end == word.len() {
                *beginning = [1.0, 0.5];
            }
        }
    }
    StaticTable::encode(pieces.iter().map(|((_, piece), vector)| (piece.as_str(), &vector[..]))).unwrap()
}

fn found(home: &Home) -> String {
    home.json(&["catalog", "search", "parrot"])["text"].as_str().unwrap().to_owned()
}

fn findings(home: &Home) -> Vec<Value> {
    let findings = home.json(&["catalog", "findings"]);
    let ours = |finding: &&Value| finding["kind"] == "semantic_unavailable";
    findings.as_array().unwrap().iter().filter(ours).cloned().collect()
}

#[test]
fn an_installed_table_finds_by_meaning_until_it_changes_or_is_removed() {
    let home = open_home();
    Spy::new(&home).register(&home);
    assert!(found(&home).starts_with("no match"), "{}", found(&home));

    let file = home.beside("table.pclemb");
    fs::write(&file, table()).unwrap();
    let before = fs::read_to_string(home.path().join("portcullis.toml")).unwrap();
    let installed = home.json(&["search", "embeddings", "install", file.to_str().unwrap()]);
    assert_eq!(installed["dimensions"], 2, "{installed}");
    let place = installed["file"].as_str().unwrap().to_owned();
    assert_eq!(fs::read(&place).unwrap(), table());
    let config = fs::read_to_string(home.path().join("portcullis.toml")).unwrap();
    assert!(config.starts_with(before.trim_end()), "what was there stays: {config}");
    assert!(config.contains(installed["sha256"].as_str().unwrap()), "{config}");
    {
        // The running gateway and its agents see the same.
        let daemon = home.serve();
        assert!(found(&home).contains(":echo#"), "{}", found(&home));
        assert!(findings(&home).is_empty());
        drop(daemon);
    }

    // Somebody changed the table: it is not used, search goes on, and the operator is told.
    fs::set_permissions(&place, fs::Permissions::from_mode(0o600)).unwrap();
    let mut changed = table();
    *changed.last_mut().unwrap() ^= 1;
    fs::write(&place, changed).unwrap();
    let daemon = home.serve();
    assert!(found(&home).starts_with("no match"), "{}", found(&home));
    let finding = &findings(&home)[0];
    assert!(finding["detail"].as_str().unwrap().contains("SHA-256"), "{finding}");
    drop(daemon);
    fs::remove_file(&place).unwrap();
    assert_eq!(findings(&home).len(), 1, "a table that is gone is told as well");

    assert_eq!(home.json(&["search", "embeddings", "remove"])["removed"], true);
    assert!(findings(&home).is_empty());
    assert_eq!(home.json(&["search", "embeddings", "remove"])["removed"], false);
}

#[test]
fn what_is_no_table_is_not_installed() {
    let home = open_home();
    let config = fs::read_to_string(home.path().join("portcullis.toml")).unwrap();
    let file = home.beside("table.pclemb");
    for (bytes, problem) in [(b"something else".to_vec(), "PCLEMB01"), (table()[..40].to_vec(), "too early")]
    {
        fs::write(&file, bytes).unwrap();
        let (code, error) = home.fails(&["search", "embeddings", "install", file.to_str().unwrap()]);
        assert_eq!((code, error["field"].as_str()), (7, Some("file")), "{error}");
        assert!(error["message"].as_str().unwrap().contains(problem), "{error}");
    }
    assert!(!home.path().join("embeddings").exists(), "nothing was put anywhere");
    assert_eq!(fs::read_to_string(home.path().join("portcullis.toml")).unwrap(), config);
    // Half an entry is no entry.
    fs::write(home.path().join("portcullis.toml"), "[search]\nembeddings = { path = \"x\" }\n").unwrap();
    let (code, error) = home.fails(&["catalog", "findings"]);
    assert_eq!((code, error["field"].as_str()), (7, Some("search.embeddings")), "{error}");
}
