//! The requests that change something. Each calls its tool, and tells what the tool said in the words of commands.

use std::time::Duration;

use portcullis_core::{Clock as _, ErrorCode, SystemClock};
use portcullis_governance::approval::Scope;
use portcullis_governance::broker::vault::Kind;
use serde_json::{Value, json};

use super::arguments::{accept_args, bundle_args, draft_args, register_args};
use super::door::{Door, NO_REASON};
use super::rows::{
    activation, approval, approval_row, granted, operation_row, record, server, session, trust,
};
use super::{Answer, Request};
use crate::failure::Failure;
use crate::identity::Passphrase;

/// Longer than any waiver may last.
const FOR_LONG: Duration = Duration::from_secs(1000 * 86_400);

pub(super) async fn perform(door: &Door<'_>, request: &Request) -> Answer {
    Ok(match request {
        Request::McpAdd { registration } => {
            let done = door.act(register_args(registration), &registration.justification).await;
            let seen = done.map_err(justified)?.seen;
            let mut document = record(seen, &registration.name)?;
            document["approvals_granted"] = json!(seen.approvals_of(&server(&registration.name)?));
            document
        }
        Request::McpDraft { drafting } => door.write(draft_args(drafting)).await?.said,
        Request::McpDraftFromDenials { name } => {
            let args = json!({"server_id": server(name)?, "from_denials": true});
            let proposed = door.write(args).await?.said;
            json!({
                "document": proposed["declaration"], "added": proposed["added"], "left_out": proposed["left_out"],
            })
        }
        Request::McpTest { name, emit } => {
            let named = server(name)?;
            let done = door.act(json!({"server_id": named}), NO_REASON).await?;
            let mut document = tested(&done.said);
            if *emit && done.said["reachable"] == true {
                document["emitted"] = done.seen.declaration_of_now(&named).await?;
            }
            document
        }
        Request::McpRemove { name, reason } => {
            let removed = door.act(json!({"server_id": name}), reason).await?.said;
            json!({
                "name": name, "state": "removed", "approvals_invalidated": removed["approvals_ended"],
                "permits_invalidated": removed["permits_ended"],
            })
        }
        Request::McpUpdate { registration } => {
            let done = door.act(register_args(registration), &registration.justification).await;
            let updated = done.map_err(justified)?;
            let mut document = record(updated.seen, &registration.name)?;
            document["approvals_invalidated"] = updated.said["approvals_ended"].clone();
            document["permits_invalidated"] = updated.said["permits_ended"].clone();
            document
        }
        Request::McpAccept { accept } => {
            let accepted = door.act(accept_args(accept), &accept.reason).await?.said;
            json!({
                "name": accept.name, "state": accepted["state"], "declaration_version": accepted["declaration_version"],
                "approvals_invalidated": accepted["approvals_ended"], "approvals_carried": accepted["approvals_carried"],
                "approvals_granted": accepted["approvals_granted"], "permits_invalidated": accepted["permits_ended"],
                "surface": accepted["surface"],
            })
        }
        Request::McpHalt { name, reason } => {
            let named = server(name)?;
            let (ending, permits) = (door.approvals_of(&named), door.waiting_permits_of(&named));
            door.act(json!({"server_id": name, "state": "halted"}), reason).await?;
            json!({"name": name, "state": "halted", "approvals_invalidated": ending, "permits_invalidated": permits})
        }
        Request::McpResume { name, reason } => {
            door.act(json!({"server_id": name, "state": "active"}), reason).await?;
            json!({"name": name, "state": "active", "approvals_invalidated": 0, "permits_invalidated": 0})
        }
        Request::ApproveGrant { .. } | Request::ApproveDeny { .. } => decided(door, request).await?,
        Request::TrustGrant { id, reason } => {
            trust(&door.act(json!({"tool": id, "state": "trusted"}), reason).await?.said)
        }
        Request::TrustRevoke { id, reason } => trust(&door.act(json!({"tool": id}), reason).await?.said),
        Request::CatalogRefresh => door.write(json!({})).await?.said,
        Request::PolicyApply { bundle, reason } => {
            activation(&door.act(json!({"bundle": bundle_args(bundle)}), reason).await?.said)
        }
        Request::PolicyRollback { version, reason } => {
            activation(&door.act(json!({"version": version}), reason).await?.said)
        }
        Request::GrantsRevoke { id, reason } => {
            granted(&door.act(json!({"grant_id": approval(id)?}), reason).await?.said)
        }
        Request::PermitRevoke { id, kill, reason } => {
            door.act(json!({"permit_id": id, "kill": kill}), reason).await?.said
        }
        Request::SessionEnd { session: wanted, reason } => {
            let ended = door.act(json!({"session_id": session(wanted)?}), reason).await?.said;
            let approvals = ended["approvals_ended"].clone();
            json!({"session_id": wanted, "state": "ended", "approvals_invalidated": approvals})
        }
        Request::CheckpointOpen { session: wanted, reason } => {
            let id = session(wanted)?;
            let seen = door.act(json!({"session_id": id}), reason).await?.seen;
            json!(seen.sessions().into_iter().find(|row| row.session_id == id))
        }
        Request::CheckpointResolve { session: wanted, reason } => {
            door.act(json!({"session_id": session(wanted)?}), reason).await?.said
        }
        Request::OperatorEnrol { .. }
        | Request::OperatorEnrolKey { .. }
        | Request::OperatorInvite { .. }
        | Request::OperatorRemovePasskey { .. }
        | Request::OperatorRemove { .. }
        | Request::OperatorTokenCreate { .. }
        | Request::OperatorTokenRevoke { .. }
        | Request::KeyCreate { .. }
        | Request::KeyRevoke { .. } => admitted(door, request).await?,
        Request::SecretSet { name, class, kind, value } => {
            let kind: Kind = kind.parse().map_err(|error: String| Failure::field("kind", error))?;
            let kind = if kind == Kind::Static { "token" } else { kind.as_str() };
            let args = json!({"name": name, "kind": kind, "credential_class": class, "rotate": false});
            kept(door, args, value).await?
        }
        Request::SecretRotate { name, value } => {
            kept(door, json!({"name": name, "kind": "token", "rotate": true}), value).await?
        }
        Request::SecretRemove { name, reason } => {
            door.act(json!({"name": name}), reason).await?;
            json!({"name": name, "state": "removed"})
        }
        Request::SigningKeyExport { name, id, reason } => {
            door.act(json!({"server_id": name, "subscription_id": id}), reason).await?.said
        }
        Request::SandboxWaive { name, facility, reason, lifetime } => {
            let id = server(name)?;
            door.is_waivable(facility)?;
            let expires_at = SystemClock.now().after((*lifetime).min(FOR_LONG));
            let args = json!({"server_id": id, "kind": facility, "expires_at": expires_at});
            json!(door.act(args, reason).await?.seen.waiver(&id, facility))
        }
        Request::AuditExport { .. }
        | Request::AuditEvidence { .. }
        | Request::AuditForget
        | Request::AuditHold { .. }
        | Request::AuditCassette { .. }
        | Request::AuditUnblock { .. }
        | Request::AuditRotateSigner { .. }
        | Request::AuditRebuildIndex
        | Request::AuditReplay { .. } => in_custody(door, request).await?,
        other => return Err(nothing_to_do(other)),
    })
}

/// What waits for an operator; what waits for a second operator is decided by the same command (ADM-54).
async fn decided(door: &Door<'_>, request: &Request) -> Answer {
    Ok(match request {
        Request::ApproveGrant { id, scope, reason } => {
            let id = approval(id)?;
            let shown = door.ask("approvals_get", json!({"approval_id": id})).await?;
            let is_operation = shown["action_type"] == "admin";
            let scope = if is_operation { Scope::Once } else { *scope };
            let args =
                json!({"approval_id": id, "scope": scope, "presented_sha256": shown["presented_sha256"]});
            let decided = door.act(args, reason).await?.said;
            if !is_operation {
                return Ok(approval_row(&decided));
            }
            let mut document = operation_row(&decided);
            (document["scope"], document["result"]) = (json!(scope), decided["result"].clone());
            document
        }
        Request::ApproveDeny { id, reason } => {
            let decided = door.act(json!({"approval_id": approval(id)?}), reason).await?.said;
            match decided["action_type"] == "admin" {
                true => operation_row(&decided),
                false => approval_row(&decided),
            }
        }
        other => return Err(nothing_to_do(other)),
    })
}

/// Who is let in, and with what.
async fn admitted(door: &Door<'_>, request: &Request) -> Answer {
    let until = |lifetime: &Option<Duration>| lifetime.map(|lifetime| SystemClock.now().after(lifetime));
    Ok(match request {
        Request::OperatorEnrol { name, passphrase } => {
            let expected = door.act(json!({"user_id": name}), NO_REASON).await?.said;
            json!(door.give(&expected["capture_id"], passphrase).await?)
        }
        Request::OperatorEnrolKey { name, key } => {
            let seen = door.act(json!({"user_id": name, "ssh_key": key}), NO_REASON).await?.seen;
            json!(seen.operators().into_iter().find(|enrolled| enrolled.name == *name))
        }
        Request::OperatorInvite { name } => {
            let invited = door.act(json!({"user_id": name, "passkey": true}), NO_REASON).await?.said;
            json!({"name": name, "link": door.fetch(&invited["capture_id"])?})
        }
        Request::OperatorRemovePasskey { name, passkey, reason } => {
            door.act(json!({"user_id": name, "passkey": passkey}), reason).await?;
            json!({"name": name, "passkey": passkey, "state": "removed"})
        }
        Request::OperatorRemove { name, reason } => {
            door.act(json!({"user_id": name}), reason).await?;
            json!({"name": name, "state": "removed"})
        }
        Request::OperatorTokenCreate { name, lifetime } => {
            let done = door.act(json!({"name": name, "expires_at": until(lifetime)}), NO_REASON).await?;
            let tokens = done.seen.operator_tokens();
            let mut created = json!(tokens.into_iter().find(|token| token.name == *name));
            created["token"] = door.fetch(&done.said["capture_id"])?;
            created
        }
        Request::OperatorTokenRevoke { name, reason } => {
            door.act(json!({"name": name}), reason).await?;
            json!({"name": name, "state": "revoked"})
        }
        Request::KeyCreate { agent, grants, groups, lifetime } => {
            let args = json!({"client_id": agent, "grants": grants, "groups": groups, "expires_at": until(lifetime)});
            let done = door.act(args, NO_REASON).await?;
            let mut created = json!(done.seen.keys().into_iter().find(|key| key.agent == *agent));
            created["key"] = door.fetch(&done.said["capture_id"])?;
            created
        }
        Request::KeyRevoke { agent, reason } => {
            door.act(json!({"client_id": agent}), reason).await?;
            json!({"agent": agent, "state": "revoked"})
        }
        other => return Err(nothing_to_do(other)),
    })
}

/// A credential: expected by the tool, given past it.
async fn kept(door: &Door<'_>, args: Value, value: &Passphrase) -> Answer {
    let expected = door.act(args, NO_REASON).await?.said;
    Ok(json!(door.give(&expected["capture_id"], value).await?))
}

/// What is taken out of the evidence, or done for the log.
async fn in_custody(door: &Door<'_>, request: &Request) -> Answer {
    Ok(match request {
        Request::AuditExport { out, from, to, recipient, reason } => {
            let reason = match recipient {
                Some(_) => reason.as_deref().unwrap_or_default(),
                None => reason.as_deref().unwrap_or(NO_REASON),
            };
            let args = json!({"from": from, "to": to, "recipient": recipient, "out": out});
            let done = door.act(args, reason).await?.said;
            let mut exported = done["exported"].clone();
            if let Some(evidence) = done.get("evidence") {
                exported["evidence"] = evidence.clone();
            }
            exported
        }
        Request::AuditEvidence { seqs, reason } => door.act(json!({"seqs": seqs}), reason).await?.said,
        Request::AuditForget => {
            let done = door.act(json!({"jobs": ["retention"]}), NO_REASON).await?.said;
            json!({"destroyed": done["destroyed"]})
        }
        Request::AuditHold { key, held, reason } => {
            key.parse::<portcullis_audit::KeyName>()
                .map_err(|error| Failure::field("key", error.to_string()))?;
            door.act(json!({"kid": key, "held": held}), reason).await?;
            json!({"key": key, "held": held})
        }
        Request::AuditCassette { out, session: wanted } => {
            let wanted = wanted.as_deref().map(session).transpose()?;
            let done = door.act(json!({"session_id": wanted, "out": out}), NO_REASON).await?.said;
            json!({"entries": done["entries"]})
        }
        Request::AuditUnblock { reason } => door.act(json!({}), reason).await?.said,
        Request::AuditRotateSigner { reason } => {
            let rotated = door.act(json!({"purpose": "log"}), reason).await?.said;
            json!({"new": rotated["kid"], "old": rotated["replaces"]})
        }
        Request::AuditRebuildIndex => door.write(json!({})).await?.said,
        Request::AuditReplay { session: wanted, policies } => {
            let args = json!({"session_id": session(wanted)?, "policies": policies});
            door.act(args, NO_REASON).await?.said
        }
        other => return Err(nothing_to_do(other)),
    })
}

/// How looking at a server is told.
fn tested(report: &Value) -> Value {
    json!({
        "reachable": report["reachable"], "reason": report["problem"], "version_ok": report["version_ok"],
        "protocol_version": report["handshake"], "isolation": report["isolation"],
        "declaration": {
            "match": report["declaration_match"], "added": report["added"], "removed": report["removed"],
            "changed": report["changes"], "fields": report["fields"],
        },
    })
}

/// The reason of a registration is its justification.
fn justified(failure: Failure) -> Failure {
    match failure.field.as_deref() {
        Some("reason") => Failure::field("justification", "say in a few words why the server is here"),
        _ => failure,
    }
}

fn nothing_to_do(request: &Request) -> Failure {
    Failure::new(ErrorCode::Internal, format!("{request:?} changes nothing"))
}
