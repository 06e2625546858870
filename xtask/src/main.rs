//! `cargo xtask <task>`: every developer task, in Rust instead of shell.
//!
//! | module | the idea |
//! |---|---|
//! | `test` | everything that must hold before a change is done, as a list of steps |
//! | `steps` | running steps: a heading, a time and a verdict each; one failure does not hide the next |
//! | `layers` | which crate may depend on which |
//! | `third_party` | real MCP packages for the tests, installed once into the user's cache |
//! | `embeddings` | the table that search finds by meaning with, fetched and converted |
//! | `fuzz` | the properties, tried as often as one likes |
//! | `conformance` | the official suite, directly and through the gateway |
//! | `bench`, `admin`, `spine`, `gauntlet`, `governance`, `sandbox`, `catalogue`, `context`, `surface` | side-by-side benchmarks, reported as ratios |
//! | `workspace` | where things are: root, cache, target folder, manifests |

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks")]

mod admin;
mod audit;
mod bench;
mod catalogue;
mod conformance;
mod context;
mod embeddings;
mod fuzz;
mod gauntlet;
mod governance;
mod layers;
mod operator;
mod process;
mod report;
mod sandbox;
mod spine;
mod steps;
mod surface;
mod test;
mod third_party;
mod workspace;

use std::process::ExitCode;

use crate::workspace::Workspace;

const HELP: &str = "\
cargo xtask <task>

  test                  format, lints, layers, builds, all tests, third-party servers and clients
  layers                check which crate depends on which
  bench [admin|audit|context|gauntlet|governance|routing|sandbox|surface|tokens|spine]   run the benchmarks side by side and write docs/benchmarks.md
                        (spine: --calls N per run, --rounds N, --peers-only without the gateway; surface: --calls N, --rounds N,
                        --programs FOLDER for what needs programs alone, as built there, with nothing written down)
  fuzz [NAME]           try the properties of the gauntlet, the framing and the surface on made-up input (--cases N of each; 100000)
  conformance           run the official MCP conformance suite directly and through the gateway, and compare
                        (--only through|legacy|modern|client for a part of it, --as-built without building)
  embeddings            fetch and convert the table that search finds by meaning with, and print where it is
  third-party           install the real MCP packages that the tests use, and print where they are
  fmt                   format all code
  help                  this text

Installed packages and, with CI=true, build results are kept in $XDG_CACHE_HOME/portcullis-xtask
(or ~/.cache/portcullis-xtask).
";

/// What a task gives back: a text is told to the user and fails the task.
type Outcome<T = ()> = Result<T, String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = Workspace::find().and_then(|workspace| match arguments.as_slice() {
        ["test"] => Ok(test::run(&workspace)),
        ["layers"] => layers::run(&workspace).map(|()| ExitCode::SUCCESS),
        ["bench", rest @ ..] => bench::run(&workspace, rest).map(|()| ExitCode::SUCCESS),
        ["fuzz", rest @ ..] => fuzz::run(&workspace, rest).map(|()| ExitCode::SUCCESS),
        ["conformance", rest @ ..] => conformance::run(&workspace, rest).map(|()| ExitCode::SUCCESS),
        ["embeddings"] => embeddings::run_command(&workspace).map(|()| ExitCode::SUCCESS),
        // What the suite starts for each scenario of a client.
        ["conformance-client", url] => conformance::client(&workspace, url).map(|()| ExitCode::SUCCESS),
        ["third-party"] => third_party::install(&workspace).map(|places| {
            println!("export PORTCULLIS_NODE_MODULES={}", places.node_modules.display());
            println!("export PORTCULLIS_PYTHON={}", places.python.display());
            println!("export PORTCULLIS_WHEELS={}", places.wheels.display());
            ExitCode::SUCCESS
        }),
        ["fmt"] => workspace.cargo(&["fmt", "--all"]).map(|()| ExitCode::SUCCESS),
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        _ => Err(format!("no such task\n\n{HELP}")),
    });
    outcome.unwrap_or_else(|error| {
        eprintln!("xtask: {error}");
        ExitCode::FAILURE
    })
}
