//! The one place where a result is made fit for a model that reads it through the meta-tools.

use portcullis_gauntlet::ResultKind;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::result::{Members, member};

/// A result of whatever was asked for, as the result of a tool: that is what the client called.
pub(crate) fn shape(result: Vec<u8>, kind: ResultKind) -> Vec<u8> {
    let content = match kind {
        ResultKind::Resource => resource_parts(&result),
        ResultKind::Prompt => prompt_parts(&result),
        _ => return result,
    };
    let Some(content) = content else { return result };
    let members: Members<'_> = match serde_json::from_slice(&result) {
        Ok(members) => members,
        Err(_) => return result,
    };
    let mut out = format!("{{\"content\":{content}").into_bytes();
    for kept in ["resultType", "_meta"] {
        if let Some(value) = member(&members, kept) {
            out.extend_from_slice(format!(",\"{kept}\":{}", value.get()).as_bytes());
        }
    }
    out.push(b'}');
    out
}

/// The contents of a resource, each an embedded resource.
fn resource_parts(result: &[u8]) -> Option<String> {
    let members: Members<'_> = serde_json::from_slice(result).ok()?;
    let contents: Vec<&RawValue> = serde_json::from_str(member(&members, "contents")?.get()).ok()?;
    let parts: Vec<String> = contents
        .iter()
        .map(|part| format!("{{\"type\":\"resource\",\"resource\":{}}}", part.get()))
        .collect();
    Some(format!("[{}]", parts.join(",")))
}

/// The messages of a prompt, in one text: a result has no roles.
fn prompt_parts(result: &[u8]) -> Option<String> {
    let members: Members<'_> = serde_json::from_slice(result).ok()?;
    let messages: Value = serde_json::from_str(member(&members, "messages")?.get()).ok()?;
    let mut rendered = json!({"messages": messages});
    if let Some(description) = member(&members, "description") {
        rendered["description"] = serde_json::from_str(description.get()).ok()?;
    }
    Some(json!([{"type": "text", "text": rendered.to_string()}]).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_and_prompts_become_results_of_tools() {
        // CTX-72
        let resource = br#"{"contents":[{"uri":"a:b","text":"x"}],"ttlMs":0,"_meta":{"k":1}}"#.to_vec();
        assert_eq!(
            String::from_utf8(shape(resource, ResultKind::Resource)).unwrap(),
            r#"{"content":[{"type":"resource","resource":{"uri":"a:b","text":"x"}}],"_meta":{"k":1}}"#
        );
        let prompt = br#"{"messages":[{"role":"user","content":{"type":"text","text":"hi"}}]}"#.to_vec();
        let shaped: Value = serde_json::from_slice(&shape(prompt, ResultKind::Prompt)).unwrap();
        let text: Value = serde_json::from_str(shaped["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text["messages"][0]["content"]["text"], "hi");
        let tool = br#"{"content":[]}"#.to_vec();
        assert_eq!(shape(tool.clone(), ResultKind::Tool), tool);
    }
}
