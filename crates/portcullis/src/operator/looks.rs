//! The requests that look. Each is a call of the tool that shows the same (ADM-1, ADM-71), told in the words of commands. Those
//! whose data is the tool's are in `listed` and `shown`; what is here no tool tells in full, or shows it on record.

use portcullis_catalog::Kind;
use portcullis_core::ErrorCode;
use serde_json::Value;

use super::door::Door;
use super::looking::Looking;
use super::rows::server;
use super::{Answer, Request, listed, shown};
use crate::failure::Failure;

pub(super) async fn perform(door: &Door<'_>, request: &Request) -> Answer {
    if let Some(rows) = listed::perform(door, request).await {
        return rows.map(Value::Array);
    }
    if let Some(document) = shown::perform(door, request).await {
        return document;
    }
    door.looked(|looking| told(looking, request)).await
}

async fn told(looking: &Looking<'_>, request: &Request) -> Answer {
    Ok(match request {
        Request::Separation => looking.separation(),
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
        Request::SandboxExplain { name } => looking.explain_cage(&server(name)?).await?,
        Request::SandboxTest { name } => looking.test_cage(&server(name)?).await?,
        Request::ArtifactView { handle, selector } => looking.view_artifact(handle, selector).await?,
        other => {
            return Err(Failure::new(ErrorCode::Internal, format!("{other:?} is nothing to look at")));
        }
    })
}
