//! What a declaration's scopes mean as capabilities (GNT-C14): what a tool requires, and what its server is good for at
//! most.

use portcullis_core::ServerIdentity;
use portcullis_gauntlet::{CapMode, Capabilities, Requirement};

use crate::declaration::{Access, BindingKind, Declaration, Scope, ScopeKind, SideEffect, Tls, ToolClause};

/// What calling a tool takes. A bound argument is required itself; an unbound scope is required whole.
pub(crate) fn permissions(
    declaration: &Declaration,
    clause: &ToolClause,
) -> Result<Vec<Requirement>, String> {
    let mut texts = Vec::new();
    for name in &clause.scopes {
        let Some(scope) = declaration.body.scopes.get(name) else { continue };
        let bindings: Vec<_> =
            clause.scope_bindings.iter().filter(|binding| binding.scope == *name).collect();
        if bindings.is_empty() {
            texts.extend(whole(scope, clause, literal));
        }
        for binding in bindings {
            texts.extend(bound(scope, clause, &binding.param, binding.reading));
        }
    }
    texts.sort_unstable();
    texts.dedup();
    texts.iter().map(|text| Requirement::parse(text).map_err(|error| error.to_string())).collect()
}

/// What a server may be used for at most (GNT-C11).
pub(crate) fn ceiling(identity: &ServerIdentity, declaration: &Declaration) -> Result<Capabilities, String> {
    let mut grants = vec![format!("mcp.call:{identity}/*")];
    for scope in declaration.body.scopes.values() {
        let path = || escaped(scope.path.as_deref().unwrap_or_default().trim_end_matches('/'));
        match scope.kind {
            ScopeKind::Fs => {
                for name in
                    if scope.access == Some(Access::Rw) { &["fs.read", "fs.write"][..] } else { &["fs.read"] }
                {
                    // The folder itself, and everything in it.
                    grants.extend([format!("{name}:{}", path()), format!("{name}:{}/*", path())]);
                }
            }
            ScopeKind::Egress => grants.push(format!("net.connect:{}/*", address(scope))),
            ScopeKind::Secret => {
                grants.extend(
                    scope.credential_class.iter().map(|class| format!("secret.use:{}", escaped(class))),
                );
            }
            ScopeKind::Exec => grants.push(format!("exec.run:{}", path())),
            ScopeKind::Remote => {
                grants.extend(scope.system.iter().map(|system| format!("remote.use:{}/*", escaped(system))));
            }
        }
    }
    // A root folder leaves nothing before its slash.
    let grants = grants.iter().map(String::as_str).filter(|grant| !grant.ends_with(':'));
    Capabilities::parse(CapMode::Cleared, grants).map_err(|error| error.to_string())
}

fn literal(path: &str) -> String {
    format!("{}/*", path.trim_end_matches('/'))
}

fn whole(scope: &Scope, clause: &ToolClause, of_path: fn(&str) -> String) -> Vec<String> {
    let path = scope.path.as_deref().unwrap_or_default();
    match scope.kind {
        ScopeKind::Fs => {
            file_names(scope, clause).iter().map(|name| format!("{name}:{}", of_path(path))).collect()
        }
        ScopeKind::Egress => vec![format!("net.connect:{}/*", address(scope))],
        ScopeKind::Secret => {
            scope.credential_class.iter().map(|class| format!("secret.use:{class}")).collect()
        }
        ScopeKind::Exec => vec![format!("exec.run:{path}")],
        ScopeKind::Remote => scope.system.iter().map(|system| format!("remote.use:{system}/*")).collect(),
    }
}

fn bound(scope: &Scope, clause: &ToolClause, param: &str, reading: BindingKind) -> Vec<String> {
    match reading {
        BindingKind::FsPath => {
            file_names(scope, clause).iter().map(|name| format!("{name}:{{{param}|path}}")).collect()
        }
        BindingKind::Url => vec![format!("net.connect:{{{param}|url}}")],
        BindingKind::Host => {
            let (scheme, port) = (scheme(scope), scope.port.unwrap_or(443));
            vec![format!("net.connect:{scheme}://{{{param}|host}}:{port}/*")]
        }
        BindingKind::ExecPath => vec![format!("exec.run:{}", scope.path.as_deref().unwrap_or_default())],
        BindingKind::Prefix => {
            scope.system.iter().map(|system| format!("remote.use:{system}/{{{param}}}")).collect()
        }
    }
}

/// Read-only folders are read; others are written, and read too by tools that read.
fn file_names(scope: &Scope, clause: &ToolClause) -> &'static [&'static str] {
    match (scope.access, clause.side_effects.contains(&SideEffect::Read)) {
        (Some(Access::Rw), true) => &["fs.write", "fs.read"],
        (Some(Access::Rw), false) => &["fs.write"],
        _ => &["fs.read"],
    }
}

fn scheme(scope: &Scope) -> &'static str {
    if scope.tls == Some(Tls::Required) { "https" } else { "http" }
}

fn address(scope: &Scope) -> String {
    format!("{}://{}:{}", scheme(scope), scope.host.as_deref().unwrap_or_default(), scope.port.unwrap_or(443))
}

/// A text as a pattern that only it matches.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
