//! A table of static embeddings for search by meaning (CAT-69a): fetched from its package, converted, told by its digest.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::Outcome;
use crate::workspace::{Workspace, output, run};

/// MIT; 32,000 pieces of 256 dimensions.
const PACKAGE: &str = "wordllama==0.4.0.post1";
/// What is taken out of it, and which bytes that must be.
const VECTORS: (&str, &str) = (
    "wordllama/weights/l2_supercat_256.safetensors",
    "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
);
const TOKENIZER: (&str, &str) = (
    "wordllama/tokenizers/l2_supercat_tokenizer_config.json",
    "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
);

/// `cargo xtask embeddings`.
pub(crate) fn run_command(workspace: &Workspace) -> Outcome {
    let file = obtain(workspace)?;
    println!(
        "{}\nsha256 {}\n\nNext:\n  portcullis search embeddings install {}",
        file.display(),
        sha256(&file)?,
        file.display()
    );
    Ok(())
}

/// The table, made if it is not there yet.
pub(crate) fn obtain(workspace: &Workspace) -> Outcome<PathBuf> {
    let folder = workspace.cache.join("embeddings");
    let file = folder.join("wordllama-256.pclemb");
    if file.is_file() {
        return Ok(file);
    }
    let packed = folder.join("package");
    // An interrupted download is not worth repairing.
    let _ = fs::remove_dir_all(&packed);
    fs::create_dir_all(&packed).map_err(|error| format!("{}: {error}", packed.display()))?;
    run(Command::new("python3")
        .args([
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--only-binary",
            ":all:",
        ])
        .arg("--dest")
        .arg(&packed)
        .arg(PACKAGE))?;
    let wheel = fs::read_dir(&packed).map_err(|error| error.to_string())?.flatten().map(|entry| entry.path());
    let wheel = wheel.into_iter().find(|path| path.extension().is_some_and(|kind| kind == "whl"));
    let wheel = wheel.ok_or("the package came without a wheel")?;
    run(Command::new("python3").args(["-m", "zipfile", "--extract"]).arg(&wheel).arg(&packed))?;
    for (name, expected) in [VECTORS, TOKENIZER] {
        let found = sha256(&packed.join(name))?;
        if found != expected {
            return Err(format!(
                "{name} of {PACKAGE} has the digest {found}, not {expected}; it is not used"
            ));
        }
    }
    let unfinished = folder.join("unfinished.pclemb");
    let mut convert = workspace.cargo_command(&[
        "run",
        "--quiet",
        "--release",
        "--package",
        "portcullis-catalog",
        "--example",
        "embeddings",
        "--",
    ]);
    convert.args([packed.join(VECTORS.0), packed.join(TOKENIZER.0), unfinished.clone()]);
    run(&mut convert)?;
    fs::rename(&unfinished, &file).map_err(|error| error.to_string())?;
    let _ = fs::remove_dir_all(&packed);
    Ok(file)
}

fn sha256(file: &std::path::Path) -> Outcome<String> {
    let line = output(Command::new("sha256sum").arg(file))?;
    line.split_whitespace()
        .next()
        .map(str::to_owned)
        .ok_or_else(|| format!("sha256sum says nothing about {}", file.display()))
}
