//! `portcullis_meta_*`: the surface itself.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::actor::ActorRecord;
use crate::args::{NoArgs, NonBlank, Page};
use crate::error::AdminError;
use crate::registry::Module;
use crate::reply::Reply;
use crate::tool::{Class, ToolDef, read_tool};
use crate::{Cx, args, words};

words! {
    pub(crate) enum ClassWord { Read = "read", Write = "write", Admin = "admin" }
}

words! {
    pub(crate) enum Detail { Card = "card", Full = "full" }
}

args! {
    pub(crate) struct ListTools {
        domain: Option<NonBlank>, class: Option<ClassWord>, tool: Option<NonBlank>, detail: Option<Detail>,
        include_unwired: Option<bool>, page: Page,
    }
}

/// A tool, as a card or whole.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ToolCard {
    name: String,
    class: Class,
    description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_schema: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_schema: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wired: Option<bool>,
}

/// Who asks.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct WhoAmI {
    actor: Option<ActorRecord>,
    roles: Vec<String>,
    tags: Vec<String>,
}

pub(super) fn module() -> Module {
    Module {
        name: "meta",
        tools: vec![
            read_tool("meta", "list_tools", "List admin tools, as cards or with schemas.", list_tools)
                .for_owners(),
            read_tool("meta", "whoami", "Say who asks, with which roles.", whoami).for_owners(),
        ],
    }
}

async fn list_tools(cx: Cx, args: ListTools) -> Result<Reply<Vec<ToolCard>>, AdminError> {
    let unwired = args.include_unwired.unwrap_or(false);
    let wanted = |tool: &&ToolDef| {
        cx.roles.shows(tool, cx.actor.as_ref(), cx.channel)
            && (tool.is_wired() || unwired)
            && args.domain.as_ref().is_none_or(|domain| tool.domain() == domain.as_str())
            && args.class.is_none_or(|class| tool.class().as_str() == class.as_str())
            && args.tool.as_ref().is_none_or(|name| [tool.name(), tool.short_name()].contains(&name.as_str()))
    };
    let full = args.detail == Some(Detail::Full);
    let cards = cx.registry.tools().filter(wanted).map(|tool| ToolCard {
        name: tool.name().to_owned(),
        class: tool.class(),
        description: tool.description().to_owned(),
        input_schema: full.then(|| tool.input_schema().clone()),
        data_schema: tool.data_schema().filter(|_| full).cloned(),
        wired: unwired.then(|| tool.is_wired()),
    });
    Ok(Reply::page(args.page.cut(cards.collect()), args.page))
}

async fn whoami(cx: Cx, _: NoArgs) -> Result<Reply<WhoAmI>, AdminError> {
    let actor = cx.actor.as_ref();
    let mut tags: Vec<String> = (cx.registry.tools())
        .filter(|tool| cx.roles.shows(tool, actor, cx.channel))
        .map(ToolDef::tag)
        .collect();
    tags.sort_unstable();
    tags.dedup();
    let roles = cx.roles.of(actor).into_iter().map(|role| role.id).collect();
    Ok(Reply::ok(WhoAmI { actor: actor.map(crate::Actor::record), roles, tags }))
}
