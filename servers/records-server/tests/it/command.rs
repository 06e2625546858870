//! The program itself: every flag of its command line, and what it leaves in its database.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use sqlx::{Connection as _, Row as _};

use crate::client::ask;

const PROGRAM: &str = env!("CARGO_BIN_EXE_records-server");

/// A running server, and what it said when it was ready.
struct Started {
    child: Child,
    ready: Value,
}

impl Started {
    /// Started with nothing but these arguments; the ready line comes from standard output.
    fn plainly(args: &[&str]) -> Self {
        Self::from(Command::new(PROGRAM).args(args))
    }

    fn from(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"));
        Self { child, ready }
    }

    fn url(&self, of: &str) -> &str {
        self.ready[of].as_str().unwrap()
    }

    async fn get(&self, path: &str) -> Value {
        let token = self.ready["tokens"]["client"].as_str();
        ask(self.url("rs"), "GET", path, token, &Value::Null).await.body
    }

    async fn count(&self) -> Value {
        self.get("/v1/streams/messages/aggregate?metric=count").await["value"].clone()
    }

    async fn ingest(&self, id: &str) {
        let data = json!({"id": id, "subject": "One more", "received_at": "2026-07-01T00:00:00.000Z"});
        let row = json!({"connection_id": "cin_gmail_work", "stream": "messages", "data": data});
        let reply = ask(self.url("admin"), "POST", "/ingest", None, &row).await;
        assert_eq!(reply.body["ingested"], 1, "{}", reply.text);
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a server says that does not start.
fn refused(args: &[&str]) -> String {
    let output = Command::new(PROGRAM).args(args).stdin(Stdio::null()).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test]
async fn the_ready_line_goes_where_it_is_wanted() {
    // REC-90
    let folder = tempfile::tempdir().unwrap();
    // Standard output is closed to everything but what comes through the descriptor.
    let through_fd =
        Started::from(Command::new("sh").args(["-c", "exec \"$0\" --ready-fd 3 3>&1 >/dev/null", PROGRAM]));
    let file = folder.path().join("ready.json");
    let mut to_file = Command::new(PROGRAM);
    to_file.arg("--ready-file").arg(&file).stdout(Stdio::null());
    let mut child = to_file.spawn().unwrap();
    let text = loop {
        assert!(child.try_wait().unwrap().is_none(), "the server ended");
        match std::fs::read_to_string(&file) {
            Ok(text) => break text,
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
        }
    };
    let in_file = Started { child, ready: serde_json::from_str(&text).unwrap() };
    for started in [&through_fd, &in_file, &Started::plainly(&[])] {
        assert_eq!(started.count().await, 70);
        let log = ask(started.url("admin"), "GET", "/log", None, &Value::Null).await.body;
        assert_eq!(log[0]["token_label"], "client", "{log}");
        let tokens = started.ready["tokens"].as_object().unwrap();
        assert_eq!(tokens.keys().collect::<Vec<_>>(), ["client", "narrow", "owner"]);
    }
    assert!(refused(&["--ready-fd", "77"]).contains("--ready-fd 77"));
}

#[tokio::test]
async fn every_flag_has_its_effect() {
    // REC-90, REC-92, REC-95
    let shaped = |shape: &'static str| async move {
        Started::plainly(&["--schema-shape", shape]).get("/v1/schema?view=compact").await
    };
    assert!(shaped("nested").await["connectors"][0]["streams"].is_array());
    assert!(shaped("flat").await["streams"].is_array());
    assert!(shaped("wrapped").await["data"]["streams"].is_array());
    assert!(shaped("wrapped-nested").await["data"]["connectors"].is_array());

    let expand = "/v1/streams/messages/records?limit=1&expand=attachments&connection_id=cin_gmail_work";
    let old = Started::plainly(&["--profile", "v01"]).get(expand).await;
    assert_eq!(old["error"]["param"], "expand", "{old}");
    let rich = Started::plainly(&["--profile", "rich"]).get(expand).await;
    assert!(rich["data"][0]["expanded"].is_object(), "{rich}");

    let tokens = |args: &[&str]| Started::plainly(args).ready["tokens"].clone();
    assert_eq!(tokens(&["--deterministic"]), tokens(&["--deterministic"]));
    assert_ne!(tokens(&[]), tokens(&[]));

    // Nothing in it, and yet its tokens are good for what comes.
    let empty = Started::plainly(&["--seed", "none"]);
    assert_eq!(empty.count().await, 0);
    empty.ingest("m1").await;
    assert_eq!(empty.count().await, 1);

    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (listen, admin) = (port.to_string(), "127.0.0.1:0");
    let there = Started::plainly(&["--listen", &listen, "--admin-listen", admin]);
    assert_eq!(there.url("rs"), format!("http://{listen}"));
    assert!(refused(&["--admin-listen", "0.0.0.0:0"]).contains("loopback only"));
    assert!(refused(&["--profile", "poor"]).contains("v01 or rich"));
}

#[tokio::test]
async fn what_is_in_the_database_outlives_the_program_and_no_token_is_in_it() {
    // REC-91
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("records.db");
    let args = ["--db", db.to_str().unwrap()];
    let first = Started::plainly(&args);
    first.ingest("m99").await;
    let before = first.ready["tokens"].clone();
    drop(first);
    let second = Started::plainly(&args);
    assert_eq!(second.count().await, 71);
    // Tokens are of one run.
    let old =
        ask(second.url("rs"), "GET", "/v1/schema?view=compact", before["client"].as_str(), &Value::Null);
    assert_eq!(old.await.status, 401);
    let now = second.ready["tokens"].clone();
    drop(second);

    let mut open = sqlx::SqliteConnection::connect(&format!("sqlite://{}", db.display())).await.unwrap();
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'record_fts_%' ORDER BY name";
    let tables: Vec<String> =
        sqlx::query(sql).fetch_all(&mut open).await.unwrap().iter().map(|row| row.get(0)).collect();
    let wanted = [
        "connections",
        "event_queue",
        "grants",
        "record_fts",
        "records",
        "request_log",
        "stream_caps",
        "streams",
        "subscriptions",
        "tokens",
    ];
    assert_eq!(tables, wanted);
    let columns: Vec<String> = sqlx::query("SELECT name FROM pragma_table_info('records')")
        .fetch_all(&mut open)
        .await
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    let wanted = ["connection_id", "stream", "id", "cursor_value", "emitted_at", "version", "data_json"];
    assert_eq!(columns, wanted);
    let found = sqlx::query("SELECT text FROM record_fts WHERE record_fts MATCH 'overdue' LIMIT 1");
    assert_eq!(found.fetch_all(&mut open).await.unwrap().len(), 1);
    open.close().await.unwrap();
    assert_holds_none(folder.path(), &[before, now]);
}

/// None of these tokens is in any file of the folder.
fn assert_holds_none(folder: &Path, tokens: &[Value]) {
    let tokens: Vec<&str> =
        tokens.iter().flat_map(|of| of.as_object().unwrap().values()).filter_map(Value::as_str).collect();
    assert_eq!(tokens.len(), 6);
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let bytes = std::fs::read(entry.path()).unwrap();
        for token in &tokens {
            let found = bytes.windows(token.len()).any(|part| part == token.as_bytes());
            assert!(!found, "{} holds a token", entry.path().display());
        }
    }
}
