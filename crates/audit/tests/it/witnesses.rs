//! Witnesses: a real one on a socket, which checks what it is given with code that is not ours, and what the log does
//! with its answers.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ed25519_dalek::{Signer as _, SigningKey};
use portcullis_audit::{
    Answer, AuditLog, Checks, Courier, EventName, Health, NoteKey, Options, SignedCheckpoint, Witness,
    Witnessing,
};
use signed_note::{Note, StandardVerifier, VerifierList};
use tlog_tiles::{Checkpoint, Hash, check_tree};

use crate::home::{Home, event};

/// One HTTP request over a real socket.
#[derive(Debug)]
struct Plain;

impl Courier for Plain {
    fn post(&self, url: &str, body: String) -> Result<Answer, String> {
        let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let mut stream = TcpStream::connect(host).map_err(|error| error.to_string())?;
        let length = body.len();
        write!(stream, "POST /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
            .map_err(|error| error.to_string())?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).map_err(|error| error.to_string())?;
        let (head, body) = reply.split_once("\r\n\r\n").ok_or("no answer")?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or("no status")?;
        Ok(Answer { status, body: body.to_owned() })
    }
}

/// What a witness is, by C2SP tlog-witness.
#[derive(Default)]
struct Seen {
    /// The keys it trusts, by origin.
    logs: HashMap<String, String>,
    /// The newest checkpoint it signed, by origin.
    newest: HashMap<String, (u64, [u8; 32])>,
    /// Every status it answered with.
    answers: Vec<u16>,
    /// Answers with this to everything.
    always: Option<u16>,
}

struct TestWitness {
    url: String,
    key: SigningKey,
    seen: Arc<Mutex<Seen>>,
}

impl TestWitness {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/w", listener.local_addr().unwrap());
        let (key, seen) = (SigningKey::from_bytes(&[9; 32]), Arc::new(Mutex::new(Seen::default())));
        let (theirs, state) = (key.clone(), seen.clone());
        // Ends with the process: it only ever waits for the next connection.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serve(stream, &theirs, &state);
            }
        });
        Self { url, key, seen }
    }

    fn note_key(&self) -> NoteKey {
        NoteKey::witness("witness.example/w1", self.key.verifying_key())
    }

    fn trust(&self, log: &AuditLog) {
        let key = log.vkey();
        self.seen.lock().unwrap().logs.insert(key.name().to_owned(), key.to_string());
    }

    fn options(&self, home: &Home, required: bool, max_age: Duration) -> Options {
        let witness = Witness { url: self.url.clone(), key: self.note_key() };
        let witnessing = Witnessing { witnesses: vec![witness], courier: Arc::new(Plain), required, max_age };
        Options { witnessing: Some(witnessing), sink_interval: Duration::from_millis(50), ..home.options() }
    }

    fn answers(&self) -> Vec<u16> {
        self.seen.lock().unwrap().answers.clone()
    }
}

fn serve(stream: TcpStream, key: &SigningKey, seen: &Mutex<Seen>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).is_ok() && line != "\r\n" {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let mut seen = seen.lock().unwrap();
    let (status, text) = match seen.always {
        Some(status) => (status, String::new()),
        None => add_checkpoint(std::str::from_utf8(&body).unwrap(), key, &mut seen),
    };
    seen.answers.push(status);
    let mut stream = stream;
    let _ = write!(
        stream,
        "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    );
}

fn add_checkpoint(body: &str, key: &SigningKey, seen: &mut Seen) -> (u16, String) {
    let (head, note) = body.split_once("\n\n").unwrap();
    let mut lines = head.lines();
    let old: u64 = lines.next().unwrap().strip_prefix("old ").unwrap().parse().unwrap();
    let proof: Vec<Hash> = lines.map(|line| Hash(BASE64.decode(line).unwrap().try_into().unwrap())).collect();
    let note = Note::from_bytes(note.as_bytes()).unwrap();
    let checkpoint = Checkpoint::from_bytes(note.text()).unwrap();
    let origin = checkpoint.origin().to_string();
    let Some(trusted) = seen.logs.get(&origin) else { return (404, String::new()) };
    let trusted = VerifierList::new(vec![Box::new(StandardVerifier::new(trusted).unwrap())]);
    if note.verify(&trusted).map_or(true, |(verified, _)| verified.is_empty()) {
        return (403, String::new());
    }
    let (known, root) = seen.newest.get(&origin).copied().unwrap_or((0, [0; 32]));
    if known != old {
        return (409, format!("{known}\n"));
    }
    let grows = old == 0
        || (old == checkpoint.size() && root == checkpoint.hash().0)
        || check_tree(&proof, checkpoint.size(), *checkpoint.hash(), old, Hash(root)).is_ok();
    if !grows {
        return (422, String::new());
    }
    seen.newest.insert(origin, (checkpoint.size(), checkpoint.hash().0));
    let text = String::from_utf8(note.text().to_vec()).unwrap();
    let time = 1_800_000_000u64;
    let signature = key.sign(format!("cosignature/v1\ntime {time}\n{text}").as_bytes());
    let id = NoteKey::witness("witness.example/w1", key.verifying_key()).id();
    let signed = [&id[..], &time.to_be_bytes(), &signature.to_bytes()].concat();
    (200, format!("— witness.example/w1 {}\n", BASE64.encode(signed)))
}

/// Nothing here takes long; a test that waits for more than this has failed.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(20), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn witnessed(log: &AuditLog) -> Option<SignedCheckpoint> {
    std::fs::read_to_string(log.dir().join("tlog/checkpoint.witnessed")).ok()?.parse().ok()
}

#[test]
fn a_witness_cosigns_what_grows_and_is_proved_to_from_where_it_stands() {
    // A-3, AUD-34
    let (home, witness) = (Home::new(), TestWitness::start());
    let log = AuditLog::open(witness.options(&home, false, Duration::from_secs(600))).unwrap();
    // It does not know this log yet: 404 is an alarm, and no reason to stop.
    eventually(
        "the alarm",
        || matches!(log.health(), Health::Degraded { cause: "audit_witness", reason } if reason.contains("404")),
    );
    assert!(log.blocked().is_none());
    witness.trust(&log);
    eventually("a cosignature", || witnessed(&log).is_some());
    eventually("that it is on record", || home.names().contains(&EventName::AuditWitnessed));
    assert_eq!(log.health(), Health::Ok);
    let first = witnessed(&log).unwrap();
    assert!(first.is_signed_by(&witness.note_key()) && first.is_signed_by(&log.vkey()));
    // Being witnessed is no news: the log grows by the record of it, and is not witnessed for that.
    let asked = witness.answers().len();
    log.checkpoint().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(witness.answers().len(), asked);

    for _ in 0..30 {
        log.commit_blocking((0..20).map(event).collect()).unwrap();
    }
    log.checkpoint().unwrap();
    eventually("a later cosignature", || witnessed(&log).is_some_and(|note| note.checkpoint.size > 600));
    assert_eq!(witness.answers().last(), Some(&200), "with a proof from the first");
    log.close();

    // A log that forgot where its witness stands is told (409), proves from there, and is signed.
    std::fs::remove_file(log.dir().join("tlog/checkpoint.witnessed")).unwrap();
    drop(log);
    let log = AuditLog::open(witness.options(&home, false, Duration::from_secs(600))).unwrap();
    log.commit_blocking(vec![event(1)]).unwrap();
    log.checkpoint().unwrap();
    eventually("the second try", || witness.answers().ends_with(&[409, 200]));
    eventually("the note", || witnessed(&log).is_some());
    let note = witnessed(&log).unwrap();
    log.close();
    let checks = Checks { checkpoints: vec![("the witnessed one".into(), note)], ..Checks::default() };
    assert!(portcullis_audit::verify_with(&home.audit(), &checks).unwrap().ok);
}

#[test]
fn a_witness_that_saw_another_history_raises_an_alarm() {
    // AUD-34
    let (home, witness) = (Home::new(), TestWitness::start());
    let log = AuditLog::open(witness.options(&home, false, Duration::from_secs(600))).unwrap();
    witness.trust(&log);
    eventually("a cosignature", || witnessed(&log).is_some());
    // As if the log had been written anew under the same name and key: the witness holds another root.
    for (_, root) in witness.seen.lock().unwrap().newest.values_mut() {
        *root = [7; 32];
    }
    log.commit_blocking((0..10).map(event).collect()).unwrap();
    log.checkpoint().unwrap();
    eventually(
        "the alarm",
        || matches!(log.health(), Health::Degraded { cause: "audit_witness", reason } if reason.contains("422")),
    );
    // And one that trusts another key than ours.
    let name = log.vkey().name().to_owned();
    let other = NoteKey::log(&name, SigningKey::from_bytes(&[3; 32]).verifying_key());
    witness.seen.lock().unwrap().logs.insert(name, other.to_string());
    eventually(
        "the other alarm",
        || matches!(log.health(), Health::Degraded { cause: "audit_witness", reason } if reason.contains("403")),
    );
}

#[test]
fn a_witness_that_is_required_and_away_stops_everything_until_it_is_back() {
    // AUD-34
    let (home, witness) = (Home::new(), TestWitness::start());
    witness.seen.lock().unwrap().always = Some(503);
    let log = AuditLog::open(witness.options(&home, true, Duration::from_millis(100))).unwrap();
    log.commit_blocking(vec![event(1)]).unwrap();
    eventually("the block", || matches!(log.health(), Health::Blocked { cause: "audit_witness", .. }));
    assert!(log.blocked().unwrap().reason.contains("witness.example/w1"));
    log.commit_blocking(vec![event(2)]).expect("the log itself is well, and must say what happens");
    witness.trust(&log);
    witness.seen.lock().unwrap().always = None;
    eventually("the end of it", || log.blocked().is_none());
}
