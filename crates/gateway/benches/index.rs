//! Making the index anew against checking the log (P-7), over the same records in one run. A line is `id TAB what TAB
//! value`.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::time::Instant;

use portcullis_audit::{AuditLog, Event, EventName, Options, verify};
use portcullis_core::{Actor, ProposalId, SessionId};
use portcullis_gateway::index;
use serde_json::json;

const RECORDS: u64 = 100_000;

fn main() {
    let dir = tempfile::tempdir_in(option_env!("CARGO_TARGET_TMPDIR").unwrap_or(".")).expect("a folder");
    let log = AuditLog::open(Options::new(dir.path().join("audit"), dir.path().join("kek"))).expect("a log");
    for from in (0..RECORDS).step_by(100) {
        log.commit_blocking((from..from + 100).map(event).collect()).expect("durable");
    }
    log.checkpoint().expect("a checkpoint");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let rebuild = || {
        let _ = std::fs::remove_file(log.index_path());
        let started = Instant::now();
        let made = runtime.block_on(index::rebuild(log.dir(), &log.index_path(), &log.id().to_string()));
        assert!(made.expect("an index") > RECORDS);
        started.elapsed()
    };
    let check = || {
        let started = Instant::now();
        assert!(verify(log.dir()).expect("a readable log").ok);
        started.elapsed()
    };
    // In turn, so that a slow machine is slow for both.
    let mut ratios: Vec<f64> = (0..5).map(|_| check().as_secs_f64() / rebuild().as_secs_f64()).collect();
    ratios.sort_by(f64::total_cmp);
    println!("P-7\tthroughput of rebuilding the index to that of verify\t{:.3}", ratios[ratios.len() / 2]);
    eprintln!("  {RECORDS} records: {:.0?} to check, {:.0?} to index", check(), rebuild());
    log.close();
}

/// Ten records in a row are of one call, as in a log.
fn event(n: u64) -> Event {
    let call = u128::from(n / 10).to_be_bytes();
    Event::new(EventName::ProposalReceived, &Actor::operator("claude-code"))
        .session(SessionId::from_bytes(call))
        .step(n)
        .proposal(ProposalId::from_bytes(call))
        .data(json!({"filler": "x".repeat(400), "n": n}))
}
