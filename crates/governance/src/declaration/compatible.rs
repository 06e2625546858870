//! GOV-403 rule 9: what policy allows servers to have in the modes they are registered for.

use super::{Declaration, Rejection, ToolClause};
use crate::policy::Settings;
use crate::record::Mode;

/// Every class and credential that the settings do not allow in one of the modes.
pub fn check(
    declaration: &Declaration,
    file: &str,
    settings: &Settings,
    modes: &[Mode],
) -> Result<(), Vec<Rejection>> {
    let mut found = Vec::new();
    let body = &declaration.body;
    let mut item = |at: String, tool: &ToolClause| {
        for mode in modes {
            for class in tool.side_effects.iter().filter(|class| !settings.allows_class(*mode, **class)) {
                let message = format!(
                    "policy allows no class {} in mode {}; `[acceptance.{}] classes` in its settings.toml would",
                    class.as_str(),
                    mode.as_str(),
                    mode.as_str()
                );
                found.push(declaration.reject(file, 9, &format!("{at}/side_effects"), message));
            }
            for class in tool.credentials.iter().filter(|class| !settings.allows_credential(*mode, class)) {
                let shown = portcullis_core::name::printable(class);
                let message = format!(
                    "policy allows no credentials {shown} in mode {}; `[acceptance.{}] credentials` in its settings.toml would",
                    mode.as_str(),
                    mode.as_str()
                );
                found.push(declaration.reject(file, 9, &format!("{at}/credentials"), message));
            }
        }
    };
    for (index, tool) in body.tools.iter().enumerate() {
        item(format!("/tools/{index}"), tool);
    }
    for (index, resource) in body.resources.iter().enumerate() {
        if let Ok(subject) = resource.subject() {
            item(format!("/resources/{index}"), &resource.as_tool(&subject));
        }
    }
    for (index, prompt) in body.prompts.iter().enumerate() {
        item(format!("/prompts/{index}"), &prompt.as_tool());
    }
    if found.is_empty() { Ok(()) } else { Err(found) }
}
