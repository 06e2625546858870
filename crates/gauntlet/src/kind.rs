//! What a result must look like, by what was asked for.

use serde::Deserialize;
use serde_json::value::RawValue;

/// More values than this in one completion break the protocol.
const MOST_COMPLETIONS: usize = 100;

/// Which of the protocol's results this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResultKind {
    /// Of `tools/call`.
    #[default]
    Tool,
    /// Of `resources/read`.
    Resource,
    /// Of `prompts/get`.
    Prompt,
    /// Of `completion/complete`.
    Completion,
}

#[derive(Deserialize)]
struct Contents<'a> {
    #[serde(borrow)]
    contents: Vec<Content<'a>>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(rename = "uri")]
    _uri: String,
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
    #[serde(borrow, default)]
    blob: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Messages<'a> {
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    role: String,
    #[serde(borrow)]
    content: &'a RawValue,
}

#[derive(Deserialize)]
struct Completed {
    completion: Completion,
}

#[derive(Deserialize)]
struct Completion {
    values: Vec<String>,
}

impl ResultKind {
    /// Whether `text` says that it is questions and no result; resources and prompts alone may.
    pub(crate) fn asks_for_input(self, text: &[u8]) -> bool {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Kind {
            #[serde(default)]
            result_type: Option<String>,
        }
        let read = || serde_json::from_slice::<Kind>(text).ok()?.result_type;
        matches!(self, ResultKind::Resource | ResultKind::Prompt)
            && read().as_deref() == Some("input_required")
    }

    /// Whether `text` is a result of this kind; the reason quotes nothing. Tool results have a reader of their own.
    pub(crate) fn check(self, text: &[u8]) -> Result<(), &'static str> {
        match self {
            ResultKind::Tool => Ok(()),
            ResultKind::Resource => {
                let read: Contents<'_> =
                    serde_json::from_slice(text).map_err(|_| "no list of resource contents")?;
                let is_text = |raw: Option<&RawValue>| raw.is_some_and(|raw| raw.get().starts_with('"'));
                let plain = read.contents.iter().all(|part| is_text(part.text) != is_text(part.blob));
                if plain { Ok(()) } else { Err("contents that are neither text nor blob") }
            }
            ResultKind::Prompt => {
                let read: Messages<'_> =
                    serde_json::from_slice(text).map_err(|_| "no list of prompt messages")?;
                let plain = read.messages.iter().all(|message| {
                    matches!(message.role.as_str(), "user" | "assistant")
                        && message.content.get().starts_with('{')
                });
                if plain { Ok(()) } else { Err("a message without a role or content") }
            }
            ResultKind::Completion => {
                let read: Completed = serde_json::from_slice(text).map_err(|_| "no completion")?;
                let few = read.completion.values.len() <= MOST_COMPLETIONS;
                if few { Ok(()) } else { Err("more than 100 completions") }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ResultKind::{Completion, Prompt, Resource};

    #[test]
    fn each_kind_of_result_is_known_by_its_shape() {
        assert!(
            Resource.check(br#"{"contents":[{"uri":"a:b","text":"x"},{"uri":"a:c","blob":"eA=="}]}"#).is_ok()
        );
        assert!(Resource.check(br#"{"contents":[]}"#).is_ok());
        for bad in [&br#"{}"#[..], br#"{"contents":[{"text":"x"}]}"#, br#"{"contents":[{"uri":"a:b"}]}"#] {
            assert!(Resource.check(bad).is_err());
        }
        let message = br#"{"messages":[{"role":"user","content":{"type":"text","text":"x"}}]}"#;
        assert!(Prompt.check(message).is_ok());
        assert!(Prompt.check(br#"{"messages":[{"role":"system","content":{}}]}"#).is_err());
        assert!(Completion.check(br#"{"completion":{"values":["a"],"total":1}}"#).is_ok());
        let many = format!(r#"{{"completion":{{"values":[{}]}}}}"#, vec!["\"a\""; 101].join(","));
        assert!(Completion.check(many.as_bytes()).is_err());
    }
}
