//! `portcullis mcp …`: registering servers and looking at them.

pub(super) mod drift;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use portcullis_core::ErrorCode;
use portcullis_gateway::control::{Drafting, KeptDraft, Reacceptance, Registration, Target};
use portcullis_gateway::records::tools;
use portcullis_governance::endpoint::HttpEndpoint;
use portcullis_governance::record::{Mode, Surface};
use serde_json::Value;

use super::import;
use super::{Context, confirm};
use crate::cli::{AddArgs, McpCommand, ModelKind, SurfaceKind, TransportKind};
use crate::failure::Failure;
use crate::operator::Request;
use crate::output::{table, visible};

pub(super) async fn run(context: &Context<'_>, command: McpCommand) -> Result<ExitCode, Failure> {
    match command {
        McpCommand::Add(args) => add(context, *args).await,
        McpCommand::Draft { name, from_denials: true, .. } => from_denials(context, &name).await,
        McpCommand::Draft { name, artifact, exec, env, command, .. } => {
            draft(context, name, artifact, &exec, &env, command).await
        }
        McpCommand::List => {
            let servers = context.ask(&Request::McpList).await?;
            context.output.result(&servers, render_list);
            Ok(ExitCode::SUCCESS)
        }
        McpCommand::Show { name } => {
            let server = context.ask(&Request::McpShow { name }).await?;
            context.output.result(&server, |server| {
                let drift = drift::render(context.output, &server["drift"]);
                let shown = render_server(server);
                if drift.is_empty() {
                    return shown;
                }
                let name = text(&server["server_identity"]);
                format!("{shown}\n\nIt is not what was accepted:\n{drift}\n\n  portcullis mcp accept {name} --reason …   if you want it so\n  portcullis mcp remove {name} --reason …   if not")
            });
            Ok(ExitCode::SUCCESS)
        }
        McpCommand::Test { name, emit_declaration } => test(context, name, emit_declaration).await,
        McpCommand::Update(args) => update(context, *args).await,
        McpCommand::Accept {
            name,
            capability_declaration,
            carry_approvals,
            grant,
            waive,
            allow_over_budget,
            yes,
            reason,
        } => {
            if let Some((kept, file)) = undecided(context, &name, capability_declaration.as_deref()).await? {
                // GOV-1403: what is about to be accepted is shown first. Without a terminal there is nobody to ask.
                context.output.say(import::card(&name, &kept, grant.grant));
                context.output.say(format!("draft: {}", file.display()));
                if !yes && confirm(&format!("Register {name} as drafted?")) == Some(false) {
                    return Err(Failure::new(ErrorCode::Cancelled, "nothing was accepted"));
                }
                let drafted = kept.registration(&name, &file, &reason);
                let waive = [waive, drafted.waive.clone()].concat();
                let registration = Registration { grant: grant.ahead(), waive, allow_over_budget, ..drafted };
                let registration = Box::new(registration);
                let record = context.ask(&Request::McpAdd { registration }).await?;
                context.output.result(&record, render_registered);
                return Ok(ExitCode::SUCCESS);
            }
            let declaration = capability_declaration.map(|file| read_declaration(&file)).transpose()?;
            let name = name
                .parse()
                .map_err(|error: portcullis_core::NameError| Failure::field("name", error.to_string()))?;
            let grant = grant.ahead();
            let accept =
                Reacceptance { name, declaration, carry_approvals, grant, reason, waive, allow_over_budget };
            change(context, Request::McpAccept { accept }).await
        }
        McpCommand::Remove(args) => {
            change(context, Request::McpRemove { name: args.name, reason: args.reason }).await
        }
        McpCommand::Halt(args) => {
            change(context, Request::McpHalt { name: args.name, reason: args.reason }).await
        }
        McpCommand::Resume(args) => {
            change(context, Request::McpResume { name: args.name, reason: args.reason }).await
        }
    }
}

async fn add(context: &Context<'_>, args: AddArgs) -> Result<ExitCode, Failure> {
    let registration = registration(context, args)?;
    let record = context.ask(&Request::McpAdd { registration: Box::new(registration) }).await?;
    context.output.result(&record, render_registered);
    Ok(ExitCode::SUCCESS)
}

fn render_registered(record: &Value) -> String {
    let name = text(&record["server_identity"]);
    let unconfined = record["isolation_class"] == "unmanaged-local" && record["isolation_reason"].is_null();
    let next = if unconfined {
        format!(
            "Nothing confines it, so its calls are refused: register it as stdio, or say with `portcullis mcp update {name} \
             --waive-isolation REASON …` why nothing needs to."
        )
    } else {
        format!("Its tools are ready for agents; `portcullis mcp show {name}` lists them.")
    };
    format!(
        "registered {name}\n  version    {}\n  declared   {}\n  isolation  {}\n\n{next}",
        text(&record["server_version"]),
        text(&record["declaration_version"]),
        text(&record["isolation_class"]),
    )
}

/// A draft of this name, unless a server has it or a declaration is given.
async fn undecided(
    context: &Context<'_>,
    name: &str,
    declaration: Option<&std::path::Path>,
) -> Result<Option<(KeptDraft, std::path::PathBuf)>, Failure> {
    let found = name.parse().ok().and_then(|name| KeptDraft::find(&context.home, &name));
    let Some(found) = found.filter(|_| declaration.is_none()) else {
        return Ok(None);
    };
    let registered = context.ask(&Request::McpList).await?;
    let known = registered.as_array().into_iter().flatten().any(|server| server["name"] == name);
    Ok((!known).then_some(found))
}

/// Has a program looked at, and keeps the draft.
async fn draft(
    context: &Context<'_>,
    name: String,
    artifacts: Vec<String>,
    programs: &[PathBuf],
    env: &[String],
    command: Vec<String>,
) -> Result<ExitCode, Failure> {
    let mut words = command.into_iter();
    let program =
        words.next().ok_or_else(|| Failure::field("command", "missing: the command, after `--`"))?;
    let args: Vec<String> = words.collect();
    let folders = import::places(&args, &program);
    let target = Target::Stdio {
        command: import::program(&program)?,
        args,
        env: environment(env)?,
        artifacts,
        process_model: None,
    };
    let (hosts, secrets) = (Vec::new(), Vec::new());
    let programs = programs.iter().map(|path| import::started(path)).collect::<Result<_, _>>()?;
    let drafting = Drafting { name: name.clone(), target, folders, programs, hosts, secrets, attest: None };
    let kept = import::draft(context, drafting).await?;
    let file = import::keep(context, &name, &kept)?;
    let value = serde_json::json!({"name": name, "status": "drafted", "reason": null, "draft": file});
    context.output.result(&value, |_| {
        format!(
            "{}\n\nThe draft is in {}; edit it as you like.\n  portcullis mcp accept {name} --reason …   registers it",
            import::card(&name, &kept, None),
            file.display(),
        )
    });
    Ok(ExitCode::SUCCESS)
}

/// Keeps what a server lacks, by what it was denied, as a file to accept (GOV-1401).
async fn from_denials(context: &Context<'_>, name: &str) -> Result<ExitCode, Failure> {
    let proposed = context.ask(&Request::McpDraftFromDenials { name: name.to_owned() }).await?;
    let folder = context.home.join("drafts");
    let file = folder.join(format!("{name}.proposed.yaml"));
    let written = std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(&file, proposed["document"].as_str().unwrap_or_default()));
    written.map_err(|error| Failure::field("home", format!("{}: {error}", file.display())))?;
    let value = serde_json::json!({
        "name": name, "status": "proposed", "reason": null, "draft": file, "added": proposed["added"],
        "left_out": proposed["left_out"],
    });
    context.output.result(&value, |value| {
        let list = |member: &str| {
            let lines = value[member].as_array().into_iter().flatten();
            lines.map(|line| format!("  {}\n", visible(line.as_str().unwrap_or_default()))).collect::<String>()
        };
        let left_out = match list("left_out") {
            list if list.is_empty() => list,
            list => format!("asked for and not to be declared:\n{list}"),
        };
        format!(
            "{name} would be allowed besides:\n{}{left_out}\nNothing has changed. Read {}, then\n  portcullis mcp accept {name} --capability-declaration {} --reason …",
            list("added"),
            file.display(),
            file.display(),
        )
    });
    Ok(ExitCode::SUCCESS)
}

/// What was typed, with everything that is missing named at once.
fn registration(context: &Context<'_>, mut args: AddArgs) -> Result<Registration, Failure> {
    if args.transport == TransportKind::Records {
        args.server_version.get_or_insert_with(|| tools::VERSION.into());
    }
    let mut missing = Vec::new();
    for (flag, absent) in [
        ("--server-version", args.server_version.is_none()),
        ("--justification", args.justification.is_none()),
        ("--deployment-mode", args.deployment_mode.is_empty()),
    ] {
        if absent {
            missing.push(flag);
        }
    }
    if !missing.is_empty() {
        return Err(Failure::field(
            missing[0].trim_start_matches('-'),
            format!("missing: {}", missing.join(", ")),
        ));
    }
    let modes = (args.deployment_mode.iter())
        .map(|mode| mode.parse::<Mode>().map_err(|error| Failure::field("deployment-mode", error)))
        .collect::<Result<Vec<_>, _>>()?;
    let (declaration_file, declaration) = match args.transport {
        TransportKind::Records => builtin_declaration(context, &args)?,
        _ => {
            let file = args.capability_declaration.clone();
            let file = file.or_else(|| context.config.declaration_of(&context.config_file, &args.name));
            let missing =
                || Failure::field("capability-declaration", "missing: --capability-declaration FILE");
            read_declaration(&file.ok_or_else(missing)?)?
        }
    };
    let target = match args.transport {
        TransportKind::Http => Target::Http { url: args.url.unwrap_or_default(), tls_spki: args.tls_spki },
        TransportKind::Sse => Target::Sse { url: args.url.unwrap_or_default(), tls_spki: args.tls_spki },
        TransportKind::Records => {
            let file = args.credential_file.unwrap_or_default();
            let file = std::path::absolute(&file)
                .map_err(|error| Failure::field("credential-file", format!("{}: {error}", file.display())))?;
            Target::Records {
                url: args.url.unwrap_or_default(),
                credential_file: file.to_string_lossy().into_owned(),
            }
        }
        TransportKind::Stdio => {
            let mut command = args.command.into_iter();
            let program = command
                .next()
                .ok_or_else(|| Failure::field("command", "missing: the command, after `--`"))?;
            Target::Stdio {
                command: program,
                args: command.collect(),
                env: environment(&args.env)?,
                artifacts: args.artifact,
                process_model: args.process_model.map(ModelKind::model),
            }
        }
    };
    if args.waive_isolation.is_some() && !args.yes {
        let question =
            "This server runs outside Portcullis and nothing confines it. Register it all the same?";
        match confirm(question) {
            Some(true) => {}
            Some(false) => return Err(Failure::new(ErrorCode::Cancelled, "not registered")),
            None => return Err(Failure::field("yes", "waiving isolation needs a confirmation; add --yes")),
        }
    }
    Ok(Registration {
        name: args.name,
        target,
        server_version: args.server_version.unwrap_or_default(),
        declaration_file,
        declaration,
        justification: args.justification.unwrap_or_default(),
        modes,
        trust_tier: args.trust_tier,
        surface: match args.surface {
            SurfaceKind::Static => Surface::Static,
            SurfaceKind::Dynamic => Surface::Dynamic,
        },
        attest: args.attest,
        waive_isolation: args.waive_isolation,
        grant: args.grant.ahead(),
        waive: args.waive,
        allow_over_budget: args.allow_over_budget,
    })
}

async fn update(context: &Context<'_>, args: AddArgs) -> Result<ExitCode, Failure> {
    let registration = registration(context, args)?;
    let record = context.ask(&Request::McpUpdate { registration: Box::new(registration) }).await?;
    context.output.result(&record, |record| {
        format!(
            "{} is version {} now\n  declared   {}\n  approvals  {} ended; everything starts untrusted",
            text(&record["server_identity"]),
            text(&record["server_version"]),
            text(&record["declaration_version"]),
            text(&record["approvals_invalidated"]),
        )
    });
    Ok(ExitCode::SUCCESS)
}

/// The declaration that the adapter brings along (REC-1).
fn builtin_declaration(context: &Context<'_>, args: &AddArgs) -> Result<(String, String), Failure> {
    let given = args.capability_declaration.as_ref().map(|file| file.to_string_lossy().into_owned());
    if given.as_deref().is_some_and(|given| given != tools::DECLARATION) {
        let message = format!("the records adapter brings its own declaration: {}", tools::DECLARATION);
        return Err(Failure::field("capability-declaration", message));
    }
    let url = HttpEndpoint::parse(args.url.as_deref().unwrap_or_default())
        .map_err(|error| Failure::field("url", error.to_string()))?;
    let events = context.config.records.get(&args.name).map(|options| options.events).unwrap_or_default();
    let version = args.server_version.as_deref().unwrap_or(tools::VERSION);
    Ok((tools::DECLARATION.into(), tools::declaration(&args.name, version, &url, events)))
}

/// The name and the text of a declaration file.
fn read_declaration(file: &std::path::Path) -> Result<(String, String), Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::field("capability-declaration", format!("{}: {error}", file.display())))?;
    Ok((file.display().to_string(), text))
}

fn environment(pairs: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let mut env = BTreeMap::from([
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
        ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
    ]);
    for pair in pairs {
        let (name, value) =
            pair.split_once('=').ok_or_else(|| Failure::field("env", "expected NAME=VALUE"))?;
        env.insert(name.to_owned(), value.to_owned());
    }
    Ok(env)
}

async fn test(context: &Context<'_>, name: String, emit: bool) -> Result<ExitCode, Failure> {
    let report = context.ask(&Request::McpTest { name: name.clone(), emit }).await?;
    context.output.result(&report, |report| {
        if let Some(declaration) = report["emitted"].as_str() {
            return declaration.to_owned();
        }
        if !report["reachable"].as_bool().unwrap_or(false) {
            return format!("{name} cannot be reached: {}", text(&report["reason"]));
        }
        let declaration = &report["declaration"];
        if declaration["match"].as_bool().unwrap_or(false) {
            return format!("{name} equals its declaration (protocol {})", text(&report["protocol_version"]));
        }
        format!(
            "{name} differs from its declaration:\n{}",
            drift::render(context.output, &declaration["fields"])
        )
    });
    let code = match (
        report["reachable"].as_bool(),
        report["declaration"]["match"].as_bool(),
        report["version_ok"].as_bool(),
    ) {
        (Some(true), Some(true), Some(true)) => 0,
        (Some(true), _, _) => 7,
        _ => 1,
    };
    Ok(ExitCode::from(code))
}

async fn change(context: &Context<'_>, request: Request) -> Result<ExitCode, Failure> {
    let changed = context.ask(&request).await?;
    context.output.result(&changed, |changed| {
        let ended = match changed["approvals_invalidated"].as_u64() {
            None | Some(0) => String::new(),
            Some(1) => "; one approval ended".into(),
            Some(n) => format!("; {n} approvals ended"),
        };
        let list = changed["surface"].as_str().map(|summary| format!("; list of tools: {summary}"));
        format!(
            "{} is {}{ended}{}",
            text(&changed["name"]),
            text(&changed["state"]),
            list.unwrap_or_default()
        )
    });
    Ok(ExitCode::SUCCESS)
}

fn render_list(servers: &Value) -> String {
    let servers = servers.as_array().map(Vec::as_slice).unwrap_or_default();
    if servers.is_empty() {
        return "no servers are registered; `portcullis mcp add --help` shows how, `portcullis up` tries one"
            .into();
    }
    let rows = servers.iter().map(|server| {
        let cell = |key: &str| text(&server[key]);
        vec![
            cell("name"),
            cell("version"),
            cell("transport"),
            cell("state"),
            cell("tools"),
            cell("worst_trust"),
            cell("isolation"),
        ]
    });
    table(&["name", "version", "transport", "state", "tools", "trust", "isolation"], rows.collect())
}

fn render_server(server: &Value) -> String {
    let tools = server["tools"].as_array().into_iter().flatten().map(|tool| {
        let list =
            |key: &str| tool[key].as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(" ");
        let classes = list("classes");
        vec![
            text(&tool["name"]),
            if classes.is_empty() { "pure".into() } else { classes },
            list("scopes"),
            text(&tool["trust"]),
        ]
    });
    let command = match server["transport"].as_str() {
        Some("stdio") => {
            let args = server["process"]["args"].as_array().into_iter().flatten().map(text);
            std::iter::once(text(&server["process"]["command"])).chain(args).collect::<Vec<_>>().join(" ")
        }
        _ => text(&server["url"]),
    };
    let halt = server["halt"].as_str().map(|reason| format!(": {}", visible(reason))).unwrap_or_default();
    format!(
        "{} {}  {}{halt}\n  {}  {}\n  registered by {} at {}, because: {}\n  declaration {}\n  isolation {}, connection {}\n\n{}",
        text(&server["server_identity"]),
        text(&server["server_version"]),
        text(&server["state"]),
        text(&server["transport"]),
        visible(&command),
        text(&server["registered_by"]),
        text(&server["registered_at"]),
        visible(&text(&server["justification"])),
        text(&server["declaration_version"]),
        text(&server["isolation_class"]),
        text(&server["connection"]),
        table(&["tool", "classes", "scopes", "trust"], tools.collect()),
    )
}

pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".into(),
        other => other.to_string(),
    }
}
