//! Search beside flat BM25, and what lists, cards and results cost in tokens (CAT-120 to CAT-123).

use std::path::Path;
use std::process::Command;

use crate::report::replace_section;
use crate::workspace::{Workspace, output};
use crate::{Outcome, embeddings};

/// How well and how fast search finds.
pub(crate) fn routing(workspace: &Workspace) -> Outcome {
    let head = "## Search: beside flat BM25\n\n\
        Shares of the expected tools among the first 1, 3, 5 and 10, and the mean reciprocal rank, on the same catalogues and queries\n\
        in one run. The synonyms were written before any of the queries was looked at. Of the second set one half, by server, was\n\
        looked at while search was improved; the other half is what is reported.\n\n";
    let table = embeddings::obtain(workspace)?;
    write(workspace, "routing", head, &[("PORTCULLIS_EMBEDDINGS", table.as_path())])
}

/// What an agent pays for looking.
pub(crate) fn tokens(workspace: &Workspace) -> Outcome {
    let head = "## Tokens: what an agent pays to know its tools\n\n\
        Counted in cl100k and o200k over real servers' lists; gateway and transparent are as agents get them.\n\n";
    write(workspace, "tokens", head, &[])
}

fn write(workspace: &Workspace, bench: &str, head: &str, environment: &[(&str, &Path)]) -> Outcome {
    let mut command = Command::new("cargo");
    command.current_dir(&workspace.root).envs(environment.iter().copied());
    command.args(["bench", "--quiet", "--package", "portcullis-catalog", "--bench", bench]);
    let text = format!("{head}{}", output(&mut command)?);
    print!("{text}");
    let path = workspace.root.join("docs/benchmarks.md");
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    std::fs::write(&path, replace_section(&old, bench, &text)).map_err(|error| error.to_string())
}
