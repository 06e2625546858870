//! Secrets that are planted wherever something comes in, and looked for wherever something goes out (admin §8, SO-30).

use std::process::Command;

use serde_json::json;

use crate::admin::Program;
use crate::notices::store_credential;
use crate::support::{ENVIRONMENT_CANARY, exchange, guarded_spy};

/// Looks like nothing: only who keeps it can know it.
const KEPT: &str = "zebra-4c1f-crossing-9d27-kept";
/// Looks like a token.
const SHAPED: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";

fn hexadecimal(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn no_secret_that_comes_in_goes_out_again() {
    // ADM-24, ADM-60, ADM-61, SO-30, SO-31
    let (home, spy) = guarded_spy("");
    store_credential(&home, "kept", KEPT);
    let mut daemon = home.serve_saying("debug");
    let said = daemon.listened_to();
    let program = Program::new(&home, &daemon);
    let mut answers = Vec::new();
    let hex = hexadecimal(KEPT);
    // In a reason, which is recorded.
    for (state, reason) in
        [("halted", format!("it said {KEPT}")), ("active", format!("password={SHAPED} {hex}"))]
    {
        let args = json!({"server_id": "spy", "state": state, "confirm": true, "reason": reason});
        let reply = program.call("servers_set_state", &args.to_string());
        assert_eq!(reply.status, 200, "{}", reply.body);
        answers.push(reply.body);
    }
    // In arguments: as a value that is looked up, as the name of a member, as a value that is refused.
    for (args, status) in [
        (json!({"server_id": KEPT}), 404),
        (json!({"server_id": "spy", KEPT: 1}), 400),
        (json!({"server_id": SHAPED}), 400),
        (json!({"server_id": format!("x{hex}")}), 404),
    ] {
        let reply = program.call("servers_get", &args.to_string());
        assert_eq!(reply.status, status, "{}", reply.body);
        answers.push(reply.body);
    }
    // In headers, of who is let in and of who is not.
    let address = daemon.console.trim_start_matches("http://").to_owned();
    for authorization in
        [format!("Bearer {}", program.token()), format!("Bearer {KEPT}"), format!("Basic {SHAPED}")]
    {
        let headers = [
            ("Content-Type", "application/json"),
            ("Authorization", authorization.as_str()),
            ("X-Api-Key", KEPT),
            ("Cookie", SHAPED),
        ];
        let reply = exchange(&address, "POST", "/api/admin/meta_whoami", &headers, "{}").unwrap();
        answers.push(reply.body);
    }
    // In what a server says when it fails.
    spy.control(&json!({"result": {"fail": {
        "content": [{"type": "text", "text": format!("cannot log in with {KEPT} and {SHAPED}")}], "isError": true,
    }}}));
    daemon.approved_call(&home, "spy__fail", &json!({"message": "x"})).unwrap();
    for tool in [
        "analytics_errors",
        "activities_list",
        "audit_list",
        "calls_list",
        "servers_list",
        "signals_list",
        "health_check",
    ] {
        answers.push(program.call(tool, "{}").body);
    }
    answers.push(program.call("servers_get", r#"{"server_id":"spy"}"#).body);
    answers.push(program.metrics());
    Command::new("kill").arg(daemon.child.id().to_string()).status().unwrap();
    answers.push(said.join().unwrap());
    answers.push(serde_json::to_string(&home.log()).unwrap());
    for secret in [KEPT, SHAPED, ENVIRONMENT_CANARY, hex.as_str()] {
        for answer in &answers {
            let at = answer.find(secret);
            assert!(at.is_none(), "{secret} in {:?}", &answer[at.unwrap_or_default().saturating_sub(200)..]);
        }
    }
    let reasons = home.events("server.halted");
    assert_eq!(reasons[0]["data"]["reason"], "it said ***", "{reasons:?}");
    home.verify();
}
