//! Which arguments an agent can use at all (SURF-96): what a gate would always refuse need not be listed.
//!
//! The gate's own source is asked without a subject, as the agent itself, before its first list and then every so often.
//! What is learnt changes what is published and nothing else: an argument that is sent all the same meets the gate.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use portcullis_core::Principal;
use portcullis_governance::boundary::CancellationSignal;
use portcullis_upstream::Wants;
use serde::Serialize;
use serde_json::json;

use super::attendant::Attendant;
use super::conversation::Conversation;
use super::log_level::Level;
use super::outlet::Outlet;
use super::questions::{Abilities, Asker};
use super::{Edge, told_to_stop};
use crate::gates::ArgumentGate;
use crate::lifecycle::Call;
use crate::lifecycle::gating::Asked;
use crate::surface::Listener;
use crate::target::Target;

/// Arguments that are not published: tool, argument.
pub(crate) type Pruned = BTreeSet<(String, String)>;

/// What asking a gate's source came to.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct Tried {
    pub gate: String,
    pub tool: String,
    pub principal: String,
    /// How many rows its document has.
    pub rows: usize,
    /// How many of them support the arguments.
    pub supporting: usize,
    /// Why there is no document; empty if there is one.
    pub reason: &'static str,
}

/// Nobody who asked for no list in this long is looked after any more.
const FORGOTTEN: Duration = Duration::from_secs(3_600);
/// How many agents are looked after.
const MOST: usize = 1_024;

/// What each agent cannot use.
#[derive(Debug, Default)]
pub(crate) struct Usable(Mutex<HashMap<Principal, Known>>);

#[derive(Debug)]
struct Known {
    pruned: Arc<Pruned>,
    /// When it last asked for a list.
    seen: Instant,
}

impl Usable {
    /// What is known of an agent; nothing is left out for one that is not known.
    pub(crate) fn of(&self, principal: &Principal) -> Arc<Pruned> {
        self.lock().get(principal).map(|known| known.pruned.clone()).unwrap_or_default()
    }

    /// Whether it is known, and that it was here.
    fn sees(&self, principal: &Principal) -> bool {
        self.lock().get_mut(principal).map(|known| known.seen = Instant::now()).is_some()
    }

    fn is_forgotten(&self, principal: &Principal) -> bool {
        self.lock().get(principal).is_none_or(|known| known.seen.elapsed() > FORGOTTEN)
    }

    /// Takes down what was learnt; whether it is something else than before. An agent beyond what can be looked after
    /// gets everything listed.
    fn learn(&self, principal: &Principal, pruned: Pruned) -> bool {
        let mut all = self.lock();
        if let Some(known) = all.get_mut(principal) {
            let changed = *known.pruned != pruned;
            known.pruned = Arc::new(pruned);
            return changed;
        }
        if all.len() < MOST {
            all.insert(principal.clone(), Known { pruned: Arc::new(pruned), seen: Instant::now() });
        }
        true
    }

    fn forget(&self, principal: &Principal) {
        self.lock().remove(principal);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Principal, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Edge {
    /// Learns what an agent can use, before its first list; from then on it is looked at again and again.
    pub(super) async fn learn_what_is_usable(self: &Arc<Self>, conversation: &Arc<Conversation>) {
        let gates = self.lifecycle.gates.clone();
        let Some(every) = gates.iter().filter_map(ArgumentGate::prunes).min() else { return };
        let principal = conversation.session().principal().clone();
        if self.usable.sees(&principal) {
            return;
        }
        let pruned = self.unusable(conversation, &Pruned::new()).await;
        self.usable.learn(&principal, pruned);
        let (edge, conversation) = (self.clone(), conversation.clone());
        tokio::spawn(async move {
            let mut closing = edge.closing.subscribe();
            loop {
                tokio::select! {
                    () = tokio::time::sleep(every) => {}
                    () = told_to_stop(&mut closing) => return,
                }
                if edge.usable.is_forgotten(&principal) {
                    edge.usable.forget(&principal);
                    return;
                }
                let before = edge.usable.of(&principal);
                let pruned = edge.unusable(&conversation, &before).await;
                if edge.usable.learn(&principal, pruned) {
                    // Whoever reads that list is told.
                    edge.world.touch();
                }
            }
        });
    }

    /// Every argument that no row of its gate's document supports. A document that cannot be read changes nothing.
    async fn unusable(&self, conversation: &Arc<Conversation>, before: &Pruned) -> Pruned {
        let (world, gates) = (self.world.load(), self.lifecycle.gates.clone());
        let mut pruned = Pruned::new();
        for gate in gates.iter().filter(|gate| gate.prunes().is_some()) {
            for gated in gate.tools() {
                let entry = world.registry().tools().iter().find(|entry| entry.tool.id().short() == gated);
                let Some(entry) = entry else { continue };
                let arguments = gate.args().iter().filter_map(|pointer| pointer.strip_prefix('/'));
                let own = arguments
                    .filter(|name| !name.contains('/'))
                    .map(|name| (entry.wire_name.clone(), name.to_owned()));
                match self
                    .document_of(conversation, gate, gated)
                    .await
                    .map(|document| gate.surveyed(&document))
                {
                    Ok((rows, 0)) if rows > 0 => pruned.extend(own),
                    Ok(_) => {}
                    Err(_) => pruned.extend(own.filter(|argument| before.contains(argument))),
                }
            }
        }
        pruned
    }

    /// Tries a gate's source once, as one agent: what it came to, for an operator (SURF-97).
    pub async fn try_gate(&self, gate: &ArgumentGate, principal: &Principal) -> Vec<Tried> {
        let revision = super::MODERN;
        let conversation = self.sessions.open_unlisted(
            principal,
            "portcullis-gate-test",
            (revision, Abilities::default()),
            Listener::Http,
        );
        let mut tried = Vec::new();
        for gated in gate.tools() {
            let document = self.document_of(&conversation, gate, gated).await;
            let (rows, supporting, reason) = match document.map(|document| gate.surveyed(&document)) {
                Ok((rows, supporting)) => (rows, supporting, ""),
                Err(reason) => (0, 0, reason),
            };
            tried.push(Tried {
                gate: gate.id().to_owned(),
                tool: gated.clone(),
                principal: principal.to_string(),
                rows,
                supporting,
                reason,
            });
        }
        tried
    }

    /// The document of a gate about everything there is, asked for as one agent.
    pub(crate) async fn document_of(
        &self,
        conversation: &Arc<Conversation>,
        gate: &ArgumentGate,
        gated: &str,
    ) -> Asked {
        let world = self.world.load();
        let entry = world.registry().tools().iter().find(|entry| entry.tool.id().short() == gated).cloned();
        let entry = entry.ok_or("no_source")?;
        let session = conversation.session();
        let (owed, patience) = (conversation.owed().clone(), self.controls.answer_timeout());
        let asker = Asker { abilities: Abilities::default(), owed, turns: None, patience };
        let (lifecycle, gauntlet) = (self.lifecycle.clone(), self.gauntlet.clone());
        let (_canceller, cancel) = CancellationSignal::pair();
        let call = Call {
            parent: None,
            after_questions: false,
            is_source: true,
            wants: Wants::default(),
            attendant: Arc::new(Attendant::new(None, Level::OFF, Outlet::None, asker, lifecycle, gauntlet)),
            session: session.clone(),
            client: conversation.client().to_owned(),
            authenticated: session.principal() != &self.principal,
            grants: self.access.granted(session.principal()),
            groups: self.lifecycle.groups_of(session.principal()),
            access: self.access.clone(),
            // Nobody sent a message: the gateway asks for itself, and says so.
            message: Bytes::from(json!({"gate": gate.id(), "gated": gated}).to_string()),
            target: Target::Nothing(String::new()),
            arguments: None,
            repairs: Vec::new(),
            cancel,
        };
        self.lifecycle.ask_source(gate, None, &call, &entry.tool, None).await
    }
}
