//! What a surface comes to, as one document: for `portcullis footprint`, for programs and for the console.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Surface;
use super::footprint::Size;
use super::profile::Profile;

impl Surface {
    /// `within` its budget, `over` it, `degraded` to fit it, or `refused`.
    pub fn verdict(&self) -> &'static str {
        match (self.ladder_step, self.excess.is_empty()) {
            (7, _) => "refused",
            (0, true) => "within",
            (0, false) => "over",
            _ => "degraded",
        }
    }

    /// The whole measurement, against what a profile takes (SURF-50).
    pub fn report(&self, profile: &Profile) -> Value {
        let mut document = json!({
            "format": "portcullis-footprint/1", "mode": self.mode, "profile": profile.name,
            "surface_digest": self.surface_digest, "tools": self.footprint.tools,
            "instructions": {
                "chars": self.instructions.encode_utf16().count(),
                "head_chars": self.instructions.get(..512).unwrap_or(&self.instructions).trim_end().len(),
                "o200k": Size::of(&self.instructions).o200k,
            },
            "budget": {"bytes": profile.tools_total_bytes, "tokens": profile.tools_total_tokens, "encoding": "o200k"},
            "verdict": self.verdict(), "ladder_step": self.ladder_step, "deferred": self.deferred,
            "findings": self.findings, "per_tool": self.footprint.per_tool,
        });
        document["servers"] = (self.footprint.servers.iter())
            .map(|server| {
                let mut row = json!(server);
                let mut lints = BTreeMap::new();
                for finding in self.findings.iter().filter(|finding| finding.server == server.name) {
                    *lints.entry(finding.rule).or_insert(0) += 1;
                }
                row["lints"] = json!(lints);
                row
            })
            .collect();
        document
    }
}
