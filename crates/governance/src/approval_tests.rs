//! What an approval covers, and how it ends (GOV-901 to GOV-906).

use std::sync::Barrier;

use std::time::Duration;

use super::*;
use crate::fixture::{self, ARGS, Gate, START, operator};
use crate::session::Session;

const MINUTE: Duration = Duration::from_secs(60);
const OTHER_ARGS: &str = r#"{"path":"/srv/project/b.md"}"#;

fn at(minutes: u32) -> Timestamp {
    START.after(MINUTE * minutes)
}

fn offer(scope: Scope, quorum: u32) -> Offer {
    Offer { scope, quorum }
}

fn request_of(gate: &Gate, tool: &str, args: &str, session: &Session) -> CanonicalRequest {
    fixture::canonical(&gate.tool(tool), args, session.next_step(None), &gate.key)
}

/// Whether an approval covers the request; its use is given back.
fn covers(gate: &Gate, request: &CanonicalRequest, now: Timestamp) -> bool {
    gate.book.claim(request, now).is_some()
}

#[test]
fn once_covers_exact_arguments_one_time() {
    let gate = Gate::open();
    let request = gate.request(ARGS);
    let id = gate.approve(&request, Scope::Once).approval_id;
    assert!(!covers(&gate, &gate.request(OTHER_ARGS), START));
    assert!(covers(&gate, &gate.request(ARGS), at(14)), "equal arguments, a later step");
    let other_session = fixture::session("claude-code");
    assert!(covers(&gate, &request_of(&gate, "read_file", ARGS, &other_session), START));
    assert!(!covers(&gate, &request, at(15)), "fifteen minutes, not a moment longer");

    let claim = gate.book.claim(&request, START).unwrap();
    assert_eq!((claim.scope(), claim.approvers(), claim.approval_id()), (Scope::Once, 1, id));
    assert!(!covers(&gate, &request, START), "taken");
    drop(claim);
    gate.book.claim(&request, START).expect("given back").spend();
    assert!(!covers(&gate, &request, START), "spent");
    assert_eq!(gate.book.get(id).unwrap().state, State::Consumed);
}

#[test]
fn session_covers_any_arguments_of_the_tool_in_the_session() {
    let gate = Gate::open();
    gate.approve(&gate.request(ARGS), Scope::Session);
    let other = gate.request(OTHER_ARGS);
    assert!(covers(&gate, &other, at(8 * 60 - 1)));
    assert!(!covers(&gate, &other, at(8 * 60)));
    assert!(!covers(&gate, &request_of(&gate, "read_file", ARGS, &fixture::session("claude-code")), START));
    for _ in 0..100 {
        gate.book.claim(&other, START).unwrap().spend();
    }
    assert!(!covers(&gate, &other, START), "a hundred uses");
}

#[test]
fn until_version_change_covers_the_tool_in_every_session() {
    let gate = Gate::open();
    let id = gate.approve(&gate.request(ARGS), Scope::UntilVersionChange).approval_id;
    let elsewhere = request_of(&gate, "read_file", OTHER_ARGS, &fixture::session("claude-code"));
    assert!(covers(&gate, &elsewhere, at(7 * 24 * 60 - 1)));
    assert!(!covers(&gate, &elsewhere, at(7 * 24 * 60)));
    for _ in 0..1000 {
        gate.book.claim(&elsewhere, START).unwrap().spend();
    }
    assert!(!covers(&gate, &elsewhere, START), "a thousand uses");
    assert_eq!(gate.book.get(id).unwrap().state, State::Consumed);
}

#[test]
fn nothing_covers_another_principal_tool_or_registration() {
    // INV-MP-005, T-APR-4
    for scope in Scope::ALL {
        let gate = Gate::open();
        let request = gate.request(ARGS);
        gate.approve(&request, scope);
        let args = r#"{"path":"/srv/project/a.md"}"#;
        assert!(!covers(&gate, &request_of(&gate, "read_file", ARGS, &fixture::session("other")), START));
        assert!(!covers(&gate, &request_of(&gate, "write_file", args, &gate.session), START));
        for (epoch, counter) in [(8, 3), (7, 4)] {
            let tool = fixture::accepted(fixture::epoch(epoch), counter).tools()[0].clone();
            let again = fixture::canonical(&tool, ARGS, gate.session.next_step(None), &gate.key);
            assert!(!covers(&gate, &again, START), "{scope:?} epoch {epoch} declaration {counter}");
        }
        assert!(covers(&gate, &request, START));
        let ids = gate.book.of_server(request.tool().id().server(), fixture::epoch(7));
        gate.book.end(&ids, State::Invalidated);
        assert!(!covers(&gate, &request, START), "ended with its registration (GOV-906)");
    }
}

#[test]
fn the_narrowest_grant_is_used_first() {
    let gate = Gate::open();
    let request = gate.request(ARGS);
    let wide = gate.approve(&request, Scope::UntilVersionChange).approval_id;
    let once = gate.approve(&request, Scope::Once).approval_id;
    let first = gate.book.claim(&request, START).unwrap();
    let second = gate.book.claim(&request, START).unwrap();
    assert_eq!((first.approval_id(), second.approval_id()), (once, wide));
}

#[test]
fn equal_requests_join_and_a_pending_one_expires() {
    // GOV-904
    let gate = Gate::open();
    let ask = |args: &str, now| {
        let (policy, request) = (fixture::strict(1), gate.request(args));
        let offers = vec![offer(Scope::Once, 1)];
        gate.book.ask(&request, ProposalId::new(START), offers, &policy, Sha256Digest::ZERO, now)
    };
    let pending = gate.ask(&gate.request(ARGS), &[offer(Scope::Once, 1)]).approval_id;
    assert!(matches!(ask(ARGS, at(14)), Asked::Joined(id) if id == pending));
    assert!(matches!(ask(OTHER_ARGS, START), Asked::New(_)));
    assert!(matches!(ask(ARGS, at(15)), Asked::New(_)), "nobody can decide the old one any more");

    let late = gate.book.grant(pending, Scope::Once, &operator("alice"), "late", at(15)).unwrap_err();
    assert_eq!(late, DecisionRefused::NotPending { id: pending, state: State::Expired });
    assert!(gate.book.deny(pending, &operator("alice"), "late", at(15)).is_err());
    assert_eq!(gate.book.due(at(14)), []);
    assert_eq!(gate.book.due(at(15)), [pending]);
    gate.book.end(&[pending], State::Expired);
    assert!(matches!(ask(ARGS, START), Asked::New(_)));
}

#[test]
fn the_end_of_an_old_request_does_not_hide_a_newer_one() {
    // GOV-904: the old one is swept after the new one was entered.
    let gate = Gate::open();
    let request = gate.request(ARGS);
    let old = gate.ask(&request, &[offer(Scope::Once, 1)]).approval_id;
    gate.wall.advance(crate::approval::PENDING_TTL);
    let new = gate.ask(&request, &[offer(Scope::Once, 1)]).approval_id;
    gate.book.end(&[old], State::Expired);
    let now = gate.clock.now();
    let asked =
        gate.book.ask(&request, ProposalId::new(now), vec![], &fixture::strict(1), Sha256Digest::ZERO, now);
    assert!(matches!(asked, Asked::Joined(id) if id == new), "{asked:?}");
}

#[test]
fn three_denials_close_together_end_the_asking_for_ten_minutes() {
    // GOV-904
    let denied_at = |minutes: [u32; 3]| {
        let gate = Gate::open();
        let mut now = 0;
        for minute in minutes {
            gate.wall.advance(MINUTE * (minute - now));
            now = minute;
            let id = gate.ask(&gate.request(ARGS), &[offer(Scope::Once, 1)]).approval_id;
            let denied = gate.book.deny(id, &operator("alice"), "no", gate.clock.now()).unwrap();
            assert_eq!(denied.state, State::Denied);
            gate.book.apply(denied);
        }
        gate
    };
    let suppressed = |gate: &Gate, args: &str, now| {
        let policy = fixture::strict(1);
        let request = gate.request(args);
        match gate.book.ask(&request, ProposalId::new(START), vec![], &policy, Sha256Digest::ZERO, now) {
            Asked::Suppressed { until } => Some(until),
            _ => None,
        }
    };
    let gate = denied_at([0, 4, 9]);
    assert_eq!(suppressed(&gate, ARGS, at(9)), Some(at(19)));
    assert_eq!(
        suppressed(&gate, ARGS, at(18)),
        Some(at(19)),
        "ten minutes from the last, not from the first"
    );
    assert_eq!(suppressed(&gate, ARGS, at(19)), None);
    assert_eq!(suppressed(&gate, OTHER_ARGS, at(9)), None, "a denial settles its own proposal only");
    assert_eq!(suppressed(&denied_at([0, 6, 12]), ARGS, at(12)), None, "not within ten minutes");
}

#[test]
fn a_quorum_is_distinct_operators_who_agree_on_a_scope() {
    // GOV-905, T-APR-3
    let gate = Gate::open();
    let request = gate.request(ARGS);
    let offers = [offer(Scope::Once, 2), offer(Scope::Session, 2)];
    let id = gate.ask(&request, &offers).approval_id;
    let grant = |scope, name: &str| gate.book.grant(id, scope, &operator(name), "needed", START);
    assert!(matches!(grant(Scope::UntilVersionChange, "alice"), Err(DecisionRefused::NotOffered { .. })));
    let first = grant(Scope::Once, "alice").unwrap();
    assert_eq!((first.state, first.uses_left), (State::Pending, 0));
    gate.book.apply(first);
    assert!(!covers(&gate, &request, START), "one of two");
    assert_eq!(grant(Scope::Once, "alice"), Err(DecisionRefused::SamePerson("alice".into())));
    assert!(matches!(grant(Scope::Session, "bob"), Err(DecisionRefused::NotOffered { .. })));
    let second = grant(Scope::Once, "bob").unwrap();
    assert_eq!(second.state, State::Approved);
    gate.book.apply(second);
    assert_eq!(gate.book.claim(&request, START).unwrap().approvers(), 2);
    let third = grant(Scope::Once, "carol").unwrap_err();
    assert_eq!(third, DecisionRefused::NotPending { id, state: State::Approved });
}

#[test]
fn a_decision_needs_an_approval_and_a_reason() {
    let gate = Gate::open();
    let id = gate.ask(&gate.request(ARGS), &[offer(Scope::Once, 1)]).approval_id;
    let unknown = ApprovalId::random();
    let refused = gate.book.deny(unknown, &operator("alice"), "no", START).unwrap_err();
    assert_eq!(refused, DecisionRefused::Unknown(unknown));
    for reason in ["", "  ", "\u{200b}"] {
        let refused = gate.book.grant(id, Scope::Once, &operator("alice"), reason, START).unwrap_err();
        assert_eq!(refused, DecisionRefused::NoReason, "{reason:?}");
    }
    assert_eq!(gate.book.get(id).unwrap().state, State::Pending, "asking what would be changes nothing");
}

#[test]
fn a_claim_given_back_late_is_not_lost_and_not_revived() {
    // GOV-906: ended approvals are never restored.
    let gate = Gate::open();
    let request = gate.request(ARGS);
    let id = gate.approve(&request, Scope::Session).approval_id;
    let claims: Vec<_> = (0..100).map(|_| gate.book.claim(&request, START).unwrap()).collect();
    let mut claims = claims.into_iter();
    let last = claims.next().unwrap();
    claims.for_each(Claim::spend);
    drop(last);
    assert_eq!(gate.book.get(id).unwrap().state, State::Approved);
    let claim = gate.book.claim(&request, START).expect("the hundredth use was given back");
    gate.book.end(&[id], State::Revoked);
    assert!(!claim.stands());
    drop(claim);
    assert!(!covers(&gate, &request, START));
    assert_eq!(gate.book.get(id).unwrap().state, State::Revoked);

    let once = gate.approve(&request, Scope::Once).approval_id;
    let claim = gate.book.claim(&request, START).unwrap();
    gate.book.end(&[once], State::Revoked);
    claim.spend();
    assert_eq!(gate.book.get(once).unwrap().state, State::Revoked, "ended first, so it stays ended so");
}

#[test]
fn a_restarted_book_knows_what_was_recorded() {
    // GOV-1005: unconsumed approvals survive.
    let gate = Gate::open();
    let request = gate.request(ARGS);
    let granted = gate.approve(&request, Scope::Once);
    let text = serde_json::to_string(&granted).unwrap();
    let book = Arc::new(Book::default());
    book.enter(serde_json::from_str(&text).unwrap(), b"shown");
    assert_eq!(&*book.presented(granted.approval_id).unwrap(), b"shown");
    book.claim(&request, START).unwrap().spend();
    assert!(book.claim(&request, START).is_none());
}

#[tokio::test]
async fn who_waits_is_woken_by_the_decision() {
    let gate = Gate::open();
    let request = gate.request(ARGS);
    let id = gate.ask(&request, &[offer(Scope::Once, 1)]).approval_id;
    let mut state = gate.book.watch(id).unwrap();
    let granted = gate.book.grant(id, Scope::Once, &operator("alice"), "needed", START).unwrap();
    assert!(!state.has_changed().unwrap(), "not before it is durable");
    gate.book.apply(granted);
    assert_eq!(*state.wait_for(|state| *state != State::Pending).await.unwrap(), State::Approved);
}

#[test]
fn of_two_threads_that_claim_one_use_exactly_one_gets_it() {
    // T-PER-9: a thousand rounds.
    let gate = Gate::open();
    let request = gate.request(ARGS);
    let barrier = Barrier::new(2);
    let race = || {
        barrier.wait();
        let claim = gate.book.claim(&request, START);
        barrier.wait();
        claim.map(Claim::spend).is_some()
    };
    for round in 0..1000 {
        let id = gate.approve(&request, Scope::Once).approval_id;
        let (mine, theirs) = std::thread::scope(|scope| {
            let other = scope.spawn(race);
            (race(), other.join().unwrap())
        });
        assert!(mine != theirs, "round {round}: {mine} {theirs}");
        assert_eq!(gate.book.get(id).unwrap().state, State::Consumed);
    }
}
