//! What somebody should look at, and programs that are told: raised by real calls, delivered to a real listener.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;

use serde_json::{Value, json};

use crate::admin::Program;
use crate::support::{Home, Spy, eventually, guarded_spy};

fn act(program: &Program<'_>, tool: &str, mut args: Value) -> Value {
    args["confirm"] = json!(true);
    args["reason"] = json!("for a test");
    program.call(&format!("portcullis_{tool}"), &args.to_string()).json()
}

/// Somebody who is told: what came, and the headers it came with.
struct Listener {
    url: String,
    told: mpsc::Receiver<(String, String)>,
}

impl Listener {
    /// Answers with these statuses, one after the other, and then with the last.
    fn answering(statuses: &'static [u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let (sender, told) = mpsc::channel();
        std::thread::spawn(move || {
            for (at, stream) in listener.incoming().enumerate() {
                let Ok(mut stream) = stream else { return };
                let (mut text, mut chunk) = (Vec::new(), [0; 4096]);
                let (head, body) = loop {
                    let read = stream.read(&mut chunk).unwrap_or(0);
                    text.extend_from_slice(&chunk[..read]);
                    let all = String::from_utf8_lossy(&text).into_owned();
                    if let Some((head, body)) = all.split_once("\r\n\r\n") {
                        let length = head.to_lowercase().lines().find_map(|line| {
                            line.strip_prefix("content-length: ").and_then(|n| n.parse::<usize>().ok())
                        });
                        if body.len() >= length.unwrap_or(0) {
                            break (head.to_owned(), body.to_owned());
                        }
                    }
                    if read == 0 {
                        break (String::new(), String::new());
                    }
                };
                let status = statuses.get(at).or(statuses.last()).copied().unwrap_or(200);
                let _ = stream.write_all(
                    format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                        .as_bytes(),
                );
                if sender.send((head, body)).is_err() {
                    return;
                }
            }
        });
        Self { url, told }
    }

    fn next(&self) -> (String, Value) {
        let (head, body) =
            self.told.recv_timeout(std::time::Duration::from_secs(30)).expect("something is told");
        (head, serde_json::from_str(&body).unwrap())
    }
}

pub(crate) fn store_credential(home: &Home, name: &str, value: &str) {
    let mut child = home
        .command()
        .args(["secret", "set", name, "--class", "hooks.sign", "--fd", "0"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(value.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_webhook_is_told_with_a_signature_tried_again_and_on_record() {
    // admin §12: webhooks; SBX-46
    let home = Home::new("[admin]\nwebhook_hosts = [\"127.0.0.1\"]\n");
    let spy = Spy::new(&home);
    spy.register(&home);
    let daemon = home.serve();
    let program = Program::new(&home, &daemon);
    let canary = "canary-signing-value-4711";
    store_credential(&home, "hook-key", canary);
    let listener = Listener::answering(&[500, 200]);
    let hook = json!({
        "webhook_id": "ops", "url": listener.url, "events": ["server.halted", "signal.*"], "secret_handle": "hook-key",
        "enabled": true,
    });
    let put = act(&program, "webhooks_put", hook.clone());
    assert_eq!(put["data"]["version"], 1, "{put}");
    home.json(&["mcp", "halt", "spy", "--reason", "for a test"]);
    let (_, first) = listener.next();
    let (head, again) = listener.next();
    assert_eq!((&first["event"], &again["event"]), (&json!("server.halted"), &json!("server.halted")));
    assert_eq!(first["delivery_id"], again["delivery_id"], "the same delivery, tried again");
    assert_eq!(again["server"], "spy");
    let signature = head.to_lowercase();
    let signature =
        signature.lines().find_map(|line| line.strip_prefix("portcullis-signature: ")).unwrap().to_owned();
    assert!(signature.starts_with("t=") && signature.contains(",v1="), "{signature}");
    let delivered = eventually("the delivery on record", || {
        let rows = program.call("portcullis_deliveries_list", r#"{"webhook_id":"ops"}"#).json();
        rows["data"].as_array().and_then(|rows| rows.first().cloned())
    });
    assert_eq!(
        (&delivered["status"], &delivered["attempts"]),
        (&json!("delivered"), &json!(2)),
        "{delivered}"
    );

    let tested = act(&program, "webhooks_test", json!({"webhook_id": "ops"}));
    assert_eq!(
        (&tested["data"]["event"], &tested["data"]["status"]),
        (&json!("webhook.test"), &json!("delivered")),
        "{tested}"
    );
    listener.next();
    // A private host that nobody opened, plain http elsewhere, and a credential that is not there are refused.
    for (member, bad) in [
        ("url", "https://10.0.0.1/hook"),
        ("url", "http://example.org/hook"),
        ("url", "https://user:pass@example.org/hook"),
        ("secret_handle", "nothing"),
    ] {
        let mut refused = hook.clone();
        refused["webhook_id"] = json!("bad");
        refused[member] = json!(bad);
        let answer = act(&program, "webhooks_put", refused);
        assert_eq!(answer["domain_code"], "invalid_argument", "{bad}: {answer}");
    }
    assert_eq!(act(&program, "webhooks_delete", json!({"webhook_id": "ops"}))["data"], Value::Null);
    home.json(&["mcp", "resume", "spy", "--reason", "again"]);
    daemon.stop();
    let log = serde_json::to_string(&home.log()).unwrap();
    assert!(!log.contains(canary), "the credential is nowhere");
    home.verify();
}

#[test]
fn signals_are_raised_by_what_happens_and_ended_by_who_looks() {
    // admin §12: signals, notifications
    let (home, _spy) = guarded_spy("");
    let daemon = home.serve();
    let program = Program::new(&home, &daemon);
    let read =
        |tool: &str, args: &str| program.call(&format!("portcullis_{tool}"), args).json()["data"].clone();
    assert_eq!(read("signals_snapshot", "{}")["open"], 0);
    for at in 0..10 {
        daemon.call("spy__echo", &json!({"wrong": at})).unwrap();
    }
    let open = eventually("a signal", || {
        let rows = read("signals_list", r#"{"state":"open","kind":"refusal_spike"}"#);
        rows.as_array().and_then(|rows| rows.first().cloned())
    });
    assert_eq!((&open["subject"], &open["severity"]), (&json!("client:local"), &json!("warning")), "{open}");
    assert_eq!(open["evidence"].as_array().unwrap().len(), 10);
    let id = open["signal_id"].as_str().unwrap().to_owned();
    let said = program
        .call(
            "portcullis_signals_acknowledge",
            &json!({"signal_id": id, "note": "a broken client"}).to_string(),
        )
        .json();
    assert_eq!(
        (&said["data"]["state"], &said["data"]["note"]),
        (&json!("acknowledged"), &json!("a broken client")),
        "{said}"
    );
    let again = program.call("portcullis_signals_acknowledge", &json!({"signal_id": id}).to_string()).json();
    assert_eq!(again["domain_code"], "conflict", "{again}");
    assert_eq!(read("signals_list", r#"{"state":"open"}"#), json!([]));

    home.json(&["mcp", "halt", "spy", "--reason", "for a test"]);
    let unread = read("notifications_list", r#"{"unread":true}"#);
    let halted =
        unread.as_array().unwrap().iter().find(|row| row["event"] == "server.halted").unwrap().clone();
    let ack = json!({"notification_id": halted["notification_id"]}).to_string();
    assert_eq!(program.call("portcullis_notifications_ack", &ack).json()["data"]["unread"], false);
    daemon.stop();

    // What was found and said is a matter of the log: a restart changes nothing.
    let daemon = home.serve();
    let program = Program::new_named(&home, &daemon, "again");
    let rows = program.call("portcullis_signals_list", "{}").json();
    assert_eq!(rows["data"][0]["state"], "acknowledged", "{rows}");
    let unread = program.call("portcullis_notifications_list", r#"{"unread":true}"#).json();
    assert!(
        unread["data"]
            .as_array()
            .unwrap()
            .iter()
            .all(|row| row["notification_id"] != halted["notification_id"])
    );
    daemon.stop();
    home.verify();
}

#[test]
fn scores_and_reports_are_made_of_what_the_log_says() {
    // admin §12: quality, reports_generate
    let home = crate::support::open_home();
    let spy = Spy::new(&home);
    spy.register(&home);
    let daemon = home.serve();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| daemon.call("spy__echo", &json!({"text": "x"})));
        home.grant_next("until-version-change");
        call.join().unwrap();
    });
    for _ in 0..10 {
        daemon.call("spy__echo", &json!({"text": "x"})).unwrap();
    }
    let program = Program::new(&home, &daemon);
    let scores = program.call("portcullis_quality_list_scores", r#"{"tool":"spy/echo"}"#).json();
    assert_eq!(
        (&scores["data"][0]["calls"], &scores["data"][0]["terms"]["success"]),
        (&json!(11), &json!(40)),
        "{scores}"
    );
    let summary = program.call("portcullis_quality_summary", "{}").json();
    assert_eq!(summary["data"]["scored"], 1, "{summary}");
    let report =
        program.call("portcullis_reports_generate", r#"{"report_type":"usage","format":"csv"}"#).json();
    let id = report["data"]["export_id"].as_str().unwrap();
    let fetched = program.get(&format!("/api/exports/{id}"));
    assert_eq!(fetched.status, 200);
    assert!(fetched.body.contains("spy/echo"), "{}", fetched.body);
    assert_eq!(report["data"]["bytes"], fetched.body.len());
    assert_eq!(program.get("/api/exports/exp_..%2F..%2Fportcullis.toml").status, 404);
    daemon.stop();
    home.verify();
}
