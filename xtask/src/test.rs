//! Everything that must hold before a change is done. A missing tool is a failed step that says what to install.

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::steps::Steps;
use crate::third_party::{self, ThirdParty};
use crate::workspace::{Workspace, output, run as run_command};
use crate::{Outcome, conformance, layers};

/// Programs that the tests start besides the gateway.
const SUPPORT: [&str; 5] = ["spyd", "demo-server", "bench-peer", "auditck", "evil"];

/// Runs all steps.
pub(crate) fn run(workspace: &Workspace) -> ExitCode {
    let mut steps = Steps::default();
    steps.run("format", || workspace.cargo(&["fmt", "--all", "--check"]));
    steps.run("layers", || layers::run(workspace));
    // All features: the failpoints are code as well. The build without them is checked further down.
    steps.run("clippy", || {
        workspace.cargo(&["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"])
    });
    let features = steps.run("failpoint features", || failpoint_features(workspace)).unwrap_or_default();
    steps.run("build what the tests start", || build_support(workspace, &features));
    let third_party = steps.run("third-party servers and clients", || third_party::install(workspace));
    steps.run("tests", || tests(workspace, &features, third_party.as_ref()));
    steps.run("conformance, directly and through the gateway", || match third_party.as_ref() {
        Some(third_party) => conformance::compare(workspace, third_party),
        None => Err("the suite is not installed".to_owned()),
    });
    steps.run("documentation tests", || {
        let mut arguments = vec!["test", "--doc", "--workspace"];
        arguments.extend(features_argument(&features));
        workspace.cargo(&arguments)
    });
    steps.run("no failpoints in the default build", || no_failpoints(workspace));
    steps.finish()
}

/// `package/failpoints` of every member that has them, joined as cargo wants it.
fn failpoint_features(workspace: &Workspace) -> Outcome<String> {
    let manifests = workspace.manifests()?;
    let features: Vec<String> = manifests
        .iter()
        .filter(|manifest| manifest.features.contains("failpoints"))
        .map(|manifest| format!("{}/failpoints", manifest.package))
        .collect();
    println!("{}", features.join(" "));
    if features.is_empty() {
        Err("no crate has failpoints any more".to_owned())
    } else {
        Ok(features.join(","))
    }
}

fn features_argument(features: &str) -> Vec<&str> {
    if features.is_empty() { Vec::new() } else { vec!["--features", features] }
}

/// The features are those of the test run, so that it finds the programs built and does not replace them.
fn build_support(workspace: &Workspace, features: &str) -> Outcome {
    let mut arguments = vec!["build", "--workspace", "--bins"];
    arguments.extend(features_argument(features));
    workspace.cargo(&arguments)?;
    for program in SUPPORT.into_iter().chain(["portcullis"]) {
        let path = workspace.target.join("debug").join(program);
        if !path.is_file() {
            return Err(format!("{program} was not built: {} is missing", path.display()));
        }
    }
    Ok(())
}

fn tests(workspace: &Workspace, features: &str, third_party: Option<&ThirdParty>) -> Outcome {
    let has_nextest =
        workspace.cargo_command(&["nextest", "--version"]).output().is_ok_and(|out| out.status.success());
    let mut arguments = if has_nextest {
        vec!["nextest", "run", "--workspace", "--no-fail-fast"]
    } else {
        println!("cargo-nextest is not installed; cargo test it is");
        vec!["test", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast"]
    };
    arguments.extend(features_argument(features));
    let mut command = workspace.cargo_command(&arguments);
    command.env("PORTCULLIS_BIN_DIR", workspace.target.join("debug"));
    // a minute here; more on demand.
    if std::env::var_os("PORTCULLIS_SOAK_SECONDS").is_none() {
        command.env("PORTCULLIS_SOAK_SECONDS", "60");
    }
    if let Some(third_party) = third_party {
        command.env("PORTCULLIS_NODE_MODULES", &third_party.node_modules);
        command.env("PORTCULLIS_PYTHON", &third_party.python);
        command.env("PORTCULLIS_WHEELS", &third_party.wheels);
    }
    run_command(&mut command)
}

/// AUD-80: nothing that a test can make fail is in the binary that people get.
fn no_failpoints(workspace: &Workspace) -> Outcome {
    let tree = output(&mut workspace.cargo_command(&[
        "tree",
        "--package",
        "portcullis",
        "--edges",
        "normal,build",
        "--prefix",
        "none",
        "--format",
        "{p} [{f}]",
    ]))?;
    let with: Vec<&str> = armed(&tree);
    if !tree.lines().any(|line| line.starts_with("portcullis ")) {
        return Err("cargo tree does not show portcullis".to_owned());
    }
    if with.is_empty() {
        Ok(())
    } else {
        Err(format!("the default build has failpoints:\n{}", with.join("\n")))
    }
}

fn armed(tree: &str) -> Vec<&str> {
    let features = |line: &str| {
        line.rsplit_once('[').map(|(_, list)| list.trim_end_matches(['*', ' ', '(', ')', ']']).to_owned())
    };
    tree.lines()
        .filter(|line| {
            features(line).is_some_and(|list| list.split(',').any(|feature| feature == "failpoints"))
        })
        .collect()
}

/// Whether a program can be started at all.
pub(crate) fn is_there(program: impl AsRef<Path>, argument: &str) -> bool {
    Command::new(program.as_ref()).arg(argument).output().is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failpoint_in_the_tree_is_found_by_feature_and_not_by_name() {
        let tree = "portcullis v0.1.0 (/x) [default]\nportcullis-core v0.1.0 (/x) [default,failpoints] (*)\nserde v1 []\nfailpoints v1 [a]";
        assert_eq!(armed(tree), ["portcullis-core v0.1.0 (/x) [default,failpoints] (*)"]);
    }
}
