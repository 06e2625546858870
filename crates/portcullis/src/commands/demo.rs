//! `portcullis demo rugpull`: a tool that is one thing when it is accepted and another when it is called.
//!
//! Nothing here is staged: a gateway of its own, a real server process, the same path every call takes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use portcullis_gateway::{Gateway, GatewayOptions};
use portcullis_governance::approval::{Scope, State};
use serde_json::{Value, json};

use super::Context;
use super::mcp::drift;
use super::up::{DEMO, TOOL, demo_registration};
use crate::failure::Failure;
use crate::mcp_client::McpClient;
use crate::operator::{Desk, Request};

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
    let arguments = json!({"query": "gate"});

    let gateway = Gateway::start(GatewayOptions::new(home)).await?;
    let desk = Desk::of(&gateway)?;
    let registration = Box::new(demo_registration(home, true)?);
    desk.ask(&Request::McpAdd { registration }).await?;
    output.say(format!(
        "{tick} an operator registers {DEMO}, looks at its tools, and accepts them as they are"
    ));
    approved(&gateway, &desk, &arguments).await?;
    output.say(format!("{tick} an agent calls {TOOL}, an operator approves, notes come back"));
    drop(desk);
    gateway.finish().await;

    fs::write(home.join("data/notes/.turned"), "")
        .map_err(|error| Failure::unavailable(format!("cannot turn the server: {error}")))?;
    output.say(format!("{} overnight the server changes what it says about the tool", output.bad("!")));

    let gateway = Gateway::start(GatewayOptions::new(home)).await?;
    let desk = Desk::of(&gateway)?;
    let refused = match approved(&gateway, &desk, &arguments).await {
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
    let server = halted(&desk).await?;
    let fields = server["drift"].clone();
    output.say(format!("{tick} nothing of this reached the agent; the operator sees what changed:\n"));
    output.say(drift::render(output, &fields));
    let trust = desk.ask(&Request::TrustShow { id: format!("{DEMO}/notes_search") }).await?;
    let state = server["state"].as_str().unwrap_or("gone");
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
async fn approved(gateway: &Gateway, desk: &Desk, arguments: &Value) -> Result<Value, Failure> {
    let mut client = McpClient::embedded(gateway.edge.clone());
    let call = client.call(TOOL, arguments.clone());
    tokio::pin!(call);
    loop {
        tokio::select! {
            answer = &mut call => return answer,
            () = tokio::time::sleep(Duration::from_millis(20)) => grant(desk).await?,
        }
    }
}

async fn grant(desk: &Desk) -> Result<(), Failure> {
    let pending = desk.ask(&Request::ApproveList { status: Some(State::Pending) }).await?;
    for approval in pending.as_array().into_iter().flatten() {
        let id = approval["approval_id"].as_str().unwrap_or_default().to_owned();
        desk.ask(&Request::ApproveGrant { id, scope: Scope::Once, reason: "the demo".into() }).await?;
    }
    Ok(())
}

/// The call is refused first, and the halt is on record a moment later.
async fn halted(desk: &Desk) -> Result<Value, Failure> {
    let show = Request::McpShow { name: DEMO.into() };
    for _ in 0..250 {
        let server = desk.ask(&show).await?;
        if server["state"] == "halted" {
            return Ok(server);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    desk.ask(&show).await
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
