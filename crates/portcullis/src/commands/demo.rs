//! `portcullis demo rugpull`: a tool that is one thing when it is accepted and another when it is called.
//!
//! Nothing here is staged: a gateway of its own, a real server process, the same path every call takes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use portcullis_core::ErrorCode;
use portcullis_gateway::{Gateway, GatewayOptions};
use portcullis_governance::approval::{Scope, State};
use portcullis_governance::declaration::diff;
use portcullis_governance::operator::{Method, OperatorProof, Separation};
use serde_json::{Value, json};

use super::Context;
use super::mcp::drift;
use super::up::{DEMO, TOOL, register_demo};
use crate::failure::Failure;
use crate::mcp_client::McpClient;
use crate::operator::user_name;

pub(super) async fn rugpull(context: &Context<'_>, keep: bool) -> Result<ExitCode, Failure> {
    let home = fresh_home(&context.home)
        .map_err(|error| Failure::unavailable(format!("cannot prepare the demo: {error}")))?;
    let outcome = act(context, &home).await;
    if keep {
        context.output.say(format!("\nEverything is in {}", home.display()));
    } else {
        let _ = fs::remove_dir_all(&home);
    }
    let outcome = outcome?;
    let caught = outcome["caught"] == true;
    context.output.result(&outcome, |_| String::new());
    Ok(ExitCode::from(u8::from(!caught)))
}

async fn act(context: &Context<'_>, home: &Path) -> Result<Value, Failure> {
    let output = context.output;
    let tick = output.good("✓");
    let operator = OperatorProof::authenticated(user_name(), Method::Local, Separation::SameUid);
    let arguments = json!({"query": "gate"});

    let gateway = Gateway::start(GatewayOptions::new(home)).await?;
    register_demo(home, &gateway.control, &operator, true).await?;
    output.say(format!(
        "{tick} an operator registers {DEMO}, looks at its tools, and accepts them as they are"
    ));
    approved(&gateway, &operator, &arguments).await?;
    output.say(format!("{tick} an agent calls {TOOL}, an operator approves, notes come back"));
    gateway.finish().await;

    fs::write(home.join("data/notes/.turned"), "")
        .map_err(|error| Failure::unavailable(format!("cannot turn the server: {error}")))?;
    output.say(format!("{} overnight the server changes what it says about the tool", output.bad("!")));

    let gateway = Gateway::start(GatewayOptions::new(home)).await?;
    let refused = match approved(&gateway, &operator, &arguments).await {
        Err(refused) => refused,
        Ok(_) => {
            gateway.finish().await;
            return Ok(json!({"caught": false}));
        }
    };
    output.say(format!(
        "{tick} the agent calls again and gets no further than the gate:\n\n    {}\n",
        refused.message
    ));
    let server = DEMO.parse().map_err(|_| Failure::new(ErrorCode::Internal, "a fixed name"))?;
    halted(&gateway, &server).await;
    let world = gateway.control.world();
    let entry = world.registry().server(&server);
    let drifted = world.upstream(&server).and_then(|upstream| upstream.drifted());
    let fields = match (entry, drifted) {
        (Some(entry), Some(live)) => json!(diff::fields(entry.declaration.live(), &live)),
        _ => json!([]),
    };
    output.say(format!("{tick} nothing of this reached the agent; the operator sees what changed:\n"));
    output.say(drift::render(output, &fields));
    let trust = gateway.control.trust_record(&format!("{DEMO}/notes_search")).await?;
    let state = entry.map_or("gone", |entry| entry.record.state.as_str());
    output.say(format!(
        "\n{tick} the server is {state}, the tool is {} with {} violation on record, all approvals ended",
        trust["state"].as_str().unwrap_or_default(),
        trust["violations"],
    ));
    let transmitted = calls_sent(&home.join("audit"))?;
    output
        .say(format!("{tick} calls sent to the server since it changed: {}", transmitted.saturating_sub(1)));
    gateway.finish().await;
    output.say("\nAn operator would now run `portcullis mcp accept` or `portcullis mcp remove`.");
    Ok(json!({
        "caught": true, "code": refused.details.as_ref().map(|details| details["details"]["code"].clone()),
        "fields": fields, "state": state, "trust": trust["state"], "transmitted": transmitted.saturating_sub(1),
    }))
}

/// A call whose approval is granted as soon as it is asked for.
async fn approved(gateway: &Gateway, operator: &OperatorProof, arguments: &Value) -> Result<Value, Failure> {
    let mut client = McpClient::embedded(gateway.edge.clone());
    let call = client.call(TOOL, arguments.clone());
    tokio::pin!(call);
    loop {
        tokio::select! {
            answer = &mut call => return answer,
            () = tokio::time::sleep(Duration::from_millis(20)) => {
                for approval in gateway.control.approvals(Some(State::Pending)) {
                    gateway.control.grant(operator, approval.approval_id, Scope::Once, "the demo").await?;
                }
            }
        }
    }
}

/// The call is refused first, and the halt is on record a moment later.
async fn halted(gateway: &Gateway, server: &portcullis_core::ServerIdentity) {
    for _ in 0..250 {
        let world = gateway.control.world();
        if world.registry().server(server).is_none_or(|entry| entry.record.halt.is_some()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn calls_sent(audit: &Path) -> Result<usize, Failure> {
    let unreadable = |error: portcullis_audit::AuditError| Failure::new(error.code(), error.to_string());
    let mut sent = 0;
    for record in portcullis_audit::read(audit).map_err(unreadable)? {
        sent +=
            usize::from(record.map_err(unreadable)?.event == portcullis_audit::EventName::ExecutionIntent);
    }
    Ok(sent)
}

fn fresh_home(home: &Path) -> std::io::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt as _;
    let folder = home.join("demo").join(format!("rugpull-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    Ok(folder)
}
