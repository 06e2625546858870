//! What a log line about a failure says besides: ids, numbers and words, never free text (admin §9).

use std::fmt;

/// A typed list for one log line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Context(Vec<(&'static str, String)>);

impl Context {
    /// Adds one; the value is scrubbed, whatever it is.
    #[must_use]
    pub fn and(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        self.0.push((key, portcullis_core::scrub::scrub(&value.to_string()).into_owned()));
        self
    }

    /// The same with every value as `mask` leaves it.
    pub(crate) fn masked(self, mask: impl Fn(&str) -> String) -> Self {
        Self(self.0.into_iter().map(|(key, value)| (key, mask(&value))).collect())
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (key, value)) in self.0.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            write!(f, "{space}{key}={value}")?;
        }
        Ok(())
    }
}

/// Ids, numbers and words for a log line: `ctx! { server_id, attempts: 3 }`.
///
/// Keys that the line has already, and keys that sound like a credential, do not compile:
///
/// ```
/// let server_id = "filesystem";
/// let context = portcullis_admin::ctx! { server_id, attempts: 3 };
/// assert_eq!(context.to_string(), "server_id=filesystem attempts=3");
/// ```
/// ```compile_fail
/// let error = "x";
/// portcullis_admin::ctx! { error };
/// ```
/// ```compile_fail
/// let api_key = "x";
/// portcullis_admin::ctx! { api_key };
/// ```
#[macro_export]
macro_rules! ctx {
    (@key tool_name) => { compile_error!("`tool_name` is in every line already") };
    (@key error_type) => { compile_error!("`error_type` is in every line already") };
    (@key error) => { compile_error!("`error` is in every line already") };
    (@key event) => { compile_error!("`event` is in every line already") };
    (@key log_level) => { compile_error!("`log_level` is in every line already") };
    (@key password) => { compile_error!("a credential does not belong in a log") };
    (@key passphrase) => { compile_error!("a credential does not belong in a log") };
    (@key secret) => { compile_error!("a credential does not belong in a log") };
    (@key token) => { compile_error!("a credential does not belong in a log") };
    (@key access_token) => { compile_error!("a credential does not belong in a log") };
    (@key refresh_token) => { compile_error!("a credential does not belong in a log") };
    (@key api_key) => { compile_error!("a credential does not belong in a log") };
    (@key private_key) => { compile_error!("a credential does not belong in a log") };
    (@key credential) => { compile_error!("a credential does not belong in a log") };
    (@key credentials) => { compile_error!("a credential does not belong in a log") };
    (@key authorization) => { compile_error!("a credential does not belong in a log") };
    (@key cookie) => { compile_error!("a credential does not belong in a log") };
    (@key bearer) => { compile_error!("a credential does not belong in a log") };
    (@key $key:ident) => { stringify!($key) };
    (@value $key:ident) => { &$key };
    (@value $key:ident $value:expr) => { &$value };
    ($($key:ident $(: $value:expr)?),* $(,)?) => {
        $crate::context::Context::default()$(.and($crate::ctx!(@key $key), $crate::ctx!(@value $key $($value)?)))*
    };
}
