//! What the tools do. Arguments are checked here again, although a gateway has checked them: a server that trusts
//! its caller is one that works only behind that caller. Whatever goes wrong inside a tool is an answer the model
//! can read (`isError`), not a protocol error.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::notebook::{Note, NoteName, Notebook};

const DEFAULT_MATCHES: usize = 5;
const MAX_MATCHES: usize = 20;
const MAX_QUERY_CHARS: usize = 200;
const EXCERPT_CHARS: usize = 160;

/// A tool of the catalogue.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tool {
    List,
    Read,
    Search,
    Write,
}

impl Tool {
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "notes_list" => Some(Self::List),
            "notes_read" => Some(Self::Read),
            "notes_search" => Some(Self::Search),
            "notes_write" => Some(Self::Write),
            _ => None,
        }
    }

    /// Runs the tool and shapes its outcome as the members of a `tools/call` result.
    pub(crate) fn call(self, notebook: &Notebook, arguments: Value) -> Value {
        let outcome = match self {
            Self::List => parse(arguments).and_then(|arguments| list(notebook, &arguments)),
            Self::Read => parse(arguments).and_then(|arguments| read(notebook, &arguments)),
            Self::Search => parse(arguments).and_then(|arguments| search(notebook, &arguments)),
            Self::Write => parse(arguments).and_then(|arguments| write(notebook, &arguments)),
        };
        match outcome {
            // The text mirrors the structured value for clients that know only text.
            Ok(structured) => json!({
                "content": [{ "type": "text", "text": structured.to_string() }],
                "structuredContent": structured,
                "isError": false
            }),
            Err(Refusal(text)) => json!({ "content": [{ "type": "text", "text": text }], "isError": true }),
        }
    }
}

/// Why a tool did not do it, in words for the model.
struct Refusal(String);

impl<E: std::error::Error> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    tag: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Search {
    query: String,
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Write {
    name: String,
    text: String,
}

fn parse<T: DeserializeOwned>(arguments: Value) -> Result<T, Refusal> {
    serde_json::from_value(arguments).map_err(|error| Refusal(format!("these arguments do not fit: {error}")))
}

fn list(notebook: &Notebook, arguments: &List) -> Result<Value, Refusal> {
    let notes = notebook.notes()?;
    let wanted = |note: &&Note| match &arguments.tag {
        Some(tag) => note.tags().contains(&tag.as_str()),
        None => true,
    };
    let line = |note: &Note| {
        json!({
            "name": note.name.as_str(),
            "title": note.title(),
            "tags": note.tags(),
            "bytes": note.text.len()
        })
    };
    Ok(json!({ "notes": notes.iter().filter(wanted).map(line).collect::<Vec<_>>() }))
}

fn read(notebook: &Notebook, arguments: &Read) -> Result<Value, Refusal> {
    let name: NoteName = arguments.name.parse()?;
    let note = notebook.read(&name)?;
    Ok(json!({ "name": note.name.as_str(), "text": note.text }))
}

fn write(notebook: &Notebook, arguments: &Write) -> Result<Value, Refusal> {
    let name: NoteName = arguments.name.parse()?;
    let created = notebook.write(&name, &arguments.text)?;
    Ok(json!({ "name": name.as_str(), "created": created, "bytes": arguments.text.len() }))
}

fn search(notebook: &Notebook, arguments: &Search) -> Result<Value, Refusal> {
    let limit = arguments.limit.unwrap_or(DEFAULT_MATCHES);
    if !(1..=MAX_MATCHES).contains(&limit) {
        return Err(Refusal(format!("`limit` is 1 to {MAX_MATCHES}")));
    }
    let words: Vec<String> = arguments.query.to_lowercase().split_whitespace().map(str::to_owned).collect();
    if words.is_empty() || arguments.query.chars().count() > MAX_QUERY_CHARS {
        return Err(Refusal(format!(
            "`query` is at least one word and at most {MAX_QUERY_CHARS} characters"
        )));
    }
    let notes = notebook.notes()?;
    let mut found: Vec<(usize, &Note)> =
        notes.iter().filter_map(|note| score(note, &words).map(|score| (score, note))).collect();
    // The sort is stable and the notes come by name, so that equal scores keep a fixed order.
    found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    let matches: Vec<Value> = found
        .iter()
        .take(limit)
        .map(|(_, note)| {
            json!({ "name": note.name.as_str(), "title": note.title(), "excerpt": excerpt(note, &words) })
        })
        .collect();
    Ok(json!({ "matches": matches, "total": found.len() }))
}

/// How often the words occur, if all of them do. The name counts as a part of the text that weighs more.
fn score(note: &Note, words: &[String]) -> Option<usize> {
    let text = note.text.to_lowercase();
    let mut total = 0;
    for word in words {
        let hits =
            text.matches(word.as_str()).count() + 5 * note.name.as_str().matches(word.as_str()).count();
        if hits == 0 {
            return None;
        }
        total += hits;
    }
    Some(total)
}

/// The first line with one of the words, cut to a readable length around it.
fn excerpt(note: &Note, words: &[String]) -> String {
    let holds = |line: &&str| {
        let line = line.to_lowercase();
        words.iter().any(|word| line.contains(word.as_str()))
    };
    let line = note.text.lines().find(holds).or_else(|| note.text.lines().next()).unwrap_or_default().trim();
    let at = words.iter().filter_map(|word| line.to_lowercase().find(word.as_str())).min().unwrap_or(0);
    // Lowercasing can move byte offsets, so that the position is only a hint, taken in characters.
    let start =
        line.char_indices().take_while(|(index, _)| *index < at).count().saturating_sub(EXCERPT_CHARS / 4);
    let cut: String = line.chars().skip(start).take(EXCERPT_CHARS).collect();
    match (start > 0, line.chars().count() > start + EXCERPT_CHARS) {
        (false, false) => cut,
        (false, true) => format!("{cut}…"),
        (true, false) => format!("…{cut}"),
        (true, true) => format!("…{cut}…"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notebook() -> (tempfile::TempDir, Notebook) {
        let folder = tempfile::tempdir().unwrap();
        let notebook = Notebook::open(folder.path()).unwrap();
        (folder, notebook)
    }

    #[test]
    fn a_search_needs_every_word_and_puts_the_best_note_first() {
        let (_folder, notebook) = notebook();
        let result = Tool::Search.call(&notebook, json!({ "query": "PERMIT", "limit": 2 }));
        let found = &result["structuredContent"];
        assert_eq!(found["matches"][0]["name"], "one-call-ten-steps");
        assert_eq!(found["total"], 3);
        let none = Tool::Search.call(&notebook, json!({ "query": "permit unicorn" }));
        assert_eq!(none["structuredContent"], json!({ "matches": [], "total": 0 }));
    }

    #[test]
    fn a_long_line_is_cut_around_the_match() {
        let text = format!("{} needle {}", "ä".repeat(400), "b".repeat(400));
        let note = Note { name: "n".parse().unwrap(), text };
        let cut = excerpt(&note, &["needle".to_owned()]);
        assert!(cut.contains("needle") && cut.starts_with('…') && cut.ends_with('…'));
        assert_eq!(cut.chars().count(), EXCERPT_CHARS + 2);
    }

    #[test]
    fn unknown_and_missing_arguments_are_readable_refusals() {
        let (_folder, notebook) = notebook();
        for arguments in
            [json!({}), json!({ "name": "../etc" }), json!({ "name": "welcome", "x": 1 }), json!([])]
        {
            let result = Tool::Read.call(&notebook, arguments.clone());
            assert_eq!(result["isError"], true, "{arguments}");
            assert!(result.get("structuredContent").is_none());
        }
    }

    #[test]
    fn a_written_note_is_listed_under_its_tag_and_read_back() {
        let (_folder, notebook) = notebook();
        let arguments = json!({ "name": "new", "text": "# Hello\n#fresh" });
        assert_eq!(
            Tool::Write.call(&notebook, arguments.clone())["structuredContent"],
            json!({ "name": "new", "created": true, "bytes": 14 })
        );
        assert_eq!(Tool::Write.call(&notebook, arguments)["structuredContent"]["created"], false);
        assert_eq!(
            Tool::List.call(&notebook, json!({ "tag": "fresh" }))["structuredContent"]["notes"],
            json!([{ "name": "new", "title": "Hello", "tags": ["fresh"], "bytes": 14 }])
        );
        let read = Tool::Read.call(&notebook, json!({ "name": "new" }));
        assert_eq!(read["structuredContent"]["text"], "# Hello\n#fresh");
        assert_eq!(read["content"][0]["text"], read["structuredContent"].to_string());
    }
}
