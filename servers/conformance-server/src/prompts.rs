//! What prompts say.

use rmcp::ErrorData;
use rmcp::model::{GetPromptRequestParams, GetPromptResponse, GetPromptResult};
use serde_json::{Value, json};

use crate::asking;
use crate::tools::PIXEL;

pub(crate) fn get(request: &GetPromptRequestParams) -> Result<GetPromptResponse, ErrorData> {
    let argument = |name: &str| {
        let given =
            request.arguments.as_ref().and_then(|arguments| arguments.get(name)).and_then(Value::as_str);
        given.ok_or_else(|| ErrorData::invalid_params(format!("the argument {name} is missing"), None))
    };
    let contents = match request.name.as_str() {
        "test_that_comes_and_goes" => vec![text("Here for now.")],
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => {
            let (first, second) = (argument("arg1")?, argument("arg2")?);
            vec![text(&format!("Prompt with arguments: arg1='{first}', arg2='{second}'"))]
        }
        "test_prompt_with_embedded_resource" => {
            let body = "Embedded resource content for testing.";
            let resource = json!({"uri": argument("resourceUri")?, "mimeType": "text/plain", "text": body});
            vec![
                json!({"type": "resource", "resource": resource}),
                text("Please process the embedded resource above."),
            ]
        }
        "test_prompt_with_image" => vec![
            json!({"type": "image", "data": PIXEL, "mimeType": "image/png"}),
            text("Please analyze the image above."),
        ],
        "test_input_required_result_prompt" => {
            let answer = request.input_responses.as_ref().and_then(|answers| answers.get("user_context"));
            let Some(context) = answer.and_then(|answer| answer["content"]["context"].as_str()) else {
                let properties = json!({"context": {"type": "string"}});
                let question = asking::elicitation("What context should the prompt use?", &properties);
                return Ok(asking::ask(vec![("user_context", question)], None).into());
            };
            vec![text(&format!("The context is: {context}"))]
        }
        other => return Err(ErrorData::invalid_params(format!("there is no prompt {other}"), None)),
    };
    let messages: Vec<Value> =
        contents.into_iter().map(|content| json!({"role": "user", "content": content})).collect();
    let result: GetPromptResult =
        serde_json::from_value(json!({"messages": messages, "resultType": "complete"}))
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(result.into())
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}
