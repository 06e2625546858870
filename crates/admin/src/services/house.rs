//! The house itself: how it is, who is in it, and what is done for it now and then.

use std::sync::Arc;

use portcullis_audit::Health;
use portcullis_core::ServerIdentity;
use portcullis_gateway::Control;
use portcullis_gateway::exposure::Mode;
use portcullis_governance::approval::State;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::error::AdminError;
use crate::grant::Op;
use crate::tools::house::{KeyRecord, ServerHealth};

/// What clients read before they call anything, and what it costs them.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct FootprintRecord {
    /// The measurement, against what clients of the profile take.
    pub footprint: Value,
    /// What such a client is told first.
    pub instructions: String,
    /// Tokens of the list in each mode.
    pub modes: Vec<ModeTokens>,
    /// The profiles there are.
    pub profiles: Vec<String>,
    /// What each step of making the list fit would come to.
    pub ladder: Vec<LadderStep>,
    /// Texts that are published otherwise than they were accepted.
    pub changes: Vec<PublishedText>,
    /// How the list of whole definitions changed in 90 days.
    pub history: Vec<HistoryPoint>,
}

/// The list after a step of making it fit.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct LadderStep {
    /// Which, from 0.
    pub step: u8,
    /// Its bytes then.
    pub bytes: usize,
}

/// One text, as accepted and as published.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct PublishedText {
    /// The tool.
    pub tool: String,
    /// Where in its definition.
    pub pointer: String,
    /// As accepted.
    pub accepted: String,
    /// As published; nothing if it is gone.
    pub published: Option<String>,
}

/// The list at one moment.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct HistoryPoint {
    /// When it became so.
    pub at: String,
    /// Its bytes.
    pub bytes: u64,
    /// Its tokens, as o200k counts.
    pub tokens: u64,
}

/// What a mode costs.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ModeTokens {
    /// `passthrough`, `transparent` or `gateway`.
    pub mode: String,
    /// Listed tools.
    pub tools: usize,
    /// Bytes of the list.
    pub bytes: usize,
    /// Tokens of it, as o200k counts.
    pub tokens: usize,
}

/// The house itself.
#[derive(Debug, Clone)]
pub struct HouseService {
    control: Arc<Control>,
}

impl HouseService {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { control }
    }

    /// Whether the log takes what is written.
    pub fn log_health(&self) -> Health {
        self.control.log().health()
    }

    /// How many approvals wait.
    pub fn pending(&self) -> usize {
        self.control.approvals(Some(State::Pending)).len()
    }

    /// How servers are, by name.
    pub fn servers(&self, only: Option<&ServerIdentity>) -> Result<Vec<ServerHealth>, AdminError> {
        let world = self.control.world();
        let wanted = |id: &ServerIdentity| only.is_none_or(|only| only == id);
        let found: Vec<ServerHealth> = (world.registry().servers())
            .filter(|entry| wanted(&entry.record.server_identity))
            .map(|entry| {
                let upstream = world.upstream(&entry.record.server_identity);
                let status = upstream.map(|upstream| upstream.status());
                ServerHealth {
                    server_id: entry.record.server_identity.to_string(),
                    state: entry.record.state.as_str().to_owned(),
                    halt: entry.record.halt.clone(),
                    connection: status.as_ref().map_or_else(
                        || "none".to_owned(),
                        |status| format!("{:?}", status.phase).to_lowercase(),
                    ),
                    in_flight: status.as_ref().map_or(0, |status| status.in_flight),
                    failures: status.as_ref().map_or(0, |status| status.failures),
                    process: status.as_ref().is_some_and(|status| status.pid.is_some()),
                    drifted: upstream.is_some_and(|upstream| upstream.drifted().is_some()),
                }
            })
            .collect();
        match only.filter(|_| found.is_empty()) {
            Some(id) => Err(AdminError::not_found(format!("server '{id}' does not exist"))),
            None => Ok(found),
        }
    }

    /// What clients of a profile read first.
    pub async fn footprint(
        &self,
        profile: Option<String>,
        mode: Option<Mode>,
    ) -> Result<FootprintRecord, AdminError> {
        let control = self.control.clone();
        let history = control.surface_history(90).await?;
        let history = history
            .into_iter()
            .map(|point| HistoryPoint { at: point.at, bytes: point.bytes, tokens: point.tokens })
            .collect();
        // Counting tokens takes its time.
        let counted = tokio::task::spawn_blocking(move || -> Result<FootprintRecord, AdminError> {
            let (surface, footprint) = control.surface(profile.as_deref(), mode)?;
            let mut modes = Vec::new();
            for mode in [Mode::Passthrough, Mode::Transparent, Mode::Gateway] {
                let (surface, _) = control.surface(profile.as_deref(), Some(mode))?;
                let whole = &surface.footprint.tools;
                modes.push(ModeTokens {
                    mode: mode.as_str().to_owned(),
                    tools: whole.count,
                    bytes: whole.size.bytes,
                    tokens: whole.size.o200k,
                });
            }
            let instructions = surface.instructions.to_string();
            let ladder = control.surface_ladder(&surface);
            let ladder =
                ladder.iter().map(|size| LadderStep { step: size.step, bytes: size.bytes }).collect();
            let changes = surface.changes().into_iter().map(|change| PublishedText {
                tool: change.tool,
                pointer: change.pointer,
                accepted: change.before,
                published: change.after,
            });
            Ok(FootprintRecord {
                footprint,
                instructions,
                modes,
                profiles: control.surface_profiles(),
                ladder,
                changes: changes.collect(),
                history,
            })
        });
        counted.await.map_err(|error| AdminError::failure(error.to_string()))?
    }

    /// Where agents reach the gateway: where it says it listens, or would.
    pub fn agents_url(&self) -> String {
        let told = std::fs::read(self.control.home().join("run/daemon.json")).ok();
        let told: Option<Value> = told.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let url = told.and_then(|told| told["mcp"].as_str().map(str::to_owned));
        url.unwrap_or_else(|| "http://127.0.0.1:7411/mcp".to_owned())
    }

    /// How many operators are enrolled.
    pub fn operators(&self) -> usize {
        self.control.operators().len()
    }

    /// The key that signs the log, and those of the evidence.
    pub async fn keys(&self) -> Result<Vec<KeyRecord>, AdminError> {
        let mut rows = vec![KeyRecord {
            kid: self.control.log().vkey().to_string(),
            purpose: "log".into(),
            check: None,
            class: None,
            day: None,
            held: false,
            expired: false,
        }];
        for row in self.control.evidence_keys().await? {
            let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
            rows.push(KeyRecord {
                kid: text("key"),
                purpose: "evidence".into(),
                check: Some(text("check")),
                class: Some(text("class")),
                day: Some(text("day")),
                held: row["held"] == true,
                expired: row["expired"] == true,
            });
        }
        Ok(rows)
    }

    /// Signs checkpoints with another key from now on.
    ///
    /// The new one, and the one that it takes the place of.
    pub async fn rotate_signer(&self, op: &Op) -> Result<(String, String), AdminError> {
        let rotated = self.control.rotate_signer(op.operator(), op.reason()).await?;
        let text = |key: &str| rotated[key].as_str().unwrap_or_default().to_owned();
        Ok((text("new"), text("old")))
    }

    /// Destroys the keys whose time is over.
    pub async fn destroy_expired(&self, op: &Op) -> Result<Vec<String>, AdminError> {
        let destroyed = self.control.destroy_expired(op.operator().actor()).await?;
        Ok(destroyed.iter().map(ToString::to_string).collect())
    }

    /// Builds the catalogue again.
    pub async fn reindex(&self, _: &Op) -> Result<Value, AdminError> {
        let counts = self.control.refresh_catalogue().await?;
        serde_json::to_value(counts).map_err(|error| AdminError::failure(error.to_string()))
    }

    /// Looks at every server again. One that cannot be reached says so by its health.
    pub async fn refresh(&self, _: &Op) -> Result<(), AdminError> {
        let world = self.control.world();
        for entry in world.registry().servers() {
            let _ = self.control.test(&entry.record.server_identity).await;
        }
        Ok(())
    }

    /// Every replica that ever took part; `None` where there are no others.
    pub async fn replicas(&self) -> Result<Option<Vec<portcullis_gateway::control::ReplicaRow>>, AdminError> {
        Ok(self.control.replica_rows().await?)
    }

    /// Signs what the log holds now.
    pub async fn checkpoint(&self, _: &Op) -> Result<(), AdminError> {
        let log = self.control.log().clone();
        let made = tokio::task::spawn_blocking(move || log.checkpoint()).await;
        made.map_err(|error| AdminError::failure(error.to_string()))??;
        Ok(())
    }
}
