//! What results and prompts cost: `name TAB seconds` of CPU per call on stdout, and a few counts as `name TAB number`.
//! `cargo xtask bench context` runs it and writes down what follows.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::borrow::Cow;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use portcullis_context::firewall::reference;
use portcullis_context::{
    About, Artifacts, Build, CallToolResult, ContextBuilder, ContextItem, Encoding, Firewall, Handle, Kept,
    Kind, Limits, NewArtifact, Origin, Owner, Phase, Redactor, Selector, Sensitivity, Source, view_artifact,
};
use portcullis_core::{Clock as _, ProposalId, Secret, SessionId, SystemClock};
use serde_json::json;

fn cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// The mean CPU time of one call over some 300 ms of it.
fn measure(name: &str, mut work: impl FnMut()) {
    work();
    let (mut calls, start) = (0_u32, cpu());
    let spent = loop {
        work();
        calls += 1;
        let spent = cpu() - start;
        if spent >= Duration::from_millis(300) {
            break spent;
        }
    };
    println!("{name}\t{:.12}", spent.as_secs_f64() / f64::from(calls));
}

/// Kilobytes of memory in use.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).unwrap_or(0)
}

fn result_of(bytes: usize) -> String {
    let line = "2026-01-01T00:00:00Z INFO request served in 12 ms for customer alpha\n";
    json!({"content": [{"type": "text", "text": line.repeat(bytes / line.len())}]}).to_string()
}

const WORDS: [&str; 96] = [
    "account",
    "address",
    "amount",
    "answer",
    "approve",
    "archive",
    "balance",
    "before",
    "branch",
    "budget",
    "build",
    "cancel",
    "change",
    "check",
    "client",
    "close",
    "commit",
    "company",
    "contract",
    "country",
    "create",
    "customer",
    "delete",
    "deliver",
    "deploy",
    "describe",
    "discount",
    "document",
    "email",
    "error",
    "estimate",
    "event",
    "export",
    "failure",
    "figure",
    "folder",
    "function",
    "german",
    "group",
    "history",
    "import",
    "index",
    "invoice",
    "issue",
    "January",
    "journal",
    "language",
    "ledger",
    "letter",
    "limit",
    "manager",
    "market",
    "meeting",
    "member",
    "message",
    "minute",
    "module",
    "monthly",
    "network",
    "number",
    "office",
    "open",
    "order",
    "package",
    "payment",
    "people",
    "percent",
    "permission",
    "phone",
    "policy",
    "price",
    "product",
    "project",
    "quarter",
    "question",
    "receipt",
    "record",
    "release",
    "report",
    "request",
    "review",
    "search",
    "server",
    "service",
    "status",
    "summary",
    "supplier",
    "table",
    "ticket",
    "total",
    "travel",
    "update",
    "value",
    "vendor",
    "weekly",
    "yearly",
];

fn conversation(events: usize) -> ContextBuilder {
    let mut builder = ContextBuilder::new();
    for event in 0..events {
        // Forty words, differently chosen for each.
        let mut seed = event as u64 * 0x9e37_79b9 + 1;
        let words: Vec<&str> = (0..40)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                WORDS[(seed >> 33) as usize % WORDS.len()]
            })
            .collect();
        let kind = [Kind::UserTurn, Kind::AgentMsg, Kind::ToolCall, Kind::DocSnippet][event % 4];
        builder
            .ingest(ContextItem::new(format!("e{event}"), kind, words.join(" ")))
            .expect("ids are distinct");
    }
    builder
}

fn main() {
    let firewall = Firewall::default();
    let large = result_of(1_150_000);
    let shown = |json: &str| {
        let result = CallToolResult::read(json);
        let cut = firewall.cut(&result, "tool", &About::default()).expect("it is long");
        let kept = cut.artifacts.iter().map(|one| Kept::As(reference(Handle::random(), one))).collect();
        cut.finish(kept, &firewall).0
    };
    measure("envelope of 1.15 MB", || drop(black_box(shown(&large))));
    let before = resident();
    for _ in 0..100 {
        black_box(shown(&large));
    }
    println!("resident growth over 100 envelopes, kB\t{}", resident().saturating_sub(before));
    println!("tokens of an envelope of 10 kB\t{}", Encoding::Cl100k.count(&shown(&result_of(10_000))));
    println!("tokens of an envelope of 1.15 MB\t{}", Encoding::Cl100k.count(&shown(&large)));

    let redactor = Redactor::default();
    measure("redaction of 1.15 MB without secrets", || drop(black_box(redactor.redact_json(&large))));

    let folder = tempfile::tempdir().expect("a folder");
    let clock = Arc::new(SystemClock);
    let artifacts =
        Artifacts::open_in(folder.path(), &Secret::random_key(), Limits::default(), clock).expect("a store");
    let now = SystemClock.now();
    let owner = Owner { principal: "agent:bench".parse().expect("a name"), session: SessionId::new(now) };
    let origin = Origin {
        call_id: ProposalId::new(now),
        tool_identity: "bench/tool".into(),
        sensitivity: Sensitivity::Public,
        redacted: false,
    };
    let text: String = (0..60_000).map(|n| format!("line {n:013}\n")).collect();
    let keep = |number: u64| {
        let new = NewArtifact {
            bytes: Cow::Owned(format!("{number}\n{text}").into_bytes()),
            media_type: "text/plain".into(),
            declared_type: None,
            label: String::new(),
            part_index: Some(0),
            source: Source::Text,
        };
        artifacts.keep(&owner, &origin, &new).expect("there is room").handle
    };
    let handle = keep(0);
    let mut number = 0;
    measure("keeping 1.15 MB, sealed and on disk", || {
        number += 1;
        black_box(keep(number));
    });
    let look = |selector: serde_json::Value| {
        let selector = Selector::read(&selector).expect("a selector");
        let opened = artifacts.open(handle, &owner).expect("it is there");
        black_box(view_artifact(&opened, &selector, 16_384).expect("a view"));
    };
    measure("view of 10 lines of 1.15 MB", || look(json!({"type": "lines", "start": 30_000, "end": 30_010})));
    measure("grep through 1.15 MB", || look(json!({"type": "grep", "pattern": "0059999$"})));

    for events in [500, 2_000, 10_000, 100_000] {
        let builder = conversation(events);
        let build = Build::new(Phase::Answer, "open invoice status");
        measure(&format!("context build of {events} events"), || drop(black_box(builder.build(&build))));
    }
}
