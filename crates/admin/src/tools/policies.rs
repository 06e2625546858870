//! `portcullis_policies_*`.

use portcullis_governance::policy::{Bundle, PolicyFile, Preset};
use serde_json::Value;

use crate::args::{Integer, JsonObject, NonBlank, Page};
use crate::error::AdminError;
use crate::grant::{AdminGrant, TargetId};
use crate::registry::Module;
use crate::reply::{Committed, Reply};
use crate::services::{ExplanationRecord, PolicyDetail, PolicyRecord, ValidationRecord};
use crate::tool::{admin_tool, read_tool};
use crate::{Cx, args, words};

/// A version that has a number.
type Version = Integer<1, 9_007_199_254_740_991>;

words! {
    pub(crate) enum Kind { Bundle = "bundle", Preset = "preset" }
}

words! {
    pub(crate) enum PresetWord { Strict = "strict", Balanced = "balanced", Observe = "observe" }
}

args! {
    pub(crate) struct List { kind: Option<Kind>, page: Page }
}

args! {
    pub(crate) struct Get { version: Option<Version> }
}

args! {
    pub(crate) struct Explain { tool: NonBlank, arguments: JsonObject, client_id: Option<NonBlank>, version: Option<Version> }
}

args! {
    pub(crate) struct File { name: NonBlank, text: NonBlank<262144> }
}

args! {
    pub(crate) struct BundleArg { preset: Option<PresetWord>, files: Option<Vec<File>>, settings: Option<NonBlank<262144>> }
}

args! {
    pub(crate) struct Validate { bundle: BundleArg }
}

args! {
    pub(crate) struct Apply { bundle: BundleArg, expected_version: Option<Version> }
}

args! {
    pub(crate) struct Rollback { version: Option<Version> }
}

pub(super) fn module() -> Module {
    Module {
        name: "approvals/policies",
        tools: vec![
            read_tool("policies", "list", "List policies that were in force.", list),
            read_tool("policies", "get", "Show a policy with its texts.", get),
            read_tool("policies", "explain", "Say what policy decides about a call.", explain),
            read_tool(
                "policies",
                "validate",
                "Check a bundle, and what it would decide otherwise.",
                validate,
            ),
            admin_tool("policies", "apply", "Put a policy bundle in force.", apply),
            admin_tool("policies", "rollback", "Put an earlier policy in force again.", rollback),
        ],
    }
}

async fn list(cx: Cx, args: List) -> Result<Reply<Vec<PolicyRecord>>, AdminError> {
    let mut rows = cx.policies().list().await;
    rows.retain(|row| args.kind.is_none_or(|kind| row.kind == kind.as_str()));
    Ok(Reply::page(args.page.cut(rows), args.page))
}

async fn get(cx: Cx, args: Get) -> Result<Reply<PolicyDetail>, AdminError> {
    Ok(Reply::ok(cx.policies().get(args.version.map(number)).await?))
}

async fn explain(cx: Cx, args: Explain) -> Result<Reply<ExplanationRecord>, AdminError> {
    let arguments = Value::Object(args.arguments.0).to_string();
    let (client, tool) = (args.client_id.as_ref().map(NonBlank::as_str), args.tool.as_str());
    Ok(Reply::ok(cx.policies().explain(client, tool, &arguments, args.version.map(number)).await?))
}

async fn validate(cx: Cx, args: Validate) -> Result<Reply<ValidationRecord>, AdminError> {
    Ok(Reply::ok(cx.policies().validate(&cx.asking(), &bundle(args.bundle)).await?))
}

async fn apply(cx: Cx, grant: AdminGrant, args: Apply) -> Result<Committed<PolicyRecord>, AdminError> {
    let policies = cx.policies();
    let expected = args.expected_version.map(number);
    let bundle = bundle(args.bundle);
    grant
        .answer(TargetId::new("policy", "bundle"), move |op| async move {
            policies.apply(&op, bundle, expected).await
        })
        .await
}

async fn rollback(cx: Cx, grant: AdminGrant, args: Rollback) -> Result<Committed<PolicyRecord>, AdminError> {
    let (policies, version) = (cx.policies(), args.version.map(number));
    let target = version.map_or_else(|| "the one before".to_owned(), |version| version.to_string());
    grant
        .answer(
            TargetId::new("policy", target),
            move |op| async move { policies.roll_back(&op, version).await },
        )
        .await
}

fn number(version: Version) -> u64 {
    version.0.unsigned_abs()
}

impl File {
    pub(super) fn into_file(self) -> PolicyFile {
        PolicyFile { name: self.name.into(), text: self.text.into() }
    }
}

fn bundle(args: BundleArg) -> Bundle {
    let preset = match args.preset {
        None | Some(PresetWord::Strict) => Preset::Strict,
        Some(PresetWord::Balanced) => Preset::Balanced,
        Some(PresetWord::Observe) => Preset::Observe,
    };
    Bundle {
        preset,
        files: args.files.unwrap_or_default().into_iter().map(File::into_file).collect(),
        settings: args.settings.map(String::from).unwrap_or_default(),
    }
}
