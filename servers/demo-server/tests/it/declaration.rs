//! `demo-notes.yaml` against the running server: GOV-403 rule 8 must hold, or nobody could register the demo.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::peer::Peer;

fn declaration() -> Value {
    let text = include_str!("../../demo-notes.yaml");
    serde_saphyr::from_str(text).expect("the declaration is YAML")
}

fn by_name(items: &Value) -> BTreeMap<&str, &Value> {
    items
        .as_array()
        .expect("a list")
        .iter()
        .map(|item| (item["name"].as_str().expect("a name"), item))
        .collect()
}

#[test]
fn the_declaration_equals_what_the_server_lists() {
    // GOV-403 rule 8
    let folder = tempfile::tempdir().expect("a folder");
    let mut peer = Peer::start(folder.path(), "both");
    peer.initialize("2025-11-25");
    let live = peer.ask("tools/list", json!({}));
    let (live, declaration) = (&live["result"]["tools"], declaration());
    let (live, declared) = (by_name(live), by_name(&declaration["tools"]));
    assert_eq!(live.keys().collect::<Vec<_>>(), declared.keys().collect::<Vec<_>>());
    for (name, tool) in live {
        let declared = declared[name];
        assert_eq!(tool["description"], declared["description"], "{name}");
        assert_eq!(tool["inputSchema"], declared["parameters"], "{name}");
        assert_eq!(tool["outputSchema"], declared["output"]["schema"], "{name}");
    }
    let prompts = peer.ask("prompts/list", json!({}));
    let (prompts, declared) = (by_name(&prompts["result"]["prompts"]), by_name(&declaration["prompts"]));
    assert_eq!(prompts.keys().collect::<Vec<_>>(), declared.keys().collect::<Vec<_>>());
    let templates = peer.ask("resources/templates/list", json!({}));
    assert_eq!(
        templates["result"]["resourceTemplates"][0]["uriTemplate"],
        declaration["resources"][0]["uri_template"]
    );
}

#[test]
fn the_declared_identity_and_version_are_those_of_the_server() {
    let declaration = declaration();
    assert_eq!(declaration["server"]["identity"], "demo-notes");
    assert_eq!(declaration["server"]["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn every_declared_class_is_backed_by_a_scope_and_every_scope_is_used() {
    // GOV-403 rules 4 and 7
    let declaration = declaration();
    let scopes = declaration["scopes"].as_object().expect("scopes");
    let mut used = std::collections::BTreeSet::new();
    for list in ["tools", "resources", "prompts"] {
        for item in declaration[list].as_array().expect("a list") {
            let names: Vec<&str> =
                item["scopes"].as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect();
            let writes = item["side_effects"].as_array().unwrap().contains(&json!("write"));
            let writable = names.iter().any(|name| scopes[*name]["access"] == "rw");
            assert_eq!(writes, writable, "{}", item["name"]);
            assert_eq!(writes, item["unbound"] == true, "{}", item["name"]);
            used.extend(names);
        }
    }
    assert_eq!(used.into_iter().collect::<Vec<_>>(), scopes.keys().collect::<Vec<_>>());
}
