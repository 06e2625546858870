//! Drafts that nobody has accepted yet, kept in the home folder: a declaration that can be edited, and beside it what
//! would be registered with it.

use std::path::{Path, PathBuf};

use portcullis_core::{ErrorCode, ServerIdentity};
use portcullis_governance::draft::SecretFact;
use portcullis_governance::operator::OperatorProof;
use portcullis_governance::record::{Mode, RegistrationRecord, Surface};
use serde::{Deserialize, Serialize};

use super::ahead::GrantAhead;
use super::draft::Drafted;
use super::registration::{Registration, Target};
use super::{Control, ControlError};

/// The lint that does not stand against drafts. A draft says more of a tool than the server does because nobody knows
/// better, and is acceptable as it stands (GOV-1401).
const WIDER: &str = "L005";

/// A draft, and how the server is reached.
#[derive(Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct KeptDraft {
    pub target: Target,
    pub attest: Option<String>,
    pub drafted: Drafted,
    /// Secrets that it was given, without their values.
    #[serde(default)]
    pub secrets: Vec<SecretFact>,
}

impl KeptDraft {
    /// What registers it, with the declaration as drafted.
    pub fn registration(&self, name: &str, file: &Path, reason: &str) -> Registration {
        Registration {
            name: name.to_owned(),
            target: self.target.clone(),
            server_version: self.drafted.server_version.clone(),
            declaration_file: file.display().to_string(),
            declaration: self.drafted.draft.document.clone(),
            justification: reason.to_owned(),
            modes: vec![Mode::Local],
            trust_tier: 0,
            surface: Surface::Static,
            attest: self.attest.clone(),
            waive_isolation: None,
            grant: None,
            waive: vec![WIDER.to_owned()],
            allow_over_budget: false,
        }
    }

    /// Keeps it; gives its declaration's file.
    pub fn keep(&self, home: &Path, name: &ServerIdentity) -> Result<PathBuf, ControlError> {
        let folder = home.join("drafts");
        let failed = |path: &Path, error: std::io::Error| {
            ControlError::field("home", format!("{}: {error}", path.display()))
        };
        std::fs::create_dir_all(&folder).map_err(|error| failed(&folder, error))?;
        let (declaration, rest) = files(home, name);
        std::fs::write(&declaration, &self.drafted.draft.document)
            .map_err(|error| failed(&declaration, error))?;
        let json = serde_json::to_vec_pretty(self)
            .map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))?;
        std::fs::write(&rest, json).map_err(|error| failed(&rest, error))?;
        Ok(declaration)
    }

    /// The draft of this name, with its declaration as it is now: an operator may have edited it.
    pub fn find(home: &Path, name: &ServerIdentity) -> Option<(Self, PathBuf)> {
        let (declaration, rest) = files(home, name);
        let mut kept: Self = serde_json::from_slice(&std::fs::read(rest).ok()?).ok()?;
        kept.drafted.draft.document = std::fs::read_to_string(&declaration).ok()?;
        Some((kept, declaration))
    }
}

impl Control {
    /// Drafts of servers that are not registered, by name.
    pub fn drafts(&self) -> Vec<(ServerIdentity, KeptDraft)> {
        let world = self.world();
        let entries = std::fs::read_dir(self.home().join("drafts")).into_iter().flatten().flatten();
        let mut names: Vec<ServerIdentity> = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
            .filter_map(|path| path.file_stem()?.to_str()?.parse().ok())
            .filter(|name| world.registry().server(name).is_none())
            .collect();
        names.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        let found = names.into_iter().filter_map(|name| {
            let (kept, _) = KeptDraft::find(self.home(), &name)?;
            Some((name, kept))
        });
        found.collect()
    }

    /// Registers a draft and accepts its declaration, in one durable step (GOV-1403).
    pub async fn accept_draft(
        &self,
        operator: &OperatorProof,
        name: &ServerIdentity,
        reason: &str,
        grant: Option<GrantAhead>,
        (waive, allow_over_budget): (Vec<String>, bool),
    ) -> Result<RegistrationRecord, ControlError> {
        let Some((kept, file)) = KeptDraft::find(self.home(), name) else {
            let message = format!("there is no server and no draft '{name}'");
            return Err(ControlError::new(ErrorCode::NotFound, message));
        };
        let drafted = kept.registration(name.as_str(), &file, reason);
        let waive = [waive, drafted.waive.clone()].concat();
        let registration = Registration { grant, waive, allow_over_budget, ..drafted };
        self.register(operator, registration).await
    }
}

fn files(home: &Path, name: &ServerIdentity) -> (PathBuf, PathBuf) {
    let folder = home.join("drafts");
    (folder.join(format!("{name}.yaml")), folder.join(format!("{name}.json")))
}
