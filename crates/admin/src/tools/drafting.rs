//! `portcullis_servers_draft`: looking at a server that is not registered, and drafting the worst case of what it lists. Nothing
//! is accepted.

use std::path::PathBuf;

use portcullis_gateway::control::Drafting;
use portcullis_governance::draft::Host;
use serde_json::Value;

use super::servers::{Place, Process, Transport};
use crate::args::{Integer, JsonObject, NonBlank};
use crate::error::AdminError;
use crate::registry::Module;
use crate::reply::Reply;
use crate::tool::write_tool;
use crate::{ActorRef, Cx, args};

args! {
    pub(crate) struct HostArg { host: NonBlank<253>, port: Integer<1, 65_535> }
}

args! {
    pub(crate) struct Draft {
        server_id: NonBlank<63>, transport: Transport, process: Option<Process>, url: Option<NonBlank>,
        credential_file: Option<NonBlank>, tls_spki: Option<NonBlank>, folders: Option<Vec<NonBlank>>,
        programs: Option<Vec<NonBlank>>, hosts: Option<Vec<HostArg>>, secrets: Option<Vec<JsonObject>>, attest: Option<NonBlank>,
    }
}

pub(super) fn module() -> Module {
    Module {
        name: "integrations/drafting",
        tools: vec![write_tool("servers", "draft", "Look at a server and draft its declaration.", draft)],
    }
}

async fn draft(cx: Cx, actor: ActorRef, args: Draft) -> Result<Reply<Value>, AdminError> {
    let Draft { transport, process, url, credential_file, tls_spki, .. } = args;
    let target = Place { transport, process, url, credential_file, tls_spki }.target()?;
    let secrets =
        args.secrets.unwrap_or_default().into_iter().map(|secret| Value::Object(secret.0)).collect();
    let asked = Drafting {
        name: args.server_id.into(),
        target,
        folders: paths(args.folders),
        programs: paths(args.programs),
        hosts: (args.hosts.unwrap_or_default().into_iter())
            .map(|host| Host { host: host.host.into(), port: u16::try_from(host.port.0).unwrap_or_default() })
            .collect(),
        secrets: serde_json::from_value(Value::Array(secrets))
            .map_err(|_| AdminError::argument("secrets", "must be facts about secrets, without values"))?,
        attest: args.attest.map(String::from),
    };
    Ok(Reply::ok(cx.servers().draft_new(actor.op(), asked).await?))
}

fn paths(given: Option<Vec<NonBlank>>) -> Vec<PathBuf> {
    given.unwrap_or_default().into_iter().map(|path| PathBuf::from(path.as_str())).collect()
}
