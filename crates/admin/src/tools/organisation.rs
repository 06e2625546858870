//! `portcullis_roles_list` and `portcullis_meta_client_config`: who sees which tools, and how a client gets here.

use serde_json::{Value, json};

use crate::args::{NonBlank, Page};
use crate::error::AdminError;
use crate::registry::Module;
use crate::reply::Reply;
use crate::roles::Role;
use crate::tool::read_tool;
use crate::{Cx, args, words};

words! {
    pub(crate) enum Format { McpJson = "mcp_json", ClaudeDesktop = "claude_desktop", Vscode = "vscode" }
}

args! {
    pub(crate) struct List { page: Page }
}

args! {
    pub(crate) struct ClientConfig { client_id: NonBlank<80>, format: Format }
}

/// What goes into a client's configuration.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub(crate) struct Snippet {
    client_id: String,
    format: String,
    /// Without the key: the operator puts it in.
    snippet: Value,
}

pub(super) fn module() -> Module {
    Module {
        name: "organisation",
        tools: vec![
            read_tool("roles", "list", "List roles, and what each sees.", list),
            read_tool("meta", "client_config", "Show what a client's configuration needs.", client_config),
        ],
    }
}

async fn list(cx: Cx, args: List) -> Result<Reply<Vec<Role>>, AdminError> {
    Ok(Reply::page(args.page.cut(cx.roles.all()), args.page))
}

async fn client_config(cx: Cx, args: ClientConfig) -> Result<Reply<Snippet>, AdminError> {
    let client = args.client_id.as_str();
    let url = cx.house().agents_url();
    let known = cx.house().clients().into_iter().any(|row| row.client_id == client);
    let mut server = json!({"type": "http", "url": url});
    if known {
        server["headers"] = json!({"Authorization": "Bearer ${PORTCULLIS_KEY}"});
    }
    let snippet = match args.format {
        // It starts programs and follows no URL.
        Format::ClaudeDesktop => {
            json!({"mcpServers": {"portcullis": {"command": "portcullis", "args": ["serve", "--stdio"]}}})
        }
        Format::McpJson => json!({"mcpServers": {"portcullis": server}}),
        Format::Vscode => json!({"servers": {"portcullis": server}}),
    };
    let (client_id, format) = (client.to_owned(), args.format.as_str().to_owned());
    Ok(Reply::ok(Snippet { client_id, format, snippet }))
}
