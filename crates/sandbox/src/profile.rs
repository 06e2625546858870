//! What a program may have.

use std::collections::BTreeMap;
use std::net::IpAddr;
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
    /// Whom it may talk to, and nobody else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<EgressScope>,
    /// Whether names that it asks for are told, although it may talk to nobody: what a draft lacks is learnt so (GOV-1401).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tells_names: bool,
    /// Whether it may do so while no call is under way (SBX-47).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background_egress: bool,
    /// Hosts and addresses that it asks for in vain, and that nobody minds (SBX-49).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expected_denials: Vec<String>,
    /// Credentials that stand-ins of are in its environment, or that it is given for the time of a call (SBX-52).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretScope>,
    /// How much it may use.
    pub limits: Limits,
}

/// A host that a program may talk to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EgressScope {
    /// What the declaration calls it.
    pub scope: String,
    /// The host's name, in lower case.
    pub host: String,
    /// The port.
    pub port: u16,
    /// What must be spoken there.
    pub tls: Tls,
    /// Addresses it may have besides global ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addrs: Vec<IpAddr>,
}

/// A credential that a program needs, and how it gets to use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretScope {
    /// What it is good for.
    pub class: String,
    /// How it travels.
    pub via: Via,
    /// The variable, or the file.
    pub name: String,
    /// The scope of the host it may travel to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toward: Option<String>,
    /// What its placeholder looks like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Where in a request the placeholder is replaced: `header`, `query`, `body`.
    #[serde(default, rename = "in", skip_serializing_if = "Vec::is_empty")]
    pub within: Vec<String>,
}

/// How a credential reaches the one who needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    /// It never reaches the program: the gate puts it into requests.
    Proxy,
    /// In a file that is empty but during a call.
    Fd,
    /// In the environment of a process that serves one call.
    Env,
}

/// What must be spoken to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tls {
    /// TLS, with the host's name in the first message.
    Required,
    /// HTTP/1.1, with the host's name in each request.
    None,
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
    /// How many processors' time.
    pub cpu: Processors,
}

impl Default for Limits {
    fn default() -> Self {
        let cpu = Processors { thousandths: 1000 };
        Self { memory: 512 << 20, pids: 64, nofile: 512, fsize: 256 << 20, tmp: 64 << 20, cpu }
    }
}

/// Processors, or parts of one: `1.0`, `0.5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Processors {
    thousandths: u64,
}

impl Processors {
    /// How much of so long a time.
    pub(crate) fn of(self, time: u64) -> u64 {
        time.saturating_mul(self.thousandths) / 1000
    }
}

impl TryFrom<f64> for Processors {
    type Error = &'static str;
    fn try_from(number: f64) -> Result<Self, &'static str> {
        // Less than this the kernel does not count.
        if !(0.05..=1024.0).contains(&number) {
            return Err("the processors of a program are 0.05 to 1024");
        }
        Ok(Self { thousandths: (number * 1000.0).round() as u64 })
    }
}

impl From<Processors> for f64 {
    fn from(processors: Processors) -> f64 {
        processors.thousandths as f64 / 1000.0
    }
}

impl Limits {
    /// What no configuration goes beyond (SBX-12).
    pub const CAPS: [(&'static str, u64); 3] = [("memory", 8 << 30), ("pids", 1024), ("tmp", 4 << 30)];

    /// Which limit is beyond its cap, and what that is; or leaves nothing to use, and then without one.
    pub fn unreasonable(&self) -> Option<(&'static str, Option<u64>)> {
        let given = [
            ("memory", self.memory),
            ("pids", self.pids),
            ("tmp", self.tmp),
            ("nofile", self.nofile),
            ("fsize", self.fsize),
        ];
        given.into_iter().find_map(|(name, given)| {
            let cap = Self::CAPS.into_iter().find(|(capped, _)| *capped == name).map(|(_, cap)| cap);
            let beyond = cap.is_some_and(|cap| given > cap);
            (beyond || given == 0).then_some((name, cap.filter(|_| beyond)))
        })
    }

    /// Whether nobody said otherwise.
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
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
            egress: Vec::new(),
            tells_names: false,
            background_egress: false,
            expected_denials: Vec::new(),
            secrets: Vec::new(),
            limits: Limits::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_a_number_that_the_kernel_can_count() {
        // SBX-12, SBX-35
        let limits: Limits = serde_json::from_str(r#"{"cpu":0.25}"#).unwrap();
        assert_eq!(limits.cpu.of(100_000), 25_000);
        assert_eq!(serde_json::to_value(Limits::default()).unwrap()["cpu"], serde_json::json!(1.0));
        for text in [r#"{"cpu":0}"#, r#"{"cpu":-1}"#, r#"{"cpu":4096}"#, r#"{"cpu":"one"}"#] {
            assert!(serde_json::from_str::<Limits>(text).is_err(), "{text}");
        }
    }
}
