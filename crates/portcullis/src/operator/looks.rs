//! The requests that look. Each is a call of the tool that shows the same (ADM-1, ADM-71), told in the words of commands. Those
//! that are the tool's own rows are in `listed`.

use portcullis_catalog::Kind;
use portcullis_core::ErrorCode;
use portcullis_governance::approval::State;
use serde_json::{Value, json};

use super::door::Door;
use super::looking::Looking;
use super::rows::{approval, approval_row, granted, operation_row, policy, server, show, shown};
use super::{Answer, Request, listed};
use crate::failure::Failure;

pub(super) async fn perform(door: &Door<'_>, request: &Request) -> Answer {
    if let Some(rows) = listed::perform(door, request).await {
        return rows.map(Value::Array);
    }
    let asks_the_tool = match request {
        Request::ApproveList { .. } => true,
        Request::ApproveShow { id } => door.look()?.is_operation(id),
        _ => false,
    };
    match asks_the_tool {
        true => told(door, door.look()?, request).await,
        false => door.looked(|looking| told(door, looking, request)).await,
    }
}

async fn told(door: &Door<'_>, looking: &Looking<'_>, request: &Request) -> Answer {
    Ok(match request {
        Request::McpShow { name } => show(looking, &server(name)?).await?,
        Request::Separation => looking.separation(),
        Request::ApproveList { status } => {
            let mut rows: Vec<Value> = looking.approvals(*status).iter().map(approval_row).collect();
            rows.extend(operations(door, *status).await?);
            Value::Array(rows)
        }
        Request::ApproveShow { id } if looking.is_operation(id) => {
            let detail = door.ask("approvals_get", json!({"approval_id": id})).await?;
            let mut document = operation_row(&detail);
            document["presented"] = detail["presented"].clone();
            document["presented"]["tool_id"] = detail["tool"].clone();
            document["presented"]["classes"] = json!(["admin"]);
            document
        }
        Request::ApproveShow { id } => shown(looking, &looking.approval(approval(id)?)?)?,
        Request::TrustShow { id } => looking.trust_record(id).await?,
        Request::TrustVerify => looking.verify_trust().await?,
        Request::CatalogBrowse { query, path, top_k, kind } => {
            let kind = match kind.as_str() {
                "resource" => Kind::Resource,
                "prompt" => Kind::Prompt,
                _ => Kind::Tool,
            };
            let (query, path) = (query.as_deref(), path.as_deref());
            looking.browse(portcullis_catalog::Request { query, path, top_k: *top_k, cursor: None }, kind)?
        }
        Request::CatalogFindings => looking.findings(),
        Request::CatalogSnapshot { server: only, live } => {
            let only = only.as_deref().map(server).transpose()?;
            looking.capabilities(only.as_ref(), *live).await?
        }
        Request::SurfaceParts { mode, principal } => looking.surface_parts(*mode, principal.as_deref())?,
        Request::GateTry { id } => looking.try_gates(id.as_deref()).await,
        Request::Alarms => looking.alarms(),
        Request::ResultSizes { seconds, limit } => looking.result_sizes(*seconds, *limit),
        Request::PolicyShow { version } => policy(looking, *version).await?,
        Request::PolicyExplain { tool, args, agent } => looking.explain(agent.as_deref(), tool, args)?,
        Request::GrantsList => {
            Value::Array(looking.approvals(Some(State::Approved)).iter().map(granted).collect())
        }
        Request::SessionList => json!(looking.sessions()),
        Request::OperatorList => json!(looking.operators()),
        Request::SandboxExplain { name } => looking.explain_cage(&server(name)?).await?,
        Request::SandboxTest { name } => looking.test_cage(&server(name)?).await?,
        Request::ArtifactList => looking.artifacts(),
        Request::ArtifactView { handle, selector } => looking.view_artifact(handle, selector).await?,
        Request::AuditKeys => looking.evidence_keys().await?,
        other => {
            return Err(Failure::new(ErrorCode::Internal, format!("{other:?} is nothing to look at")));
        }
    })
}

/// Admin operations that wait for a second operator, as rows of approvals.
async fn operations(door: &Door<'_>, status: Option<State>) -> Result<Vec<Value>, Failure> {
    let rows = door.rows("approvals_list", json!({"status": status, "action_type": "admin"})).await?;
    Ok(rows.iter().map(operation_row).collect())
}
