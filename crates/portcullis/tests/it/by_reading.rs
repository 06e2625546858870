//! What commands show is what the admin tools say, to those to whom they say it (ADM-1, ADM-2, ADM-71).

use serde_json::{Value, json};

use crate::by_command::{ANN, BOB, by, call, two_operators};
use crate::support::{Home, guarded_spy};

/// The data of a tool.
fn data(home: &Home, tool: &str, args: &Value) -> Value {
    let said = home.json(&["admin", "call", tool, "--json", &args.to_string()]);
    assert_eq!(said["status"], "ok", "{tool}: {said}");
    said["data"].clone()
}

/// Each of these members of what a command shows is that member of what a tool says.
fn same(shown: &Value, said: &Value, members: &[(&str, &str)]) {
    for (of_command, of_tool) in members {
        let (shown, said) = (shown.pointer(of_command), said.pointer(of_tool));
        assert!(shown.is_some(), "{of_command}");
        assert_eq!(shown, said, "{of_command} and {of_tool}");
    }
}

#[test]
fn what_commands_show_is_what_the_tools_say() {
    // ADM-1, ADM-2
    let (home, _spy) = guarded_spy("[policy]\npreset = \"observe\"\n[approvals]\nwait = \"300ms\"\n");
    let daemon = home.serve();
    daemon.call("spy__echo", &json!({"text": "x"})).unwrap();
    let granted = home.grant_next("until-version-change");
    assert_eq!(
        granted["decisions"][0]["reason"],
        home.json(&["grants", "list"])[0]["decisions"][0]["reason"]
    );
    daemon.call("spy__add", &json!({"a": 1, "b": 2})).unwrap();
    let waiting = home.next_pending()["approval_id"].as_str().unwrap().to_owned();

    let members = [
        ("/approval_id", "/approval_id"),
        ("/state", "/status"),
        ("/tool_id", "/tool"),
        ("/principal", "/requested_by"),
        ("/session", "/session_id"),
        ("/offers", "/offers"),
        ("/decisions", "/decisions"),
        ("/presented_sha256", "/presented_sha256"),
        ("/uses_left", "/uses_left"),
    ];
    let (shown, said) =
        (home.json(&["approve", "list"]), data(&home, "approvals_list", &json!({"status": "pending"})));
    let shown = shown.as_array().unwrap().iter().find(|row| row["state"] == "pending").unwrap();
    same(shown, &said[0], &members);
    let shown = home.json(&["approve", "show", &waiting]);
    let said = data(&home, "approvals_get", &json!({"approval_id": waiting}));
    same(&shown, &said, &members);
    same(&shown, &said, &[("/presented", "/presented")]);

    let (shown, said) = (home.json(&["grants", "list"]), data(&home, "grants_list", &json!({})));
    let of_grant = [("/0/envelope/envelope_id", "/0/envelope/envelope_id"), ("/0/decisions", "/0/decisions")];
    same(&shown, &said, &of_grant);
    same(&shown, &said, &[("/0/uses_left", "/0/uses_left"), ("/0/principal", "/0/client_id")]);

    let shown = home.json(&["mcp", "show", "spy"]);
    let said = data(&home, "servers_get", &json!({"server_id": "spy"}));
    same(&shown, &said, &[("/process", "/registration/process"), ("/connection", "/connection")]);
    same(
        &shown,
        &said,
        &[("/tools/0/tool_id", "/tool_rows/0/tool"), ("/tools/0/bound", "/tool_rows/0/bound")],
    );
    assert_eq!(shown["grants"][0]["approval_id"], granted["approval_id"]);
    assert!(shown["grants"][0].get("envelope").is_none(), "{shown}");

    // By either name of a tool.
    let by_name = home.json(&["trust", "show", "spy/echo"]);
    let identity = by_name["tool_id"].as_str().unwrap();
    assert_eq!(home.json(&["trust", "show", identity]), by_name);
    let said = data(&home, "trust_list", &json!({"tool": identity}));
    same(&by_name, &said[0], &[("/boundary_id", "/tool"), ("/score", "/score"), ("/since", "/since")]);
    assert_eq!(home.json(&["trust", "verify"]), data(&home, "trust_verify", &json!({})));
    let (exit, error) = home.fails(&["trust", "show", "spy/nothing"]);
    assert_eq!((exit, &error["code"]), (8, &json!("NOT_FOUND")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("portcullis trust list"), "{error}");

    let (shown, said) = (home.json(&["policy", "show"]), data(&home, "policies_get", &json!({})));
    same(
        &shown,
        &said,
        &[("/policies", "/policies"), ("/bundle/preset", "/preset"), ("/in_force", "/active")],
    );
    let history = data(&home, "policies_list", &json!({}));
    assert_eq!(shown["history"].as_array().unwrap().len(), history.as_array().unwrap().len());
    let explain = ["policy", "explain", "--tool", "spy__add", "--args", "{\"a\": 1, \"b\": 2}"];
    let arguments = json!({"tool": "spy__add", "arguments": {"a": 1, "b": 2}});
    let (shown, said) = (home.json(&explain), data(&home, "policies_explain", &arguments));
    same(
        &shown,
        &said,
        &[("/reasons", "/policies"), ("/offers", "/offers"), ("/policy_version", "/version")],
    );
    assert_eq!((&shown["decision"], &said["invoke"]), (&json!("approval"), &json!("allow")));
    // The tool reads the arguments as they were written.
    let twice = ["policy", "explain", "--tool", "spy__add", "--args", "{\"a\": 1, \"a\": 2}"];
    assert_eq!(home.fails(&twice).0, 7);

    let (shown, said) = (home.json(&["session", "list"]), data(&home, "sessions_list", &json!({})));
    let of_session = [
        ("/0/session_id", "/0/session_id"),
        ("/0/principal", "/0/client_id"),
        ("/0/opened_at", "/0/started_at"),
        ("/0/steps", "/0/steps"),
        ("/0/client", "/0/client"),
    ];
    same(&shown, &said, &of_session);
    // AUD-70
    assert_eq!(said[0]["mode"], "live");

    let shown = home.json(&["audit", "retention", "list"]);
    let said = data(&home, "keys_list", &json!({}));
    let said: Vec<&Value> =
        said.as_array().unwrap().iter().filter(|key| key["purpose"] == "evidence").collect();
    assert_eq!(shown.as_array().unwrap().len(), said.len());
    same(
        &shown[0],
        said[0],
        &[("/key", "/kid"), ("/class", "/class"), ("/day", "/day"), ("/check", "/check")],
    );
    daemon.stop();
    home.verify();
}

#[test]
fn a_command_shows_nothing_that_its_tool_does_not() {
    // ADM-71
    let home = two_operators();
    let daemon = home.serve();
    daemon.call("spy__echo", &json!({"text": "x"})).unwrap();
    let waiting = home.next_pending()["approval_id"].as_str().unwrap().to_owned();
    let show = format!("approve show {waiting}");
    let commands = [
        ("mcp show spy", "servers_get"),
        ("approve list", "approvals_list"),
        (&show, "approvals_get"),
        ("trust show spy/echo", "trust_list"),
        ("trust verify", "trust_verify"),
        ("policy show", "policies_get"),
        ("policy explain --tool spy__echo --args {}", "policies_explain"),
        ("grants list", "grants_list"),
        ("session list", "sessions_list"),
        ("operator list", "users_list"),
        ("audit retention list", "keys_list"),
        ("artifact list", "artifacts_list"),
    ];
    // What only looks is asked for as the user who runs the command; artifacts by an operator.
    let us = data(&home, "meta_whoami", &json!({}))["actor"]["id"].as_str().unwrap().to_owned();
    let enrolled = home.json(&["operator", "list"]);
    assert_eq!(enrolled[0]["name"], "ann");
    assert!(enrolled[0].get("verifier_sha256").is_some(), "{enrolled}");
    assert_eq!(by(&home, BOB, &["artifact", "list"]), (0, json!([])));

    let role = |deny: &[&str]| {
        let deny: Vec<String> = deny.iter().map(|tool| format!("portcullis_{tool}")).collect();
        call(&home, ANN, "roles_put", json!({"role_id": "some", "patterns": ["*"], "deny": deny}));
    };
    role(&["grants_list"]);
    for who in [us.as_str(), "bob"] {
        call(&home, ANN, "users_put", json!({"user_id": who, "roles": ["some"], "enabled": true}));
    }
    let shown = home.json(&["mcp", "show", "spy"]);
    assert_eq!(
        (&shown["server_identity"], &shown["grants"]),
        (&json!("spy"), &Value::Null),
        "not none: not told"
    );

    role(&commands.map(|(_, tool)| tool));
    for (command, tool) in commands {
        let words: Vec<&str> = command.split(' ').collect();
        let (exit, said) = by(&home, BOB, &words);
        assert_eq!((exit, &said["error"]["code"]), (8, &json!("NOT_FOUND")), "{command}: {said}");
        let message = said["error"]["message"].as_str().unwrap();
        assert_eq!(message, format!("there is no admin tool {tool} for you"), "{command}");
    }
    daemon.stop();
    home.verify();
}
