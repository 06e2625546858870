//! `portcullis_roles_*`, `portcullis_users_*` and `portcullis_meta_client_config`: who sees which tools, and how a client gets
//! here.

use serde_json::{Value, json};

use portcullis_gateway::control::User;

use crate::args::{NonBlank, Page, Version};
use crate::error::AdminError;
use crate::grant::{AdminGrant, TargetId};
use crate::registry::Module;
use crate::reply::{Committed, Reply};
use crate::roles::Role;
use crate::services::{RoleRecord, UserRecord};
use crate::tool::{admin_tool, read_tool};
use crate::{Cx, args, words};

words! {
    pub(crate) enum Format { McpJson = "mcp_json", ClaudeDesktop = "claude_desktop", Vscode = "vscode" }
}

args! {
    pub(crate) struct List { page: Page }
}

args! {
    pub(crate) struct PutRole {
        role_id: NonBlank<63>, patterns: Vec<NonBlank<80>>, allow: Option<Vec<NonBlank<80>>>,
        deny: Option<Vec<NonBlank<80>>>, expected_version: Option<Version>,
    }
}

args! {
    pub(crate) struct OneRole { role_id: NonBlank<63> }
}

args! {
    pub(crate) struct PutUser {
        user_id: NonBlank<63>, roles: Vec<NonBlank<63>>, enabled: bool, expected_version: Option<Version>,
    }
}

args! {
    pub(crate) struct OneUser { user_id: NonBlank<63> }
}

/// Somebody who is not let in any more.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub(crate) struct Removed {
    id: String,
    state: String,
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
            admin_tool("roles", "put", "Set what a role sees.", put_role),
            admin_tool("roles", "delete", "Remove a role that nobody has.", delete_role),
            read_tool("users", "list", "List operators.", users),
            admin_tool("users", "put", "Give an operator its roles, or switch it off.", put_user),
            admin_tool("users", "delete", "Remove an operator and its tokens.", delete_user),
            read_tool("meta", "client_config", "Show what a client's configuration needs.", client_config),
        ],
    }
}

async fn list(cx: Cx, args: List) -> Result<Reply<Vec<RoleRecord>>, AdminError> {
    Ok(Reply::page(args.page.cut(cx.people().roles()), args.page))
}

async fn put_role(cx: Cx, grant: AdminGrant, args: PutRole) -> Result<Committed<RoleRecord>, AdminError> {
    let people = cx.people();
    let texts = |list: Option<Vec<NonBlank<80>>>| -> Vec<String> {
        list.unwrap_or_default().into_iter().map(String::from).collect()
    };
    let role = Role {
        id: args.role_id.into(),
        patterns: texts(Some(args.patterns)),
        allow: texts(args.allow),
        deny: texts(args.deny),
    };
    let expected = args.expected_version.map(Version::get);
    let target = TargetId::new("role", &role.id);
    grant.answer(target, move |op| async move { people.put_role(&op, role, expected).await }).await
}

async fn delete_role(cx: Cx, grant: AdminGrant, args: OneRole) -> Result<Committed<()>, AdminError> {
    let (people, id) = (cx.people(), String::from(args.role_id));
    let target = TargetId::new("role", &id);
    grant.answer(target, move |op| async move { people.delete_role(&op, &id).await }).await
}

async fn users(cx: Cx, args: List) -> Result<Reply<Vec<UserRecord>>, AdminError> {
    Ok(Reply::page(args.page.cut(cx.people().users()), args.page))
}

async fn put_user(cx: Cx, grant: AdminGrant, args: PutUser) -> Result<Committed<UserRecord>, AdminError> {
    let people = cx.people();
    let user = User {
        user_id: args.user_id.into(),
        roles: args.roles.into_iter().map(String::from).collect(),
        enabled: args.enabled,
    };
    let expected = args.expected_version.map(Version::get);
    let target = TargetId::new("user", &user.user_id);
    grant.answer(target, move |op| async move { people.put_user(&op, user, expected).await }).await
}

async fn delete_user(cx: Cx, grant: AdminGrant, args: OneUser) -> Result<Committed<Removed>, AdminError> {
    let (people, id) = (cx.people(), String::from(args.user_id));
    let target = TargetId::new("user", &id);
    grant
        .answer(target, move |op| async move {
            people.delete_user(&op, &id).await?;
            Ok(Removed { id, state: "removed".into() })
        })
        .await
}

async fn client_config(cx: Cx, args: ClientConfig) -> Result<Reply<Snippet>, AdminError> {
    let client = args.client_id.as_str();
    let url = cx.house().agents_url();
    let known = cx.control.keys().iter().any(|key| key.agent == client);
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
