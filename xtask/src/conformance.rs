//! The official conformance suite, run against the reference server directly and through the gateway (PRO-50).
//!
//! What counts is that both give the same result, check by check (PRO-51). Differences that are known are listed with
//! their reason in `xtask/conformance/differences.toml`; an unlisted one fails the run, and so does a listed one that is
//! gone. Then the era cross: a server that speaks only the old revisions, and one that speaks only the newest.

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
use suite::Suite;

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

const WANTED: [Wanted; 4] = [
    Wanted::Required("2025-11-25"),
    Wanted::Required("2026-07-28"),
    Wanted::Version("2025-06-18"),
    Wanted::Version("2025-03-26"),
];
/// The cross needs one revision of each era.
const CROSS: [Wanted; 2] = [Wanted::Required("2025-11-25"), Wanted::Required("2026-07-28")];

/// Installs what is needed, builds, runs, compares.
pub(crate) fn run(workspace: &Workspace) -> Outcome {
    let third_party = third_party::install(workspace)?;
    workspace.cargo(&["build", "--package", "portcullis", "--package", "conformance-server"])?;
    compare(workspace, &third_party)
}

/// Everything but installing and building.
pub(crate) fn compare(workspace: &Workspace, third_party: &ThirdParty) -> Outcome {
    let scratch = workspace.target.join("conformance");
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let suite = Suite::new(third_party, &scratch)?;
    let known = Known::read(&workspace.root.join("xtask/conformance/differences.toml"))?;
    let mut report = known.report();

    let server = Reference::start(workspace, "both")?;
    let mut direct = Vec::new();
    for wanted in WANTED {
        let results = suite.run(wanted, &server.url, &format!("direct-{}", wanted.revision()))?;
        // A reference that fails proves nothing about what stands in front of it.
        if let Some(failed) = results.first_failure() {
            return Err(format!("the reference server itself fails {failed} at {}", wanted.revision()));
        }
        direct.push(results);
    }
    let gateway = server.behind_a_gateway(workspace, &scratch, "both")?;
    for (wanted, direct) in WANTED.into_iter().zip(&direct) {
        let through = suite.run(wanted, &gateway.url, &format!("through-{}", wanted.revision()))?;
        report.compare("through", wanted.revision(), direct, &through);
    }
    drop(gateway);
    for era in ["legacy", "modern"] {
        let server = Reference::start(workspace, era)?;
        let gateway = server.behind_a_gateway(workspace, &scratch, era)?;
        for (wanted, direct) in CROSS.into_iter().zip(&direct) {
            let name = format!("{era}-{}", wanted.revision());
            let through = suite.run(wanted, &gateway.url, &name)?;
            report.compare(era, wanted.revision(), direct, &through);
        }
    }
    report.finish()
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
            config: "[policy]\npreset = \"observe\"\n[gateway]\nnames = \"bare\"\n",
        };
        Gateway::start(
            &workspace.target.join("debug/portcullis"),
            &scratch.join(format!("home-{eras}")),
            &registration,
        )
    }
}
