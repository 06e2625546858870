//! What the control plane does unasked: halt servers that broke their declaration, look at them again, and let
//! approvals expire.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use portcullis_audit::{Event, EventName, RetentionClass, Role};
use portcullis_core::error::{Fault, one_line};
use portcullis_core::{Actor, ErrorCode, ServerIdentity};
use portcullis_governance::approval::State as ApprovalState;
use portcullis_governance::declaration::live::LiveSurface;
use portcullis_governance::registry::ServerEntry;
use portcullis_store::SurfaceRow;
use portcullis_upstream::UpstreamEvent;
use serde_json::json;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::JoinSet;

use super::attention::{Attention, Refresh};
use super::start::SWEEP;
use super::{Control, ControlError, told_to_stop};
use crate::alarms::AlarmKind;
use crate::lifecycle::Violation;
use crate::upstreams::{NotUsable, Upstream};

/// A static surface is looked at again this often (GOV-501).
const RECHECK: Duration = Duration::from_secs(15 * 60);
/// Evidence is kept by days; looking once an hour is soon enough (AUD-43).
const FORGET: Duration = Duration::from_secs(60 * 60);
/// Noise on stdout is a protocol failure; the third within ten minutes is an ungoverned surface (GOV-303).
const NOISE: usize = 3;
const NOISE_WINDOW: Duration = Duration::from_secs(10 * 60);

type Happening = (
    ServerIdentity,
    Arc<Upstream>,
    Result<UpstreamEvent, broadcast::error::RecvError>,
    broadcast::Receiver<UpstreamEvent>,
);

impl Control {
    /// Runs until told to stop.
    pub(super) async fn watch(
        self: Arc<Self>,
        refresh: Refresh,
        mut reported: mpsc::UnboundedReceiver<Violation>,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut sweep = tokio::time::interval(SWEEP);
        let mut forget = tokio::time::interval(FORGET);
        let mut attention: HashMap<ServerIdentity, Attention> = HashMap::new();
        let mut looking: JoinSet<ServerIdentity> = JoinSet::new();
        let mut listening: JoinSet<Happening> = JoinSet::new();
        let mut known: HashMap<ServerIdentity, Arc<Upstream>> = HashMap::new();
        let mut noise: HashMap<ServerIdentity, VecDeque<Instant>> = HashMap::new();
        loop {
            tokio::select! {
                () = told_to_stop(&mut stop) => return,
                Some(violation) = reported.recv() => {
                    let Violation { server, fault, tools, reason } = violation;
                    self.punish(&server, fault, &tools, &reason).await;
                }
                _ = sweep.tick() => {
                    self.expire().await;
                    self.tend_sessions().await;
                    self.promote().await;
                    self.listen_to_new(&mut known, &mut listening).await;
                    attention.retain(|server, _| known.contains_key(server));
                    for (server, upstream) in &known {
                        self.let_rest(server, upstream);
                        self.attend(server, upstream, refresh, &mut attention, &mut looking).await;
                    }
                }
                _ = forget.tick() => if let Err(error) = self.destroy_expired(Actor::system()).await {
                    tracing::error!(%error, "evidence whose time is over was not destroyed");
                },
                Some(looked) = looking.join_next() => if let Ok(server) = looked
                    && let Some(attention) = attention.get_mut(&server)
                {
                    attention.done();
                },
                Some(Ok((server, upstream, happened, receiver))) = listening.join_next() => {
                    let current = known.get(&server).is_some_and(|known| Arc::ptr_eq(known, &upstream));
                    if !current || matches!(happened, Err(broadcast::error::RecvError::Closed)) {
                        continue;
                    }
                    if matches!(happened, Ok(UpstreamEvent::ListChanged)) {
                        let now = Instant::now();
                        let waiting = attention.entry(server.clone());
                        waiting.or_insert_with(|| Attention::new(now, refresh)).called(now);
                        self.attend(&server, &upstream, refresh, &mut attention, &mut looking).await;
                    } else if let Ok(event) = happened {
                        self.heard(&server, &upstream, &event, noise.entry(server.clone()).or_default()).await;
                    }
                    listening.spawn(next(server, upstream, receiver));
                }
            }
        }
    }

    async fn listen_to_new(
        &self,
        known: &mut HashMap<ServerIdentity, Arc<Upstream>>,
        listening: &mut JoinSet<Happening>,
    ) {
        let upstreams = self.state.lock().await.upstreams.clone();
        for (server, upstream) in &upstreams {
            if known.get(server).is_none_or(|known| !Arc::ptr_eq(known, upstream)) {
                listening.spawn(next(server.clone(), upstream.clone(), upstream.events()));
            }
        }
        *known = upstreams;
    }

    async fn heard(
        &self,
        server: &ServerIdentity,
        upstream: &Arc<Upstream>,
        event: &UpstreamEvent,
        noise: &mut VecDeque<Instant>,
    ) {
        match event {
            // Looked at when its turn comes (see `attend`).
            UpstreamEvent::ListChanged => {}
            UpstreamEvent::UnknownId => {
                self.punish(server, Fault::UngovernedSurface, &[], "it answered something that nobody asked")
                    .await;
            }
            UpstreamEvent::ServerRequest { method } => {
                let reason = format!("it asked the client for {method}, which is not declared");
                self.punish(server, Fault::UngovernedSurface, &[], &reason).await;
            }
            UpstreamEvent::ForeignEndpoint => {
                let reason = "it wants messages sent to another origin than the registered one";
                self.punish(server, Fault::UngovernedSurface, &[], reason).await;
            }
            UpstreamEvent::Escaped { reason } => {
                self.punish(server, Fault::ScopeViolation, &[], reason).await;
            }
            UpstreamEvent::OtherKey => {
                let reason = "its key is not the one that was pinned at registration";
                self.punish(server, Fault::Version, &[], reason).await;
            }
            UpstreamEvent::ProtocolViolation { reason } => {
                self.note(server, EventName::McpServerUnavailable, reason);
                noise.push_back(Instant::now());
                while noise.front().is_some_and(|at| at.elapsed() > NOISE_WINDOW) {
                    noise.pop_front();
                }
                if noise.len() >= NOISE {
                    let reason =
                        format!("it broke the protocol {NOISE} times in ten minutes; last: {reason}");
                    self.punish(server, Fault::UngovernedSurface, &[], &reason).await;
                }
            }
            UpstreamEvent::OwnerCredential => {
                let reason = "its credential is not one of a grant";
                self.note(server, EventName::RecordsCredentialRefused, reason);
                let _ = self.halt(&portcullis_core::Actor::system(), server, None, &[], reason).await;
            }
            UpstreamEvent::GateNeverDecides { gate, unknown_subject, source_error } => {
                let reason = format!("gate {gate} was asked often and never decided");
                tracing::warn!(%server, gate, "a gate never decides");
                self.alarms.undecided(&format!("{server}/{gate}"), (*unknown_subject, *source_error));
                let data = json!({
                    "id": gate, "reason": reason, "server": server, "source_error": source_error,
                    "unknown_subject": unknown_subject,
                });
                let event = Event::new(EventName::GateNeverDecides, &Actor::server(server.as_str()));
                let _ = self.log.append(vec![event.data(data)]);
            }
            UpstreamEvent::GateDecides { gate } => {
                self.alarms.end(AlarmKind::GateNeverDecides, &format!("{server}/{gate}"));
            }
            UpstreamEvent::CredentialUnavailable { code } => {
                self.alarms.without_grant(server.as_str(), code);
                let reason = format!("its credential is of no use any more: {code}");
                self.note(server, EventName::McpServerUnavailable, &reason);
            }
            UpstreamEvent::CredentialUsable => {
                self.alarms.end(AlarmKind::CredentialUnavailable, server.as_str());
            }
            UpstreamEvent::LateAnswer { call, bytes, sha256 } => {
                // MP-FH-004: what came too late is on record, and nobody sees it.
                let permit_id = call.as_ref().map(|call| call.permit_id);
                let reason = "an answer came after its caller had given up";
                let data = json!({"bytes": bytes, "permit_id": permit_id, "reason": reason, "response_sha256": sha256, "server": server});
                let event = Event::new(EventName::ExecutionLateResult, &Actor::server(server.as_str()));
                let event = match call {
                    Some(call) => event.proposal(call.proposal).tool(&call.tool),
                    None => event,
                };
                let _ = self.log.append(vec![event.data(data)]);
            }
            UpstreamEvent::Exited { reason, words, expected } => {
                if let Some(words) = words {
                    self.note_exit(server, reason, words);
                }
                // A server of the other era may end after the first question; it is being started again already
                // (PRO-62).
                if !expected && !upstream.is_connecting() {
                    self.note(server, EventName::McpServerUnavailable, reason);
                }
            }
            // A new process is looked at before it carries a call (see `upstreams`).
            UpstreamEvent::Reconnected { .. } => {}
        }
    }

    /// Has somebody look at a server if it is time to.
    async fn attend(
        self: &Arc<Self>,
        server: &ServerIdentity,
        upstream: &Arc<Upstream>,
        refresh: Refresh,
        attention: &mut HashMap<ServerIdentity, Attention>,
        looking: &mut JoinSet<ServerIdentity>,
    ) {
        let world = self.world();
        let Some(entry) = world.registry().server(server) else { return };
        // A call may have found it changed before anybody looked.
        self.note_shift(entry, upstream).await;
        let now = Instant::now();
        let max_age = entry.declaration.refresh().unwrap_or(RECHECK);
        let attended = attention.entry(server.clone()).or_insert_with(|| Attention::new(now, refresh));
        if attended.begin(now, max_age) {
            let (control, server, upstream) = (self.clone(), server.clone(), upstream.clone());
            looking.spawn(async move {
                control.recheck(&server, &upstream).await;
                server
            });
        }
    }

    /// Ends processes of a server that nobody has called for long, beside everything else.
    fn let_rest(&self, server: &ServerIdentity, upstream: &Arc<Upstream>) {
        let world = self.world();
        let Some(entry) = world.registry().server(server).cloned() else { return };
        let (upstream, idle) = (upstream.clone(), self.settings.idle_stop);
        tokio::spawn(async move { upstream.stop_idle(&entry, idle).await });
    }

    /// GOV-502: what a server may change has changed. Agents see what is left of what was accepted.
    async fn note_shift(&self, entry: &ServerEntry, upstream: &Upstream) {
        if !upstream.take_shift() {
            return;
        }
        let difference = upstream.drifted().map(|live| entry.declaration.drift(&live)).unwrap_or_default();
        let shown = |names: &[String]| names.iter().map(|name| one_line(name)).collect::<Vec<_>>();
        let changed: Vec<String> = difference.changed.iter().map(|change| one_line(&change.tool)).collect();
        let data = json!({
            "added": shown(&difference.added), "changed": changed, "server": entry.record.server_identity,
            "withdrawn": shown(&difference.removed),
        });
        let actor = Actor::server(entry.record.server_identity.as_str());
        let event = Event::new(EventName::ServerSurfaceChanged, &actor).epoch(entry.epoch()).data(data);
        let event = with_surface(event, upstream.drifted().as_deref());
        let state = self.state.lock().await;
        if self.change_in_any_case(vec![event]).await.is_ok() {
            self.world.swap(state.world());
        }
    }

    /// What servers had become before the gateway was started waits to be accepted still (GOV-502).
    pub(super) async fn restore_surfaces(&self, surfaces: Vec<SurfaceRow>) -> Result<(), ControlError> {
        if surfaces.is_empty() {
            return Ok(());
        }
        let state = self.state.lock().await;
        for row in surfaces {
            let entry = state.entries.iter().find(|(name, _)| name.as_str() == row.server);
            let Some((name, entry)) = entry else { continue };
            let live: LiveSurface = serde_json::from_slice(&row.probe).map_err(|error| {
                let message = format!("a recorded probe cannot be read: {error}");
                ControlError::new(ErrorCode::Internal, message)
            })?;
            if let Some(upstream) = state.upstreams.get(name) {
                upstream.was(entry, live);
            }
        }
        self.world.swap(state.world());
        Ok(())
    }

    async fn recheck(&self, server: &ServerIdentity, upstream: &Arc<Upstream>) {
        let Some(entry) = self.state.lock().await.entries.get(server).cloned() else { return };
        match upstream.recheck(&entry).await {
            Ok(()) => self.note_shift(&entry, upstream).await,
            Err(NotUsable::Drifted { fault, tools, reason }) => {
                self.punish(server, fault, &tools, &reason).await;
            }
            Err(error @ (NotUsable::Upstream(_) | NotUsable::Lacking { .. })) => {
                self.note(server, EventName::McpServerUnavailable, &error.to_string());
            }
        }
    }

    async fn punish(&self, server: &ServerIdentity, fault: Fault, tools: &[String], reason: &str) {
        tracing::warn!(%server, fault = fault.as_str(), reason, "server halted");
        let event = match fault {
            Fault::UngovernedSurface => EventName::McpUngovernedSurfaceDetected,
            Fault::Version => EventName::McpVersionMismatch,
            Fault::ScopeViolation => EventName::McpScopeViolation,
            _ => EventName::McpDeclarationMismatch,
        };
        self.note(server, event, reason);
        if let Err(error) = self.halt(&Actor::system(), server, Some(fault), tools, reason).await {
            // Already halted in memory; if the log is blocked, everything is.
            tracing::error!(%server, %error, "the halt could not be recorded");
        }
    }

    /// A process of ours ended. What it said last may say why: exact bytes, so evidence (AUD-40).
    fn note_exit(&self, server: &ServerIdentity, reason: &str, words: &[u8]) {
        let data = json!({"reason": one_line(reason), "server": server});
        let event = Event::new(EventName::SandboxProcessExited, &Actor::server(server.as_str())).data(data);
        let event = match words {
            [] => event,
            words => event.evidence(Role::Stderr, RetentionClass::Standard, Bytes::copy_from_slice(words)),
        };
        let _ = self.log.append(vec![event]);
    }

    fn note(&self, server: &ServerIdentity, name: EventName, reason: &str) {
        let data = json!({"reason": portcullis_core::error::one_line(reason), "server": server});
        let _ = self.log.append(vec![Event::new(name, &Actor::server(server.as_str())).data(data)]);
    }

    async fn expire(&self) {
        let due = self.book.due(self.clock.now());
        if due.is_empty() {
            return;
        }
        let system = Actor::system();
        let expired = |id| Event::new(EventName::ApprovalExpired, &system).data(json!({"approval_id": id}));
        let envelope = |id| {
            let envelope = self.book.get(id)?.envelope()?.envelope_id;
            Some(Event::new(EventName::EnvelopeExpired, &system).data(json!({"envelope_id": envelope})))
        };
        let mut events: Vec<_> = due.iter().copied().map(expired).collect();
        events.extend(due.iter().copied().filter_map(envelope));
        if self.change(events).await.is_ok() {
            self.book.end(&due, ApprovalState::Expired);
        }
    }
}

/// An event with what a server listed instead of what was accepted, which outlives a restart.
pub(super) fn with_surface(event: Event, live: Option<&LiveSurface>) -> Event {
    let Some(live) = live else { return event };
    let probe = serde_json::to_vec(live).expect("a surface is plain JSON");
    event.evidence(Role::Probe, RetentionClass::Hold, Bytes::from(probe))
}

async fn next(
    server: ServerIdentity,
    upstream: Arc<Upstream>,
    mut events: broadcast::Receiver<UpstreamEvent>,
) -> Happening {
    let happened = events.recv().await;
    (server, upstream, happened, events)
}
