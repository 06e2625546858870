//! Why an admin call was refused or failed. Nothing was changed, unless it says so.

use std::sync::Arc;

use portcullis_core::ErrorCode;
use portcullis_core::scrub::scrub;
use portcullis_gateway::{Control, ControlError};

use crate::context::Context;
use crate::envelope::DomainCode;

/// The longest text of a failure, in characters.
const LONGEST: usize = 512;

/// Which guardrail stopped a call (ADM-50, ADM-54).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// Nobody could say who asks.
    MissingActor,
    /// No `confirm: true`.
    MissingConfirm,
    /// No reason that a person could see.
    MissingReason,
    /// One person would approve its own request.
    SelfApproval,
}

impl Violation {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Violation::MissingActor => "missing_actor",
            Violation::MissingConfirm => "missing_confirm",
            Violation::MissingReason => "missing_reason",
            Violation::SelfApproval => "self_approval",
        }
    }

    fn message(self) -> &'static str {
        match self {
            Violation::MissingActor => "Admin operation requires an identified actor",
            Violation::MissingConfirm => "Admin operation requires 'confirm': true",
            Violation::MissingReason => "Admin operation requires a non-blank 'reason'",
            Violation::SelfApproval => "Admin operation requires another operator than the one who asked",
        }
    }
}

/// Why a call was refused or failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", self.message())]
pub struct AdminError {
    what: What,
    text: String,
    context: Context,
    /// What the control plane said, for surfaces that show more of it than an envelope does.
    cause: Option<Arc<ControlError>>,
    /// Where in the arguments, `dotted.loc`, for the log; never a value.
    locations: Vec<String>,
    /// Where arguments became no values, if that is what happened.
    boundary: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Argument,
    Guardrail(Violation),
    NotFound,
    Conflict,
    NotWired,
    CapabilityGap,
    Unavailable,
    Failure,
}

impl AdminError {
    /// Arguments that are not acceptable; `complaints` as `dotted.loc: text`.
    pub(crate) fn arguments(complaints: &[(String, String)]) -> Self {
        let text = complaints.iter().map(|(loc, text)| format!("{loc}: {text}")).collect::<Vec<_>>();
        let locations = complaints.iter().map(|(loc, _)| loc.clone()).collect();
        Self { locations, ..Self::new(What::Argument, text.join("; ")) }
    }

    /// One argument that is not acceptable.
    pub fn argument(field: &str, text: impl Into<String>) -> Self {
        Self::arguments(&[(field.to_owned(), text.into())])
    }

    /// The arguments are no object at all.
    pub(crate) fn not_an_object(kind: &str) -> Self {
        let text = format!("arguments must be a JSON object, got {kind}");
        Self { locations: vec!["<arguments>".into()], ..Self::new(What::Argument, text) }
    }

    /// A guardrail stopped it.
    pub fn guardrail(violation: Violation) -> Self {
        Self::new(What::Guardrail(violation), violation.message().to_owned())
    }

    /// Absent, or not for this actor to see.
    pub fn not_found(text: impl Into<String>) -> Self {
        Self::new(What::NotFound, text.into())
    }

    /// Wrong state, stale version, lost race.
    pub fn conflict(text: impl Into<String>) -> Self {
        Self::new(What::Conflict, text.into())
    }

    pub(crate) fn not_wired(reason: &str) -> Self {
        Self::new(What::NotWired, reason.to_owned())
    }

    /// Wired, but the backend in use cannot do it.
    pub fn capability_gap(reason: impl Into<String>) -> Self {
        Self::new(What::CapabilityGap, reason.into())
    }

    /// The log or the store cannot take the operation; nothing changed.
    pub fn unavailable(text: impl Into<String>) -> Self {
        Self::new(What::Unavailable, text.into())
    }

    /// Anything else.
    pub fn failure(text: impl Into<String>) -> Self {
        Self::new(What::Failure, text.into())
    }

    fn new(what: What, text: String) -> Self {
        Self { what, text, context: Context::default(), cause: None, locations: Vec::new(), boundary: None }
    }

    /// The same, with ids for the log.
    #[must_use]
    pub fn with(mut self, context: Context) -> Self {
        self.context = context;
        self
    }

    /// The same, said at a boundary.
    pub(crate) fn at(mut self, boundary: &'static str) -> Self {
        self.boundary = Some(boundary);
        self
    }

    pub(crate) fn boundary(&self) -> Option<&'static str> {
        self.boundary
    }

    /// What a program reads.
    pub fn code(&self) -> DomainCode {
        match self.what {
            What::Argument => DomainCode::InvalidArgument,
            What::Guardrail(_) => DomainCode::GuardrailViolated,
            What::NotFound => DomainCode::NotFound,
            What::Conflict => DomainCode::Conflict,
            What::NotWired | What::CapabilityGap => DomainCode::NotSupported,
            What::Unavailable => DomainCode::Unavailable,
            What::Failure => DomainCode::HandlerFailure,
        }
    }

    /// The kind of the failure, for people who look for it.
    pub fn error_type(&self) -> &'static str {
        match self.what {
            What::Argument => "ArgumentValidationError",
            What::Guardrail(_) => "GuardrailViolationError",
            What::NotFound => "NotFoundError",
            What::Conflict => "ConflictError",
            What::NotWired | What::CapabilityGap => "NotSupportedInMCP",
            What::Unavailable => "UnavailableError",
            What::Failure => "HandlerError",
        }
    }

    /// Which guardrail, where one stopped it.
    pub fn violation(&self) -> Option<Violation> {
        match self.what {
            What::Guardrail(violation) => Some(violation),
            _ => None,
        }
    }

    /// What people read: scrubbed, then named, then cut (ADM-61).
    pub fn message(&self) -> String {
        let scrubbed = scrub(&self.text);
        let named = match self.what {
            What::NotFound | What::Conflict | What::Unavailable | What::Failure => {
                format!("{}: {scrubbed}", self.error_type())
            }
            _ => scrubbed.into_owned(),
        };
        match named.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}...[truncated]", &named[..end]),
            None => named,
        }
    }

    /// The same without any credential that the gateway keeps (admin §8, shape 6).
    pub(crate) fn masked(mut self, control: &Control) -> Self {
        self.text = control.masked(&self.text);
        self.context = self.context.masked(|value| control.masked(value));
        self.locations = self.locations.iter().map(|place| control.masked(place)).collect();
        self.cause = self.cause.map(|cause| Arc::new(control.masked_error(&cause)));
        self
    }

    /// What the control plane said, where it refused.
    pub fn cause(&self) -> Option<&ControlError> {
        self.cause.as_deref()
    }

    /// What people read, without the kind in front of it.
    pub fn plain_message(&self) -> String {
        let whole = self.message();
        let kind = format!("{}: ", self.error_type());
        whole.strip_prefix(&kind).map_or(whole.clone(), str::to_owned)
    }

    pub(crate) fn is_capability_gap(&self) -> bool {
        self.what == What::CapabilityGap
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn locations(&self) -> &[String] {
        &self.locations
    }
}

impl From<ControlError> for AdminError {
    fn from(error: ControlError) -> Self {
        let message = error.message.clone();
        let mapped = match error.code {
            _ if error.is_blocked() => Self::unavailable(message),
            ErrorCode::Validation | ErrorCode::ArgsInvalid => {
                Self::argument(error.field.as_deref().unwrap_or("<arguments>"), message)
            }
            ErrorCode::NotFound | ErrorCode::ViewFailed => Self::not_found(message),
            ErrorCode::Conflict => Self::conflict(message),
            _ => Self::failure(message),
        };
        Self { cause: Some(Arc::new(error)), ..mapped }
    }
}

impl From<portcullis_audit::AuditBlocked> for AdminError {
    fn from(portcullis_audit::AuditBlocked { reason }: portcullis_audit::AuditBlocked) -> Self {
        Self::unavailable(format!("evidence cannot be made durable, so nothing was changed: {reason}"))
    }
}

impl From<portcullis_audit::AuditError> for AdminError {
    fn from(error: portcullis_audit::AuditError) -> Self {
        Self::failure(format!("the evidence cannot be read: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_scrubbed_then_named_then_cut() {
        // ADM-61, SO-30
        let error = AdminError::failure(format!("password=hunter2 {}", "x".repeat(2000)));
        let message = error.message();
        assert!(message.starts_with("HandlerError: password=*** xxx"), "{message}");
        assert!(message.ends_with("...[truncated]"));
        assert_eq!(message.chars().count(), LONGEST + "...[truncated]".len());
        assert!(AdminError::failure("x".repeat(70_000)).message() == "HandlerError: [redacted]");
    }

    #[test]
    fn complaints_are_joined_and_their_places_kept() {
        // ADM-21
        let complaints = [
            ("limit".to_owned(), "must be <= 500".to_owned()),
            ("bogus".to_owned(), "unknown field".to_owned()),
        ];
        let error = AdminError::arguments(&complaints);
        assert_eq!(error.message(), "limit: must be <= 500; bogus: unknown field");
        assert_eq!(error.locations(), ["limit", "bogus"]);
    }
}
