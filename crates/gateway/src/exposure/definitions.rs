//! The tools that stand for all others (CTX-71), byte for byte as specified: providers cache a list by its bytes.

use portcullis_catalog::{CatalogSnapshot, Kind, View};
use portcullis_governance::registry::Registry;
use serde_json::Value;

use super::Mode;
use super::shelf::entry_of;
use crate::shaping::TOOL_VIEW_DEFINITION;
use crate::surface::offered::Offered;
use crate::surface::published::effect;

const TOOL_BROWSE: &str = r#"{"name":"tool_browse","description":"Find tools. Give exactly one of query (what you want done) or path (\"/\" lists namespaces, \"/github\" its tools). Each line: id(args) [effects] — description. Then call tool_execute with the id. Read-only.","inputSchema":{"type":"object","properties":{"query":{"type":"string"},"path":{"type":"string"},"top_k":{"type":"integer","minimum":1,"maximum":50},"cursor":{"type":"string"},"schemas":{"type":"boolean","description":"add full argument schemas of the first 5"}},"additionalProperties":false},"annotations":{"readOnlyHint":true}}"#;
const TOOL_EXECUTE: &str = r#"{"name":"tool_execute","description":"Call a tool by id. args are checked against its schema first; an ARGS_INVALID error contains the schema. dry_run checks without calling. Long results return a handle for tool_view. Mutating.","inputSchema":{"type":"object","properties":{"tool_id":{"type":"string"},"args":{"type":"object"},"dry_run":{"type":"boolean"}},"required":["tool_id","args"],"additionalProperties":false},"annotations":{"readOnlyHint":false}}"#;
const TOOL_HYDRATE: &str = r#"{"name":"tool_hydrate","description":"Return the argument schema of a tool. Read-only.","inputSchema":{"type":"object","properties":{"tool_id":{"type":"string"}},"required":["tool_id"],"additionalProperties":false},"annotations":{"readOnlyHint":true}}"#;
const RESOURCE_BROWSE: &str = r#"{"name":"resource_browse","description":"Find resources by query or path. Read-only.","inputSchema":{"type":"object","properties":{"query":{"type":"string"},"path":{"type":"string"},"top_k":{"type":"integer","minimum":1,"maximum":50},"cursor":{"type":"string"}},"additionalProperties":false},"annotations":{"readOnlyHint":true}}"#;
const RESOURCE_READ: &str = r#"{"name":"resource_read","description":"Read a resource by id. Read-only.","inputSchema":{"type":"object","properties":{"resource_id":{"type":"string"},"args":{"type":"object"}},"required":["resource_id"],"additionalProperties":false},"annotations":{"readOnlyHint":true}}"#;
const PROMPT_BROWSE: &str = r#"{"name":"prompt_browse","description":"Find prompts by query or path. Read-only.","inputSchema":{"type":"object","properties":{"query":{"type":"string"},"path":{"type":"string"},"top_k":{"type":"integer","minimum":1,"maximum":50},"cursor":{"type":"string"}},"additionalProperties":false},"annotations":{"readOnlyHint":true}}"#;
const PROMPT_GET: &str = r#"{"name":"prompt_get","description":"Render a prompt by id. Read-only.","inputSchema":{"type":"object","properties":{"prompt_id":{"type":"string"},"args":{"type":"object"}},"required":["prompt_id"],"additionalProperties":false},"annotations":{"readOnlyHint":true}}"#;

/// A tool that stands for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetaTool {
    Browse(Kind),
    Execute,
    Hydrate,
    Read,
    Get,
}

impl MetaTool {
    const ALL: [MetaTool; 7] = [
        MetaTool::Browse(Kind::Tool),
        MetaTool::Execute,
        MetaTool::Hydrate,
        MetaTool::Browse(Kind::Resource),
        MetaTool::Read,
        MetaTool::Browse(Kind::Prompt),
        MetaTool::Get,
    ];

    /// The one of that name, if the mode has it. Which of them are listed may depend on more.
    pub(crate) fn named(name: &str, mode: Mode) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name && tool.belongs_to(mode))
    }

    fn belongs_to(self, mode: Mode) -> bool {
        match (mode, self) {
            (Mode::Passthrough, _) => false,
            (Mode::Transparent, tool) => matches!(tool, MetaTool::Execute | MetaTool::Hydrate),
            (Mode::Gateway, tool) => tool != MetaTool::Hydrate,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            MetaTool::Browse(Kind::Resource) => "resource_browse",
            MetaTool::Browse(Kind::Prompt) => "prompt_browse",
            MetaTool::Browse(_) => "tool_browse",
            MetaTool::Execute => "tool_execute",
            MetaTool::Hydrate => "tool_hydrate",
            MetaTool::Read => "resource_read",
            MetaTool::Get => "prompt_get",
        }
    }

    fn definition(self) -> &'static str {
        match self {
            MetaTool::Browse(Kind::Resource) => RESOURCE_BROWSE,
            MetaTool::Browse(Kind::Prompt) => PROMPT_BROWSE,
            MetaTool::Browse(_) => TOOL_BROWSE,
            MetaTool::Execute => TOOL_EXECUTE,
            MetaTool::Hydrate => TOOL_HYDRATE,
            MetaTool::Read => RESOURCE_READ,
            MetaTool::Get => PROMPT_GET,
        }
    }

    /// Whether there is something to use it for.
    fn is_listed(self, catalogue: &CatalogSnapshot, view: &View) -> bool {
        let any = |kind| view.iter().any(|index| catalogue.items()[index].kind == kind);
        match self {
            MetaTool::Browse(Kind::Resource) | MetaTool::Read => any(Kind::Resource),
            MetaTool::Browse(Kind::Prompt) | MetaTool::Get => any(Kind::Prompt),
            _ => true,
        }
    }
}

/// What stands for tools that a list of definitions has no room for (SURF-64).
pub(crate) fn stand_ins() -> Vec<String> {
    [TOOL_BROWSE, TOOL_EXECUTE, TOOL_VIEW_DEFINITION].map(ToOwned::to_owned).into()
}

/// What `tools/list` has in a mode that does not list whole definitions, sorted by name (CAT-91).
pub(crate) fn listed(
    mode: Mode,
    registry: &Registry,
    catalogue: &CatalogSnapshot,
    view: &View,
) -> Vec<Offered> {
    let meta =
        MetaTool::ALL.into_iter().filter(|tool| tool.belongs_to(mode) && tool.is_listed(catalogue, view));
    // Long results are shown in short, so there is a way to look at the rest.
    let own = meta.map(MetaTool::definition).chain([TOOL_VIEW_DEFINITION]);
    let mut entries: Vec<Offered> = own.filter_map(|definition| Offered::new("", None, definition)).collect();
    if mode == Mode::Transparent {
        let tools = view.iter().filter(|index| catalogue.items()[*index].kind == Kind::Tool);
        entries.extend(tools.filter_map(|index| {
            let item = &catalogue.items()[index];
            let stripped = format!(
                "{{\"name\":{},\"description\":{},\"inputSchema\":{{\"type\":\"object\"}},\"_meta\":{{\"io.portcullis/tool_id\":{}}}}}",
                Value::from(item.wire_name.as_str()),
                Value::from(catalogue.card_description(index)),
                Value::from(item.id.as_str()),
            );
            Offered::new(&item.server, entry_of(registry, item).map(|entry| effect(entry)), &stripped)
        }));
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_catalog::cards::tokens;

    #[test]
    fn the_definitions_are_json_and_cheap() {
        // CTX-71
        for tool in MetaTool::ALL {
            let value: Value = serde_json::from_str(tool.definition()).unwrap();
            assert_eq!(value["name"], tool.name());
        }
        let prompt = RESOURCE_BROWSE.replace("resource", "prompt");
        assert_eq!(PROMPT_BROWSE, prompt);
        assert!(tokens(&format!("[{TOOL_BROWSE},{TOOL_EXECUTE},{TOOL_VIEW_DEFINITION}]")) <= 450);
    }

    #[test]
    fn each_mode_has_its_own() {
        // CTX-70
        assert_eq!(MetaTool::named("tool_browse", Mode::Gateway), Some(MetaTool::Browse(Kind::Tool)));
        assert_eq!(MetaTool::named("tool_browse", Mode::Transparent), None);
        assert_eq!(MetaTool::named("tool_hydrate", Mode::Transparent), Some(MetaTool::Hydrate));
        assert_eq!(MetaTool::named("tool_execute", Mode::Passthrough), None);
    }
}
