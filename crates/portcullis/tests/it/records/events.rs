//! Subscriptions, and deliveries that are believed or not.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use super::stub::{Stub, http_reply};
use super::{Rs, add, guarded, text, token_file};
use crate::agent::Agent;
use crate::support::{Home, Operator, eventually, exchange};

#[test]
fn subscriptions_are_made_where_allowed_and_their_secret_is_nobody_elses() {
    // REC-70, REC-74, T-REC-21, T-REC-23
    let config = "[records.personal]\ncallback_allow = [\"http://127.0.0.1:9/hooks\"]\n";
    let guarded = guarded(config, &["--profile", "rich"]).warmed();
    let found = guarded.good("discover_event_subscription_capabilities", json!({}));
    assert_eq!(found["structuredContent"]["supported"], true);
    let made = guarded.good(
        "create_event_subscription",
        json!({"callback_url": "http://127.0.0.1:9/hooks/a", "streams": ["labels"]}),
    );
    assert_eq!(made["structuredContent"]["data"]["secret"], "[held by gateway]");
    let id = made["structuredContent"]["data"]["subscription_id"].as_str().unwrap().to_owned();
    assert_eq!(text(&made), format!("{id} pending_verification"));
    let kept = guarded.home.path().join("records/personal").join(format!("{id}.secret"));
    assert!(!kept.exists());
    let export =
        || guarded.home.run(&["secret", "export-signing-key", "personal", &id, "--reason", "receiver"]);
    let fetched = || {
        let exported = export();
        assert!(exported.status.success(), "{}", String::from_utf8_lossy(&exported.stderr));
        assert!(!String::from_utf8_lossy(&exported.stdout).contains("whsec_"));
        assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
        fs::read_to_string(&kept).unwrap()
    };
    let secret = fetched();
    assert!(secret.starts_with("whsec_"));
    // Once; and nothing else is handed over.
    let again = export();
    assert!(!again.status.success());
    assert!(String::from_utf8_lossy(&again.stderr).contains("handed over once"), "{again:?}");
    let other =
        guarded.home.run(&["secret", "export-signing-key", "personal", "sub_x", "--reason", "receiver"]);
    assert!(!other.status.success());
    assert_eq!(guarded.home.events("records.key_exported").len(), 1);
    assert_eq!(
        text(&guarded.good("list_event_subscriptions", json!({}))),
        format!("1 subscription(s) {id} pending_verification")
    );
    guarded.good("send_test_event", json!({"subscription_id": id}));
    let rotated =
        guarded.good("update_event_subscription", json!({"subscription_id": id, "rotate_secret": true}));
    assert!(!rotated.to_string().contains("whsec_"));
    // What was not fetched yet is not overwritten, and the key is not lost by that.
    assert!(!export().status.success());
    fs::remove_file(&kept).unwrap();
    let newer = fetched();
    assert_ne!(newer, secret);
    let holds_a_secret = |text: &str| text.contains(&secret) || text.contains(&newer);
    let deleted = guarded.good("delete_event_subscription", json!({"subscription_id": id}));
    assert_eq!(deleted["structuredContent"]["data"], json!({"deleted": true}));
    let gone = guarded.refused("get_event_subscription", json!({"subscription_id": id}));
    assert_eq!(gone["details"]["code"], "not_found");
    let everything = guarded.home.log().iter().map(Value::to_string).collect::<String>();
    assert!(!holds_a_secret(&everything));
    let evidence = guarded.home.events("execution.result");
    let seqs: Vec<String> = evidence.iter().map(|event| event["seq"].to_string()).collect();
    for seq in seqs {
        let shown = guarded.home.run(&["audit", "show", &seq, "--evidence", "--reason", "test"]);
        assert!(!holds_a_secret(&String::from_utf8_lossy(&shown.stdout)));
    }
    drop(guarded.daemon);
}

#[test]
fn change_events_are_received_verified_kept_and_counted_once() {
    // REC-71, REC-72, REC-73, T-REC-21, T-REC-22, T-REC-23
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = format!(
        "[gateway]\nlisten = \"127.0.0.1:{port}\"\n[records.personal]\nevents = \"gateway\"\npublic_url = \"http://127.0.0.1:{port}\"\n"
    );
    let home = Home::new(&format!("[policy]\npreset = \"observe\"\n{config}"));
    let rs = Rs::start(&home, &["--profile", "rich"]);
    rs.turn("PUT", "/clock", &json!({"now": null}));
    let file = token_file(&home, "grant.token", &rs.tokens["client"]);
    home.json(&add(&rs.rs, &file));
    let listen = format!("127.0.0.1:{port}");
    let daemon = home.serve_as("", &["--listen", &listen]);
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    let call =
        |tool: &str, arguments: Value| agent.call(&format!("personal__{tool}"), arguments)["result"].clone();
    let refused = call("create_event_subscription", json!({"callback_url": "https://example.com/x"}));
    assert!(refused.to_string().contains("callback_not_allowed"), "{refused}");
    let made = call("create_event_subscription", json!({"streams": ["labels"]}));
    let data = &made["structuredContent"]["data"];
    assert_eq!(
        (&data["secret"], &data["callback_url"]),
        (&json!("[held by gateway]"), &json!("[held by gateway]")),
        "{made}"
    );
    let id = data["subscription_id"].as_str().unwrap().to_owned();
    let state = || {
        call("get_event_subscription", json!({"subscription_id": id}))["structuredContent"]["data"].clone()
    };
    eventually("the challenge to be echoed", || (state()["status"] == "active").then_some(()));
    call("send_test_event", json!({"subscription_id": id}));
    eventually("the test event", || (state()["received"]["count"] == 1).then_some(()));
    let line = json!({"connection_id": "cin_gmail_work", "stream": "labels", "data": {"name": "New", "is_system": false}});
    rs.turn("POST", "/ingest", &line);
    let received = eventually("the change", || {
        Some(state()["received"].clone()).filter(|received| received["count"] == 2)
    });
    assert_eq!(received["latest"][0]["stream"], "labels");
    let since = received["latest"][0]["changes_since"].as_str().unwrap();
    let delta = call(
        "query_records",
        json!({"stream": "labels", "connection_id": "cin_gmail_work", "changes_since": since}),
    );
    assert_eq!(delta["structuredContent"]["data"]["data"][0]["id"], "New");
    let events = home.events("records.event_received");
    assert_eq!(events.len(), 2);
    assert_eq!(events[1]["data"]["type"], "pdpp.records.changed");
    // Nobody else is believed, and what was had before counts no more.
    let address = rs.subscription("client", &id)["callback_url"].as_str().unwrap().to_owned();
    let token = address.rsplit('/').next().unwrap().to_owned();
    let address = daemon.address.clone();
    let headers =
        [("webhook-id", "evt_forged"), ("webhook-timestamp", "1800000000"), ("webhook-signature", "v1,AAAA")];
    let post = |path: &str| exchange(&address, "POST", path, &headers, "{}").unwrap().status;
    assert_eq!(post(&format!("/records/personal/{token}")), 401);
    assert_eq!(post("/records/personal/0123456789abcdef0123456789abcdef"), 404);
    assert_eq!(
        exchange(&address, "POST", &format!("/records/personal/{token}"), &[], "{}").unwrap().status,
        400
    );
    assert_eq!(
        exchange(&address, "GET", &format!("/records/personal/{token}"), &headers, "").unwrap().status,
        405
    );
    assert_eq!(state()["received"]["count"], 2);
    let everything = home.log().iter().map(Value::to_string).collect::<String>();
    assert!(!everything.contains("whsec_") && !everything.contains(&token));
    // REC-70: what is kept of it is sealed, down to its name.
    let hook = fs::read_dir(home.path().join("records/hooks")).unwrap().next().unwrap().unwrap();
    assert!(!hook.file_name().to_string_lossy().contains(&token));
    let kept = fs::read(hook.path()).unwrap();
    let holds = |text: &str| kept.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(!holds("whsec_") && !holds(&token) && !holds("personal"));
    let before = call("delete_event_subscription", json!({"subscription_id": id}));
    assert_eq!(before["structuredContent"]["data"]["deleted"], true, "{before}");
    assert_eq!(post(&format!("/records/personal/{token}")), 404);
    // REC-73: a grant that is taken back is told of before anybody is refused.
    call("create_event_subscription", json!({"streams": ["labels"]}));
    rs.turn("POST", "/grants/grt_0000000000000001/revoke", &json!({}));
    eventually("the alarm", || {
        let report = home.command().args(["--output", "json", "doctor"]).output().unwrap();
        String::from_utf8_lossy(&report.stdout).contains("grant_revoked").then_some(())
    });
    assert_eq!(home.events("records.event_received").last().unwrap()["data"]["type"], "pdpp.grant.revoked");
}

#[test]
fn deliveries_are_retried_and_a_replayed_or_forged_one_changes_nothing() {
    // REC-71, REC-72, REC-73, T-REC-21, T-REC-22, T-REC-23
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let gateway = format!("127.0.0.1:{port}");
    // Between the server and the gateway: writes deliveries down, and can lose one.
    let (to, lose) = (gateway.clone(), std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let losing = lose.clone();
    let relay = Stub::answering(move |request| {
        if losing.swap(false, std::sync::atomic::Ordering::SeqCst) {
            return http_reply("500 Down", "{}");
        }
        send_raw(&to, request)
    });
    let home = Home::new(&format!(
        "[policy]\npreset = \"observe\"\n[gateway]\nlisten = \"{gateway}\"\n[records.personal]\nevents = \"gateway\"\npublic_url = \"http://{}\"\n",
        relay.address
    ));
    let rs = Rs::start(&home, &["--profile", "rich"]);
    rs.turn("PUT", "/clock", &json!({"now": null}));
    let file = token_file(&home, "grant.token", &rs.tokens["client"]);
    home.json(&add(&rs.rs, &file));
    let daemon = home.serve_as("", &["--listen", &gateway]);
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    let call =
        |tool: &str, arguments: Value| agent.call(&format!("personal__{tool}"), arguments)["result"].clone();
    let made = call("create_event_subscription", json!({"streams": ["labels"]}));
    let id = made["structuredContent"]["data"]["subscription_id"]
        .as_str()
        .unwrap_or_else(|| panic!("{made}"))
        .to_owned();
    let state = || {
        call("get_event_subscription", json!({"subscription_id": id}))["structuredContent"]["data"].clone()
    };
    eventually("the challenge to be echoed", || (state()["status"] == "active").then_some(()));
    // A delivery that is lost comes again.
    lose.store(true, std::sync::atomic::Ordering::SeqCst);
    call("send_test_event", json!({"subscription_id": id}));
    eventually("the loss", || (!lose.load(std::sync::atomic::Ordering::SeqCst)).then_some(()));
    assert_eq!(state()["received"]["count"], 0);
    rs.turn("POST", "/deliver", &json!({}));
    eventually("the second attempt", || (state()["received"]["count"] == 1).then_some(()));
    let deliveries: Vec<String> =
        relay.seen().into_iter().filter(|request| request.contains("pdpp.subscription.test")).collect();
    assert!(deliveries.len() >= 2, "{deliveries:?}");
    let delivery = deliveries.last().unwrap();
    let status = |request: &str| send_raw(&gateway, request).split(' ').nth(1).unwrap().to_owned();
    // The very same once more: taken, and counted once.
    assert_eq!(status(delivery), "200");
    let (head, body) = delivery.split_once("\r\n\r\n").unwrap();
    let altered = |from: &str, to: &str| format!("{head}\r\n\r\n{}", body.replace(from, to));
    assert_eq!(status(&altered("subscription.test", "subscription.tesT")), "401");
    // Another time, id or signature is not what was signed.
    for name in ["webhook-timestamp: ", "webhook-id: "] {
        let line = head.lines().find(|line| line.starts_with(name)).unwrap();
        let other = head.replace(line, &format!("{name}1700000000"));
        assert_eq!(status(&format!("{other}\r\n\r\n{body}")), "401", "{name}");
    }
    let signature = head.lines().find_map(|line| line.strip_prefix("webhook-signature: ")).unwrap();
    let two = head.replace(signature, &format!("v1,AAAA {signature}"));
    assert_eq!(status(&format!("{two}\r\n\r\n{body}")), "200");
    let huge = format!(
        "{}\r\n\r\n{}",
        head.replace(&format!("content-length: {}", body.len()), "content-length: 1048576"),
        "x".repeat(1 << 20)
    );
    assert_eq!(status(&huge), "413");
    assert_eq!(state()["received"]["count"], 1);
    assert_eq!(home.events("records.event_received").len(), 1);
    // Who has another grant finds nothing, and a revoked one is told of.
    fs::write(&file, rs.tokens["narrow"].as_str().unwrap()).unwrap();
    let address = rs.subscription("client", &id)["callback_url"].as_str().unwrap().to_owned();
    let foreign = call("get_event_subscription", json!({"subscription_id": id}));
    assert_eq!(foreign["structuredContent"]["details"]["http_status"], 404, "{foreign}");
    // Nothing that is secret is anywhere but where it belongs.
    let secrets: Vec<String> = ["client", "narrow", "owner"]
        .iter()
        .map(|name| rs.tokens[*name].as_str().unwrap().to_owned())
        .chain(["whsec_".to_owned(), address.rsplit('/').next().unwrap().to_owned()])
        .collect();
    daemon.stop();
    let mut places = vec![home.path()];
    while let Some(place) = places.pop() {
        for entry in fs::read_dir(place).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                places.push(path);
            } else {
                let bytes = fs::read(&path).unwrap_or_default();
                for secret in &secrets {
                    let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
                    assert!(!found, "{} holds a secret", path.display());
                }
            }
        }
    }
}

/// Sends a request as it was written down; the whole reply.
fn send_raw(address: &str, request: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    // What is refused early may not be read to its end.
    let _ = stream.write_all(request.as_bytes());
    let mut reply = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(read) = stream.read(&mut buffer) {
        if read == 0 {
            break;
        }
        reply.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&reply);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned)
            });
            if length.is_some_and(|length| body.len() >= length.trim().parse::<usize>().unwrap_or(0)) {
                break;
            }
        }
    }
    let text = String::from_utf8_lossy(&reply).into_owned();
    // Whoever passes it on closes after it.
    text.replacen("\r\n", "\r\nconnection: close\r\n", 1)
}
