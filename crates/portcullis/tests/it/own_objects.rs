//! Admin tools at the agents' door (ADM-3): nothing without a role, only what looks with one, and only the agent's own objects.

use serde_json::{Value, json};

use crate::admin::Program;
use crate::support::{Daemon, exchange, guarded_spy, modern_meta};

/// A modern agent with a key.
struct Keyed<'d> {
    daemon: &'d Daemon,
    key: String,
}

impl Keyed<'_> {
    fn ask(&self, method: &str, mut params: Value) -> Value {
        params["_meta"] = modern_meta();
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let bearer = format!("Bearer {}", self.key);
        let name = params["name"].as_str().unwrap_or_default().to_owned();
        let mut headers = vec![
            ("Content-Type", "application/json"),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", method),
            ("Authorization", bearer.as_str()),
        ];
        headers.extend((!name.is_empty()).then_some(("Mcp-Name", name.as_str())));
        exchange(&self.daemon.address, "POST", "/mcp", &headers, &body).unwrap().json()
    }

    fn call(&self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// The names of the tools that begin like ours.
    fn sees(&self) -> Vec<String> {
        let listed = self.ask("tools/list", json!({}));
        let tools = listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed}")).clone();
        let names = tools.iter().filter_map(|tool| tool["name"].as_str());
        names.filter(|name| name.starts_with("portcullis_")).map(str::to_owned).collect()
    }

    fn data(&self, tool: &str, arguments: Value) -> Value {
        let answer = self.call(tool, arguments);
        assert_eq!(answer["result"]["isError"], false, "{tool}: {answer}");
        answer["result"]["structuredContent"]["data"].clone()
    }
}

#[test]
fn an_agent_sees_what_a_role_lists_and_only_its_own_objects() {
    // ADM-3, SO-04
    let (home, _spy) = guarded_spy("[approvals]\nwait = \"200ms\"\n");
    let daemon = home.serve();
    let program = Program::new(&home, &daemon);
    let act = |tool: &str, mut args: Value| {
        args["confirm"] = json!(true);
        args["reason"] = json!("for a test");
        program.call(tool, &args.to_string()).json()
    };
    let agent = |name: &str| Keyed {
        daemon: &daemon,
        key: home.json(&["key", "create", name])["key"].as_str().unwrap().to_owned(),
    };
    let (ann, bob) = (agent("ann"), agent("bob"));
    // Both have done something: each a call that waits.
    for one in [&ann, &bob] {
        let waits = one.call("spy__echo", json!({"text": "x"}));
        assert_eq!(waits["error"]["data"]["error"], "AUTH_REQUIRED", "{waits}");
    }
    let said = |answer: &Value, tool: &str| {
        let error = &answer["error"];
        let message = error["message"].as_str().unwrap_or_else(|| panic!("{answer}")).replace(tool, "NAME");
        (error["code"].clone(), message, error["data"]["error"].clone())
    };
    let unknown = said(&ann.call("portcullis_no_such_tool", json!({})), "portcullis_no_such_tool");
    let hidden = |tool: &str, agent: &Keyed<'_>| {
        assert_eq!(said(&agent.call(tool, json!({})), tool), unknown, "{tool}: as what never was");
    };
    assert!(ann.sees().is_empty() && bob.sees().is_empty());
    hidden("portcullis_approvals_list", &ann);

    // Whatever the role says: nothing that changes anything, and nothing that tells of others.
    assert_eq!(act("roles_put", json!({"role_id": "self-service", "patterns": ["*"]}))["status"], "ok");
    let refused = act("clients_update", json!({"client_id": "ann", "roles": ["nobody"]}));
    assert_eq!(refused["message"], "roles: there is no role \"nobody\"", "{refused}");
    let given = act("clients_update", json!({"client_id": "ann", "roles": ["self-service"]}));
    assert_eq!(given["data"]["roles"], json!(["self-service"]), "{given}");
    let sees = ann.sees();
    for tool in ["approvals_list", "sessions_list", "permits_list", "meta_whoami", "clients_get"] {
        assert!(sees.contains(&format!("portcullis_{tool}")), "{tool}: {sees:?}");
    }
    assert!(bob.sees().is_empty(), "the role is ann's");
    let shown = program.call("meta_list_tools", r#"{"limit":500}"#).json();
    for tool in shown["data"].as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        if tool["class"] != "read" {
            assert!(!sees.iter().any(|seen| seen == name), "{name} changes something");
            hidden(name, &ann);
        }
    }
    for tool in [
        "portcullis_servers_list",
        "portcullis_credentials_list",
        "portcullis_audit_list",
        "portcullis_users_list",
    ] {
        hidden(tool, &ann);
    }

    // Its own objects, and none of bob's.
    let mine = ann.data("portcullis_approvals_list", json!({}));
    let whose: Vec<&Value> = mine.as_array().unwrap().iter().map(|row| &row["requested_by"]).collect();
    assert_eq!(whose, [&json!("agent:ann")], "{mine}");
    assert_eq!(program.call("approvals_list", "{}").json()["pagination"]["total"], 2);
    let sessions = ann.data("portcullis_sessions_list", json!({}));
    assert!(!sessions.as_array().unwrap().is_empty(), "{sessions}");
    assert!(sessions.as_array().unwrap().iter().all(|row| row["client_id"] == "agent:ann"), "{sessions}");
    let all = program.call("sessions_list", r#"{"client_id":"agent:bob"}"#).json();
    let bobs = all["data"][0]["session_id"].clone();
    assert!(bobs.is_string(), "{all}");
    let code = |answer: &Value| answer["result"]["structuredContent"]["domain_code"].clone();
    assert_eq!(code(&ann.call("portcullis_sessions_get", json!({"session_id": bobs}))), "not_found");
    assert_eq!(ann.data("portcullis_sessions_list", json!({"client_id": "agent:bob"})), json!([]));
    assert_eq!(ann.data("portcullis_sessions_frames", json!({"session_id": bobs})), json!([]));
    assert_eq!(ann.data("portcullis_clients_get", json!({"client_id": "ann"}))["client_id"], "ann");
    let other = ann.call("portcullis_clients_get", json!({"client_id": "bob"}));
    let nobody = ann.call("portcullis_clients_get", json!({"client_id": "zed"}));
    let message =
        |answer: &Value| answer["result"]["structuredContent"]["message"].as_str().unwrap().to_owned();
    assert_eq!(message(&other).replace("bob", "zed"), message(&nobody), "not even whether it is there");
    let who = ann.data("portcullis_meta_whoami", json!({}));
    assert_eq!(
        (&who["actor"]["id"], &who["actor"]["channel"]),
        (&json!("agent:ann"), &json!("agent")),
        "{who}"
    );
    assert!(
        who["tags"].as_array().unwrap().iter().all(|tag| tag.as_str().unwrap().ends_with(":read")),
        "{who}"
    );
    let refused = ann.call("portcullis_sessions_list", json!({"limit": "10"}));
    assert_eq!(code(&refused), "invalid_argument", "{refused}");

    // The role is in use; taken away, everything is gone again.
    assert_eq!(act("roles_delete", json!({"role_id": "self-service"}))["domain_code"], "conflict");
    assert_eq!(act("clients_update", json!({"client_id": "ann", "roles": []}))["status"], "ok");
    assert!(ann.sees().is_empty());
    hidden("portcullis_approvals_list", &ann);
    daemon.stop();
    home.verify();
}
