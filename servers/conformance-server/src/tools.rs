//! What tools do.

use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, InputResponses,
    LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Value, json};

use crate::asking::{self, Answer, Question};
use crate::reference::{Changed, Reference};

/// A red pixel, as PNG.
pub(crate) const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// No sound at all, as WAV.
const SILENCE: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";
/// Between two signs of life.
const STEP: Duration = Duration::from_millis(50);

type Context = RequestContext<RoleServer>;
type Called = Result<CallToolResponse, ErrorData>;

impl Reference {
    pub(crate) async fn call(&self, request: CallToolRequestParams, context: Context) -> Called {
        if let Some(called) = self.call_as_task(&request, &context) {
            return called;
        }
        let answers = request.input_responses.unwrap_or_default();
        let argument = |name: &str| {
            let given =
                request.arguments.as_ref().and_then(|arguments| arguments.get(name)).and_then(Value::as_str);
            given.ok_or_else(|| ErrorData::invalid_params(format!("the argument {name} is missing"), None))
        };
        match request.name.as_ref() {
            "test_simple_text" => say("This is a simple text response for testing."),
            "test_that_comes_and_goes" => say("Here for now."),
            "greet" => say(&format!("Hello, {}!", argument("name")?)),
            "test_image_content" => content(vec![image()]),
            "test_audio_content" => {
                content(vec![json!({"type": "audio", "data": SILENCE, "mimeType": "audio/wav"})])
            }
            "test_embedded_resource" => content(vec![embedded(
                "test://embedded-resource",
                "text/plain",
                "This is an embedded resource content.",
            )]),
            "test_multiple_content_types" => content(vec![
                json!({"type": "text", "text": "Multiple content types test:"}),
                image(),
                embedded(
                    "test://mixed-content-resource",
                    "application/json",
                    r#"{"test":"data","value":123}"#,
                ),
            ]),
            "test_tool_with_logging" => log_thrice(&context).await,
            "test_logging_tool" => log_if_asked(&context).await,
            "test_tool_with_progress" => progress(&context).await,
            "test_error_handling" => result(json!({
                "content": [{"type": "text", "text": "This tool intentionally returns an error for testing"}],
                "isError": true,
            })),
            "test_sampling" => match asking::sample(&context, &answers, argument("prompt")?).await? {
                Answer::Given(answer) => say(&format!("LLM response: {}", asking::text_of(&answer))),
                Answer::Asked(question) => Ok(question.into()),
            },
            "test_elicitation" => {
                elicited(&context, &answers, argument("message")?, user_schema(), "User response").await
            }
            "test_elicitation_sep1034_defaults" => fill_in(&context, &answers, defaults_schema()).await,
            "test_elicitation_sep1330_enums" => fill_in(&context, &answers, enums_schema()).await,
            "test_streaming_elicitation" => match accepted(&answers, "confirm") {
                Some(_) => say("Confirmed."),
                None => questions(vec![("confirm", confirm())], None),
            },
            "test_missing_capability" => {
                if capabilities(&context)["sampling"].is_null() {
                    let required: ClientCapabilities =
                        serde_json::from_value(json!({"sampling": {}})).expect("a capability");
                    return Err(ErrorData::missing_required_client_capability(required));
                }
                say("The client has a model.")
            }
            "test_trigger_tool_change" => {
                self.change(Changed::Tools);
                let _ = context.peer.notify_tool_list_changed().await;
                say("The tools have changed.")
            }
            "test_trigger_prompt_change" => {
                self.change(Changed::Prompts);
                let _ = context.peer.notify_prompt_list_changed().await;
                say("The prompts have changed.")
            }
            "json_schema_2020_12_tool" | "test_headers" => {
                say(&json!(request.arguments.unwrap_or_default()).to_string())
            }
            name => match name.strip_prefix("test_input_required_result_") {
                Some(which) => self.ask(which, &answers, request.request_state.as_deref(), &context),
                None => Err(ErrorData::invalid_params(format!("there is no tool {name}"), None)),
            },
        }
    }

    /// The tools that ask before they answer, in the way of the newest revision.
    fn ask(&self, which: &str, answers: &InputResponses, state: Option<&str>, context: &Context) -> Called {
        let said = state.map(|state| {
            let ours = self.seal.open(state);
            ours.ok_or_else(|| ErrorData::invalid_params("the request state is not ours", None))
        });
        let said = said.transpose()?;
        match which {
            "elicitation" => {
                match accepted(answers, "user_name").and_then(|content| content["name"].as_str()) {
                    Some(name) => say(&format!("Hello, {name}!")),
                    None => questions(vec![("user_name", name("What is your name?"))], None),
                }
            }
            "sampling" => match answers.get("capital_question") {
                Some(answer) => say(&asking::text_of(answer)),
                None => {
                    let question = asking::sampling("What is the capital of France?", 100);
                    questions(vec![("capital_question", question)], None)
                }
            },
            "list_roots" => match answers.get("client_roots") {
                Some(answer) => say(&format!("Roots: {}", answer["roots"])),
                None => questions(vec![("client_roots", asking::roots())], None),
            },
            "request_state" | "tampered_state" => match (said, answers.get("confirm")) {
                (Some("confirm"), Some(_)) => say("state-ok"),
                _ => questions(vec![("confirm", confirm())], Some(self.seal.close("confirm"))),
            },
            "multiple_inputs" => {
                let all = ["user_name", "greeting", "client_roots"];
                if said == Some("multiple") && all.iter().all(|key| answers.contains_key(*key)) {
                    return say("All three answers have come.");
                }
                let asked = vec![
                    ("user_name", name("What is your name?")),
                    ("greeting", asking::sampling("Generate a greeting", 50)),
                    ("client_roots", asking::roots()),
                ];
                questions(asked, Some(self.seal.close("multiple")))
            }
            "multi_round" => match said {
                Some("round-2") if answers.contains_key("step2") => say("Both steps are done."),
                Some("round-1") if answers.contains_key("step1") => {
                    let color = json!({"color": {"type": "string"}});
                    let question = asking::elicitation("Step 2: What is your favorite color?", &color);
                    questions(vec![("step2", question)], Some(self.seal.close("round-2")))
                }
                _ => questions(
                    vec![("step1", name("Step 1: What is your name?"))],
                    Some(self.seal.close("round-1")),
                ),
            },
            "capabilities" => {
                let offered = capabilities(context);
                let possible = [
                    ("elicitation", ("user_name", name("What is your name?"))),
                    ("sampling", ("greeting", asking::sampling("Generate a greeting", 50))),
                    ("roots", ("client_roots", asking::roots())),
                ];
                let asked: Vec<Question> = (possible.into_iter())
                    .filter(|(capability, _)| !offered[capability].is_null())
                    .map(|(_, question)| question)
                    .collect();
                if asked.is_empty() || asked.iter().any(|(key, _)| answers.contains_key(*key)) {
                    return say("There is nothing more to ask.");
                }
                questions(asked, None)
            }
            other => Err(ErrorData::invalid_params(format!("there is no tool that asks for {other}"), None)),
        }
    }
}

fn capabilities(context: &Context) -> Value {
    json!(context.client_capabilities())
}

/// The content of an accepted form.
fn accepted<'a>(answers: &'a InputResponses, key: &str) -> Option<&'a Value> {
    let answer = answers.get(key)?;
    (answer["action"] == "accept").then_some(&answer["content"]).filter(|content| content.is_object())
}

fn questions(questions: Vec<Question>, state: Option<String>) -> Called {
    Ok(asking::ask(questions, state).into())
}

fn name(message: &str) -> Value {
    asking::elicitation(message, &json!({"name": {"type": "string"}}))
}

fn confirm() -> Value {
    asking::elicitation("Please confirm", &json!({"ok": {"type": "boolean"}}))
}

fn say(text: &str) -> Called {
    content(vec![json!({"type": "text", "text": text})])
}

fn content(blocks: Vec<Value>) -> Called {
    result(json!({ "content": blocks }))
}

/// The SDK takes the word away again for clients of the old revisions.
fn result(mut result: Value) -> Called {
    result["resultType"] = json!("complete");
    let result: CallToolResult =
        serde_json::from_value(result).map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(result.into())
}

fn image() -> Value {
    json!({"type": "image", "data": PIXEL, "mimeType": "image/png"})
}

fn embedded(uri: &str, kind: &str, text: &str) -> Value {
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}})
}

async fn log(context: &Context, text: &str) {
    let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(text));
    let _ = context.peer.notify_logging_message(message).await;
}

async fn log_thrice(context: &Context) -> Called {
    log(context, "Tool execution started").await;
    tokio::time::sleep(STEP).await;
    log(context, "Tool processing data").await;
    tokio::time::sleep(STEP).await;
    log(context, "Tool execution completed").await;
    say("Tool with logging executed successfully")
}

/// In the newest revision a request says whether it wants messages.
async fn log_if_asked(context: &Context) -> Called {
    if !json!(context.meta)["io.modelcontextprotocol/logLevel"].is_null() {
        log(context, "The request asked for this").await;
    }
    say("Logged as far as it was asked for.")
}

async fn progress(context: &Context) -> Called {
    for done in [0.0, 50.0, 100.0] {
        if let Some(token) = context.meta.get_progress_token() {
            let progress = ProgressNotificationParam::new(token, done).with_total(100.0);
            let _ = context.peer.notify_progress(progress).await;
        }
        tokio::time::sleep(STEP).await;
    }
    say("Tool with progress executed successfully")
}

async fn fill_in(context: &Context, answers: &InputResponses, schema: Value) -> Called {
    elicited(context, answers, "Please fill in the form", schema, "Elicitation completed").await
}

async fn elicited(
    context: &Context,
    answers: &InputResponses,
    message: &str,
    schema: Value,
    said: &str,
) -> Called {
    match asking::elicit(context, answers, message, schema).await? {
        Answer::Given(answer) => {
            let action = answer["action"].as_str().unwrap_or_default();
            say(&format!("{said}: action={action}, content={}", answer["content"]))
        }
        Answer::Asked(question) => Ok(question.into()),
    }
}

fn user_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "username": {"type": "string", "description": "User's response"},
            "email": {"type": "string", "description": "User's email address"},
        },
        "required": ["username", "email"],
    })
}

fn defaults_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": true},
        },
    })
}

fn enums_schema() -> Value {
    let titled = |words: [&str; 3]| -> Vec<Value> {
        let values = ["value1", "value2", "value3"];
        values.iter().zip(words).map(|(value, title)| json!({"const": value, "title": title})).collect()
    };
    let plain = ["option1", "option2", "option3"];
    json!({
        "type": "object",
        "properties": {
            "untitledSingle": {"type": "string", "enum": plain},
            "titledSingle": {"type": "string", "oneOf": titled(["First Option", "Second Option", "Third Option"])},
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
            "titledMulti": {
                "type": "array",
                "items": {"anyOf": titled(["First Choice", "Second Choice", "Third Choice"])},
            },
        },
    })
}
