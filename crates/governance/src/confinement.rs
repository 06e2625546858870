//! The cage of a server, derived from what was declared and registered, and from nothing else (SBX-10).

use std::path::{Path, PathBuf};

use portcullis_core::Sha256Digest;
use portcullis_core::canon::to_jcs;
use portcullis_sandbox::{
    Access as Allowed, EgressScope, FsScope, Profile, SecretScope, Tls as Spoken, Via as Travels,
};

use crate::broker::Delivery;
use crate::declaration::{Access, Declaration, Scope, ScopeKind, SideEffect, Tls, ToolClause, Via};
use crate::endpoint::Pin;
use crate::record::{Process, ProcessModel};

/// Why a server cannot be confined as declared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("scope {scope}: {reason}")]
pub struct Unconfinable {
    scope: String,
    reason: &'static str,
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

/// The cage of a program that is only looked at: it reads the folders that its command names, starts the programs that its
/// operator names, and has nothing else.
pub fn looked_at(process: &Process, pins: &[Pin], folders: &[&Path], programs: &[PathBuf]) -> Profile {
    let mut profile = Profile::bare(&process.command, process.args.clone());
    profile.env.extend(process.env.clone());
    profile.limits = process.limits.clone();
    profile.artifacts = pins.iter().map(|pin| PathBuf::from(&pin.path)).collect();
    profile.fs = folders.iter().map(|path| FsScope { path: path.into(), access: Allowed::Ro }).collect();
    profile.exec = programs.to_vec();
    profile
}

/// What confines the process that serves a tool, and how it is shared (SBX-10).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cage {
    /// With whom the process is shared.
    pub model: ProcessModel,
    /// What it may touch.
    pub profile: Box<Profile>,
    /// Digest of the profile, which evidence, permit and intent repeat (SBX-11).
    pub sha256: Sha256Digest,
}

/// The cage of one tool: what its own scopes and classes come to, unless all tools share a process.
pub(crate) fn of_tool(
    declaration: &Declaration,
    clause: &ToolClause,
    process: &Process,
    pins: &[Pin],
) -> Result<Cage, Unconfinable> {
    let model = model(declaration, clause, process);
    if model == ProcessModel::Shared {
        return Ok(Cage { model, profile: process.profile.clone(), sha256: process.profile_sha256 });
    }
    let has = |class| clause.side_effects.contains(&class);
    let mut own = Vec::new();
    for name in &clause.scopes {
        let Some(scope) = declaration.body.scopes.get(name) else { continue };
        let mut scope = scope.clone();
        // A class that is not declared is not had, whatever the scope would allow to others.
        let had = match scope.kind {
            ScopeKind::Fs => {
                if !has(SideEffect::Write) {
                    scope.access = scope.access.map(|_| Access::Ro);
                }
                true
            }
            ScopeKind::Exec => has(SideEffect::Execute),
            ScopeKind::Egress => has(SideEffect::Network),
            ScopeKind::Secret => true,
            ScopeKind::Remote => false,
        };
        if had {
            own.push((name.to_string(), scope));
        }
    }
    // Two tools that name the same scopes in another order have the same process.
    own.sort_by(|(one, _), (other, _)| one.cmp(other));
    let own = own.iter().map(|(name, scope)| (name.as_str(), scope));
    let profile = Box::new(profile(declaration, own, process, pins, Credentials::All)?);
    Ok(Cage { model, sha256: digest(&profile), profile })
}

/// SBX-12: a process that is given a credential itself serves one call; one with a placeholder may last if the operator
/// says so.
fn model(declaration: &Declaration, clause: &ToolClause, process: &Process) -> ProcessModel {
    if process.process_model != ProcessModel::PerProfile {
        return process.process_model;
    }
    let scopes = clause.scopes.iter().filter_map(|name| declaration.body.scopes.get(name));
    let mut ways = scopes.filter(|scope| scope.kind == ScopeKind::Secret).filter_map(|scope| scope.via);
    let lasts = |via| via == Via::Proxy && process.lasting_with_credentials;
    if ways.all(lasts) { ProcessModel::PerProfile } else { ProcessModel::PerCall }
}

/// All scopes of a declaration in one cage: that of a process which serves all tools, or which is only looked at.
pub fn derive(declaration: &Declaration, process: &Process, pins: &[Pin]) -> Result<Profile, Unconfinable> {
    let all = declaration.body.scopes.iter().map(|(name, scope)| (name.as_str(), scope));
    let credentials = match process.process_model {
        ProcessModel::Shared => Credentials::NoneOfItsOwn,
        ProcessModel::PerProfile | ProcessModel::PerCall => Credentials::All,
    };
    profile(declaration, all, process, pins, credentials)
}

/// Which credentials a process may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Credentials {
    All,
    /// Only those that never reach it.
    NoneOfItsOwn,
}

fn profile<'s>(
    declaration: &Declaration,
    scopes: impl Iterator<Item = (&'s str, &'s Scope)>,
    process: &Process,
    pins: &[Pin],
    credentials: Credentials,
) -> Result<Profile, Unconfinable> {
    let mut profile = Profile::bare(&process.command, process.args.clone());
    profile.env.extend(process.env.clone());
    profile.limits = process.limits.clone();
    profile.artifacts = pins.iter().map(|pin| PathBuf::from(&pin.path)).collect();
    for (name, scope) in scopes {
        let refuse = |reason| Unconfinable { scope: name.to_owned(), reason };
        match scope.kind {
            ScopeKind::Fs => folder(scope).into_iter().for_each(|folder| add(&mut profile.fs, folder)),
            ScopeKind::Exec => profile.exec.extend(scope.path.as_ref().map(PathBuf::from)),
            ScopeKind::Egress => profile.egress.push(destination(name, scope).map_err(refuse)?),
            ScopeKind::Secret => profile.secrets.push(credential(scope, credentials).map_err(refuse)?),
            // A place in another system, reached through the server; the cage has nothing to do with it.
            ScopeKind::Remote => {}
        }
    }
    if !profile.egress.is_empty() {
        profile.background_egress = declaration.body.background_egress;
        let expected = declaration.body.expected_denials.iter();
        profile.expected_denials =
            expected.filter_map(|denial| denial.host.clone().or_else(|| denial.addr.clone())).collect();
        profile.env.extend(proxied());
    } else {
        profile.tells_names = true;
    }
    Ok(profile)
}

/// A host that a server may talk to.
fn destination(name: &str, scope: &Scope) -> Result<EgressScope, &'static str> {
    let (Some(host), Some(port)) = (scope.host.as_ref(), scope.port) else {
        return Err("a host and a port are needed");
    };
    let addrs = scope.addrs.iter().flatten().map(|address| address.parse());
    Ok(EgressScope {
        scope: name.to_owned(),
        host: host.to_ascii_lowercase(),
        port,
        tls: match scope.tls {
            Some(Tls::None) => Spoken::None,
            _ => Spoken::Required,
        },
        addrs: addrs.collect::<Result<_, _>>().map_err(|_| "addrs must be addresses")?,
    })
}

/// A credential that a server needs.
fn credential(scope: &Scope, credentials: Credentials) -> Result<SecretScope, &'static str> {
    let delivery = Delivery::of(scope).ok_or("a credential class, a way and a name are needed")?;
    let via = match delivery.via {
        Via::Proxy => Travels::Proxy,
        Via::Header => return Err("a process has no headers; use proxy"),
        Via::Fd | Via::Env if credentials == Credentials::NoneOfItsOwn => {
            return Err(
                "a process that serves all calls is given no credentials itself; use proxy, or another process model",
            );
        }
        Via::Fd => Travels::Fd,
        Via::Env => Travels::Env,
    };
    let Delivery { class, name, toward, format, within, .. } = delivery;
    Ok(SecretScope { class: class.into(), via, name, toward, format, within })
}

/// Tells programs that know proxies where theirs is (SBX-45). Those that do not, find declared hosts under their names.
fn proxied() -> impl Iterator<Item = (String, String)> {
    const PROXY: &str = "http://127.0.0.1:3128";
    let names = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
    let proxies = names.into_iter().map(|name| (name.to_owned(), PROXY.to_owned()));
    proxies.chain([("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned())])
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

#[cfg(test)]
#[path = "confinement_tests.rs"]
mod tests;
