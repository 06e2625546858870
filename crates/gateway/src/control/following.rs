//! Taking in what other replicas changed (AUD-68): servers, declarations and approvals, in the order in which the
//! changes were agreed on. What this replica changed itself is in its memory already, but for a start, when it begins
//! with nothing and takes in everything.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use portcullis_core::{ApprovalId, ErrorCode, ServerIdentity};
use portcullis_governance::accepted::AcceptedDeclaration;
use portcullis_governance::approval::{Approval, State as ApprovalState};
use portcullis_governance::declaration::live::LiveSurface;
use portcullis_governance::record::{RegistrationRecord, ServerState};
use portcullis_store::{Presence, SharedChange, SharedError};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Control, ControlError, told_to_stop};
use crate::replicas::Replicas;

/// How often others are asked what they changed.
const LOOK: Duration = Duration::from_millis(150);

/// How far a replica has followed.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) presence: Presence,
    pub(super) position: u64,
    /// Registrations whose declaration has not come yet.
    registrations: HashMap<ServerIdentity, RegistrationRecord>,
}

impl Follower {
    pub(super) fn new(presence: Presence) -> Self {
        Self { presence, position: 0, registrations: HashMap::new() }
    }
}

impl Control {
    /// Takes in everything there is, own changes too: a replica that starts.
    pub(super) async fn take_in_everything(
        &self,
        replicas: &Replicas,
        follower: &mut Follower,
    ) -> Result<(), ControlError> {
        loop {
            let changes = follower.presence.changes_after(follower.position).await;
            let changes =
                changes.map_err(|error| ControlError::from(crate::replicas::NotShared::from(error)))?;
            if changes.is_empty() {
                return Ok(());
            }
            for change in &changes {
                self.take_in(replicas, follower, change).await;
            }
        }
    }

    /// Follows the others until told to stop. While they cannot be followed, calls are refused.
    pub(super) async fn follow_others(
        self: Arc<Self>,
        replicas: Arc<Replicas>,
        mut follower: Follower,
        mut stop: watch::Receiver<bool>,
    ) {
        loop {
            tokio::select! {
                () = told_to_stop(&mut stop) => return,
                () = tokio::time::sleep(LOOK) => {}
            }
            match follower.presence.changes_after(follower.position).await {
                Ok(changes) => {
                    for change in &changes {
                        if replicas.is_own(change.log) {
                            note(&replicas, &mut follower, change);
                        } else {
                            self.take_in(&replicas, &mut follower, change).await;
                        }
                    }
                    replicas.set_down(None);
                }
                Err(error) => {
                    replicas.set_down(Some(error.to_string()));
                    match replicas.shared().be_present().await {
                        Ok(presence) => follower.presence = presence,
                        Err(error @ SharedError::Cloned(_)) => replicas.set_down(Some(error.to_string())),
                        Err(_) => {}
                    }
                }
            }
        }
    }

    async fn take_in(&self, replicas: &Replicas, follower: &mut Follower, change: &SharedChange) {
        if let Err(error) = self.apply(replicas, follower, change).await {
            // One that cannot be understood must not be overlooked: what it is about is not what we think.
            tracing::error!(log = %change.log, seq = change.seq, event = change.event, %error, "another replica's change");
        }
        note(replicas, follower, change);
    }

    async fn apply(
        &self,
        replicas: &Replicas,
        follower: &mut Follower,
        change: &SharedChange,
    ) -> Result<(), ControlError> {
        let unreadable =
            |error: String| ControlError::new(ErrorCode::Internal, format!("it cannot be read: {error}"));
        let data = &change.record["data"];
        match change.event.as_str() {
            "server.registered" | "server.version_changed" => {
                let record: RegistrationRecord = serde_json::from_value(data["record"].clone())
                    .map_err(|error| unreadable(error.to_string()))?;
                follower.registrations.insert(record.server_identity.clone(), record);
            }
            "declaration.accepted" => self.take_in_server(follower, change).await?,
            "server.halted" | "server.resumed" => {
                let halt = (change.event == "server.halted").then(|| text(&data["reason"]));
                self.take_in_halt(server(data)?, halt).await;
            }
            "server.removed" => self.take_in_removal(server(data)?).await,
            "approval.requested" => {
                let approval: Approval = serde_json::from_value(data["approval"].clone())
                    .map_err(|error| unreadable(error.to_string()))?;
                let presented = document(change, "presented")?;
                self.book.enter(approval, presented);
            }
            "approval.recorded" => {
                if let Some(approval) = self.book.get(approval(data)?) {
                    let decided =
                        decided(&approval, change).map_err(|error| unreadable(error.to_string()))?;
                    self.book.apply(decided);
                }
            }
            "approval.expired" => self.book.end(&[approval(data)?], ApprovalState::Expired),
            "approval.withdrawn" => self.book.end(&[approval(data)?], ApprovalState::Withdrawn),
            "approval.revoked" => self.book.end(&[approval(data)?], ApprovalState::Revoked),
            "approval.invalidated" => self.book.end(&[approval(data)?], ApprovalState::Invalidated),
            "execution.intent" => {
                let used = approval(data)?;
                let left = replicas.shared().uses_left(&used.to_string()).await;
                // Nothing depends on this but what operators are shown: a use is taken from the shared state.
                if left.is_ok_and(|left| left == 0)
                    && self.book.get(used).is_some_and(|approval| approval.state == ApprovalState::Approved)
                {
                    self.book.end(&[used], ApprovalState::Consumed);
                }
            }
            _ => {}
        }
        Ok(())
    }

    async fn take_in_server(
        &self,
        follower: &mut Follower,
        change: &SharedChange,
    ) -> Result<(), ControlError> {
        let data = &change.record["data"];
        let name = server(data)?;
        let Some(record) = follower.registrations.get(&name).cloned() else { return Ok(()) };
        if data["version"] != json!(record.declaration_version) {
            return Ok(());
        }
        let live: LiveSurface = serde_json::from_slice(document(change, "probe")?)
            .map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))?;
        let declaration = AcceptedDeclaration::restore(
            document(change, "declaration")?,
            live,
            record.declaration_version,
            &record.server_identity,
            &record.server_version,
            record.registration_epoch,
            record.transport.process().map(|process| (process, &*record.artifact_pins)),
        )
        .map_err(|error| ControlError::new(ErrorCode::Internal, error))?;
        follower.registrations.remove(&name);
        let mut state = self.state.lock().await;
        let counter = state.counters.entry(name.clone()).or_default();
        *counter = (*counter).max(record.declaration_version.counter);
        let declaration = Arc::new(declaration);
        match state.entries.get(&name).cloned() {
            // Its approvals are ended by records of their own.
            Some(before) => self.replace(&mut state, &before, record, declaration, &[]).await,
            None => {
                state.add(record, declaration, &self.log, &self.settings);
                self.world.swap(state.world());
            }
        }
        Ok(())
    }

    async fn take_in_halt(&self, name: ServerIdentity, halt: Option<String>) {
        let mut state = self.state.lock().await;
        let Some(entry) = state.entries.get_mut(&name) else { return };
        let mut record = (*entry.record).clone();
        record.state = if halt.is_some() { ServerState::Halted } else { ServerState::Active };
        if halt.is_some() {
            entry.live.halt();
        } else {
            entry.live.resume();
        }
        record.halt = halt;
        entry.record = Arc::new(record);
        self.world.swap(state.world());
    }

    async fn take_in_removal(&self, name: ServerIdentity) {
        let mut state = self.state.lock().await;
        if let Some(entry) = state.entries.remove(&name) {
            entry.live.halt();
        }
        let upstream = state.upstreams.remove(&name);
        self.world.swap(state.world());
        drop(state);
        if let Some(upstream) = upstream {
            upstream.close().await;
        }
    }
}

/// That a change was taken in. A use is no change of what was decided.
fn note(replicas: &Replicas, follower: &mut Follower, change: &SharedChange) {
    if change.event != "execution.intent" {
        replicas.knows(&change.object, (change.log, change.seq));
    }
    follower.position = change.position;
}

/// The approval after another replica's operator decided.
fn decided(approval: &Approval, change: &SharedChange) -> Result<Approval, serde_json::Error> {
    let data = &change.record["data"];
    let mut document = serde_json::to_value(approval)?;
    let decision = json!({
        "at": change.record["time"],
        "by": data["by"],
        "method": data["method"],
        "reason": text(&data["reason"]),
        "separation": data["separation"],
    });
    if let Some(decisions) = document["decisions"].as_array_mut() {
        decisions.push(decision);
    }
    document["state"] = data["decision"].clone();
    for (member, from) in [("scope", "scope"), ("expires_at", "expires_at"), ("uses_left", "uses")] {
        if !data[from].is_null() {
            document[member] = data[from].clone();
        }
    }
    serde_json::from_value(document)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn server(data: &Value) -> Result<ServerIdentity, ControlError> {
    let name = data["server"].as_str().and_then(|name| name.parse().ok());
    name.ok_or_else(|| ControlError::new(ErrorCode::Internal, "it names no server"))
}

fn approval(data: &Value) -> Result<ApprovalId, ControlError> {
    let id = data["approval_id"].as_str().and_then(|id| id.parse().ok());
    id.ok_or_else(|| ControlError::new(ErrorCode::Internal, "it names no approval"))
}

fn document<'c>(change: &'c SharedChange, role: &str) -> Result<&'c [u8], ControlError> {
    let found = change.documents.iter().find(|(found, _)| found == role).map(|(_, bytes)| bytes.as_slice());
    found.ok_or_else(|| ControlError::new(ErrorCode::Internal, format!("it comes without its {role}")))
}
