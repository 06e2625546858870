//! Whose tokens are used, where they go, and what a server says no to.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use super::stub::{Stub, http_reply};
use super::{Rs, add, guarded, token_file};
use crate::agent::Agent;
use crate::support::{Home, Operator, eventually};

#[test]
fn only_tokens_of_grants_are_used() {
    // REC-10, REC-11, REC-12, T-REC-19, T-REC-20
    let home = Home::new("[policy]\npreset = \"observe\"\n");
    let rs = Rs::start(&home, &[]);
    let owner = token_file(&home, "some.token", &rs.tokens["owner"]);
    let (_, error) = home.fails(&add(&rs.rs, &owner));
    assert!(error["message"].as_str().unwrap().contains("only grant-scoped tokens are used"), "{error}");
    let named = token_file(&home, "owner.token", &rs.tokens["client"]);
    let (_, error) = home.fails(&add(&rs.rs, &named));
    assert!(error["message"].as_str().unwrap().contains("named like an owner"), "{error}");
    let shared = token_file(&home, "shared.token", &rs.tokens["client"]);
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o644)).unwrap();
    let (_, error) = home.fails(&add(&rs.rs, &shared));
    assert!(error["message"].as_str().unwrap().contains("others can read"), "{error}");
    assert!(rs.asked().iter().all(|entry| entry["path"] == "/v1/schema"));

    let file = token_file(&home, "grant.token", &rs.tokens["client"]);
    home.json(&add(&rs.rs, &file));
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    let count =
        |agent: &Agent| agent.call("personal__aggregate", json!({"stream": "messages", "metric": "count"}));
    assert_eq!(count(&agent)["result"]["structuredContent"]["data"]["value"], 70);
    // Another grant's token, put in its place: held to that grant.
    fs::write(&file, rs.tokens["narrow"].as_str().unwrap()).unwrap();
    assert_eq!(count(&agent)["result"]["structuredContent"]["data"]["value"], 40);
    fs::write(&file, rs.tokens["owner"].as_str().unwrap()).unwrap();
    rs.asked();
    let refused = count(&agent);
    assert!(refused.to_string().contains("owner_credential_refused"), "{refused}");
    assert!(rs.asked().iter().all(|entry| entry["path"] == "/v1/schema"));
    eventually("the halt", || home.events("server.halted").pop());
    assert_eq!(home.events("records.credential_refused").len(), 1);
    // T-REC-25: no token anywhere.
    let everything = home.log().iter().map(Value::to_string).collect::<String>();
    for token in ["client", "narrow", "owner"] {
        assert!(!everything.contains(rs.tokens[token].as_str().unwrap()), "{token}");
    }
}

#[test]
fn what_the_server_says_no_to_is_passed_on_in_its_words() {
    // REC-75, T-REC-20, T-REC-24
    let guarded = guarded("", &[]).warmed();
    let asked = json!({"stream": "messages", "metric": "count"});
    for (fault, error, code) in [
        (json!({"kind": "html", "status": 502}), "UPSTREAM_ERROR", "http_502"),
        (json!({"kind": "status", "status": 503}), "UPSTREAM_UNAVAILABLE", "fault"),
        (json!({"kind": "status", "status": 429}), "RATE_LIMITED", "fault"),
        (json!({"kind": "reset"}), "UPSTREAM_UNAVAILABLE", "reset"),
        (json!({"kind": "html"}), "UPSTREAM_ERROR", "not_json"),
        (json!({"kind": "bad_json"}), "UPSTREAM_ERROR", "bad_json"),
        (json!({"kind": "large", "body_bytes": 9_437_184}), "RESULT_TOO_LARGE", "body_too_large"),
        (
            json!({"kind": "redirect", "location": "http://127.0.0.1:9/elsewhere"}),
            "UPSTREAM_ERROR",
            "redirect",
        ),
    ] {
        let mut fault = fault;
        fault["path_prefix"] = json!("/v1/streams");
        guarded.rs.fault(fault.clone());
        let refused = guarded.refused("aggregate", asked.clone());
        assert_eq!(
            (&refused["error"], &refused["details"]["code"]),
            (&json!(error), &json!(code)),
            "{fault}"
        );
    }
    assert_eq!(
        guarded.refused("query_records", json!({"stream": "threads"}))["details"]["code"],
        "context.stream_not_allowed"
    );
    guarded.rs.turn("POST", "/grants/grt_0000000000000001/revoke", &json!({}));
    let revoked = guarded.refused("aggregate", asked.clone());
    assert_eq!(
        (&revoked["error"], &revoked["details"]["code"]),
        (&json!("PERMISSION_DENIED"), &json!("grant_revoked"))
    );
    guarded.rs.turn("POST", "/tokens/client/expire", &json!({}));
    assert_eq!(guarded.refused("aggregate", asked)["error"], "AUTH_FAILED");
    let labels: Vec<Value> = guarded.rs.asked().iter().map(|entry| entry["token_label"].clone()).collect();
    assert!(labels.iter().all(|label| label == "client"), "{labels:?}");
}

#[test]
fn a_token_nobody_vouches_for_is_refused_and_none_follows_a_redirect() {
    // REC-4, REC-10, T-REC-19, T-REC-24
    let home = Home::new("[policy]\npreset = \"observe\"\n");
    let silent = Stub::answering(|_| {
        http_reply("200 OK", r#"{"object":"schema","detail":"compact","connectors":[]}"#)
    });
    let file = token_file(&home, "grant.token", &json!("pdpp_secret_token_0123456789"));
    let url = format!("http://{}", silent.address);
    let (_, error) = home.fails(&add(&url, &file));
    assert!(error["message"].as_str().unwrap().contains("does not say what kind of token"), "{error}");
    let seen = silent.seen();
    assert!(
        !seen.is_empty() && seen.iter().all(|request| request.starts_with("GET /v1/schema?view=compact ")),
        "{seen:?}"
    );
    // Only what is needed is sent along.
    assert!(
        seen[0].contains("authorization: Bearer pdpp_secret_token")
            && !seen[0].to_lowercase().contains("cookie"),
        "{}",
        seen[0]
    );
    // The operator can vouch for it.
    fs::write(
        home.path().join("portcullis.toml"),
        "[policy]\npreset = \"observe\"\n[records.personal]\nallow_unlabelled_token = true\n",
    )
    .unwrap();
    home.json(&add(&url, &file));

    let home = Home::new("[policy]\npreset = \"observe\"\n");
    let elsewhere = Stub::answering(|_| http_reply("200 OK", "{}"));
    let location = format!("http://{}/v1/schema", elsewhere.address);
    let moved = Stub::answering(move |_| {
        format!(
            "HTTP/1.1 307 Moved\r\nlocation: {location}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        )
    });
    let file = token_file(&home, "grant.token", &json!("pdpp_secret_token_0123456789"));
    let (_, error) = home.fails(&add(&format!("http://{}", moved.address), &file));
    assert!(error["message"].is_string());
    assert_eq!((moved.seen().is_empty(), elsewhere.seen().len()), (false, 0));
}

#[test]
fn a_grant_that_is_gone_is_an_alarm_and_its_tools_stay() {
    // REC-75, T-REC-20
    let guarded = guarded("", &["--profile", "rich"]).warmed();
    let count = json!({"stream": "messages", "metric": "count"});
    // Another connection than the grant's.
    let narrow = guarded.rs.tokens["narrow"].as_str().unwrap().to_owned();
    let file = guarded.home.beside("grant.token");
    let client = fs::read_to_string(&file).unwrap();
    fs::write(&file, narrow).unwrap();
    let outside =
        guarded.refused("query_records", json!({"stream": "messages", "connection_id": "cin_gmail_work"}));
    assert_eq!(
        (&outside["error"], outside["details"]["code"].as_str().unwrap().starts_with("context.")),
        (&json!("AUTH_FAILED"), true),
        "{outside}"
    );
    fs::write(&file, &client).unwrap();
    guarded.rs.turn("POST", "/grants/grt_0000000000000001/revoke", &json!({}));
    assert_eq!(guarded.refused("aggregate", count.clone())["error"], "PERMISSION_DENIED");
    let alarmed = || {
        let output = guarded.home.command().args(["--output", "json", "doctor"]).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report["findings"].to_string().contains("grant_revoked")
    };
    eventually("the alarm", || alarmed().then_some(()));
    assert_eq!(guarded.agent.result("tools/list", json!({}))["tools"].as_array().unwrap().len(), 13);
    // Another grant, and it is over.
    fs::write(&file, guarded.rs.tokens["narrow"].as_str().unwrap()).unwrap();
    guarded.good("aggregate", count);
    eventually("the alarm to end", || (!alarmed()).then_some(()));
}
