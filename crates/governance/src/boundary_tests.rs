//! The eight checks, each broken alone, and what the log says afterwards (GOV-1003, GOV-705).

use portcullis_audit::Record;
use portcullis_core::{Lineage, LogId, Principal, ProposalId, Timestamp};

use super::*;
use crate::approval::{Scope, State};
use crate::fixture::{self, ARGS, Gate, START, Wire};
use crate::permit::DEFAULT_TTL;
use crate::record::ServerState;
use crate::registry::{ServerEntry, Trust};
use crate::session::{Checkpoint, Trigger};

/// The canonical spelling of [`ARGS`].
const CANONICAL_ARGS: &str = r#"{"limit":1,"path":"/srv/project/a.md"}"#;

/// A call that would be admitted, ready to be damaged.
struct Case {
    gate: Gate,
    request: CanonicalRequest,
    permit: Permit,
    lineage: Lineage,
    /// The session that asks, if it is not the gate's.
    session: Option<Session>,
}

impl Case {
    fn new() -> Self {
        let gate = Gate::open();
        let request = gate.request(ARGS);
        gate.approve(&request, Scope::Once);
        let permit = gate.permit(&request);
        let lineage = request.lineage().clone();
        Self { gate, request, permit, lineage, session: None }
    }

    /// Changes what the permit says and authenticates it again.
    fn forge(&mut self, change: impl FnOnce(&mut crate::permit::PermitBody)) {
        self.permit.tamper(|body, _| change(body));
        self.permit.reseal(&self.gate.mint);
    }

    /// Puts a changed server into force, under the policy that is in force.
    fn replace_server(&self, change: impl FnOnce(&mut ServerEntry)) {
        let mut server = self.gate.server.clone();
        change(&mut server);
        let policy = self.gate.active.current().policy().clone();
        self.gate.active.set(Registry::new([server], policy));
    }

    async fn admit(self) -> (Gate, Result<ValidatedPermit, Denied>, Vec<Record>) {
        let Case { gate, request, permit, lineage, session } = self;
        let mut trail = gate.trail(&request);
        let now = Now {
            registry: &gate.active,
            session: session.as_ref().unwrap_or(&gate.session),
            lineage: &lineage,
        };
        let proposal = Bytes::from_static(b"{}");
        let admitted = gate.boundary.admit(permit, request, &Wire, now, proposal, &mut trail).await;
        drop(trail);
        let records = gate.close();
        (gate, admitted, records)
    }
}

#[test]
fn a_permit_says_everything_it_is_for_and_its_seal_is_not_on_record() {
    // GOV-1001
    let case = Case::new();
    let recorded: serde_json::Value = serde_json::from_slice(case.permit.recorded()).unwrap();
    let members: Vec<&str> = recorded.as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = vec![
        "v",
        "permit_id",
        "aud",
        "tool_id",
        "registration_epoch",
        "declaration_sha256",
        "request_sha256",
        "scopes",
        "side_effects",
        "credential_classes",
        "policy_version",
        "canon_version",
        "approval_id",
        "envelope_id",
        "lineage",
        "trust",
        "checkpoint_epoch",
        "sandbox_profile_sha256",
        "issued",
        "exp",
        "nonce",
    ];
    expected.sort_unstable();
    assert_eq!(members, expected, "and no mac");
    assert_eq!(recorded["request_sha256"], case.request.sha256().to_string());
    assert_eq!(recorded["tool_id"], case.request.tool().id().to_string());
    assert_eq!(recorded["lineage"]["principal"], "agent:claude-code");
    assert_eq!(recorded["trust"]["min_state"], "untrusted");
    let lineage: Vec<&str> = recorded["lineage"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(lineage, ["parent", "principal", "session", "step"]);
}

fn names(records: &[Record]) -> Vec<&'static str> {
    records.iter().map(|record| record.event.as_str()).collect()
}

/// One damage: that check and no other refuses, nothing is intended, and the approval is whole again.
async fn is_denied(check: Check, damage: impl FnOnce(&mut Case)) {
    let mut case = Case::new();
    damage(&mut case);
    let (gate, admitted, records) = case.admit().await;
    match admitted {
        Err(Denied::Check(found)) => assert_eq!(found, check),
        other => panic!("{check:?}: {other:?}"),
    }
    let last = records.last().unwrap();
    assert_eq!(last.event, EventName::ExecutionDenied);
    assert_eq!(last.data["check"], check.as_str());
    let names = names(&records);
    assert!(!names.contains(&"execution.intent") && !names.contains(&"permit.validated"), "{names:?}");
    let approval = &gate.book.list(None)[0];
    assert_eq!((approval.state, approval.uses_left), (State::Approved, 1), "{check:?}");
}

#[tokio::test]
async fn an_admitted_call_is_on_disk_before_it_may_be_sent() {
    // GOV-705, GOV-704, AUD-1, AUD-2
    let gate = Gate::open();
    let request = gate.request(ARGS);
    let (document, sha256) = (request.document().to_vec(), request.sha256());
    let approval = gate.approve(&request, Scope::Once);
    let permit = gate.permit(&request);
    let permit_id = permit.id();
    let mut trail = gate.trail(&request);
    let validated = gate.admit(permit, request, &mut trail).await.unwrap();

    let frame = validated.frame();
    let expected = format!(
        r#"{{"id":1,"jsonrpc":"2.0","method":"tools/call","params":{{"name":"read_file","arguments":{CANONICAL_ARGS}}}}}"#
    );
    assert_eq!(frame.bytes, expected.as_bytes());
    assert!(validated.idempotent());

    // Nothing was closed or flushed for this: the intent is there because admit waited for it.
    let records = gate.records();
    let intent = records.iter().find(|record| record.event == EventName::ExecutionIntent).unwrap();
    assert_eq!(intent.data["request_sha256"], sha256.to_string());
    assert_eq!(intent.data["approval_id"], serde_json::json!(approval.approval_id));
    assert_eq!(intent.data["permit_id"], serde_json::json!(permit_id));
    let evidence = |role: Role| {
        let reference = intent.evidence.iter().find(|reference| reference.role == role).unwrap();
        gate.log.evidence(reference, intent.proposal).unwrap()
    };
    assert_eq!(evidence(Role::Canonical), document);
    assert_eq!(evidence(Role::Request), expected.as_bytes());
    assert_eq!(gate.book.get(approval.approval_id).unwrap().state, State::Consumed);

    let sealed = validated.seal(Outcome::Result(Bytes::from_static(br#"{"content":[]}"#)));
    let (released, seq) = gate.boundary.settle(sealed, &mut trail).await.unwrap();
    assert!(matches!(released, ReleasedResponse::Result(_)));
    let records = gate.close();
    assert_eq!(records[seq as usize].event, EventName::ExecutionResult);
    let order: Vec<_> = names(&records).into_iter().filter(|name| !name.starts_with("system.")).collect();
    let at = |name| order.iter().position(|found| *found == name).unwrap();
    assert!(at("permit.validated") < at("execution.intent"));
    assert!(at("execution.intent") < at("execution.result"));
}

#[tokio::test]
async fn check_1_refuses_what_this_process_did_not_mint() {
    // T-PER-1
    for bit in [0, 9, 255] {
        is_denied(Check::Authenticity, |case| case.permit.tamper(|_, mac| mac[bit / 8] ^= 1 << (bit % 8)))
            .await;
    }
    is_denied(Check::Authenticity, |case| case.permit.tamper(|body, _| body.lineage.step += 1)).await;
    is_denied(Check::Authenticity, |case| case.forge(|body| body.v = 2)).await;
    is_denied(Check::Authenticity, |case| case.forge(|body| body.aud = LogId::new(START))).await;
    // A permit of the process before the restart: same replica, another key (GOV-1002).
    is_denied(Check::Authenticity, |case| {
        case.permit.reseal(&Mint::new(case.gate.log.id(), case.gate.clock.clone(), DEFAULT_TTL));
    })
    .await;
}

#[tokio::test]
async fn check_2_refuses_an_expired_permit_whatever_is_done_to_the_clock() {
    // T-PER-2
    let hour = Duration::from_secs(3600);
    is_denied(Check::Expiry, |case| case.gate.wall.advance(DEFAULT_TTL)).await;
    is_denied(Check::Expiry, |case| case.gate.wall.set_wall(START.after(DEFAULT_TTL))).await;
    // Set back after it expired: uptime is not fooled.
    is_denied(Check::Expiry, |case| {
        case.gate.wall.advance(DEFAULT_TTL);
        case.gate.wall.set_wall(Timestamp::from_millis(START.as_millis() - hour.as_millis() as u64));
    })
    .await;
    // Set forward, seen, set back, with no time passed: the governance clock does not go back.
    is_denied(Check::Expiry, |case| {
        case.gate.wall.set_wall(START.after(DEFAULT_TTL));
        case.gate.clock.now();
        case.gate.wall.set_wall(Timestamp::from_millis(START.as_millis() - hour.as_millis() as u64));
    })
    .await;
    let case = Case::new();
    case.gate.wall.advance(DEFAULT_TTL - Duration::from_millis(1));
    assert!(case.admit().await.1.is_ok());
}

#[tokio::test]
async fn check_2_refuses_a_permit_from_before_the_policy_in_force() {
    // GOV-801, T-PER-9
    is_denied(Check::Expiry, |case| {
        case.gate.active.set(Registry::new([case.gate.server.clone()], fixture::strict(2)));
    })
    .await;
}

#[tokio::test]
async fn check_3_refuses_another_tool_registration_or_declaration() {
    // T-PER-3, GOV-602
    let registered = |epoch, counter| {
        move |case: &mut Case| {
            let server = fixture::entry(fixture::accepted(fixture::epoch(epoch), counter));
            case.replace_server(|entry| *entry = server);
        }
    };
    is_denied(Check::ToolIdentity, registered(8, 3)).await;
    is_denied(Check::ToolIdentity, registered(7, 4)).await;
    is_denied(Check::ToolIdentity, |case| {
        case.gate.active.set(Registry::new([], case.gate.active.current().policy().clone()));
    })
    .await;
    is_denied(Check::ToolIdentity, |case| {
        let other = case.gate.tool("write_file").id().clone();
        case.forge(|body| body.tool_id = other);
    })
    .await;
    is_denied(Check::ToolIdentity, |case| case.forge(|body| body.registration_epoch = fixture::epoch(8)))
        .await;
}

#[tokio::test]
async fn check_4_refuses_other_arguments_and_other_scopes() {
    // T-PER-4
    for place in [0, 40, 200] {
        is_denied(Check::ArgumentScope, |case| case.request.tamper(|document| document[place] ^= 1)).await;
    }
    // Another call with equal arguments: its nonce is another.
    is_denied(Check::ArgumentScope, |case| {
        let (tool, lineage) = (case.request.tool().clone(), case.request.lineage().clone());
        case.request = fixture::canonical(&tool, ARGS, lineage, &case.gate.key);
    })
    .await;
    is_denied(Check::ArgumentScope, |case| case.forge(|body| body.scopes.clear())).await;
    is_denied(Check::ArgumentScope, |case| case.forge(|body| body.scopes.push("more".parse().unwrap())))
        .await;
}

#[tokio::test]
async fn check_5_refuses_other_side_effects() {
    // T-PER-5
    is_denied(Check::SideEffectClass, |case| case.forge(|body| body.side_effects.push(SideEffect::Write)))
        .await;
    is_denied(Check::SideEffectClass, |case| case.forge(|body| body.side_effects.clear())).await;
}

#[tokio::test]
async fn check_6_refuses_another_session_principal_or_step() {
    // T-PER-6
    is_denied(Check::Lineage, |case| case.session = Some(fixture::session("claude-code"))).await;
    is_denied(Check::Lineage, |case| case.lineage.session = fixture::session("claude-code").id()).await;
    is_denied(Check::Lineage, |case| case.session = Some(fixture::session("other"))).await;
    is_denied(Check::Lineage, |case| {
        case.lineage.principal = Principal::agent("other").unwrap();
    })
    .await;
    is_denied(Check::Lineage, |case| case.lineage.step += 1).await;
    // GOV-1202: a session that is over sends nothing more.
    is_denied(Check::Lineage, |case| assert!(case.gate.session.end())).await;
    is_denied(Check::Lineage, |case| assert!(case.gate.session.expire())).await;
    is_denied(Check::Lineage, |case| {
        case.lineage.parent = Some(ProposalId::new(START));
    })
    .await;
}

#[tokio::test]
async fn check_7_refuses_a_halted_a_reset_and_a_distrusted_server() {
    // T-PER-7
    is_denied(Check::Trust, |case| case.gate.server.live.halt()).await;
    is_denied(Check::Trust, |case| {
        case.gate.server.live.halt();
        case.gate.server.live.resume();
    })
    .await;
    is_denied(Check::Trust, |case| case.forge(|body| body.trust.min_state = Trust::Probationary)).await;
    // GOV-1105: a violation by this tool kills its permits, one by another does not.
    is_denied(Check::Trust, |case| {
        let tool = case.gate.tool("read_file");
        case.gate.server.live.reset_tool(tool.id());
    })
    .await;
    is_denied(Check::Trust, |case| {
        case.replace_server(|server| Arc::make_mut(&mut server.record).state = ServerState::Halted);
    })
    .await;
}

fn stop(session: &Session) {
    let checkpoint = Checkpoint::new(session, Trigger::Operator, "looked at", START);
    assert!(session.open_checkpoint(checkpoint));
}

#[tokio::test]
async fn check_8_refuses_across_a_checkpoint() {
    // T-PER-8, GOV-1203
    is_denied(Check::Checkpoint, |case| stop(&case.gate.session)).await;
    is_denied(Check::Checkpoint, |case| {
        stop(&case.gate.session);
        case.gate.session.resolve_checkpoint();
    })
    .await;
    // One that resolves by itself, as with a policy activation.
    is_denied(Check::Checkpoint, |case| case.gate.session.pass_checkpoint()).await;
}

#[tokio::test]
async fn an_approval_that_ended_takes_its_permit_with_it() {
    // GOV-906: ended between issue and admission.
    for end in [State::Revoked, State::Invalidated] {
        let case = Case::new();
        let id = case.gate.book.list(None)[0].approval_id;
        case.gate.book.end(&[id], end);
        let (gate, admitted, records) = case.admit().await;
        assert!(matches!(admitted, Err(Denied::Check(Check::Expiry))), "{admitted:?}");
        assert!(!names(&records).contains(&"execution.intent"));
        assert_eq!(gate.book.get(id).unwrap().state, end);
    }
}

#[tokio::test]
async fn what_is_revoked_between_intent_and_send_is_not_sent() {
    // GOV-704 step 9
    let case = Case::new();
    // The trail looks first, for the policy's version; then admission, before and after its wait.
    case.gate.active.set_at_look(3, Registry::new([case.gate.server.clone()], fixture::strict(2)));
    let (gate, admitted, records) = case.admit().await;
    assert!(matches!(admitted, Err(Denied::Check(Check::Expiry))), "{admitted:?}");
    let tail = &records[records.len() - 3..];
    assert_eq!(names(tail), ["execution.intent", "execution.cancelled", "execution.denied"]);
    assert_eq!(tail[1].data["transmitted"], false);
    assert_eq!(tail[2].data["check"], "expiry");
    assert_eq!(gate.book.list(None)[0].uses_left, 1, "nothing was sent, so nothing is used up");
}

#[tokio::test]
async fn without_a_log_nothing_is_admitted_and_nothing_released() {
    // MP-FH-010, AUD-2
    let case = Case::new();
    case.gate.log.close();
    let (gate, admitted, _) = case.admit().await;
    assert!(matches!(admitted, Err(Denied::Audit(_))), "{admitted:?}");
    assert_eq!(gate.book.list(None)[0].uses_left, 1);

    let gate = Gate::open();
    let request = gate.request(ARGS);
    gate.approve(&request, Scope::Once);
    let permit = gate.permit(&request);
    let mut trail = gate.trail(&request);
    let validated = gate.admit(permit, request, &mut trail).await.unwrap();
    gate.log.close();
    let sealed = validated.seal(Outcome::Result(Bytes::from_static(b"{}")));
    assert!(gate.boundary.settle(sealed, &mut trail).await.is_err());
}

#[tokio::test]
async fn every_outcome_is_settled_by_its_own_events() {
    // GOV-1004, GOV-1005
    let raw = Bytes::from_static(br#"{"code":1,"message":"x"}"#);
    let unavailable = |sent| Outcome::Failed(TransmitFailure::Unavailable { reason: "EOF".into(), sent });
    let protocol = TransmitFailure::Protocol { reason: "two answers".into() };
    let cases: [(Outcome, &[&str]); 7] = [
        (Outcome::RpcError(raw.clone()), &["execution.result"]),
        (Outcome::TooLarge { bytes: 9, prefix: raw }, &["execution.result"]),
        (Outcome::Failed(TransmitFailure::Timeout), &["execution.result", "mcp.tool_timeout"]),
        (Outcome::Failed(protocol), &["execution.result", "mcp.server_unavailable"]),
        (unavailable(true), &["mcp.server_unavailable", "execution.indeterminate"]),
        (unavailable(false), &["mcp.server_unavailable", "execution.cancelled"]),
        (Outcome::Failed(TransmitFailure::Cancelled), &["execution.cancelled"]),
    ];
    let gate = Gate::open();
    for (outcome, expected) in cases {
        let request = gate.request(ARGS);
        gate.approve(&request, Scope::Once);
        let permit = gate.permit(&request);
        let mut trail = gate.trail(&request);
        let validated = gate.admit(permit, request, &mut trail).await.unwrap();
        let from = gate.log.next_seq();
        gate.boundary.settle(validated.seal(outcome), &mut trail).await.unwrap();
        let records: Vec<_> =
            portcullis_audit::read_from(gate.log.dir(), from).unwrap().map(Result::unwrap).collect();
        assert_eq!(names(&records), expected);
    }
    gate.close();
}

#[tokio::test]
async fn a_permit_that_an_operator_takes_back_is_refused_and_one_in_flight_is_flagged() {
    // GOV-1004
    is_denied(Check::Expiry, |case| {
        let revoked = case.gate.mint.live().revoke(|permit| !permit.in_flight, false);
        assert_eq!(revoked.len(), 1);
    })
    .await;
    let gate = Gate::open();
    let request = gate.request(ARGS);
    gate.approve(&request, Scope::Once);
    let mut trail = gate.trail(&request);
    let permit = gate.permit(&request);
    let validated = gate.admit(permit, request, &mut trail).await.unwrap();
    assert!(gate.mint.live().list()[0].in_flight);
    let mut killed = validated.killed();
    assert_eq!(gate.mint.live().revoke(|_| true, false).len(), 1);
    assert!(gate.mint.live().revoke(|_| true, false).is_empty(), "once is enough");
    assert!(!*killed.borrow_and_update());
    gate.mint.live().revoke(|_| true, true);
    assert!(*killed.borrow_and_update());
    let sealed = validated.seal(Outcome::Result(Bytes::from_static(b"{}")));
    gate.boundary.settle(sealed, &mut trail).await.unwrap();
    assert!(gate.mint.live().list().is_empty(), "what is settled is over");
    let records = gate.close();
    let result = records.iter().find(|record| record.event == EventName::ExecutionResult).unwrap();
    assert_eq!(result.data["revoked"], true);
}

/// A call that was sent and answered, and what its task would need.
async fn sent(gate: &Gate) -> (Continuation, Trail) {
    let request = gate.request(ARGS);
    gate.approve(&request, Scope::Once);
    let permit = gate.permit(&request);
    let lineage = request.lineage().clone();
    let mut trail = gate.trail(&request);
    let now = Now { registry: &gate.active, session: &gate.session, lineage: &lineage };
    let admitted = gate.boundary.admit(permit, request, &Wire, now, Bytes::new(), &mut trail).await.unwrap();
    let sealed = admitted.seal(Outcome::Result(Bytes::from_static(b"{}")));
    let continuation = sealed.continuation();
    gate.boundary.settle(sealed, &mut trail).await.unwrap();
    (continuation, trail)
}

const POLL: WireCall<'_> =
    WireCall { method: "tasks/get", name: Some("t"), params: br#""taskId":"t""#, mirrored: &[] };

#[tokio::test]
async fn a_question_about_a_task_belongs_to_the_permit_of_its_call() {
    // PRO §3: each upstream poll belongs to the original permit
    let gate = Gate::open();
    let (continuation, mut trail) = sent(&gate).await;
    for _ in 0..2 {
        let followed = gate.boundary.follow(&continuation, &gate.active, &POLL, &Wire, &mut trail).await;
        let followed = followed.unwrap();
        assert_eq!(followed.permit_id(), continuation.permit_id());
        let sealed = followed.seal(Outcome::RpcError(Bytes::from_static(b"{}")));
        let (released, _) = gate.boundary.settle(sealed, &mut trail).await.unwrap();
        assert!(matches!(released, ReleasedResponse::RpcError(_)));
    }
    drop(trail);
    let records = gate.close();
    let of = |name: &str| records.iter().filter(|record| record.event.as_str() == name).count();
    // One call, one intent, one result, however often it is asked about.
    assert_eq!((of("execution.intent"), of("execution.result")), (1, 1));
    assert_eq!((of("execution.task_request"), of("execution.task_answer")), (2, 2));
}

#[tokio::test]
async fn a_task_is_not_asked_about_once_its_call_could_not_be_made_any_more() {
    // GOV-1004, GOV-1003: a halted server, another registration, a trust that was taken back, a permit that was
    type Change = fn(&Gate, &Continuation);
    let changes: [(Check, Change); 3] = [
        (Check::Trust, |gate, _| gate.server.live.halt()),
        (Check::ToolIdentity, |gate, _| {
            let mut server = gate.server.clone();
            Arc::make_mut(&mut server.record).registration_epoch = fixture::epoch(9);
            let policy = gate.active.current().policy().clone();
            gate.active.set(Registry::new([server], policy));
        }),
        (Check::Expiry, |gate, continuation| {
            let id = continuation.permit_id();
            assert_eq!(gate.mint.live().revoke(|permit| permit.permit_id == id, false).len(), 1);
        }),
    ];
    for (check, change) in changes {
        let gate = Gate::open();
        let (continuation, mut trail) = sent(&gate).await;
        change(&gate, &continuation);
        let followed = gate.boundary.follow(&continuation, &gate.active, &POLL, &Wire, &mut trail).await;
        assert!(matches!(followed, Err(Denied::Check(found)) if found == check), "{check:?}: {followed:?}");
        drop(trail);
        let records = gate.close();
        assert!(!names(&records).contains(&"execution.task_answer"));
    }
}
