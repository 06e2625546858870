//! Drafts that nobody has accepted yet, kept in the home folder: a declaration that can be edited, and beside it what
//! would be registered with it.

use std::path::{Path, PathBuf};

use portcullis_gateway::control::{Drafted, Registration, Target};
use portcullis_governance::record::{Mode, Surface};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// A draft, and how the server is reached.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) target: Target,
    pub(crate) attest: Option<String>,
    pub(crate) drafted: Drafted,
}

impl Kept {
    /// What registers it, with the declaration as drafted.
    pub(crate) fn registration(&self, name: &str, file: &Path, reason: &str) -> Registration {
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
        }
    }
}

/// Keeps a draft; gives its declaration's file.
pub(crate) fn keep(home: &Path, name: &str, kept: &Kept) -> Result<PathBuf, Failure> {
    let folder = home.join("drafts");
    let failed =
        |path: &Path, error: std::io::Error| Failure::field("home", format!("{}: {error}", path.display()));
    std::fs::create_dir_all(&folder).map_err(|error| failed(&folder, error))?;
    let (declaration, rest) = files(home, name);
    std::fs::write(&declaration, &kept.drafted.draft.document)
        .map_err(|error| failed(&declaration, error))?;
    let json = serde_json::to_vec_pretty(kept).map_err(|error| Failure::unavailable(error.to_string()))?;
    std::fs::write(&rest, json).map_err(|error| failed(&rest, error))?;
    Ok(declaration)
}

/// A draft, with its declaration as it is now: an operator may have edited it.
pub(crate) fn find(home: &Path, name: &str) -> Option<(Kept, PathBuf)> {
    name.parse::<portcullis_core::ServerIdentity>().ok()?;
    let (declaration, rest) = files(home, name);
    let mut kept: Kept = serde_json::from_slice(&std::fs::read(rest).ok()?).ok()?;
    kept.drafted.draft.document = std::fs::read_to_string(&declaration).ok()?;
    Some((kept, declaration))
}

fn files(home: &Path, name: &str) -> (PathBuf, PathBuf) {
    let folder = home.join("drafts");
    (folder.join(format!("{name}.yaml")), folder.join(format!("{name}.json")))
}
