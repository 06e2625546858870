//! A declaration drafted from what a server lists (GOV §14).
//!
//! A draft is a file like any other: it has no force until an operator accepts it, and then it is the operator's word.
//! What it says about places comes from facts, the operands of the command; what it says about classes is the worst, or a
//! suggestion with its reason, by which a person can judge it. Nothing in it relaxes anything: the cage is made of it, and
//! what a tool needs beyond that fails in there.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use portcullis_core::ServerIdentity;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::declaration::SideEffect;
use crate::declaration::live::{LiveSurface, LiveTool, closed};

/// How classes are drafted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Manner {
    /// Every class, so that everything is asked (GOV-1401).
    WorstCase,
    /// What the server's own words suggest, for one person at their own machine (GOV-1404).
    Suggested,
}

/// What is known about a server besides what it lists.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// Its name here.
    pub identity: &'a ServerIdentity,
    /// Its version, as it will be registered.
    pub version: &'a str,
    /// Folders that its command names.
    pub folders: &'a [PathBuf],
    /// Programs that it starts.
    pub programs: &'a [PathBuf],
    /// Hosts that its configuration names.
    pub hosts: &'a [Host],
    /// Secrets that its configuration gives it.
    pub secrets: &'a [SecretFact],
    /// How classes are drafted.
    pub manner: Manner,
}

/// A host that a configuration names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub host: String,
    /// Where it listens.
    pub port: u16,
}

/// A secret that a configuration gives a server. Its value is not here: the vault has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretFact {
    /// The variable, or the header.
    pub name: String,
    /// The class under which the vault has it.
    pub class: String,
    /// What a stand-in looks like, or what stands around it in a header.
    #[serde(default)]
    pub format: Option<String>,
    /// Where it goes.
    pub way: SecretWay,
}

/// Where a secret goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SecretWay {
    /// In requests to this host, the gate puts it in place of a stand-in.
    Toward(Host),
    /// In a header to the server itself.
    Header,
    /// Nobody has said; it goes nowhere.
    Unknown,
}

impl SecretFact {
    fn is_declared(&self) -> bool {
        self.way != SecretWay::Unknown
    }
}

/// A draft, and what it says about each tool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Draft {
    /// The declaration file.
    pub document: String,
    /// Its tools, in the server's order.
    pub tools: Vec<DraftedTool>,
    /// Tools that cannot be declared, and why.
    pub left_out: Vec<(String, String)>,
    /// How many resources, templates and prompts the server has besides, which are not drafted.
    pub besides: usize,
}

/// One tool of a draft.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraftedTool {
    /// Its name.
    pub name: String,
    /// What it is taken to do.
    pub classes: Vec<SideEffect>,
    /// Why; nothing for the worst case.
    pub reason: Option<String>,
}

/// Drafts a declaration of everything the server lists.
pub fn draft(live: &LiveSurface, facts: &Facts<'_>) -> Draft {
    let mut tools = Vec::new();
    let mut left_out = Vec::new();
    for tool in &live.tools {
        match tool.name.parse::<portcullis_core::name::ToolName>() {
            Ok(_) => tools.push((tool, classify(tool, facts))),
            Err(error) => left_out.push((portcullis_core::name::printable(&tool.name), error.to_string())),
        }
    }
    let besides = live.resources.len() + live.templates.len() + live.prompts.len();
    let document = document(live, facts, &tools);
    Draft { document, tools: tools.into_iter().map(|(_, drafted)| drafted).collect(), left_out, besides }
}

fn classify(tool: &LiveTool, facts: &Facts<'_>) -> DraftedTool {
    let (mut classes, reason) = match facts.manner {
        Manner::WorstCase => {
            use SideEffect::{Execute, Network, Other, Read, SecretAccess, Write};
            (BTreeSet::from([Execute, Network, Other, Read, SecretAccess, Write]), None)
        }
        Manner::Suggested => {
            let (classes, reason) = suggest(tool);
            (classes, Some(reason))
        }
    };
    // What does more than read may do so with its folders.
    if !facts.folders.is_empty() {
        if classes.iter().any(|class| !matches!(class, SideEffect::Read | SideEffect::Network)) {
            classes.insert(SideEffect::Write);
        }
        classes.insert(SideEffect::Read);
    }
    // Which of its tools start what, talk to whom, and with what, no configuration says: so all of them may.
    if !facts.programs.is_empty() {
        classes.insert(SideEffect::Execute);
    }
    if !facts.hosts.is_empty() {
        classes.insert(SideEffect::Network);
    }
    if facts.secrets.iter().any(SecretFact::is_declared) {
        classes.insert(SideEffect::SecretAccess);
    }
    DraftedTool { name: tool.name.clone(), classes: classes.into_iter().collect(), reason }
}

/// What the server's own words suggest: its hints where it gives any, else its verbs. Whoever lies gains nothing but a
/// suggestion that a person reads.
fn suggest(tool: &LiveTool) -> (BTreeSet<SideEffect>, String) {
    let definition: Value = serde_json::from_str(tool.definition.get()).unwrap_or_default();
    let hint = |name: &str| definition["annotations"][name].as_bool();
    let words: Vec<String> = words_of(&tool.name);
    let said = |verbs: &[&str]| words.iter().find(|word| verbs.contains(&word.as_str())).cloned();
    let mut classes = BTreeSet::new();
    let mut reasons = Vec::new();
    for (class, verbs) in [
        (SideEffect::Execute, EXECUTING),
        (SideEffect::Write, WRITING),
        (SideEffect::Network, REACHING),
        (SideEffect::Read, READING),
    ] {
        if let Some(verb) = said(verbs) {
            classes.insert(class);
            reasons.push(format!("its name says {verb}"));
        }
    }
    if takes_an_address(&definition) {
        classes.insert(SideEffect::Network);
        reasons.push("it takes an address".into());
    }
    match (hint("readOnlyHint"), hint("destructiveHint")) {
        (Some(true), _) if !classes.contains(&SideEffect::Execute) => {
            classes.remove(&SideEffect::Write);
            classes.insert(SideEffect::Read);
            reasons.push("it says it only reads".into());
        }
        (_, Some(true)) => {
            classes.insert(SideEffect::Write);
            reasons.push("it says it may destroy".into());
        }
        (Some(false), _) => {
            classes.insert(SideEffect::Write);
            reasons.push("it says it does more than read".into());
        }
        _ => {}
    }
    if classes.is_empty() {
        classes.insert(SideEffect::Other);
        reasons.push("nothing says what it does".into());
    }
    (classes, reasons.join(", "))
}

const READING: &[&str] = &[
    "read", "get", "list", "search", "find", "show", "view", "describe", "status", "diff", "log", "tree",
    "info", "query", "lookup", "count", "stat", "open", "recall", "retrieve",
];
const WRITING: &[&str] = &[
    "write", "create", "add", "update", "edit", "set", "delete", "remove", "move", "rename", "put", "save",
    "insert", "append", "reset", "commit", "checkout", "merge", "push", "send", "post", "upload", "publish",
    "modify", "patch", "replace", "drop", "store", "clear", "toggle", "start", "stop", "cancel", "close",
];
const EXECUTING: &[&str] =
    &["run", "exec", "execute", "shell", "command", "eval", "script", "spawn", "launch"];
const REACHING: &[&str] = &[
    "fetch", "http", "url", "web", "download", "browse", "crawl", "scrape", "navigate", "send", "post",
    "push", "pull", "clone", "upload", "publish", "email",
];

/// `readFile`, `read_file`, `read-file`: read, file.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in name.chars() {
        if !c.is_ascii_alphanumeric() || (c.is_ascii_uppercase() && before.is_ascii_lowercase()) {
            words.push(String::new());
        }
        if let (true, Some(word)) = (c.is_ascii_alphanumeric(), words.last_mut()) {
            word.push(c.to_ascii_lowercase());
        }
        before = c;
    }
    words
}

fn takes_an_address(definition: &Value) -> bool {
    let properties = definition["inputSchema"]["properties"].as_object();
    properties.into_iter().flatten().any(|(name, schema)| {
        schema["format"] == "uri" || matches!(name.as_str(), "url" | "uri" | "endpoint" | "link")
    })
}

/// Scopes by name, with path and access: each folder for reading, and for writing too if anything does.
struct Scopes<'a>(Vec<(String, &'a PathBuf, &'static str)>);

impl<'a> Scopes<'a> {
    fn of(facts: &Facts<'a>, tools: &[(&LiveTool, DraftedTool)]) -> Self {
        let any =
            |writes: bool| tools.iter().any(|(_, tool)| tool.classes.contains(&SideEffect::Write) == writes);
        let mut scopes = Vec::new();
        for (index, path) in facts.folders.iter().enumerate() {
            let name = if index == 0 { "folder".to_owned() } else { format!("folder{}", index + 1) };
            if any(true) {
                scopes.push((format!("{name}_rw"), path, "rw"));
            }
            if any(false) {
                scopes.push((name, path, "ro"));
            }
        }
        Self(scopes)
    }

    /// Whoever writes has all of them, which is what the cage has; whoever does not, those for reading.
    fn used_by(&self, tool: &DraftedTool) -> Vec<&str> {
        let writes = tool.classes.contains(&SideEffect::Write);
        let used = self.0.iter().filter(|(_, _, access)| writes || *access == "ro");
        used.map(|(name, _, _)| name.as_str()).collect()
    }
}

/// Programs, and scopes beyond the machine, which every tool has.
fn beyond(facts: &Facts<'_>) -> Vec<(String, Value)> {
    let numbered = |name: &str, index: usize| match index {
        0 => name.to_owned(),
        _ => format!("{name}{}", index + 1),
    };
    let mut scopes: Vec<(String, Value)> = (facts.hosts.iter().enumerate())
        .map(|(index, Host { host, port })| {
            (
                numbered("host", index),
                json!({"kind": "egress", "host": host, "port": port, "tls": "required"}),
            )
        })
        .collect();
    scopes.extend(
        (facts.programs.iter().enumerate())
            .map(|(index, path)| (numbered("program", index), json!({"kind": "exec", "path": path}))),
    );
    let declared = facts.secrets.iter().filter(|secret| secret.is_declared()).enumerate();
    for (index, secret) in declared {
        let mut scope = json!({"kind": "secret", "credential_class": secret.class, "name": secret.name});
        match &secret.way {
            SecretWay::Toward(host) => {
                let Some(at) = facts.hosts.iter().position(|known| known == host) else { continue };
                scope["via"] = json!("proxy");
                scope["toward"] = json!(numbered("host", at));
            }
            _ => scope["via"] = json!("header"),
        }
        if let Some(format) = &secret.format {
            scope["format"] = json!(format);
        }
        scopes.push((numbered("secret", index), scope));
    }
    scopes
}

fn document(live: &LiveSurface, facts: &Facts<'_>, tools: &[(&LiveTool, DraftedTool)]) -> String {
    let scopes = Scopes::of(facts, tools);
    let beyond = if tools.is_empty() { Vec::new() } else { beyond(facts) };
    let secrets = facts.secrets.iter().filter(|secret| secret.is_declared());
    let credentials: Vec<&str> = secrets.map(|secret| secret.class.as_str()).collect();
    let mut text = String::from(
        "# Drafted from what the server lists. Nothing here has force until you accept it; then it is your word.\n",
    );
    text.push_str("apiVersion: portcullis/v1\nkind: CapabilityDeclaration\n");
    let server = json!({
        "identity": facts.identity, "version": facts.version, "protocol_versions": [live.protocol_version],
        "surface": "static",
    });
    let _ = writeln!(text, "server: {server}");
    for secret in facts.secrets.iter().filter(|secret| !secret.is_declared()) {
        let (class, name) = (&secret.class, &secret.name);
        let _ = writeln!(
            text,
            "# The vault has {class} for its {name}. Nobody has said where that goes, so it goes nowhere."
        );
    }
    if scopes.0.is_empty() && beyond.is_empty() {
        text.push_str("scopes: {}\n");
    } else {
        text.push_str("scopes:\n");
        for (name, path, access) in &scopes.0 {
            let _ = writeln!(text, "  {name}: {}", json!({"kind": "fs", "path": path, "access": access}));
        }
        for (name, scope) in &beyond {
            let _ = writeln!(text, "  {name}: {scope}");
        }
    }
    text.push_str(if tools.is_empty() { "tools: []\n" } else { "tools:\n" });
    for (tool, drafted) in tools {
        let definition: Value = serde_json::from_str(tool.definition.get()).unwrap_or_default();
        let output = match definition.get("outputSchema") {
            Some(schema) => json!({"schema": schema}),
            None => json!({"type": "text"}),
        };
        let _ = writeln!(text, "  - name: {}\n    version: \"1\"", json!(drafted.name));
        let classes: Vec<&str> = drafted.classes.iter().map(|class| class.as_str()).collect();
        let reason =
            drafted.reason.as_ref().map(|reason| format!("  # suggested: {reason}")).unwrap_or_default();
        let _ = writeln!(text, "    side_effects: [{}]{reason}", classes.join(", "));
        let mut used = scopes.used_by(drafted);
        used.extend(beyond.iter().map(|(name, _)| name.as_str()));
        let _ = writeln!(text, "    scopes: [{}]", used.join(", "));
        // The arguments of a tool that only reads need no binding; the others' are not known well enough for one.
        if used.is_empty() || drafted.classes != [SideEffect::Read] {
            text.push_str("    unbound: true\n");
        }
        let _ = writeln!(text, "    credentials: {}", json!(credentials));
        let _ = writeln!(text, "    parameters: {}", closed(definition["inputSchema"].clone()));
        let _ = writeln!(text, "    output: {output}\n    idempotency: unknown\n    failure_modes: []");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declaration::{Declaration, Source};

    fn live(tools: &[Value]) -> LiveSurface {
        let tools = tools
            .iter()
            .map(|tool| LiveTool {
                name: tool["name"].as_str().unwrap().to_owned(),
                definition: serde_json::value::to_raw_value(tool).unwrap(),
            })
            .collect();
        let empty = json!({"protocol_version": "2025-11-25", "server_name": null, "server_version": "1", "tools": []});
        LiveSurface { tools, ..serde_json::from_value(empty).unwrap() }
    }

    fn facts<'a>(identity: &'a ServerIdentity, folders: &'a [PathBuf], manner: Manner) -> Facts<'a> {
        Facts { identity, version: "1", folders, programs: &[], hosts: &[], secrets: &[], manner }
    }

    #[test]
    fn a_draft_is_a_declaration_whatever_a_server_calls_things() {
        // GOV-1401
        let hostile = json!({
            "name": "read_it", "description": "x\n- name: evil",
            "inputSchema": {"type": "object", "properties": {"a\": [": {"type": "string", "description": "# no\n  comment"}}},
        });
        let identity = "files".parse().unwrap();
        let folders = [PathBuf::from("/srv/it's \"here\": #1")];
        for manner in [Manner::WorstCase, Manner::Suggested] {
            let draft = draft(
                &live(&[hostile.clone(), json!({"name": "b\nad", "inputSchema": {}})]),
                &facts(&identity, &folders, manner),
            );
            let source = Source { name: "draft", text: &draft.document };
            let parsed =
                Declaration::parse(&source).unwrap_or_else(|error| panic!("{error:?}\n{}", draft.document));
            assert_eq!(parsed.body.tools.len(), 1);
            assert_eq!(draft.left_out.len(), 1);
            let scope = parsed.body.scopes.values().next().unwrap();
            assert_eq!(scope.path.as_deref(), folders[0].to_str());
        }
    }

    #[test]
    fn the_worst_case_has_every_class_and_a_suggestion_has_its_reason() {
        // GOV-1401, GOV-1404
        let identity = "files".parse().unwrap();
        let tools = [
            json!({"name": "list_things", "inputSchema": {"type": "object"}}),
            json!({"name": "deleteThing", "inputSchema": {"type": "object"}}),
            json!({"name": "frobnicate", "inputSchema": {"type": "object"}}),
            json!({"name": "update_view", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}}),
            json!({"name": "run_query", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}}),
            json!({"name": "look", "inputSchema": {"type": "object", "properties": {"url": {"type": "string"}}}}),
        ];
        let worst = draft(&live(&tools), &facts(&identity, &[], Manner::WorstCase));
        assert!(worst.tools.iter().all(|tool| tool.classes.len() == 6 && tool.reason.is_none()));
        let suggested = draft(&live(&tools), &facts(&identity, &[], Manner::Suggested));
        let classes: Vec<Vec<&str>> = (suggested.tools.iter())
            .map(|tool| tool.classes.iter().map(|class| class.as_str()).collect())
            .collect();
        assert_eq!(
            classes,
            [
                vec!["read"],
                vec!["write"],
                vec!["other"],
                vec!["read"],
                vec!["execute", "read"],
                vec!["network"]
            ]
        );
        assert!(suggested.document.contains("# suggested: its name says delete"), "{}", suggested.document);
    }

    #[test]
    fn hosts_and_secrets_of_a_configuration_are_declared_for_every_tool() {
        // GOV-1401: from facts, and nothing else.
        let identity = "issues".parse().unwrap();
        let host = Host { host: "api.example.com".into(), port: 443 };
        let secret = |name: &str, way| SecretFact {
            name: name.into(),
            class: format!("issues.{}", name.to_lowercase()),
            format: Some("ghp_{36}".into()),
            way,
        };
        let secrets =
            [secret("API_TOKEN", SecretWay::Toward(host.clone())), secret("OTHER_KEY", SecretWay::Unknown)];
        let facts = Facts {
            hosts: std::slice::from_ref(&host),
            secrets: &secrets,
            ..facts(&identity, &[], Manner::Suggested)
        };
        let draft =
            draft(&live(&[json!({"name": "list_issues", "inputSchema": {"type": "object"}})]), &facts);
        let parsed = Declaration::parse(&Source { name: "draft", text: &draft.document });
        let parsed = parsed.unwrap_or_else(|error| panic!("{error:?}\n{}", draft.document));
        let version = "1".parse().unwrap();
        let expect = crate::declaration::rules::Expectations {
            identity: &identity,
            version: &version,
            surface: crate::record::Surface::Static,
            pins: &[],
            home: std::path::Path::new("/var/lib/portcullis"),
            protected: &[],
            process: Some(&crate::fixture::process()),
        };
        let checked = crate::declaration::rules::check(&parsed, "draft", &expect);
        checked.unwrap_or_else(|rejections| panic!("{}\n{}", rejections[0], draft.document));
        let tool = &parsed.body.tools[0];
        assert_eq!(tool.credentials, ["issues.api_token"]);
        assert_eq!(tool.scopes.iter().map(ToString::to_string).collect::<Vec<_>>(), ["host", "secret"]);
        assert!(tool.side_effects.contains(&SideEffect::SecretAccess));
        assert!(draft.document.contains("# The vault has issues.other_key"), "{}", draft.document);
    }

    #[test]
    fn folders_are_writable_only_if_something_writes() {
        let identity = "files".parse().unwrap();
        let folders = [PathBuf::from("/srv/a"), PathBuf::from("/srv/b")];
        let tool = |name| json!({"name": name, "inputSchema": {"type": "object"}});
        let scopes = |tools: &[Value]| {
            let draft = draft(&live(tools), &facts(&identity, &folders, Manner::Suggested));
            let used = |line: &&str| line.starts_with("    scopes: ");
            draft.document.lines().filter(used).map(|line| line.trim().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(scopes(&[tool("read_file")]), ["scopes: [folder, folder2]"]);
        assert_eq!(scopes(&[tool("write_file")]), ["scopes: [folder_rw, folder2_rw]"]);
        assert_eq!(
            scopes(&[tool("read_file"), tool("frobnicate")]),
            ["scopes: [folder, folder2]", "scopes: [folder_rw, folder, folder2_rw, folder2]"]
        );
    }

    #[test]
    fn what_starts_programs_executes_and_reads_no_more_widely_for_it() {
        let identity = "git".parse().unwrap();
        let (folders, programs) = ([PathBuf::from("/srv/repo")], [PathBuf::from("/usr/bin/git")]);
        let facts = Facts { programs: &programs, ..facts(&identity, &folders, Manner::Suggested) };
        let drafted = draft(&live(&[json!({"name": "git_log", "inputSchema": {"type": "object"}})]), &facts);
        assert_eq!(drafted.tools[0].classes, [SideEffect::Execute, SideEffect::Read]);
        assert!(drafted.document.contains(r#"  program: {"kind":"exec","path":"/usr/bin/git"}"#));
        assert!(drafted.document.contains("    scopes: [folder, program]\n"), "{}", drafted.document);
    }
}
