//! The official conformance suite, run against the reference server directly and through the gateway (PRO-50).
//!
//! What counts is that both give the same result, check by check (PRO-51). Differences that are known are listed with
//! their reason in `xtask/conformance/differences.toml`; an unlisted one fails the run, and so does a listed one that is
//! gone. Then the era cross: a server that speaks only the old revisions, and one that speaks only the newest. Last the suite's own
//! servers, with Portcullis as their client.

mod client;
mod declaration;
mod differences;
mod suite;

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Outcome;
use crate::operator::{Gateway, Registration, Upstream};
use crate::process::Running;
use crate::third_party::{self, ThirdParty};
use crate::workspace::Workspace;
use differences::Known;
use suite::{Results, Suite};

/// What a run of the suite asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// What a revision requires, and what the suite has beyond.
    Required(&'static str),
    /// Everything it has for an older revision.
    Version(&'static str),
}

impl Wanted {
    fn revision(self) -> &'static str {
        match self {
            Wanted::Required(revision) | Wanted::Version(revision) => revision,
        }
    }
}

/// What a run must have found, to mean anything: with a server down the suite still says that checks passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Least {
    pub(crate) scenarios: usize,
    pub(crate) checks: usize,
}

const fn least(scenarios: usize, checks: usize) -> Least {
    Least { scenarios, checks }
}

const WANTED: [(Wanted, Least); 4] = [
    (Wanted::Required("2025-11-25"), least(33, 83)),
    (Wanted::Required("2026-07-28"), least(50, 197)),
    (Wanted::Version("2025-06-18"), least(27, 56)),
    (Wanted::Version("2025-03-26"), least(1, 3)),
];
/// The cross needs one revision of each era.
const CROSS: usize = 2;
/// The suite's own servers, for Portcullis as their client.
const CLIENT: [(Wanted, Least); 2] =
    [(Wanted::Required("2025-11-25"), least(25, 400)), (Wanted::Required("2026-07-28"), least(39, 500))];

/// What there is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// A server of all revisions behind the gateway.
    Through,
    /// One of the old revisions only.
    Legacy,
    /// One of the newest only.
    Modern,
    /// The suite's own servers.
    Client,
}

impl Part {
    const ALL: [Self; 4] = [Self::Through, Self::Legacy, Self::Modern, Self::Client];

    fn name(self) -> &'static str {
        match self {
            Self::Through => "through",
            Self::Legacy => "legacy",
            Self::Modern => "modern",
            Self::Client => "client",
        }
    }

    /// `--only PART`, as often as one likes; without it everything.
    fn wanted(arguments: &[&str]) -> Outcome<Vec<Self>> {
        let named = |name: &str| Self::ALL.into_iter().find(|part| part.name() == name);
        let mut parts = Vec::new();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let part = rest.next().filter(|_| *argument == "--only").and_then(|name| named(name));
            parts.push(part.ok_or(
                "conformance takes --only through|legacy|modern|client, --as-built and nothing else",
            )?);
        }
        Ok(if parts.is_empty() { Self::ALL.to_vec() } else { parts })
    }
}

/// The suite waits a second and a half for news of a change, and makes several.
const CONFIG: &str = "[policy]\npreset = \"observe\"\n[gateway]\nnames = \"bare\"\n[catalog]\nrefresh_debounce_ms = 200\nrefresh_max_per_minute = 60\n";

/// Installs what is needed, builds, runs, compares.
pub(crate) fn run(workspace: &Workspace, arguments: &[&str]) -> Outcome {
    let (built, arguments): (Vec<&str>, Vec<&str>) =
        arguments.iter().partition(|argument| **argument == "--as-built");
    let parts = Part::wanted(&arguments)?;
    let third_party = third_party::install(workspace)?;
    if built.is_empty() {
        workspace.cargo(&["build", "--package", "portcullis", "--package", "conformance-server"])?;
    }
    compare_parts(workspace, &third_party, &parts)
}

/// One scenario of the suite with Portcullis as the client.
pub(crate) fn client(workspace: &Workspace, url: &str) -> Outcome {
    client::run(workspace, url)
}

/// Everything but installing and building.
pub(crate) fn compare(workspace: &Workspace, third_party: &ThirdParty) -> Outcome {
    compare_parts(workspace, third_party, &Part::ALL)
}

fn compare_parts(workspace: &Workspace, third_party: &ThirdParty, parts: &[Part]) -> Outcome {
    let scratch = workspace.target.join("conformance");
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let suite = Suite::new(third_party, &scratch)?;
    let known = Known::read(&workspace.root.join("xtask/conformance/differences.toml"))?;
    let mut report = known.report();

    let servers: Vec<Part> = parts.iter().copied().filter(|part| *part != Part::Client).collect();
    let direct = if servers.is_empty() { Vec::new() } else { directly(workspace, &suite)? };
    for part in servers {
        // The suite changes what a server lists; what is registered is one that nobody has talked to.
        let eras = if part == Part::Through { "both" } else { part.name() };
        let server = Reference::start(workspace, eras)?;
        let gateway = server.behind_a_gateway(workspace, &scratch, eras)?;
        let revisions = if part == Part::Through { WANTED.len() } else { CROSS };
        for ((wanted, _), direct) in WANTED.into_iter().zip(&direct).take(revisions) {
            let name = format!("{}-{}", part.name(), wanted.revision());
            let through = suite.run(wanted, &gateway.url, &name)?;
            report.compare(part.name(), wanted.revision(), direct, &through);
        }
    }
    if parts.contains(&Part::Client) {
        for (wanted, least) in CLIENT {
            let name = format!("client-{}", wanted.revision());
            let results = suite.run_client(wanted, &client::command()?, &name)?;
            results.at_least(least, &name)?;
            report.judge("client", wanted.revision(), &results);
        }
    }
    report.finish()
}

/// What the suite finds of the reference server itself: everything there is to find, and all of it good.
fn directly(workspace: &Workspace, suite: &Suite) -> Outcome<Vec<Results>> {
    let server = Reference::start(workspace, "both")?;
    let mut direct = Vec::new();
    for (wanted, least) in WANTED {
        let name = format!("direct-{}", wanted.revision());
        let results = suite.run(wanted, &server.url, &name)?;
        // A reference that fails proves nothing about what stands in front of it.
        if let Some(failed) = results.first_failure() {
            return Err(format!("the reference server itself fails {failed} at {}", wanted.revision()));
        }
        results.at_least(least, &name)?;
        direct.push(results);
    }
    Ok(direct)
}

/// A running reference server.
struct Reference {
    _running: Running,
    url: String,
}

impl Reference {
    fn start(workspace: &Workspace, eras: &str) -> Outcome<Self> {
        let program = workspace.target.join("debug/conformance-server");
        let (running, url) = Running::listening(Command::new(program).args(["--eras", eras]))?;
        Ok(Self { _running: running, url })
    }

    /// A gateway with this server behind it, everything declared, its names unchanged.
    fn behind_a_gateway(&self, workspace: &Workspace, scratch: &Path, eras: &str) -> Outcome<Gateway> {
        let catalogue = workspace.root.join("servers/conformance-server/src/catalogue.json");
        let declaration = scratch.join(format!("conformance-{eras}.yaml"));
        fs::write(&declaration, declaration::of(&catalogue)?).map_err(|error| error.to_string())?;
        let registration = Registration {
            name: "conformance",
            version: env!("CARGO_PKG_VERSION"),
            declaration: &declaration,
            upstream: Upstream::Http(&self.url),
            dynamic: true,
            // Some scenarios wait half a second for an answer.
            granted: true,
            config: CONFIG,
            config_after: "",
        };
        Gateway::start(
            &workspace.target.join("debug/portcullis"),
            &scratch.join(format!("home-{eras}")),
            &registration,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_run_by_its_name_and_all_without_one() {
        assert_eq!(Part::wanted(&[]).unwrap(), Part::ALL);
        assert_eq!(
            Part::wanted(&["--only", "client", "--only", "legacy"]).unwrap(),
            [Part::Client, Part::Legacy]
        );
        for bad in [&["client"][..], &["--only"], &["--only", "servers"], &["--all", "client"]] {
            assert!(Part::wanted(bad).is_err(), "{bad:?}");
        }
    }
}
