use portcullis_gateway::control::Target;
use portcullis_governance::policy::Preset;
use portcullis_governance::record::Surface;
use serde_json::json;

use super::*;

/// Every kind of request there is, as serde knows them.
fn names() -> Vec<String> {
    let error = serde_json::from_value::<Request>(json!({"do": "?"})).unwrap_err().to_string();
    let (_, list) = error.split_once("expected one of ").expect("serde lists what it knows");
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// One of each: an object with every member that any of them has.
fn one_of_each() -> Vec<Request> {
    let target = || Target::Http { url: "https://example.org/mcp".into(), tls_spki: None };
    let registration = Registration {
        name: "x".into(),
        target: target(),
        server_version: "1".into(),
        declaration_file: "x.yaml".into(),
        declaration: "x".into(),
        justification: "x".into(),
        modes: Vec::new(),
        trust_tier: 0,
        surface: Surface::Static,
        attest: None,
        waive_isolation: None,
        grant: None,
        waive: Vec::new(),
        allow_over_budget: false,
    };
    let drafting = Drafting {
        name: "x".into(),
        target: target(),
        folders: Vec::new(),
        programs: Vec::new(),
        hosts: Vec::new(),
        secrets: Vec::new(),
        attest: None,
    };
    let accept = Reacceptance {
        name: "x".parse().unwrap(),
        declaration: None,
        carry_approvals: false,
        grant: None,
        reason: "x".into(),
        waive: Vec::new(),
        allow_over_budget: false,
    };
    let bundle = Bundle { preset: Preset::Strict, files: Vec::new(), settings: String::new() };
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINdamAGCsQq31Uv+08lkBzoO4XLz2qYjJa8CGmj3B1Ea";
    let of = |name: String| {
        let mut everything = json!({
            "do": name, "registration": registration, "drafting": drafting, "accept": accept, "bundle": bundle,
            "key": key, "scope": "once", "live": false, "seconds": 1, "tool": "servers_list", "args": "{}",
            "kill": false, "lifetime": {"secs": 1, "nanos": 0}, "message": "{}", "passthrough": false, "grants": [],
            "selector": {}, "out": "/x", "from": 0, "seqs": [], "held": true,
        });
        for word in
            "name reason id kind agent session passphrase passkey value class facility handle".split(' ')
        {
            everything[word] = json!("x");
        }
        for may_be_missing in
            "status server state query path top_k version mode principal limit to recipient policies"
                .split(' ')
        {
            everything[may_be_missing] = Value::Null;
        }
        serde_json::from_value(everything).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    names().into_iter().map(of).collect()
}

#[test]
fn every_request_is_a_tool_that_may_do_what_it_does() {
    // ADM-1, ADM-2
    let registry = Registry::build(portcullis_admin::tools::modules()).unwrap();
    let requests = one_of_each();
    assert!(requests.len() > 70, "{}", requests.len());
    for request in &requests {
        let (tool, looks) = match request.behind() {
            Behind::Look(tool) => (tool, true),
            Behind::Act(tool) => (tool, false),
            Behind::Named(_) | Behind::Surface => continue,
            Behind::Capture => {
                assert!(request.changes_something(), "{request:?}");
                continue;
            }
        };
        let found = registry.get(tool).unwrap_or_else(|| panic!("{request:?}: there is no tool {tool}"));
        assert!(found.is_wired(), "{tool}");
        assert_eq!(found.class() == Class::Read, looks, "{request:?} is {tool}");
        // GOV-104: whatever changes something is asked for by somebody who is recognised.
        assert!(looks || request.changes_something(), "{request:?}");
    }
}

#[test]
fn what_only_looks_is_named_and_nothing_else_is_let_in_without_a_credential() {
    // GOV-104
    let open: Vec<String> = (one_of_each().iter())
        .filter(|request| !request.changes_something())
        .map(|request| serde_json::to_value(request).unwrap()["do"].as_str().unwrap().to_owned())
        .collect();
    let known = "mcp_list mcp_show separation approve_list approve_show trust_list trust_show trust_verify policy_show surface_parts \
                 gate_try alarms result_sizes policy_explain grants_list permit_list session_list checkpoint_list \
                 operator_list operator_token_list admin_call key_list sandbox_explain sandbox_test secret_list audit_keys";
    assert_eq!(open, known.split_whitespace().collect::<Vec<_>>());
}
