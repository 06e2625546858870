//! A bundle: what an operator puts in force as one (GOV-801).

use portcullis_core::canon::to_jcs;
use serde::{Deserialize, Serialize};

use super::{BASE, PolicyFile, Preset};

/// A preset, the operator's own files beside it, and `settings.toml`. Not checked: compiling it into a
/// [`Policy`](super::Policy) is what does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bundle {
    /// The ready-made policy.
    pub preset: Preset,
    /// The operator's own policies, in order of their names.
    #[serde(default)]
    pub files: Vec<PolicyFile>,
    /// The text of `settings.toml`; empty for the defaults.
    #[serde(default)]
    pub settings: String,
}

/// A bundle as it is recorded: with the texts that come with the program, because they are in force too and may
/// differ in the next release.
#[derive(Serialize, Deserialize)]
struct Document {
    base: String,
    files: Vec<PolicyFile>,
    preset: Preset,
    preset_text: String,
    settings: String,
}

impl Bundle {
    /// A preset alone.
    pub fn preset(preset: Preset) -> Self {
        Self { preset, ..Self::default() }
    }

    /// The same with a file more.
    #[must_use]
    pub fn with(mut self, name: &str, text: &str) -> Self {
        self.files.push(PolicyFile { name: name.into(), text: text.into() });
        self
    }

    /// The canonical bytes that its version is the digest of.
    pub fn document(&self) -> Vec<u8> {
        to_jcs(&Document {
            base: BASE.into(),
            files: self.files.clone(),
            preset: self.preset,
            preset_text: self.preset.source().into(),
            settings: self.settings.clone(),
        })
        .expect("texts are serialisable")
    }

    /// The bundle of a recorded document.
    pub fn recorded(document: &[u8]) -> Option<Self> {
        let Document { files, preset, settings, .. } = serde_json::from_slice(document).ok()?;
        Some(Self { preset, files, settings })
    }

    /// The texts in force that come with the program, with names for messages.
    pub(super) fn shipped(&self) -> [PolicyFile; 2] {
        let base = PolicyFile { name: "base policies".into(), text: BASE.into() };
        let preset = PolicyFile {
            name: format!("preset {}", self.preset.as_str()),
            text: self.preset.source().into(),
        };
        [base, preset]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_bundle_comes_back_as_it_was() {
        // GOV-801
        let bundle = Bundle { settings: "[tier]\nmax = 2\n".into(), ..Bundle::preset(Preset::Balanced) }
            .with("a.cedar", "forbid (principal, action, resource);");
        assert_eq!(Bundle::recorded(&bundle.document()), Some(bundle.clone()));
        let other = bundle.clone().with("b.cedar", "");
        assert_ne!(other.document(), bundle.document());
        assert_eq!(Bundle::recorded(b"[]"), None);
    }
}
