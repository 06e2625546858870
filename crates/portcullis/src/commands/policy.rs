//! `portcullis policy …`: seeing, checking and changing what may happen.

use std::process::ExitCode;

use portcullis_governance::policy::{Bundle, Policy, Preset};
use portcullis_governance::record::Mode;
use serde_json::{Value, json};

use super::Context;
use super::mcp::text;
use crate::cli::{BundleArgs, PolicyCommand};
use crate::config::read_bundle;
use crate::failure::Failure;
use crate::operator::Request;
use crate::output::{table, visible};

/// The exit code of a dry run that would be denied (GOV §15).
const WOULD_BE_DENIED: u8 = 4;

pub(super) async fn run(context: &Context<'_>, command: PolicyCommand) -> Result<ExitCode, Failure> {
    match command {
        PolicyCommand::Show { version, texts } => {
            let policy = context.ask(&Request::PolicyShow { version }).await?;
            context.output.result(&policy, |policy| render(policy, texts));
        }
        PolicyCommand::Validate(args) => {
            let bundle = bundle(context, args)?;
            let valid = validate(context, &bundle)?;
            context.output.result(&valid, |valid| {
                let policies = valid["policies"].as_array().map_or(0, Vec::len);
                format!("valid: {policies} policies, sha256 {}", text(&valid["sha256"]))
            });
        }
        PolicyCommand::Apply { bundle: args, reason } => {
            let bundle = bundle(context, args)?;
            // Found here, a mistake is told with nothing on record.
            validate(context, &bundle)?;
            let applied = context.ask(&Request::PolicyApply { bundle, reason }).await?;
            context
                .output
                .result(&applied, |applied| format!("in force: policy {}", text(&applied["version"])));
        }
        PolicyCommand::Rollback { version, reason } => {
            let applied = context.ask(&Request::PolicyRollback { version, reason }).await?;
            context
                .output
                .result(&applied, |applied| format!("in force: policy {}", text(&applied["version"])));
        }
        PolicyCommand::Explain { tool, args, agent } => {
            let explained = context.ask(&Request::PolicyExplain { tool, args, agent }).await?;
            context.output.result(&explained, render_explanation);
            if explained["decision"] == "deny" {
                return Ok(ExitCode::from(WOULD_BE_DENIED));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn bundle(context: &Context<'_>, args: BundleArgs) -> Result<Bundle, Failure> {
    let configured = context.config.policy.preset;
    let preset: Preset = match args.preset {
        Some(word) => serde_json::from_value(Value::String(word))
            .map_err(|_| Failure::field("preset", "must be strict, balanced or observe"))?,
        None => configured,
    };
    match args.dir {
        Some(dir) => read_bundle(preset, &dir),
        None => Ok(Bundle { preset, ..context.options()?.policy }),
    }
}

fn validate(context: &Context<'_>, bundle: &Bundle) -> Result<Value, Failure> {
    let mode = context.config.gateway.mode.unwrap_or(Mode::Local);
    let policy =
        Policy::compile(bundle, mode, 0).map_err(|error| Failure::field("policy", error.to_string()))?;
    Ok(json!({"valid": true, "sha256": policy.version().sha256, "policies": policy.ids()}))
}

fn render(policy: &Value, texts: bool) -> String {
    let state = if policy["in_force"] == true { "in force" } else { "no longer in force" };
    let ids =
        policy["policies"].as_array().into_iter().flatten().map(|id| format!("    {}", visible(&text(id))));
    let mut lines = vec![
        format!("policy {}  {state}", text(&policy["version"])),
        format!("  preset     {}", text(&policy["bundle"]["preset"])),
        format!(
            "  by         {} at {}, because: {}",
            text(&policy["by"]),
            text(&policy["at"]),
            visible(&text(&policy["reason"]))
        ),
        "  policies".into(),
    ];
    lines.extend(ids);
    if texts {
        for file in policy["bundle"]["files"].as_array().into_iter().flatten() {
            lines.push(format!("\n--- {}\n{}", visible(&text(&file["name"])), shown_lines(&file["text"])));
        }
        if policy["bundle"]["settings"] != "" {
            lines.push(format!("\n--- settings.toml\n{}", shown_lines(&policy["bundle"]["settings"])));
        }
    }
    let history = policy["history"].as_array().into_iter().flatten().map(|activation| {
        let version = text(&activation["version"]);
        let (counter, digest) = version.split_once(':').unwrap_or((&version, ""));
        vec![
            counter.to_owned(),
            digest.chars().take(12).collect(),
            text(&activation["by"]),
            text(&activation["at"]),
            visible(&text(&activation["reason"])),
        ]
    });
    lines.push(format!("\n{}", table(&["version", "sha256", "by", "at", "because"], history.collect())));
    lines.join("\n")
}

fn shown_lines(value: &Value) -> String {
    text(value).lines().map(visible).collect::<Vec<_>>().join("\n")
}

fn render_explanation(explained: &Value) -> String {
    let verdict = match explained["decision"].as_str() {
        Some("deny") => "would be denied",
        Some("unattended") => "would go on without asking anybody",
        _ => "would ask for an approval",
    };
    let reasons: Vec<_> = explained["reasons"].as_array().into_iter().flatten().map(text).collect();
    let offers = explained["offers"].as_array().into_iter().flatten().map(|offer| {
        let operators = if offer["quorum"] == 1 {
            "one operator".into()
        } else {
            format!("{} operators", offer["quorum"])
        };
        format!("\n  offered   {} ({operators})", text(&offer["scope"]))
    });
    let because = if reasons.is_empty() { "no policy permits it".into() } else { reasons.join(", ") };
    format!(
        "{} {verdict}\n  because   {}\n  policy    {}{}",
        text(&explained["tool_id"]),
        visible(&because),
        text(&explained["policy_version"]),
        offers.collect::<String>(),
    )
}
