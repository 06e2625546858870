//! One call: how it is written in either era, and whether its answer is a success.

use clap::ValueEnum;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// Which era the load generator speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Revision {
    /// 2025-11-25, with `initialize`.
    Legacy,
    /// 2026-07-28, with `_meta` in every request.
    Modern,
}

pub(crate) const MODERN_VERSION: &str = "2026-07-28";
const META: &str = concat!(
    r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
    r#""io.modelcontextprotocol/clientCapabilities":{},"#,
    r#""io.modelcontextprotocol/clientInfo":{"name":"bench-peer","version":"1.0.0"}}"#
);
pub(crate) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// A tool call, ready but for its id.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) tool: String,
    pub(crate) revision: Revision,
    /// Everything after the id.
    tail: String,
}

impl Call {
    /// `arguments` must be a JSON object.
    pub(crate) fn new(tool: &str, arguments: &str, revision: Revision) -> Result<Self, serde_json::Error> {
        let arguments: &RawValue = serde_json::from_str(arguments)?;
        let name = serde_json::to_string(tool)?;
        let meta = if revision == Revision::Modern { format!(",{META}") } else { String::new() };
        let tail =
            format!(r#","method":"tools/call","params":{{"name":{name},"arguments":{arguments}{meta}}}}}"#);
        Ok(Self { tool: tool.to_owned(), revision, tail })
    }

    pub(crate) fn with_id(&self, id: u64) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id}{}"#, self.tail)
    }
}

/// The opening of the legacy era.
pub(crate) fn initialize(id: u64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{{"protocolVersion":"2025-11-25","capabilities":{{}},"clientInfo":{{"name":"bench-peer","version":"1.0.0"}}}}}}"#
    )
}

#[derive(Deserialize)]
struct Answer {
    result: Option<Outcome>,
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    #[serde(default)]
    is_error: bool,
    result_type: Option<String>,
}

/// Whether the answer is the result of a call that worked; else what came instead.
pub(crate) fn check(answer: &[u8]) -> Result<(), String> {
    let parsed: Result<Answer, _> = serde_json::from_slice(answer);
    match parsed {
        Ok(Answer { result: Some(outcome), error: None })
            if !outcome.is_error && outcome.result_type.as_deref().is_none_or(|kind| kind == "complete") =>
        {
            Ok(())
        }
        _ => Err(String::from_utf8_lossy(&answer[..answer.len().min(400)]).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_call_is_valid_json_in_either_era() {
        for revision in [Revision::Legacy, Revision::Modern] {
            let call = Call::new("a\"b", r#"{"text":"x"}"#, revision).unwrap();
            let message: Value = serde_json::from_str(&call.with_id(7)).unwrap();
            assert_eq!((&message["id"], &message["params"]["name"]), (&7.into(), &"a\"b".into()));
            assert_eq!(message["params"]["_meta"].is_object(), revision == Revision::Modern);
        }
        assert!(serde_json::from_str::<Value>(&initialize(1)).is_ok());
        assert!(Call::new("echo", "{", Revision::Legacy).is_err());
    }

    #[test]
    fn only_a_complete_result_without_an_error_counts() {
        assert!(check(br#"{"id":1,"result":{"content":[]}}"#).is_ok());
        assert!(check(br#"{"id":1,"result":{"content":[],"resultType":"complete"}}"#).is_ok());
        for bad in [
            r#"{"id":1,"result":{"isError":true}}"#,
            r#"{"id":1,"result":{"resultType":"input_required"}}"#,
            r#"{"id":1,"error":{"code":1}}"#,
            "nonsense",
            "",
        ] {
            assert!(check(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
