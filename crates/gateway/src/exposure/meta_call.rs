//! A call of one of the tools that stand for all others (CTX-72, CTX-73).

use std::sync::Arc;

use portcullis_catalog::{CatalogSnapshot, Kind, NotOne, Request, SelectableItem, Standing, View};
use portcullis_core::ErrorCode;
use portcullis_core::error::{ErrorDocument, one_line};
use portcullis_gauntlet::Grants;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::definitions::MetaTool;
use super::shelf::entry_of;
use super::{Mode, refusal};
use crate::edge::Era;
use crate::listing::outcomes;
use crate::target::Target;
use crate::world::World;

/// How an answer is worded.
#[derive(Debug, Clone)]
pub(crate) enum Manner {
    /// As the protocol has it for what was asked.
    Native,
    /// As the result of a meta-tool, about this id.
    Meta {
        /// What the agent gave.
        id: String,
        /// What it meant, or what is said if it meant nothing.
        item: Result<Arc<Meant>, ErrorDocument>,
    },
}

/// An item as it was when it was asked for.
#[derive(Debug)]
pub(crate) struct Meant {
    pub(crate) item: SelectableItem,
    pub(crate) schema: Value,
}

/// What a meta-tool's call comes to.
pub(crate) enum Meta {
    /// An answer of our own.
    Answer(String),
    /// A governed call.
    Call(Box<Governed>),
}

/// A governed call, found through the catalogue.
pub(crate) struct Governed {
    pub(crate) target: Target,
    pub(crate) arguments: Option<Box<RawValue>>,
    pub(crate) manner: Manner,
    pub(crate) dry_run: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct BrowseArguments {
    query: Option<String>,
    path: Option<String>,
    top_k: Option<usize>,
    cursor: Option<String>,
    #[serde(default)]
    schemas: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExecuteArguments {
    #[serde(alias = "resource_id", alias = "prompt_id")]
    tool_id: String,
    args: Option<Box<RawValue>>,
    #[serde(default)]
    dry_run: bool,
}

/// Who looks, and at what.
pub(crate) struct Looking<'l> {
    pub(crate) world: &'l World,
    pub(crate) catalogue: &'l Arc<CatalogSnapshot>,
    pub(crate) view: &'l View,
    pub(crate) mode: Mode,
    pub(crate) era: Era,
    /// The cards shown so far, if they are to be shown again.
    pub(crate) ledger: Option<&'l mut portcullis_catalog::Ledger>,
}

impl Looking<'_> {
    /// What the call of `name` comes to; `None` if the mode has nothing of that name.
    pub(crate) fn call(&mut self, name: &str, arguments: Option<&RawValue>) -> Option<Meta> {
        let Some(tool) = MetaTool::named(name, self.mode) else {
            // In transparent mode a name on the list is the same operation.
            let index =
                (self.mode == Mode::Transparent).then(|| self.catalogue.lookup(name, self.view).ok())??;
            let item = &self.catalogue.items()[index];
            (item.wire_name == name && item.kind == Kind::Tool).then_some(())?;
            return Some(self.governed(index, name, arguments.map(ToOwned::to_owned), false));
        };
        let text = arguments.map_or("{}", RawValue::get);
        Some(match tool {
            MetaTool::Browse(kind) => match serde_json::from_str(text) {
                Ok(arguments) => self.browse(kind, tool, &arguments),
                Err(error) => self.unfit(tool, &error),
            },
            MetaTool::Hydrate | MetaTool::Execute | MetaTool::Read | MetaTool::Get => {
                match serde_json::from_str::<ExecuteArguments>(text) {
                    Ok(arguments) => self.execute(tool, arguments),
                    Err(error) => self.unfit(tool, &error),
                }
            }
        })
    }

    fn browse(&mut self, kind: Kind, tool: MetaTool, arguments: &BrowseArguments) -> Meta {
        let shelf = self.world.shelf();
        let request = Request {
            query: arguments.query.as_deref(),
            path: arguments.path.as_deref(),
            top_k: arguments.top_k,
            cursor: arguments.cursor.as_deref(),
        };
        let options = shelf.options().browse.options(kind);
        let ledger = self.ledger.as_deref_mut().filter(|_| kind == Kind::Tool);
        let (catalogue, view) = (self.catalogue.clone(), self.view);
        match catalogue.browse(request, view, options, ledger) {
            Ok(answer) => {
                let mut text = answer.text;
                if let Some(line) = self.unavailable() {
                    text.push('\n');
                    text.push_str(&line);
                }
                let mut content = vec![json!({"type": "text", "text": text})];
                if arguments.schemas && kind == Kind::Tool {
                    let schemas =
                        catalogue.schemas(&answer.items, |schema| shelf.gauntlet().advertised_schema(schema));
                    content.push(json!({"type": "text", "text": schemas}));
                }
                let mut meta = serde_json::Map::new();
                if let Some(ledger) = &self.ledger {
                    meta.insert("io.portcullis/cache_epoch".into(), json!(ledger.epoch()));
                }
                Meta::Answer(self.result(content, meta))
            }
            Err(error) => {
                let asked = arguments.path.as_deref().unwrap_or(tool.name());
                Meta::Answer(refusal::as_result(&refusal::of_browsing(&error, asked), self.era))
            }
        }
    }

    /// CTX-95: servers that cannot be reached, as far as this agent sees anything of theirs.
    fn unavailable(&self) -> Option<String> {
        let down: Vec<String> = outcomes(self.world, &Grants::Declared)
            .into_iter()
            .filter(|(name, outcome)| {
                let is_seen = || self.view.iter().any(|index| self.catalogue.items()[index].server == *name);
                outcome["status"] == "unavailable" && is_seen()
            })
            .map(|(name, _)| name)
            .collect();
        (!down.is_empty()).then(|| format!("unavailable: {}", down.join(", ")))
    }

    fn execute(&mut self, tool: MetaTool, arguments: ExecuteArguments) -> Meta {
        let ExecuteArguments { tool_id: id, args, dry_run } = arguments;
        let kind = match tool {
            MetaTool::Read => Kind::Resource,
            MetaTool::Get => Kind::Prompt,
            _ => Kind::Tool,
        };
        let found = self.catalogue.lookup(&id, self.view);
        let found = found.and_then(|index| {
            if self.catalogue.items()[index].kind == kind { Ok(index) } else { Err(NotOne::Unknown) }
        });
        let index = match found {
            Ok(index) => index,
            Err(not_one) => return self.nothing(kind, id, &not_one),
        };
        if let Standing::Quarantined(finding) = self.catalogue.items()[index].standing {
            let message = format!("the definition cannot be used: {}", finding.as_str());
            let document = ErrorDocument::new(ErrorCode::SchemaInvalid, one_line(&id), message);
            return Meta::Answer(refusal::as_result(&document, self.era));
        }
        if tool == MetaTool::Hydrate {
            return self.hydrate(index);
        }
        if tool == MetaTool::Execute && args.is_none() {
            let document = ErrorDocument::new(
                ErrorCode::ArgsInvalid,
                one_line(&id),
                "tool_execute needs args: an object",
            );
            return Meta::Answer(refusal::as_result(&document, self.era));
        }
        self.governed(index, &id, args, dry_run)
    }

    fn governed(&mut self, index: usize, id: &str, args: Option<Box<RawValue>>, dry_run: bool) -> Meta {
        if let Some(ledger) = self.ledger.as_deref_mut() {
            ledger.showed(self.catalogue, self.view, self.world.shelf().options().browse.form, index);
        }
        let item = &self.catalogue.items()[index];
        let Some(entry) = entry_of(self.world.registry(), item) else {
            return self.nothing(item.kind, id.to_owned(), &NotOne::Unknown);
        };
        let empty = || RawValue::from_string("{}".into()).ok();
        // A resource is asked for by its name, which holds its arguments.
        let named = match item.kind {
            Kind::Resource if item.is_template => args.clone().or_else(empty),
            Kind::Resource => empty(),
            _ => None,
        };
        let schema: Value = serde_json::from_str(item.args_schema.get()).unwrap_or(Value::Null);
        let schema = self.world.shelf().gauntlet().advertised_schema(&schema);
        let meant = Arc::new(Meant { item: item.clone(), schema });
        Meta::Call(Box::new(Governed {
            target: Target::Resolved { id: id.to_owned(), entry: entry.clone(), arguments: named },
            arguments: args,
            manner: Manner::Meta { id: id.to_owned(), item: Ok(meant) },
            dry_run,
        }))
    }

    /// What is hidden and what is unknown are answered alike, and both are on record (CAT-53, MP-FH-002).
    fn nothing(&self, kind: Kind, id: String, not_one: &NotOne) -> Meta {
        let (code, browse) = match kind {
            Kind::Resource => (ErrorCode::ResourceNotFound, "resource_browse"),
            Kind::Prompt => (ErrorCode::PromptNotFound, "prompt_browse"),
            Kind::Tool | Kind::Internal => (ErrorCode::HydrateFailed, "tool_browse"),
        };
        let document = match not_one {
            NotOne::Several(candidates) => {
                let message = "the id stands for several; use one of candidates";
                ErrorDocument::new(code, one_line(&id), message).with("candidates", json!(candidates))
            }
            NotOne::Unknown => {
                let similar = self.catalogue.did_you_mean(&id, kind, self.view);
                let message = format!("there is nothing of this id; {browse} finds what there is");
                let document = ErrorDocument::new(code, one_line(&id), message);
                if similar.is_empty() { document } else { document.with("did_you_mean", json!(similar)) }
            }
        };
        Meta::Call(Box::new(Governed {
            target: Target::Nothing(id.clone()),
            arguments: None,
            manner: Manner::Meta { id, item: Err(document) },
            dry_run: false,
        }))
    }

    fn hydrate(&mut self, index: usize) -> Meta {
        let shelf = self.world.shelf();
        let catalogue = self.catalogue.clone();
        let hydrated = catalogue.hydrate(index);
        let schema = |raw: &RawValue| {
            let schema: Value = serde_json::from_str(raw.get()).unwrap_or(Value::Null);
            shelf.gauntlet().advertised_schema(&schema)
        };
        let mut text = format!(
            "{{\"tool_id\":{},\"description\":{},\"args_schema\":{}",
            Value::from(hydrated.tool_id),
            Value::from(hydrated.description),
            schema(hydrated.args_schema),
        );
        if let Some(output) = hydrated.output_schema {
            text.push_str(&format!(",\"output_schema\":{}", schema(output)));
        }
        for (key, value) in [("examples", hydrated.examples), ("constraints", hydrated.constraints)] {
            if let Some(value) = value {
                text.push_str(&format!(",\"{key}\":{value}"));
            }
        }
        text.push('}');
        if let Some(ledger) = self.ledger.as_deref_mut() {
            ledger.showed(&catalogue, self.view, shelf.options().browse.form, index);
        }
        Meta::Answer(self.result(vec![json!({"type": "text", "text": text})], serde_json::Map::new()))
    }

    fn unfit(&self, tool: MetaTool, error: &serde_json::Error) -> Meta {
        // The words of the reader name our fields and the kinds of values, and quote nothing but field names.
        let message = format!("{}: {}", tool.name(), one_line(&error.to_string()));
        let document = ErrorDocument::new(ErrorCode::ArgsInvalid, tool.name(), message);
        Meta::Answer(refusal::as_result(&document, self.era))
    }

    fn result(&self, content: Vec<Value>, meta: serde_json::Map<String, Value>) -> String {
        let mut result = json!({"content": content});
        if !meta.is_empty() {
            result["_meta"] = Value::Object(meta);
        }
        if self.era == Era::Modern {
            result["resultType"] = json!("complete");
        }
        result.to_string()
    }
}
