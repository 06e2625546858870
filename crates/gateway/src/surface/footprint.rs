//! What a list costs the client that reads it (SURF-50): bytes and tokens of what is served, exactly.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use portcullis_core::tokens::Encoding;
use serde::Serialize;

use super::duplicates;
use super::offered::Offered;
use super::profile::Profile;

/// Bytes and tokens of one text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Size {
    pub bytes: usize,
    pub cl100k: usize,
    pub o200k: usize,
}

impl Size {
    /// Of a text.
    pub fn of(text: &str) -> Self {
        Self { bytes: text.len(), cl100k: Encoding::Cl100k.count(text), o200k: Encoding::O200k.count(text) }
    }
}

/// A list, measured.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct Footprint {
    pub tools: Whole,
    pub servers: Vec<OfServer>,
    pub per_tool: Vec<OfTool>,
}

/// The list as one text.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct Whole {
    pub count: usize,
    #[serde(flatten)]
    pub size: Size,
    /// Names, descriptions and input schemas alone: what is left by clients that show a model no more.
    pub name_desc_input: Size,
}

/// One server's part.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct OfServer {
    pub name: String,
    pub tools: usize,
    pub bytes: usize,
    pub verbatim_dup_bytes: usize,
    pub sentence_dup_bytes: usize,
}

/// One tool's part.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct OfTool {
    pub name: String,
    pub server: String,
    pub bytes: usize,
    pub o200k: usize,
    pub parts: Parts,
}

/// Bytes by member: value, key and punctuation between them are `rest`.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct Parts {
    pub name: usize,
    pub title: usize,
    pub description: usize,
    pub input_schema: usize,
    pub output_schema: usize,
    pub annotations: usize,
    pub rest: usize,
}

/// The list as served.
pub fn list_text(tools: &[Offered]) -> String {
    listed(tools, |tool, list| list.push_str(tool.text()))
}

/// The list as clients see it that show a model names, descriptions and input schemas only.
fn narrow_text(tools: &[Offered]) -> String {
    listed(tools, |tool, list| {
        list.push('{');
        let members = ["name", "description", "inputSchema"];
        let there = members.iter().filter_map(|member| Some((member, tool.member(member)?)));
        for (at, (member, value)) in there.enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let _ = write!(list, "{comma}\"{member}\":{value}");
        }
        list.push('}');
    })
}

fn listed(tools: &[Offered], write: impl Fn(&Offered, &mut String)) -> String {
    let mut list = String::from("[");
    for (at, tool) in tools.iter().enumerate() {
        if at > 0 {
            list.push(',');
        }
        write(tool, &mut list);
    }
    list.push(']');
    list
}

impl Footprint {
    /// Measures a list.
    pub fn of(tools: &[Offered]) -> Self {
        Self {
            tools: Whole {
                count: tools.len(),
                size: Size::of(&list_text(tools)),
                name_desc_input: Size::of(&narrow_text(tools)),
            },
            servers: OfServer::all(tools),
            per_tool: tools.iter().map(OfTool::of).collect(),
        }
    }
}

impl OfServer {
    /// Every server with tools on a list, by name.
    pub(super) fn all(tools: &[Offered]) -> Vec<Self> {
        let mut by_server: BTreeMap<&str, Vec<&Offered>> = BTreeMap::new();
        for tool in tools {
            by_server.entry(&tool.server).or_default().push(tool);
        }
        let of = |(name, own): (&str, Vec<&Offered>)| {
            let repeated = duplicates::report(own.iter().copied());
            Self {
                name: name.to_owned(),
                tools: own.len(),
                bytes: own.iter().map(|tool| tool.text().len()).sum(),
                verbatim_dup_bytes: repeated.verbatim_dup_bytes,
                sentence_dup_bytes: repeated.sentence_dup_bytes,
            }
        };
        by_server.into_iter().map(of).collect()
    }
}

impl OfTool {
    fn of(tool: &Offered) -> Self {
        let text = tool.text();
        let length = |member: &str| tool.member(member).map_or(0, |value| value.to_string().len());
        let mut parts = Parts {
            name: length("name"),
            title: length("title"),
            description: length("description"),
            input_schema: length("inputSchema"),
            output_schema: length("outputSchema"),
            annotations: length("annotations"),
            rest: 0,
        };
        let known = parts.name + parts.title + parts.description + parts.input_schema + parts.output_schema;
        parts.rest = text.len().saturating_sub(known + parts.annotations);
        Self {
            name: tool.name.clone(),
            server: tool.server.clone(),
            bytes: text.len(),
            o200k: Encoding::O200k.count(text),
            parts,
        }
    }
}

/// Which limit of a profile a list is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Excess {
    /// The profile's field.
    pub limit: &'static str,
    /// What it allows.
    pub allowed: usize,
    /// What there is.
    pub found: usize,
}

/// All limits a list is over. Tokens are counted only where bytes leave a doubt: no token is shorter than a byte.
pub fn excesses(tools: &[Offered], profile: &Profile) -> Vec<Excess> {
    let bytes = tools.iter().map(|tool| tool.text().len() + 1).sum::<usize>() + 1;
    let narrow = narrow_text(tools);
    let tokens = if narrow.len() <= profile.tools_total_tokens { 0 } else { Encoding::O200k.count(&narrow) };
    over(tools, (bytes, tokens), profile)
}

impl Footprint {
    /// All limits that the list it was measured on is over.
    pub(super) fn excesses(&self, tools: &[Offered], profile: &Profile) -> Vec<Excess> {
        over(tools, (self.tools.size.bytes, self.tools.name_desc_input.o200k), profile)
    }
}

fn over(tools: &[Offered], (bytes, tokens): (usize, usize), profile: &Profile) -> Vec<Excess> {
    let longest = tools.iter().map(Offered::longest_description).max().unwrap_or(0);
    let all = [
        ("tools_max_count", profile.tools_max_count, tools.len()),
        ("tools_total_bytes", profile.tools_total_bytes, bytes),
        ("tools_total_tokens", profile.tools_total_tokens, tokens),
        ("description_max_chars", profile.description_max_chars, longest),
    ];
    let over = all.into_iter().filter(|(_, allowed, found)| found > allowed);
    over.map(|(limit, allowed, found)| Excess { limit, allowed, found }).collect()
}
