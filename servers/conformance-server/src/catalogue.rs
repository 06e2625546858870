//! What there is, as data: `catalogue.json`, one item a line.

use rmcp::model::{Prompt, Resource, ResourceTemplate, Tool};
use serde_json::Value;

/// Everything the server lists.
#[derive(Debug)]
pub(crate) struct Catalogue {
    pub(crate) tools: Vec<Tool>,
    pub(crate) prompts: Vec<Prompt>,
    pub(crate) resources: Vec<Resource>,
    pub(crate) templates: Vec<ResourceTemplate>,
}

impl Catalogue {
    pub(crate) fn read() -> Self {
        let mut document: Value =
            serde_json::from_str(include_str!("catalogue.json")).expect("the catalogue is JSON");
        let mut take = |key: &str| document[key].take();
        Self {
            tools: serde_json::from_value(take("tools")).expect("tools"),
            prompts: serde_json::from_value(take("prompts")).expect("prompts"),
            resources: serde_json::from_value(take("resources")).expect("resources"),
            templates: serde_json::from_value(take("templates")).expect("templates"),
        }
    }
}
