//! A tool as the gauntlet knows it, and the way in.

use std::sync::Arc;

use portcullis_core::ToolId;
use serde_json::Value;

use crate::{Args, CompiledSchema, GauntletError, ResultKind};

/// One accepted tool: what it takes, what it gives, how much of either. Never changed, only replaced.
#[derive(Debug)]
pub struct ToolSpec {
    /// The canonical identity.
    pub tool: ToolId,
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

/// Lets `args` pass if they fit the tool's input schema. No default is filled in and nothing is coerced
/// (GNT-S7): the server gets what the caller wrote.
pub fn screen(spec: &Arc<ToolSpec>, args: Args) -> Result<Screened, GauntletError> {
    match spec.input.validate(args.value()) {
        Ok(()) => Ok(Screened { spec: Arc::clone(spec), args: args.into_value() }),
        Err(violations) if violations.budget_exceeded => {
            Err(GauntletError::InputBudget { tool: spec.tool.clone() })
        }
        Err(violations) => Err(GauntletError::Input { tool: spec.tool.clone(), violations }),
    }
}
