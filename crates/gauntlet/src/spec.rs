//! A tool as the gauntlet knows it, and the way in.

use std::sync::Arc;

use portcullis_core::ToolId;
use serde_json::Value;

use crate::capability::{self, Capabilities, Grants, Requirement, Verdict};
use crate::{Args, CompiledSchema, GauntletError, ResultKind};

/// One accepted tool: what it takes, what it gives, how much of either. Never changed, only replaced.
#[derive(Debug)]
pub struct ToolSpec {
    /// The canonical identity.
    pub tool: ToolId,
    /// What calling it takes besides `mcp.call:<server>/<name>` (GNT-C2).
    pub permissions: Vec<Requirement>,
    /// What its server may be used for at most: the accepted scopes (GNT-C11).
    pub ceiling: Arc<Capabilities>,
    /// Whether whoever makes the request holds bound arguments to the scopes itself (GOV-702), and says better than
    /// the ceiling could what is wrong with one.
    pub scopes_bound: bool,
    /// What the arguments must be.
    pub input: CompiledSchema,
    /// What the structured result must be, if the server said.
    pub output: Option<CompiledSchema>,
    /// What its results look like.
    pub result: ResultKind,
    /// Whether the server speaks a revision in which a structured result may be any value (GNT-P3).
    pub any_root: bool,
    /// The longest arguments, in bytes of text.
    pub max_request_bytes: usize,
    /// The longest result, in bytes of text.
    pub max_response_bytes: usize,
}

/// Arguments that fit their tool. Made by [`screen`] alone, and not copied: one screening, one request.
///
/// ```compile_fail
/// # fn twice(screened: portcullis_gauntlet::Screened) {
/// let copy = screened.clone();
/// # }
/// ```
#[derive(Debug)]
pub struct Screened {
    spec: Arc<ToolSpec>,
    args: Value,
}

impl Screened {
    /// The tool the arguments were screened for.
    pub fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    /// The arguments: a JSON object.
    pub fn args(&self) -> &Value {
        &self.args
    }
}

/// Lets `args` pass if the caller may call the tool with them and they fit the tool's input schema, in this order:
/// who may not call learns nothing about the schema. No default is filled in and nothing is coerced (GNT-S7): the
/// server gets what the caller wrote.
pub fn screen(spec: &Arc<ToolSpec>, grants: &Grants, args: Args) -> Result<Screened, GauntletError> {
    let verdict = gate(spec, grants, args.value());
    if verdict == Verdict::Refused {
        return Err(denied(spec));
    }
    match validate(spec, args) {
        Ok(_) if verdict == Verdict::Undecided => Err(denied(spec)),
        outcome => outcome,
    }
}

/// Whether a call that was let pass would be let pass with these grants too: the caller's may have been replaced since
/// (GNT-C12).
pub fn recheck(spec: &ToolSpec, grants: &Grants, args: &Value) -> Result<(), GauntletError> {
    match gate(spec, grants, args) {
        Verdict::Passes => Ok(()),
        Verdict::Refused | Verdict::Undecided => Err(denied(spec)),
    }
}

/// Step 1: the ceiling and the caller's own grants; both must cover the call.
fn gate(spec: &ToolSpec, grants: &Grants, args: &Value) -> Verdict {
    let call = spec.tool.short();
    let needs = || spec.permissions.iter();
    let ceiling = capability::judge(
        &spec.ceiling,
        call,
        needs().filter(|need| !(spec.scopes_bound && need.takes_arguments())),
        args,
    );
    match (ceiling, grants) {
        (Verdict::Refused, _) => Verdict::Refused,
        // An argument that is not there leaves the declared scope as it is (GOV-702).
        (_, Grants::Declared) => Verdict::Passes,
        (_, Grants::Only(own)) => capability::judge(own, call, needs(), args),
    }
}

fn denied(spec: &ToolSpec) -> GauntletError {
    let permissions: Vec<&str> = spec.permissions.iter().map(Requirement::as_str).collect();
    let capability = match permissions.is_empty() {
        true => format!("mcp.call:{}", spec.tool.short()),
        false => permissions.join(","),
    };
    GauntletError::CapabilityDenied { tool: spec.tool.clone(), capability }
}

/// Step 2.
fn validate(spec: &Arc<ToolSpec>, args: Args) -> Result<Screened, GauntletError> {
    match spec.input.validate(args.value()) {
        Ok(()) => Ok(Screened { spec: Arc::clone(spec), args: args.into_value() }),
        Err(violations) if violations.budget_exceeded => {
            Err(GauntletError::InputBudget { tool: spec.tool.clone() })
        }
        Err(violations) => Err(GauntletError::Input { tool: spec.tool.clone(), violations }),
    }
}
