//! A JSON Schema, measured, compiled once and shared.
//!
//! Compilation happens when a tool is bound, never when it is called: a schema that cannot be used is a fact
//! about the server's declaration, and finding it out in the middle of a call would be too late (GNT-S1). The
//! survey runs first, so that the compiler only meets documents whose size and shape are already bounded.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, FancyRegex, PatternOptions};
use portcullis_core::Sha256Digest;
use portcullis_core::canon;
use serde_json::Value;

use crate::survey::{self, Survey};
use crate::tape::View;
use crate::validator::{self, Effort, Exhausted, Instance, Validator};
use crate::violations::SchemaViolations;
use crate::{GauntletError, advertised};

/// GNT-S6: steps a pattern with look-around or back-references may take. Others run on a linear engine.
const BACKTRACK_STEPS: usize = 100_000;
/// GNT-S4: how large one compiled pattern may be.
const COMPILED_PATTERN_BYTES: usize = 1 << 20;

/// Which side of a call a schema describes. It decides what an error may say: a caller's own keys may be
/// shown to the caller, a server's keys may not (GNT-S10, GNT-S11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaRole {
    /// The arguments.
    Input,
    /// The structured result.
    Output,
}

/// A schema ready to validate with. Cloning shares it.
#[derive(Clone)]
pub struct CompiledSchema(Arc<Parts>);

struct Parts {
    role: SchemaRole,
    source: Value,
    digest: Sha256Digest,
    meaning: Arc<Meaning>,
}

/// What every schema with the same canonical text has in common, whoever declared it (GNT-S1).
#[derive(Debug)]
struct Meaning {
    validator: Validator,
    survey: Survey,
}

/// The schemas in use, so that a server that is registered again, or a second one of its kind, compiles nothing.
static IN_USE: LazyLock<Mutex<HashMap<Sha256Digest, Weak<Meaning>>>> = LazyLock::new(Mutex::default);

impl Meaning {
    /// The meaning of a schema whose canonical text is `text`: shared if it is in use, else worked out.
    fn of(schema: &Value, text: &[u8], digest: Sha256Digest) -> Result<Arc<Self>, GauntletError> {
        let in_use = || IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = in_use().get(&digest).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let meaning = Arc::new(Self::compile(schema, text.len())?);
        let mut in_use = in_use();
        in_use.retain(|_, meaning| meaning.strong_count() > 0);
        in_use.insert(digest, Arc::downgrade(&meaning));
        Ok(meaning)
    }

    fn compile(schema: &Value, bytes: usize) -> Result<Self, GauntletError> {
        let dialect = survey::dialect(schema)?;
        let (survey, document) = survey::survey(schema, bytes)?;
        // Whether it means anything is not for us to say.
        jsonschema::options()
            .with_draft(dialect)
            .offline()
            .should_validate_formats(false)
            .without_content_media_type_support("application/json")
            .without_content_encoding_support("base64")
            .with_pattern_options(pattern_options())
            .build(schema)
            .map_err(|error| refusal(&error))?;
        let validator = validator::compile(&document, dialect)?;
        // Last, because a schema that means nothing is refused for that.
        advertised::check(schema)?;
        Ok(Self { validator, survey })
    }
}

impl CompiledSchema {
    /// Measures, checks and compiles `schema`.
    ///
    /// ```
    /// use portcullis_gauntlet::{CompiledSchema, SchemaRole};
    /// use serde_json::json;
    /// let schema = CompiledSchema::compile(
    ///     &json!({"type": "object", "properties": {"text": {"type": "string"}}}),
    ///     SchemaRole::Input,
    /// ).unwrap();
    /// let violations = schema.validate(&json!({"text": 123})).unwrap_err();
    /// assert_eq!(violations.schema_path(), "/text");
    /// assert_eq!(violations.errors[0].message, "expected string");
    /// ```
    pub fn compile(schema: &Value, role: SchemaRole) -> Result<Self, GauntletError> {
        let describes_an_object = schema.get("type").is_some_and(|t| t == "object");
        if !schema.is_object() || (role == SchemaRole::Input && !describes_an_object) {
            return Err(GauntletError::ToolSchema);
        }
        let text =
            canon::to_jcs(schema).map_err(|_| GauntletError::uncompilable("", "not a JSON document"))?;
        let digest = Sha256Digest::of(&text);
        let meaning = Meaning::of(schema, text.as_ref(), digest)?;
        Ok(Self(Arc::new(Parts { role, source: schema.clone(), digest, meaning })))
    }

    /// Whether `instance` fits; if not, what is wrong with it. Gives up, and refuses, when the budget of one validation
    /// is used up (GNT-S5).
    pub fn validate(&self, instance: &Value) -> Result<(), SchemaViolations> {
        self.judge(instance, || Cow::Borrowed(instance))
    }

    /// The same for a value that stands in a text.
    pub(crate) fn validate_read(&self, instance: View<'_, '_>) -> Result<(), SchemaViolations> {
        self.judge(instance, || Cow::Owned(instance.value()))
    }

    fn judge<'i, 'v>(
        &self,
        instance: impl Instance<'i>,
        value: impl FnOnce() -> Cow<'v, Value>,
    ) -> Result<(), SchemaViolations> {
        let mut effort = Effort::default();
        // The yes-or-no question is several times cheaper than collecting errors, and the answer is mostly yes.
        match self.0.meaning.validator.is_valid(instance, &mut effort) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.explained(&value(), &mut effort)),
            Err(Exhausted) => Err(SchemaViolations::given_up()),
        }
    }

    fn explained(&self, instance: &Value, effort: &mut Effort) -> SchemaViolations {
        let Parts { role, meaning, .. } = &*self.0;
        let explain = |found: &mut dyn FnMut(_)| meaning.validator.explain(instance, effort, found);
        SchemaViolations::collect(explain, *role, &meaning.survey)
    }

    /// The SHA-256 of the schema's canonical text.
    pub fn digest(&self) -> Sha256Digest {
        self.0.digest
    }

    /// Which side of a call this describes.
    pub fn role(&self) -> SchemaRole {
        self.0.role
    }

    /// Whether the schema says `object` and admits no member it does not name.
    pub fn is_closed_object(&self) -> bool {
        let says = |key: &str, value: &Value| self.0.source.get(key) == Some(value);
        says("type", &Value::from("object"))
            && (says("additionalProperties", &Value::Bool(false))
                || says("unevaluatedProperties", &Value::Bool(false)))
    }

    /// The schema as declared.
    pub fn source(&self) -> &Value {
        &self.0.source
    }
}

impl fmt::Debug for CompiledSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompiledSchema({:?}, {})", self.0.role, self.0.digest)
    }
}

/// How patterns are run: on a linear engine where one can, within a number of steps where none can (GNT-S6).
pub(crate) fn pattern_options() -> PatternOptions<FancyRegex> {
    PatternOptions::fancy_regex().backtrack_limit(BACKTRACK_STEPS).size_limit(COMPILED_PATTERN_BYTES)
}

/// What the compiler's refusal means to us. Its own text may quote the schema and is not passed on.
fn refusal(error: &jsonschema::ValidationError<'_>) -> GauntletError {
    let pointer = error.instance_path().as_str();
    match error.kind() {
        ValidationErrorKind::Referencing(jsonschema::ReferencingError::Unretrievable { .. }) => {
            GauntletError::ExternalReference { pointer: pointer.to_owned() }
        }
        ValidationErrorKind::Referencing(_) => GauntletError::uncompilable(pointer, "dangling-ref"),
        kind => GauntletError::uncompilable(pointer, kind.keyword()),
    }
}

/// The dialects honoured (GNT-S2), by the address in `$schema` without a trailing `#`.
pub(crate) fn dialect_named(address: &str) -> Option<Draft> {
    match address.strip_suffix('#').unwrap_or(address) {
        "https://json-schema.org/draft/2020-12/schema" => Some(Draft::Draft202012),
        "https://json-schema.org/draft/2019-09/schema" => Some(Draft::Draft201909),
        "http://json-schema.org/draft-07/schema" => Some(Draft::Draft7),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_schema_is_compiled_once_while_it_is_in_use() {
        // GNT-S1
        let compile = |schema: &Value, role| CompiledSchema::compile(schema, role).unwrap();
        let schema = json!({"type": "object", "properties": {"once": {"type": "string"}}});
        let first = compile(&schema, SchemaRole::Input);
        let again = compile(&schema, SchemaRole::Output);
        assert!(Arc::ptr_eq(&first.0.meaning, &again.0.meaning));
        assert_eq!((first.role(), again.role()), (SchemaRole::Input, SchemaRole::Output));
        let digest = first.digest();
        drop((first, again));
        let in_use = || IN_USE.lock().unwrap().get(&digest).and_then(Weak::upgrade).is_some();
        assert!(!in_use(), "what nobody uses is not kept");
        let other = compile(&json!({"type": "object"}), SchemaRole::Input);
        assert!(!IN_USE.lock().unwrap().contains_key(&digest), "and forgotten with the next one");
        drop(other);
    }
}
