//! The crate without a gateway: a long result said in short, kept, looked at, and put into a prompt.

use std::sync::Arc;

use portcullis_context::{
    About, Artifacts, Build, CallToolResult, ContextBuilder, ContextItem, Firewall, Kept, Kind, Limits,
    Origin, Owner, Phase, Redactor, Selector, Sensitivity, view_artifact,
};
use portcullis_core::{Clock as _, ProposalId, Secret, SessionId, SystemClock};

#[allow(clippy::print_stdout, reason = "an example shows what it does")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let artifacts =
        Artifacts::open_in(folder.path(), &Secret::random_key(), Limits::default(), Arc::new(SystemClock))?;
    let now = SystemClock.now();
    let owner = Owner { principal: "agent:example".parse()?, session: SessionId::new(now) };

    // What a server sent: long, and with something in it that no model needs.
    let log: String = (0..2_000).map(|n| format!("{n}: request served\\n")).collect();
    let sent = format!(r#"{{"content":[{{"type":"text","text":"token=s3cr3t-k3y-9f2\n{log}"}}]}}"#);
    let sent = Redactor::default().redact_json(&sent).map_or(sent, |(clean, _)| clean);

    // In short, with the rest kept.
    let (firewall, result) = (Firewall::default(), CallToolResult::read(&sent));
    let cut = firewall.cut(&result, "read_log", &About::default()).expect("it is long");
    let origin = Origin {
        call_id: ProposalId::new(now),
        tool_identity: "logs/read_log".into(),
        sensitivity: Sensitivity::Public,
        redacted: true,
    };
    let kept: Vec<Kept> = cut
        .artifacts
        .iter()
        .map(|new| artifacts.keep(&owner, &origin, new).map_or(Kept::Not, Kept::As))
        .collect();
    let (shown, envelope) = cut.finish(kept, &firewall);
    println!("shown instead of {} bytes:\n{shown}\n", sent.len());

    // A look at three lines of it.
    let opened = artifacts.open(envelope.artifacts[0].handle, &owner)?;
    let selector = Selector::read(&serde_json::json!({"type": "grep", "pattern": "^7.7:"}))?;
    println!("{:?}\n", view_artifact(&opened, &selector, 16_384)?);

    // A prompt of at most two hundred tokens.
    let mut builder = ContextBuilder::new();
    builder.ingest(ContextItem::new("u1", Kind::UserTurn, "What does the log say?"))?;
    builder.ingest(ContextItem::new("c1", Kind::ToolCall, "read_log()").child_of("u1"))?;
    builder.ingest_tool_result("c1", &envelope.summary, "read_log", "text/plain", 400);
    let built = builder.build(&Build { budget: Some(200), ..Build::new(Phase::Answer, "log") })?;
    println!("{} tokens:\n{}", built.tokens, built.prompt);
    Ok(())
}
