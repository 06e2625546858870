//! Random sequences of everything that happens to a server, its approvals and its permits, without processes: after each
//! command the boundary says what a small model says, and at the end the six invariants hold in the log.

use std::sync::Arc;

use bytes::Bytes;
use portcullis_audit::{Event, EventName, check_invariants};
use portcullis_core::{Actor, ApprovalId, ProposalId, RegistrationEpoch};
use serde_json::json;

use crate::accepted::AcceptedDeclaration;
use crate::approval::{Book, Scope, State};
use crate::boundary::{Boundary, Outcome};
use crate::fixture::{self, Gate, circumstances, operator};
use crate::permit::{DEFAULT_TTL, Mint, Permit};
use crate::policy::{Bundle, Offer, Policy, Preset};
use crate::record::{Mode, ServerState};
use crate::registry::{Registry, ServerEntry};
use crate::request::CanonicalRequest;
use crate::session::{Checkpoint, Trigger};
use crate::trail::Trail;

const ARGS: [&str; 2] = [r#"{"path":"/srv/project/a.md"}"#, r#"{"path":"/srv/project/b.md"}"#];

/// What can happen.
#[derive(Debug, Clone, Copy)]
enum Command {
    Register,
    Accept,
    Update,
    Remove,
    Halt,
    Resume,
    Approve(usize, Scope),
    Revoke,
    Issue(usize),
    Call,
    Policy,
    Checkpoint,
    ResetTrust,
    Restart,
}

/// A permit that was issued, and everything it depends on as it was then.
struct Held {
    permit: Permit,
    request: CanonicalRequest,
    trail: Trail,
    approval: ApprovalId,
    then: Now,
}

/// What a permit depends on.
#[derive(Debug, Clone, PartialEq)]
struct Now {
    registered: bool,
    epoch: RegistrationEpoch,
    declaration: u64,
    policy: u64,
    process: u64,
    resets: u64,
    halted: bool,
    checkpoint: u64,
}

/// A gateway's worth of governance with a control plane of a few lines.
struct World {
    gate: Gate,
    declarations: Arc<Vec<Vec<Arc<AcceptedDeclaration>>>>,
    policies: Vec<Arc<Policy>>,
    book: Arc<Book>,
    lives: usize,
    now: Now,
    approvals: Vec<ApprovalId>,
    held: Vec<Held>,
    admitted: u64,
    refused: u64,
}

/// Lives of the server within one sequence, and declarations within one life.
const LIVES: usize = 8;
const DECLARATIONS: usize = 3;

/// What is the same in all worlds, and takes time to make.
#[derive(Clone)]
struct Ingredients {
    declarations: Arc<Vec<Vec<Arc<AcceptedDeclaration>>>>,
    policies: Vec<Arc<Policy>>,
}

impl Ingredients {
    fn new() -> Self {
        let of_life = |life| {
            let accepted = |counter| fixture::accepted(fixture::epoch(life), counter);
            (1..=DECLARATIONS as u64).map(accepted).collect()
        };
        // The preset that offers every scope.
        let observe = Bundle::preset(Preset::Observe);
        let compiled = |counter| Arc::new(Policy::compile(&observe, Mode::Local, counter).unwrap());
        Self {
            declarations: Arc::new((1..=LIVES as u8).map(of_life).collect()),
            policies: (1..=4).map(compiled).collect(),
        }
    }
}

impl World {
    fn new(Ingredients { declarations, policies }: Ingredients) -> Self {
        let gate = Gate::in_memory();
        let now = Now {
            registered: false,
            epoch: fixture::epoch(1),
            declaration: 0,
            policy: 0,
            process: 0,
            resets: 0,
            halted: false,
            checkpoint: 0,
        };
        let book = gate.book.clone();
        Self {
            gate,
            declarations,
            policies,
            book,
            lives: 0,
            now,
            approvals: Vec::new(),
            held: Vec::new(),
            admitted: 0,
            refused: 0,
        }
    }

    fn note(&self, name: EventName, data: serde_json::Value) {
        let event = Event::new(name, &Actor::operator("ana")).epoch(self.now.epoch).data(data);
        self.gate.log.append(vec![event]).unwrap();
    }

    fn declaration(&self) -> Arc<AcceptedDeclaration> {
        self.declarations[self.lives - 1][self.now.declaration as usize].clone()
    }

    fn policy(&self) -> Arc<Policy> {
        self.policies[self.now.policy as usize % self.policies.len()].clone()
    }

    fn publish(&mut self) {
        let mut entry: ServerEntry = self.gate.server.clone();
        if self.now.halted {
            Arc::make_mut(&mut entry.record).state = ServerState::Halted;
        }
        let servers = self.now.registered.then_some(entry);
        self.gate.active.set(Registry::new(servers, self.policy()));
    }

    /// The server as it is declared now, in the registry and on record.
    fn declare(&mut self, how: EventName) {
        let declaration = self.declaration();
        self.gate.server = fixture::entry(declaration.clone());
        let record = json!({"server_identity": "filesystem", "registration_epoch": self.now.epoch});
        self.note(how, json!({"record": record, "server": "filesystem"}));
        let tools: serde_json::Map<_, _> = (declaration.tools().iter())
            .map(|tool| {
                let what = json!({"scopes": tool.scopes(), "side_effects": tool.side_effects()});
                (tool.id().item().to_string(), what)
            })
            .collect();
        let data = json!({"server": "filesystem", "tools": tools, "version": declaration.version()});
        self.note(EventName::DeclarationAccepted, data);
        self.now.resets = 0;
        self.now.halted = false;
        self.publish();
    }

    fn end_approvals(&mut self, why: &str) {
        for id in self.approvals.drain(..) {
            self.book.end(&[id], State::Invalidated);
            let data = json!({"approval_id": id, "reason": why});
            let event = Event::new(EventName::ApprovalInvalidated, &Actor::system()).data(data);
            self.gate.log.append(vec![event]).unwrap();
        }
    }

    async fn perform(&mut self, command: Command) {
        let registered = self.now.registered;
        match command {
            Command::Register if !registered && self.lives < LIVES => {
                self.lives += 1;
                (self.now.registered, self.now.declaration) = (true, 0);
                self.now.epoch = fixture::epoch(self.lives as u8);
                self.declare(EventName::ServerRegistered);
            }
            Command::Accept if registered && (self.now.declaration as usize) + 1 < DECLARATIONS => {
                self.end_approvals("declaration_change");
                self.now.declaration += 1;
                self.declare(EventName::ServerVersionChanged);
            }
            Command::Update if registered && self.lives < LIVES => {
                self.end_approvals("version_change");
                self.lives += 1;
                self.now.declaration = 0;
                self.now.epoch = fixture::epoch(self.lives as u8);
                self.declare(EventName::ServerVersionChanged);
            }
            Command::Remove if registered => {
                self.end_approvals("removed");
                self.note(EventName::ServerRemoved, json!({"server": "filesystem"}));
                self.now.registered = false;
                self.publish();
            }
            Command::Halt if registered => {
                self.gate.server.live.halt();
                (self.now.halted, self.now.resets) = (true, self.now.resets + 1);
                self.publish();
            }
            Command::Resume if registered && self.now.halted => {
                self.gate.server.live.resume();
                self.now.halted = false;
                self.publish();
            }
            Command::ResetTrust if registered => {
                let tool = self.gate.tool("read_file");
                self.gate.server.live.reset_tool(tool.id());
                self.now.resets += 1;
            }
            Command::Approve(args, scope) if registered => self.approve(args, scope),
            Command::Revoke => {
                if let Some(id) = self.approvals.pop() {
                    self.book.end(&[id], State::Revoked);
                    self.note(EventName::ApprovalRevoked, json!({"approval_id": id}));
                }
            }
            // Step 2 refuses what is halted before anybody is asked.
            Command::Issue(args) if registered && !self.now.halted => self.issue(args),
            Command::Call => self.call().await,
            Command::Policy => {
                self.now.policy += 1;
                self.publish();
            }
            Command::Checkpoint => {
                let session = &self.gate.session;
                let checkpoint =
                    Checkpoint::new(session, Trigger::Operator, "looked at", self.gate.clock.now());
                session.open_checkpoint(checkpoint);
                session.resolve_checkpoint();
                self.now.checkpoint += 2;
            }
            Command::Restart => self.restart(),
            _ => {}
        }
    }

    fn approve(&mut self, args: usize, scope: Scope) {
        let request = self.gate.request(ARGS[args]);
        let now = self.gate.clock.now();
        let offers = vec![Offer { scope, quorum: 1 }];
        let policy = self.policy();
        let digest = portcullis_core::Sha256Digest::ZERO;
        let asked = self.book.ask(&request, ProposalId::new(now), offers, &policy, digest, now);
        let crate::approval::Asked::New(approval) = asked else { return };
        let id = approval.approval_id;
        self.book.enter(*approval, b"{}");
        let granted = self.book.grant(id, scope, &operator("ana"), "asked for", now).unwrap();
        let event = Event::new(EventName::ApprovalRecorded, &Actor::operator("ana"))
            .tool(request.tool().id())
            .epoch(request.tool().epoch())
            .data(json!({"approval_id": id, "decision": "approved", "scope": scope}));
        self.gate.log.append(vec![event]).unwrap();
        self.book.apply(granted);
        self.approvals.push(id);
    }

    /// Steps 1 to 7: a permit, if an approval covers the request and policy still allows it.
    fn issue(&mut self, args: usize) {
        let request = self.gate.request(ARGS[args]);
        let registry = crate::registry::ActiveRegistry::current(&self.gate.active);
        let Some(tool) = registry.tools().iter().find(|entry| entry.tool.id() == request.tool().id()) else {
            return;
        };
        let decision = registry.policy().decide(&request, &tool.facts, &circumstances());
        let Some(claim) = self.book.claim(&request, self.gate.clock.now()) else { return };
        let approval = claim.approval_id();
        let Some(authorised) = registry.policy().approved(&decision, claim) else { return };
        let permit = self.gate.mint.issue(authorised, &tool.server, &self.gate.session);
        let mut trail = self.gate.trail(&request);
        trail.note(EventName::PolicyEvaluated, json!({"decision": "approval"}));
        trail.note_canonical(EventName::PermitIssued, permit.recorded());
        self.held.push(Held { permit, request, trail, approval, then: self.now.clone() });
    }

    /// Steps 8 to 10 with some permit: sent exactly if nothing it depends on has changed.
    async fn call(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let Held { permit, request, mut trail, approval, then } = self.held.remove(0);
        let stands = self.book.get(approval).is_some_and(|approval| approval.state == State::Approved);
        let good = then == self.now && !self.now.halted && stands;
        let shown = format!("{then:?}\n{:?} approval stands: {stands}", self.now);
        match self.gate.admit(permit, request, &mut trail).await {
            Ok(validated) => {
                assert!(good, "a permit was admitted although something changed:\n{shown}");
                let sealed = validated.seal(Outcome::Result(Bytes::from_static(b"{}")));
                self.gate.boundary.settle(sealed, &mut trail).await.unwrap();
                self.admitted += 1;
            }
            Err(denied) => {
                assert!(!good, "a good permit was refused ({denied}):\n{shown}");
                self.refused += 1;
            }
        }
    }

    /// A new process: another key, approvals as the log has them, and nothing else survives.
    fn restart(&mut self) {
        let gate = &mut self.gate;
        gate.mint = Mint::new(gate.log.id(), gate.clock.clone(), DEFAULT_TTL);
        gate.boundary = Boundary::new(&gate.mint, gate.clock.clone());
        let system = Actor::system();
        gate.log.append(vec![Event::new(EventName::SystemStarted, &system).data(json!({}))]).unwrap();
        self.now.process += 1;
    }
}

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn command(&mut self) -> Command {
        let args = self.roll(2) as usize;
        let scope = if self.roll(3) == 0 { Scope::Once } else { Scope::UntilVersionChange };
        match self.roll(30) {
            0 | 1 => Command::Register,
            2 => Command::Accept,
            3 => Command::Update,
            4 => Command::Remove,
            5 => Command::Halt,
            6 | 7 => Command::Resume,
            8..=12 => Command::Approve(args, scope),
            13 => Command::Revoke,
            14..=19 => Command::Issue(args),
            20..=25 => Command::Call,
            26 => Command::Policy,
            27 => Command::Checkpoint,
            28 => Command::ResetTrust,
            _ => Command::Restart,
        }
    }
}

/// One log takes this many sequences; logs are written side by side.
const PER_LOG: u64 = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_sequence_of_commands_breaks_an_invariant() {
    // T-PROP-1, INV-MP-001..006
    let asked = std::env::var("PORTCULLIS_SEQUENCES").ok().and_then(|number| number.parse().ok());
    let sequences: u64 = asked.unwrap_or(10_000);
    let ingredients = Ingredients::new();
    let mut logs = tokio::task::JoinSet::new();
    for first in (0..sequences).step_by(PER_LOG as usize) {
        let these = first..(first + PER_LOG).min(sequences);
        logs.spawn(run(these, ingredients.clone()));
    }
    let (mut admitted, mut refused) = (0, 0);
    while let Some(world) = logs.join_next().await {
        let (sent, denied) = world.unwrap();
        (admitted, refused) = (admitted + sent, refused + denied);
    }
    assert!(admitted > sequences / 10 && refused > sequences / 10, "{admitted} admitted, {refused} refused");
}

/// Plays sequences into one log, and holds it to the invariants. Says how many permits were admitted and refused.
async fn run(sequences: std::ops::Range<u64>, ingredients: Ingredients) -> (u64, u64) {
    let mut world = World::new(ingredients);
    for sequence in sequences {
        world.perform(Command::Remove).await;
        (world.lives, world.held) = (0, Vec::new());
        world.perform(Command::Register).await;
        world.perform(Command::Approve(0, Scope::UntilVersionChange)).await;
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ (sequence + 1).wrapping_mul(0x2545_f491_4f6c_dd1d));
        for _ in 0..20 {
            let command = dice.command();
            world.perform(command).await;
        }
    }
    check(&mut world);
    (world.admitted, world.refused)
}

fn check(world: &mut World) {
    world.held.clear();
    let log = world.gate.log.clone();
    log.close();
    let verdicts = check_invariants(&[log.dir().to_owned()]).unwrap();
    for (name, verdict) in verdicts {
        assert!(verdict.violations.is_empty(), "{name}: {:?}", verdict.violations.first());
    }
}
