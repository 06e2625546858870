//! Artifacts in a bucket of a real S3-compatible server: found by every gateway that shares it, readable by none without
//! the key, and never in the way of a call.

use std::borrow::Cow;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use portcullis_context::artifacts::bucket::{BucketCredentials, BucketOptions};
use portcullis_context::{
    Artifacts, Handle, Limits, NewArtifact, NotThere, Origin, Owner, Selector, Sensitivity, Source,
    view_artifact,
};
use portcullis_core::clock::ManualClock;
use portcullis_core::{Clock as _, ProposalId, Secret, SessionId, Timestamp};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::support::{Home, Operator, Spy};
use crate::third_party::installed;

/// A server with one bucket, `kept`. Ended when dropped.
struct Buckets {
    server: Child,
    url: String,
}

/// Runs the server with a clock that is so many hours behind.
const SERVER: &str = "import sys, datetime, moto.core.utils as utils
now, behind = utils.utcnow, datetime.timedelta(hours=int(sys.argv[1]))
utils.utcnow = lambda: now() - behind
import moto.server
moto.server.main(['-H', '127.0.0.1', '-p', '0'])
";

impl Buckets {
    fn start() -> Self {
        Self::of_a_server_behind(0)
    }

    fn of_a_server_behind(hours: u32) -> Self {
        let mut server = Command::new(installed("PORTCULLIS_PYTHON"))
            .args(["-u", "-c", SERVER, &hours.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(server.stderr.take().unwrap()).lines();
        let running = said.find_map(|line| Some(line.unwrap().split_once("Running on ")?.1.to_owned()));
        let url = running.expect("the server says where it listens").trim().to_owned();
        // Whatever else it says is read, so that it never waits for a reader.
        std::thread::spawn(move || said.for_each(drop));
        let made = asked("PUT", &format!("{url}/kept"));
        assert!(made.starts_with("HTTP/1.1 200"), "{made}");
        Self { server, url }
    }

    /// How many objects lie there.
    fn objects(&self) -> usize {
        asked("GET", &format!("{}/kept?list-type=2", self.url)).matches("<Key>").count()
    }

    fn options(&self) -> BucketOptions {
        let credentials = BucketCredentials {
            access_key_id: "portcullis".into(),
            secret_access_key: Secret::new("not a secret here".into()),
            session_token: None,
        };
        BucketOptions {
            endpoint: self.url.clone(),
            region: "us-east-1".into(),
            bucket: "kept".into(),
            prefix: "team/a".into(),
            credentials: Arc::new(credentials),
        }
    }

    fn store(&self, key: u8, limits: Limits, clock: &Arc<ManualClock>) -> Artifacts {
        Artifacts::open_in_bucket(&self.options(), &Secret::new([key; 32]), limits, clock.clone()).unwrap()
    }

    fn config(&self, home: &Home) -> String {
        let file = home.beside("bucket");
        fs::write(
            &file,
            "[default]\naws_access_key_id = portcullis\naws_secret_access_key = a-canary-4410\n",
        )
        .unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        format!(
            "[policy]\npreset = \"observe\"\n[firewall]\npassthrough = true\n[artifacts]\nbackend = \"s3\"\n[artifacts.s3]\n\
             endpoint = \"{}\"\nbucket = \"kept\"\ncredentials_file = \"{}\"\n",
            self.url,
            file.display()
        )
    }
}

impl Drop for Buckets {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A request without a body, by hand: making a bucket and looking into it need no signature there.
fn asked(method: &str, url: &str) -> String {
    use std::io::{Read as _, Write as _};
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = std::net::TcpStream::connect(host).unwrap();
    write!(
        stream,
        "{method} /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn owner(name: &str) -> Owner {
    let principal = format!("agent:{name}").parse().unwrap();
    Owner { principal, session: SessionId::new(Timestamp::from_millis(1_800_000_000_000)) }
}

fn keep(store: &Artifacts, owner: &Owner, clock: &ManualClock, bytes: &[u8]) -> Handle {
    let origin = Origin {
        call_id: ProposalId::new(clock.now()),
        tool_identity: "notes/read@1#1:aa".into(),
        sensitivity: Sensitivity::Public,
        redacted: false,
    };
    let new = NewArtifact {
        bytes: Cow::Borrowed(bytes),
        media_type: "text/plain".into(),
        declared_type: None,
        label: String::new(),
        part_index: Some(0),
        source: Source::Text,
    };
    store.keep(owner, &origin, &new).unwrap().handle
}

fn tail(store: &Artifacts, handle: Handle, owner: &Owner) -> Result<String, NotThere> {
    let opened = store.open(handle, owner)?;
    let selector = Selector::read(&json!({"type": "tail", "chars": 8})).unwrap();
    match view_artifact(&opened, &selector, 16_384).unwrap().slice {
        portcullis_context::view::Slice::Text(text) | portcullis_context::view::Slice::Part(text) => Ok(text),
    }
}

#[test]
fn what_one_replica_keeps_the_others_can_show_and_nobody_else() {
    // CTX-25, T-CTX-28
    let buckets = Buckets::start();
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
    let [one, two] = [(); 2].map(|()| buckets.store(7, Limits::default(), &clock));
    let (ann, bob) = (owner("ann"), owner("bob"));
    // Longer than one part.
    let mut long = vec![b'x'; 12 << 20];
    long.extend_from_slice(b"\nthe end");
    let handle = keep(&one, &ann, &clock, &long);
    assert_eq!(tail(&two, handle, &ann).unwrap(), "\nthe end");
    assert_eq!(tail(&one, handle, &ann).unwrap(), "\nthe end");
    assert_eq!(two.find(handle, &bob).unwrap_err(), NotThere::Unknown);
    let elsewhere = Owner { session: SessionId::new(Timestamp::from_millis(5)), ..ann.clone() };
    assert_eq!(two.find(handle, &elsewhere).unwrap_err(), NotThere::Unknown);
    let stranger = buckets.store(8, Limits::default(), &clock);
    assert_eq!(stranger.find(handle, &ann).unwrap_err(), NotThere::Unknown);
    assert_eq!(two.find(Handle::random(), &ann).unwrap_err(), NotThere::Unknown);

    // The same content again, of somebody else at the other replica: it outlives the first.
    let again = keep(&two, &bob, &clock, &long);
    one.session_ended(ann.session);
    clock.advance(std::time::Duration::from_secs(301));
    one.sweep();
    assert_eq!(one.find(handle, &ann).unwrap_err(), NotThere::Expired);
    let later = buckets.store(7, Limits::default(), &clock);
    assert_eq!(later.find(handle, &ann).unwrap_err(), NotThere::Unknown, "its record went with it");
    assert_eq!(tail(&later, again, &bob).unwrap(), "\nthe end");
    // Time goes by for what lies there too.
    clock.advance(std::time::Duration::from_secs(3_600));
    let late = buckets.store(7, Limits::default(), &clock);
    assert_eq!(late.find(again, &bob).unwrap_err(), NotThere::Expired);
    // An operator has one removed: it is gone everywhere.
    let fresh = keep(&one, &ann, &clock, b"forget me");
    assert!(one.remove(fresh));
    assert_eq!(two.find(fresh, &ann).unwrap_err(), NotThere::Unknown);
}

#[test]
fn what_is_older_than_anything_can_live_goes_whoever_kept_it() {
    // CTX-23, CTX-25: in a bucket nobody knows who else points to an object
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
    for (hours, left) in [(26, 0), (24, 2)] {
        let buckets = Buckets::of_a_server_behind(hours);
        let gone = buckets.store(7, Limits::default(), &clock);
        keep(&gone, &owner("ann"), &clock, b"of a replica that crashed");
        drop(gone);
        assert_eq!(buckets.objects(), 2, "a record and what it is about");
        buckets.store(7, Limits::default(), &clock).sweep();
        assert_eq!(buckets.objects(), left, "after {hours} hours");
    }
}

#[test]
fn a_gateway_keeps_results_in_a_bucket_and_answers_without_it() {
    // CTX-24, CTX-25
    let buckets = Buckets::start();
    let home = Home::new("");
    fs::write(home.path().join("portcullis.toml"), buckets.config(&home)).unwrap();
    let spy = Spy::new(&home);
    spy.register(&home);
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2026-07-28");
    let text: String = (0..5_000).map(|n| format!("line {n}\n")).collect();
    spy.control(&json!({"result": {"pid": {"content": [{"type": "text", "text": text}]}}}));
    let said = envelope(&agent.call("spy__pid", json!({})));
    let handle = said["artifacts"][0]["handle"].clone();
    let selector = json!({"type": "lines", "start": 4_000, "end": 4_002});
    let viewed = agent.call("tool_view", json!({"handle": handle, "selector": selector}));
    assert_eq!(viewed["result"]["content"][0]["text"], "line 4000\nline 4001\n", "{viewed}");
    assert!(!home.path().join("artifacts/blobs").exists(), "nothing lies here");
    // Between two gateways the log is nobody's.
    drop(operator);
    daemon.stop();

    // After a restart an operator still finds it there.
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let seen = home.json(&[
        "artifact",
        "view",
        handle.as_str().unwrap(),
        "--select",
        r#"{"type":"tail","chars":10}"#,
    ]);
    assert_eq!(seen["slice"], "line 4999\n");
    // Without the bucket a call is answered all the same, with as much as fits.
    drop(buckets);
    let agent = Agent::open(&daemon, "2026-07-28");
    let said = envelope(&agent.call("spy__pid", json!({})));
    assert_eq!(said["status"], "partial", "{said}");
    assert!(said["summary"].as_str().unwrap().starts_with("line 0\n"), "{said}");
    drop(operator);
    daemon.stop();
    home.verify();
}

fn envelope(response: &Value) -> Value {
    let content = response["result"]["content"].as_array().unwrap_or_else(|| panic!("{response}"));
    serde_json::from_str(content.last().unwrap()["text"].as_str().unwrap()).unwrap()
}

#[test]
fn a_bucket_that_cannot_be_meant_is_refused_before_anything_starts() {
    // CTX-25
    let home = Home::new("");
    let refused = |config: &str| {
        fs::write(home.path().join("portcullis.toml"), config).unwrap();
        let (exit, error) = home.fails(&["mcp", "list"]);
        assert_eq!(exit, 7, "{config}: {error}");
        error["message"].as_str().unwrap().to_owned()
    };
    assert!(refused("[artifacts]\nbackend = \"s3\"\n").contains("go together"));
    assert!(
        refused("[artifacts.s3]\nendpoint = \"https://s3.example\"\nbucket = \"b\"\n")
            .contains("go together")
    );
    let bucket = |lines: &str| format!("[artifacts]\nbackend = \"s3\"\n[artifacts.s3]\n{lines}\n");
    let remote = bucket("endpoint = \"http://s3.example\"\nbucket = \"b\"");
    assert!(refused(&remote).contains("must be https"));
    let user = bucket("endpoint = \"https://me:canary-771@s3.example\"\nbucket = \"b\"");
    assert!(!refused(&user).contains("canary-771"));
    let name = bucket("endpoint = \"https://s3.example\"\nbucket = \"a b\"");
    assert!(refused(&name).contains("no name of a bucket"));
    let nobody = bucket("endpoint = \"https://s3.example\"\nbucket = \"b\"");
    assert!(refused(&nobody).contains("AWS_ACCESS_KEY_ID"));
    let file = home.beside("credentials");
    fs::write(&file, "aws_access_key_id = a\naws_secret_access_key = canary-772\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let open = bucket(&format!(
        "endpoint = \"https://s3.example\"\nbucket = \"b\"\ncredentials_file = \"{}\"",
        file.display()
    ));
    let message = refused(&open);
    assert!(message.contains("chmod 600") && !message.contains("canary-772"), "{message}");
    let replicas = "[state]\npostgres = \"postgres://db.example/x\"\n";
    assert!(refused(replicas).contains("artifacts.allow_local"));
}
