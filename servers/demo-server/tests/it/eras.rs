//! What a client of either era sees.

use serde_json::{Value, json};

use crate::peer::Peer;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn a_legacy_client_initialises_lists_calls_and_the_server_ends_with_its_input() {
    let folder = folder();
    let mut peer = Peer::start(folder.path(), "both");
    let hello = &peer.initialize("2025-11-25")["result"];
    assert_eq!(hello["protocolVersion"], "2025-11-25");
    assert_eq!(hello["serverInfo"]["name"], "demo-notes");
    assert_eq!(hello["serverInfo"]["version"], env!("CARGO_PKG_VERSION"));
    let list = peer.ask("tools/list", json!({}));
    assert_eq!(list["result"]["tools"].as_array().map(Vec::len), Some(4));
    assert!(list["result"].get("resultType").is_none());
    let read = peer.ask("tools/call", json!({ "name": "notes_read", "arguments": { "name": "welcome" } }));
    assert_eq!(read["result"]["isError"], false);
    assert_eq!(peer.ask("ping", json!({}))["result"], json!({}));
    assert!(peer.finish().success());
}

#[test]
fn an_older_client_gets_its_revision_and_an_unknown_one_the_newest_legacy_revision() {
    let folder = folder();
    for (asked, answered) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let mut peer = Peer::start(folder.path(), "both");
        assert_eq!(peer.initialize(asked)["result"]["protocolVersion"], answered);
    }
}

#[test]
fn every_modern_result_is_complete_and_every_list_says_how_long_it_keeps() {
    let folder = folder();
    let mut peer = Peer::start(folder.path(), "both");
    let discovered = peer.ask_modern("server/discover", json!({}));
    assert_eq!(discovered["result"]["supportedVersions"], json!(["2026-07-28"]));
    for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
        let result = &peer.ask_modern(method, json!({}))["result"];
        assert_eq!(result["resultType"], "complete", "{method}");
        assert!(result["ttlMs"].is_u64() && result["cacheScope"] == "private", "{method}");
    }
    let call = peer.ask_modern("tools/call", json!({ "name": "notes_list", "arguments": {} }));
    assert_eq!(call["result"]["resultType"], "complete");
    assert_eq!(call["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "demo-notes");
}

#[test]
fn the_first_message_settles_the_era_of_the_process() {
    let folder = folder();
    let mut modern = Peer::start(folder.path(), "both");
    modern.ask_modern("server/discover", json!({}));
    assert_eq!(modern.initialize("2025-11-25")["error"]["code"], -32601);
    let mut legacy = Peer::start(folder.path(), "both");
    legacy.initialize("2025-11-25");
    assert_eq!(legacy.ask_modern("server/discover", json!({}))["error"]["code"], -32601);
    assert!(legacy.ask_modern("tools/list", json!({}))["result"].get("resultType").is_none());
}

#[test]
fn a_process_of_one_era_refuses_the_other() {
    let folder = folder();
    let mut legacy = Peer::start(folder.path(), "legacy");
    assert_eq!(legacy.ask_modern("server/discover", json!({}))["error"]["code"], -32601);
    assert!(legacy.initialize("2025-11-25")["result"].is_object());
    let mut modern = Peer::start(folder.path(), "modern");
    assert_eq!(modern.initialize("2025-11-25")["error"]["code"], -32601);
    assert!(modern.ask_modern("tools/list", json!({}))["result"].is_object());
}

#[test]
fn a_modern_request_needs_its_version_and_capabilities() {
    // PRO-4, PRO-61
    let folder = folder();
    let mut peer = Peer::start(folder.path(), "both");
    assert_eq!(peer.ask("server/discover", json!({}))["error"]["code"], -32602);
    let half = json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28" } });
    assert_eq!(peer.ask("tools/list", half)["error"]["code"], -32602);
    let future = json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": "2030-01-01" } });
    let error = &peer.ask("tools/list", future)["error"];
    assert_eq!(error["code"], -32022);
    assert_eq!(error["data"], json!({ "supported": ["2026-07-28"], "requested": "2030-01-01" }));
}

#[test]
fn a_subscription_is_acknowledged_with_nothing_in_it_and_left_open() {
    let folder = folder();
    let mut peer = Peer::start(folder.path(), "modern");
    peer.send(
        &json!({ "jsonrpc": "2.0", "id": "s1", "method": "subscriptions/listen", "params": {
            "notifications": { "toolsListChanged": true },
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {}
            }
        } })
        .to_string(),
    );
    let message = peer.receive();
    assert_eq!(message["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "s1");
    assert!(peer.ask_modern("tools/list", json!({}))["result"].is_object());
}

#[test]
fn malformed_messages_get_one_error_each_and_the_session_lives() {
    let folder = folder();
    let mut peer = Peer::start(folder.path(), "both");
    peer.initialize("2025-11-25");
    for (line, code) in [("{nonsense", -32700), ("[]", -32600), ("{\"id\":1}", -32600), ("7", -32600)] {
        peer.send(line);
        assert_eq!(peer.receive()["error"]["code"], code, "{line}");
    }
    peer.send(r#"{"jsonrpc":"2.0","method":"notifications/unknown"}"#);
    assert_eq!(peer.ask("no/such", json!({}))["error"]["code"], -32601);
    assert_eq!(peer.ask("tools/call", json!({ "name": "nope" }))["error"]["code"], -32602);
}

#[test]
fn notes_are_resources_and_a_missing_one_has_the_code_of_the_era() {
    let folder = folder();
    let mut legacy = Peer::start(folder.path(), "both");
    legacy.initialize("2025-11-25");
    let resources = legacy.ask("resources/list", json!({}));
    let uri = &resources["result"]["resources"][0]["uri"];
    let contents = legacy.ask("resources/read", json!({ "uri": uri }));
    assert!(contents["result"]["contents"][0]["text"].as_str().is_some_and(|text| text.starts_with("# ")));
    assert_eq!(legacy.ask("resources/read", json!({ "uri": "note://gone" }))["error"]["code"], -32002);
    let mut modern = Peer::start(folder.path(), "both");
    for uri in ["note://gone", "note://../x", "file:///etc/passwd"] {
        let answer = modern.ask_modern("resources/read", json!({ "uri": uri }));
        assert_eq!(answer["error"]["code"], -32602, "{uri}");
    }
}

#[test]
fn the_prompt_carries_the_note() {
    let folder = folder();
    let mut peer = Peer::start(folder.path(), "both");
    peer.initialize("2025-11-25");
    let arguments = json!({ "name": "summarise_note", "arguments": { "name": "welcome" } });
    let prompt = peer.ask("prompts/get", arguments);
    let texts: Vec<&Value> =
        prompt["result"]["messages"].as_array().unwrap().iter().map(|m| &m["content"]).collect();
    assert_eq!(texts[0]["type"], "text");
    assert_eq!(texts[1]["resource"]["uri"], "note://welcome");
    let missing = json!({ "name": "summarise_note", "arguments": {} });
    assert_eq!(peer.ask("prompts/get", missing)["error"]["code"], -32602);
}
