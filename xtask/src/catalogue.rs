//! Search beside flat BM25, and what lists, cards and results cost in tokens (CAT-120 to CAT-123).

use std::ffi::OsStr;
use std::process::Command;

use crate::report::replace_section;
use crate::workspace::{Workspace, output, run};
use crate::{Outcome, embeddings};

/// How well and how fast search finds.
pub(crate) fn routing(workspace: &Workspace) -> Outcome {
    let head = "## Search: beside flat BM25\n\n\
        Shares of the expected tools among the first 1, 3, 5 and 10, and the mean reciprocal rank, on the same catalogues and queries\n\
        in one run. The synonyms were written before any of the queries was looked at. Of the second set one half, by server, was\n\
        looked at while search was improved; the other half is what is reported.\n\n";
    let table = embeddings::obtain(workspace)?;
    let original = original_seconds(workspace)?;
    let environment = [
        ("PORTCULLIS_EMBEDDINGS", table.as_os_str()),
        ("PORTCULLIS_ORIGINAL_SECONDS", OsStr::new(&original)),
    ];
    write(workspace, "routing", head, &environment)
}

/// The original's package; the files of the public set were made with the same one.
const ORIGINAL: &str = "contextweaver==0.18.2";

/// CPU seconds of one search of the original's over 1,000 tools, as it comes.
const MEASURE_ORIGINAL: &str = r#"
import json, sys, time
from contextweaver.routing.router import Router
from contextweaver.routing.tree import TreeBuilder
from contextweaver.types import SelectableItem
tools, queries = (json.load(open(path)) for path in sys.argv[1:3])
keys = ("id", "kind", "name", "description", "tags", "namespace", "args_schema")
items = [SelectableItem(**{key: tool[key] for key in keys}) for tool in tools]
router = Router(TreeBuilder().build(items), items=items, top_k=10)
router.route(queries[0]["query"])
begun = time.process_time()
for query in queries:
    router.route(query["query"])
print((time.process_time() - begun) / len(queries))
"#;

fn original_seconds(workspace: &Workspace) -> Outcome<String> {
    let folder = workspace.cache.join("original");
    let python = folder.join("bin/python");
    if !python.is_file() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    }
    run(Command::new(&python).args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        ORIGINAL,
    ]))?;
    let data = workspace.root.join("crates/catalog/benches/data");
    let mut measure = Command::new(&python);
    measure.args(["-c", MEASURE_ORIGINAL]).arg(data.join("catalog-1000.json")).arg(data.join("gold.json"));
    output(&mut measure)
}

/// What an agent pays for looking.
pub(crate) fn tokens(workspace: &Workspace) -> Outcome {
    let head = "## Tokens: what an agent pays to know its tools\n\n\
        Counted in cl100k and o200k over real servers' lists; gateway and transparent are as agents get them.\n\n";
    write(workspace, "tokens", head, &[])
}

fn write(workspace: &Workspace, bench: &str, head: &str, environment: &[(&str, &OsStr)]) -> Outcome {
    let mut command = Command::new("cargo");
    command.current_dir(&workspace.root).envs(environment.iter().copied());
    command.args(["bench", "--quiet", "--package", "portcullis-catalog", "--bench", bench]);
    let text = format!("{head}{}", output(&mut command)?);
    print!("{text}");
    let path = workspace.root.join("docs/benchmarks.md");
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    std::fs::write(&path, replace_section(&old, bench, &text)).map_err(|error| error.to_string())
}
