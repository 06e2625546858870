//! Credentials: lent to permitted calls, put in on the last hop, and found nowhere else (SBX §8).

mod backends;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::evil::{Declared, Evil, ask, outcome, secret};
use crate::support::{Daemon, Home, eventually, program};

/// What must be nowhere.
pub(crate) const CANARY: &str = "canary-5f1d9c7e/not+to=be.seen";

/// A host that speaks TLS, writes down what it is asked, and says it back.
struct Host {
    port: u16,
    /// The same host in the clear.
    plain: u16,
    authority: String,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Host {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let names = vec!["api.example".to_owned(), "other.example".to_owned()];
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&heard);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), config, log) = (stream, Arc::clone(&config), Arc::clone(&log)) else {
                    return;
                };
                std::thread::spawn(move || {
                    let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
                    let mut request = String::new();
                    let mut reader = BufReader::new(&mut stream);
                    while reader.read_line(&mut request).is_ok_and(|read| read > 2) {}
                    log.lock().unwrap().push(request.clone());
                    // What comes last comes in a piece of its own; nothing of interest is in it.
                    let filling = "x".repeat(1000);
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-Echo: {}\r\n\r\n{request}{filling}",
                        request.len() + filling.len(),
                        request
                            .lines()
                            .find_map(|line| line.strip_prefix("authorization: "))
                            .unwrap_or("none"),
                    );
                    let _ = stream.write_all(answer.as_bytes());
                    stream.conn.send_close_notify();
                    let _ = stream.flush();
                });
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let plain = listener.local_addr().unwrap().port();
        let log = Arc::clone(&heard);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut request = String::new();
                let mut reader = BufReader::new(&stream);
                while reader.read_line(&mut request).is_ok_and(|read| read > 2) {}
                log.lock().unwrap().push(request);
                let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
            }
        });
        Self { port, plain, authority: issuer.pem(), heard }
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

/// A gateway whose evil server may talk to two hosts, and has a placeholder for one. One process for both tools: the one without
/// a credential has the other's placeholder at hand.
fn scene(host: &Host) -> (Home, Evil) {
    scene_with(host, "shared")
}

fn scene_with(host: &Host, model: &str) -> (Home, Evil) {
    let home = Home::new(
        "[sandbox.hosts]\n\"api.example\" = [\"127.0.0.1\"]\n\"other.example\" = [\"127.0.0.1\"]\n[upstream]\nca_file = \"ca.pem\"\n[redaction]\nenabled = false\nwaiver = \"placeholders are looked at\"\n",
    );
    fs::write(home.path().join("ca.pem"), &host.authority).unwrap();
    let evil = Evil::new(&home);
    let scopes = format!(
        "\n  api: {{ kind: egress, host: api.example, port: {}, tls: required, addrs: [127.0.0.1] }}\n  other: {{ kind: egress, \
         host: other.example, port: {}, tls: none, addrs: [127.0.0.1] }}\n  token: {{ kind: secret, credential_class: issues.read, \
         via: proxy, name: API_TOKEN, toward: api, format: \"ghp_{{36}}\", in: [header, query] }}",
        host.port, host.plain,
    );
    let declared = Declared {
        scopes: &scopes,
        act: "side_effects: [network, secret_access], unbound: true, scopes: [api, other, token], credentials: [issues.read]",
        other: "side_effects: [network], unbound: true, scopes: [api, other], credentials: []",
    };
    evil.register(&home, &declared, &["--process-model", model]);
    (home, evil)
}

fn bearer(host: &Host, name: &str) -> Vec<String> {
    ["https", &format!("{name}:{}", host.port), "/x", "Authorization: Bearer $API_TOKEN"]
        .map(str::to_owned)
        .to_vec()
}

fn strs(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

#[test]
fn the_host_gets_the_credential_and_the_process_a_placeholder() {
    // SBX-51, SBX-52, S-CRD-1, S-CRD-3, S-CRD-4
    let host = Host::new();
    let (home, evil) = scene(&host);
    secret(&home, "set github --class issues.read", CANARY);
    let daemon = home.serve();
    let answer = outcome(&ask(&daemon, &home, "evil__act", &strs(&bearer(&host, "api.example"))));
    let seen = answer["seen"].as_str().unwrap();
    assert!(host.heard()[0].contains(&format!("authorization: Bearer {CANARY}")), "{:?}", host.heard());
    // The host said it back, in a header and in the body; what came in is the placeholder.
    assert!(seen.starts_with("HTTP/1.1 200") && seen.matches("Bearer ghp_").count() == 2, "{seen}");
    assert!(!seen.contains(CANARY), "{seen}");

    // As `user:token` in Basic, and in the query, where characters are encoded.
    let placeholder = outcome(&ask(&daemon, &home, "evil__act", &["variable", "API_TOKEN"]))["seen"].clone();
    let placeholder = placeholder.as_str().unwrap();
    assert!(placeholder.starts_with("ghp_") && placeholder.len() == 40, "{placeholder}");
    let basic = format!("Authorization: Basic {}", STANDARD.encode(format!("me:{placeholder}")));
    let api = format!("api.example:{}", host.port);
    ask(&daemon, &home, "evil__act", &["https", &api, "/?token=$API_TOKEN", &basic]);
    let heard = host.heard().pop().unwrap();
    assert!(heard.contains(&STANDARD.encode(format!("me:{CANARY}"))), "{heard}");
    assert!(heard.contains("token=canary-5f1d9c7e%2Fnot%2Bto%3Dbe.seen"), "{heard}");

    // S-CRD-2: to another declared host it is a string that means nothing.
    let other = format!("other.example:{}", host.plain);
    ask(&daemon, &home, "evil__act", &["http", &other, "/", "Authorization: Bearer $API_TOKEN"]);
    let heard = host.heard().pop().unwrap();
    assert!(heard.contains(&format!("Bearer {placeholder}")), "{heard}");

    // S-CRD-1: nothing that the process can see, nor anything in its memory, has the value.
    let seen = outcome(&ask(&daemon, &home, "evil__act", &["everything"]));
    assert!(
        seen["seen"].as_str().unwrap().contains(placeholder) && !seen.to_string().contains("canary-"),
        "{seen}"
    );
    let processes = evil.processes();
    assert!(!processes.is_empty());
    for pid in processes {
        assert!(!memory_has(pid, CANARY.as_bytes()), "in the memory of {pid}");
    }
    let environ = fs::read(format!("/proc/{}/environ", daemon.child.id())).unwrap();
    assert!(!String::from_utf8_lossy(&environ).contains("canary-"));
    daemon.stop();

    // On record by handle and class, each lease released (SBX-52).
    let leased = home.events("credential.leased");
    assert_eq!((leased.len(), home.events("credential.released").len()), (5, 5));
    let intents = home.events("execution.intent");
    assert_eq!(leased[0]["data"]["permit_id"], intents[0]["data"]["permit_id"]);
    assert_eq!(leased[0]["data"]["class"], "issues.read");
    nowhere(&home);
    home.verify();
}

#[test]
fn a_placeholder_without_a_lease_ends_the_process() {
    // SBX-53, S-CRD-2, MP-FH-008: the other tool may reach the host, but has no credential.
    let host = Host::new();
    let (home, evil) = scene(&host);
    secret(&home, "set github --class issues.read", CANARY);
    let daemon = home.serve();
    let plain = format!("api.example:{}", host.port);
    let answer = outcome(&ask(&daemon, &home, "evil__other", &["https", &plain, "/plain"]));
    assert!(answer["seen"].as_str().unwrap().starts_with("HTTP/1.1 200"), "{answer}");
    let answer = ask(&daemon, &home, "evil__other", &strs(&bearer(&host, "api.example")));
    assert_eq!(answer["error"]["data"]["details"]["code"], "MP-FH-008", "{answer}");
    eventually("the halt", || (home.json(&["mcp", "list"])[0]["state"] == "halted").then_some(()));
    eventually("its end", || evil.processes().is_empty().then_some(()));
    daemon.stop();
    assert_eq!(host.heard().len(), 1, "only the honest request arrived");
    let denied = home.events("sandbox.egress_denied");
    assert!(denied.iter().any(|event| event["data"]["kind"] == "placeholder_without_permit"), "{denied:?}");
    assert_eq!(home.events("trust.violation").len(), 1, "trust is reset");
    assert!(home.events("credential.leased").is_empty());
    nowhere(&home);
}

#[test]
fn a_placeholder_that_is_used_after_the_call_ends_the_process() {
    // SBX-53, S-CRD-2, S-NET-5: a lasting process, chosen by the operator, with a thread that goes on.
    let host = Host::new();
    let (home, evil) = scene_with(&host, "per_profile");
    secret(&home, "set github --class issues.read", CANARY);
    let daemon = home.serve();
    let request = bearer(&host, "api.example");
    let later = [&["later", "500"][..], &strs(&request)].concat();
    assert_eq!(outcome(&ask(&daemon, &home, "evil__act", &later))["worked"], true);
    eventually("the halt", || (home.json(&["mcp", "list"])[0]["state"] == "halted").then_some(()));
    eventually("its end", || evil.processes().is_empty().then_some(()));
    daemon.stop();
    assert!(host.heard().iter().all(|request| !request.contains(CANARY)), "{:?}", host.heard());
    let denied = home.events("sandbox.egress_denied");
    assert!(denied.iter().any(|event| event["data"]["kind"] == "placeholder_without_permit"), "{denied:?}");
    assert_eq!(home.events("execution.intent")[0]["data"]["process_model"], "per_profile");
    nowhere(&home);
}

#[test]
fn calls_with_a_placeholder_take_turns_and_each_has_its_own_lease() {
    // S-CRD-5
    let host = Host::new();
    let (home, _evil) = scene(&host);
    secret(&home, "set github --class issues.read", CANARY);
    let daemon = home.serve();
    let _operator = crate::support::Operator::on_duty(&home);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (daemon, host) = (&daemon, &host);
            scope.spawn(move || {
                let mut act = bearer(host, "api.example");
                act[2] = format!("/{number}");
                let answer = daemon.call("evil__act", &json!({"do": act})).unwrap();
                assert!(outcome(&answer)["seen"].as_str().unwrap().starts_with("HTTP/1.1 200"), "{answer}");
            });
        }
    });
    daemon.stop();
    let order: Vec<String> = (home.log().iter())
        .filter_map(|record| record["event"].as_str().filter(|name| name.starts_with("credential.")))
        .filter(|name| *name != "credential.stored")
        .map(str::to_owned)
        .collect();
    assert_eq!(order.len(), 8, "{order:?}");
    for pair in order.chunks(2) {
        assert_eq!(pair, ["credential.leased", "credential.released"], "{order:?}");
    }
    assert!(host.heard().iter().all(|request| request.contains(CANARY)));
}

#[test]
fn without_a_stored_credential_nothing_leaves_and_the_operator_learns_what_to_do() {
    let host = Host::new();
    let (home, _evil) = scene(&host);
    let daemon = home.serve();
    let answer = ask(&daemon, &home, "evil__act", &strs(&bearer(&host, "api.example")));
    assert!(answer["error"]["message"].as_str().unwrap().contains("portcullis secret set"), "{answer}");
    daemon.stop();
    assert!(host.heard().is_empty());
    assert_eq!(home.events("credential.denied")[0]["data"]["class"], "issues.read");
}

/// A spy behind a URL.
struct HttpSpy {
    child: Child,
    address: String,
    log: PathBuf,
}

impl HttpSpy {
    fn start(home: &Home) -> Self {
        let log = home.beside("http-spy.log");
        let mut child = Command::new(program("spyd"))
            .args(["--log", log.to_str().unwrap(), "--http", "0", "--end-with-stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, address: line.trim().strip_prefix("listening on ").unwrap().to_owned(), log }
    }

    fn called(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.log).unwrap();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["method"] == "tools/call").collect()
    }
}

impl Drop for HttpSpy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn with_header(home: &Home) -> (HttpSpy, Daemon) {
    let spy = HttpSpy::start(home);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../servers/spyd/spyd.yaml");
    let token = "scopes:\n  token: { kind: secret, credential_class: issues.read, via: header, name: Authorization, \
                 format: \"Bearer {secret}\" }\n";
    let text = fs::read_to_string(source).unwrap().replace("@WS@", home.beside("ws").to_str().unwrap());
    let text = text.replacen("scopes:\n", token, 1).replacen(
        "side_effects: []\n    scopes: []\n    credentials: []",
        "side_effects: [secret_access]\n    scopes: [token]\n    credentials: [issues.read]",
        1,
    );
    let file = home.beside("http-spy.yaml");
    fs::write(&file, text).unwrap();
    home.json(&[
        "mcp",
        "add",
        "spy",
        "--transport",
        "http",
        "--url",
        &spy.address,
        "--server-version",
        "1.0.0",
        "--justification",
        "to be watched",
        "--deployment-mode",
        "local",
        "--waive-isolation",
        "a test",
        "--yes",
        "--capability-declaration",
        file.to_str().unwrap(),
    ]);
    (spy, home.serve())
}

#[test]
fn a_server_behind_a_url_gets_the_credential_in_a_header_of_that_one_request() {
    // SBX-52, SBX-54, S-CRD-3, S-CRD-4
    let home = Home::new("");
    secret(&home, "set github --class issues.read", CANARY);
    let (spy, daemon) = with_header(&home);
    let answer = daemon.approved_call(&home, "spy__echo", &json!({"text": "x"})).unwrap();
    assert_eq!(answer["result"]["structuredContent"]["text"], "x", "{answer}");
    assert_eq!(spy.called()[0]["headers"]["authorization"], format!("Bearer {CANARY}"));
    daemon.approved_call(&home, "spy__add", &json!({"a": 1, "b": 2})).unwrap();
    assert!(spy.called()[1]["headers"].get("authorization").is_none(), "that tool needs none");

    // A changed value counts from the next call on.
    let rotated = "canary-rotated-value-2";
    secret(&home, "rotate github", rotated);
    daemon.approved_call(&home, "spy__echo", &json!({"text": "y"})).unwrap();
    assert_eq!(spy.called()[2]["headers"]["authorization"], format!("Bearer {rotated}"));

    // A server that gives the value back, however written, is not believed any more.
    let echoed = STANDARD.encode(format!("Bearer {rotated}"));
    let answer = daemon.approved_call(&home, "spy__echo", &json!({"text": echoed})).unwrap();
    assert_eq!(answer["error"]["data"]["details"]["code"], "MP-FH-008", "{answer}");
    eventually("the halt", || (home.json(&["mcp", "list"])[0]["state"] == "halted").then_some(()));
    daemon.stop();
    let withheld = home.events("execution.withheld");
    assert_eq!(withheld[0]["data"]["kind"], "secret_echo", "{withheld:?}");
    let result = home.events("execution.result").pop().unwrap();
    let seq = result["seq"].to_string();
    let shown = home.json(&["audit", "show", &seq, "--evidence", "--reason", "test"]);
    let text = shown["evidence"].to_string();
    assert!(text.contains("[credential:issues.read]") && !text.contains(&echoed), "{text}");
    nowhere(&home);
    home.verify();
}

#[test]
fn credentials_are_listed_and_removed_but_never_shown() {
    // SBX-56
    let home = Home::new("");
    secret(&home, "set github --class issues.read", CANARY);
    let listed = home.json(&["secret", "list"]);
    assert_eq!(
        listed[0],
        json!({"name": "github", "class": "issues.read", "kind": "static", "version": 1, "bound_servers": [], "age_days": 0})
    );
    let (exit, error) = home.fails(&["secret", "set", "other", "--class", "issues.read"]);
    assert_eq!((exit, error["field"].as_str()), (7, Some("fd")), "{error}");
    let help = home.run(&["secret", "set", "--help"]);
    assert!(!String::from_utf8_lossy(&help.stdout).contains("--value"));
    home.json(&["secret", "rm", "github", "--reason", "test"]);
    assert_eq!(home.json(&["secret", "list"]), json!([]));
    assert!(home.run(&["secret", "rotate", "github", "--fd", "0"]).status.code() != Some(0));
    nowhere(&home);
}

/// No file of the gateway's has the value in it, sealed evidence opened included.
pub(crate) fn nowhere(home: &Home) {
    let needles = ["canary-5f1d9c7e", "canary-rotated"];
    let mut folders = vec![home.path()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(mut file) = fs::File::open(&path) {
                let mut bytes = Vec::new();
                let _ = file.read_to_end(&mut bytes);
                let text = String::from_utf8_lossy(&bytes);
                assert!(needles.iter().all(|needle| !text.contains(needle)), "{}", path.display());
            }
        }
    }
    for record in home.log() {
        if record["evidence"].as_array().is_some_and(|evidence| !evidence.is_empty()) {
            let seq = record["seq"].to_string();
            let shown = home.json(&["audit", "show", &seq, "--evidence", "--reason", "test"]).to_string();
            assert!(needles.iter().all(|needle| !shown.contains(needle)), "{seq}: {shown}");
        }
    }
}

/// Whether a process has these bytes anywhere in its memory.
pub(crate) fn memory_has(pid: u32, needle: &[u8]) -> bool {
    use std::os::unix::fs::FileExt as _;
    let Ok(memory) = fs::File::open(format!("/proc/{pid}/mem")) else { panic!("its memory cannot be read") };
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    maps.lines().any(|line| {
        let range = line.split_whitespace().next().and_then(|range| range.split_once('-'));
        let Some((from, to)) = range else { return false };
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap_or_default();
        let (from, to) = (number(from), number(to));
        let mut bytes = vec![0; usize::try_from(to - from).unwrap_or(0).min(64 << 20)];
        let read = memory.read_at(&mut bytes, from).unwrap_or(0);
        bytes[..read].windows(needle.len()).any(|window| window == needle)
    })
}
