//! Results on their way to a model: shown as they stand, or in short with the rest kept for `tool_view`.
//!
//! This is the one place where a released result is shaped (CTX-1). It comes after the gauntlet, so that what is kept is
//! what may be shown: cleaned and without secrets (CTX-23).

pub mod bounds;
mod documents;
pub mod journal;
mod sizes;
mod view;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use portcullis_context::artifacts::bucket::BucketOptions;
use portcullis_context::{
    About, Artifacts, CallToolResult, Firewall, Keep, Kept, Limits, NotKept, Origin, Owner, Repair,
    Sensitivity,
};
use portcullis_core::{Clock, ProposalId, Secret};
use portcullis_gauntlet::{Glob, SafeResult};
use portcullis_governance::declaration::SideEffect;
use portcullis_governance::registry::ToolEntry;
use portcullis_governance::session::Session;
use serde_json::{Value, json};

use bounds::ResultOptions;
pub(crate) use documents::as_documents;
use journal::Journal;
pub(crate) use sizes::Measured;
use sizes::SizeBook;
pub use sizes::{OfTool, Spread};
pub(crate) use view::{TOOL_VIEW, TOOL_VIEW_DEFINITION, Viewer};

/// What has expired is removed this often.
const SWEEP: Duration = Duration::from_secs(60);

/// How results are shaped.
#[derive(Debug, Clone)]
pub struct ShapingOptions {
    /// What counts as long, and how an envelope is written.
    pub firewall: Firewall,
    /// Whether results are shaped in passthrough mode too (CTX-4).
    pub passthrough: bool,
    /// How much is kept, and how long.
    pub limits: Limits,
    /// Where, if not in the gateway's home (CTX-25).
    pub bucket: Option<BucketOptions>,
    /// Bytes of one view.
    pub view_max_bytes: usize,
    /// What is shown of some tools' results instead of a summary; the first that matches counts (CTX-41).
    pub keep: Vec<(Glob, Keep)>,
    /// What is set for results of tools that are called directly; the first that matches counts (SURF-71).
    pub results: Vec<(Glob, ResultOptions)>,
    /// Whether anything set for a kind of client keeps results.
    pub clients_keep: bool,
    /// Whether sessions are written to files, for prompts to be built of (CTX-52).
    pub session_log: bool,
}

impl Default for ShapingOptions {
    fn default() -> Self {
        Self {
            firewall: Firewall::default(),
            passthrough: false,
            limits: Limits::default(),
            bucket: None,
            view_max_bytes: portcullis_context::view::VIEW_MAX_BYTES,
            keep: Vec::new(),
            results: Vec::new(),
            clients_keep: false,
            session_log: false,
        }
    }
}

/// How a result came about, as far as it is told.
#[derive(Debug, Default)]
pub(crate) struct Provenance {
    pub(crate) cache_hit: bool,
    pub(crate) repairs: Vec<Repair>,
    /// Characters that pass as they stand, where something is ordered for the agent.
    pub(crate) inline_chars: Option<usize>,
}

/// Shapes results, and knows where the rest of them is.
#[derive(Debug)]
pub(crate) struct Shaping {
    options: ShapingOptions,
    artifacts: Arc<Artifacts>,
    sizes: SizeBook,
    journal: Option<Journal>,
    clock: Arc<dyn Clock>,
}

impl Shaping {
    /// Opens the artifacts of the gateway in `home`.
    pub(crate) fn open(
        home: &Path,
        options: ShapingOptions,
        installation: &Secret<[u8; 32]>,
        clock: Arc<dyn Clock>,
    ) -> std::io::Result<Self> {
        let artifacts = match &options.bucket {
            None => Artifacts::open_in(&home.join("artifacts"), installation, options.limits, clock.clone()),
            Some(bucket) => Artifacts::open_in_bucket(bucket, installation, options.limits, clock.clone()),
        }?;
        let sizes = SizeBook::open(&home.join("state"));
        let journal = options.session_log.then(|| Journal::open(home)).transpose()?;
        Ok(Self { options, artifacts: Arc::new(artifacts), sizes, journal, clock })
    }

    /// Where sessions are written to files, if they are.
    pub(crate) fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    pub(crate) fn artifacts(&self) -> &Arc<Artifacts> {
        &self.artifacts
    }

    /// Bytes of one view.
    pub(crate) fn view_max_bytes(&self) -> usize {
        self.options.view_max_bytes
    }

    /// Whether results are shaped where agents call tools directly.
    pub(crate) fn in_passthrough(&self) -> bool {
        self.options.passthrough
    }

    /// Whether there is anything to look at where agents call tools directly.
    pub(crate) fn keeps_in_passthrough(&self) -> bool {
        self.options.passthrough
            || self.options.clients_keep
            || self.options.results.iter().any(|(_, options)| options.keeps())
    }

    /// What results were like since a moment, for a client that cuts at so many tokens.
    pub(crate) fn result_sizes(&self, since: u64, limit: Option<usize>) -> Vec<OfTool> {
        self.sizes.report(since, limit)
    }

    /// What was measured since the start.
    pub(crate) fn measured(&self) -> Measured {
        self.sizes.measured()
    }

    /// Writes down what is only in memory.
    pub(crate) fn write_sizes(&self) {
        self.sizes.write();
    }

    /// A result in short, its artifacts kept for the session that made the call; `None` if it is shown as it stands.
    pub(crate) async fn shape(
        self: &Arc<Self>,
        result: &SafeResult,
        entry: &Arc<ToolEntry>,
        call: ProposalId,
        session: &Session,
        came: Provenance,
    ) -> Option<String> {
        // Whoever is shorter than this in bytes is so in characters, and most are.
        let inline = came.inline_chars.unwrap_or(self.options.firewall.inline_chars);
        if result.json().len() <= inline {
            return None;
        }
        let (shaping, entry) = (Arc::clone(self), entry.clone());
        let (json, redactions) = (result.json().clone(), result.report().redactions as u64);
        let owner = Owner { principal: session.principal().clone(), session: session.id() };
        // What is long is written to disk: not on a thread that others wait for.
        let shaped = tokio::task::spawn_blocking(move || {
            let json = std::str::from_utf8(&json).ok()?;
            shaping.shape_blocking(json, redactions, &entry, call, &owner, &came)
        });
        shaped.await.ok().flatten()
    }

    fn shape_blocking(
        &self,
        json: &str,
        redactions: u64,
        entry: &ToolEntry,
        call: ProposalId,
        owner: &Owner,
        came: &Provenance,
    ) -> Option<String> {
        let id = entry.tool.id();
        let keep = self.options.keep.iter().find(|(tools, _)| tools.matches(id.short()));
        let repairs: Vec<Value> = came.repairs.iter().map(|repair| json!(repair)).collect();
        let about = About {
            tool_id: Some(id.as_str()),
            redactions,
            keep: keep.map(|(_, keep)| keep),
            cache_hit: came.cache_hit,
            arg_repairs: &repairs,
        };
        let result = CallToolResult::read(json);
        let inline_chars = came.inline_chars.unwrap_or(self.options.firewall.inline_chars);
        let firewall = Firewall { inline_chars, ..self.options.firewall.clone() };
        let cut = firewall.cut(&result, id.item().name(), &about)?;
        let secret = entry.tool.side_effects().contains(&SideEffect::SecretAccess);
        let origin = Origin {
            call_id: call,
            tool_identity: id.as_str().to_owned(),
            sensitivity: if secret { Sensitivity::Confidential } else { Sensitivity::Public },
            redacted: redactions > 0,
        };
        let keep = |artifact| match self.artifacts.keep(owner, &origin, artifact) {
            Ok(reference) => Kept::As(reference),
            Err(error) => {
                if let NotKept::Disk(error) = &error {
                    tracing::warn!(%error, "an artifact could not be kept; its beginning is shown instead");
                }
                Kept::Not
            }
        };
        let kept = cut.artifacts.iter().map(keep).collect();
        Some(cut.finish(kept, &self.options.firewall).0)
    }

    /// Removes what has expired, until told to stop.
    pub(crate) async fn sweep(self: Arc<Self>, mut stop: tokio::sync::watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(SWEEP) => {}
                () = crate::control::told_to_stop(&mut stop) => {
                    self.write_sizes();
                    return;
                }
            }
            let shaping = self.clone();
            let swept = tokio::task::spawn_blocking(move || {
                shaping.write_sizes();
                shaping.artifacts.sweep();
            });
            let _ = swept.await;
        }
    }
}
