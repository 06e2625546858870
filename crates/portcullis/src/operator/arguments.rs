//! Requests as arguments of the tools that they are.

use portcullis_gateway::control::{Drafting, Reacceptance, Registration, Target};
use portcullis_governance::policy::Bundle;
use serde_json::{Value, json};

/// Where a server is, as arguments of a tool.
fn place_args(target: &Target) -> Value {
    match target {
        Target::Stdio { command, args, env, artifacts, process_model } => {
            let mut process = json!({"command": command, "args": args, "env": env, "artifacts": artifacts});
            if let Some(model) = process_model {
                process["process_model"] = json!(model);
            }
            json!({"transport": "stdio", "process": process})
        }
        Target::Http { url, tls_spki } => json!({"transport": "http", "url": url, "tls_spki": tls_spki}),
        Target::Sse { url, tls_spki } => json!({"transport": "sse", "url": url, "tls_spki": tls_spki}),
        Target::Records { url, credential_file } => {
            json!({"transport": "records", "url": url, "credential_file": credential_file})
        }
    }
}

/// The registration as arguments of a tool.
pub(super) fn register_args(asked: &Registration) -> Value {
    let more = json!({
        "server_id": asked.name, "version": asked.server_version, "surface": asked.surface,
        "trust_tier_requested": asked.trust_tier, "justification": asked.justification, "policy_tags": asked.modes,
        "declaration": asked.declaration, "declaration_file": asked.declaration_file, "attest": asked.attest,
        "waive_isolation": asked.waive_isolation, "grant": asked.grant.as_ref().map(|grant| grant.which),
        "grant_to": asked.grant.as_ref().and_then(|grant| grant.agent.as_ref()),
        "waive": asked.waive, "allow_over_budget": asked.allow_over_budget,
    });
    both(place_args(&asked.target), more)
}

/// What is to be drafted as arguments of a tool.
pub(super) fn draft_args(asked: &Drafting) -> Value {
    let more = json!({
        "server_id": asked.name, "folders": asked.folders, "programs": asked.programs, "hosts": asked.hosts,
        "secrets": asked.secrets, "attest": asked.attest,
    });
    both(place_args(&asked.target), more)
}

/// What is accepted as arguments of a tool.
pub(super) fn accept_args(accept: &Reacceptance) -> Value {
    let (file, text) = accept.declaration.clone().unzip();
    json!({
        "server_id": accept.name, "declaration": text, "declaration_file": file,
        "carry_approvals": accept.carry_approvals, "grant": accept.grant.as_ref().map(|grant| grant.which),
        "grant_to": accept.grant.as_ref().and_then(|grant| grant.agent.as_ref()),
        "waive": accept.waive, "allow_over_budget": accept.allow_over_budget,
    })
}

fn both(mut args: Value, more: Value) -> Value {
    if let (Some(args), Value::Object(more)) = (args.as_object_mut(), more) {
        args.extend(more);
    }
    args
}

pub(super) fn bundle_args(bundle: &Bundle) -> Value {
    let mut args = json!({"preset": bundle.preset, "files": bundle.files});
    if !bundle.settings.trim().is_empty() {
        args["settings"] = json!(bundle.settings);
    }
    args
}
