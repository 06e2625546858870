//! A result that only [`Gauntlet::finish`] can read, and what may leave afterwards.

use std::fmt;

use crate::blocks::{self, BlockMark, MAX_BLOCKS, clean_member};
use crate::gauntlet::TextJson;
use crate::leaves::{Cleaner, Edits, Fault, MAX_DEPTH, MAX_KEY_BYTES, MAX_NODES};
use crate::pages;
use crate::payload::{self, Shape};
use crate::sanitise::{Escape, Report};
use crate::tape::{Kind, Tape, View};
use crate::{CompiledSchema, Gauntlet, GauntletError, ResultKind, SchemaViolations, Screened, ToolSpec};
use bytes::Bytes;

/// The JSON text of a `tools/call` result, as it came from a server. It has no accessor, is not printed and
/// not serialised: the one thing to do with it is to [`finish`](Gauntlet::finish) it.
///
/// ```compile_fail
/// # let raw = portcullis_gauntlet::RawResult::new(bytes::Bytes::new());
/// serde_json::to_string(&raw);
/// ```
pub struct RawResult(pub(crate) Bytes);

impl RawResult {
    /// Takes a server's text into custody.
    pub fn new(text: Bytes) -> Self {
        Self(text)
    }

    /// How long the text is, in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no text at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for RawResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawResult({} bytes)", self.0.len())
    }
}

/// Whether a result ends its call (GNT-P7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultType {
    /// The call is over.
    Complete,
    /// The server wants to know something first.
    InputRequired,
    /// The server goes on working.
    Task,
}

/// A result that passed. Made by [`Gauntlet::finish`] alone.
#[derive(Debug, Clone)]
pub struct SafeResult {
    json: Bytes,
    result_type: ResultType,
    is_error: bool,
    has_other_structured: bool,
    dropped_structured: bool,
    escape: Escape,
    report: Report,
    marks: Vec<(usize, BlockMark)>,
}

impl SafeResult {
    /// Whether the tool says it failed.
    pub fn is_error(&self) -> bool {
        self.is_error
    }

    /// Whether the call is over.
    pub fn result_type(&self) -> ResultType {
        self.result_type
    }

    /// The result's text: as received, byte for byte, but for the strings that had to be changed and for what
    /// [`dropped_structured`] tells (PRO-10).
    ///
    /// [`dropped_structured`]: SafeResult::dropped_structured
    pub fn json(&self) -> &Bytes {
        &self.json
    }

    /// Whether structured content that did not fit was taken out of a result with `isError` (GNT-P6).
    pub fn dropped_structured(&self) -> bool {
        self.dropped_structured
    }

    /// Whether the structured content is something other than an object, which clients of the older revisions
    /// must get as `{"value": …}` (GNT-P3).
    pub fn has_other_structured(&self) -> bool {
        self.has_other_structured
    }

    /// What was changed beyond escaping.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// How its texts were written.
    pub fn escape(&self) -> Escape {
        self.escape
    }

    /// Blocks that are odd, by their index.
    pub fn marks(&self) -> &[(usize, BlockMark)] {
        &self.marks
    }
}

impl Gauntlet {
    /// Steps 4 and 5: lets a server's result pass if it is a tool result and, where the tool declares an output
    /// schema, fits it; then makes every text in it safe to show. It takes what [`screen`](crate::screen) gave
    /// for the call, so that no result passes for a call that was never screened (GNT-O1).
    ///
    /// ```compile_fail,E0308
    /// // CF-1: there is no result without a screened call
    /// use portcullis_gauntlet::{Gauntlet, RawResult, SafeResult, ToolSpec};
    /// use std::sync::Arc;
    /// fn unscreened(gauntlet: &Gauntlet, spec: Arc<ToolSpec>, raw: RawResult) {
    ///     let _ = gauntlet.finish(spec, raw);
    /// }
    /// ```
    pub fn finish(&self, screened: Screened, raw: RawResult) -> Result<SafeResult, GauntletError> {
        let spec = screened.spec();
        let RawResult(text) = raw;
        if text.len() > spec.max_response_bytes {
            let (limit, unit) = (spec.max_response_bytes, "bytes");
            return Err(GauntletError::OutputTooLarge { tool: spec.tool.clone(), limit, unit });
        }
        let tape = read(spec, &text)?;
        if spec.result != ResultKind::Tool {
            sound(spec, &tape, None)?;
            if spec.result.asks_for_input(&text) {
                return self.clean(spec, &text, &tape, ResultType::InputRequired);
            }
            spec.result.check(&text).map_err(|reason| misshapen(spec, reason))?;
            return self.clean(spec, &text, &tape, ResultType::Complete);
        }
        let shape = payload::shape(tape.root()).map_err(|reason| misshapen(spec, reason))?;
        let result_type = match shape.result_type.as_deref() {
            None | Some("complete") => ResultType::Complete,
            Some("input_required") => ResultType::InputRequired,
            Some("task") => ResultType::Task,
            Some(_) => return Err(misshapen(spec, "the type of the result is unknown")),
        };
        if result_type == ResultType::Complete {
            if !shape.has_content && shape.structured.is_none() {
                return Err(misshapen(spec, "content is missing"));
            }
            // What is wrong with the structured content alone is a reason not to believe that, and nothing else.
            sound(spec, &tape, shape.structured)?;
            match sound(spec, &tape, None).and_then(|()| judge(spec, &shape)) {
                Ok(()) => {}
                // GNT-P6: a failed tool owes nobody its structured result, but its account of the failure must
                // not get lost because that result is not what was declared.
                Err(_) if shape.is_error => {
                    let without = Bytes::from(payload::without_structured(tape.root()));
                    let tape = read(spec, &without)?;
                    sound(spec, &tape, None)?;
                    let result = self.clean(spec, &without, &tape, result_type)?;
                    return Ok(SafeResult { is_error: true, dropped_structured: true, ..result });
                }
                Err(error) => return Err(error),
            }
        }
        sound(spec, &tape, None)?;
        let has_other_structured = shape.structured.is_some_and(|value| value.kind() != Kind::Object);
        let result = self.clean(spec, &text, &tape, result_type)?;
        Ok(SafeResult { is_error: shape.is_error, has_other_structured, ..result })
    }

    /// Step 5.
    pub(crate) fn clean(
        &self,
        spec: &ToolSpec,
        text: &Bytes,
        tape: &Tape<'_>,
        result_type: ResultType,
    ) -> Result<SafeResult, GauntletError> {
        // CTX-42: secrets go first, so that nothing below can take one apart and hide it.
        if let Some((redacted, found)) = self.redacted_json(tape.source()) {
            let redacted = Bytes::from(redacted);
            let mut result = self.sanitised(spec, &redacted, &read(spec, &redacted)?, result_type)?;
            result.report.redactions += found as usize;
            return Ok(result);
        }
        self.sanitised(spec, text, tape, result_type)
    }

    fn sanitised(
        &self,
        spec: &ToolSpec,
        text: &Bytes,
        tape: &Tape<'_>,
        result_type: ResultType,
    ) -> Result<SafeResult, GauntletError> {
        let escape = self.escape_for(spec);
        let quiet = self.sanitiser.is_quiet(tape.source());
        let (report, nodes) = (Report::default(), 0);
        let mut cleaner = Cleaner { sanitiser: &self.sanitiser, escape, report, nodes, quiet };
        let limit = spec.max_response_bytes.saturating_mul(2);
        let mut edits = Edits::new(tape.source(), limit);
        let marks = self
            .clean_members(&mut cleaner, &mut edits, tape.root(), (spec.result, self.text_json_for(spec)))
            .map_err(|fault| refused(spec, fault, limit))?;
        let mut report = cleaner.report;
        let json = match edits.finish() {
            None => text.clone(),
            // And again, where a marker may have stood between two halves of one.
            Some(changed) => {
                let changed = String::from_utf8(changed).map_err(|_| misshapen(spec, "not UTF-8"))?;
                match self.redacted_json(&changed) {
                    None => Bytes::from(changed),
                    Some((redacted, found)) => {
                        report.redactions += found as usize;
                        Bytes::from(redacted)
                    }
                }
            }
        };
        Ok(SafeResult {
            json,
            result_type,
            is_error: false,
            has_other_structured: false,
            dropped_structured: false,
            escape,
            report,
            marks,
        })
    }

    fn clean_members(
        &self,
        cleaner: &mut Cleaner<'_>,
        edits: &mut Edits<'_>,
        result: View<'_, '_>,
        (kind, text_json): (ResultKind, TextJson),
    ) -> Result<Vec<(usize, BlockMark)>, Fault> {
        if result.kind() != Kind::Object {
            return Err(Fault::Shape("the result is not an object"));
        }
        let mut marks = Vec::new();
        for (name, value) in result.members() {
            match name.text().as_ref() {
                "content" if kind == ResultKind::Tool => {
                    let blocks = blocks::list(value, "content is not an array")?;
                    marks = blocks::clean(cleaner, edits, &blocks, text_json)?;
                }
                // PRO-68: a server's state is shown to nobody and goes back to it byte for byte.
                "isError" | "resultType" | "requestState" => {}
                "inputRequests" => pages::clean_questions(cleaner, edits, value)?,
                "contents" if kind == ResultKind::Resource => blocks::clean_contents(cleaner, edits, value)?,
                "messages" if kind == ResultKind::Prompt => {
                    blocks::clean_messages(cleaner, edits, value, text_json)?;
                }
                _ => clean_member(cleaner, edits, name, value)?,
            }
        }
        Ok(marks)
    }
}

/// Reads a result, within the caps for results.
pub(crate) fn read<'s>(spec: &ToolSpec, text: &'s Bytes) -> Result<Tape<'s>, GauntletError> {
    let source = std::str::from_utf8(text).map_err(|_| misshapen(spec, "not UTF-8"))?;
    Tape::read_result(source).map_err(|fault| refused(spec, fault, spec.max_response_bytes))
}

/// Whether nothing in a result could be read in two ways, but for what is in `exempt`.
pub(crate) fn sound(
    spec: &ToolSpec,
    tape: &Tape<'_>,
    exempt: Option<View<'_, '_>>,
) -> Result<(), GauntletError> {
    tape.flaw(exempt).map_or(Ok(()), |reason| Err(misshapen(spec, reason)))
}

/// Whether the structured content is what it should be (GNT-P2 to P5).
fn judge(spec: &ToolSpec, shape: &Shape<'_, '_>) -> Result<(), GauntletError> {
    let is_object = |structured: View<'_, '_>| structured.kind() == Kind::Object;
    match (&spec.output, shape.structured) {
        (None, None) => Ok(()),
        (None, Some(structured)) if is_object(structured) => Ok(()),
        (None, Some(_)) => Err(GauntletError::NonObjectOutput { tool: spec.tool.clone() }),
        (Some(_), None) if shape.is_error => Ok(()),
        (Some(_), None) => {
            let violations = SchemaViolations::at_root("required", "structured content is missing");
            Err(GauntletError::Output { tool: spec.tool.clone(), violations })
        }
        // GNT-P3: only since 2026-07-28 may a structured result be anything but an object.
        (Some(_), Some(structured)) if !is_object(structured) && !spec.any_root => {
            Err(GauntletError::NonObjectOutput { tool: spec.tool.clone() })
        }
        (Some(schema), Some(structured)) => fit(spec, schema, structured),
    }
}

fn fit(spec: &ToolSpec, schema: &CompiledSchema, structured: View<'_, '_>) -> Result<(), GauntletError> {
    let tool = || spec.tool.clone();
    schema.validate_read(structured).map_err(|violations| {
        // A root type that was not declared is a shape, not a detail.
        if violations.budget_exceeded {
            GauntletError::OutputBudget { tool: tool() }
        } else if structured.kind() != Kind::Object {
            GauntletError::NonObjectOutput { tool: tool() }
        } else {
            GauntletError::Output { tool: tool(), violations }
        }
    })
}

fn refused(spec: &ToolSpec, fault: Fault, longest: usize) -> GauntletError {
    let tool = spec.tool.clone();
    let too_large = |limit, unit| GauntletError::OutputTooLarge { tool: tool.clone(), limit, unit };
    match fault {
        Fault::Shape(reason) => misshapen(spec, reason),
        Fault::Key => GauntletError::OutputKey { tool: Some(tool) },
        Fault::Unstable => GauntletError::SanitizeUnstable { tool: Some(tool) },
        Fault::TooLarge => too_large(longest, "bytes once it is safe to show"),
        Fault::TooManyNodes => too_large(MAX_NODES, "values"),
        Fault::TooManyBlocks => too_large(MAX_BLOCKS, "content blocks"),
        Fault::KeyTooLong => too_large(MAX_KEY_BYTES, "bytes in one member name"),
        Fault::TooDeep => GauntletError::OutputTooDeep { tool, limit: MAX_DEPTH },
    }
}

pub(crate) fn misshapen(spec: &ToolSpec, reason: &'static str) -> GauntletError {
    GauntletError::Shape { tool: spec.tool.clone(), reason }
}
