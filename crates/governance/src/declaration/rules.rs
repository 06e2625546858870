//! The acceptance rules that need only the file and the record: GOV-403, rules 2 to 7 and 9.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use portcullis_core::name::{ScopeName, printable};
use portcullis_core::{ServerIdentity, ServerVersion};
use portcullis_gauntlet::{CompiledSchema, SchemaRole};

use super::{
    Access, BindingKind, Declaration, Rejection, Replay, Scope, ScopeKind, SideEffect, ToolClause, secrets,
};
use crate::endpoint::Pin;
use crate::record::{Process, Surface};
use crate::uri_template::UriTemplate;

/// What the rules are checked against.
#[derive(Debug, Clone, Copy)]
pub struct Expectations<'a> {
    /// The registered name.
    pub identity: &'a ServerIdentity,
    /// The registered version.
    pub version: &'a ServerVersion,
    /// The registered surface.
    pub surface: Surface,
    /// What runs; no writable scope may hold it.
    pub pins: &'a [Pin],
    /// `$PORTCULLIS_HOME`; no scope may touch it.
    pub home: &'a Path,
    /// Policies and keys that are kept elsewhere; no scope may touch them either.
    pub protected: &'a [PathBuf],
    /// What is started; none for a server that is no process of ours, for which alone `remote` scopes make sense.
    pub process: Option<&'a Process>,
}

/// Checks every rule and reports every breach, in file order within each rule.
pub fn check(declaration: &Declaration, file: &str, expect: &Expectations<'_>) -> Result<(), Vec<Rejection>> {
    let mut checker = Checker { declaration, file, found: Vec::new() };
    checker.server(expect);
    checker.scopes(expect);
    for (index, tool) in declaration.body.tools.iter().enumerate() {
        checker.tool(index, tool);
    }
    for (index, resource) in declaration.body.resources.iter().enumerate() {
        let at = format!("/resources/{index}");
        match resource.subject() {
            Ok(subject) => checker.item(&at, &resource.as_tool(&subject)),
            Err(problem) => checker.reject(6, &at, problem),
        }
    }
    for (index, prompt) in declaration.body.prompts.iter().enumerate() {
        checker.item(&format!("/prompts/{index}"), &prompt.as_tool());
    }
    checker.unique_names();
    checker.every_scope_used();
    if checker.found.is_empty() { Ok(()) } else { Err(checker.found) }
}

struct Checker<'a> {
    declaration: &'a Declaration,
    file: &'a str,
    found: Vec<Rejection>,
}

impl Checker<'_> {
    fn reject(&mut self, rule: u8, pointer: &str, message: impl Into<String>) {
        self.found.push(self.declaration.reject(self.file, rule, pointer, message));
    }

    fn server(&mut self, expect: &Expectations<'_>) {
        let server = &self.declaration.body.server;
        if &server.identity != expect.identity {
            let message = format!(
                "declares server {:?}, but {:?} is being registered",
                server.identity.as_str(),
                expect.identity.as_str()
            );
            self.reject(2, "/server/identity", message);
        }
        if &server.version != expect.version {
            let message = format!(
                "declares version {:?}, but {:?} is being registered",
                server.version.as_str(),
                expect.version.as_str()
            );
            self.reject(2, "/server/version", message);
        }
        if server.surface != expect.surface {
            self.reject(2, "/server/surface", "differs from the surface being registered");
        }
        // GOV-502
        let allowed = Duration::from_secs(5)..=Duration::from_secs(3600);
        match (server.surface, &server.refresh) {
            (Surface::Dynamic, None) => {
                let message = "a dynamic surface says how often it is looked at: refresh: { max_age: 60s }";
                self.reject(2, "/server/surface", message);
            }
            (Surface::Dynamic, Some(refresh)) if !allowed.contains(&refresh.max_age.0) => {
                self.reject(2, "/server/refresh/max_age", "must be 5s to 1h");
            }
            (Surface::Static, Some(_)) => {
                self.reject(2, "/server/refresh", "is for dynamic surfaces; this one is declared static");
            }
            _ => {}
        }
        if server.protocol_versions.is_empty() {
            self.reject(3, "/server/protocol_versions", "must name at least one protocol revision");
        }
    }

    fn scopes(&mut self, expect: &Expectations<'_>) {
        for (name, scope) in &self.declaration.body.scopes {
            let pointer = format!("/scopes/{name}");
            if let Some(problem) = missing_or_foreign_member(scope) {
                self.reject(1, &pointer, problem);
                continue;
            }
            match scope.kind {
                ScopeKind::Fs => {
                    let path = scope.path.as_deref().unwrap_or_default();
                    let writable = scope.access == Some(Access::Rw);
                    if let Some(problem) = forbidden_path(path, writable, expect) {
                        self.reject(5, &format!("{pointer}/path"), problem);
                    }
                }
                ScopeKind::Exec => {
                    if !is_plain_absolute(scope.path.as_deref().unwrap_or_default()) {
                        self.reject(
                            5,
                            &format!("{pointer}/path"),
                            "must be an absolute path without `.` or `..`",
                        );
                    }
                }
                ScopeKind::Egress => {
                    let host = scope.host.as_deref().unwrap_or_default();
                    if host.contains('*') || !matches!(url::Host::parse(host), Ok(url::Host::Domain(_))) {
                        self.reject(
                            5,
                            &format!("{pointer}/host"),
                            "must be one host name: no wildcard, no address",
                        );
                    }
                }
                ScopeKind::Secret => {
                    for (member, problem) in
                        secrets::problems(scope, &self.declaration.body.scopes, expect.process.is_none())
                    {
                        self.reject(5, &format!("{pointer}/{member}"), problem);
                    }
                }
                ScopeKind::Remote if expect.process.is_some() => {
                    self.reject(
                        5,
                        &pointer,
                        "remote scopes are for http servers; a local process has fs, egress and exec",
                    );
                }
                ScopeKind::Remote => {}
            }
        }
    }

    fn tool(&mut self, index: usize, tool: &ToolClause) {
        let at = format!("/tools/{index}");
        if tool.name.as_str().starts_with("portcullis_") {
            self.reject(3, &format!("{at}/name"), "the prefix portcullis_ is reserved");
        }
        self.item(&at, tool);
    }

    /// What holds for tools, and for resources and prompts seen as such.
    fn item(&mut self, at: &str, tool: &ToolClause) {
        self.limits(at, tool);
        self.classes(at, tool);
        self.schemas(at, tool);
        self.bindings(at, tool);
        for problem in secrets::unexplained(tool, &self.declaration.body.scopes) {
            self.reject(4, &format!("{at}/credentials"), problem);
        }
    }

    fn limits(&mut self, at: &str, tool: &ToolClause) {
        let limits = &tool.limits;
        let caps = [
            ("timeout", limits.timeout.0 <= Duration::from_secs(600) && !limits.timeout.0.is_zero(), "600s"),
            ("max_request_bytes", limits.max_request_bytes <= 4 << 20, "4 MiB"),
            ("max_response_bytes", limits.max_response_bytes <= 16 << 20, "16 MiB"),
            ("max_egress_bytes", limits.max_egress_bytes <= 1 << 30, "1 GiB"),
        ];
        for (name, within, cap) in caps {
            if !within {
                self.reject(
                    1,
                    &format!("{at}/limits/{name}"),
                    format!("must be more than nothing and at most {cap}"),
                );
            }
        }
    }

    /// Rule 4: scopes and classes explain each other.
    fn classes(&mut self, at: &str, tool: &ToolClause) {
        let scopes = &self.declaration.body.scopes;
        let classes: BTreeSet<SideEffect> = tool.side_effects.iter().copied().collect();
        if classes.len() != tool.side_effects.len() {
            self.reject(4, &format!("{at}/side_effects"), "names a class twice");
        }
        for name in &tool.scopes {
            let Some(scope) = scopes.get(name) else {
                self.reject(4, &format!("{at}/scopes"), format!("uses scope {name}, which is not declared"));
                continue;
            };
            if !explaining_classes(scope).iter().any(|class| classes.contains(class)) {
                let needed: Vec<_> = explaining_classes(scope).iter().map(|class| class.as_str()).collect();
                let message =
                    format!("scope {name} is explained by no class; add one of: {}", needed.join(", "));
                self.reject(4, &format!("{at}/scopes"), message);
            }
        }
        // AUD-70: what is done again while replaying may only read.
        if tool.replay == Replay::Reexecute && classes.iter().any(|class| *class != SideEffect::Read) {
            let message =
                "`reexecute` is for tools whose only class is read; `must-stub` plays the recorded result";
            self.reject(4, &format!("{at}/replay"), message);
        }
        if tool.unbound {
            return;
        }
        for class in &classes {
            let backed =
                tool.scopes.iter().filter_map(|name| scopes.get(name)).any(|scope| backs(*class, scope));
            if !backed {
                let message = format!(
                    "class {} is backed by no scope; declare the scope, or `unbound: true` (it then grants nothing and every call asks)",
                    class.as_str()
                );
                self.reject(4, &format!("{at}/side_effects"), message);
            }
        }
    }

    /// Rule 6: the schemas are closed, compile, and stay inside the caps.
    fn schemas(&mut self, at: &str, tool: &ToolClause) {
        match CompiledSchema::compile(&tool.parameters, SchemaRole::Input) {
            Ok(schema) if !schema.is_closed_object() => self.reject(
                6,
                &format!("{at}/parameters"),
                "must be closed: `type: object` with `additionalProperties: false`",
            ),
            Ok(_) => {
                if let Err(problem) = crate::mirrored::read(&tool.parameters) {
                    self.reject(6, &format!("{at}/parameters"), problem);
                }
            }
            Err(error) => self.reject(6, &format!("{at}/parameters"), error.to_string()),
        }
        match (&tool.output.schema, tool.output.kind) {
            (Some(schema), None) => {
                if let Err(error) = CompiledSchema::compile(schema, SchemaRole::Output) {
                    self.reject(6, &format!("{at}/output/schema"), error.to_string());
                }
            }
            (None, Some(_)) => {}
            _ => self.reject(3, &format!("{at}/output"), "must have either `schema` or `type`"),
        }
    }

    /// Rule 7: bindings resolve, and what can do harm is bound.
    fn bindings(&mut self, at: &str, tool: &ToolClause) {
        let scopes = &self.declaration.body.scopes;
        if tool.unbound && !tool.scope_bindings.is_empty() {
            self.reject(7, &format!("{at}/unbound"), "cannot stand beside scope_bindings");
        }
        for (index, binding) in tool.scope_bindings.iter().enumerate() {
            let pointer = format!("{at}/scope_bindings/{index}");
            if !tool.scopes.contains(&binding.scope) {
                let message = format!("scope {} is not among the tool's scopes", binding.scope);
                self.reject(7, &format!("{pointer}/scope"), message);
                continue;
            }
            let fits =
                scopes.get(&binding.scope).is_some_and(|scope| reading_fits(binding.reading, scope.kind));
            if !fits {
                self.reject(7, &format!("{pointer}/as"), "cannot be read as this for a scope of that kind");
            }
            if let Err(problem) = parameter_exists(&tool.parameters, &binding.param) {
                self.reject(7, &format!("{pointer}/param"), problem);
            }
        }
        if tool.unbound {
            return;
        }
        let bound: BTreeSet<&ScopeName> = tool.scope_bindings.iter().map(|binding| &binding.scope).collect();
        for name in tool.scopes.iter().filter(|name| !bound.contains(name)) {
            if scopes.get(name).is_some_and(|scope| must_be_bound(scope, tool)) {
                let message =
                    format!("scope {name} must be bound to an argument, or the tool be `unbound: true`");
                self.reject(7, &format!("{at}/scopes"), message);
            }
        }
    }

    fn unique_names(&mut self) {
        let mut seen = BTreeSet::new();
        for (index, tool) in self.declaration.body.tools.iter().enumerate() {
            if !seen.insert(&tool.name) {
                self.reject(3, &format!("/tools/{index}/name"), "is declared twice");
            }
        }
        let mut seen = BTreeSet::new();
        for (index, resource) in self.declaration.body.resources.iter().enumerate() {
            let place = resource.uri.as_ref().or(resource.uri_template.as_ref());
            if !seen.insert(resource.name.as_str()) || !seen.insert(place.map_or("", String::as_str)) {
                self.reject(3, &format!("/resources/{index}/name"), "is declared twice");
            }
        }
        // GOV-407: a URI belongs to one template.
        let templates: Vec<(usize, UriTemplate)> = (self.declaration.body.resources.iter().enumerate())
            .filter_map(|(index, resource)| {
                Some((index, UriTemplate::parse(resource.uri_template.as_deref()?).ok()?))
            })
            .collect();
        for (at, (index, template)) in templates.iter().enumerate() {
            let twin = templates[..at].iter().find(|(_, other)| other.overlaps(template));
            if let Some((_, other)) = twin {
                let message = format!(
                    "a URI could fit both this and `{other}`; declare templates of which it fits one"
                );
                self.reject(3, &format!("/resources/{index}/uri_template"), message);
            }
        }
        let mut seen = BTreeSet::new();
        for (index, prompt) in self.declaration.body.prompts.iter().enumerate() {
            if !seen.insert(&prompt.name) {
                self.reject(3, &format!("/prompts/{index}/name"), "is declared twice");
            }
        }
    }

    fn every_scope_used(&mut self) {
        let body = &self.declaration.body;
        let used: BTreeSet<&ScopeName> = (body.tools.iter().flat_map(|tool| &tool.scopes))
            .chain(body.resources.iter().flat_map(|resource| &resource.scopes))
            .chain(body.prompts.iter().flat_map(|prompt| &prompt.scopes))
            .collect();
        for name in body.scopes.keys().filter(|name| !used.contains(name)) {
            self.reject(4, &format!("/scopes/{name}"), "is used by nothing");
        }
    }
}

/// A scope has the members of its kind, all of them, and no others.
fn missing_or_foreign_member(scope: &Scope) -> Option<String> {
    let given = [
        ("path", scope.path.is_some()),
        ("access", scope.access.is_some()),
        ("host", scope.host.is_some()),
        ("port", scope.port.is_some()),
        ("tls", scope.tls.is_some()),
        ("addrs", scope.addrs.is_some()),
        ("credential_class", scope.credential_class.is_some()),
        ("via", scope.via.is_some()),
        ("name", scope.name.is_some()),
        ("toward", scope.toward.is_some()),
        ("format", scope.format.is_some()),
        ("in", scope.within.is_some()),
        ("system", scope.system.is_some()),
        ("prefix", scope.prefix.is_some()),
    ];
    let (required, optional): (&[&str], &[&str]) = match scope.kind {
        ScopeKind::Fs => (&["path", "access"], &[]),
        ScopeKind::Egress => (&["host", "port", "tls"], &["addrs"]),
        ScopeKind::Secret => (&["credential_class", "via", "name"], &["toward", "format", "in"]),
        ScopeKind::Exec => (&["path"], &[]),
        ScopeKind::Remote => (&["system"], &["prefix"]),
    };
    let kind = format!("{:?}", scope.kind).to_lowercase();
    for (name, present) in given {
        if !present && required.contains(&name) {
            return Some(format!("a scope of kind {kind} needs `{name}`"));
        }
        if present && !required.contains(&name) && !optional.contains(&name) {
            return Some(format!("a scope of kind {kind} has no `{name}`"));
        }
    }
    None
}

fn explaining_classes(scope: &Scope) -> &'static [SideEffect] {
    use SideEffect::*;
    match (scope.kind, scope.access) {
        (ScopeKind::Fs, Some(Access::Rw)) => &[Write],
        (ScopeKind::Fs, _) => &[Read],
        (ScopeKind::Egress, _) => &[Network],
        (ScopeKind::Secret, _) => &[SecretAccess],
        (ScopeKind::Exec, _) => &[Execute],
        (ScopeKind::Remote, _) => &[Read, Write, Network],
    }
}

fn backs(class: SideEffect, scope: &Scope) -> bool {
    match class {
        SideEffect::Read => matches!(scope.kind, ScopeKind::Fs | ScopeKind::Remote),
        SideEffect::Write => scope.kind == ScopeKind::Remote || scope.access == Some(Access::Rw),
        SideEffect::Network => matches!(scope.kind, ScopeKind::Egress | ScopeKind::Remote),
        SideEffect::SecretAccess => scope.kind == ScopeKind::Secret,
        SideEffect::Execute => scope.kind == ScopeKind::Exec,
        SideEffect::Other => false,
    }
}

fn must_be_bound(scope: &Scope, tool: &ToolClause) -> bool {
    match scope.kind {
        ScopeKind::Fs => scope.access == Some(Access::Rw),
        ScopeKind::Egress | ScopeKind::Exec => true,
        ScopeKind::Remote => {
            tool.side_effects.iter().any(|class| matches!(class, SideEffect::Write | SideEffect::Network))
        }
        ScopeKind::Secret => false,
    }
}

fn reading_fits(reading: BindingKind, kind: ScopeKind) -> bool {
    match reading {
        BindingKind::FsPath => kind == ScopeKind::Fs,
        BindingKind::Url | BindingKind::Host => kind == ScopeKind::Egress,
        BindingKind::ExecPath => kind == ScopeKind::Exec,
        BindingKind::Prefix => kind == ScopeKind::Remote,
    }
}

/// The pointer leads through declared properties; `*` steps into array items.
fn parameter_exists(schema: &serde_json::Value, param: &str) -> Result<(), String> {
    if !param.starts_with('/') {
        return Err(format!("{} is not a JSON pointer; expected e.g. /path", printable(param)));
    }
    let mut at = schema;
    for segment in param[1..].split('/') {
        let name = segment.replace("~1", "/").replace("~0", "~");
        let next =
            if segment == "*" { at.get("items") } else { at.get("properties").and_then(|p| p.get(&name)) };
        at = next.ok_or_else(|| format!("{} does not lead to a declared parameter", printable(param)))?;
    }
    Ok(())
}

fn is_plain_absolute(path: &str) -> bool {
    let path = Path::new(path);
    path.is_absolute()
        && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

/// Rule 5 for file systems.
fn forbidden_path(path: &str, writable: bool, expect: &Expectations<'_>) -> Option<String> {
    if !is_plain_absolute(path) {
        return Some("must be an absolute path without `.` or `..`".into());
    }
    let path = Path::new(path);
    if path == Path::new("/") {
        return Some("may not be the whole file system".into());
    }
    let touches = |other: &Path| path.starts_with(other) || other.starts_with(path);
    for system in ["/proc", "/sys", "/dev", "/run", "/boot"] {
        if touches(Path::new(system)) {
            return Some(format!("may not be in or over {system}"));
        }
    }
    // The demo's own data folder is the one place inside the home that a server may be given.
    if touches(expect.home) && !path.starts_with(expect.home.join("data")) {
        return Some("may not be in or over Portcullis' own folder".into());
    }
    if expect.protected.iter().any(|other| touches(other)) {
        return Some("may not be in or over what holds policies or keys of Portcullis".into());
    }
    if writable && expect.pins.iter().any(|pin| Path::new(&pin.path).starts_with(path)) {
        return Some("may not be writable and hold the server's own program".into());
    }
    None
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
