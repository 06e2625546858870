//! `spyd.yaml` against the running spy: as long as no switch is on, they are equal.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::peer::{Peer, Station};

#[test]
fn the_declaration_equals_what_an_honest_spy_lists() {
    // GOV-403 rule 8
    let station = Station::new();
    let live = Peer::legacy(&station).ask("tools/list", json!({}));
    let text = include_str!("../../spyd.yaml");
    let declaration: Value = serde_saphyr::from_str(text).expect("the declaration is YAML");
    let declared: BTreeMap<&str, &Value> = declaration["tools"]
        .as_array()
        .expect("tools")
        .iter()
        .map(|tool| (tool["name"].as_str().expect("a name"), tool))
        .collect();
    let live = live["result"]["tools"].as_array().expect("tools");
    assert_eq!(live.len(), declared.len());
    for tool in live {
        let name = tool["name"].as_str().expect("a name");
        assert_eq!(tool["description"], declared[name]["description"], "{name}");
        assert_eq!(tool["inputSchema"], declared[name]["parameters"], "{name}");
        assert_eq!(tool.get("outputSchema"), declared[name]["output"].get("schema"), "{name}");
    }
    assert_eq!(declaration["server"]["version"], "1.0.0");
}
