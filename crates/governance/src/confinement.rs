//! The cage of a server, derived from what was declared and registered, and from nothing else (SBX-10).

use std::path::{Path, PathBuf};

use portcullis_core::Sha256Digest;
use portcullis_core::canon::to_jcs;
use portcullis_sandbox::{Access as Allowed, FsScope, Profile};

use crate::declaration::{Access, Declaration, Scope, ScopeKind};
use crate::endpoint::Pin;
use crate::record::Process;

/// Why a server cannot be confined as declared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "scope {scope} is of kind {kind}, and a server that is started here has no way out to the network yet; run it elsewhere and register its URL"
)]
pub struct Unconfinable {
    scope: String,
    kind: &'static str,
}

/// `SHA-256(JCS(profile))` (SBX-11).
pub fn digest(profile: &Profile) -> Sha256Digest {
    let value = serde_json::to_value(profile).expect("a profile is plain JSON");
    Sha256Digest::of(&to_jcs(&value).expect("a profile holds no number that JSON cannot"))
}

/// The cage of a program of which nothing is declared yet: itself, and nothing else.
pub fn undeclared(command: &Path, args: &[String]) -> Box<Profile> {
    Box::new(Profile::bare(command, args.to_vec()))
}

/// One process serves all tools, so its cage is the union of their scopes (process model `shared`, SBX-12).
pub fn derive(declaration: &Declaration, process: &Process, pins: &[Pin]) -> Result<Profile, Unconfinable> {
    let mut profile = Profile::bare(&process.command, process.args.clone());
    profile.env.extend(process.env.clone());
    profile.artifacts = pins.iter().map(|pin| PathBuf::from(&pin.path)).collect();
    for (name, scope) in &declaration.body.scopes {
        let refuse = |kind| Unconfinable { scope: name.to_string(), kind };
        match scope.kind {
            ScopeKind::Fs => folder(scope).into_iter().for_each(|folder| add(&mut profile.fs, folder)),
            ScopeKind::Exec => profile.exec.extend(scope.path.as_ref().map(PathBuf::from)),
            ScopeKind::Egress => return Err(refuse("egress")),
            ScopeKind::Secret => return Err(refuse("secret")),
            // A place in another system, reached through the server; the cage has nothing to do with it.
            ScopeKind::Remote => {}
        }
    }
    Ok(profile)
}

/// The folders that a server may write to.
pub fn writable(declaration: &Declaration) -> Vec<&Path> {
    let scopes = declaration.body.scopes.values();
    let written = scopes.filter(|scope| scope.kind == ScopeKind::Fs && scope.access == Some(Access::Rw));
    written.filter_map(|scope| scope.path.as_deref().map(Path::new)).collect()
}

/// A folder that one tool reads and another writes is writable for the process that serves both.
fn add(folders: &mut Vec<FsScope>, folder: FsScope) {
    match folders.iter_mut().find(|known| known.path == folder.path) {
        Some(known) if folder.access == Allowed::Rw => known.access = Allowed::Rw,
        Some(_) => {}
        None => folders.push(folder),
    }
}

fn folder(scope: &Scope) -> Option<FsScope> {
    let access = match scope.access? {
        Access::Ro => Allowed::Ro,
        Access::Rw => Allowed::Rw,
    };
    Some(FsScope { path: scope.path.as_ref()?.into(), access })
}
