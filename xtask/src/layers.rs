//! Which crate may depend on which.
//!
//! The layers of the design: a crate depends only on crates of strictly lower layers, dev-dependencies included (a
//! test that needs a higher layer belongs there). Servers are peers that check our code, so they share none of it;
//! examples are users, so they may use all of it.
//! Policy has one home: only `governance` depends on the policy engine.

use std::collections::BTreeSet;

use toml::{Table, Value};

use crate::Outcome;
use crate::workspace::Workspace;

/// The layers, the lowest first; folders below `crates/`.
const LAYERS: [&[&str]; 8] = [
    &["core"],
    &["audit", "store", "gauntlet", "catalog", "sandbox"],
    &["context", "governance"],
    &["upstream"],
    &["gateway"],
    &["admin"],
    &["console"],
    &["portcullis"],
];

/// Checks the workspace and says so.
pub(crate) fn run(workspace: &Workspace) -> Outcome {
    let manifests = workspace.manifests()?;
    let broken: Vec<String> = manifests.iter().flat_map(violations).collect();
    if broken.is_empty() {
        println!("{} manifests keep the layers", manifests.len());
        Ok(())
    } else {
        Err(broken.join("\n"))
    }
}

/// What the rules need of a manifest.
#[derive(Debug)]
pub(crate) struct Manifest {
    /// Relative to the root, such as `crates/audit`.
    pub(crate) folder: String,
    pub(crate) package: String,
    pub(crate) features: BTreeSet<String>,
    /// Package names of all dependencies, of every kind and target.
    dependencies: BTreeSet<String>,
}

impl Manifest {
    /// Reads a member's manifest; `root` is the workspace's, where an inherited dependency may be renamed.
    pub(crate) fn parse(folder: &str, text: &str, root: &str) -> Outcome<Self> {
        let broken = |error: toml::de::Error| format!("{folder}/Cargo.toml: {error}");
        let manifest: Table = text.parse().map_err(broken)?;
        let root: Table = root.parse().map_err(|error| format!("Cargo.toml: {error}"))?;
        let inherited = root.get("workspace").and_then(|workspace| workspace.get("dependencies"));
        let package = manifest
            .get("package")
            .and_then(|package| package.get("name"))
            .and_then(Value::as_str)
            .ok_or_else(|| format!("{folder}/Cargo.toml: there is no package name"))?
            .to_owned();
        let features = manifest.get("features").and_then(Value::as_table);
        let features = features.map(|table| table.keys().cloned().collect()).unwrap_or_default();
        let mut dependencies = BTreeSet::new();
        for table in dependency_tables(&manifest) {
            for (key, dependency) in table {
                let renamed = |dependency: &Value| dependency.get("package")?.as_str().map(str::to_owned);
                let from_root = || inherited.and_then(|inherited| inherited.get(key)).and_then(renamed);
                dependencies.insert(renamed(dependency).or_else(from_root).unwrap_or_else(|| key.clone()));
            }
        }
        Ok(Self { folder: folder.to_owned(), package, features, dependencies })
    }
}

fn dependency_tables(manifest: &Table) -> Vec<&Table> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let per_target = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    std::iter::once(manifest)
        .chain(per_target)
        .flat_map(|table| {
            ["dependencies", "dev-dependencies", "build-dependencies"]
                .into_iter()
                .filter_map(|kind| table.get(kind).and_then(Value::as_table))
        })
        .collect()
}

/// Every rule that a manifest breaks, in words.
fn violations(manifest: &Manifest) -> Vec<String> {
    let Manifest { folder, package, dependencies, .. } = manifest;
    let mut broken = Vec::new();
    let own = dependencies.iter().filter(|name| layer_of_package(name).is_some() || is_ours(name));
    if let Some(name) = folder.strip_prefix("crates/") {
        let Some(layer) = layer(name) else {
            return vec![format!(
                "{folder} is in no layer: give it one in xtask/src/layers.rs and in the design"
            )];
        };
        if *package != package_of(name) {
            broken.push(format!("{folder} is the package {package}; the rule is {}", package_of(name)));
        }
        for dependency in own.filter(|dependency| *dependency != package) {
            match layer_of_package(dependency) {
                Some(lower) if lower < layer => {}
                Some(_) => broken.push(format!(
                    "{package} depends on {dependency}: a crate depends only on lower layers, and {package} is in \
                     layer {layer} ({}) while {dependency} is in layer {} ({})",
                    LAYERS[layer].join(", "),
                    layer_of_package(dependency).unwrap_or_default(),
                    LAYERS[layer_of_package(dependency).unwrap_or_default()].join(", "),
                )),
                None => broken.push(format!("{package} depends on {dependency}: it is in no layer")),
            }
        }
    } else if !folder.starts_with("examples/") {
        for dependency in own {
            broken.push(format!(
                "{package} depends on {dependency}: what is in {folder} is a peer and depends on no Portcullis crate"
            ));
        }
    }
    // ADM-72: what is asked of the gateway is asked of its control plane.
    if package == "portcullis-admin" && dependencies.contains("portcullis-store") {
        broken.push(format!("{package} depends on portcullis-store: handlers ask services, and no store"));
    }
    if package != "portcullis-governance" {
        for dependency in dependencies.iter().filter(|name| name.starts_with("cedar-policy")) {
            broken.push(format!(
                "{package} depends on {dependency}: only portcullis-governance knows the policy engine"
            ));
        }
    }
    broken
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|names| names.contains(&name))
}

fn layer_of_package(package: &str) -> Option<usize> {
    LAYERS.iter().position(|names| names.iter().any(|name| package_of(name) == package))
}

fn is_ours(package: &str) -> bool {
    package == "portcullis" || package.starts_with("portcullis-")
}

fn package_of(name: &str) -> String {
    if name == "portcullis" { name.to_owned() } else { format!("portcullis-{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(folder: &str, dependencies: &str) -> Vec<String> {
        let name = folder.rsplit('/').next().unwrap();
        let package = if folder.starts_with("crates/") { package_of(name) } else { name.to_owned() };
        let text = format!("[package]\nname = \"{package}\"\n{dependencies}");
        let root = "[workspace.dependencies]\nsneaky = { path = \"x\", package = \"portcullis-gateway\" }";
        violations(&Manifest::parse(folder, &text, root).unwrap())
    }

    #[test]
    fn a_crate_may_depend_on_lower_layers_and_on_the_world() {
        assert!(check("crates/core", "[dependencies]\nserde = \"1\"").is_empty());
        assert!(
            check(
                "crates/governance",
                "[dependencies]\nportcullis-audit.workspace = true\ncedar-policy = \"4\""
            )
            .is_empty()
        );
        assert!(
            check("crates/portcullis", "[dependencies]\nportcullis-admin = {}\ndemo-server = {}").is_empty()
        );
        assert!(check("servers/spyd", "[dependencies]\ntokio = \"1\"").is_empty());
        assert!(check("xtask", "[dependencies]\ntoml = \"1\"").is_empty());
    }

    #[test]
    fn a_crate_may_not_depend_on_its_own_layer_or_a_higher_one() {
        let message = &check("crates/audit", "[dependencies]\nportcullis-store = {}")[0];
        assert!(message.starts_with("portcullis-audit depends on portcullis-store:"), "{message}");
        assert!(message.contains("only on lower layers"), "{message}");
        assert_eq!(check("crates/core", "[dependencies]\nportcullis-gateway = {}").len(), 1);
        assert_eq!(check("crates/gateway", "[dependencies]\nportcullis = {}").len(), 1);
    }

    #[test]
    fn dev_build_target_and_renamed_dependencies_count_too() {
        for dependencies in [
            "[dev-dependencies]\nportcullis-gateway = {}",
            "[build-dependencies]\nportcullis-gateway = {}",
            "[target.'cfg(unix)'.dependencies]\nportcullis-gateway = {}",
            "[dependencies]\ngate = { path = \"../gateway\", package = \"portcullis-gateway\" }",
            "[dependencies]\nsneaky.workspace = true",
        ] {
            assert_eq!(check("crates/store", dependencies).len(), 1, "{dependencies}");
        }
    }

    #[test]
    fn a_crate_may_name_itself_to_switch_a_feature_on_in_its_tests() {
        let own = "[dev-dependencies]\nportcullis-audit = { workspace = true, features = [\"failpoints\"] }";
        assert!(check("crates/audit", own).is_empty());
    }

    #[test]
    fn a_peer_may_depend_on_no_crate_of_ours() {
        for folder in ["servers/spyd", "xtask"] {
            let message = &check(folder, "[dev-dependencies]\nportcullis-core = {}")[0];
            assert!(
                message.contains("portcullis-core") && message.contains("no Portcullis crate"),
                "{message}"
            );
        }
        assert_eq!(check("servers/spyd", "[dependencies]\nportcullis = {}").len(), 1);
        assert!(check("examples/agent-loop", "[dependencies]\nportcullis-context = {}").is_empty());
    }

    #[test]
    fn the_policy_engine_lives_in_governance_only() {
        let message = &check("crates/gateway", "[dependencies]\ncedar-policy.workspace = true")[0];
        assert!(message.contains("portcullis-gateway depends on cedar-policy"), "{message}");
        assert_eq!(check("servers/spyd", "[dependencies]\ncedar-policy-core = \"4\"").len(), 1);
    }

    #[test]
    fn an_unknown_crate_must_be_given_a_layer() {
        assert!(check("crates/helpers", "")[0].contains("in no layer"));
        assert!(
            check("crates/gateway", "[dependencies]\nportcullis-helpers = {}")[0].contains("in no layer")
        );
    }

    #[test]
    fn this_workspace_keeps_its_layers() {
        run(&Workspace::find().unwrap()).unwrap();
    }

    #[test]
    fn administration_does_not_know_the_store() {
        // ADM-72
        let broken = check("crates/admin", "[dependencies]\nportcullis-store.workspace = true");
        assert_eq!(
            broken,
            ["portcullis-admin depends on portcullis-store: handlers ask services, and no store"]
        );
        assert!(check("crates/admin", "[dependencies]\nportcullis-gateway.workspace = true").is_empty());
    }
}
