//! `portcullis footprint`, `lint` and `surface diff`: what clients read before they call anything, and what it costs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use portcullis_core::ErrorCode;
use portcullis_gateway::control::{SurfaceParts, ToolPart};
use portcullis_gateway::exposure::Mode;
use portcullis_gateway::surface::baseline::Baseline;
use portcullis_gateway::surface::ladder::StepSize;
use portcullis_gateway::surface::lints::{Finding, Severity};
use portcullis_gateway::surface::offered::Effect;
use portcullis_gateway::surface::profile::Profile;
use portcullis_gateway::surface::{Budgeting, Dedup, Routability, Surface, SurfaceOptions};
use serde_json::{Value, json};

use super::Context;
use crate::config::ModeWord;
use crate::failure::Failure;
use crate::operator::Request;
use crate::output::{table, visible};

/// What `footprint` and `lint` look at, and how.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  portcullis footprint\n  portcullis footprint --profile claude-code --explain\n  portcullis footprint --from-file tools.json --budget \
20000\n  portcullis footprint --write-baseline surface.json && portcullis footprint --check --baseline surface.json\n\nExit codes: 0 \
within, 7 over the budget or worse than the baseline (with --check or --budget)."
)]
pub(crate) struct FootprintArgs {
    /// The client's profile: strict, codex, claude-code, chatgpt, or one of yours [default: as configured]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// How tools are listed [default: as for a client that did not choose]
    #[arg(long, value_enum, value_name = "MODE")]
    mode: Option<ModeWord>,
    /// As this agent is shown it, as in agent:ci [default: agents that prove nothing]
    #[arg(long, value_name = "AGENT", conflicts_with = "from_file")]
    principal: Option<String>,
    /// Only this server's tools
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Measure a list in a file instead: an array, `{tools}`, a JSON-RPC answer or a capture of one
    #[arg(long, value_name = "FILE")]
    from_file: Option<PathBuf>,
    /// Fail if the list has more bytes than this
    #[arg(long, value_name = "BYTES")]
    budget: Option<usize>,
    /// Fail if the list is over the profile's limits, has an error, or is worse than the baseline
    #[arg(long)]
    check: bool,
    /// The baseline to check against [default: `baseline` of [surface]]
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Write down what the surface is now; may only shrink
    #[arg(long, value_name = "FILE")]
    write_baseline: Option<PathBuf>,
    /// Let the baseline grow (with --reason)
    #[arg(long, requires = "reason")]
    allow_growth: bool,
    /// Why it had to
    #[arg(long)]
    reason: Option<String>,
    /// Show what each step of making it fit would save
    #[arg(long)]
    explain: bool,
}

/// What `lint` looks at.
#[derive(Debug, Args)]
pub(crate) struct LintArgs {
    /// Only this server's tools
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// A list in a file instead of what is registered
    #[arg(long, value_name = "FILE")]
    from_file: Option<PathBuf>,
}

/// What `surface` shows.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum SurfaceCommand {
    /// Show what is published differently from what was accepted, and which rule wanted it
    Diff {
        /// Only this server's tools
        #[arg(long, value_name = "NAME")]
        server: Option<String>,
    },
}

pub(super) async fn footprint(context: &Context<'_>, args: &FootprintArgs) -> Result<ExitCode, Failure> {
    let options = context.options()?.surface;
    let Looked { surface, principal, beside: others } = look(context, &options, args).await?;
    let profile = options.profile(&surface.profile);
    let mut causes = Vec::new();
    if let Some(budget) = args.budget.filter(|budget| surface.footprint.tools.size.bytes > *budget) {
        causes.push(format!("{} bytes, the budget is {budget}", surface.footprint.tools.size.bytes));
    }
    if args.check {
        causes.extend(over(&surface));
        let errors = surface.findings.iter().filter(|finding| finding.severity == Severity::Error);
        causes
            .extend(errors.map(|finding| format!("{} {}: {}", finding.rule, finding.tool, finding.message)));
        let configured = context.config.surface.baseline.as_ref().map(|path| beside(context, path));
        if let Some(file) = args.baseline.clone().or(configured) {
            causes.extend(read_baseline(&file)?.check(&surface));
        }
        causes.dedup();
    }
    if let Some(file) = &args.write_baseline {
        let before = if file.exists() { Some(read_baseline(file)?) } else { None };
        let reason = args.reason.as_deref().filter(|_| args.allow_growth);
        let baseline = Baseline::of(&surface, before.as_ref(), reason)
            .map_err(|error| Failure::field("write-baseline", error.to_string()))?;
        let bytes = serde_json::to_value(&baseline)
            .ok()
            .and_then(|value| portcullis_core::canon::to_jcs(&value).ok());
        std::fs::write(file, bytes.unwrap_or_default())
            .map_err(|error| Failure::field("write-baseline", format!("{}: {error}", file.display())))?;
    }
    let steps = args.explain.then(|| surface.explained(profile, &options));
    let mut document = document(&surface, profile, &causes, steps.as_deref());
    document["principal"] = json!(principal);
    document["beside"] = json!(others);
    context.output.result(&document, |_| {
        let mut text = rendered(context, &surface, profile, &causes, steps.as_deref());
        let listed = others.iter().filter(|(_, bytes)| **bytes > 0);
        let listed: Vec<String> =
            listed.map(|(name, bytes)| format!("{} {}", name.replace('_', " "), grouped(*bytes))).collect();
        if !listed.is_empty() {
            text += &format!("\nListed beside tools, in bytes: {}.", listed.join(", "));
        }
        text
    });
    if causes.is_empty() { Ok(ExitCode::SUCCESS) } else { Ok(ExitCode::from(7)) }
}

pub(super) async fn lint(context: &Context<'_>, args: &LintArgs) -> Result<ExitCode, Failure> {
    let options = context.options()?.surface;
    let wanted = FootprintArgs {
        profile: None,
        mode: Some(ModeWord::Passthrough),
        principal: None,
        server: args.server.clone(),
        from_file: args.from_file.clone(),
        budget: None,
        check: false,
        baseline: None,
        write_baseline: None,
        allow_growth: false,
        reason: None,
        explain: false,
    };
    // What was accepted is what is judged, not what was put right of it.
    let unfixed = SurfaceOptions { routability: Routability::Lint, ..options };
    let surface = look(context, &unfixed, &wanted).await?.surface;
    let failed = surface.findings.iter().any(|finding| finding.severity == Severity::Error);
    context.output.result(&json!(surface.findings), |_| render_findings(&surface.findings));
    Ok(if failed { ExitCode::from(7) } else { ExitCode::SUCCESS })
}

pub(super) async fn surface(context: &Context<'_>, command: SurfaceCommand) -> Result<ExitCode, Failure> {
    let SurfaceCommand::Diff { server } = command;
    let options = context.options()?.surface;
    let mut parts = parts(context, Some(Mode::Passthrough), None).await?;
    only(&mut parts, server.as_deref())?;
    let surface = parts.compile(options.profile(""), &options);
    let changed = surface.changes();
    let document = json!({"changes": changed, "ledger": surface.ledger, "deferred": surface.deferred});
    context.output.result(&document, |_| {
        if changed.is_empty() {
            return "everything is published as it was accepted".into();
        }
        let lines = changed.iter().map(|change| {
            let place = format!("{} {}", visible(&change.tool), visible(&change.pointer));
            let after = visible(change.after.as_deref().unwrap_or("(gone)"));
            format!("{}\n  - {}\n  + {after}", context.output.bold(&place), visible(&change.before))
        });
        lines.collect::<Vec<_>>().join("\n")
    });
    Ok(ExitCode::SUCCESS)
}

/// A surface, whose it is, and what is listed beside tools.
struct Looked {
    surface: Surface,
    principal: Option<String>,
    beside: BTreeMap<String, usize>,
}

/// The surface that is meant.
async fn look(
    context: &Context<'_>,
    options: &SurfaceOptions,
    args: &FootprintArgs,
) -> Result<Looked, Failure> {
    let mut parts = match &args.from_file {
        Some(file) => from_file(file)?,
        None => parts(context, args.mode.and_then(ModeWord::mode), args.principal.clone()).await?,
    };
    only(&mut parts, args.server.as_deref())?;
    let of_agent = parts.profile.clone().filter(|_| args.principal.is_some());
    let name = args.profile.clone().or(of_agent).unwrap_or_else(|| options.profile.clone());
    let name = name.as_str();
    let Some(profile) = options.profiles.get(name) else {
        let known: Vec<&str> = options.profiles.keys().map(String::as_str).collect();
        return Err(Failure::field(
            "profile",
            format!("there is no profile '{name}'; there are {}", known.join(", ")),
        ));
    };
    if args.from_file.is_none() {
        let surface = parts.compile(profile, options);
        return Ok(Looked { surface, principal: Some(parts.principal), beside: parts.beside });
    }
    // A file is measured as it is.
    let as_it_is = SurfaceOptions {
        routability: Routability::Lint,
        dedup: Dedup::Never,
        mode: Budgeting::Warn,
        ..options.clone()
    };
    Ok(Looked { surface: parts.compile(profile, &as_it_is), principal: None, beside: parts.beside })
}

async fn parts(
    context: &Context<'_>,
    mode: Option<Mode>,
    principal: Option<String>,
) -> Result<SurfaceParts, Failure> {
    let answer = context.ask(&Request::SurfaceParts { mode, principal }).await?;
    serde_json::from_value(answer)
        .map_err(|error| Failure::unavailable(format!("the gateway answered oddly: {error}")))
}

/// Leaves only one server's tools.
fn only(parts: &mut SurfaceParts, server: Option<&str>) -> Result<(), Failure> {
    let Some(name) = server else { return Ok(()) };
    parts.tools.retain(|tool| tool.server == name);
    parts.servers.retain(|server| server.name == name);
    if parts.tools.is_empty() {
        let message = format!(
            "no tool of a server '{name}' is listed; `portcullis mcp list` names the servers there are"
        );
        return Err(Failure::new(ErrorCode::NotFound, message));
    }
    Ok(())
}

/// A list in a file (SURF-51).
fn from_file(path: &Path) -> Result<SurfaceParts, Failure> {
    let fail = |problem: String| Failure {
        exit: 64,
        ..Failure::field("from-file", format!("{}: {problem}", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| fail(error.to_string()))?;
    let places = ["", "/tools", "/result/tools", "/body/result/tools"];
    let list = places.iter().find_map(|place| value.pointer(place)?.as_array());
    let list = list.ok_or_else(|| fail("has no list of tools".into()))?;
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let tools = list.iter().enumerate().map(|(index, tool)| {
        let hints = &tool["annotations"];
        let effect = match (&hints["readOnlyHint"], &hints["destructiveHint"]) {
            (Value::Bool(true), _) => Some(Effect::ReadOnly),
            (_, Value::Bool(true)) => Some(Effect::Destructive),
            _ => None,
        };
        if !tool["name"].is_string() {
            return Err(fail(format!("item {index} is not a tool with a name")));
        }
        Ok(ToolPart { server: name.clone(), effect, definition: tool.to_string() })
    });
    let tools = tools.collect::<Result<_, _>>()?;
    Ok(SurfaceParts {
        principal: String::new(),
        profile: None,
        mode: Mode::Passthrough,
        tools,
        servers: Vec::new(),
        records: false,
        stand_ins: Vec::new(),
        prune: std::collections::BTreeSet::new(),
        beside: BTreeMap::new(),
    })
}

fn read_baseline(path: &Path) -> Result<Baseline, Failure> {
    let fail = |problem: String| Failure {
        exit: 64,
        ..Failure::field("baseline", format!("{}: {problem}", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| fail(error.to_string()))
}

/// What a surface is over.
fn over(surface: &Surface) -> Vec<String> {
    let causes = surface.excess.iter();
    causes
        .map(|one| format!("{} is {}, {} are allowed", one.limit, grouped(one.found), grouped(one.allowed)))
        .collect()
}

fn document(surface: &Surface, profile: &Profile, causes: &[String], steps: Option<&[StepSize]>) -> Value {
    let mut document = surface.report(profile);
    document["causes"] = json!(causes);
    if let Some(steps) = steps {
        document["steps"] = json!(steps);
    }
    document
}

/// For people: what it costs, who costs it, and what to do.
fn rendered(
    context: &Context<'_>,
    surface: &Surface,
    profile: &Profile,
    causes: &[String],
    steps: Option<&[StepSize]>,
) -> String {
    let (output, whole) = (context.output, &surface.footprint.tools);
    let mut text = format!(
        "{} tools as a {} client in {} mode reads them\n\n",
        whole.count,
        output.bold(&profile.name),
        surface.mode.as_str()
    );
    let line = |what: &str, found: usize, allowed: usize| {
        let share = (found * 100).checked_div(allowed).unwrap_or(0);
        let filled = (share / 5).min(20);
        let bar = format!("{}{}", "█".repeat(filled), "░".repeat(20 - filled));
        let bar = if found > allowed { output.bad(&bar) } else { output.good(&bar) };
        format!("  {what:<13}{:>9} of {:>7}  {bar} {share:>3} %\n", grouped(found), grouped(allowed))
    };
    text += &line("bytes", whole.size.bytes, profile.tools_total_bytes);
    text += &line("tokens", whole.name_desc_input.o200k, profile.tools_total_tokens);
    text += &line("tools", whole.count, profile.tools_max_count);
    let chars = surface.instructions.encode_utf16().count();
    text += &line("instructions", chars, profile.instructions_max_chars);
    text += &format!("\n{}\n\n{}\n", servers_table(surface), tools_table(surface));
    for server in surface.footprint.servers.iter().filter(|server| server.sentence_dup_bytes > 0) {
        text +=
            &format!("\n{} repeats {} bytes of sentences", server.name, grouped(server.sentence_dup_bytes));
    }
    if let Some(steps) = steps {
        let rows = steps.iter().map(|step| {
            let saved = whole.size.bytes.saturating_sub(step.bytes);
            vec![step.step.to_string(), step_words(step.step).into(), grouped(step.bytes), grouped(saved)]
        });
        text += &format!("\n{}\n", table(&["step", "making it fit would", "bytes", "saved"], rows.collect()));
    }
    if !surface.deferred.is_empty() {
        text += &format!(
            "\n{} tools are not listed but can be found: {}",
            surface.deferred.len(),
            surface.deferred.join(", ")
        );
    }
    text += &advice(surface, causes, output);
    text
}

fn tools_table(surface: &Surface) -> String {
    let mut tools: Vec<_> = surface.footprint.per_tool.iter().collect();
    tools.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    let rows = tools.iter().map(|tool| {
        let part = |bytes: usize| if bytes == 0 { "-".to_owned() } else { grouped(bytes) };
        let findings = surface.findings.iter().filter(|finding| finding.tool == tool.name);
        let mut rules: Vec<&str> =
            findings.filter(|one| one.severity > Severity::Info).map(|one| one.rule).collect();
        rules.dedup();
        vec![
            visible(&tool.name),
            grouped(tool.bytes),
            grouped(tool.o200k),
            part(tool.parts.description),
            part(tool.parts.input_schema),
            part(tool.parts.output_schema),
            part(tool.parts.rest + tool.parts.title + tool.parts.annotations + tool.parts.name),
            rules.join(" "),
        ]
    });
    let head = ["tool", "bytes", "tokens", "description", "input", "output", "rest", "lints"];
    let mut rows: Vec<Vec<String>> = rows.collect();
    aligned(&head, &mut rows, 1..7);
    table(&head, rows)
}

/// Who costs how much.
fn servers_table(surface: &Surface) -> String {
    let whole = surface.footprint.tools.size.bytes.max(1);
    let mut servers: Vec<_> = surface.footprint.servers.iter().collect();
    servers.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    let rows = servers.iter().map(|server| {
        let findings =
            surface.findings.iter().filter(|one| one.server == server.name && one.severity > Severity::Info);
        vec![
            if server.name.is_empty() { "(the gateway's own)".into() } else { visible(&server.name) },
            grouped(server.tools),
            grouped(server.bytes),
            format!("{} %", server.bytes * 100 / whole),
            grouped(server.sentence_dup_bytes),
            findings.count().to_string(),
        ]
    });
    let head = ["server", "tools", "bytes", "share", "repeated", "lints"];
    let mut rows: Vec<Vec<String>> = rows.collect();
    aligned(&head, &mut rows, 1..6);
    table(&head, rows)
}

/// Numbers stand under one another.
fn aligned(head: &[&str], rows: &mut [Vec<String>], columns: std::ops::Range<usize>) {
    for column in columns {
        let cells = rows.iter().map(|row| row[column].chars().count());
        let width = cells.chain([head[column].len()]).max().unwrap_or(0);
        for row in rows.iter_mut() {
            row[column] = format!("{:>width$}", row[column]);
        }
    }
}

/// What to do about it.
fn advice(surface: &Surface, causes: &[String], output: &crate::output::Output) -> String {
    let mut text = String::new();
    let over = over(surface);
    for cause in causes.iter().chain(over.iter().filter(|cause| !causes.contains(*cause))) {
        text += &format!("\n{} {cause}", output.bad("over:"));
    }
    if !over.is_empty() && surface.ladder_step == 0 {
        text += "\nTo make it fit: `mode = \"enforce\"` in [surface], or hide tools with [catalog.filter]; --explain shows what each step saves.";
    }
    if surface.findings.iter().any(|finding| finding.severity > Severity::Info) {
        text += "\n`portcullis lint` says what the lints are about.";
    }
    if over.is_empty() && causes.is_empty() {
        text += &format!("\n{}", output.good("It fits."));
    }
    text
}

fn step_words(step: u8) -> &'static str {
    match step {
        0 => "change nothing",
        1 => "leave output schemas out",
        2 => "leave titles, icons and the like out",
        3 => "leave arguments out that nobody can use",
        4 => "say repeated sentences once",
        _ => "shorten descriptions",
    }
}

fn render_findings(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return "nothing is wrong".into();
    }
    let rows = findings.iter().map(|finding| {
        let severity = match finding.severity {
            Severity::Error => "error",
            Severity::Warn => "warn",
            Severity::Info => "info",
        };
        let whose = if finding.tool.is_empty() { &finding.server } else { &finding.tool };
        vec![
            finding.rule.into(),
            severity.into(),
            visible(whose),
            visible(&finding.pointer),
            finding.message.clone(),
        ]
    });
    table(&["rule", "severity", "tool", "where", "what"], rows.collect())
}

/// A number with its thousands apart.
pub(super) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut groups: Vec<&str> = Vec::new();
    if first > 0 {
        groups.push(&digits[..first]);
    }
    groups.extend((first..digits.len()).step_by(3).map(|at| &digits[at..at + 3]));
    groups.join(",")
}

fn beside(context: &Context<'_>, path: &Path) -> PathBuf {
    context.config_file.parent().map_or_else(|| path.to_owned(), |folder| folder.join(path))
}
