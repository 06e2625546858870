//! `[surface]`: how lists and instructions are made to fit their clients (SURF §1).

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use portcullis_gateway::shaping::bounds::ResultOptions;
use portcullis_gateway::surface::profile::{Overrides, Profile};
use portcullis_gateway::surface::{Budgeting, Dedup, Listener, Routability, ServerOptions, SurfaceOptions};
use portcullis_gauntlet::Glob;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use crate::failure::Failure;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SurfaceSection {
    /// The profile of clients of which nothing more is known: strict, codex, claude-code, chatgpt, or one of yours.
    profile: Option<String>,
    /// What happens to a list that is too large: report, warn, enforce.
    mode: Budgeting,
    /// When repeated sentences are taken out: never, when-needed, always.
    dedup: Dedup,
    /// In how many tools a sentence must stand for that.
    dedup_min_tools: Option<usize>,
    /// Whether descriptions that lack something are left, reported or put right: off, lint, fix.
    routability: Routability,
    /// The file that `footprint --check` holds the surface against.
    pub(crate) baseline: Option<PathBuf>,
    /// Profiles of agents by who they are: `"agent:ci" = "codex"`. Counts before what a client calls itself.
    principals: BTreeMap<String, String>,
    /// Profiles by where clients come in: `http`, `stdio`. Counts before what a client calls itself.
    listeners: BTreeMap<Listener, String>,
    /// Profiles of clients by what they call themselves; the first that matches counts.
    #[serde(rename = "match")]
    matches: InOrder,
    /// Profiles of yours.
    profiles: BTreeMap<String, Overrides>,
    /// How results of single tools are held to a size: `"<server>/<tool>"`, `*` for any.
    results: BTreeMap<String, ResultOptions>,
    /// What you say of single servers.
    server: BTreeMap<String, ServerOptions>,
}

/// A table whose order counts.
#[derive(Debug, Default)]
struct InOrder(Vec<(String, String)>);

impl<'de> Deserialize<'de> for InOrder {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = InOrder;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of patterns and profiles")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<InOrder, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(InOrder(entries))
            }
        }
        d.deserialize_map(Reader)
    }
}

impl SurfaceSection {
    pub(super) fn options(&self) -> Result<SurfaceOptions, Failure> {
        let mut options = SurfaceOptions {
            mode: self.mode,
            dedup: self.dedup,
            routability: self.routability,
            ..SurfaceOptions::default()
        };
        if let Some(tools) = self.dedup_min_tools {
            options.dedup_min_tools = super::exposure::within("surface.dedup_min_tools", tools, 2..=1_000)?;
        }
        for (name, over) in &self.profiles {
            let field = format!("surface.profiles.{name}");
            if Profile::built_in(name).is_some() {
                let message =
                    format!("{field}: '{name}' is built in; give yours another name, and it as `base`");
                return Err(Failure::field(&field, message));
            }
            let base = over.base.as_deref().unwrap_or("strict");
            let base =
                Profile::built_in(base).ok_or_else(|| unknown(&format!("{field}.base"), base, &options))?;
            let own = base.with(name, over);
            let prefix = own.instructions_prefix_chars;
            if prefix < 512 || own.instructions_max_chars < prefix {
                let message = format!(
                    "{field}: instructions need 512 characters at least, and no more than instructions_max_chars as prefix"
                );
                return Err(Failure::field(&field, message));
            }
            options.profiles.insert(name.clone(), own);
        }
        if let Some(name) = &self.profile {
            known("surface.profile", name, &options)?;
            options.profile.clone_from(name);
        }
        for (principal, name) in &self.principals {
            known(&format!("surface.principals.\"{principal}\""), name, &options)?;
        }
        options.principals.clone_from(&self.principals);
        for (listener, name) in &self.listeners {
            known(&format!("surface.listeners.{listener:?}").to_lowercase(), name, &options)?;
        }
        options.listeners.clone_from(&self.listeners);
        for (pattern, name) in &self.matches.0 {
            let field = format!("surface.match.\"{pattern}\"");
            known(&field, name, &options)?;
            let glob = Glob::parse(pattern)
                .map_err(|problem| Failure::field(&field, format!("{field}: {problem}")))?;
            options.matches.push((glob, name.clone()));
        }
        for (name, server) in &self.server {
            if server.priority > 100 {
                let field = format!("surface.server.{name}.priority");
                return Err(Failure::field(&field, format!("{field} must be 0 to 100")));
            }
        }
        options.servers.clone_from(&self.server);
        Ok(options)
    }
}

impl SurfaceSection {
    /// What is set for results, which are shaped elsewhere.
    pub(super) fn results(&self) -> Result<Vec<(Glob, ResultOptions)>, Failure> {
        let of = |(tools, options): (&String, &ResultOptions)| {
            let field = format!("surface.results.\"{tools}\"");
            let bad = |message: &str| Failure::field(&field, format!("{field}: {message}"));
            let glob = Glob::parse(tools).map_err(&bad)?;
            let small =
                |bytes: Option<usize>| bytes.is_some_and(|bytes| !(256..=(16 << 20)).contains(&bytes));
            if small(options.content_bytes) || small(options.structured_bytes) {
                return Err(bad("content_bytes and structured_bytes must be 256 to 16777216"));
            }
            if options.rows.as_ref().is_some_and(|rows| !rows.is_empty() && !rows.starts_with('/')) {
                return Err(bad("rows must be a pointer, as in /data/items"));
            }
            Ok((glob, options.clone()))
        };
        // What names a tool counts before what names many.
        let mut entries: Vec<_> = self.results.iter().collect();
        entries.sort_by_key(|(tools, _)| tools.contains('*'));
        entries.into_iter().map(of).collect()
    }
}

fn known(field: &str, name: &str, options: &SurfaceOptions) -> Result<(), Failure> {
    if options.profiles.contains_key(name) { Ok(()) } else { Err(unknown(field, name, options)) }
}

fn unknown(field: &str, name: &str, options: &SurfaceOptions) -> Failure {
    let names: Vec<&str> = options.profiles.keys().map(String::as_str).collect();
    Failure::field(field, format!("{field}: there is no profile '{name}'; there are {}", names.join(", ")))
}
