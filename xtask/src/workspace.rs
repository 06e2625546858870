//! Where things are: the root of the checkout, the user's cache, the target folder, the manifests.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;
use crate::layers::Manifest;

/// The checkout, and what the environment says about building it.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    /// This tool's folder in the user's cache.
    pub(crate) cache: PathBuf,
    pub(crate) target: PathBuf,
}

impl Workspace {
    pub(crate) fn find() -> Outcome<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("xtask has no parent folder")?;
        let cache = cache_folder(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME"))
            .ok_or("neither XDG_CACHE_HOME nor HOME is set: there is no cache folder")?
            .join("portcullis-xtask");
        let ci = env::var_os("CI").is_some_and(|ci| ci == "true");
        let target = match env::var_os("CARGO_TARGET_DIR") {
            Some(target) => root.join(target),
            // A fresh clone on the same machine finds its dependencies built.
            None if ci => cache.join("target"),
            None => root.join("target"),
        };
        Ok(Self { root: root.to_owned(), cache, target })
    }

    /// A cargo command for this workspace.
    pub(crate) fn cargo_command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(arguments).current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        // What cargo told this process about itself must not leak into the builds it starts.
        for variable in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION", "CARGO_MANIFEST_PATH"] {
            command.env_remove(variable);
        }
        command
    }

    /// Runs cargo, its output to the user.
    pub(crate) fn cargo<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Outcome {
        run(&mut self.cargo_command(arguments))
    }

    /// The manifests of all members, by folder.
    pub(crate) fn manifests(&self) -> Outcome<Vec<Manifest>> {
        let mut folders = vec!["xtask".to_owned()];
        for group in ["crates", "examples", "servers"] {
            let entries = fs::read_dir(self.root.join(group)).map_err(|error| format!("{group}: {error}"))?;
            for entry in entries {
                let name = entry.map_err(|error| format!("{group}: {error}"))?.file_name();
                folders.push(format!("{group}/{}", name.to_string_lossy()));
            }
        }
        folders.sort_unstable();
        let root = fs::read_to_string(self.root.join("Cargo.toml")).map_err(|error| error.to_string())?;
        folders
            .iter()
            .filter_map(|folder| {
                let text = fs::read_to_string(self.root.join(folder).join("Cargo.toml")).ok()?;
                Some(Manifest::parse(folder, &text, &root))
            })
            .collect()
    }
}

fn cache_folder(xdg: Option<std::ffi::OsString>, home: Option<std::ffi::OsString>) -> Option<PathBuf> {
    // The XDG rules ignore a relative path.
    let xdg = xdg.map(PathBuf::from).filter(|path| path.is_absolute());
    xdg.or_else(|| home.map(|home| Path::new(&home).join(".cache")))
}

/// Runs a command; the error names it.
pub(crate) fn run(command: &mut Command) -> Outcome {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{}: {status}", show(command))),
        Err(error) => Err(format!("{}: {error}", show(command))),
    }
}

/// Runs a command and gives its standard output; the error holds what it said.
pub(crate) fn output(command: &mut Command) -> Outcome<String> {
    let output = command.output().map_err(|error| format!("{}: {error}", show(command)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}\n{}", show(command), output.status, said.trim_end()));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("{}: its output is not UTF-8", show(command)))
}

fn show(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_the_users_and_a_relative_one_is_ignored() {
        assert_eq!(cache_folder(Some("/c".into()), Some("/h".into())), Some("/c".into()));
        assert_eq!(cache_folder(Some("c".into()), Some("/h".into())), Some("/h/.cache".into()));
        assert_eq!(cache_folder(None, None), None);
    }

    #[test]
    fn a_failing_command_is_named() {
        let error = run(Command::new("false").arg("why")).unwrap_err();
        assert!(error.starts_with("false why: "), "{error}");
    }
}
