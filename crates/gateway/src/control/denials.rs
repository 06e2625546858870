//! A declaration that would allow what a server asked for in vain (GOV-1401): proposed to an operator, and nothing more.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use portcullis_audit::{EventName, Record, read};
use portcullis_core::{ErrorCode, ServerIdentity};
use portcullis_governance::draft::SecretWay;
use portcullis_governance::operator::OperatorProof;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::drafts::KeptDraft;
use super::evidence::blocking;
use super::{Control, ControlError};

/// A declaration with more in it than was accepted.
#[derive(Debug, Clone, Serialize)]
pub struct Proposed {
    /// The whole file.
    pub document: String,
    /// What is new in it, in words.
    pub added: Vec<String>,
    /// What was denied and cannot be declared, or was not meant.
    pub left_out: Vec<String>,
}

/// A place that a server asked for, and the tools that were being called then, as far as that is known.
type Wanted = BTreeMap<(String, u16), BTreeSet<String>>;

impl Control {
    /// Proposes scopes for what a registered server was denied since it was registered.
    pub async fn draft_from_denials(
        &self,
        _operator: &OperatorProof,
        name: &ServerIdentity,
    ) -> Result<Proposed, ControlError> {
        let entry = self.entry(name).await?;
        let (dir, since, server) = (self.log.dir().to_owned(), entry.record.registered_at, name.clone());
        let wanted = blocking(move || {
            let (mut wanted, mut tools) = (Wanted::new(), BTreeMap::new());
            for record in read(&dir)? {
                let record = record?;
                if record.time >= since {
                    take(&record, &server, &mut wanted, &mut tools);
                }
            }
            Ok(wanted)
        })
        .await?;
        let document: Value = serde_json::from_slice(entry.declaration.document())
            .map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))?;
        let kept = KeptDraft::find(self.home(), name).map(|(kept, _)| kept.secrets).unwrap_or_default();
        let secrets: Vec<_> = kept.into_iter().filter(|secret| secret.way == SecretWay::Unknown).collect();
        let proposed = propose(document, wanted, &secrets);
        if proposed.added.is_empty() {
            let mut message = format!("server '{name}' was denied nothing that could be declared");
            if !proposed.left_out.is_empty() {
                message.push_str(&format!("; it asked for {}", proposed.left_out.join(", ")));
            }
            return Err(ControlError::new(ErrorCode::NotFound, message));
        }
        Ok(proposed)
    }
}

fn take(record: &Record, server: &ServerIdentity, wanted: &mut Wanted, tools: &mut BTreeMap<String, String>) {
    let data = &record.data;
    if record.event == EventName::PermitIssued
        && let (Some(permit), Some(tool)) = (data["permit_id"].as_str(), &record.tool_id)
    {
        tools.insert(permit.to_owned(), tool.item().to_string());
        return;
    }
    let place = match record.event {
        EventName::SandboxDnsDenied => (data["name"].as_str(), 443),
        EventName::SandboxEgressDenied => {
            let port = data["port"].as_u64().and_then(|port| u16::try_from(port).ok());
            (data["target"].as_str(), port.unwrap_or(443))
        }
        _ => return,
    };
    let (Some(host), port) = place else { return };
    if data["server"] != server.as_str() {
        return;
    }
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let permits = data["permits"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let called = permits.filter_map(|permit| tools.get(permit).cloned());
    wanted.entry((host, port)).or_default().extend(called);
}

/// The document with scopes for what is wanted.
fn propose(
    mut document: Value,
    wanted: Wanted,
    secrets: &[portcullis_governance::draft::SecretFact],
) -> Proposed {
    let (mut added, mut left_out) = (Vec::new(), Vec::new());
    let expected = document["expected_denials"].clone();
    let is_expected = |host: &str| {
        let mut denials = expected.as_array().into_iter().flatten();
        denials.any(|denial| denial["host"] == host || denial["addr"] == host)
    };
    let declared = |scopes: &Map<String, Value>, host: &str, port: u16| {
        scopes.values().any(|scope| scope["host"] == host && scope["port"] == port)
    };
    let mut scopes = document["scopes"].as_object().cloned().unwrap_or_default();
    let mut for_tools: Vec<(Vec<String>, BTreeSet<String>, Vec<String>)> = Vec::new();
    for ((host, port), tools) in wanted {
        if declared(&scopes, &host, port) || is_expected(&host) {
            continue;
        }
        if !is_name(&host) {
            left_out.push(portcullis_core::name::printable(&host));
            continue;
        }
        let name = scope_name(&host, &scopes);
        scopes.insert(name.clone(), json!({"kind": "egress", "host": host, "port": port, "tls": "required"}));
        added.push(format!("{host}:{port}, over TLS, as scope {name}"));
        for_tools.push((vec![name], tools, Vec::new()));
    }
    // A secret goes to one host; if several are wanted, an operator must say which.
    if let [(names, _, classes)] = for_tools.as_mut_slice() {
        for secret in secrets {
            let name = scope_name(&secret.class, &scopes);
            let mut scope = json!({
                "kind": "secret", "credential_class": secret.class, "via": "proxy", "name": secret.name, "toward": names[0],
            });
            if let Some(format) = &secret.format {
                scope["format"] = json!(format);
            }
            scopes.insert(name.clone(), scope);
            added.push(format!("credential {}, toward {}, as scope {name}", secret.class, names[0]));
            names.push(name);
            classes.push(secret.class.clone());
        }
    }
    document["scopes"] = Value::Object(scopes);
    for tool in document["tools"].as_array_mut().into_iter().flatten() {
        for (names, tools, classes) in &for_tools {
            let is_it = tool["name"].as_str().is_some_and(|name| tools.is_empty() || tools.contains(name));
            if is_it {
                give(tool, names, classes);
            }
        }
    }
    let mut text = String::from(
        "# Proposed from what the server was denied. Nothing of it has force until you accept it.\n",
    );
    text.push_str(&serde_json::to_string_pretty(&document).unwrap_or_default());
    text.push('\n');
    Proposed { document: text, added, left_out }
}

fn give(tool: &mut Value, scopes: &[String], classes: &[String]) {
    let mut push = |member: &str, value: &str| {
        if !tool[member].is_array() {
            tool[member] = json!([]);
        }
        if let Some(list) = tool[member].as_array_mut()
            && !list.contains(&json!(value))
        {
            list.push(json!(value));
        }
    };
    scopes.iter().for_each(|scope| push("scopes", scope));
    classes.iter().for_each(|class| push("credentials", class));
    push("side_effects", "network");
    if !classes.is_empty() {
        push("side_effects", "secret_access");
    }
    // Which argument would name the host nobody knows, and a tool is bound as a whole or not at all.
    tool["unbound"] = json!(true);
    if let Some(tool) = tool.as_object_mut() {
        tool.remove("scope_bindings");
    }
}

/// Names of hosts can be declared, addresses cannot (GOV-403 rule 5).
fn is_name(host: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    host.parse::<IpAddr>().is_err()
        && host.contains('.')
        && !host.starts_with(['.', '-'])
        && host.len() <= 253
        && host.bytes().all(plain)
}

/// A name for a scope that no other has.
fn scope_name(text: &str, taken: &Map<String, Value>) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let mut name: String = text.chars().map(plain).skip_while(|c| !c.is_ascii_lowercase()).take(56).collect();
    if name.is_empty() {
        name.push_str("scope");
    }
    let numbered = (2..).map(|n| format!("{name}_{n}"));
    std::iter::once(name.clone()).chain(numbered).find(|name| !taken.contains_key(name)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use portcullis_governance::draft::SecretFact;

    use super::*;

    fn document() -> Value {
        json!({
            "scopes": {"ws": {"kind": "fs", "path": "/srv", "access": "ro"}},
            "expected_denials": [{"host": "telemetry.example.com"}],
            "tools": [
                {"name": "a", "side_effects": ["read"], "scopes": ["ws"], "credentials": [],
                 "scope_bindings": [{"param": "/path", "scope": "ws", "as": "fs_path"}]},
                {"name": "b", "side_effects": [], "scopes": [], "credentials": []},
            ],
        })
    }

    fn wanted(places: &[(&str, u16, &[&str])]) -> Wanted {
        let tools = |tools: &[&str]| tools.iter().map(|tool| (*tool).to_owned()).collect();
        places.iter().map(|(host, port, called)| (((*host).to_owned(), *port), tools(called))).collect()
    }

    fn parsed(proposed: &Proposed) -> Value {
        serde_json::from_str(proposed.document.split_once('\n').unwrap().1).unwrap()
    }

    #[test]
    fn what_was_denied_becomes_a_scope_of_the_tool_that_wanted_it() {
        // GOV-1401
        let secret = SecretFact {
            name: "API_TOKEN".into(),
            class: "x.api_token".into(),
            format: None,
            way: SecretWay::Unknown,
        };
        let denied = wanted(&[
            ("api.example.com", 443, &["a"]),
            ("telemetry.example.com", 443, &[]),
            ("8.8.8.8", 53, &[]),
        ]);
        let proposed = propose(document(), denied, &[secret]);
        assert_eq!((proposed.added.len(), proposed.left_out.len()), (2, 1), "{proposed:?}");
        let document = parsed(&proposed);
        let (a, b) = (&document["tools"][0], &document["tools"][1]);
        assert_eq!(a["scopes"], json!(["ws", "api_example_com", "x_api_token"]));
        assert_eq!(a["side_effects"], json!(["read", "network", "secret_access"]));
        assert_eq!((&a["unbound"], a.get("scope_bindings")), (&json!(true), None));
        assert_eq!(document["scopes"]["x_api_token"]["toward"], "api_example_com");
        assert_eq!(b["scopes"], json!([]), "it asked for nothing");
    }

    #[test]
    fn what_nobody_was_called_for_is_for_all_and_what_is_declared_is_not_proposed_again() {
        let proposed = propose(document(), wanted(&[("a.example", 443, &[]), ("b.example", 8443, &[])]), &[]);
        let scopes = json!(["a_example", "b_example"]);
        assert_eq!(parsed(&proposed)["tools"][1]["scopes"], scopes);
        let again = propose(parsed(&proposed), wanted(&[("a.example", 443, &[])]), &[]);
        assert!(again.added.is_empty());
    }
}
