//! Tools that go on after their answer: the tasks extension.

use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, CreateTaskResult,
    InputRequest,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::task_manager::{TaskContext, TaskExit, TaskFuture, TaskOptions};
use serde_json::{Value, json};

use crate::asking;
use crate::reference::Reference;

type Done = Result<CallToolResult, TaskExit>;

impl Reference {
    /// The tools that become tasks. `None`: it is none of them.
    pub(crate) fn call_as_task(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Option<Result<CallToolResponse, ErrorData>> {
        let argument =
            |name: &str| request.arguments.as_ref().and_then(|arguments| arguments.get(name)).cloned();
        let able = context.client_capabilities().is_some_and(|capabilities| capabilities.supports_tasks());
        let start = |work: Box<dyn FnOnce(TaskContext) -> TaskFuture>| {
            let task = self.tasks.spawn(TaskOptions::new().with_poll_interval_ms(100), work);
            Some(Ok(CreateTaskResult::new(task).into()))
        };
        match request.name.as_ref() {
            "slow_compute" => {
                let seconds = argument("seconds").and_then(|seconds| seconds.as_f64()).unwrap_or(0.0);
                let work = move |task: TaskContext| -> TaskFuture { Box::pin(slow(task, seconds)) };
                if able {
                    start(Box::new(work))
                } else {
                    // It can be had at once too, by those who wait.
                    Some(Ok(done(&format!("Computed for {seconds} seconds")).into()))
                }
            }
            "failing_job" | "protocol_error_job" | "confirm_delete" | "multi_input" if !able => {
                Some(Err(needed()))
            }
            "failing_job" => start(Box::new(|_| Box::pin(async { Ok(failed("The job failed")) }))),
            "protocol_error_job" => start(Box::new(|_| {
                Box::pin(async { Err(ErrorData::internal_error("the job broke down", None).into()) })
            })),
            "confirm_delete" => {
                let name = argument("filename").unwrap_or_default();
                start(Box::new(move |task| Box::pin(confirm_delete(task, name))))
            }
            "multi_input" => start(Box::new(|task| Box::pin(two_answers(task)))),
            "test_tool_with_task" => {
                let answers = request.input_responses.as_ref();
                let name = answers.and_then(|answers| answers.get("user_name"));
                match name.and_then(|answer| answer["content"]["name"].as_str()) {
                    Some(_) if !able => Some(Err(needed())),
                    Some(name) => {
                        let greeting = format!("Hello, {name}!");
                        start(Box::new(move |_| Box::pin(async move { Ok(done(&greeting)) })))
                    }
                    None => {
                        let properties = json!({"name": {"type": "string"}});
                        let question = asking::elicitation("What is your name?", &properties);
                        Some(Ok(asking::ask(vec![("user_name", question)], None).into()))
                    }
                }
            }
            _ => None,
        }
    }
}

async fn slow(task: TaskContext, seconds: f64) -> Done {
    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs_f64(seconds.clamp(0.0, 3600.0))) => {
            Ok(done(&format!("Computed for {seconds} seconds")))
        }
        () = task.cancelled() => Err(TaskExit::Cancelled),
    }
}

async fn confirm_delete(task: TaskContext, name: Value) -> Done {
    let answer = task.request_input("confirm", confirm(&format!("Delete {name}?"))).await?;
    Ok(done(&format!("Confirmed: {}", answer["action"])))
}

async fn two_answers(task: TaskContext) -> Done {
    let (first, second) = tokio::join!(
        task.request_input("first", confirm("The first question")),
        task.request_input("second", confirm("The second question")),
    );
    Ok(done(&format!("Answers: {} and {}", first?["action"], second?["action"])))
}

fn confirm(message: &str) -> InputRequest {
    let question = asking::elicitation(message, &json!({"confirm": {"type": "boolean"}}));
    serde_json::from_value(question).expect("an elicitation")
}

fn needed() -> ErrorData {
    ErrorData::missing_required_client_capability(ClientCapabilities::builder().enable_tasks().build())
}

fn done(text: &str) -> CallToolResult {
    result(text, false)
}

fn failed(text: &str) -> CallToolResult {
    result(text, true)
}

fn result(text: &str, is_error: bool) -> CallToolResult {
    let content = json!([{"type": "text", "text": text}]);
    serde_json::from_value(json!({"content": content, "isError": is_error, "resultType": "complete"}))
        .expect("a result")
}
