//! `portcullis import`: servers that an agent reaches today, drafted and registered behind the gate (GOV §14).
//!
//! Each server is looked at in its cage and its declaration drafted; a card says what that would mean, and one decision
//! per server makes it so. What cannot be imported is said with its reason, and nothing is guessed.

mod build_cage;
mod entries;
pub(super) mod jsonc;
mod secrets;
mod variables;
mod vendor;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use portcullis_core::ServerIdentity;
use portcullis_gateway::control::{Drafted, Drafting, KeptDraft, Registration, Target};
use serde_json::{Value, json};

use super::connect::{self, client::Client};
use super::{Context, confirm, search};
use crate::cli::{ConnectArgs, GrantKind, ImportArgs};
use crate::failure::Failure;
use crate::operator::Request;
use crate::output::visible;
use entries::{Entry, How, NotUnderstood};
use portcullis_governance::draft::{Host, SecretWay};
use portcullis_governance::endpoint::HttpEndpoint;
use secrets::{Found, SetApart, set_apart};
use variables::Surroundings;

/// What became of one entry.
struct Outcome {
    name: String,
    /// As the client calls it.
    entry: String,
    status: &'static str,
    reason: String,
    draft: Option<PathBuf>,
}

pub(super) async fn run(context: &Context<'_>, args: &ImportArgs) -> Result<ExitCode, Failure> {
    let (client, file) = source(args)?;
    let text = std::fs::read_to_string(&file)
        .map_err(|error| Failure::field("file", format!("{}: {error}", file.display())))?;
    let entries = entries::read(&text, file.extension().is_some_and(|extension| extension == "toml"))
        .map_err(|reason| Failure::field("file", format!("{}: {reason}", file.display())))?;
    let registered = context.ask(&Request::McpList).await?;
    let surroundings = Surroundings::of(&file);
    let mut outcomes = Vec::new();
    for entry in entries {
        let entry = match entry {
            Ok(entry) => surroundings.filled(entry),
            Err(NotUnderstood { name, reason }) => {
                let outcome =
                    Outcome { name: identity(&name), entry: name, status: "skipped", reason, draft: None };
                context.output.say(line(&outcome));
                outcomes.push(outcome);
                continue;
            }
        };
        let outcome = match one(context, args, &entry, &registered).await {
            Ok(outcome) => outcome,
            Err(failure) => Outcome {
                name: identity(&entry.name),
                entry: entry.name.clone(),
                status: "skipped",
                reason: failure.message.clone(),
                draft: None,
            },
        };
        context.output.say(line(&outcome));
        outcomes.push(outcome);
    }
    let governed: Vec<String> = (outcomes.iter())
        .filter(|outcome| matches!(outcome.status, "registered" | "known"))
        .map(|outcome| outcome.entry.clone())
        .collect();
    let value = outcomes
        .iter()
        .map(|outcome| json!({"name": outcome.name, "status": outcome.status, "reason": outcome.reason, "draft": outcome.draft}))
        .collect();
    context.output.result(&Value::Array(value), |_| closing(&outcomes, &file));
    if !governed.is_empty() {
        search::mention(context);
    }
    match (args.rewrite, client) {
        (true, Some(client)) if !governed.is_empty() => {
            let args = ConnectArgs {
                client,
                file: Some(file),
                name: "portcullis".into(),
                undo: false,
                dry_run: false,
                yes: args.accept,
            };
            connect::without(context, &args, &governed)
        }
        (true, None) => {
            Err(Failure::field("client", "to rewrite its configuration, say which client it is: --client"))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Where the configuration is, and whose it is.
fn source(args: &ImportArgs) -> Result<(Option<Client>, PathBuf), Failure> {
    if let Some(file) = &args.file {
        let file = std::path::absolute(file).map_err(|error| Failure::field("file", error.to_string()))?;
        return Ok((args.client, file));
    }
    let user = std::env::home_dir().ok_or_else(|| Failure::field("file", "no home folder; name the file"))?;
    let here = std::env::current_dir().map_err(|error| Failure::field("file", error.to_string()))?;
    if let Some(client) = args.client {
        return Ok((Some(client), client.file(&user, &here)));
    }
    let found: Vec<(Client, PathBuf)> = (Client::ALL.iter())
        .map(|client| (*client, client.file(&user, &here)))
        .filter(|(_, file)| file.is_file())
        .collect();
    match found.as_slice() {
        [(client, file)] => Ok((Some(*client), file.clone())),
        [] => Err(Failure::field("file", "no configuration of a known client is here; name the file")),
        several => {
            let names: Vec<&str> = several.iter().map(|(client, _)| client.as_str()).collect();
            Err(Failure::field(
                "client",
                format!("several clients are here; say which with --client: {}", names.join(", ")),
            ))
        }
    }
}

async fn one(
    context: &Context<'_>,
    args: &ImportArgs,
    entry: &Entry,
    registered: &Value,
) -> Result<Outcome, Failure> {
    let name = identity(&entry.name);
    let outcome = |status, reason: String, draft| {
        Ok(Outcome { name: name.clone(), entry: entry.name.clone(), status, reason, draft })
    };
    if registered.as_array().into_iter().flatten().any(|server| server["name"] == name.as_str()) {
        return outcome("known", "it is registered already".into(), None);
    }
    if entry.is_this_gateway(&context.config.listen(None).to_string()) {
        return outcome("skipped", "it is this gateway".into(), None);
    }
    let server: ServerIdentity = name.parse().map_err(|_| Failure::field("name", "no name for a server"))?;
    let SetApart { env, secrets, hosts } = match set_apart(entry, &server, toward(args, &name)?.as_ref()) {
        Ok(apart) => apart,
        Err(reason) => return outcome("skipped", reason, None),
    };
    let env = &env;
    let (target, folders) = match &entry.how {
        How::Http { url, .. } => (Target::Http { url: url.clone(), tls_spki: None }, Vec::new()),
        How::Sse { url, .. } => (Target::Sse { url: url.clone(), tls_spki: None }, Vec::new()),
        How::Stdio { command, args: operands, .. } => {
            let target = match vendor::runner(command, operands) {
                Some(_) if !args.vendor => {
                    let reason = "it is fetched anew at every start; with --vendor its files are fetched once, pinned, and run from here";
                    return outcome("skipped", reason.into(), None);
                }
                Some(runner) => {
                    let (folder, known) = (context.home.join("vendor").join(&name), context.options()?.hosts);
                    vendor::fetch(&runner?, &folder, env, &known)?
                }
                None => Target::Stdio {
                    command: program(command)?,
                    args: operands.clone(),
                    env: env.clone(),
                    artifacts: Vec::new(),
                    process_model: None,
                },
            };
            (target, places(operands, command))
        }
    };
    // What runs on this machine is nobody's to attest; it is drafted, and registered by who waives its isolation.
    let is_local = is_loopback(&target);
    if matches!(target, Target::Http { .. } | Target::Sse { .. }) && !is_local && args.attest.is_none() {
        let reason = "Portcullis does not start it; say with --attest why servers elsewhere may be relied on";
        return outcome("skipped", reason.into(), None);
    }
    let facts = secrets.iter().map(|found| found.fact.clone()).collect();
    let attest = args.attest.clone().filter(|_| !is_local);
    let programs = programs(args, &name)?;
    let drafting = Drafting {
        name: name.clone(),
        target: target.clone(),
        folders,
        programs,
        hosts,
        secrets: facts,
        attest,
    };
    let starts_nothing = drafting.programs.is_empty();
    let kept = draft(context, drafting).await.map_err(|mut failure| {
        // It says itself where it is something else.
        let otherwise = ["Read-only file system", "--help", "usage:", "Usage:"];
        let is_otherwise = otherwise.iter().any(|words| failure.message.contains(words));
        if starts_nothing && !is_otherwise && failure.message.contains("the server exited") {
            failure.message += &format!("; if it starts other programs, name them: --exec {name}=PATH");
        }
        failure
    })?;
    let file = keep(context, &name, &kept)?;
    context.output.say(card(&name, &kept, args.grant.grant));
    if is_local {
        let reason = format!(
            "nothing confines it: `portcullis mcp add {name} --waive-isolation REASON --capability-declaration {} …` registers it",
            file.display()
        );
        return outcome("drafted", reason, Some(file));
    }
    let accepted = args.accept || confirm(&format!("Register {name}?")) == Some(true);
    if !accepted {
        let reason = format!("accept it with `portcullis mcp accept {name} --reason …`");
        return outcome("drafted", reason, Some(file));
    }
    keep_secrets(context, &secrets).await?;
    let registration = kept.registration(&name, &file, "imported");
    let registration = Box::new(Registration { grant: args.grant.ahead(), ..registration });
    context.ask(&Request::McpAdd { registration }).await?;
    outcome("registered", format!("{} tools", kept.drafted.draft.tools.len()), Some(file))
}

/// Whether a server behind a URL is on this machine.
fn is_loopback(target: &Target) -> bool {
    match target {
        Target::Http { url, .. } | Target::Sse { url, .. } => {
            HttpEndpoint::parse(url).is_ok_and(|endpoint| endpoint.is_loopback())
        }
        _ => false,
    }
}

/// Has a server looked at, and its declaration drafted.
pub(super) async fn draft(context: &Context<'_>, drafting: Drafting) -> Result<KeptDraft, Failure> {
    let (target, attest) = (drafting.target.clone(), drafting.attest.clone());
    let secrets = drafting.secrets.clone();
    let answer = context.ask(&Request::McpDraft { drafting: Box::new(drafting) }).await?;
    let drafted: Drafted = serde_json::from_value(answer)
        .map_err(|error| Failure::unavailable(format!("not a draft: {error}")))?;
    Ok(KeptDraft { target, attest, drafted, secrets })
}

/// Keeps a draft; gives its declaration's file.
pub(super) fn keep(context: &Context<'_>, name: &str, kept: &KeptDraft) -> Result<PathBuf, Failure> {
    let name: ServerIdentity = name
        .parse()
        .map_err(|_| Failure::field("name", format!("{} is no name for a server", visible(name))))?;
    kept.keep(&context.home, &name).map_err(|error| Failure::field("home", error.message))
}

/// A name of ours for what a client calls a server.
fn identity(name: &str) -> String {
    let mut made: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .skip_while(|c| !c.is_ascii_lowercase())
        .take(63)
        .collect();
    if made.parse::<ServerIdentity>().is_err() {
        made = "server".into();
    }
    made
}

/// The programs that the operator says a server starts: `--exec NAME=PATH`.
fn programs(args: &ImportArgs, name: &str) -> Result<Vec<PathBuf>, Failure> {
    let wrong = || Failure::field("exec", "say NAME=PATH, as in git=/usr/bin/git");
    let said = args.exec.iter().map(|said| said.split_once('=').ok_or_else(wrong));
    let said = said.collect::<Result<Vec<_>, _>>()?;
    let its = said.into_iter().filter(|(server, _)| *server == name);
    its.map(|(_, path)| started(Path::new(path))).collect()
}

/// A program that a server starts, where it really is.
pub(super) fn started(path: &Path) -> Result<PathBuf, Failure> {
    if !path.is_absolute() {
        return Err(Failure::field(
            "exec",
            format!("{} is no absolute path", visible(&path.to_string_lossy())),
        ));
    }
    std::fs::canonicalize(path)
        .map_err(|error| Failure::field("exec", format!("{}: {error}", path.display())))
}

/// Where the operator says that a server's secrets go: `--toward NAME=HOST[:PORT]`.
fn toward(args: &ImportArgs, name: &str) -> Result<Option<Host>, Failure> {
    let mut said = args.toward.iter().filter_map(|said| said.split_once('='));
    let Some((_, place)) = said.rfind(|(server, _)| *server == name) else { return Ok(None) };
    let wrong = || Failure::field("toward", "say NAME=HOST or NAME=HOST:PORT");
    let (host, port) = match place.split_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| wrong())?),
        None => (place, 443),
    };
    if !host.contains('.') || host.contains('/') {
        return Err(wrong());
    }
    Ok(Some(Host { host: host.to_owned(), port }))
}

/// Gives the values into the vault. One that it has already stays as it is.
async fn keep_secrets(context: &Context<'_>, secrets: &[Found]) -> Result<(), Failure> {
    for Found { fact, value } in secrets {
        let Some(value) = value.clone() else { continue };
        let (name, kind) = (fact.class.clone(), "static".to_owned());
        let request = Request::SecretSet { name, class: fact.class.clone(), kind, value };
        match context.ask(&request).await {
            Err(failure) if failure.code == "CONFLICT" => {}
            stored => drop(stored?),
        }
    }
    Ok(())
}

/// Where a command that is only named is.
pub(super) fn program(command: &str) -> Result<String, Failure> {
    if command.contains('/') {
        return Ok(command.to_owned());
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&folders).map(|folder| folder.join(command)).find(|path| path.is_file());
    let found = found.and_then(|path| std::fs::canonicalize(path).ok());
    found
        .map(|path| path.to_string_lossy().into_owned())
        .ok_or_else(|| Failure::field("command", format!("{} is not to be found", visible(command))))
}

/// Folders and files that the operands name, but for what an interpreter runs.
pub(super) fn places(operands: &[String], command: &str) -> Vec<PathBuf> {
    let home = std::env::home_dir().unwrap_or_default();
    let named = operands.iter().map(|operand| match operand.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None => PathBuf::from(operand),
    });
    let interpreted = ["node", "python", "python3", "bun", "deno", "ruby", "perl"]
        .contains(&Path::new(command).file_name().and_then(|name| name.to_str()).unwrap_or_default());
    let mut files = 0;
    let mut places = Vec::new();
    for path in named.filter(|path| path.is_absolute() && path.exists()) {
        let is_program = path.is_file() && interpreted && files == 0;
        files += usize::from(path.is_file());
        let real = std::fs::canonicalize(&path).unwrap_or(path);
        if !is_program && !places.contains(&real) {
            places.push(real);
        }
    }
    places
}

/// What accepting a draft means.
pub(super) fn card(name: &str, kept: &KeptDraft, grant: Option<GrantKind>) -> String {
    let draft = &kept.drafted.draft;
    let (how, pinned) = match &kept.target {
        Target::Stdio { command, args, artifacts, .. } => {
            let shown: Vec<String> = std::iter::once(command).chain(args).map(|word| visible(word)).collect();
            let pinned = if artifacts.is_empty() { "its program" } else { "its program and modules" };
            (shown.join(" "), format!("{pinned}, byte for byte; started in a cage without network"))
        }
        Target::Http { url, .. } | Target::Sse { url, .. } | Target::Records { url, .. } => {
            (visible(url), "nothing: it runs elsewhere".into())
        }
    };
    let mut lines = vec![
        format!("{name} {}", visible(&kept.drafted.server_version)),
        format!("  reached   {how}"),
        format!("  pinned    {pinned}"),
    ];
    let drafted = |kind: &str| -> Vec<Value> {
        let marked = format!(r#""kind":"{kind}""#);
        let scopes = draft.document.lines().filter(|line| line.contains(&marked));
        scopes.filter_map(|line| serde_json::from_str(line.split_once(": ")?.1).ok()).collect()
    };
    let scopes = drafted("fs");
    let writable =
        |path: &Value| scopes.iter().any(|scope| scope["path"] == *path && scope["access"] == "rw");
    for scope in scopes.iter().filter(|scope| scope["access"] == "rw" || !writable(&scope["path"])) {
        let access = if scope["access"] == "rw" { "reads and writes" } else { "reads" };
        lines.push(format!("  folder    {} ({access})", visible(scope["path"].as_str().unwrap_or_default())));
    }
    for program in drafted("exec") {
        lines.push(format!("  starts    {}", visible(program["path"].as_str().unwrap_or_default())));
    }
    for secret in &kept.secrets {
        let where_to = match &secret.way {
            SecretWay::Toward(host) => format!("sent to {} and nowhere else", visible(&host.host)),
            SecretWay::Header => "sent to the server itself".to_owned(),
            SecretWay::Unknown => {
                "sent nowhere, because nobody has said where: --toward NAME=HOST".to_owned()
            }
        };
        lines.push(format!(
            "  secret    {} is in plain text there; the vault keeps it as {}, {where_to}",
            visible(&secret.name),
            secret.class
        ));
    }
    lines.push(format!("  costs     about {} tokens to know its tools", kept.drafted.surface_tokens));
    for tool in &draft.tools {
        let classes: Vec<&str> = tool.classes.iter().map(|class| class.as_str()).collect();
        let reason = tool.reason.as_ref().map(|reason| format!("   {reason}")).unwrap_or_default();
        lines.push(format!("  {:<28} {:<24}{reason}", visible(&tool.name), classes.join(", ")));
    }
    for (tool, reason) in &draft.left_out {
        lines.push(format!("  left out: {tool}: {reason}"));
    }
    if draft.besides > 0 {
        lines.push(format!(
            "  {} resources and prompts are not offered unless you declare them",
            draft.besides
        ));
    }
    lines.push(match grant {
        None => "  every call asks, until you approve more than one at a time".into(),
        Some(GrantKind::Reads) => {
            "  what only reads will not ask, if policy lets you grant that; the rest asks".into()
        }
        Some(GrantKind::All) => "  nothing will ask that policy lets you grant ahead".to_owned(),
    });
    lines.join("\n")
}

fn line(outcome: &Outcome) -> String {
    format!("{:<11} {}: {}\n", outcome.status, visible(&outcome.name), outcome.reason)
}

fn closing(outcomes: &[Outcome], file: &Path) -> String {
    let count = |status| outcomes.iter().filter(|outcome| outcome.status == status).count();
    if outcomes.is_empty() {
        return format!("{} has no servers", file.display());
    }
    let mut text = format!(
        "{} registered, {} drafted, {} skipped",
        count("registered"),
        count("drafted"),
        count("skipped")
    );
    if count("registered") > 0 {
        text.push_str("\n\n  portcullis serve            to run the gateway\n  portcullis connect CLIENT   to have the client use it");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_becomes_one_of_ours() {
        for (theirs, ours) in [
            ("GitHub", "github"),
            ("my server_2", "my-server-2"),
            ("42 things", "things"),
            ("日本", "server"),
            ("", "server"),
        ] {
            assert_eq!(identity(theirs), ours);
        }
    }

    #[test]
    fn places_are_what_exists_and_is_not_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(folder.path()).unwrap();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let (main, data) = (root.join("main.js"), root.join("data.db"));
        std::fs::write(&main, "").unwrap();
        std::fs::write(&data, "").unwrap();
        let operands =
            [text(&main), "--db".into(), text(&data), text(&root), "/not/there".into(), "x".into()];
        assert_eq!(places(&operands, "/usr/bin/node"), [data.clone(), root.clone()]);
        assert_eq!(places(&operands, "/opt/server"), [main, data, root]);
    }
}
