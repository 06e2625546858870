//! Search and fetch of records as documents, for clients that look for exactly those (REC-41): the text is JSON of a fixed
//! form, no longer than the lines it stands for.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::result::{Members, write_members};

/// Bytes of a text, as for every other client.
const SEARCH: usize = 1_792;
const FETCH: usize = 2_048;

/// The result with its text in that form; `None` if it is no result of such a tool.
pub(crate) fn as_documents(json: &str, tool: &str) -> Option<String> {
    let result: Value = serde_json::from_str(json).ok()?;
    let structured = &result["structuredContent"];
    let text = match tool {
        _ if result["isError"] == true => return None,
        "search" => found(structured)?,
        "fetch" => fetched(structured)?,
        _ => return None,
    };
    let members: Members<'_> = serde_json::from_str(json).ok()?;
    let content = json!([{"type": "text", "text": text}]).to_string();
    let content = RawValue::from_string(content).ok()?;
    let mut out = Vec::with_capacity(json.len());
    write_members(&mut out, &members, &[("content", Some(&content))]);
    String::from_utf8(out).ok()
}

/// As many hits as fit.
fn found(structured: &Value) -> Option<String> {
    let hits = structured["results"].as_array()?;
    let document = |hit: &Value| json!({"id": hit["id"], "title": hit["title"], "url": hit["url"]});
    let documents: Vec<Value> = hits.iter().map(document).collect();
    let text = |count: usize| json!({"results": documents[..count]}).to_string();
    (0..=documents.len()).rev().map(text).find(|text| text.len() <= SEARCH)
}

/// One document, with as much of its text as fits.
fn fetched(structured: &Value) -> Option<String> {
    let whole = structured["text"].as_str()?;
    let document = |text: &str| {
        json!({
            "id": structured["id"], "title": structured["title"], "text": text, "url": structured["url"],
            "metadata": structured["metadata"],
        })
        .to_string()
    };
    let ends: Vec<usize> = whole.char_indices().map(|(at, _)| at).chain([whole.len()]).collect();
    let fits = ends.partition_point(|end| document(&whole[..*end]).len() <= FETCH);
    Some(document(&whole[..ends[fits.saturating_sub(1)]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(result: &Value, tool: &str) -> Value {
        let written: Value = serde_json::from_str(&as_documents(&result.to_string(), tool).unwrap()).unwrap();
        let text = written["content"][0]["text"].as_str().unwrap();
        assert!(text.len() <= FETCH, "{}", text.len());
        assert_eq!(written["structuredContent"], result["structuredContent"]);
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn hits_and_records_have_the_form_of_documents_within_their_bytes() {
        // REC-41
        let hits: Vec<Value> = (0..90)
            .map(|n| json!({"id": format!("c/s:{n}"), "title": "T", "url": "/u", "snippet": "x"}))
            .collect();
        let found = text(&json!({"content": [], "structuredContent": {"results": hits}}), "search");
        let shown = found["results"].as_array().unwrap();
        assert!(shown.len() > 20 && shown.len() < 90, "{}", shown.len());
        assert_eq!(shown[0], json!({"id": "c/s:0", "title": "T", "url": "/u"}));
        let record = json!({"id": "c/s:0", "title": "T", "text": "é\"".repeat(2_000), "url": "/u", "metadata": {"stream": "s"}});
        let fetched = text(&json!({"content": [], "structuredContent": record}), "fetch");
        assert_eq!(fetched["metadata"]["stream"], "s");
        assert!(fetched["text"].as_str().unwrap().starts_with("é\"é"), "{fetched}");
        assert_eq!(
            as_documents(
                &json!({"content": [], "isError": true, "structuredContent": {"text": ""}}).to_string(),
                "fetch"
            ),
            None
        );
    }
}
