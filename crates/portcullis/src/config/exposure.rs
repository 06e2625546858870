//! `[exposure]`, `[catalog]`, `[search]` and `[browse]`: what clients see of the catalogue (CAT §13).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use portcullis_catalog::namespace::is_namespace;
use portcullis_catalog::{Form, OnExceeded, SchemaLimits, Synonyms};
use portcullis_core::Sha256Digest;
use portcullis_gateway::control::Refresh;
use portcullis_gateway::exposure::{Browsing, Embeddings, ExposureOptions, Filter, Mode};
use portcullis_gauntlet::Glob;
use serde::Deserialize;

use super::{Config, beside};
use crate::failure::Failure;

/// Who is shown what.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ExposureSection {
    /// passthrough, transparent, gateway; auto looks at the client and at how many tools there are.
    pub(crate) mode: ModeWord,
    /// By what clients call themselves.
    clients: BTreeMap<String, Mode>,
}

/// A mode, or that it is to be chosen.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ModeWord {
    /// By the client, and by how many tools there are
    #[default]
    Auto,
    /// Every definition, whole
    Passthrough,
    /// Every name; schemas on request
    Transparent,
    /// A few tools to search and call all others with
    Gateway,
}

impl ModeWord {
    pub(crate) fn mode(self) -> Option<Mode> {
        match self {
            ModeWord::Auto => None,
            ModeWord::Passthrough => Some(Mode::Passthrough),
            ModeWord::Transparent => Some(Mode::Transparent),
            ModeWord::Gateway => Some(Mode::Gateway),
        }
    }
}

/// What becomes an item.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CatalogSection {
    /// Largest schema, serialised.
    schema_max_bytes: Option<usize>,
    /// Deepest schema.
    schema_max_depth: Option<usize>,
    /// Most properties of one schema.
    schema_max_properties: Option<usize>,
    /// What happens to larger ones: quarantine or flag.
    on_exceeded: OnExceeded,
    /// How long after a look a server that says again that it changed waits for the next.
    refresh_debounce_ms: Option<u64>,
    /// How often it is looked at in a minute, however much it says.
    refresh_max_per_minute: Option<usize>,
    /// Namespaces of servers.
    namespaces: BTreeMap<String, String>,
    /// Which tools of a server are shown.
    filter: BTreeMap<String, FilterSection>,
}

/// Globs on upstream names; exclude wins.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FilterSection {
    include: Vec<String>,
    exclude: Vec<String>,
}

impl Default for FilterSection {
    fn default() -> Self {
        Self { include: vec!["*".into()], exclude: Vec::new() }
    }
}

/// How search finds.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SearchSection {
    /// How many near copies of one tool are shown; 0 for all.
    family_max: Option<usize>,
    /// A file of more words that stand for one another.
    synonyms: Option<PathBuf>,
    /// A table that finds by meaning too.
    embeddings: EmbeddingsSection,
}

/// Which table of embeddings; none if nothing is said (CAT-69).
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EmbeddingsSection {
    path: Option<PathBuf>,
    sha256: Option<Sha256Digest>,
}

/// How browsing answers.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BrowseSection {
    /// lines, json or compat.
    format: Form,
    /// How many cards a search shows.
    top_k: Option<usize>,
    /// Whether cards tell how well they fit.
    scores: bool,
    /// Whether answers begin with everything shown before.
    cache_stable: bool,
}

impl Config {
    pub(super) fn exposure_options(&self, file: &Path) -> Result<ExposureOptions, Failure> {
        let browse = Browsing {
            form: self.browse.format,
            top_k: within("browse.top_k", self.browse.top_k.unwrap_or(10), 1..=50)?,
            scores: self.browse.scores,
            cache_stable: self.browse.cache_stable,
            family_max: within("search.family_max", self.search.family_max.unwrap_or(1), 0..=50)?,
        };
        Ok(ExposureOptions {
            mode: self.exposure.mode.mode(),
            clients: self.exposure.clients.clone(),
            namespaces: self.catalog.namespaces()?,
            filters: self.catalog.filters()?,
            limits: self.catalog.limits()?,
            browse,
            synonyms: self.search.table(file)?,
            embeddings: self.search.embeddings.table(file)?,
        })
    }
}

impl CatalogSection {
    fn limits(&self) -> Result<SchemaLimits, Failure> {
        let limits = SchemaLimits::default();
        let bytes = self.schema_max_bytes.unwrap_or(limits.bytes);
        let depth = self.schema_max_depth.unwrap_or(limits.depth);
        let properties = self.schema_max_properties.unwrap_or(limits.properties);
        Ok(SchemaLimits {
            bytes: within("catalog.schema_max_bytes", bytes, 256..=16 << 20)?,
            depth: within("catalog.schema_max_depth", depth, 2..=120)?,
            properties: within("catalog.schema_max_properties", properties, 1..=65_536)?,
            on_exceeded: self.on_exceeded,
        })
    }

    /// How often servers that say that they changed are looked at (CTX-94).
    pub(super) fn refresh(&self) -> Result<Refresh, Failure> {
        let usual = Refresh::default();
        let debounce = self.refresh_debounce_ms.map_or(usual.debounce, Duration::from_millis);
        let longest = Duration::from_secs(60);
        if debounce > longest {
            return Err(Failure::field("catalog.refresh_debounce_ms", "at most 60000"));
        }
        let most = self.refresh_max_per_minute.unwrap_or(usual.most_per_minute);
        let most_per_minute = within("catalog.refresh_max_per_minute", most, 1..=600)?;
        Ok(Refresh { debounce, most_per_minute })
    }

    fn namespaces(&self) -> Result<BTreeMap<String, String>, Failure> {
        for (server, namespace) in &self.namespaces {
            if !is_namespace(namespace) {
                let field = format!("catalog.namespaces.{server}");
                return Err(Failure::field(&field, "a namespace matches [a-z][a-z0-9_-]{0,63}"));
            }
        }
        Ok(self.namespaces.clone())
    }

    fn filters(&self) -> Result<BTreeMap<String, Filter>, Failure> {
        let globs = |server: &str, key: &str, texts: &[String]| {
            let parse = |text: &String| {
                let field = format!("catalog.filter.{server}.{key}");
                Glob::parse(text).map_err(|problem| Failure::field(&field, format!("{text}: {problem}")))
            };
            texts.iter().map(parse).collect::<Result<Vec<Glob>, Failure>>()
        };
        (self.filter.iter())
            .map(|(server, section)| {
                let include = globs(server, "include", &section.include)?;
                let exclude = globs(server, "exclude", &section.exclude)?;
                Ok((server.clone(), Filter { include, exclude }))
            })
            .collect()
    }
}

impl EmbeddingsSection {
    /// Whether the file is there and is the right one is seen when it is read: search goes by words alone if it is not.
    fn table(&self, file: &Path) -> Result<Option<Embeddings>, Failure> {
        match (&self.path, self.sha256) {
            (None, None) => Ok(None),
            (Some(path), Some(sha256)) => Ok(Some(Embeddings { path: beside(file, path), sha256 })),
            _ => {
                let message = "search.embeddings needs a path and a sha256; \
                    `portcullis search embeddings install FILE` writes both";
                Err(Failure::field("search.embeddings", message))
            }
        }
    }
}

impl SearchSection {
    /// Whether an operator wants to find by meaning.
    pub(crate) fn has_embeddings(&self) -> bool {
        self.embeddings.path.is_some()
    }

    fn table(&self, file: &Path) -> Result<Option<Arc<Synonyms>>, Failure> {
        let Some(path) = self.synonyms.as_ref().filter(|path| !path.as_os_str().is_empty()) else {
            return Ok(None);
        };
        let path = beside(file, path);
        let fail =
            |problem: String| Failure::field("search.synonyms", format!("{}: {problem}", path.display()));
        let text = std::fs::read_to_string(&path).map_err(|error| fail(error.to_string()))?;
        let table = Synonyms::parse(&text).map_err(|error| fail(error.to_string()))?;
        Ok(Some(Arc::new(table)))
    }
}

pub(super) fn within(
    field: &str,
    value: usize,
    range: std::ops::RangeInclusive<usize>,
) -> Result<usize, Failure> {
    if range.contains(&value) {
        return Ok(value);
    }
    Err(Failure::field(field, format!("{field} must be {} to {}", range.start(), range.end())))
}
