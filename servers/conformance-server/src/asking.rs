//! Questions to the client: a request of ours in the old revisions, an unfinished result in the new one.

use rmcp::ErrorData;
use rmcp::model::{
    CreateMessageRequestParams, ElicitRequestParams, InputRequest, InputRequests, InputRequiredResult,
    InputResponses, ProtocolVersion,
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

/// What came of a question.
pub(crate) enum Answer {
    /// The client's result.
    Given(Value),
    /// The client has yet to be asked, in the way of the newest revision.
    Asked(InputRequiredResult),
}

/// The key of a tool's only question.
const ONLY: &str = "answer";

/// The user's answer to `schema`: its action and content.
pub(crate) async fn elicit(
    context: &RequestContext<RoleServer>,
    answers: &InputResponses,
    message: &str,
    schema: Value,
) -> Result<Answer, ErrorData> {
    let params = json!({"message": message, "requestedSchema": schema});
    if let Some(answer) = in_the_new_way(context, answers, "elicitation/create", &params) {
        return Ok(answer);
    }
    let mut params = params;
    params["mode"] = json!("form");
    let params: ElicitRequestParams = serde_json::from_value(params).map_err(internal)?;
    Ok(Answer::Given(json!(context.peer.create_elicitation(params).await.map_err(internal)?)))
}

/// The model's answer.
pub(crate) async fn sample(
    context: &RequestContext<RoleServer>,
    answers: &InputResponses,
    prompt: &str,
) -> Result<Answer, ErrorData> {
    let params = sampling(prompt, 100)["params"].take();
    if let Some(answer) = in_the_new_way(context, answers, "sampling/createMessage", &params) {
        return Ok(answer);
    }
    let params: CreateMessageRequestParams = serde_json::from_value(params).map_err(internal)?;
    Ok(Answer::Given(json!(context.peer.create_message(params).await.map_err(internal)?)))
}

/// Whether the client is of the newest revision, and so is asked with a result.
pub(crate) fn is_newest(context: &RequestContext<RoleServer>) -> bool {
    let newest = ProtocolVersion::V_2026_07_28;
    context.protocol_version().is_some_and(|version| version.as_str() >= newest.as_str())
}

/// Asks a client of the old revisions what an unfinished result asks, all at once, while its request waits.
pub(crate) async fn in_the_old_way(
    context: &RequestContext<RoleServer>,
    asked: InputRequiredResult,
) -> Result<InputResponses, ErrorData> {
    let questions = asked.input_requests.unwrap_or_default().into_iter().map(|(key, question)| async move {
        let peer = &context.peer;
        let answer = match question {
            InputRequest::CreateMessage(request) => {
                json!(peer.create_message(request.params).await.map_err(internal)?)
            }
            InputRequest::Elicitation(request) => {
                json!(peer.create_elicitation(request.params).await.map_err(internal)?)
            }
            InputRequest::ListRoots(_) => json!(peer.list_roots().await.map_err(internal)?),
            _ => return Err(internal("a question of another kind")),
        };
        Ok((key, answer))
    });
    futures_util::future::try_join_all(questions).await.map(|answers| answers.into_iter().collect())
}

/// In the newest revision a server asks with its result, and has its answer with the next call.
fn in_the_new_way(
    context: &RequestContext<RoleServer>,
    answers: &InputResponses,
    method: &str,
    params: &Value,
) -> Option<Answer> {
    if !is_newest(context) {
        return None;
    }
    Some(match answers.get(ONLY) {
        Some(answer) => Answer::Given(answer.clone()),
        None => Answer::Asked(ask(vec![(ONLY, json!({"method": method, "params": params}))], None)),
    })
}

fn internal(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

/// The text of a sampling answer, whose content is one block or a list of them.
pub(crate) fn text_of(answer: &Value) -> String {
    let content = &answer["content"];
    let block = content.as_array().and_then(|blocks| blocks.first()).unwrap_or(content);
    block["text"].as_str().unwrap_or_default().to_owned()
}
