//! `[redaction]`, `[firewall]`, `[envelope]` and `[artifacts]`: what becomes of results (CTX §11).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use portcullis_context::{Firewall, Format, Keep, RedactionRules, Redactor};
use portcullis_gateway::shaping::ShapingOptions;
use portcullis_gauntlet::{Glob, Redact};
use serde::Deserialize;

use super::bucket::BucketSection;
use crate::failure::Failure;

/// How secrets are taken out of results (CTX-42).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RedactionSection {
    /// Whether they are at all. Turning it off takes a waiver, which goes on record at every start.
    enabled: bool,
    /// Why they are not.
    waiver: Option<String>,
    /// Whether values behind `password=` and the like are taken out by how they look.
    assignment: bool,
    /// More kinds of secrets.
    patterns: Vec<RedactionPattern>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RedactionPattern {
    /// What stands for it: `[REDACTED:<kind>]`.
    kind: String,
    /// What it looks like; the group `v` if there is one.
    regex: String,
}

impl Default for RedactionSection {
    fn default() -> Self {
        Self { enabled: true, waiver: None, assignment: true, patterns: Vec::new() }
    }
}

impl RedactionSection {
    pub(super) fn redactor(&self) -> Result<Option<Arc<dyn Redact>>, Failure> {
        let patterns = self.patterns.iter().map(|pattern| (pattern.kind.clone(), pattern.regex.clone()));
        let rules = RedactionRules { assignment: self.assignment, patterns: patterns.collect() };
        let redactor = Redactor::new(&rules, &[])
            .map_err(|error| Failure::field("redaction.patterns", error.to_string()))?;
        Ok(self.enabled.then(|| Arc::new(redactor) as Arc<dyn Redact>))
    }

    /// Why secrets are not taken out, where they are not.
    pub(super) fn waived(&self) -> Result<Option<String>, Failure> {
        let reason = self.waiver.as_deref().map(str::trim).filter(|reason| !reason.is_empty());
        match (self.enabled, reason) {
            (true, _) => Ok(None),
            (false, Some(reason)) => Ok(Some(portcullis_core::error::one_line(reason))),
            (false, None) => Err(Failure::field(
                "redaction.waiver",
                "redaction.enabled = false needs redaction.waiver = \"WHY\", which goes on record",
            )),
        }
    }
}

/// When a result is shown in short.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FirewallSection {
    /// Up to this many characters a result is shown as it stands [default: 2000].
    inline_chars: Option<usize>,
    /// Up to this many bytes pictures and sounds are [default: 262144].
    inline_media_bytes: Option<usize>,
    /// Whether results are shaped where agents call tools directly.
    passthrough: bool,
    /// Bytes of one view [default: 16384].
    view_max_bytes: Option<usize>,
    /// What is shown of some tools' results instead of a summary: `"<server>/<tool>" = ["/items/*/id"]`.
    keep: BTreeMap<String, Vec<String>>,
}

/// How an envelope is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EnvelopeSection {
    /// lean or full.
    format: Format,
    /// Whether it is structured content as well.
    structured: bool,
}

/// What is kept of results, and how long.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ArtifactsSection {
    /// Where: local or s3.
    backend: Backend,
    /// Whether replicas may keep them in their own homes, where the others do not find them (CTX-25).
    allow_local: bool,
    /// Which bucket.
    s3: Option<BucketSection>,
    /// How long after it was made or viewed [default: 3600].
    ttl_seconds: Option<u64>,
    /// How much of one session [default: 268435456].
    session_bytes: Option<u64>,
    /// How much of all [default: 8589934592].
    total_bytes: Option<u64>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Backend {
    /// In the home folder.
    #[default]
    Local,
    /// In a bucket of an S3-compatible server.
    S3,
}

impl ArtifactsSection {
    /// Replicas share what their agents may look at, unless the operator lets each keep its own.
    pub(super) fn fits(&self, replicas: bool) -> Result<(), Failure> {
        if replicas && matches!(self.backend, Backend::Local) && !self.allow_local {
            return Err(Failure::field(
                "artifacts.backend",
                "with state.postgres artifacts belong in a bucket (artifacts.backend = \"s3\"), or each replica keeps its own and its \
                 agents must stay with it (artifacts.allow_local = true)",
            ));
        }
        Ok(())
    }
}

/// How results are shaped.
pub(super) fn shaping(
    firewall: &FirewallSection,
    envelope: &EnvelopeSection,
    artifacts: &ArtifactsSection,
    file: &Path,
) -> Result<ShapingOptions, Failure> {
    let mut options = ShapingOptions::default();
    options.bucket = match (artifacts.backend, &artifacts.s3) {
        (Backend::Local, None) => None,
        (Backend::S3, Some(bucket)) => Some(bucket.options(file)?),
        _ => {
            let message = "artifacts.backend = \"s3\" and [artifacts.s3] go together";
            return Err(Failure::field("artifacts.backend", message));
        }
    };
    let usual = Firewall::default();
    options.firewall = Firewall {
        inline_chars: firewall.inline_chars.unwrap_or(usual.inline_chars),
        inline_media_bytes: firewall.inline_media_bytes.unwrap_or(usual.inline_media_bytes),
        format: envelope.format,
        structured: envelope.structured,
    };
    options.passthrough = firewall.passthrough;
    if let Some(bytes) = firewall.view_max_bytes {
        if !(1_024..=1 << 20).contains(&bytes) {
            return Err(Failure::field(
                "firewall.view_max_bytes",
                "firewall.view_max_bytes must be 1 KiB to 1 MiB",
            ));
        }
        options.view_max_bytes = bytes;
    }
    for (tools, paths) in &firewall.keep {
        let glob = Glob::parse(tools)
            .map_err(|problem| Failure::field("firewall.keep", format!("{tools:?} {problem}")))?;
        let keep = Keep::parse(paths).map_err(|error| Failure::field("firewall.keep", error.to_string()))?;
        options.keep.push((glob, keep));
    }
    if let Some(seconds) = artifacts.ttl_seconds {
        if !(1..=24 * 3_600).contains(&seconds) {
            return Err(Failure::field("artifacts.ttl_seconds", "artifacts.ttl_seconds must be 1 to 86400"));
        }
        options.limits.ttl = Duration::from_secs(seconds);
    }
    options.limits.session_bytes = artifacts.session_bytes.unwrap_or(options.limits.session_bytes);
    options.limits.total_bytes = artifacts.total_bytes.unwrap_or(options.limits.total_bytes);
    Ok(options)
}
