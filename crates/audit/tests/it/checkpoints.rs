//! The tree and its checkpoints: what an outsider holds against a log.

use std::path::PathBuf;

use portcullis_audit::{
    AuditError, AuditLog, Checks, NoteKey, ProblemKind, SignedCheckpoint, SignerSource, Sink, prove,
    prove_growth, verify_consistency, verify_inclusion, verify_with,
};

use crate::home::{Home, event};

fn tlog(home: &Home) -> PathBuf {
    std::fs::read_dir(home.audit()).unwrap().next().unwrap().unwrap().path().join("tlog")
}

fn checkpoint(home: &Home) -> SignedCheckpoint {
    std::fs::read_to_string(tlog(home).join("checkpoint")).unwrap().parse().unwrap()
}

fn kinds(home: &Home, checks: &Checks) -> Vec<ProblemKind> {
    verify_with(&home.audit(), checks).unwrap().problems.iter().map(|problem| problem.kind).collect()
}

/// A closed log of `records` records.
fn log_of(records: u64) -> Home {
    let home = Home::new();
    let log = home.open();
    commit(&log, records - 1);
    log.close();
    home
}

/// Commits `records` more, a few at a time.
fn commit(log: &AuditLog, records: u64) {
    for from in (0..records).step_by(20) {
        log.commit_blocking((from..records.min(from + 20)).map(event).collect()).unwrap();
    }
}

#[test]
fn a_stopped_log_has_a_checkpoint_over_everything_signed_by_the_key_it_names() {
    // AUD-31, AUD-32
    let home = log_of(700);
    let note = checkpoint(&home);
    let genesis = &home.records()[0];
    let key: NoteKey = genesis.data["vkey"].as_str().unwrap().parse().unwrap();
    assert!(note.is_signed_by(&key));
    assert_eq!(note.checkpoint.size, 700);
    assert_eq!(Some(note.checkpoint.root), home.verify().root);
    assert_eq!(note.checkpoint.origin, genesis.data["origin"].as_str().unwrap());
    assert!(note.checkpoint.origin.ends_with(&genesis.log.to_string()));
    assert_eq!(note.signatures[0].name(), note.checkpoint.origin);
    for tile in ["tile/0/000", "tile/0/001", "tile/0/002.p/188", "tile/1/000.p/2"] {
        assert!(tlog(&home).join(tile).exists(), "{tile}");
    }
}

#[test]
fn a_running_log_makes_checkpoints_by_itself_and_on_demand_and_never_smaller_ones() {
    // AUD-32
    let home = Home::new();
    let log = home.open();
    let mut sizes = Vec::new();
    for n in 1..=5 {
        commit(&log, 100 * n);
        let note = log.checkpoint().unwrap();
        assert!(note.is_signed_by(&log.vkey()));
        sizes.push(note.checkpoint.size);
        home.assert_whole(note.checkpoint.size);
    }
    assert_eq!(sizes, [101, 301, 601, 1001, 1501]);
    // By itself: no test waits for a time, only until it has happened.
    log.commit_blocking(vec![event(1)]).unwrap();
    while checkpoint(&home).checkpoint.size < 1502 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    log.close();
    // Partial tiles of old checkpoints are gone but for the last two.
    let partial = std::fs::read_dir(tlog(&home).join("tile/0/005.p")).unwrap().count();
    assert!(partial <= 2, "{partial}");
    // And it goes on after a restart.
    let log = home.open();
    log.commit_blocking(vec![event(1)]).unwrap();
    assert_eq!(log.checkpoint().unwrap().checkpoint.size, 1503);
    home.assert_whole(1503);
}

#[test]
fn every_record_can_be_proved_and_growth_can_be_proved() {
    // AUD-30
    let home = log_of(300);
    let old = checkpoint(&home).checkpoint;
    let log = home.open();
    commit(&log, 400);
    log.close();
    for record in home.records() {
        let proof = prove(&home.audit(), record.seq).unwrap().unwrap();
        assert_eq!(proof.leaf, record.leaf);
        assert!(verify_inclusion(&record.leaf, record.seq, proof.size, &proof.path, &proof.root));
    }
    assert_eq!(prove(&home.audit(), 700).unwrap(), None);
    let (new, path) = prove_growth(&home.audit(), old.size).unwrap().unwrap();
    assert!(verify_consistency(old.size, &old.root, new.checkpoint.size, &new.checkpoint.root, &path));
}

#[test]
fn a_cut_tail_is_found_by_a_checkpoint_and_the_log_stays_shut() {
    // A-2, AUD-5, AUD-61
    let home = log_of(50);
    let kept = checkpoint(&home);
    let log = home.open();
    log.commit_blocking((0..50).map(event).collect()).unwrap();
    log.close();
    let (path, whole) = (home.segments()[0].clone(), std::fs::read(&home.segments()[0]).unwrap());
    // Cut at the commit frame before the last turn: framing is perfect.
    let commits: Vec<usize> =
        (0..whole.len() - 5).filter(|at| whole[*at..at + 5] == [0, 0, 0, 44, 2]).collect();
    let end = commits[commits.len() - 2] + 56;
    let mut cut = whole.clone();
    cut[end..].fill(0);
    std::fs::write(&path, &cut).unwrap();
    assert_eq!(kinds(&home, &Checks::default()), [ProblemKind::CheckpointAhead]);
    let refused = home.try_open().map(|_| ()).unwrap_err();
    assert!(
        matches!(refused, AuditError::Checkpoint { kind: ProblemKind::CheckpointAhead, .. }),
        "{refused}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), cut, "nothing is repaired");
    // The log's own promise can be taken away with the tail; one that was kept elsewhere cannot.
    std::fs::remove_dir_all(tlog(&home)).unwrap();
    std::fs::create_dir(tlog(&home)).unwrap();
    assert_eq!(kinds(&home, &Checks::default()), []);
    cut[commits[0] + 56..].fill(0);
    std::fs::write(&path, &cut).unwrap();
    let checks = Checks { checkpoints: vec![("kept".into(), kept)], ..Checks::default() };
    assert_eq!(kinds(&home, &checks), [ProblemKind::CheckpointAhead]);
}

#[test]
fn a_log_written_anew_with_the_stolen_key_is_found_by_a_checkpoint_kept_elsewhere() {
    // A-2, AUD-5
    let home = log_of(50);
    let kept = checkpoint(&home);
    let id = home.records()[0].log;
    // The same log id, the same keys, another history.
    let forged = Home::new();
    std::fs::create_dir_all(forged.audit().join(id.to_string())).unwrap();
    for dir in [forged.audit(), forged.audit().join(id.to_string())] {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
    for key in ["kek", "log.key"] {
        std::fs::copy(home.path().join(key), forged.path().join(key)).unwrap();
    }
    let log = forged.open();
    commit(&log, 100);
    log.close();
    assert_eq!(kinds(&forged, &Checks::default()), [], "by itself it looks perfect");
    let checks = Checks { checkpoints: vec![("kept".into(), kept)], ..Checks::default() };
    assert_eq!(kinds(&forged, &checks), [ProblemKind::InconsistentCheckpoint]);
    assert_eq!(kinds(&home, &checks), []);
}

#[test]
fn a_checkpoint_by_another_key_and_changed_tiles_are_found() {
    // AUD-50
    let home = log_of(600);
    let stranger = log_of(3);
    let key: NoteKey = stranger.records()[0].data["vkey"].as_str().unwrap().parse().unwrap();
    let pinned = Checks { vkey: Some(key), ..Checks::default() };
    assert_eq!(kinds(&home, &pinned), [ProblemKind::CheckpointSignature]);

    let tile = tlog(&home).join("tile/0/001");
    let whole = std::fs::read(&tile).unwrap();
    let mut changed = whole.clone();
    changed[40] ^= 1;
    std::fs::write(&tile, &changed).unwrap();
    let report = home.verify();
    assert_eq!(report.problems.len(), 1, "{report:#?}");
    assert_eq!((report.problems[0].seq, report.problems[0].kind), (256, ProblemKind::TileMismatch));
    std::fs::remove_file(&tile).unwrap();
    assert_eq!(kinds(&home, &Checks::default()), [ProblemKind::TileMismatch]);
    // Lost tiles are made again from the records at the next start.
    std::fs::remove_dir_all(tlog(&home).join("tile")).unwrap();
    home.open().close();
    let log = home.open();
    log.commit_blocking(vec![event(1)]).unwrap();
    log.close();
    home.assert_whole(601);

    let note = tlog(&home).join("checkpoint");
    let text = std::fs::read_to_string(&note).unwrap().replacen("601", "599", 1);
    std::fs::write(&note, text).unwrap();
    let found = kinds(&home, &Checks::default());
    assert!(found.contains(&ProblemKind::CheckpointSignature), "{found:?}");
    assert!(matches!(
        home.try_open().map(|_| ()),
        Err(AuditError::Checkpoint { kind: ProblemKind::CheckpointSignature, .. })
    ));
}

#[test]
fn a_range_of_a_log_can_be_checked_alone() {
    let home = log_of(20);
    let report = verify_with(&home.audit(), &Checks { from: 5, to: Some(9), ..Checks::default() }).unwrap();
    assert!(report.ok);
    assert_eq!((report.checked, report.size), (5, 20));
}

#[test]
fn checkpoints_go_to_every_sink_and_the_log_is_held_to_what_a_sink_has() {
    // AUD-34, AUD-61, A-2
    let home = Home::new();
    let (file, piped) = (home.path().join("elsewhere"), home.path().join("piped"));
    let with_sinks = || {
        let mut options = home.options();
        let copy = vec!["/usr/bin/tee".to_owned(), piped.display().to_string()];
        options.sinks =
            vec![Sink::File(file.clone()), Sink::Command(copy), Sink::Command(vec!["/nowhere".into()])];
        options
    };
    let log = AuditLog::open(with_sinks()).unwrap();
    commit(&log, 60);
    log.close();
    let own = std::fs::read_to_string(tlog(&home).join("checkpoint")).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), own);
    assert_eq!(std::fs::read_to_string(&piped).unwrap(), own);
    // The log loses its last turn, and its own checkpoints with it. The sink remembers.
    let path = home.segments()[0].clone();
    let mut cut = std::fs::read(&path).unwrap();
    let commits: Vec<usize> = (0..cut.len() - 5).filter(|at| cut[*at..at + 5] == [0, 0, 0, 44, 2]).collect();
    let end = commits[commits.len() - 2] + 56;
    cut[end..].fill(0);
    std::fs::write(&path, &cut).unwrap();
    home.forget_checkpoints();
    let refused = AuditLog::open(with_sinks()).map(|_| ()).unwrap_err();
    assert!(
        matches!(&refused, AuditError::Checkpoint { kind: ProblemKind::CheckpointAhead, path, .. } if *path == file),
        "{refused}"
    );
}

#[test]
fn a_program_can_sign_and_one_that_signs_for_somebody_else_makes_no_checkpoint() {
    // AUD-33
    use base64::Engine as _;
    use ed25519_dalek::{Signer as _, SigningKey};
    let home = Home::new();
    let key = SigningKey::from_bytes(&[9; 32]);
    // A signer that knows one text only would do for no log; this one is a program of two lines around a real key.
    let script = home.path().join("signer.py");
    let seed = portcullis_core::digest::to_hex(&key.to_bytes());
    std::fs::write(
        &script,
        format!("{SIGNER}\nprint(sign(bytes.fromhex('{seed}'), sys.stdin.buffer.read()))\n"),
    )
    .unwrap();
    let mut options = home.options();
    let public_key = key.verifying_key().to_bytes();
    let command = vec!["python3".to_owned(), script.display().to_string()];
    options.signer = SignerSource::Command { command: command.clone(), public_key };
    let log = AuditLog::open(options.clone()).unwrap();
    let note = log.checkpoint().unwrap();
    assert!(note.is_signed_by(&log.vkey()));
    let expected = key.sign(note.text().as_bytes()).to_bytes();
    let line = note.to_string();
    let signature = base64::engine::general_purpose::STANDARD
        .decode(line.trim_end().rsplit(' ').next().unwrap())
        .unwrap();
    assert_eq!(signature[4..], expected, "Ed25519 has one signature for one text");
    log.close();
    assert!(home.verify().ok);
    // The right program, announced with another key.
    let other = Home::new();
    let mut options = other.options();
    let public_key = SigningKey::from_bytes(&[8; 32]).verifying_key().to_bytes();
    options.signer = SignerSource::Command { command, public_key };
    let log = AuditLog::open(options).unwrap();
    assert!(log.checkpoint().is_err());
    assert!(!tlog(&other).join("checkpoint").exists());
}

/// Ed25519 as RFC 8032 describes it, in Python without any library: slow, plain, and not ours to share mistakes with.
const SIGNER: &str = r#"
import sys, hashlib, base64
p = 2**255 - 19
q = 2**252 + 27742317777372353535851937790883648493
d = -121665 * pow(121666, p - 2, p) % p
def add(P, Q):
    A, B = (P[1]-P[0])*(Q[1]-Q[0]) % p, (P[1]+P[0])*(Q[1]+Q[0]) % p
    C, D = 2*P[3]*Q[3]*d % p, 2*P[2]*Q[2] % p
    E, F, G, H = B-A, D-C, D+C, B+A
    return (E*F, G*H, F*G, E*H)
def mul(s, P):
    Q = (0, 1, 1, 0)
    while s > 0:
        if s & 1: Q = add(Q, P)
        P = add(P, P)
        s >>= 1
    return Q
gy = 4 * pow(5, p - 2, p) % p
x2 = (gy*gy - 1) * pow(d*gy*gy + 1, p - 2, p)
gx = pow(x2, (p + 3) // 8, p)
if (gx*gx - x2) % p != 0: gx = gx * pow(2, (p - 1) // 4, p) % p
if gx & 1: gx = p - gx
G = (gx, gy, 1, gx * gy % p)
def compress(P):
    z = pow(P[2], p - 2, p)
    x, y = P[0]*z % p, P[1]*z % p
    return int.to_bytes(y | ((x & 1) << 255), 32, "little")
def sha(b): return int.from_bytes(hashlib.sha512(b).digest(), "little")
def sign(seed, msg):
    h = hashlib.sha512(seed).digest()
    a = int.from_bytes(h[:32], "little") & ((1 << 254) - 8) | (1 << 254)
    A = compress(mul(a, G))
    r = sha(h[32:] + msg) % q
    R = compress(mul(r, G))
    s = (r + sha(R + A + msg) * a) % q
    return base64.b64encode(R + int.to_bytes(s, 32, "little")).decode()
"#;
