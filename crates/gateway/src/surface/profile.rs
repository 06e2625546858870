//! What a client can take (SURF-60): numbers, as users of those clients report them, and none of them in logic.

use portcullis_context::bound::{Detail, LongStructure, LongText};
use serde::Deserialize;

use crate::shaping::bounds::ResultOptions;

/// What a list is measured against, and how a client cuts what it gets.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Profile {
    pub name: String,
    pub instructions_max_chars: usize,
    pub instructions_prefix_chars: usize,
    pub instructions_visible: bool,
    pub description_max_chars: usize,
    pub tool_name_max_chars: usize,
    pub tools_max_count: usize,
    pub tools_total_bytes: usize,
    /// Of names, descriptions and input schemas.
    pub tools_total_tokens: usize,
    pub result_max_tokens: Option<usize>,
    /// Whether an error document is also structured content (SURF-82).
    pub error_structured: bool,
    /// Whether search and fetch of records answer in the form of documents.
    pub openai_documents: bool,
    /// How results are held to a size where tools are called directly (SURF-71).
    pub results: ResultOptions,
}

/// What a profile of the operator's changes of its base.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct Overrides {
    pub base: Option<String>,
    pub instructions_max_chars: Option<usize>,
    pub instructions_prefix_chars: Option<usize>,
    pub instructions_visible: Option<bool>,
    pub description_max_chars: Option<usize>,
    pub tool_name_max_chars: Option<usize>,
    pub tools_max_count: Option<usize>,
    pub tools_total_bytes: Option<usize>,
    pub tools_total_tokens: Option<usize>,
    pub result_max_tokens: Option<usize>,
    pub error_structured: Option<bool>,
    pub openai_documents: Option<bool>,
    pub content_bytes: Option<usize>,
    pub structured_bytes: Option<usize>,
    pub content_on_over: Option<LongText>,
    pub structured_on_over: Option<LongStructure>,
    pub result_detail: Option<Detail>,
}

impl Profile {
    /// The names of the built-in ones.
    pub const BUILT_IN: [&'static str; 4] = ["strict", "codex", "claude-code", "chatgpt"];

    /// A built-in one.
    pub fn built_in(name: &str) -> Option<Self> {
        let (chars, count, bytes, tokens, result, documents) = match name {
            "strict" => (2_048, 128, 24_576, 5_000, Some(10_000), false),
            "codex" => (4_096, 128, 98_304, 20_000, Some(10_000), false),
            "claude-code" => (2_048, 512, 98_304, 20_000, Some(25_000), false),
            "chatgpt" => (4_096, 128, 65_536, 16_000, None, true),
            _ => return None,
        };
        Some(Self {
            name: name.to_owned(),
            instructions_max_chars: chars,
            instructions_prefix_chars: 512,
            instructions_visible: true,
            description_max_chars: chars,
            tool_name_max_chars: 64,
            tools_max_count: count,
            tools_total_bytes: bytes,
            tools_total_tokens: tokens,
            result_max_tokens: result,
            error_structured: true,
            openai_documents: documents,
            results: ResultOptions::default(),
        })
    }

    /// This one with another name and what is overridden.
    #[must_use]
    pub fn with(self, name: &str, over: &Overrides) -> Self {
        Self {
            name: name.to_owned(),
            instructions_max_chars: over.instructions_max_chars.unwrap_or(self.instructions_max_chars),
            instructions_prefix_chars: over
                .instructions_prefix_chars
                .unwrap_or(self.instructions_prefix_chars),
            instructions_visible: over.instructions_visible.unwrap_or(self.instructions_visible),
            description_max_chars: over.description_max_chars.unwrap_or(self.description_max_chars),
            tool_name_max_chars: over.tool_name_max_chars.unwrap_or(self.tool_name_max_chars),
            tools_max_count: over.tools_max_count.unwrap_or(self.tools_max_count),
            tools_total_bytes: over.tools_total_bytes.unwrap_or(self.tools_total_bytes),
            tools_total_tokens: over.tools_total_tokens.unwrap_or(self.tools_total_tokens),
            result_max_tokens: over.result_max_tokens.or(self.result_max_tokens),
            error_structured: over.error_structured.unwrap_or(self.error_structured),
            openai_documents: over.openai_documents.unwrap_or(self.openai_documents),
            results: ResultOptions {
                content_bytes: over.content_bytes,
                structured_bytes: over.structured_bytes,
                content_on_over: over.content_on_over,
                structured_on_over: over.structured_on_over,
                result_detail: over.result_detail,
                rows: None,
            }
            .or(&self.results),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_is_the_least_of_all() {
        // SURF-60
        let strict = Profile::built_in("strict").unwrap();
        for name in Profile::BUILT_IN {
            let other = Profile::built_in(name).unwrap();
            assert!(strict.tools_total_bytes <= other.tools_total_bytes, "{name}");
            assert!(strict.tools_total_tokens <= other.tools_total_tokens, "{name}");
            assert!(strict.instructions_max_chars <= other.instructions_max_chars, "{name}");
            assert!(strict.tools_max_count <= other.tools_max_count, "{name}");
        }
        let over = Overrides { tools_total_bytes: Some(40_000), ..Overrides::default() };
        let own = strict.with("mine", &over);
        assert_eq!(
            (own.tools_total_bytes, own.tools_total_tokens, own.name.as_str()),
            (40_000, 5_000, "mine")
        );
    }
}
