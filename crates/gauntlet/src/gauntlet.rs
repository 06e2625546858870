//! How the gauntlet is set up, and making single texts and values safe to show.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

use crate::glob::Glob;
use crate::sanitise::clean::{Clean, Raw};
use crate::sanitise::{Escape, MarkerError, Report, Sanitiser, Unclean};
use crate::{GauntletError, Redact, ToolSpec};

/// What a text block that is JSON is to the sanitiser (GNT-P8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TextJson {
    /// Its strings are cleaned one by one, so that it can still be parsed.
    #[default]
    Leaf,
    /// It is a string like any other.
    String,
}

impl TextJson {
    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "leaf" => Some(Self::Leaf),
            "string" => Some(Self::String),
            _ => None,
        }
    }
}

/// The settings of `[gauntlet]`.
#[derive(Debug, Clone, Default)]
pub struct GauntletConfig {
    /// What a text block that is JSON is.
    pub text_json: TextJson,
    /// Markers to remove besides the three that always are.
    pub extra_markers: Vec<String>,
    /// Whether terminal sequences go whole, or only their control characters.
    pub strip_ansi: bool,
    /// Tools that are treated differently; the first that matches counts.
    pub tools: Vec<ToolOverride>,
    /// Who takes secrets out; nobody if not set.
    pub redact: Option<Arc<dyn Redact>>,
}

/// How some tools are treated.
#[derive(Debug, Clone)]
pub struct ToolOverride {
    /// Which: `<server>/<tool>`.
    pub tools: Glob,
    /// How their texts are written (GNT-Z15).
    pub escape: Escape,
}

/// How one tool is treated, where an operator ordered it: how its texts are written, and what a text that is JSON is.
pub type Treatment = (Option<Escape>, Option<TextJson>);

/// The checks, set up. Shared by all calls; nothing in it changes but what operators order about single tools.
#[derive(Debug, Default)]
pub struct Gauntlet {
    pub(crate) sanitiser: Sanitiser,
    pub(crate) text_json: TextJson,
    tools: Vec<ToolOverride>,
    /// By `<server>/<tool>`; these go before everything configured.
    treated: RwLock<Arc<HashMap<String, Treatment>>>,
    redact: Option<Arc<dyn Redact>>,
}

impl Gauntlet {
    /// Sets the checks up.
    pub fn new(config: &GauntletConfig) -> Result<Self, MarkerError> {
        let sanitiser = Sanitiser::new(&config.extra_markers, config.strip_ansi)?;
        Ok(Self {
            sanitiser,
            text_json: config.text_json,
            tools: config.tools.clone(),
            treated: RwLock::default(),
            redact: config.redact.clone(),
        })
    }

    /// A text without secrets, and how many there were.
    pub(crate) fn redacted<'t>(&self, text: &'t str) -> (Cow<'t, str>, u64) {
        self.redact.as_ref().map_or((Cow::Borrowed(text), 0), |redact| redact.text(text))
    }

    /// The same for a result; `None` if there were none. PRO-68: what a server keeps with the client is its own.
    pub(crate) fn redacted_json(&self, json: &str) -> Option<(String, u64)> {
        self.redact.as_ref()?.json(json, &["requestState"])
    }

    /// Arguments without secrets, for where they are written down for people; `None` if there were none.
    pub fn redacted_arguments(&self, json: &str) -> Option<String> {
        self.redact.as_ref()?.json(json, &[]).map(|(text, _)| text)
    }

    /// Treats these tools so from now on, and no others. False if that is how it was.
    pub fn treat(&self, tools: impl IntoIterator<Item = (String, Treatment)>) -> bool {
        let tools = Arc::new(tools.into_iter().collect::<HashMap<_, _>>());
        let mut treated = self.treated.write().unwrap_or_else(PoisonError::into_inner);
        let changed = **treated != *tools;
        *treated = tools;
        changed
    }

    fn treatment(&self, spec: &ToolSpec) -> Treatment {
        let treated = self.treated.read().unwrap_or_else(PoisonError::into_inner).clone();
        if treated.is_empty() {
            return (None, None);
        }
        treated.get(spec.tool.short()).copied().unwrap_or_default()
    }

    /// What a text block of a tool that is JSON is.
    pub(crate) fn text_json_for(&self, spec: &ToolSpec) -> TextJson {
        self.treatment(spec).1.unwrap_or(self.text_json)
    }

    /// How the texts of a tool are written.
    pub fn escape_for(&self, spec: &ToolSpec) -> Escape {
        if let Some(escape) = self.treatment(spec).0 {
            return escape;
        }
        let matching = self.tools.iter().find(|entry| entry.tools.matches(spec.tool.short()));
        matching.map_or(Escape::Html, |entry| entry.escape)
    }

    /// A title, description or instruction: strip and removal, no escaping (GNT-Z12).
    pub fn clean_label<'a>(&self, raw: Raw<&'a str>) -> Result<Clean<Cow<'a, str>>, GauntletError> {
        self.cleaned(raw, Escape::None)
    }

    /// A text of a server: all three transforms.
    pub fn clean_text<'a>(&self, raw: Raw<&'a str>) -> Result<Clean<Cow<'a, str>>, GauntletError> {
        let text = raw.into_inner();
        match self.redacted(text) {
            (_, 0) => {}
            (redacted, _) => {
                let clean = self.cleaned(Raw::new(&redacted), Escape::Html)?.into_inner().into_owned();
                return Ok(Clean::new(Cow::Owned(self.redacted(&clean).0.into_owned())));
            }
        }
        let clean = self.cleaned(Raw::new(text), Escape::Html)?;
        match clean.get() {
            Cow::Owned(changed) => match self.redacted(changed) {
                (_, 0) => Ok(clean),
                (redacted, _) => Ok(Clean::new(Cow::Owned(redacted.into_owned()))),
            },
            Cow::Borrowed(_) => Ok(clean),
        }
    }

    /// Texts that stand next to each other: a marker spread over several of them is found (GNT-Z7).
    pub fn clean_neighbours<'a>(
        &self,
        raw: &[Raw<&'a str>],
    ) -> Result<Vec<Clean<Cow<'a, str>>>, GauntletError> {
        let texts: Vec<&str> = raw.iter().map(|raw| raw.into_inner()).collect();
        let cleaned = self.sanitiser.neighbours(&texts, Escape::Html, usize::MAX, &mut Report::default());
        Ok(cleaned.map_err(unshowable)?.into_iter().map(Clean::new).collect())
    }

    /// What a text block that is JSON is to the sanitiser.
    pub fn text_json(&self) -> TextJson {
        self.text_json
    }

    fn cleaned<'a>(&self, raw: Raw<&'a str>, escape: Escape) -> Result<Clean<Cow<'a, str>>, GauntletError> {
        self.sanitiser
            .text(raw.into_inner(), escape, usize::MAX, &mut Report::default())
            .map(Clean::new)
            .map_err(unshowable)
    }

    /// A value of a server: every string in it, its shape unchanged. A member name that would have to change is
    /// refused (GNT-Z11).
    pub fn clean_value(&self, raw: Raw<Value>) -> Result<(Clean<Value>, Report), GauntletError> {
        let mut value = raw.into_inner();
        let mut report = Report::default();
        // A stack of our own: the depth of a value is the server's choice.
        let mut pending = vec![&mut value];
        while let Some(value) = pending.pop() {
            match value {
                Value::String(text) => {
                    if let (Cow::Owned(redacted), found) = self.redacted(text) {
                        *text = redacted;
                        report.redactions += found as usize;
                    }
                    let cleaned = self.sanitiser.text(text, Escape::Html, usize::MAX, &mut report);
                    if let Cow::Owned(clean) = cleaned.map_err(unshowable)? {
                        let (redacted, found) = self.redacted(&clean);
                        report.redactions += found as usize;
                        *text = redacted.into_owned();
                    }
                }
                Value::Array(items) => pending.extend(items),
                Value::Object(members) => {
                    for (key, member) in members {
                        if !self.sanitiser.is_clean(key) {
                            return Err(GauntletError::OutputKey { tool: None });
                        }
                        pending.push(member);
                    }
                }
                _ => {}
            }
        }
        Ok((Clean::new(value), report))
    }
}

fn unshowable(unclean: Unclean) -> GauntletError {
    match unclean {
        Unclean::Unstable => GauntletError::SanitizeUnstable { tool: None },
        Unclean::TooLarge => GauntletError::TextTooLarge { limit: usize::MAX },
    }
}
