//! The acceptance rules about credentials: what a scope of kind `secret` may say, and that tools and scopes agree.

use std::collections::BTreeMap;

use portcullis_core::name::{ScopeName, printable};
use portcullis_sandbox::broker::Format;

use super::{Scope, ScopeKind, Tls, ToolClause, Via};
use crate::broker::CredentialClass;

type Scopes = BTreeMap<ScopeName, Scope>;

/// What the place of the value is called in the format of a header.
pub(crate) const SECRET: &str = "{secret}";

/// Everything that is wrong with a scope of kind `secret`, with the member at fault. `is_remote` says that the server is no
/// process of ours.
pub(super) fn problems(scope: &Scope, scopes: &Scopes, is_remote: bool) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let mut problem = |member, text: &str| found.push((member, text.to_owned()));
    if let Some(Err(bad)) = scope.credential_class.as_deref().map(str::parse::<CredentialClass>) {
        problem("credential_class", &bad.to_string());
    }
    let name = scope.name.as_deref().unwrap_or_default();
    let via = scope.via.unwrap_or(Via::Header);
    match (via, is_remote) {
        (Via::Header, false) => problem("via", "a process has no headers; use proxy, fd or env"),
        (Via::Proxy | Via::Fd | Via::Env, true) => {
            problem("via", "a server behind a URL is given credentials in a header");
        }
        _ => {}
    }
    if via == Via::Header {
        if !is_free_header(name) {
            problem("name", "must be the name of a header that the protocol does not use itself");
        }
        if scope.format.as_deref().is_some_and(|format| !is_header_format(format)) {
            problem("format", "must be printable text with `{secret}` in it once, as in `Bearer {secret}`");
        }
    } else if !is_free_variable(name) {
        problem(
            "name",
            "must be a variable of capital letters, digits and `_` that the sandbox does not set itself",
        );
    }
    if via == Via::Proxy {
        let toward = scope.toward.as_ref().and_then(|name| scopes.get(name));
        let private = |host: &Scope| host.kind == ScopeKind::Egress && host.tls == Some(Tls::Required);
        if !toward.is_some_and(private) {
            problem("toward", "must be the name of an egress scope with `tls: required`");
        }
        if scope.format.as_deref().is_some_and(|format| Format::parse(format).is_err()) {
            problem("format", &portcullis_sandbox::broker::BadFormat.to_string());
        }
        let known = |place: &String| matches!(place.as_str(), "header" | "query" | "body");
        if scope.within.as_ref().is_some_and(|places| places.is_empty() || !places.iter().all(known)) {
            problem("in", "must name some of: header, query, body");
        }
    } else {
        for (member, given) in [("toward", scope.toward.is_some()), ("in", scope.within.is_some())] {
            if given {
                problem(member, "is for credentials via proxy");
            }
        }
    }
    if matches!(via, Via::Fd | Via::Env) && scope.format.is_some() {
        problem("format", "is for credentials via proxy or header");
    }
    found
}

/// What a tool's credentials and its scopes do not say about each other.
pub(super) fn unexplained(tool: &ToolClause, scopes: &Scopes) -> Vec<String> {
    let mut found = Vec::new();
    let own = || tool.scopes.iter().filter_map(|name| Some((name, scopes.get(name)?)));
    let secrets = || own().filter(|(_, scope)| scope.kind == ScopeKind::Secret);
    for (index, class) in tool.credentials.iter().enumerate() {
        let provides = |(_, scope): &(&ScopeName, &Scope)| scope.credential_class.as_ref() == Some(class);
        match secrets().filter(provides).count() {
            0 => found.push(format!("no secret scope of the tool provides class {}", printable(class))),
            1 => {}
            _ => found
                .push(format!("more than one secret scope of the tool provides class {}", printable(class))),
        }
        if tool.credentials[..index].contains(class) {
            found.push(format!("names class {} twice", printable(class)));
        }
    }
    for (name, scope) in secrets() {
        if !scope.credential_class.as_ref().is_some_and(|class| tool.credentials.contains(class)) {
            found.push(format!("the class of scope {name} is not among the tool's credentials"));
        }
        if scope.toward.as_ref().is_some_and(|toward| !tool.scopes.contains(toward)) {
            found.push(format!("scope {name} leads toward a host that is not among the tool's scopes"));
        }
    }
    found
}

/// Headers that carry the protocol, or say where a message ends.
fn is_free_header(name: &str) -> bool {
    const TAKEN: [&str; 9] = [
        "host",
        "accept",
        "content-type",
        "content-length",
        "connection",
        "transfer-encoding",
        "upgrade",
        "te",
        "last-event-id",
    ];
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let lower = name.to_ascii_lowercase();
    !name.is_empty()
        && name.len() <= 64
        && name.bytes().all(token)
        && !TAKEN.contains(&lower.as_str())
        && !lower.starts_with("mcp-")
}

fn is_header_format(format: &str) -> bool {
    format.len() <= 256
        && format.matches(SECRET).count() == 1
        && format.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
}

/// Variables that mean nothing to the loader, the runtime or the sandbox.
fn is_free_variable(name: &str) -> bool {
    const TAKEN: [&str; 14] = [
        "HOME",
        "LANG",
        "PATH",
        "TMPDIR",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS",
        "NODE_OPTIONS",
        "NODE_USE_ENV_PROXY",
    ];
    let plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    name.bytes().next().is_some_and(|first| first.is_ascii_uppercase())
        && name.len() <= 64
        && name.bytes().all(plain)
        && !TAKEN.contains(&name)
        && !["LD_", "PYTHON", "GLIBC_"].iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declaration::{Declaration, Source};

    fn declared(scopes: &str, tool_scopes: &str, credentials: &str) -> Declaration {
        let text = format!(
            r#"apiVersion: portcullis/v1
kind: CapabilityDeclaration
server: {{ identity: issues, version: "1", protocol_versions: ["2025-11-25"], surface: static }}
scopes:
  api: {{ kind: egress, host: api.example, port: 443, tls: required }}
  plain: {{ kind: egress, host: plain.example, port: 80, tls: none }}
  token: {scopes}
tools:
  - name: t
    version: "1"
    side_effects: [network, secret_access]
    unbound: true
    scopes: [{tool_scopes}]
    credentials: [{credentials}]
    parameters: {{ type: object, additionalProperties: false }}
    output: {{ type: text }}
    idempotency: unknown
    failure_modes: []
"#
        );
        Declaration::parse(&Source { name: "x.yaml", text: &text }).unwrap()
    }

    fn members(scope: &str, is_remote: bool) -> Vec<&'static str> {
        let declaration = declared(scope, "api, token", "issues.read");
        let scopes = &declaration.body.scopes;
        let token = &scopes[&"token".parse().unwrap()];
        problems(token, scopes, is_remote).into_iter().map(|(member, _)| member).collect()
    }

    #[test]
    fn a_secret_scope_says_how_a_credential_travels_and_nothing_else() {
        // GOV-403, SBX-52
        let proxy = "kind: secret, credential_class: issues.read, via: proxy, name: API_TOKEN, toward: api";
        let header = "kind: secret, credential_class: issues.read, via: header, name: Authorization";
        assert!(members(&format!("{{ {proxy} }}"), false).is_empty());
        assert!(
            members(&format!("{{ {proxy}, format: \"ghp_{{36}}\", in: [header, query] }}"), false).is_empty()
        );
        assert!(members(&format!("{{ {header}, format: \"Bearer {{secret}}\" }}"), true).is_empty());
        let fd = "{ kind: secret, credential_class: c, via: fd, name: KEY }";
        assert!(members(fd, false).is_empty());
        for (scope, is_remote, at_fault) in [
            (format!("{{ {proxy} }}"), true, "via"),
            (format!("{{ {header} }}"), false, "via"),
            (proxy.replace("toward: api", "toward: plain"), false, "toward"),
            (proxy.replace(", toward: api", ""), false, "toward"),
            (format!("{proxy}, format: \"short{{3}}\""), false, "format"),
            (format!("{proxy}, in: [cookie]"), false, "in"),
            (proxy.replace("API_TOKEN", "LD_PRELOAD"), false, "name"),
            (proxy.replace("API_TOKEN", "PATH"), false, "name"),
            (proxy.replace("API_TOKEN", "token"), false, "name"),
            (proxy.replace("issues.read", "Issues Read"), false, "credential_class"),
            (header.replace("Authorization", "Mcp-Session-Id"), true, "name"),
            (header.replace("Authorization", "Host"), true, "name"),
            (format!("{header}, format: Bearer"), true, "format"),
            (format!("{header}, toward: api"), true, "toward"),
        ] {
            let scope = if scope.starts_with('{') { scope } else { format!("{{ {scope} }}") };
            assert_eq!(members(&scope, is_remote), [at_fault], "{scope}");
        }
    }

    #[test]
    fn credentials_and_scopes_of_a_tool_explain_each_other() {
        let proxy =
            "{ kind: secret, credential_class: issues.read, via: proxy, name: API_TOKEN, toward: api }";
        let said = |scopes: &str, credentials: &str| {
            let declaration = declared(proxy, scopes, credentials);
            unexplained(&declaration.body.tools[0], &declaration.body.scopes)
        };
        assert!(said("api, token", "issues.read").is_empty());
        assert!(said("api", "").is_empty());
        assert!(said("api", "issues.read")[0].contains("no secret scope"));
        assert!(said("api, token", "")[0].contains("not among the tool's credentials"));
        assert!(said("token", "issues.read")[0].contains("toward a host"));
        assert!(said("api, token", "issues.read, issues.read")[0].contains("twice"));
    }
}
