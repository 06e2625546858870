//! `portcullis up`: from nothing to a first governed call, then ready for an agent.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use portcullis_core::Sha256Digest;
use portcullis_gateway::control::{Registration, Target};
use portcullis_governance::approval::{Scope, State};
use portcullis_governance::record::{Mode, ProcessModel, Surface};
use serde_json::{Value, json};

use super::approve::render_one;
use super::call::result_text;
use super::serve::Service;
use super::{Context, confirm, search};
use crate::cli::UpArgs;
use crate::failure::Failure;
use crate::mcp_client::McpClient;
use crate::operator::{self, Request};
use crate::receipt;

pub(super) const DEMO: &str = "demo-notes";
const DECLARATION: &str = include_str!("../../../../servers/demo-server/demo-notes.yaml");
pub(super) const TOOL: &str = "demo-notes__notes_search";

pub(super) async fn run(context: &Context<'_>, args: &UpArgs) -> Result<ExitCode, Failure> {
    let output = context.output;
    if operator::running(&context.home).await.is_some() {
        return Err(Failure::unavailable(format!(
            "a gateway is already running in {}",
            context.home.display()
        )));
    }
    let service = Service::start(context, context.config.listen(args.listen), context.options()?).await?;
    let outcome = first_call(context, args, &service).await;
    match outcome {
        Ok(()) if !args.once => {}
        ended => {
            service.stop().await;
            return ended.map(|()| ExitCode::SUCCESS);
        }
    }
    output.say(how_to_connect(context, &service.daemon.mcp, service.daemon.console.as_deref()));
    search::mention(context);
    service.until_stopped().await;
    output.say("stopped; the evidence is complete");
    Ok(ExitCode::SUCCESS)
}

async fn first_call(context: &Context<'_>, args: &UpArgs, service: &Service) -> Result<(), Failure> {
    let output = context.output;
    output.say(format!(
        "{} gateway at {}, evidence in {}",
        output.good("✓"),
        service.daemon.mcp,
        context.home.join("audit").display()
    ));
    // Over the operators' socket, like every command: what `up` does is an admin tool, and on record as one.
    let servers = context.ask(&Request::McpList).await?;
    if !servers.as_array().into_iter().flatten().any(|server| server["name"] == DEMO) {
        let registration = Box::new(demo_registration(&context.home, false)?);
        context.ask(&Request::McpAdd { registration }).await?;
        output.say(format!(
            "{} registered {DEMO}, a small notes server, and accepted its declaration; it runs confined to its notes folder",
            output.good("✓")
        ));
    }
    let arguments = json!({"query": "gate"});
    output.say(format!("{} an agent calls {TOOL} {arguments}", output.good("✓")));
    let mut client = McpClient::embedded(service.gateway.edge.clone());
    let result = {
        let call = client.call(TOOL, arguments);
        tokio::pin!(call);
        loop {
            tokio::select! {
                result = &mut call => break result?,
                () = tokio::time::sleep(Duration::from_millis(20)) => decide(context, args).await?,
            }
        }
    };
    let text = result_text(&result);
    let proposal = result["_meta"]["io.portcullis/call"]["proposal_id"].as_str().unwrap_or_default();
    let receipt = receipt::of(&context.home.join("audit"), proposal, &text);
    output.say(format!("{} the result:\n\n{}\n", output.good("✓"), indent(&text)));
    output.result(&json!({"mcp": service.daemon.mcp, "receipt": receipt, "result": result}), |_| {
        format!("{}\n{}", output.bold("Receipt"), receipt::render(&receipt, output))
    });
    Ok(())
}

/// Policy asks for an approval, as it does for every untrusted tool; whoever runs `up` is the operator.
async fn decide(context: &Context<'_>, args: &UpArgs) -> Result<(), Failure> {
    let pending = context.ask(&Request::ApproveList { status: Some(State::Pending) }).await?;
    for approval in pending.as_array().into_iter().flatten() {
        let of_demo = approval["tool_id"].as_str().is_some_and(|tool| tool.starts_with(&format!("{DEMO}/")));
        if !of_demo {
            continue;
        }
        let id = approval["approval_id"].as_str().unwrap_or_default().to_owned();
        let view = context.ask(&Request::ApproveShow { id: id.clone() }).await?;
        context.output.say(format!(
            "{} policy wants an operator to approve it:\n\n{}\n",
            context.output.good("✓"),
            indent(&render_one(&view))
        ));
        let approved = args.yes || confirm("You are the operator. Approve this call once?").unwrap_or(true);
        let reason = "first call, shown by `portcullis up`".to_owned();
        context
            .ask(&match approved {
                true => Request::ApproveGrant { id, scope: Scope::Once, reason },
                false => Request::ApproveDeny { id, reason },
            })
            .await?;
    }
    Ok(())
}

/// How the embedded notes server is registered. A turncoat will list other tools one day.
pub(super) fn demo_registration(home: &Path, turncoat: bool) -> Result<Registration, Failure> {
    let unusable =
        |error: io::Error| Failure::unavailable(format!("cannot prepare the demo server: {error}"));
    let notes = home.join("data/notes");
    fs::create_dir_all(&notes).map_err(unusable)?;
    let program = pinned_copy(home).map_err(unusable)?;
    let mut args = vec!["demo-server".to_owned(), "--dir".into(), notes.display().to_string()];
    args.extend(turncoat.then(|| "--turncoat".to_owned()));
    Ok(Registration {
        name: DEMO.into(),
        target: Target::Stdio {
            command: program.display().to_string(),
            args,
            env: BTreeMap::new(),
            artifacts: Vec::new(),
            // It tells who follows a note of what others write.
            process_model: Some(ProcessModel::Shared),
        },
        server_version: env!("CARGO_PKG_VERSION").into(),
        declaration_file: "demo-notes.yaml".into(),
        declaration: DECLARATION.replace("@NOTES_DIR@", &notes.display().to_string()),
        justification: "the demo server of `portcullis up`".into(),
        modes: vec![Mode::Local],
        trust_tier: 0,
        surface: Surface::Static,
        attest: None,
        waive_isolation: None,
        grant: None,
        waive: Vec::new(),
        allow_over_budget: false,
    })
}

/// A copy of this executable that nobody else can write: what is pinned must not change under a rebuild.
fn pinned_copy(home: &Path) -> io::Result<PathBuf> {
    let bytes = fs::read(std::env::current_exe()?)?;
    let folder = home.join("artifacts").join(Sha256Digest::of(&bytes).to_string());
    let program = folder.join("portcullis");
    if !program.exists() {
        fs::create_dir_all(&folder)?;
        let temporary = folder.join("portcullis.tmp");
        fs::write(&temporary, &bytes)?;
        fs::set_permissions(&temporary, fs::Permissions::from_mode(0o555))?;
        fs::rename(&temporary, &program)?;
    }
    for folder in [&folder, &home.join("artifacts")] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    }
    Ok(program)
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("    {}", crate::output::visible(line))).collect::<Vec<_>>().join("\n")
}

fn how_to_connect(context: &Context<'_>, mcp: &str, console: Option<&str>) -> String {
    let output = context.output;
    let home = if std::env::var_os("PORTCULLIS_HOME").is_some() || context.home.ends_with(".portcullis") {
        String::new()
    } else {
        format!(" --home {}", context.home.display())
    };
    let json_config: Value = json!({"mcpServers": {"portcullis": {"type": "http", "url": mcp}}});
    let browser = match console {
        Some(console) => format!(
            "\n\n{}\n  {console}\n  portcullis{home} operator enrol YOUR-NAME   once, to have a passphrase to log in with",
            output.bold("Decide in the browser")
        ),
        None => String::new(),
    };
    format!(
        "\n{}\n  claude mcp add --transport http portcullis {mcp}\n  or in a client's configuration: {json_config}\n\n{}\n  \
         portcullis{home} approve list                 what waits for you\n  portcullis{home} approve grant ID --reason …  let it pass\n  \
         portcullis{home} call {TOOL} '{{\"query\": \"gate\"}}'\n  portcullis{home} audit verify                 check the evidence{browser}\n\n\
         Ctrl-C stops the gateway.",
        output.bold("Point an agent at it"),
        output.bold("In another terminal"),
    )
}
