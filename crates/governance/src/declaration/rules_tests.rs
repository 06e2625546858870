//! Every acceptance rule, as one change to a declaration that is fine.

use std::path::Path;

use super::*;
use crate::accepted::{Acceptance, AcceptedDeclaration};
use crate::declaration::Source;
use crate::declaration::live::{LiveSurface, LiveTool};
use crate::record::ProcessModel;

const GOOD: &str = r#"apiVersion: portcullis/v1
kind: CapabilityDeclaration
server: { identity: filesystem, version: "2.3.1", protocol_versions: ["2025-11-25"], surface: static }
scopes:
  ws: { kind: fs, path: /srv/project, access: rw }
  ws_ro: { kind: fs, path: /srv/project, access: ro }
tools:
  - name: read_file
    version: "1"
    description: Read one file
    side_effects: [read]
    scopes: [ws_ro]
    scope_bindings: [ { param: /path, scope: ws_ro, as: fs_path } ]
    credentials: []
    parameters: { type: object, additionalProperties: false, required: [path], properties: { path: {type: string, maxLength: 4096} } }
    output: { type: text }
    idempotency: idempotent
    failure_modes: [ { code: not_found, retryable: false } ]
    limits: { timeout: 30s, max_request_bytes: 65536 }
  - name: write_file
    version: "1"
    side_effects: [read, write]
    scopes: [ws]
    scope_bindings: [ { param: /path, scope: ws, as: fs_path } ]
    credentials: []
    parameters: { type: object, additionalProperties: false, required: [path], properties: { path: {type: string} } }
    output: { schema: { type: object } }
    idempotency: unknown
    failure_modes: []
"#;

const READ_SCHEMA: &str = r#"{"properties":{"path":{"maxLength":4096,"type":"string"}},"required":["path"],"additionalProperties":false,"type":"object"}"#;
const WRITE_SCHEMA: &str = r#"{"type":"object","additionalProperties":false,"required":["path"],"properties":{"path":{"type":"string"}}}"#;

fn live() -> Vec<String> {
    vec![
        format!(r#"{{"name":"read_file","description":"Read one file","inputSchema":{READ_SCHEMA}}}"#),
        format!(r#"{{"name":"write_file","inputSchema":{WRITE_SCHEMA},"outputSchema":{{"type":"object"}}}}"#),
    ]
}

fn surface(tools: &[String]) -> LiveSurface {
    let read = |(index, text): (usize, &String)| {
        LiveTool::read(index, &serde_json::value::RawValue::from_string(text.clone()).unwrap()).unwrap()
    };
    LiveSurface {
        protocol_version: "2025-11-25".into(),
        server_name: None,
        server_version: Some("2.3.1".into()),
        tools: tools.iter().enumerate().map(read).collect(),
        ..LiveSurface::default()
    }
}

fn accept_against(text: &str, tools: &[String]) -> Result<AcceptedDeclaration, Vec<Rejection>> {
    accept_for(text, tools, ProcessModel::PerProfile)
}

fn accept_for(
    text: &str,
    tools: &[String],
    process_model: ProcessModel,
) -> Result<AcceptedDeclaration, Vec<Rejection>> {
    let declaration =
        Declaration::parse(&Source { name: "fs.yaml", text }).map_err(|rejection| vec![rejection])?;
    let (identity, version) = ("filesystem".parse().unwrap(), "2.3.1".parse().unwrap());
    let pins = [Pin {
        path: "/opt/mcp/fs-server".into(),
        role: "binary".into(),
        sha256: portcullis_core::Sha256Digest::ZERO,
    }];
    let process = Process { process_model, ..crate::fixture::process() };
    let expect = Expectations {
        identity: &identity,
        version: &version,
        surface: Surface::Static,
        pins: &pins,
        home: Path::new("/var/lib/portcullis"),
        protected: &[],
        process: Some(&process),
    };
    let epoch = portcullis_core::RegistrationEpoch::from_bytes([7; 16]);
    AcceptedDeclaration::accept(
        &declaration,
        "fs.yaml",
        surface(tools),
        &Acceptance { expect, epoch, counter: 3 },
    )
}

fn accept(text: &str) -> Result<AcceptedDeclaration, Vec<Rejection>> {
    accept_against(text, &live())
}

/// The first rejection after replacing `from` by `to`.
fn rejected(from: &str, to: &str) -> Rejection {
    let text = GOOD.replacen(from, to, 1);
    assert_ne!(text, GOOD, "{from:?} is not in the sample");
    let rejections = accept(&text).map(|_| ()).expect_err(to);
    rejections.into_iter().next().unwrap()
}

#[test]
fn a_complete_declaration_is_accepted_with_its_identity() {
    // GOV-405, GOV-601
    let accepted = accept(GOOD).unwrap_or_else(|rejections| panic!("{}", rejections[0]));
    let id = accepted.tools()[0].id().to_string();
    assert!(id.starts_with("filesystem/read_file@2.3.1#3:"), "{id}");
    assert_eq!(accepted.tools()[1].side_effects(), [SideEffect::Read, SideEffect::Write]);
    assert_eq!(accepted.tools()[0].timeout(), Duration::from_secs(30));
    // The digest is of the content: comments and spacing do not enter.
    let spaced = accept(&format!("# a comment\n{GOOD}")).unwrap();
    assert_eq!(spaced.version(), accepted.version());
}

#[test]
fn an_accepted_declaration_is_restored_from_its_evidence() {
    let accepted = accept(GOOD).unwrap();
    let restore = |document: &[u8]| {
        AcceptedDeclaration::restore(
            document,
            accepted.live().clone(),
            accepted.version(),
            &"filesystem".parse().unwrap(),
            &"2.3.1".parse().unwrap(),
            accepted.tools()[0].epoch(),
            Some((&crate::fixture::process(), &[])),
        )
    };
    let restored = restore(accepted.document()).unwrap();
    assert_eq!(restored.tools()[1].id(), accepted.tools()[1].id());
    assert!(restore(&[accepted.document(), b" "].concat()).is_err(), "a changed document must not come back");
}

#[test]
fn a_tool_cannot_have_the_name_of_an_admin_tool() {
    // ADM-14, SO-22
    let rejection = rejected("name: read_file", "name: portcullis_servers_list");
    assert_eq!((rejection.rule, rejection.pointer.as_str()), (3, "/tools/0/name"), "{rejection}");
    assert!(rejection.message.contains("portcullis_ is reserved"), "{rejection}");
}

#[test]
fn rule_1_refuses_what_yaml_readers_disagree_about() {
    // GOV-403.1, T-REG-3
    let cases = [
        ("kind: CapabilityDeclaration\n", "kind: CapabilityDeclaration\nkind: CapabilityDeclaration\n"),
        ("kind: CapabilityDeclaration\n", "kind: CapabilityDeclaration\ncolour: red\n"),
        ("version: \"1\"\n", "version: 1.10\n"),
        ("version: \"1\"\n", "version: &a \"1\"\n"),
        ("version: \"1\"\n", "version: !!str 1\n"),
        ("description: Read one file\n", "description: Read one file\n    <<: { unbound: true }\n"),
        ("side_effects: [read]\n", "side_effects: [reed]\n"),
        ("timeout: 30s", "timeout: 30 seconds"),
        ("timeout: 30s", "timeout: 601s"),
        ("max_request_bytes: 65536", "max_request_bytes: 5000000"),
        ("access: rw }", "access: rw, host: x }"),
        ("access: rw }", "}"),
    ];
    for (from, to) in cases {
        let rejection = rejected(from, to);
        assert_eq!(rejection.rule, 1, "{to}: {rejection}");
        assert!(rejection.place.is_some(), "{to}: no line in {rejection}");
    }
    let bomb = format!("a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b]\n{GOOD}");
    assert_eq!(accept(&bomb).map(|_| ()).unwrap_err()[0].rule, 1);
    let deep = format!("x: {}{}\n{GOOD}", "[".repeat(80), "]".repeat(80));
    assert_eq!(accept(&deep).map(|_| ()).unwrap_err()[0].rule, 1);
    let large = format!("{GOOD}# {}", "x".repeat(17 << 20));
    assert_eq!(accept(&large).map(|_| ()).unwrap_err()[0].rule, 1);
}

#[test]
fn rule_2_holds_the_file_to_the_record() {
    let rejection = rejected("identity: filesystem", "identity: files");
    assert_eq!((rejection.rule, rejection.pointer.as_str()), (2, "/server/identity"));
    assert_eq!(rejection.place.unwrap().0, 3, "{rejection}");
    assert_eq!(rejected("version: \"2.3.1\"", "version: \"2.3.2\"").rule, 2);
}

#[test]
fn rule_3_needs_all_nine_items() {
    // GOV-403.3
    for item in [
        "    version: \"1\"\n",
        "    side_effects: [read]\n",
        "    scopes: [ws_ro]\n",
        "    credentials: []\n",
        "    output: { type: text }\n",
        "    idempotency: idempotent\n",
        "    failure_modes: [ { code: not_found, retryable: false } ]\n",
    ] {
        let rejection = rejected(item, "");
        assert_eq!(rejection.rule, 3, "{item}: {rejection}");
    }
    let start = GOOD.find("    parameters:").unwrap();
    let end = start + GOOD[start..].find('\n').unwrap() + 1;
    assert_eq!(accept(&[&GOOD[..start], &GOOD[end..]].concat()).map(|_| ()).unwrap_err()[0].rule, 3);
    assert_eq!(rejected("name: write_file", "name: read_file").rule, 3);
    assert_eq!(rejected("output: { type: text }", "output: {}").rule, 3);
}

#[test]
fn rule_4_lets_scopes_and_classes_explain_each_other() {
    // GOV-403.4
    for (from, to, says) in [
        ("side_effects: [read]\n", "side_effects: []\n", "explained by no class"),
        ("side_effects: [read]\n", "side_effects: [read, network]\n", "backed by no scope"),
        ("side_effects: [read]\n", "side_effects: [read, read]\n", "twice"),
        ("scopes: [ws_ro]\n", "scopes: [ws_ro, nowhere]\n", "not declared"),
        ("scopes:\n", "scopes:\n  spare: { kind: fs, path: /srv/x, access: ro }\n", "used by nothing"),
    ] {
        let rejection = rejected(from, to);
        assert_eq!(rejection.rule, 4, "{to}: {rejection}");
        assert!(rejection.message.contains(says), "{to}: {rejection}");
    }
}

#[test]
fn rule_5_keeps_scopes_away_from_what_must_not_be_reached() {
    // GOV-403.5
    for path in [
        "/",
        "/proc/self",
        "/sys",
        "/dev/shm",
        "/run",
        "/var/lib/portcullis/keys",
        "/var/lib",
        "srv",
        "/srv/../etc",
    ] {
        assert_eq!(
            rejected("path: /srv/project, access: ro", &format!("path: {path}, access: ro")).rule,
            5,
            "{path}"
        );
    }
    assert_eq!(rejected("path: /srv/project, access: rw", "path: /opt/mcp, access: rw").rule, 5);
    for host in ["\"*.example.com\"", "10.0.0.7", "\"[::1]\""] {
        let scope = format!("scopes:\n  api: {{ kind: egress, host: {host}, port: 443, tls: required }}\n");
        assert_eq!(rejected("scopes:\n", &scope).rule, 5, "{host}");
    }
}

#[test]
fn rule_6_wants_closed_schemas_that_compile() {
    // GOV-403.6
    for (from, to) in [
        (
            "additionalProperties: false, required: [path], properties: { path: {type: string, maxLength",
            "required: [path], properties: { path: {type: string, maxLength",
        ),
        ("{type: string, maxLength: 4096}", "{type: strong}"),
        ("{type: string, maxLength: 4096}", "{$ref: \"http://127.0.0.1:1/x.json\"}"),
        ("output: { schema: { type: object } }", "output: { schema: { type: 7 } }"),
    ] {
        assert_eq!(rejected(from, to).rule, 6, "{to}");
    }
}

#[test]
fn rule_7_binds_what_can_do_harm() {
    // GOV-403.7
    for (from, to) in [
        ("    scope_bindings: [ { param: /path, scope: ws, as: fs_path } ]\n", ""),
        ("param: /path, scope: ws,", "param: /elsewhere, scope: ws,"),
        ("scope: ws, as: fs_path", "scope: ws, as: url"),
        ("scope: ws, as: fs_path", "scope: ws_ro, as: fs_path"),
        (
            "    scope_bindings: [ { param: /path, scope: ws, as: fs_path } ]\n",
            "    scope_bindings: [ { param: /path, scope: ws, as: fs_path } ]\n    unbound: true\n",
        ),
    ] {
        assert_eq!(rejected(from, to).rule, 7, "{to}");
    }
    let unbound = GOOD
        .replace("    scope_bindings: [ { param: /path, scope: ws, as: fs_path } ]\n", "    unbound: true\n");
    // GOV-1405: a process of its own is a binding, and the stronger one; a shared one binds nothing.
    assert!(!accept_for(&unbound, &live(), ProcessModel::Shared).unwrap().tools()[1].bound());
    assert!(accept_for(&unbound, &live(), ProcessModel::PerProfile).unwrap().tools()[1].bound());
}

#[test]
fn rule_8_wants_the_live_server_to_equal_the_file() {
    // GOV-401, GOV-403.8
    let differs = |change: &dyn Fn(&mut Vec<String>)| {
        let mut tools = live();
        change(&mut tools);
        let rejections = accept_against(GOOD, &tools).map(|_| ()).unwrap_err();
        assert_eq!(rejections[0].rule, 8, "{}", rejections[0]);
        rejections[0].message.clone()
    };
    assert!(
        differs(&|tools| tools.push(r#"{"name":"evil","inputSchema":{}}"#.into()))
            .contains("undeclared evil")
    );
    assert!(differs(&|tools| drop(tools.pop())).contains("write_file"));
    assert!(differs(&|tools| tools[0] = tools[0].replace("Read one", "Read any")).contains("description"));
    assert!(differs(&|tools| tools[0] = tools[0].replace("4096", "4097")).contains("inputSchema"));
    assert!(
        differs(&|tools| tools[1] =
            tools[1].replace("\"outputSchema\":{\"type\":\"object\"}", "\"outputSchema\":{}"))
        .contains("outputSchema")
    );
    let copy = |tools: &mut Vec<String>| tools.push(tools[0].clone());
    assert!(differs(&copy).contains("definition"));
}

#[test]
fn a_schema_the_server_leaves_open_is_declared_closed() {
    let mut tools = live();
    tools[0] = tools[0].replace("\"additionalProperties\":false,", "");
    assert!(accept_against(GOOD, &tools).is_ok());
    tools[0] = tools[0].replace("\"required\"", "\"additionalProperties\":true,\"required\"");
    assert_eq!(accept_against(GOOD, &tools).map(|_| ()).unwrap_err()[0].rule, 8);
}

#[test]
fn a_surface_is_the_registered_one_and_a_dynamic_one_says_how_often_it_is_looked_at() {
    // GOV-502, GOV-403 rule 2
    assert_eq!(rejected("surface: static", "surface: dynamic, refresh: { max_age: 60s }").rule, 2);
    let refused = rejected("surface: static", "surface: static, refresh: { max_age: 60s }");
    assert!(refused.message.contains("dynamic surfaces"), "{refused}");
    let dynamic = |refresh: &str| {
        let text = GOOD.replace("surface: static", &format!("surface: dynamic{refresh}"));
        let declaration = Declaration::parse(&Source { name: "fs.yaml", text: &text }).unwrap();
        let (identity, version) = ("filesystem".parse().unwrap(), "2.3.1".parse().unwrap());
        let expect = Expectations {
            identity: &identity,
            version: &version,
            surface: Surface::Dynamic,
            pins: &[],
            home: Path::new("/var/lib/portcullis"),
            protected: &[],
            process: Some(&crate::fixture::process()),
        };
        check(&declaration, "fs.yaml", &expect).map_err(|rejections| rejections[0].message.clone())
    };
    assert_eq!(dynamic(", refresh: { max_age: 5s }"), Ok(()));
    assert_eq!(dynamic(", refresh: { max_age: 1h }"), Ok(()));
    for refresh in ["", ", refresh: { max_age: 4s }", ", refresh: { max_age: 61m }"] {
        assert!(dynamic(refresh).is_err(), "{refresh}");
    }
}

#[test]
fn drift_is_any_difference_from_what_was_accepted() {
    // GOV-501: also where the declaration is silent, here about write_file's description.
    let accepted = accept(GOOD).unwrap();
    assert!(accepted.drift(&surface(&live())).is_empty());
    let mut tools = live();
    tools[1] = tools[1].replace("\"name\"", "\"description\":\"now hostile\",\"name\"");
    let difference = accepted.drift(&surface(&tools));
    assert_eq!(difference.changed[0].tool, "write_file");
}

#[test]
fn rule_4_lets_only_readers_be_done_again_while_replaying() {
    // AUD-70
    let rejection =
        rejected("    idempotency: unknown\n", "    idempotency: unknown\n    replay: reexecute\n");
    assert_eq!((rejection.rule, rejection.pointer.as_str()), (4, "/tools/1/replay"), "{rejection}");
    let reader = GOOD.replacen(
        "    idempotency: idempotent\n",
        "    idempotency: idempotent\n    replay: reexecute\n",
        1,
    );
    assert_eq!(accept(&reader).unwrap().tools()[0].replay(), Replay::Reexecute);
}
