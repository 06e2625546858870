//! One `tools/call` (or `resources/read`, `prompts/get`, `completion/complete`), from proposal to result: ten steps, each a function from one type to the next (GOV-704).
//!
//! ```text
//!  1 intake      which tool, which arguments, which lineage        Call            -> Proposal
//!  2 canonical   resolve, screen, canonicalise                     Proposal        -> CanonicalRequest
//!  3 policy      Cedar: invoke? invokeUnattended?                  CanonicalRequest-> Decision
//!  4 evidence    what would be shown and signed                    Decision        -> Evidence
//!  5 approval    needed? ask, wait, or AUTH_REQUIRED               Evidence        -> Authorised
//!  6 record      the approval, bound to the identity               (in Control, by an operator)
//!  7 permit      minted for exactly this request                   Authorised      -> Permit
//!  8 boundary    eight checks, redeemed once, intent durable       Permit          -> ValidatedPermit
//!  9 transmit    takes ValidatedPermit by value                    ValidatedPermit -> SealedResponse
//! 10 result      durable before it is released                     SealedResponse  -> Response
//! ```
//!
//! Steps 1 to 8 wait for nothing but an approval and a connection; the one commit at the boundary makes all of
//! their events durable (GOV-705). Every refusal leaves through one [`ErrorDocument`], after its event.

mod approving;
mod asking_ahead;
mod ceilings;
pub(crate) mod gating;
pub(crate) mod questioning;
mod remembering;
mod stopping;
pub(crate) mod subscribing;
pub(crate) mod tasks;
pub(crate) mod unusable;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use portcullis_audit::{AuditBlocked, AuditLog, EventName};
use portcullis_context::Repair;
use portcullis_core::error::ErrorDocument;
use portcullis_core::error::{Fault, one_line};
use portcullis_core::{Actor, Clock, ErrorCode, Item, LogId, Principal, ProposalId, Secret, failpoint};
use portcullis_gauntlet::{
    Args, Gauntlet, GauntletError, Grants, PagesWanted, ResultType, SafeResult, Screened, recheck, screen,
};
use portcullis_governance::approval::{Book, State};
use portcullis_governance::boundary::{
    Boundary, CancellationSignal, Continuation, Denied, Now, ReleasedResponse, SealedResponse,
    ValidatedPermit,
};
use portcullis_governance::declaration::Via;
use portcullis_governance::evidence::Evidence;
use portcullis_governance::notes::{Canonicalized, EnvelopeUsed, Evaluated, Received};
use portcullis_governance::permit::{Mint, Permit};
use portcullis_governance::policy::{Authorised, Circumstances, Decision, Verdict};
use portcullis_governance::record::Transport;
use portcullis_governance::registry::{Availability, ToolEntry};
use portcullis_governance::request::{CanonicalRequest, RequestError};
use portcullis_governance::session::{Roll, Session};
use portcullis_governance::trail::Trail;
use portcullis_store::SharedError;
use portcullis_upstream::{Beside, Live, UpstreamError, Wants};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::access::Access;
use crate::access::agent_keys::AgentKeys;
use crate::alarms::Alarms;
use crate::edge::attendant::Attendant;
use crate::gates::Gates;
use crate::lifecycle::stopping::Passing;
use crate::long_work::off_the_async_threads;
use crate::remembered::Remembered;
use crate::replay::Replaying;
use crate::replicas::Replicas;
use crate::target::{Found, Target};
use crate::turns::Turn;
use crate::upstreams::{Caller, Channel};
use crate::world::{World, WorldCell};

/// After a wait for an approval that was longer than this, gates are asked again.
const STILL_TRUE: Duration = Duration::from_secs(2);

/// What the lifecycle works with. The control plane makes one.
#[derive(Debug)]
pub struct Lifecycle {
    pub(crate) world: Arc<WorldCell>,
    pub(crate) log: AuditLog,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) book: Arc<Book>,
    /// The sessions there are.
    pub(crate) sessions: Arc<Roll>,
    pub(crate) mint: Mint,
    pub(crate) boundary: Boundary,
    pub(crate) fingerprint_key: Secret<[u8; 32]>,
    pub(crate) approval_wait: Duration,
    /// Where operators decide in the browser.
    pub(crate) console: Option<String>,
    /// The others, if there are several replicas.
    pub(crate) replicas: Option<Arc<Replicas>>,
    /// Calls are answered from here instead of being made, if the operator said so.
    pub(crate) replaying: Option<Replaying>,
    pub(crate) gauntlet: Arc<Gauntlet>,
    /// What stands before some tools, by the operator's configuration.
    pub(crate) gates: Arc<Gates>,
    /// What somebody should look at.
    pub(crate) alarms: Arc<Alarms>,
    /// What was answered lately.
    pub(crate) remembered: Remembered,
    /// What operators ordered about agents and tools.
    pub(crate) orders: Arc<crate::orders::OrdersCell>,
    /// The keys of agents, which say what groups they are in.
    pub(crate) keys: Arc<AgentKeys>,
    /// What of their cages operators waived for servers.
    pub(crate) waivers: Arc<portcullis_upstream::waivers::Waivers>,
    /// Who has which turn.
    pub(crate) turns: Arc<crate::turns::Turns>,
    /// What is used of quotas.
    pub(crate) meter: Arc<crate::quotas::Meter>,
    /// Held from asking for an approval until it is in the book, so that equal requests join one.
    pub(crate) asking: tokio::sync::Mutex<()>,
    /// Tells the control plane about servers that broke their declaration.
    pub(crate) violations: mpsc::UnboundedSender<Violation>,
}

/// A server did something that was not declared.
#[derive(Debug)]
pub struct Violation {
    /// Which.
    pub server: portcullis_core::ServerIdentity,
    /// What kind.
    pub fault: Fault,
    /// The tools that are to blame; all of the server if nobody can tell.
    pub tools: Vec<String>,
    /// In our words.
    pub reason: String,
}

/// What an agent asks for, as the edge understood it.
#[derive(Debug, Clone)]
pub struct Call {
    /// The agent's session.
    pub session: Arc<Session>,
    /// What the client calls itself; not trusted.
    pub client: String,
    /// Whether the agent proved who it is.
    pub authenticated: bool,
    /// What the operator lets it do at most, as it was when the call came in.
    pub grants: Grants,
    /// The groups that policy knows it by (GOV-802).
    pub groups: Vec<String>,
    /// Who knows what that is later.
    pub(crate) access: Arc<Access>,
    /// The message as received: evidence.
    pub message: Bytes,
    /// What it wants, by the name it knows.
    pub target: Target,
    /// The arguments, unparsed.
    pub arguments: Option<Box<RawValue>>,
    /// What was repaired of them.
    pub repairs: Vec<Repair>,
    /// The proposal whose questions this one answers (GOV-408).
    pub parent: Option<ProposalId>,
    /// Whether its client was asked something for it: what it then comes to is given to nobody else (PRO-69).
    pub after_questions: bool,
    /// What it wants said around the arguments.
    pub wants: Wants,
    /// Whether it only fetches the document of a gate: it is not gated itself, and nobody is asked to approve it.
    pub(crate) is_source: bool,
    /// Who attends to the call while the server works on it.
    pub(crate) attendant: Arc<Attendant>,
    /// Tells when the agent no longer wants the answer.
    pub cancel: CancellationSignal,
}

/// An answer that may be shown to the agent.
#[derive(Debug)]
pub struct Response {
    /// The answer.
    pub answered: Answered,
    /// The proposal it answers.
    pub proposal: ProposalId,
    /// What was asked.
    pub entry: Arc<ToolEntry>,
    /// Which era the server speaks, for what differs between them.
    pub upstream: portcullis_upstream::Era,
    /// Which call it came from: the proposal, and where its evidence is.
    pub mark: Value,
    /// Whether it was given before.
    pub cache_hit: bool,
}

/// What would happen to a call.
#[derive(Debug)]
pub(crate) struct Rehearsal {
    /// What would be called.
    pub(crate) entry: Arc<ToolEntry>,
    /// What policy says.
    pub(crate) verdict: Verdict,
    /// Where it is on record.
    pub(crate) proposal: ProposalId,
}

/// What a server answered.
#[derive(Debug)]
pub enum Answered {
    /// A result.
    Result(SafeResult),
    /// Questions, whose answers a repeated call brings along.
    InputRequired(SafeResult),
    /// Pages to be visited before the call is repeated as it was (PRO-70).
    PagesWanted(PagesWanted),
    /// A task: it goes on, and is asked about.
    Task(Box<tasks::Begun>),
    /// A JSON-RPC error of its own.
    Failure(UpstreamFailure),
}

/// A server's own JSON-RPC error.
#[derive(Debug)]
pub struct UpstreamFailure {
    /// Its code: never one of ours (GOV-1601).
    pub code: i32,
    /// Its text, safe to show.
    pub message: String,
    /// Whatever else it said.
    pub data: Option<Value>,
}

/// Step 1's product: a proposal about something that exists, with its trail open.
pub(crate) struct Proposal {
    id: ProposalId,
    world: Arc<World>,
    entry: Arc<ToolEntry>,
    /// What was in the name itself, where the name holds the arguments.
    arguments: Option<Box<RawValue>>,
    pub(crate) trail: Trail,
    pub(crate) lineage: portcullis_core::Lineage,
    /// How it passes the checkpoint of its session.
    passing: Passing,
    log: LogId,
}

/// What intake turned away. There is no trail where nothing can be recorded.
struct Unknown {
    document: ErrorDocument,
    trail: Option<Trail>,
}

impl Lifecycle {
    /// The whole path.
    pub async fn call(&self, call: &Call) -> Result<Response, ErrorDocument> {
        let mut proposal = match self.intake(call) {
            Ok(proposal) => proposal,
            Err(Unknown { document, trail }) => return Err(on_record(document, trail).await),
        };
        match self.governed(call, &mut proposal).await {
            Ok(response) => Ok(response),
            Err(document) => {
                let document = document.with("proposal_id", json!(proposal.id));
                Err(on_record(document, Some(proposal.trail)).await)
            }
        }
    }

    /// Steps 1 to 3 alone: what would happen. Nothing is sent, kept or used up (CTX-73).
    pub(crate) fn rehearse(&self, call: &Call) -> Result<Rehearsal, ErrorDocument> {
        let mut proposal = self.intake(call).map_err(|unknown| unknown.document)?;
        let entry = proposal.entry.clone();
        let mut rehearsed = || {
            let (request, _) = self.canonicalise(call, &entry, &mut proposal)?;
            Ok(self.decide(call, &request, &entry, &mut proposal)?.verdict())
        };
        let outcome: Result<Verdict, ErrorDocument> = rehearsed();
        let said =
            outcome.as_ref().map_or_else(|document| document.error.as_str(), |verdict| verdict.as_str());
        proposal.trail.note(EventName::ProposalDryRun, json!({"outcome": said}));
        match outcome {
            Ok(verdict) => Ok(Rehearsal { entry, verdict, proposal: proposal.id }),
            Err(document) => Err(document.with("proposal_id", json!(proposal.id))),
        }
    }

    async fn governed(&self, call: &Call, proposal: &mut Proposal) -> Result<Response, ErrorDocument> {
        let entry = &*proposal.entry.clone();

        self.is_in_touch(entry, proposal)?;
        let (request, screened) = self.canonicalise(call, entry, proposal)?;
        let decision = self.decide(call, &request, entry, proposal)?;
        self.may_hold_credentials(entry, proposal)?;
        // Nobody is asked about what would be refused all the same.
        if self.replaying.is_none() {
            self.is_isolated(entry, proposal)?;
        }
        let ceiling = self.below_ceilings(call, entry, proposal)?;
        self.pass_checkpoint(call, &request, entry, proposal)?;
        self.pass_gates(call, request.args(), entry, proposal).await?;
        let remembers = self.remembers(call, entry, &decision) && !ceiling.asks;
        if remembers && let Some(response) = self.answer_again(&request, entry, proposal).await? {
            return Ok(response);
        }
        let evidence = self.prepare_evidence(&request, entry, &decision, proposal);
        let asked = std::time::Instant::now();
        let authorised =
            self.approve(call, &request, entry, (&decision, &ceiling), &evidence, proposal).await?;
        // SURF-91: what was true before somebody thought about it may not be any more.
        if asked.elapsed() > STILL_TRUE {
            self.pass_gates(call, request.args(), entry, proposal).await?;
        }
        let _turn = self.take_turn(call, entry, proposal).await;
        call.session.remember(&request);
        let permit = self.issue(authorised, entry, call, proposal);
        call.attendant.covered_by(permit.covering());
        if let Some(replaying) = self.replaying.as_ref().filter(|r| r.stands_for(entry.tool.replay())) {
            return self.replay(replaying, permit, (request, screened), entry, call, proposal).await;
        }
        let fingerprint = request.fingerprint();
        let recorded = self.replaying.as_ref().and_then(|r| Some((r, r.recorded(entry, request.args())?)));
        let (validated, channel) = self.admit(permit, request, entry, call, proposal).await?;
        let sealed = self.transmit(validated, &channel, call).await;
        // Only a client that takes tasks can be answered with one.
        let may_be_a_task = tasks::may_be_begun(call, entry, channel.greeting());
        let continuation = may_be_a_task.then(|| sealed.continuation());
        let era = channel.greeting().era;
        let again = recorded.map(|(r, recorded)| r.compare(&recorded, &sealed, &mut proposal.trail));
        let mut response = self.release(sealed, screened, continuation, era, entry, proposal).await?;
        if let Some(again) = again {
            again.tell(&mut response);
        }
        self.count_result(call, entry, &response);
        // PRO-69: what it said may rest on what its client was asked meanwhile.
        if remembers && !call.attendant.was_asked() {
            self.remember(fingerprint, &response, entry);
        }
        Ok(response)
    }

    /// Step 1. Which tool, which lineage. An unknown name and an undeclared tool look the same (MP-FH-002).
    fn intake(&self, call: &Call) -> Result<Proposal, Unknown> {
        if let Some(AuditBlocked { reason }) = self.log.blocked() {
            return Err(Unknown { document: blocked(call.target.name(), &reason), trail: None });
        }
        let id = ProposalId::new(self.clock.now());
        let lineage = call.session.next_step(call.parent);
        let mut trail = Trail::open(&self.log, id, &lineage);
        let arguments_bytes = call.arguments.as_ref().map_or(0, |args| args.get().len());
        let (client, name) = (one_line(&call.client), one_line(call.target.name()));
        let traceparent = call.wants.trace.parent();
        let received = Received { arguments_bytes, client: &client, name: &name, traceparent };
        let world = self.world.load();
        let Some(Found { entry, arguments }) = call.target.find(world.registry()) else {
            trail.note(EventName::ProposalReceived, received);
            trail.note(EventName::McpUngovernedToolSurface, json!({"code": "MP-FH-002", "name": name}));
            let document = call.target.unknown().with("proposal_id", json!(id));
            return Err(Unknown { document, trail: Some(trail) });
        };
        call.attendant.serve(&entry, call, id);
        if let Item::Request(_) = entry.tool.id().item() {
            trail.by(Actor::server(entry.tool.id().server().as_str()));
        }
        trail.about(&entry.tool, entry.server.trust_in(entry.tool.id()).as_str());
        trail.note(EventName::ProposalReceived, received);
        let passing = Passing::Freely;
        Ok(Proposal { id, world, entry, arguments, trail, lineage, passing, log: self.log.id() })
    }

    /// The groups that policy knows an agent by (GOV-802).
    pub(crate) fn groups_of(&self, principal: &Principal) -> Vec<String> {
        self.keys.groups_of(principal, self.orders.load().team(principal), self.clock.now())
    }

    /// A replica that cannot reach the others does not know what they halted or took back (AUD-68).
    fn is_in_touch(&self, entry: &ToolEntry, proposal: &mut Proposal) -> Result<(), ErrorDocument> {
        let Some(reason) = self.replicas.as_ref().and_then(|replicas| replicas.down()) else { return Ok(()) };
        tracing::error!(reason, "calls are refused: the shared state cannot be reached");
        let document = out_of_touch(entry.tool.id().short());
        let data = json!({"error": document.error.as_str(), "message": document.message, "step": 1});
        proposal.trail.note(EventName::ProposalRefused, data);
        Err(document)
    }

    /// A use of an approval is taken where all replicas take theirs, before the intent is written: what is allowed once
    /// happens once (AUD-68).
    async fn take_use(
        &self,
        permit: &Permit,
        entry: &ToolEntry,
        proposal: &mut Proposal,
    ) -> Result<(), ErrorDocument> {
        let (Some(replicas), Some(approval)) = (&self.replicas, permit.approval_id()) else { return Ok(()) };
        let path = entry.tool.id().short();
        let document = match replicas.take_use(approval, proposal.id).await {
            Ok(()) => {
                if let Some((log, seq)) = replicas.decided_elsewhere(approval) {
                    proposal.trail.because_of(log, seq);
                }
                return Ok(());
            }
            Err(SharedError::Spent(_)) => {
                self.book.end(&[approval], State::Consumed);
                let message =
                    "the approval for this call has been used already; call again to ask for another";
                let document = ErrorDocument::new(ErrorCode::PolicyDenied, path, message);
                document.with("code", "approval_used").with("approval_id", json!(approval))
            }
            Err(error) => {
                tracing::error!(%error, "no use of an approval can be taken");
                out_of_touch(path)
            }
        };
        let denied = json!({"check": "approval", "permit_id": permit.id()});
        proposal.trail.note(EventName::ExecutionDenied, denied);
        Err(document)
    }

    /// Step 2. Strict parsing, what the caller may do, the input schema, argument scopes, one canonical form.
    fn canonicalise(
        &self,
        call: &Call,
        entry: &ToolEntry,
        proposal: &mut Proposal,
    ) -> Result<(CanonicalRequest, Screened), ErrorDocument> {
        let refuse = |proposal: &mut Proposal, document: ErrorDocument| {
            // Names of arguments are the caller's, and may be anything.
            let message = portcullis_core::scrub::scrub(&document.message);
            let data = json!({"error": document.error.as_str(), "message": message, "step": 2});
            proposal.trail.note(EventName::ProposalRefused, data);
            document
        };
        if !entry.server.is_active() {
            let reason = entry.server.record.halt.as_deref().unwrap_or("halted");
            let message = format!("server '{}' is halted: {reason}", entry.tool.id().server());
            let document = ErrorDocument::fault(Fault::NotAccepted, entry.tool.id().short(), message);
            return Err(refuse(proposal, document));
        }
        let orders = self.orders.load();
        if let Some(order) = orders.tool(entry.tool.id().short()) {
            ceilings::is_in_use(order, call, entry).map_err(|document| refuse(proposal, document))?;
        }
        // GOV-502: the world that this call was found in may be older than the last look at the server.
        if entry.server.live.availability(entry.tool.id()) != Availability::Accepted {
            let message =
                "the server has changed or withdrawn it; it waits for an operator to accept what it is now";
            let document = ErrorDocument::fault(Fault::NotAccepted, entry.tool.id().short(), message);
            return Err(refuse(proposal, document));
        }
        let arguments = proposal.arguments.as_deref().or(call.arguments.as_deref());
        let bytes = arguments.map_or(0, |arguments| arguments.get().len());
        let checked = off_the_async_threads(bytes, || {
            parse_arguments(arguments, entry).and_then(|args| screen(entry.tool.spec(), &call.grants, args))
        });
        let screened = checked.map_err(|error| refuse(proposal, gauntlet_refusal(&error, entry)))?;
        let request =
            CanonicalRequest::new(&entry.tool, &screened, proposal.lineage.clone(), &self.fingerprint_key)
                .map_err(|error| refuse(proposal, request_refusal(&error, entry)))?;
        proposal.trail.note(
            EventName::ProposalCanonicalized,
            Canonicalized {
                fingerprint: request.fingerprint(),
                request_sha256: request.sha256(),
                scopes: request.tool().scopes(),
                side_effects: request.tool().side_effects(),
            },
        );
        Ok((request, screened))
    }

    /// Step 3. Default deny.
    fn decide<'r>(
        &self,
        call: &'r Call,
        request: &'r CanonicalRequest,
        entry: &'r ToolEntry,
        proposal: &mut Proposal,
    ) -> Result<Decision<'r>, ErrorDocument> {
        let decision = self.evaluate(call, request, entry, proposal);
        proposal.trail.note(
            EventName::PolicyEvaluated,
            Evaluated { decision: decision.verdict().as_str(), reasons: decision.reasons() },
        );
        if decision.verdict() == Verdict::Denied {
            return Err(denied_by_policy(&decision, entry));
        }
        Ok(decision)
    }

    /// What policy says, before anybody is told.
    fn evaluate<'r>(
        &self,
        call: &'r Call,
        request: &'r CanonicalRequest,
        entry: &'r ToolEntry,
        proposal: &mut Proposal,
    ) -> Decision<'r> {
        let policy = proposal.world.registry().policy();
        let circumstances = Circumstances {
            authenticated: call.authenticated,
            client: &call.client,
            groups: &call.groups,
            session_calls: call.session.steps(),
            now: self.clock.now(),
        };
        let decision = policy.decide(request, &entry.facts, &circumstances);
        proposal.trail.under(decision.policy());
        decision
    }

    /// A process is given a credential in its environment only where policy allows it, now as when it was registered.
    fn may_hold_credentials(&self, entry: &ToolEntry, proposal: &mut Proposal) -> Result<(), ErrorDocument> {
        let allowed = proposal.world.registry().policy().settings().allows_env_credentials();
        if allowed || entry.tool.deliveries().iter().all(|delivery| delivery.via != Via::Env) {
            return Ok(());
        }
        let message =
            "policy allows no credentials in the environment of a process (`allow_env_credentials`)";
        let document = ErrorDocument::new(ErrorCode::PolicyDenied, entry.tool.id().short(), message);
        let data = json!({"error": document.error.as_str(), "message": message, "step": 3});
        proposal.trail.note(EventName::ProposalRefused, data);
        Err(document.with("code", "env_credentials"))
    }

    /// Step 4. Everything the decision rests on, frozen.
    fn prepare_evidence(
        &self,
        request: &CanonicalRequest,
        entry: &ToolEntry,
        decision: &Decision<'_>,
        proposal: &mut Proposal,
    ) -> Evidence {
        let evidence = Evidence::prepare(request, entry, decision.policy());
        proposal.trail.note(EventName::EvidencePrepared, evidence.frozen());
        evidence
    }

    /// A child of the legacy era does not say which call a question of its belongs to. If it may ask at all, its
    /// calls take turns, so that there is only one it can be (PRO-21).
    async fn take_turn(&self, call: &Call, entry: &ToolEntry, proposal: &Proposal) -> Option<Turn> {
        if !asks_without_saying_for_what(entry) {
            return None;
        }
        let server = entry.tool.id().server();
        let turn = proposal.world.upstream(server)?.turn().await;
        Some(self.turns.enter(turn, call.session.principal(), server, self.clock.now()))
    }

    /// The same for the questions of a task.
    pub(crate) async fn turn_of(&self, entry: &ToolEntry) -> Option<tokio::sync::OwnedMutexGuard<()>> {
        if !asks_without_saying_for_what(entry) {
            return None;
        }
        let world = self.world.load();
        Some(world.upstream(entry.tool.id().server())?.turn().await)
    }

    /// Step 7. One permit, for exactly this request.
    fn issue(
        &self,
        authorised: Authorised<'_>,
        entry: &ToolEntry,
        call: &Call,
        proposal: &mut Proposal,
    ) -> Permit {
        let permit = self.mint.issue(authorised, &entry.server, &call.session);
        proposal.trail.note_canonical(EventName::PermitIssued, permit.recorded());
        if let Some(envelope_id) = permit.envelope_id() {
            proposal
                .trail
                .note(EventName::EnvelopeUsed, EnvelopeUsed { envelope_id, permit_id: permit.id() });
        }
        failpoint::pass("permit.after_issue");
        permit
    }

    /// Step 8. The connection is up before the intent is written, so that an intent without a result can only
    /// mean that bytes may have left.
    async fn admit(
        &self,
        permit: Permit,
        request: CanonicalRequest,
        entry: &ToolEntry,
        call: &Call,
        proposal: &mut Proposal,
    ) -> Result<(ValidatedPermit, Channel), ErrorDocument> {
        let path = entry.tool.id().short();
        self.is_isolated(entry, proposal)?;
        // PRO-63: what may be asked is what the declaration lists and this client can do.
        let capabilities = call.attendant.capabilities(&entry.server.declaration);
        let caller = Caller { session: &call.session, capabilities: &capabilities };
        let ready = match proposal.world.upstream(entry.tool.id().server()) {
            Some(upstream) => upstream.ready(&entry.server, &entry.tool, caller).await,
            None => Err(UpstreamError::Closed.into()),
        };
        let channel = ready.map_err(|error| self.not_usable(&error, &permit, entry, proposal))?;
        // GNT-C12: what the call waited for may have taken longer than its caller was trusted.
        let granted = call.access.granted(call.session.principal());
        if granted != call.grants {
            recheck(entry.tool.spec(), &granted, request.args_value()).map_err(|error| {
                let denied = json!({"check": "grants", "permit_id": permit.id()});
                proposal.trail.note(EventName::ExecutionDenied, denied);
                gauntlet_refusal(&error, entry)
            })?;
        }
        let task =
            tasks::may_be_begun(call, entry, channel.greeting()).then(|| call.wants.task.unwrap_or_default());
        let wants = Wants { capabilities, task, ..call.wants.clone() };
        self.take_use(&permit, entry, proposal).await?;
        let takes_a_use = permit.approval_id().is_some();
        let now = Now { registry: &*self.world, session: &call.session, lineage: &proposal.lineage };
        let wire = channel.addressed(&wants);
        let admitted =
            self.boundary.admit(permit, request, &wire, now, call.message.clone(), &mut proposal.trail);
        match admitted.await {
            Ok(validated) => Ok((validated, channel)),
            Err(Denied::Check(check)) => {
                // Where the evidence failed instead, the intent may still become durable: the use stays taken.
                if let Some(replicas) = self.replicas.as_ref().filter(|_| takes_a_use) {
                    replicas.give_back(proposal.id);
                }
                let message = format!("permit check failed: {}", check.as_str());
                Err(ErrorDocument::fault(Fault::Permit, path, message).with("check", check.as_str()))
            }
            Err(Denied::Audit(AuditBlocked { reason })) => Err(blocked(path, &reason)),
        }
    }

    /// Step 9. One frame.
    async fn transmit(&self, validated: ValidatedPermit, channel: &Live, call: &Call) -> SealedResponse {
        let attendant: Arc<dyn Beside> = call.attendant.clone();
        let (canceller, cancel) = CancellationSignal::pair();
        let (mut killed, mut gone) = (validated.killed(), call.cancel.clone());
        if gone.is_cancelled() {
            canceller.cancel();
        }
        // Its client may go, and an operator may cut it (GOV-1004).
        let stop = async move {
            let cut = async {
                if killed.wait_for(|killed| *killed).await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = gone.cancelled() => {}
                () = cut => {}
            }
            canceller.cancel();
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            sealed = channel.converse(validated, cancel, Some(&attendant)) => sealed,
            never = stop => match never {},
        }
    }

    /// Step 10. Recorded, then validated, then released.
    async fn release(
        &self,
        sealed: SealedResponse,
        screened: Screened,
        continuation: Option<Continuation>,
        upstream: portcullis_upstream::Era,
        entry: &ToolEntry,
        proposal: &mut Proposal,
    ) -> Result<Response, ErrorDocument> {
        let path = entry.tool.id().short();
        let (released, seq) =
            self.boundary.settle(sealed, &mut proposal.trail).await.map_err(|AuditBlocked { reason }| {
                // The effect happened; whether it is on record is unknown, and so is the outcome (AUD-3).
                blocked(path, &reason).with("outcome", "unknown")
            })?;
        self.answer(released, seq, screened, continuation, upstream, entry, proposal)
    }

    /// What is on record, as record `seq`, is shown if it is what was declared.
    #[expect(clippy::too_many_arguments, reason = "the parts of one answer")]
    pub(crate) fn answer(
        &self,
        released: ReleasedResponse,
        seq: u64,
        screened: Screened,
        continuation: Option<Continuation>,
        upstream: portcullis_upstream::Era,
        entry: &ToolEntry,
        proposal: &mut Proposal,
    ) -> Result<Response, ErrorDocument> {
        let path = entry.tool.id().short();
        let event = format!("{}/{seq}", proposal.log);
        let mut mark = json!({"event": event, "proposal_id": proposal.id});
        let respond = |answered, mark, proposal: &Proposal| Response {
            answered,
            proposal: proposal.id,
            entry: proposal.entry.clone(),
            upstream,
            mark,
            cache_hit: false,
        };
        if let (ReleasedResponse::Result(raw), Some(continuation)) = (&released, continuation) {
            let created = match upstream {
                portcullis_upstream::Era::Legacy => self.gauntlet.early_task_created(screened.spec(), raw),
                portcullis_upstream::Era::Modern => self.gauntlet.task_created(screened.spec(), raw),
            };
            match created {
                Ok(None) => {}
                Ok(Some(report)) => {
                    return Ok(Self::begun(report, screened, continuation, upstream, mark, proposal));
                }
                Err(error) => {
                    return Err(self.withheld(&error, entry, &mut proposal.trail).with("event", event));
                }
            }
        }
        match released {
            ReleasedResponse::Result(raw) => match self.finish(screened, raw, &mut proposal.trail) {
                Ok((result, report)) => {
                    // GNT-Z17: what was taken out of the result is told.
                    if let Some(report) = report {
                        mark["gauntlet"] = report;
                    }
                    let answered = match result.result_type() {
                        ResultType::InputRequired => Answered::InputRequired(result),
                        _ => Answered::Result(result),
                    };
                    Ok(respond(answered, mark, proposal))
                }
                Err(error) => Err(self.withheld(&error, entry, &mut proposal.trail).with("event", event)),
            },
            ReleasedResponse::RpcError(raw) => match self.upstream_words(raw, path) {
                Ok(answered) => Ok(respond(answered, mark, proposal)),
                Err(document) => Err(document.with("event", event)),
            },
            ReleasedResponse::TooLarge { bytes } => {
                let message = format!(
                    "the result has more than the declared {} bytes",
                    entry.tool.spec().max_response_bytes
                );
                let document = ErrorDocument::new(ErrorCode::ResultTooLarge, path, message);
                // CTX-5: whatever the tool does, it did.
                Err(document.with("executed", true).with("bytes", bytes).with("event", event))
            }
            ReleasedResponse::Escaped => {
                // Before the control plane has heard of it: halting late is what must not happen.
                entry.server.live.halt();
                let message =
                    "the server tried to leave its declared scopes; its answer is withheld and it is halted";
                let document = ErrorDocument::fault(Fault::ScopeViolation, path, message);
                Err(document.with("executed", "unknown").with("event", event))
            }
            // Only questions are passed on, and theirs are not answered here.
            ReleasedResponse::PassedOn => {
                Err(ErrorDocument::new(ErrorCode::UpstreamError, path, "no answer"))
            }
            ReleasedResponse::Failed(failure) => {
                Err(self.transmit_refusal(&failure, entry).with("event", event))
            }
        }
    }

    /// A result that breaks its declared schema never reaches the model, and its server is halted (MP-FH-003).
    fn withheld(&self, error: &GauntletError, entry: &ToolEntry, trail: &mut Trail) -> ErrorDocument {
        trail.note(EventName::ExecutionWithheld, json!({"violation": error.violation()}));
        if let Some(fault @ Fault::Mismatch) = error.fault() {
            let server = entry.tool.id().server().clone();
            entry.server.live.halt();
            let data = json!({"violation": error.violation()});
            trail.note(EventName::McpDeclarationMismatch, data);
            let reason = format!("a result of {} broke its declared output schema", entry.tool.id().short());
            let tools = vec![entry.tool.id().item().to_string()];
            let _ = self.violations.send(Violation { server, fault, tools, reason });
        }
        gauntlet_refusal(error, entry)
    }
}

fn asks_without_saying_for_what(entry: &ToolEntry) -> bool {
    !entry.server.declaration.server_requests().is_empty()
        && !matches!(entry.server.record.transport, Transport::Http { .. })
}

/// A refusal, once it is on record: whoever hears it can find it in the log, whatever happens next. Refused calls wait
/// for the disk; calls that pass have done so already.
async fn on_record(document: ErrorDocument, trail: Option<Trail>) -> ErrorDocument {
    let Some(mut trail) = trail else { return document };
    match trail.settle().await {
        Ok(()) => document,
        Err(AuditBlocked { reason }) => blocked(&document.path, &reason),
    }
}

fn parse_arguments(arguments: Option<&RawValue>, entry: &ToolEntry) -> Result<Args, GauntletError> {
    match arguments {
        Some(raw) => Args::parse(raw.get().as_bytes(), entry.tool.spec().max_request_bytes),
        None => Ok(Args::empty()),
    }
}

/// MP-FH-010. The reason names files of ours: it is for the operator, not for the agent.
pub(crate) fn blocked(path: &str, reason: &str) -> ErrorDocument {
    tracing::error!(reason, "calls are blocked: evidence cannot be made durable");
    let message = "evidence cannot be made durable, so nothing is done; the operator finds the cause in the gateway's log";
    ErrorDocument::fault(Fault::Audit, path, message)
}

/// The reason names a database of ours: it is for the operator, not for the agent.
fn out_of_touch(path: &str) -> ErrorDocument {
    let message = "this gateway cannot reach the state it shares with others, so nothing is done; the operator finds the cause in its log";
    ErrorDocument::new(ErrorCode::ControlUnavailable, path, message)
}

fn denied_by_policy(decision: &Decision<'_>, entry: &ToolEntry) -> ErrorDocument {
    let message = format!("policy denies this call: {}", decision.reasons().join(", "));
    let document = ErrorDocument::new(ErrorCode::PolicyDenied, entry.tool.id().short(), message);
    document.with("code", "policy").with("reasons", json!(decision.reasons()))
}

fn gauntlet_refusal(error: &GauntletError, entry: &ToolEntry) -> ErrorDocument {
    let path = entry.tool.id().short();
    let mut document = match error.fault() {
        Some(fault) => ErrorDocument::fault(fault, path, error.to_string()),
        None => ErrorDocument::new(error.code(), path, error.to_string()),
    };
    for (key, value) in error.details() {
        document = document.with(&key, value);
    }
    // SURF-80: one word for programs, whoever checked.
    if document.error == ErrorCode::ArgsInvalid && !document.details.contains_key("code") {
        document = document.with("code", "schema");
    }
    document.with("tool", json!(entry.tool.id()))
}

fn request_refusal(error: &RequestError, entry: &ToolEntry) -> ErrorDocument {
    let document = ErrorDocument::new(ErrorCode::ArgsInvalid, entry.tool.id().short(), error.to_string());
    match error {
        RequestError::OutOfScope(outside) => document
            .with("code", "out_of_scope")
            .with("pointer", outside.pointer.as_str())
            .with("scope", json!(outside.scope)),
        _ => document,
    }
}
