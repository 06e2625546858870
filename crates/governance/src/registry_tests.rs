//! Names that model APIs take (CAT-24).

use std::collections::BTreeSet;

use super::*;
use crate::fixture::{self, Sketch};

fn names_of(server: &str, tools: &[&str]) -> (Registry, Vec<String>) {
    let sketches: Vec<_> = tools.iter().map(|name| Sketch { name, classes: &[], bound: true }).collect();
    let entry = fixture::entry(fixture::sketched(server, &sketches));
    let registry = Registry::new([entry], fixture::strict(1));
    let names = registry.tools().iter().map(|tool| tool.wire_name.clone()).collect();
    (registry, names)
}

/// Every name is well-formed and leads to the tool that has it.
fn are_callable(registry: &Registry, count: usize) {
    let mut seen = BTreeSet::new();
    for entry in registry.tools() {
        let name = &entry.wire_name;
        let fits = (1..=64).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        assert!(fits, "{name}");
        assert!(seen.insert(name), "{name} is used twice");
        assert_eq!(registry.tool(name).unwrap().tool.id(), entry.tool.id());
    }
    assert_eq!(seen.len(), count);
}

#[test]
fn wire_names_are_well_formed_unique_and_callable() {
    // T-CAT-22
    let (long, longer) = ("x".repeat(128), format!("{}y", "x".repeat(127)));
    let tools = ["a/b", "a.b", "a_b", "a-b", &long, &longer, "repo/issues.list", "/", "."];
    let (registry, names) = names_of("files", &tools);
    are_callable(&registry, tools.len());
    assert_eq!(names[0], "files__a_b");
    assert!(names[1].starts_with("files__a_b_") && names[1].len() == "files__a_b_".len() + 6, "{}", names[1]);
    assert_eq!(names[3], "files__a-b");
    assert_eq!(names[4].len(), 64);

    let (registry, _) = names_of(&"s".repeat(63), &["a", "b", "c/d"]);
    are_callable(&registry, 3);
}

#[test]
fn a_tool_whose_digest_begins_like_another_gets_a_name_of_its_own() {
    // Six hexadecimal digits collide within a few thousand names, and servers choose their names.
    let prefix = "x".repeat(100);
    let mut by_digits = HashMap::new();
    let (first, second) = (0..1_000_000)
        .find_map(|n| {
            let name = format!("{prefix}{n}");
            let digest = portcullis_core::Sha256Digest::of(format!("files/{name}").as_bytes()).to_string();
            by_digits.insert(digest[..6].to_owned(), name.clone()).map(|earlier| (earlier, name))
        })
        .unwrap();
    let (registry, names) = names_of("files", &[&first, &second]);
    are_callable(&registry, 2);
    assert_eq!(names[0][..56], names[1][..56]);
}

#[test]
fn a_name_that_nobody_has_leads_nowhere() {
    let (registry, _) = names_of("files", &["read"]);
    for name in ["read", "files__Read", "files__read ", "files/read", ""] {
        assert!(registry.tool(name).is_none(), "{name:?}");
    }
}

#[test]
fn bare_names_are_the_servers_own_as_far_as_agents_can_say_them() {
    // PRO-65
    let sketches: Vec<_> =
        ["echo", "a.b", "a_b"].iter().map(|name| Sketch { name, classes: &[], bound: true }).collect();
    let entry = fixture::entry(fixture::sketched("files", &sketches));
    let registry = Registry::named([entry], fixture::strict(1), Names::Bare);
    are_callable(&registry, 3);
    let names: Vec<&str> = registry.tools().iter().map(|tool| tool.wire_name.as_str()).collect();
    assert_eq!(names[..2], ["echo", "a_b"]);
    assert!(names[2].starts_with("a_b_"));
}
