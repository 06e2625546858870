use super::*;
use crate::declaration::Source;

const TWO_TOOLS: &str = r#"
apiVersion: portcullis/v1
kind: CapabilityDeclaration
server: { identity: files, version: "1", protocol_versions: ["2025-11-25"], surface: static }
scopes:
  api: { kind: egress, host: api.example, port: 443, tls: required }
  git: { kind: exec, path: /usr/bin/git }
  token: { kind: secret, credential_class: issues.read, via: VIA, name: API_TOKEN, MORE }
  ws: { kind: fs, path: /srv/project, access: rw }
tools:
  - { name: everything, version: "1", side_effects: [execute, network, read, secret_access, write],
      scopes: [ws, token, git, api], credentials: [issues.read], parameters: { type: object }, output: { type: text },
      idempotency: unknown, failure_modes: [] }
  - { name: reading, version: "1", side_effects: [read], scopes: [ws, git, api], credentials: [],
      parameters: { type: object }, output: { type: text }, idempotency: unknown, failure_modes: [] }
  - { name: nothing, version: "1", side_effects: [], scopes: [], credentials: [],
      parameters: { type: object }, output: { type: text }, idempotency: unknown, failure_modes: [] }
"#;

fn declaration(via: &str) -> Declaration {
    let more = if via == "proxy" { "toward: api" } else { "prefix: x" };
    let text = TWO_TOOLS.replace("VIA", via).replace("MORE", more);
    Declaration::parse(&Source { name: "files.yaml", text: &text }).unwrap()
}

fn cages(via: &str, process: &Process) -> Vec<Cage> {
    let declaration = declaration(via);
    let tools = declaration.body.tools.iter();
    tools.map(|tool| of_tool(&declaration, tool, process, &[]).unwrap()).collect()
}

#[test]
fn a_tool_has_what_its_scopes_and_its_classes_come_to() {
    // SBX-10, SBX-12
    let cages = cages("proxy", &crate::fixture::process());
    let access = |cage: &Cage| cage.profile.fs.iter().map(|scope| scope.access).collect::<Vec<_>>();
    let [everything, reading, nothing] = &cages[..] else { panic!() };
    assert_eq!(access(everything), [Allowed::Rw]);
    assert_eq!((everything.profile.exec.len(), everything.profile.egress.len()), (1, 1));
    // The same scopes, without the classes that would use them.
    assert_eq!(access(reading), [Allowed::Ro]);
    assert!(reading.profile.exec.is_empty() && reading.profile.egress.is_empty());
    assert!(reading.profile.secrets.is_empty() && !reading.profile.env.contains_key("HTTP_PROXY"));
    assert!(nothing.profile.fs.is_empty());
    let digests = [everything.sha256, reading.sha256, nothing.sha256];
    assert!(digests[0] != digests[1] && digests[1] != digests[2] && digests[0] != digests[2]);
    assert_eq!(digest(&reading.profile), reading.sha256);
}

#[test]
fn a_tool_with_a_credential_has_a_process_for_each_call_unless_it_may_last() {
    // SBX-12
    use ProcessModel::{PerCall, PerProfile, Shared};
    let process = crate::fixture::process();
    let models =
        |via: &str, process: &Process| cages(via, process).iter().map(|cage| cage.model).collect::<Vec<_>>();
    for via in ["proxy", "fd", "env"] {
        assert_eq!(models(via, &process), [PerCall, PerProfile, PerProfile], "{via}");
    }
    let chosen = Process { lasting_with_credentials: true, ..process.clone() };
    assert_eq!(models("proxy", &chosen), [PerProfile; 3]);
    assert_eq!(models("fd", &chosen)[0], PerCall, "it is mandatory where the process has the value");
    assert_eq!(models("env", &chosen)[0], PerCall);
    let single = Process { process_model: PerCall, ..process.clone() };
    assert_eq!(models("proxy", &single), [PerCall; 3]);
    let shared = Process { process_model: Shared, ..process };
    let cages = cages("proxy", &shared);
    assert!(cages.iter().all(|cage| cage.model == Shared && cage.sha256 == shared.profile_sha256));
    for (via, refused) in [("proxy", false), ("fd", true), ("env", true)] {
        assert_eq!(derive(&declaration(via), &shared, &[]).is_err(), refused, "{via}");
    }
}

#[test]
fn a_record_from_before_there_was_a_choice_is_of_one_process_for_all() {
    let mut process = serde_json::to_value(crate::fixture::process()).unwrap();
    assert_eq!(process["process_model"], "per_profile");
    process.as_object_mut().unwrap().remove("process_model");
    let process: Process = serde_json::from_value(process).unwrap();
    assert_eq!(process.process_model, ProcessModel::Shared);
}
