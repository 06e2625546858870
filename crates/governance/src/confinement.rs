//! The cage of a server, derived from what was declared and registered, and from nothing else (SBX-10).

use std::path::{Path, PathBuf};

use portcullis_core::Sha256Digest;
use portcullis_core::canon::to_jcs;
use portcullis_sandbox::{
    Access as Allowed, EgressScope, FsScope, Profile, SecretScope, Tls as Spoken, Via as Travels,
};

use crate::broker::Delivery;
use crate::declaration::{Access, Declaration, Scope, ScopeKind, Tls, Via};
use crate::endpoint::Pin;
use crate::record::Process;

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

/// The cage of a program that is only looked at: it reads the folders that its command names, and has nothing else.
pub fn looked_at(process: &Process, pins: &[Pin], folders: &[&Path]) -> Profile {
    let mut profile = Profile::bare(&process.command, process.args.clone());
    profile.env.extend(process.env.clone());
    profile.artifacts = pins.iter().map(|pin| PathBuf::from(&pin.path)).collect();
    profile.fs = folders.iter().map(|path| FsScope { path: path.into(), access: Allowed::Ro }).collect();
    profile
}

/// One process serves all tools, so its cage is the union of their scopes (process model `shared`, SBX-12).
pub fn derive(declaration: &Declaration, process: &Process, pins: &[Pin]) -> Result<Profile, Unconfinable> {
    let mut profile = Profile::bare(&process.command, process.args.clone());
    profile.env.extend(process.env.clone());
    profile.artifacts = pins.iter().map(|pin| PathBuf::from(&pin.path)).collect();
    for (name, scope) in &declaration.body.scopes {
        let refuse = |reason| Unconfinable { scope: name.to_string(), reason };
        match scope.kind {
            ScopeKind::Fs => folder(scope).into_iter().for_each(|folder| add(&mut profile.fs, folder)),
            ScopeKind::Exec => profile.exec.extend(scope.path.as_ref().map(PathBuf::from)),
            ScopeKind::Egress => profile.egress.push(destination(name.as_str(), scope).map_err(refuse)?),
            ScopeKind::Secret => profile.secrets.push(credential(scope).map_err(refuse)?),
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
fn credential(scope: &Scope) -> Result<SecretScope, &'static str> {
    let delivery = Delivery::of(scope).ok_or("a credential class, a way and a name are needed")?;
    let via = match delivery.via {
        Via::Proxy => Travels::Proxy,
        Via::Header => return Err("a process has no headers; use proxy"),
        Via::Fd | Via::Env => {
            return Err("a process that serves all calls is given no credentials itself; use proxy");
        }
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
