//! All tools, once at start, never changed after (ADM-13).

use std::collections::BTreeMap;

use crate::tool::ToolDef;

/// The tools of one part of the gateway.
#[derive(Debug)]
pub struct Module {
    /// Its name.
    pub name: &'static str,
    /// Its tools.
    pub tools: Vec<ToolDef>,
}

/// Why there is no registry: a defect, found at start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryFault {
    /// Two tools of one name.
    #[error("admin tool {key} is in module {first} and in module {second}")]
    Duplicate {
        /// The name.
        key: String,
        /// Where it is.
        first: &'static str,
        /// Where it is too.
        second: &'static str,
    },
    /// A name that is none.
    #[error("admin tool {key} of module {module} has a name that is not portcullis_<domain>_<action>")]
    BadName {
        /// The name.
        key: String,
        /// Where.
        module: &'static str,
    },
    /// A description that is too long for a card.
    #[error("admin tool {key} of module {module} has a description of more than 140 characters")]
    LongDescription {
        /// The name.
        key: String,
        /// Where.
        module: &'static str,
    },
}

/// All tools, by name.
#[derive(Debug)]
pub struct Registry {
    tools: BTreeMap<String, ToolDef>,
}

impl Registry {
    /// Merges the modules.
    pub fn build(modules: Vec<Module>) -> Result<Self, RegistryFault> {
        let mut tools: BTreeMap<String, ToolDef> = BTreeMap::new();
        let mut homes: BTreeMap<String, &'static str> = BTreeMap::new();
        let modules_count = modules.len();
        for module in modules {
            for tool in module.tools {
                let key = tool.name().to_owned();
                if let Some(first) = homes.get(&key) {
                    crate::events::registry_duplicate(&key, first, module.name);
                    return Err(RegistryFault::Duplicate { key, first, second: module.name });
                }
                if !is_name(&key) {
                    return Err(RegistryFault::BadName { key, module: module.name });
                }
                if tool.description().chars().count() > 140 {
                    return Err(RegistryFault::LongDescription { key, module: module.name });
                }
                homes.insert(key.clone(), module.name);
                tools.insert(key, tool);
            }
        }
        crate::events::registry_built(tools.len(), modules_count);
        Ok(Self { tools })
    }

    /// A tool by its whole name, or by its name without the prefix.
    pub fn get(&self, name: &str) -> Option<&ToolDef> {
        self.tools.get(name).or_else(|| self.tools.get(&format!("portcullis_{name}")))
    }

    /// All of them, by name.
    pub fn tools(&self) -> impl Iterator<Item = &ToolDef> {
        self.tools.values()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }
}

/// ADM-11.
fn is_name(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("portcullis_") else { return false };
    let word = |part: &str| {
        part.bytes().next().is_some_and(|b| b.is_ascii_lowercase())
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    rest.split_once('_').is_some_and(|(domain, action)| word(domain) && word(action))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::NoArgs;
    use crate::tool::{Class, unwired_tool};

    fn module(name: &'static str, domain: &'static str, action: &'static str) -> Module {
        Module { name, tools: vec![unwired_tool::<NoArgs>(domain, action, Class::Read, "later")] }
    }

    #[test]
    fn two_tools_of_one_name_are_a_fault_that_names_both_sides() {
        // ADM-13, SO-22
        let fault =
            Registry::build(vec![module("one", "x", "list"), module("two", "x", "list")]).unwrap_err();
        assert_eq!(fault.to_string(), "admin tool portcullis_x_list is in module one and in module two");
        let fault = Registry::build(vec![module("one", "X", "list")]).unwrap_err();
        assert!(matches!(fault, RegistryFault::BadName { .. }), "{fault}");
    }
}
