//! What a program may have.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Everything a confined program has. What is not in here does not exist for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The program, an absolute path without symbolic links.
    pub command: PathBuf,
    /// Its arguments, without the program's own name.
    pub args: Vec<String>,
    /// Where it starts; must be in its view.
    pub cwd: PathBuf,
    /// Its whole environment.
    pub env: BTreeMap<String, String>,
    /// Files and folders that are part of the program: libraries, modules, an interpreter. Read-only.
    pub artifacts: Vec<PathBuf>,
    /// What it may work on.
    pub fs: Vec<FsScope>,
    /// Programs it may start besides itself.
    pub exec: Vec<PathBuf>,
    /// How much it may use.
    pub limits: Limits,
}

/// A folder or file of the host, at its real path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FsScope {
    /// Absolute, without symbolic links.
    pub path: PathBuf,
    /// For reading, or for writing too.
    pub access: Access,
}

/// For reading, or for writing too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Only for reading.
    Ro,
    /// For reading and writing.
    Rw,
}

/// How much a program may use (SBX-12).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Bytes of memory.
    pub memory: u64,
    /// Processes and threads.
    pub pids: u64,
    /// Open files.
    pub nofile: u64,
    /// Size of a file it writes.
    pub fsize: u64,
    /// Size of its `/tmp`.
    pub tmp: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: 512 << 20, pids: 64, nofile: 512, fsize: 256 << 20, tmp: 64 << 20 }
    }
}

impl Profile {
    /// A profile in which `command` has nothing but itself and the defaults.
    pub fn bare(command: impl Into<PathBuf>, args: Vec<String>) -> Self {
        let env = [("HOME", "/tmp/home"), ("LANG", "C.UTF-8"), ("PATH", "/usr/bin:/bin"), ("TMPDIR", "/tmp")];
        Self {
            command: command.into(),
            args,
            cwd: "/tmp/home".into(),
            env: env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            artifacts: Vec::new(),
            fs: Vec::new(),
            exec: Vec::new(),
            limits: Limits::default(),
        }
    }
}
