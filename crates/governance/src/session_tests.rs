use std::sync::Arc;

use portcullis_core::ProposalId;

use super::roll::IDLE;
use super::*;
use crate::fixture::{Gate, START, canonical, session};

const ALL: CheckpointRules =
    CheckpointRules { class_escalation: true, scope_expansion: true, call_budget: Some(2) };

fn only(rules: impl FnOnce(&mut CheckpointRules)) -> CheckpointRules {
    let mut some = CheckpointRules::default();
    rules(&mut some);
    some
}

fn call(gate: &Gate, tool: &str, path: &str) -> CanonicalRequest {
    let args = format!(r#"{{"path":"/srv/project/{path}"}}"#);
    canonical(&gate.tool(tool), &args, gate.session.next_step(None), &gate.key)
}

fn approach(gate: &Gate, request: &CanonicalRequest, rules: &CheckpointRules) -> Passage {
    gate.session.approach(request, rules, ProposalId::new(START), START)
}

#[tokio::test]
async fn a_class_that_is_new_to_a_session_stops_it_until_that_call_is_approved() {
    // GOV-1203
    let gate = Gate::open();
    let rules = only(|rules| rules.class_escalation = true);
    let (read, write) = (call(&gate, "read_file", "a"), call(&gate, "write_file", "a"));
    assert!(matches!(approach(&gate, &read, &rules), Passage::Free), "reading is no escalation");
    gate.session.remember(&read);
    let epoch = gate.session.checkpoint_epoch();
    let Passage::Opened(opened) = approach(&gate, &write, &rules) else { panic!("writing is one") };
    assert_eq!(
        (opened.trigger, opened.reason.as_str()),
        (Trigger::ClassEscalation, "new to the session: write")
    );
    assert_eq!(gate.session.state(), SessionState::Suspended);
    assert_eq!(gate.session.checkpoint_epoch(), epoch + 1);

    // Everything else is stopped, also what was fine before; the same call waits.
    assert!(matches!(approach(&gate, &read, &rules), Passage::Stopped(_)));
    assert!(matches!(approach(&gate, &call(&gate, "write_file", "b"), &rules), Passage::Stopped(_)));
    assert!(matches!(approach(&gate, &call(&gate, "write_file", "a"), &rules), Passage::Awaits));

    assert_eq!(gate.session.resolve_checkpoint().unwrap().trigger, Trigger::ClassEscalation);
    assert_eq!(gate.session.checkpoint_epoch(), epoch + 2);
    assert!(
        matches!(approach(&gate, &call(&gate, "write_file", "b"), &rules), Passage::Free),
        "no longer new"
    );
    assert!(gate.session.resolve_checkpoint().is_none());
}

#[tokio::test]
async fn scopes_and_budgets_stop_a_session_too() {
    // GOV-1203
    let gate = Gate::open();
    let scopes = only(|rules| rules.scope_expansion = true);
    let read = call(&gate, "read_file", "a");
    assert!(
        matches!(approach(&gate, &read, &scopes), Passage::Free),
        "the first call is where a session begins"
    );
    gate.session.remember(&read);
    let Passage::Opened(opened) = approach(&gate, &call(&gate, "write_file", "a"), &scopes) else { panic!() };
    assert_eq!(
        (opened.trigger, opened.reason.as_str()),
        (Trigger::ScopeExpansion, "new to the session: filesystem/ws")
    );
    gate.session.resolve_checkpoint();

    let budget = only(|rules| rules.call_budget = Some(2));
    assert!(matches!(approach(&gate, &read, &budget), Passage::Free));
    gate.session.remember(&read);
    gate.session.remember(&read);
    let Passage::Opened(opened) = approach(&gate, &read, &budget) else { panic!("two calls were made") };
    assert_eq!(opened.trigger, Trigger::CallBudget);
    gate.session.resolve_checkpoint();
    assert!(matches!(approach(&gate, &read, &budget), Passage::Free), "the budget begins anew");
    // Without rules nothing is looked at.
    gate.session.remember(&read);
    gate.session.remember(&read);
    assert!(matches!(approach(&gate, &read, &CheckpointRules::default()), Passage::Free));
    assert!(matches!(approach(&gate, &read, &ALL), Passage::Opened(_)));
}

#[tokio::test]
async fn the_first_checkpoint_stays_until_it_is_resolved() {
    // GOV-1203
    let gate = Gate::open();
    let checkpoint = |reason: &str| Checkpoint::new(&gate.session, Trigger::Operator, reason, START);
    assert!(gate.session.open_checkpoint(checkpoint("first")));
    assert!(!gate.session.open_checkpoint(checkpoint("second")));
    assert_eq!(gate.session.checkpoint().unwrap().reason, "first");
    let epoch = gate.session.checkpoint_epoch();
    gate.session.pass_checkpoint();
    assert!(gate.session.checkpoint_open(), "one that passes resolves no other");
    assert_eq!(gate.session.checkpoint_epoch(), epoch + 2);
}

#[test]
fn sessions_expire_end_and_are_struck_out() {
    // GOV-1202
    let roll = Roll::default();
    let (web, stdio) = (Arc::new(session("web")), Arc::new(session("stdio")));
    roll.enter(&web, false);
    roll.enter(&stdio, true);
    assert_eq!(roll.list().len(), 2);
    let before = START.after(IDLE - std::time::Duration::from_secs(1));
    assert!(roll.sweep(before).expired.is_empty());
    web.touch(before);
    assert!(roll.sweep(START.after(IDLE)).expired.is_empty(), "it was used meanwhile");
    let gone = roll.sweep(before.after(IDLE));
    assert_eq!(gone.expired.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [web.id()]);
    assert_eq!(web.state(), SessionState::Expired);
    assert!(!web.end(), "it is over already");
    assert!(roll.get(web.id()).is_none() && roll.get(stdio.id()).is_some(), "a connection may be silent");
    let id = stdio.id();
    drop(stdio);
    let gone = roll.sweep(START);
    assert_eq!(gone.left.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [id]);
    assert!(roll.list().is_empty());
}

#[tokio::test]
async fn a_client_that_comes_back_is_as_stopped_as_it_was() {
    // GOV-1203, GOV-1202
    let gate = Gate::open();
    let rules = only(|rules| rules.class_escalation = true);
    let (read, write) = (call(&gate, "read_file", "a"), call(&gate, "write_file", "a"));
    let Passage::Opened(opened) = approach(&gate, &write, &rules) else { panic!("writing is new") };
    let recorded = serde_json::to_value(&opened).unwrap();
    let restored: Checkpoint = serde_json::from_value(recorded).unwrap();
    assert_eq!(restored, *opened, "nothing of it is forgotten");

    let session = Arc::new(Session::stopped(restored, START));
    assert_eq!((session.id(), session.state()), (gate.session.id(), SessionState::Suspended));
    let pass = |request| session.approach(request, &rules, ProposalId::new(START), START);
    assert!(matches!(pass(&read), Passage::Stopped(_)));
    assert!(matches!(pass(&write), Passage::Awaits), "an equal call is the one whose approval is waited for");

    let roll = Roll::default();
    let (principal, client) = (session.principal().clone(), session.client().to_owned());
    roll.enter(&session, true);
    let id = session.id();
    drop(session);
    assert!(roll.sweep(START).left.is_empty(), "it does not get rid of the checkpoint by leaving");
    let found = roll.stopped(&principal, &client).unwrap();
    assert_eq!(found.id(), id);
    assert!(roll.stopped(&principal, "somebody else").is_none());
    found.resolve_checkpoint();
    assert!(roll.stopped(&principal, &client).is_none());
    drop(found);
    assert_eq!(roll.sweep(START).left.len(), 1, "what nothing stops is over when its client has left");
}
