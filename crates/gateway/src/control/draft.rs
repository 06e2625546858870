//! Drafting a declaration: a server is looked at in its cage, and what it lists is written down (GOV-1401).
//!
//! It sees the folders that its command names, the programs its operator names, and nothing else: no network, no credentials, no environment but what it
//! was given. Nothing is registered.

use std::path::{Path, PathBuf};

use portcullis_catalog::cards::tokens;
use portcullis_core::ErrorCode;
use portcullis_governance::confinement;
use portcullis_governance::draft::{Draft, Facts, Host, Manner, SecretFact, draft};
use portcullis_governance::endpoint::without_data;
use portcullis_governance::operator::OperatorProof;
use portcullis_governance::record::{Mode, Surface, Transport};
use serde::{Deserialize, Serialize};

use super::registration::{Registration, Target, check};
use super::{Control, ControlError};

/// What an operator wants drafted.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Drafting {
    pub name: String,
    pub target: Target,
    /// Folders that its command names.
    pub folders: Vec<PathBuf>,
    /// Programs that it starts.
    #[serde(default)]
    pub programs: Vec<PathBuf>,
    /// Hosts that its configuration names.
    #[serde(default)]
    pub hosts: Vec<Host>,
    /// Secrets that its configuration gives it, without their values.
    #[serde(default)]
    pub secrets: Vec<SecretFact>,
    /// Why a server that Portcullis does not start may be relied on.
    #[serde(default)]
    pub attest: Option<String>,
}

/// A draft, and the version that the server gives itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Drafted {
    pub server_version: String,
    pub manner: Manner,
    /// What a model pays to know its tools, about.
    #[serde(default)]
    pub surface_tokens: usize,
    #[serde(flatten)]
    pub draft: Draft,
}

/// For a server that gives itself none. Its bytes are pinned, which says more.
const NO_VERSION: &str = "0";

impl Control {
    /// Looks at a registered server again, and drafts the worst case of what it lists now. Nothing is accepted.
    pub async fn draft_again(
        &self,
        _operator: &OperatorProof,
        name: &portcullis_core::ServerIdentity,
    ) -> Result<Draft, ControlError> {
        let seen = self.test(name).await?;
        if let Some(reason) = seen.reason {
            return Err(ControlError::new(ErrorCode::UpstreamUnavailable, reason));
        }
        let world = self.world();
        let entry = world.registry().server(name).ok_or_else(|| ControlError::not_found(name))?;
        let drifted = world.upstream(name).and_then(|upstream| upstream.drifted());
        let live = drifted.as_deref().unwrap_or_else(|| entry.declaration.live());
        let version = entry.record.server_version.to_string();
        let facts = Facts {
            identity: name,
            version: &version,
            folders: &[],
            programs: &[],
            hosts: &[],
            secrets: &[],
            manner: Manner::WorstCase,
        };
        Ok(draft(live, &facts))
    }

    /// Looks at a server that is not registered, and drafts its declaration.
    pub async fn draft(&self, _operator: &OperatorProof, asked: Drafting) -> Result<Drafted, ControlError> {
        let loopback = matches!(&asked.target, Target::Http { .. } | Target::Sse { .. });
        let registration = Registration {
            name: asked.name.clone(),
            target: asked.target,
            server_version: NO_VERSION.into(),
            declaration_file: String::new(),
            declaration: String::new(),
            justification: "to be drafted".into(),
            modes: vec![Mode::Local],
            trust_tier: 0,
            surface: Surface::Static,
            attest: asked.attest,
            waive_isolation: None,
            grant: None,
            waive: Vec::new(),
            allow_over_budget: false,
        };
        let mut checked = check(&registration, &self.options.limits)?;
        if let Transport::Stdio { process } = &mut checked.transport {
            let folders: Vec<&Path> = asked.folders.iter().map(PathBuf::as_path).collect();
            checked.pins = without_data(std::mem::take(&mut checked.pins), &folders);
            let profile = confinement::looked_at(process, &checked.pins, &folders, &asked.programs);
            process.confine(profile);
        }
        let live = self.look_at(&checked, serde_json::json!({})).await?;
        let version = live
            .server_version
            .clone()
            .filter(|version| version.parse::<portcullis_core::ServerVersion>().is_ok());
        if version.is_none() && loopback {
            let message = "the server gives itself no version, and nothing of it is pinned";
            return Err(ControlError::new(ErrorCode::Validation, message));
        }
        let server_version = version.unwrap_or_else(|| NO_VERSION.into());
        let manner = match self.options.mode {
            Mode::Local => Manner::Suggested,
            _ => Manner::WorstCase,
        };
        let facts = Facts {
            identity: &checked.identity,
            version: &server_version,
            folders: &asked.folders,
            programs: &asked.programs,
            hosts: &asked.hosts,
            secrets: &asked.secrets,
            manner,
        };
        let surface_tokens = live.tools.iter().map(|tool| tokens(tool.definition.get())).sum();
        Ok(Drafted { manner, surface_tokens, draft: draft(&live, &facts), server_version })
    }
}
