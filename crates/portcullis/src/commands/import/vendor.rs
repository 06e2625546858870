//! Package runners, turned into files of ours (GOV-1402).
//!
//! `npx thing` runs whatever `thing` is today. Its files are fetched once, with the machine's own npm or pip in a cage
//! (see `build_cage`), without running anything of the package; from then on they are pinned, and the server is started
//! from them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use portcullis_gateway::control::Target;
use serde_json::Value;
use url::Url;

use super::build_cage::Build;
use super::program;
use crate::failure::Failure;
use crate::output::visible;

/// A package, and what it is run with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Runner {
    kind: Kind,
    /// What is fetched: `@scope/name@1.2`.
    spec: String,
    /// The program of the package, if it is said.
    program: Option<String>,
    args: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Npm,
    Python,
}

/// The package that a command runs; none if it is no package runner.
pub(super) fn runner(command: &str, args: &[String]) -> Option<Result<Runner, Failure>> {
    let name = Path::new(command).file_name()?.to_str()?;
    let first = args.first().map(String::as_str);
    let (kind, rest) = match (name, first) {
        ("npx" | "bunx", _) => (Kind::Npm, args),
        ("pnpm", Some("dlx")) => (Kind::Npm, &args[1..]),
        ("uvx", _) => (Kind::Python, args),
        ("pipx", Some("run")) => (Kind::Python, &args[1..]),
        ("uv", Some("tool")) if args.get(1).is_some_and(|word| word == "run") => (Kind::Python, &args[2..]),
        ("docker" | "podman", Some("run")) => {
            let message = "containers are not taken over; register the program itself";
            return Some(Err(Failure::field("command", message)));
        }
        _ => return None,
    };
    Some(understand(kind, rest))
}

fn understand(kind: Kind, args: &[String]) -> Result<Runner, Failure> {
    let mut spec = None;
    let mut rest = args.iter();
    let name = loop {
        match rest.next().map(String::as_str) {
            Some("-y" | "--yes" | "-q" | "--quiet" | "--") => {}
            Some("-p" | "--package" | "--from" | "--spec") => spec = rest.next().cloned(),
            Some(flag) if flag.starts_with('-') => {
                let message = format!("the runner's flag {} is not understood", visible(flag));
                return Err(Failure::field("command", message));
            }
            Some(name) => break name.to_owned(),
            None => return Err(Failure::field("command", "it names no package")),
        }
    };
    let program = spec.is_some().then(|| name.clone());
    let spec = spec.unwrap_or(name);
    let plain = |c: char| c.is_ascii_alphanumeric() || "@/._-=~^<>+![],".contains(c);
    if spec.starts_with('-') || !spec.chars().all(plain) || spec.contains("..") {
        return Err(Failure::field("command", format!("{} is no package name", visible(&spec))));
    }
    Ok(Runner { kind, spec, program, args: rest.cloned().collect() })
}

/// Fetches the package into `folder`, and gives what starts it from there.
pub(super) fn fetch(
    runner: &Runner,
    folder: &Path,
    env: &BTreeMap<String, String>,
    known: &BTreeMap<String, Vec<IpAddr>>,
) -> Result<Target, Failure> {
    let failed = |error: std::io::Error| Failure::field("home", format!("{}: {error}", folder.display()));
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(failed)?;
    }
    std::fs::create_dir_all(folder).map_err(failed)?;
    let folder = std::fs::canonicalize(folder).map_err(failed)?;
    match runner.kind {
        Kind::Npm => npm(runner, &folder, env, known),
        Kind::Python => python(runner, &folder, env, known),
    }
}

fn npm(
    runner: &Runner,
    folder: &Path,
    env: &BTreeMap<String, String>,
    known: &BTreeMap<String, Vec<IpAddr>>,
) -> Result<Target, Failure> {
    let (npm, node) = (program("npm")?, program("node")?);
    let setting = |name: &str| answer(Command::new(&npm).args(["config", "get", name]).current_dir("/"));
    let scope = runner.spec.split_once('/').map(|(scope, _)| scope).filter(|scope| scope.starts_with('@'));
    let own = scope.and_then(|scope| setting(&format!("{scope}:registry")));
    let registry = registry(own.or_else(|| setting("registry")))?;
    let flags =
        ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--no-update-notifier"];
    let args = std::iter::once(npm.as_str()).chain(flags);
    let args = args.chain([
        "--fetch-retries",
        "2",
        "--fetch-retry-mintimeout",
        "1000",
        "--fetch-retry-maxtimeout",
        "4000",
    ]);
    let args = args.chain(["--cache", "/tmp/npm", "--registry", registry.as_str(), "--prefix"]);
    let mut args: Vec<String> = args.map(ToOwned::to_owned).collect();
    args.extend([folder.to_string_lossy().into_owned(), "--".into(), runner.spec.clone()]);
    // npm is a script in a folder of its own.
    let artifacts = Path::new(&npm).ancestors().nth(2).map(Path::to_owned).into_iter().collect();
    let command =
        std::fs::canonicalize(node).map_err(|error| Failure::field("command", format!("node: {error}")))?;
    Build { command, args, artifacts, env: Vec::new(), registries: vec![registry] }.run(folder, known)?;
    let modules = folder.join("node_modules");
    let package = package_name(&runner.spec);
    let place = modules.join(&package);
    let manifest: Value = std::fs::read(place.join("package.json"))
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .ok_or_else(|| Failure::field("command", format!("{} has no package.json", visible(&package))))?;
    let wanted = runner.program.as_deref().unwrap_or(package.rsplit('/').next().unwrap_or_default());
    let entry = match &manifest["bin"] {
        Value::String(entry) => Some(entry.clone()),
        Value::Object(bins) if bins.len() == 1 => {
            bins.values().next().and_then(Value::as_str).map(ToOwned::to_owned)
        }
        Value::Object(bins) => bins.get(wanted).and_then(Value::as_str).map(ToOwned::to_owned),
        _ => None,
    };
    let entry = entry.filter(|entry| !Path::new(entry).is_absolute() && !entry.contains(".."));
    let entry = entry
        .ok_or_else(|| Failure::field("command", format!("{} has no program to run", visible(&package))))?;
    let entry = std::fs::canonicalize(place.join(entry))
        .map_err(|error| Failure::field("command", format!("{}: {error}", visible(&package))))?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    Ok(Target::Stdio {
        command: program("node")?,
        args: std::iter::once(text(&entry)).chain(runner.args.iter().cloned()).collect(),
        env: env.clone(),
        artifacts: vec![text(&modules)],
        process_model: None,
    })
}

fn python(
    runner: &Runner,
    folder: &Path,
    env: &BTreeMap<String, String>,
    known: &BTreeMap<String, Vec<IpAddr>>,
) -> Result<Target, Failure> {
    // The machine's own interpreter, whose library is in every cage; what is first in the path may be a script.
    let own = Path::new("/usr/bin/python3");
    let python = match std::fs::canonicalize(own) {
        Ok(own) => own.to_string_lossy().into_owned(),
        Err(_) => program("python3")?,
    };
    let pip = Pip::of_machine()?;
    // Wheels only: what has to be built would run its own code to do so.
    let flags = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir"];
    let flags = flags.into_iter().chain(["--only-binary", ":all:", "--no-compile"]);
    let flags = flags.chain(["--index-url", pip.registries[0].as_str()]);
    let trusted = pip.trusted.iter().flat_map(|host| ["--trusted-host", host.as_str()]);
    let mut args: Vec<String> = flags.chain(trusted).chain(["--target"]).map(ToOwned::to_owned).collect();
    args.extend([folder.to_string_lossy().into_owned(), "--".into(), pip_spec(&runner.spec)]);
    let (artifacts, path) = (vec![pip.place.clone()], pip.place.to_string_lossy().into_owned());
    let env_of_pip = vec![("PYTHONPATH", path), ("PYTHONDONTWRITEBYTECODE", "1".into())];
    let command = PathBuf::from(&python);
    Build { command, args, artifacts, env: env_of_pip, registries: pip.registries }.run(folder, known)?;
    let name = runner.program.clone().unwrap_or_else(|| package_name(&runner.spec));
    let entry = folder.join("bin").join(&name);
    if name.contains('/') || !entry.is_file() {
        let message = format!("{} has no program {}", visible(&runner.spec), visible(&name));
        return Err(Failure::field("command", message));
    }
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut env = env.clone();
    env.insert("PYTHONPATH".into(), text(folder));
    env.insert("PYTHONDONTWRITEBYTECODE".into(), "1".into());
    Ok(Target::Stdio {
        command: python,
        args: std::iter::once(text(&entry)).chain(runner.args.iter().cloned()).collect(),
        env,
        artifacts: vec![text(folder)],
        process_model: None,
    })
}

/// The machine's pip: the folder it is in, the index it asks, and where that keeps its files.
struct Pip {
    place: PathBuf,
    registries: Vec<Url>,
    /// Hosts that its owner told it to believe without a certificate.
    trusted: Vec<String>,
}

impl Pip {
    fn of_machine() -> Result<Self, Failure> {
        let python = program("python3")?;
        let ask = |script: &str| answer(Command::new(&python).args(["-c", script]).current_dir("/"));
        let place =
            ask("import os, pip; print(os.path.dirname(os.path.dirname(os.path.realpath(pip.__file__))))");
        let place = place.ok_or_else(|| Failure::field("command", "python3 has no pip; install it first"))?;
        let setting = |variable: &str, key: &str| {
            std::env::var(variable).ok().or_else(|| {
                answer(Command::new(&python).args(["-m", "pip", "config", "get", key]).current_dir("/"))
            })
        };
        let set = setting("PIP_INDEX_URL", "global.index-url");
        let trusted = setting("PIP_TRUSTED_HOST", "global.trusted-host").unwrap_or_default();
        let trusted = trusted.split_whitespace().map(ToOwned::to_owned).collect();
        let registries = match set {
            Some(index) => vec![registry(Some(index))?],
            // pip itself knows where it goes if nobody says.
            None => {
                let index = ask("from pip._internal.models.index import PyPI; print(PyPI.simple_url)");
                let files =
                    ask("from pip._internal.models.index import PyPI; print(PyPI.file_storage_domain)");
                let files = files.map(|domain| format!("https://{domain}/"));
                vec![registry(index)?, registry(files)?]
            }
        };
        Ok(Self { place: place.into(), registries, trusted })
    }
}

/// `@scope/name@1.2`: without the version. `name==1.2` as well.
fn package_name(spec: &str) -> String {
    let end =
        spec.char_indices().skip(1).find(|(_, c)| "@=<>!~[".contains(*c)).map_or(spec.len(), |(at, _)| at);
    spec[..end].to_owned()
}

/// uvx says `name@1.2` and pip `name==1.2`.
fn pip_spec(spec: &str) -> String {
    match spec.split_once('@') {
        Some((name, "latest")) => name.to_owned(),
        Some((name, version)) => format!("{name}=={version}"),
        None => spec.to_owned(),
    }
}

/// What a program of the machine's own says in one line. Nothing of a package is involved.
fn answer(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    let text = text.trim();
    (!text.is_empty() && text != "undefined" && text != "null").then(|| text.to_owned())
}

fn registry(text: Option<String>) -> Result<Url, Failure> {
    let missing = || Failure::field("registry", "the machine's package manager names no registry");
    text.and_then(|text| Url::parse(&text).ok()).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(ToOwned::to_owned).collect()
    }

    #[test]
    fn runners_are_understood_and_others_are_none() {
        // GOV-302, GOV-1402
        let is = |line: &str| {
            let words = words(line);
            runner(&words[0], &words[1..]).map(|runner| runner.map_err(|failure| failure.message.clone()))
        };
        let found = is("npx -y @scope/thing@1.2 /srv --flag").unwrap().unwrap();
        assert_eq!(
            (found.kind, found.spec.as_str(), found.args),
            (Kind::Npm, "@scope/thing@1.2", words("/srv --flag"))
        );
        let found = is("uvx --from mcp-thing thing x").unwrap().unwrap();
        assert_eq!((found.spec.as_str(), found.program.as_deref()), ("mcp-thing", Some("thing")));
        assert!(is("/usr/bin/node server.js").is_none() && is("pnpm start").is_none());
        assert!(is("docker run x").unwrap().unwrap_err().contains("containers"));
        for bad in ["npx", "npx --call sh", "npx -y $(evil)", "uvx ../evil", "npx -p --evil x"] {
            assert!(is(bad).unwrap().is_err(), "{bad}");
        }
    }

    #[test]
    fn versions_come_off() {
        for (spec, name) in [("@a/b@1", "@a/b"), ("b@1", "b"), ("b", "b"), ("b==1.0", "b"), ("b[x]", "b")] {
            assert_eq!(package_name(spec), name);
        }
        assert_eq!((pip_spec("a@1.0").as_str(), pip_spec("a@latest").as_str()), ("a==1.0", "a"));
    }
}
