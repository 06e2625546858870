//! The whole grammar of declarations, every key shown once (GOV-402).

use portcullis_governance::declaration::{Declaration, Source};

const WHOLE: &str = r#"apiVersion: portcullis/v1
kind: CapabilityDeclaration
server: { identity: filesystem, version: "2.3.1", protocol_versions: ["2025-11-25"], surface: dynamic, refresh: { max_age: 60s } }
scopes:
  ws: { kind: fs, path: /srv/project, access: rw }
  ws_ro: { kind: fs, path: /srv/project, access: ro }
  api: { kind: egress, host: api.example.com, port: 443, tls: required, addrs: [10.0.0.7] }
  token: { kind: secret, credential_class: issues.read, via: proxy, name: API_TOKEN, toward: api, format: "ghp_{36}", in: [header] }
  git: { kind: exec, path: /usr/bin/git }
  crm: { kind: remote, system: crm.example.com, prefix: "acct_" }
expected_denials: [ { host: telemetry.example.com }, { addr: 8.8.8.8 } ]
background_egress: false
tools:
  - name: read_file
    version: "1"
    description: Read one file
    side_effects: [read]
    scopes: [ws_ro]
    scope_bindings: [ { param: /path, scope: ws_ro, as: fs_path } ]
    credentials: []
    parameters: { type: object, additionalProperties: false, required: [path], properties: { path: {type: string, maxLength: 4096} } }
    output: { schema: { type: object } }
    idempotency: idempotent
    failure_modes: [ { code: not_found, retryable: false } ]
    limits: { timeout: 30s, max_request_bytes: 65536, max_response_bytes: 262144, max_egress_bytes: 67108864 }
    replay: must-stub
  - name: act
    version: "1"
    side_effects: [write, execute, network, secret_access, other]
    scopes: [ws, api, token, git, crm]
    unbound: true
    credentials: [issues.read]
    parameters: { type: object, additionalProperties: false, properties: {} }
    output: { type: text }
    idempotency: non-idempotent
    failure_modes: []
resources:
  - { name: docs, version: "1", uri_template: "file://{+path}", mime_types: [text/markdown], subscribe: false, side_effects: [read],
      scopes: [ws_ro], scope_bindings: [ { param: /path, scope: ws_ro, as: fs_path } ], credentials: [], failure_modes: [] }
prompts:
  - { name: review, version: "1", arguments: [ { name: style, required: false, max_length: 64 } ], side_effects: [], scopes: [], credentials: [], failure_modes: [] }
server_requests: [elicitation, roots, { kind: sampling, max_per_call: 1, max_tokens: 1024 }]
"#;

fn parse(text: &str) -> Result<Declaration, String> {
    Declaration::parse(&Source { name: "whole.yaml", text }).map_err(|rejection| rejection.to_string())
}

#[test]
fn every_key_of_the_grammar_is_understood_and_none_besides() {
    // GOV-402
    let declaration = parse(WHOLE).unwrap();
    let body = &declaration.body;
    assert_eq!((body.scopes.len(), body.tools.len()), (6, 2));
    assert_eq!((body.resources.len(), body.prompts.len(), body.server_requests.len()), (1, 1, 3));
    // One key more, anywhere, is a mistake that must not pass for something that does nothing.
    for (from, to) in [
        ("kind: CapabilityDeclaration", "kind: CapabilityDeclaration\ncolour: red"),
        ("surface: dynamic,", "surface: dynamic, colour: red,"),
        ("max_age: 60s", "max_age: 60s, colour: red"),
        ("access: rw }", "access: rw, colour: red }"),
        ("{ addr: 8.8.8.8 }", "{ addr: 8.8.8.8, colour: red }"),
        ("    description: Read one file", "    description: Read one file\n    colour: red"),
        ("as: fs_path } ]\n    credentials", "as: fs_path, colour: red } ]\n    credentials"),
        ("output: { type: text }", "output: { type: text, colour: red }"),
        ("retryable: false } ]", "retryable: false, colour: red } ]"),
        ("timeout: 30s,", "timeout: 30s, colour: red,"),
        ("subscribe: false,", "subscribe: false, colour: red,"),
        ("max_length: 64 }", "max_length: 64, colour: red }"),
        ("max_tokens: 1024 }", "max_tokens: 1024, colour: red }"),
    ] {
        let changed = WHOLE.replacen(from, to, 1);
        assert_ne!(changed, WHOLE, "{from}");
        assert!(parse(&changed).is_err(), "{to}");
    }
}
