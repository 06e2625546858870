//! What `tool_browse` answers (CAT-70, CAT-77, CAT-82).

use portcullis_core::Sha256Digest;
use serde_json::{Value, json};

use super::ledger::Ledger;
use super::path::Path;
use super::tree::{Child, children};
use crate::cards::Form;
use crate::cards::render::finished;
use crate::item::Kind;
use crate::search::{Hit, QueryError, SearchOptions};
use crate::snapshot::CatalogSnapshot;
use crate::view::View;

/// How many children of a path a page has, if nobody says.
const PATH_PAGE: usize = 50;

/// What is asked for: exactly one of `query` and `path`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Request<'r> {
    /// What somebody wants done.
    pub query: Option<&'r str>,
    /// Where to look.
    pub path: Option<&'r str>,
    /// How many; the default differs between the two.
    pub top_k: Option<usize>,
    /// Where the last page of a path ended.
    pub cursor: Option<&'r str>,
}

/// How answers look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrowseOptions {
    /// The form of cards.
    pub form: Form,
    /// How many cards a search shows, if nobody says.
    pub top_k: usize,
    /// Whether cards tell how well they fit.
    pub scores: bool,
    /// How many members of a family are shown.
    pub family_max: usize,
    /// Tools, resources or prompts.
    pub kind: Kind,
}

impl Default for BrowseOptions {
    fn default() -> Self {
        Self { form: Form::Lines, top_k: 10, scores: false, family_max: 1, kind: Kind::Tool }
    }
}

/// An answer: what a model reads, and which items are in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The cards.
    pub text: String,
    /// Their items, in order.
    pub items: Vec<usize>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrowseError {
    /// The arguments do not fit.
    #[error("{0}")]
    Arguments(String),
    /// The path is none.
    #[error("{0}")]
    PathInvalid(&'static str),
    /// The cursor is of another catalogue or path.
    #[error("the cursor is stale; ask for the path again without one")]
    StaleCursor,
    /// Nothing is there.
    #[error("nothing at this path; \"/\" lists what there is")]
    PathNotFound,
}

impl From<QueryError> for BrowseError {
    fn from(error: QueryError) -> Self {
        BrowseError::Arguments(error.to_string())
    }
}

impl CatalogSnapshot {
    /// Answers a request. With a ledger, what was shown before is shown again, byte for byte, before what is new.
    pub fn browse(
        &self,
        request: Request<'_>,
        view: &View,
        options: BrowseOptions,
        ledger: Option<&mut Ledger>,
    ) -> Result<Answer, BrowseError> {
        if request.top_k.is_some_and(|top_k| !(1..=50).contains(&top_k)) {
            return Err(QueryError::TopK.into());
        }
        match (request.query, request.path) {
            (Some(query), None) => {
                if request.cursor.is_some() {
                    return Err(BrowseError::Arguments("cursor belongs to path, not to query".into()));
                }
                self.by_query(query, request.top_k, view, options, ledger)
            }
            (None, Some(path)) => self.by_path(path, request, view, options),
            _ => Err(BrowseError::Arguments("give exactly one of query and path".into())),
        }
    }

    fn by_query(
        &self,
        query: &str,
        top_k: Option<usize>,
        view: &View,
        options: BrowseOptions,
        ledger: Option<&mut Ledger>,
    ) -> Result<Answer, BrowseError> {
        let search = SearchOptions {
            kind: options.kind,
            top_k: top_k.unwrap_or(options.top_k),
            family_max: options.family_max,
        };
        let hits = self.search(query, view, search)?;
        let items = hits.iter().map(|hit| hit.index).collect();
        if let Some(ledger) = ledger {
            return Ok(Answer { text: ledger.answer(self, view, options.form, &hits), items });
        }
        let card = |hit: &Hit| {
            let score = options.scores.then_some(hit.score);
            finished(self.card(hit.index, options.form), options.form, hit.similar, score)
        };
        let mut entries: Vec<String> = hits.iter().map(card).collect();
        if entries.is_empty() {
            entries.push(self.no_match(view, options));
        }
        Ok(Answer { text: joined(&entries, options.form), items })
    }

    /// A search without hits still says where to look.
    fn no_match(&self, view: &View, options: BrowseOptions) -> String {
        let mut namespaces: Vec<&str> = Vec::new();
        for item in view.iter().map(|index| &self.items()[index]).filter(|item| item.kind == options.kind) {
            if !namespaces.contains(&item.namespace.as_str()) {
                namespaces.push(&item.namespace);
            }
            if namespaces.len() == 10 {
                break;
            }
        }
        match options.form {
            Form::Lines => format!("no match; namespaces: {}", namespaces.join(", ")),
            Form::Json | Form::Compat => json!({"no_match": true, "namespaces": namespaces}).to_string(),
        }
    }

    fn by_path(
        &self,
        text: &str,
        request: Request<'_>,
        view: &View,
        options: BrowseOptions,
    ) -> Result<Answer, BrowseError> {
        let path = Path::parse(text).map_err(BrowseError::PathInvalid)?;
        let children = children(self, view, options.kind, &path).ok_or(BrowseError::PathNotFound)?;
        let start = match request.cursor {
            None => 0,
            Some(cursor) => self.offset(cursor, text).ok_or(BrowseError::StaleCursor)?,
        };
        let page = request.top_k.unwrap_or(PATH_PAGE);
        let shown = &children[start.min(children.len())..(start + page).min(children.len())];
        let mut items = Vec::new();
        let mut entries: Vec<String> = Vec::with_capacity(shown.len() + 1);
        for child in shown {
            entries.push(match child {
                Child::Leaf(index) => {
                    items.push(*index);
                    finished(self.card(*index, options.form), options.form, 0, None)
                }
                Child::Node(node) => match options.form {
                    Form::Lines => node.line(),
                    Form::Json | Form::Compat => {
                        json!({"kind": "internal", "names": node.names, "path": node.path, "size": node.count})
                            .to_string()
                    }
                },
            });
        }
        if start + page < children.len() {
            let cursor = self.cursor(start + page, text);
            entries.push(match options.form {
                Form::Lines => format!("more: cursor={cursor}"),
                Form::Json | Form::Compat => json!({"cursor": cursor}).to_string(),
            });
        }
        Ok(Answer { text: joined(&entries, options.form), items })
    }

    /// A cursor is bound to the catalogue and the path; whoever changes it gets nothing but another page.
    fn cursor(&self, offset: usize, path: &str) -> String {
        let bound = format!("{}\n{path}\n{offset}", self.digest());
        format!("{offset}-{}", &Sha256Digest::of(bound.as_bytes()).to_string()[..12])
    }

    fn offset(&self, cursor: &str, path: &str) -> Option<usize> {
        let offset = cursor.split_once('-')?.0.parse().ok()?;
        (self.cursor(offset, path) == cursor).then_some(offset)
    }

    /// The argument schemas of the first of these items, for `schemas: true` (CTX-72).
    /// Each as `shown` shows it.
    pub fn schemas(&self, items: &[usize], shown: impl Fn(&Value) -> Value) -> String {
        const SCHEMAS: usize = 5;
        const BUDGET: usize = 4_000;
        let mut out = String::from("{");
        let mut omitted: Vec<&str> = Vec::new();
        for index in items.iter().take(SCHEMAS) {
            let item = &self.items()[*index];
            let schema: Value = serde_json::from_str(item.args_schema.get()).unwrap_or(Value::Null);
            let entry = format!("{}:{}", Value::from(item.id.as_str()), shown(&schema));
            let next = format!("{out}{}{entry}", if out.len() > 1 { "," } else { "" });
            // The rest of the answer is ids only.
            if next.len() > 24 * BUDGET || !crate::cards::budget::fits(&next, BUDGET - 200) {
                omitted.push(&item.id);
            } else {
                out = next;
            }
        }
        if !omitted.is_empty() {
            out.push_str(if out.len() > 1 { "," } else { "" });
            out.push_str(&format!("\"omitted\":{}", json!(omitted)));
        }
        out.push('}');
        out
    }
}

/// One line each, or one array.
pub(crate) fn joined(entries: &[String], form: Form) -> String {
    match form {
        Form::Lines => entries.join("\n"),
        Form::Json | Form::Compat => format!("[{}]", entries.join(",")),
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
