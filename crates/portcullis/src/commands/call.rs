//! `portcullis call`: one tool call through the gateway, as an agent would make it.

use std::io::Read as _;
use std::process::ExitCode;

use portcullis_gateway::Gateway;
use serde_json::{Value, json};

use super::Context;
use crate::cli::CallArgs;
use crate::failure::Failure;
use crate::mcp_client::McpClient;
use crate::output::table;
use crate::receipt;

pub(super) async fn run(context: &Context<'_>, args: &CallArgs) -> Result<ExitCode, Failure> {
    let arguments = arguments(&args.arguments)?;
    let (mut client, gateway) = match McpClient::connect(&context.home).await {
        Some(client) => (client, None),
        None => {
            let gateway = Gateway::start(context.options()?).await?;
            (McpClient::embedded(gateway.edge.clone()), Some(gateway))
        }
    };
    let outcome = match &args.tool {
        Some(tool) => client.call(tool, arguments).await,
        None => client.request("tools/list", json!({})).await,
    };
    if let Some(gateway) = gateway {
        gateway.finish().await;
    }
    let result = outcome?;
    if args.tool.is_none() {
        context.output.result(&result["tools"], render_tools);
        return Ok(ExitCode::SUCCESS);
    }
    let text = result_text(&result);
    context.output.result(&result, |_| text.clone());
    if args.receipt {
        let proposal = result["_meta"]["io.portcullis/call"]["proposal_id"].as_str().unwrap_or_default();
        let receipt = receipt::of(&context.home.join("audit"), proposal, &text);
        context.output.note(receipt::render(&receipt, context.output));
    }
    Ok(exit_code(&result, &text))
}

/// 0, or what the gateway's own error document says, or 1 for a failure of the tool itself.
fn exit_code(result: &Value, text: &str) -> ExitCode {
    if !result["isError"].as_bool().unwrap_or(false) {
        return ExitCode::SUCCESS;
    }
    let document: Option<Value> = serde_json::from_str(text).ok();
    let name = document.as_ref().and_then(|document| document["error"].as_str());
    let code = portcullis_core::ErrorCode::ALL.into_iter().find(|code| Some(code.as_str()) == name);
    ExitCode::from(code.map_or(1, portcullis_core::ErrorCode::exit_code))
}

fn arguments(text: &str) -> Result<Value, Failure> {
    let text = if text == "-" {
        let mut input = String::new();
        std::io::stdin()
            .read_to_string(&mut input)
            .map_err(|error| Failure::field("arguments", format!("cannot read stdin: {error}")))?;
        input
    } else {
        text.to_owned()
    };
    let limits = portcullis_core::Limits::arguments(4 << 20);
    let value = portcullis_core::canon::parse(text.as_bytes(), limits)
        .map_err(|error| Failure::field("arguments", format!("the arguments are {error}")))?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(Failure::field("arguments", "the arguments must be a JSON object"))
    }
}

/// The text blocks of a result; what is not text is named.
pub(super) fn result_text(result: &Value) -> String {
    let blocks = result["content"].as_array().into_iter().flatten();
    let parts = blocks.map(|block| match block["text"].as_str() {
        Some(text) => text.to_owned(),
        None => format!("[{}]", block["type"].as_str().unwrap_or("unknown")),
    });
    parts.collect::<Vec<_>>().join("\n")
}

fn render_tools(tools: &Value) -> String {
    let rows = tools.as_array().into_iter().flatten().map(|tool| {
        let description = tool["description"].as_str().unwrap_or_default();
        let sentence = description.split(". ").next().unwrap_or_default();
        let mut first: String = sentence.chars().take(80).collect();
        if first.len() < sentence.len() {
            first.push('…');
        }
        vec![tool["name"].as_str().unwrap_or_default().to_owned(), crate::output::visible(&first)]
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        "no tools; register a server with `portcullis mcp add`".into()
    } else {
        table(&["tool", "what it does"], rows)
    }
}
