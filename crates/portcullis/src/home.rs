//! Where everything is: the home folder and the gateway that may be running in it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;

use crate::cli::Global;
use crate::failure::Failure;

/// A running gateway, as it describes itself in `run/daemon.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Daemon {
    pub(crate) mcp: String,
    /// Where operators open the console, unless it is off.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) console: Option<String>,
    pub(crate) pid: u32,
}

/// The home folder: `--home`, `PORTCULLIS_HOME`, or `~/.portcullis`.
///
/// Not an XDG folder: every folder above what Portcullis runs must be writable by its owner alone, and `~/.local`
/// often is not.
pub(crate) fn locate(global: &Global) -> Result<PathBuf, Failure> {
    let home = match &global.home {
        Some(home) => home.clone(),
        None => {
            let user = std::env::home_dir()
                .ok_or_else(|| Failure::field("home", "no home folder; give --home DIR"))?;
            user.join(".portcullis")
        }
    };
    let absolute = std::path::absolute(&home);
    let absolute =
        absolute.map_err(|error| Failure::field("home", format!("{}: {error}", home.display())))?;
    Ok(plain(&absolute))
}

/// The same path without `..`: what is mounted, pinned and declared is named in one way only.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            // It leads to where the folder before it really is.
            Component::ParentDir => {
                plain = std::fs::canonicalize(&plain).unwrap_or(plain);
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

pub(crate) fn operator_socket(home: &Path) -> PathBuf {
    home.join("run/operator.sock")
}

pub(crate) fn agent_socket(home: &Path) -> PathBuf {
    home.join("run/agent.sock")
}

/// Where agents connect that chose what they see.
pub(crate) fn agent_socket_in(home: &Path, mode: portcullis_gateway::exposure::Mode) -> PathBuf {
    home.join(format!("run/agent-{}.sock", mode.as_str()))
}

/// Listens on a socket in the home folder that only its owner can open.
///
/// The caller holds the writer lock, so whoever left a socket there is gone.
pub(crate) fn listen(path: &Path) -> std::io::Result<UnixListener> {
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

pub(crate) fn daemon_file(home: &Path) -> PathBuf {
    home.join("run/daemon.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_named_without_ways_back() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(real.join("a/b")).unwrap();
        std::os::unix::fs::symlink(real.join("a/b"), real.join("link")).unwrap();
        assert_eq!(plain(&real.join("link/../home")), real.join("a/home"));
        assert_eq!(plain(&real.join("a/../not/there")), real.join("not/there"));
        assert_eq!(plain(&real.join("a")), real.join("a"));
    }
}
