//! Where secrets are taken out of what servers send (CTX-42).
//!
//! What a secret looks like is not known here; whoever sets the gauntlet up brings somebody who knows. What is known
//! here is when to ask: before texts are cleaned, and again where cleaning changed something, because two halves of a
//! secret may have had a marker between them.

use std::borrow::Cow;
use std::fmt;

/// Somebody who knows secrets when he sees them.
pub trait Redact: fmt::Debug + Send + Sync {
    /// A text without secrets, and how many there were.
    fn text<'t>(&self, text: &'t str) -> (Cow<'t, str>, u64);

    /// A JSON text without secrets in its strings and names, and how many there were; `None` if there were none. The
    /// members `kept` of the outermost object stay as they are.
    fn json(&self, json: &str, kept: &[&str]) -> Option<(String, u64)>;
}
