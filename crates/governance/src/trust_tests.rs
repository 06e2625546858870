//! The ledger against records as the gateway writes them (GOV §11).

use portcullis_core::{PermitId, SessionId, Timestamp};
use serde_json::json;

use super::*;
use crate::fixture::{START, accepted, epoch};

const DAY: u64 = 24 * 3600 * 1000;

/// Writes records in order, and lets a ledger take them.
struct Scribe {
    ledger: Ledger,
    records: Vec<Record>,
    tool: ToolId,
}

impl Scribe {
    fn new() -> Self {
        let declaration = accepted(epoch(7), 3);
        let tool = declaration.tools()[0].id().clone();
        let mut scribe = Self { ledger: Ledger::default(), records: Vec::new(), tool };
        let names: serde_json::Map<String, Value> =
            declaration.tools().iter().map(|tool| (tool.id().item().to_string(), json!({}))).collect();
        let version = declaration.version();
        scribe.write(
            "declaration.accepted",
            0,
            0,
            json!({"server": "filesystem", "tools": names, "version": version}),
        );
        scribe
    }

    fn write(&mut self, event: &str, at_ms: u64, session: u8, data: Value) -> &Record {
        let seq = self.records.len() as u64;
        let time = Timestamp::from_millis(START.as_millis() + at_ms);
        let record: Record = serde_json::from_value(json!({
            "actor": portcullis_core::Actor::system(), "canon": null, "data": data, "epoch": epoch(7), "event": event, "evidence": [],
            "id": PermitId::new(time).to_string(), "log": portcullis_core::LogId::from_bytes([1; 16]), "policy": null,
            "prev": "0".repeat(64), "proposal": ProposalId::from_bytes([seq as u8; 16]), "refs": [], "seq": seq,
            "session": SessionId::from_bytes([session; 16]), "step": 1, "time": time, "tool_id": self.tool, "trust": null,
            "v": 1,
        }))
        .unwrap();
        self.ledger.take(&record);
        self.records.push(record);
        self.records.last().unwrap()
    }

    fn call(&mut self, print: u64, at_ms: u64, session: u8) {
        let fingerprint = format!("{print:064x}");
        self.write(
            "execution.result",
            at_ms,
            session,
            json!({"outcome": "result", "fingerprint": fingerprint}),
        );
    }

    fn standing(&self) -> &Standing {
        &self.ledger.books[self.tool.server()].tools[&self.tool.item().to_string()]
    }

    fn server(&self) -> &Standing {
        &self.ledger.books[self.tool.server()].server
    }
}

#[test]
fn ten_thousand_equal_calls_in_a_day_earn_nothing_more_than_one() {
    // T-TRU-1, GOV-1103
    let mut scribe = Scribe::new();
    for n in 0..10_000 {
        scribe.call(1, n, 1);
    }
    let standing = scribe.standing();
    assert_eq!((standing.clean, standing.days, standing.sessions, standing.score()), (1, 1, 1, 12));
    assert_eq!((standing.eligible(), standing.state), (Trust::Untrusted, Trust::Untrusted));
}

#[test]
fn the_score_is_counted_by_requests_days_and_sessions() {
    // GOV-1103, GOV-1104
    let mut scribe = Scribe::new();
    for print in 0..9 {
        scribe.call(print, print, print as u8);
    }
    let standing = scribe.standing();
    assert_eq!((standing.clean, standing.days, standing.sessions), (9, 1, 3), "three sessions a day");
    assert_eq!((standing.score(), standing.eligible()), (38, Trust::Untrusted));
    scribe.call(9, 10, 1);
    assert_eq!((scribe.standing().score(), scribe.standing().eligible()), (40, Trust::Probationary));
    assert_eq!(scribe.server().clean, 10);
    for day in 1..7 {
        for print in 0..7 {
            scribe.call(print, day * DAY, 1);
        }
    }
    let standing = scribe.standing();
    assert_eq!((standing.clean, standing.days, standing.score()), (52, 7, 100));
    assert_eq!(standing.eligible(), Trust::Trusted);
    assert_eq!(standing.state, Trust::Untrusted, "states change by events only");
    scribe.write(
        "trust.granted",
        7 * DAY,
        1,
        json!({"server": "filesystem", "tool": scribe.tool.item().to_string(), "state": "trusted"}),
    );
    assert_eq!(scribe.standing().state, Trust::Trusted);
    assert_eq!(scribe.server().state, Trust::Untrusted, "each starts for itself");
}

#[test]
fn what_did_not_come_to_a_clean_end_does_not_count() {
    // GOV-1103
    let mut scribe = Scribe::new();
    let print = "1".repeat(64);
    for outcome in ["rpc_error", "timeout", "too_large", "protocol_error"] {
        scribe.write("execution.result", 0, 1, json!({"outcome": outcome, "fingerprint": print}));
    }
    assert_eq!(scribe.standing().clean, 0);
    scribe.call(1, 0, 1);
    let broken = scribe.records.last().unwrap().clone();
    let withheld = Record { event: EventName::ExecutionWithheld, seq: broken.seq + 1, ..broken };
    scribe.ledger.take(&withheld);
    assert_eq!((scribe.standing().clean, scribe.server().clean), (0, 0));
}

#[test]
fn a_violation_is_by_the_tool_or_contaminates_the_server() {
    // T-TRU-2, GOV-1105
    for (contamination, other_kept) in [("none", true), ("server", false)] {
        let mut scribe = Scribe::new();
        let other = accepted(epoch(7), 3).tools()[1].id().clone();
        let first = scribe.tool.clone();
        for tool in [&other, &first] {
            scribe.tool = tool.clone();
            for print in 0..10 {
                scribe.call(print, 0, 1);
            }
            let name = tool.item().to_string();
            scribe.write(
                "trust.promoted",
                1,
                1,
                json!({"server": "filesystem", "tool": name, "state": "probationary"}),
            );
        }
        let data = json!({"server": "filesystem", "tools": [first.item().to_string()], "contamination": contamination, "score": "zero"});
        scribe.write("trust.violation", 2, 1, data);
        let standing = scribe.standing().clone();
        assert_eq!((standing.state, standing.score(), standing.violations), (Trust::Untrusted, 0, 1));
        assert_eq!(standing.reset_epoch, 1);
        scribe.tool = other;
        assert_eq!(scribe.standing().state == Trust::Probationary, other_kept, "{contamination}");
        assert_eq!(scribe.server().violations == 0, other_kept);
    }
}

#[test]
fn every_violation_makes_it_harder_and_half_of_the_score_can_stay() {
    // GOV-1104, GOV-1105
    let mut scribe = Scribe::new();
    for print in 0..20 {
        scribe.call(print, 0, 1);
    }
    assert_eq!(scribe.standing().score(), 50);
    let tool = scribe.tool.item().to_string();
    scribe.write(
        "trust.violation",
        1,
        1,
        json!({"server": "filesystem", "tools": [tool], "contamination": "none", "score": "halve"}),
    );
    assert_eq!(scribe.standing().score(), 25);
    for print in 20..39 {
        scribe.call(print, 2, 1);
    }
    assert_eq!(
        (scribe.standing().clean, scribe.standing().eligible()),
        (19, Trust::Untrusted),
        "40 and 10 are 80 and 20 now"
    );
    scribe.call(39, 2, 1);
    for print in 40..43 {
        scribe.call(print, 2, 1);
    }
    assert_eq!(scribe.standing().eligible(), Trust::Probationary);
}

#[test]
fn a_ledger_recomputed_from_the_records_equals_the_one_that_followed() {
    // T-TRU-1
    let mut scribe = Scribe::new();
    for n in 0..300 {
        scribe.call(n % 37, n * DAY / 50, (n % 5) as u8);
    }
    let tool = scribe.tool.item().to_string();
    scribe.write("trust.revoked", 7 * DAY, 1, json!({"server": "filesystem", "tool": tool}));
    scribe.call(1, 8 * DAY, 1);
    let mut again = Ledger::default();
    for record in &scribe.records {
        again.take(record);
        again.take(record);
    }
    assert_eq!(again, scribe.ledger);
    assert!(again.differences(&scribe.ledger).is_empty());
    let kept: Ledger = serde_json::from_str(&serde_json::to_string(&again).unwrap()).unwrap();
    assert_eq!(kept, again);
    scribe.call(2, 8 * DAY, 1);
    assert_eq!(again.differences(&scribe.ledger), ["filesystem"]);
    scribe.write("server.removed", 9 * DAY, 1, json!({"server": "filesystem"}));
    assert!(scribe.ledger.is_empty());
}

#[test]
fn the_tier_is_a_ceiling() {
    // GOV-1102
    use SideEffect::{Execute, Network, Read, Write};
    let cases: [(&[SideEffect], [Trust; 4]); 4] = [
        (&[], [Trust::Untrusted, Trust::Probationary, Trust::Trusted, Trust::Trusted]),
        (&[Read], [Trust::Untrusted, Trust::Probationary, Trust::Trusted, Trust::Trusted]),
        (
            &[Read, Network, Write],
            [Trust::Untrusted, Trust::Probationary, Trust::Probationary, Trust::Trusted],
        ),
        (&[Execute], [Trust::Untrusted, Trust::Probationary, Trust::Probationary, Trust::Probationary]),
    ];
    for (classes, ceilings) in cases {
        for tier in 0..4 {
            assert_eq!(ceiling(tier, classes), ceilings[usize::from(tier)], "{classes:?} tier {tier}");
        }
    }
}
