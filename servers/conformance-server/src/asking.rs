//! Questions to the client: a request of ours in the old revisions, an unfinished result in the new one.

use rmcp::ErrorData;
use rmcp::model::{
    CreateMessageRequestParams, ElicitRequestParams, InputRequest, InputRequests, InputRequiredResult,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Value, json};

/// A question and the key its answer comes back under.
pub(crate) type Question = (&'static str, Value);

/// A form with these properties, all of them required.
pub(crate) fn elicitation(message: &str, properties: &Value) -> Value {
    let required: Vec<&String> = properties.as_object().into_iter().flat_map(|map| map.keys()).collect();
    let schema = json!({"type": "object", "properties": properties, "required": required});
    json!({"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}})
}

/// A question for the client's model.
pub(crate) fn sampling(text: &str, max_tokens: u32) -> Value {
    let message = json!({"role": "user", "content": {"type": "text", "text": text}});
    json!({"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": max_tokens}})
}

/// A question for the client's roots.
pub(crate) fn roots() -> Value {
    json!({"method": "roots/list", "params": {}})
}

/// The unfinished result that asks `questions`.
pub(crate) fn ask(questions: Vec<Question>, state: Option<String>) -> InputRequiredResult {
    let requests = questions.into_iter().map(|(key, question)| {
        let request: InputRequest = serde_json::from_value(question).expect("one of the three questions");
        (key.to_owned(), request)
    });
    InputRequiredResult::new(Some(requests.collect::<InputRequests>()), state)
}

/// The user's answer to `schema`, asked for in the old way: action and content.
pub(crate) async fn elicit(
    context: &RequestContext<RoleServer>,
    message: &str,
    schema: Value,
) -> Result<(String, Value), ErrorData> {
    let params: ElicitRequestParams =
        serde_json::from_value(json!({"mode": "form", "message": message, "requestedSchema": schema}))
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let answer = context
        .peer
        .create_elicitation(params)
        .await
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let answer = json!(answer);
    Ok((answer["action"].as_str().unwrap_or_default().to_owned(), answer["content"].clone()))
}

/// The model's answer, asked for in the old way.
pub(crate) async fn sample(context: &RequestContext<RoleServer>, prompt: &str) -> Result<String, ErrorData> {
    let params: CreateMessageRequestParams =
        serde_json::from_value(sampling(prompt, 100)["params"].take())
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let answer = context
        .peer
        .create_message(params)
        .await
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(text_of(&json!(answer)))
}

/// The text of a sampling answer, whose content is one block or a list of them.
pub(crate) fn text_of(answer: &Value) -> String {
    let content = &answer["content"];
    let block = content.as_array().and_then(|blocks| blocks.first()).unwrap_or(content);
    block["text"].as_str().unwrap_or_default().to_owned()
}
