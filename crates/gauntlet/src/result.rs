//! A result that only [`finish`] can read, and what may leave afterwards.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::payload::{self, Shape, Unreadable};
use crate::{CompiledSchema, GauntletError, ResultKind, SchemaViolations, ToolSpec};

/// The JSON text of a `tools/call` result, as it came from a server. It has no accessor, is not printed and
/// not serialised: the one thing to do with it is to [`finish`] it.
///
/// ```compile_fail
/// # let raw = portcullis_gauntlet::RawResult::new(bytes::Bytes::new());
/// serde_json::to_string(&raw);
/// ```
pub struct RawResult(Bytes);

impl RawResult {
    /// Takes a server's text into custody.
    pub fn new(text: Bytes) -> Self {
        Self(text)
    }
}

impl fmt::Debug for RawResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawResult({} bytes)", self.0.len())
    }
}

/// A result that passed. Made by [`finish`] alone.
#[derive(Debug)]
pub struct SafeResult {
    json: Bytes,
    is_error: bool,
    dropped_structured: bool,
}

impl SafeResult {
    /// Whether the tool says it failed.
    pub fn is_error(&self) -> bool {
        self.is_error
    }

    /// The result's text: as received, byte for byte, but for what [`dropped_structured`] tells (PRO-10).
    ///
    /// [`dropped_structured`]: SafeResult::dropped_structured
    pub fn json(&self) -> &Bytes {
        &self.json
    }

    /// Whether structured content that did not fit was taken out of a result with `isError` (GNT-P6).
    pub fn dropped_structured(&self) -> bool {
        self.dropped_structured
    }
}

/// Lets a server's result pass if it is a tool result and, where the tool declares an output schema, fits it.
pub fn finish(spec: &Arc<ToolSpec>, raw: RawResult) -> Result<SafeResult, GauntletError> {
    let RawResult(text) = raw;
    if text.len() > spec.max_response_bytes {
        let (limit, unit) = (spec.max_response_bytes, "bytes");
        return Err(GauntletError::OutputTooLarge { tool: spec.tool.clone(), limit, unit });
    }
    if spec.result != ResultKind::Tool {
        spec.result.check(&text).map_err(|reason| misshapen(spec, reason))?;
        return Ok(SafeResult { json: text, is_error: false, dropped_structured: false });
    }
    let shape = payload::shape(&text).map_err(|reason| misshapen(spec, reason))?;
    if shape.result_type.as_deref().is_some_and(|word| word != "complete") {
        return Err(misshapen(spec, "a result that asks for more is not handled"));
    }
    if !shape.has_content && shape.structured.is_none() {
        return Err(misshapen(spec, "content is missing"));
    }
    let is_error = shape.is_error;
    match judge(spec, &shape) {
        Ok(()) => Ok(SafeResult { json: text, is_error, dropped_structured: false }),
        // GNT-P6: a failed tool owes nobody its structured result, but its account of the failure must not
        // get lost because that result is not what was declared.
        Err(_) if is_error => {
            let json =
                payload::without_structured(&text).ok_or_else(|| misshapen(spec, "not valid JSON"))?.into();
            Ok(SafeResult { json, is_error, dropped_structured: true })
        }
        Err(error) => Err(error),
    }
}

/// Whether the structured content is what it should be (GNT-P2 to P5).
fn judge(spec: &ToolSpec, shape: &Shape<'_>) -> Result<(), GauntletError> {
    match (&spec.output, shape.structured) {
        (None, None) => Ok(()),
        (None, Some(structured)) if structured.get().starts_with('{') => Ok(()),
        (None, Some(_)) => Err(GauntletError::NonObjectOutput { tool: spec.tool.clone() }),
        (Some(_), None) if shape.is_error => Ok(()),
        (Some(_), None) => {
            let violations = SchemaViolations::at_root("required", "structured content is missing");
            Err(GauntletError::Output { tool: spec.tool.clone(), violations })
        }
        (Some(schema), Some(structured)) => fit(spec, schema, structured),
    }
}

fn fit(spec: &ToolSpec, schema: &CompiledSchema, structured: &RawValue) -> Result<(), GauntletError> {
    let tool = || spec.tool.clone();
    let value = payload::value(structured).map_err(|unreadable| match unreadable {
        Unreadable::Shape(reason) => misshapen(spec, reason),
        Unreadable::TooDeep(limit) => GauntletError::OutputTooDeep { tool: tool(), limit },
        Unreadable::TooManyNodes(limit) => {
            GauntletError::OutputTooLarge { tool: tool(), limit, unit: "values" }
        }
    })?;
    schema.validate(&value).map_err(|violations| {
        // GNT-P3: any root type may be declared since 2026-07-28; a root type that was not is a shape, not a
        // detail.
        if violations.budget_exceeded {
            GauntletError::OutputBudget { tool: tool() }
        } else if !value.is_object() {
            GauntletError::NonObjectOutput { tool: tool() }
        } else {
            GauntletError::Output { tool: tool(), violations }
        }
    })
}

fn misshapen(spec: &ToolSpec, reason: &'static str) -> GauntletError {
    GauntletError::Shape { tool: spec.tool.clone(), reason }
}
