//! Servers on this machine that nobody of ours started, and that nothing confines (SBX §10).

use std::fs;

use serde_json::json;

use crate::support::{Home, Spy};

#[test]
fn a_server_that_nothing_confines_is_registered_and_not_called_until_somebody_answers_for_that() {
    // SBX-65, S-ISO-1, MP-FH-007
    let home = Home::new("");
    let spy = Spy::new(&home);
    let (_running, url) = spy.alone();
    let file = home.beside("spy.yaml");
    fs::write(&file, spy.declaration()).unwrap();
    let flags = |command: &str, version: &str, more: &[&str]| {
        let mut args = vec!["mcp", command, "spy", "--transport", "http", "--url", &url];
        args.extend(["--server-version", version, "--justification", "to be watched"]);
        args.extend(["--deployment-mode", "local", "--capability-declaration", file.to_str().unwrap()]);
        args.extend(more);
        args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<String>>()
    };
    // The class is computed; nobody can say that it is somebody else's machine.
    let (exit, error) = home.fails_of(&flags("add", "1.0.0", &["--attest", "it is fine"]));
    assert_eq!((exit, &error["field"]), (7, &json!("attest")), "{error}");

    let record = home.json_of(&flags("add", "1.0.0", &[]));
    assert_eq!(record["isolation_class"], "unmanaged-local", "{record}");
    let daemon = home.serve();
    let echo = json!({"text": "x"});
    let refused = daemon.call("spy__echo", &echo).unwrap();
    let details = &refused["error"]["data"]["details"];
    assert_eq!(
        (&details["code"], &details["facility"]),
        (&json!("MP-FH-007"), &json!("unmanaged_local")),
        "{refused}"
    );
    let message = refused["error"]["data"]["message"].as_str().unwrap();
    assert!(message.contains("stdio") && message.contains("--waive-isolation"), "{message}");
    assert_eq!(spy.calls(), 0);

    let waived = ["--waive-isolation", "on my own desk", "--yes"];
    home.json_of(&flags("update", "1.0.0", &waived));
    let answer = daemon.approved_call(&home, "spy__echo", &echo).unwrap();
    assert!(answer["result"].is_object(), "{answer}");
    daemon.stop();
    assert_eq!(spy.calls(), 1);
    let intent = &home.events("execution.intent")[0]["data"];
    assert_eq!(intent["waived"], "on my own desk", "{intent}");
    home.verify();
}
