//! Which programs and URLs may be registered at all (GOV §3).
//!
//! Decided on the parsed literal, never on a DNS answer: plain `http:` only where the host *is* loopback,
//! HTTPS everywhere else, no user information, and no package runner as a command, since a pin would cover the
//! runner and not what it fetches.

use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use portcullis_core::Sha256Digest;
use portcullis_core::name::printable;
use serde::{Deserialize, Serialize};
use sha2::Digest as _;

/// A file whose bytes were fixed at registration.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// Absolute path.
    pub path: String,
    /// What the file is to the command: `binary`, `interpreter`, `program`, `operand`, `artifact` or `tree`.
    pub role: String,
    /// Digest of its content.
    pub sha256: Sha256Digest,
}

/// A URL that came through the rules.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HttpEndpoint(url::Url);

/// Why an endpoint is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Not a URL.
    #[error("{0} is not a URL; expected https://host[:port]/path, or http:// on loopback")]
    NotAUrl(String),
    /// Not http or https.
    #[error("scheme {0} is not supported; expected https, or http on loopback")]
    Scheme(String),
    /// Credentials in the URL.
    #[error("the URL carries user information; credentials belong to the credential broker")]
    UserInfo,
    /// Plain http to something that is not loopback.
    #[error("plain http is allowed only for localhost, 127.0.0.0/8 and [::1], not for {0}; use https")]
    PlainHttp(String),
    /// A package runner.
    #[error(
        "{0} fetches and runs something else, so a pin would cover the runner and not the server; \
         install the server and register its own executable"
    )]
    Runner(String),
    /// Relative path.
    #[error("the command {0} must be an absolute path")]
    NotAbsolute(String),
    /// Missing, or not a regular file.
    #[error("the program cannot be used because of {path}: {reason}")]
    Unusable {
        /// The file or one of its parents.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The bytes changed after registration (MP-FH-009).
    #[error(
        "{path} has changed since it was registered; if that was you, `portcullis mcp update` registers it anew"
    )]
    Changed {
        /// The pinned file.
        path: String,
    },
}

impl HttpEndpoint {
    /// Applies GOV-301 to the text an operator gave.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        let url = url::Url::parse(text).map_err(|_| EndpointError::NotAUrl(printable(text)))?;
        let host = url.host().ok_or_else(|| EndpointError::NotAUrl(printable(text)))?;
        // `https://@host` has an empty user name: the parser drops it, the rule does not.
        let authority =
            text.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or(""));
        if !url.username().is_empty() || url.password().is_some() || authority.contains('@') {
            return Err(EndpointError::UserInfo);
        }
        match url.scheme() {
            "https" => {}
            "http" => {
                let loopback = match host {
                    url::Host::Domain(name) => name == "localhost",
                    url::Host::Ipv4(address) => address.is_loopback(),
                    url::Host::Ipv6(address) => address == std::net::Ipv6Addr::LOCALHOST,
                };
                if !loopback {
                    return Err(EndpointError::PlainHttp(host.to_string()));
                }
            }
            other => return Err(EndpointError::Scheme(printable(other))),
        }
        Ok(Self(url))
    }

    /// The parsed URL.
    pub fn url(&self) -> &url::Url {
        &self.0
    }

    /// Whether the host is this machine.
    pub fn is_loopback(&self) -> bool {
        match self.0.host() {
            Some(url::Host::Domain(name)) => name == "localhost",
            Some(url::Host::Ipv4(address)) => address.is_loopback(),
            Some(url::Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        }
    }
}

impl TryFrom<String> for HttpEndpoint {
    type Error = EndpointError;
    fn try_from(text: String) -> Result<Self, EndpointError> {
        Self::parse(&text)
    }
}

impl From<HttpEndpoint> for String {
    fn from(endpoint: HttpEndpoint) -> String {
        endpoint.0.into()
    }
}

/// Resolves a command to the file that will run, and pins it with every operand that is a file.
pub fn pin_command(command: &str, args: &[String]) -> Result<(PathBuf, Vec<Pin>), EndpointError> {
    refuse_runner(command, args)?;
    let path = Path::new(command);
    if !path.is_absolute() {
        return Err(EndpointError::NotAbsolute(printable(command)));
    }
    let resolved = std::fs::canonicalize(path).map_err(|error| unusable(path, error))?;
    let command_file = resolved.clone();
    let mut pins = vec![pin(&resolved, "binary")?];
    if let Some(interpreter) = shebang(&resolved)? {
        let interpreter =
            std::fs::canonicalize(&interpreter).map_err(|error| unusable(&interpreter, error))?;
        refuse_runner(&interpreter.to_string_lossy(), args)?;
        pins.push(pin(&interpreter, "interpreter")?);
    }
    let operands = args.iter().map(Path::new).filter(|operand| operand.is_absolute() && operand.is_file());
    for (at, operand) in operands.enumerate() {
        let resolved = std::fs::canonicalize(operand).map_err(|error| unusable(operand, error))?;
        // What an interpreter is given first is what runs; the rest may be what it works on.
        let role = if at == 0 && is_interpreter(&command_file) { "program" } else { OPERAND };
        pins.push(pin(&resolved, role)?);
    }
    Ok((resolved, pins))
}

/// The role of a file that an argument names.
const OPERAND: &str = "operand";

/// Programs that run what they are given.
const INTERPRETERS: [&str; 14] = [
    "bun", "dash", "deno", "java", "lua", "node", "perl", "php", "python", "ruby", "Rscript", "sh", "bash",
    "zsh",
];

fn is_interpreter(command: &Path) -> bool {
    let name = command.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    // `python3.13` is a Python.
    let family = name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
    INTERPRETERS.contains(&family) || family == "nodejs"
}

/// Leaves out what a declaration says is data: files that arguments name, in folders the server may write to.
pub fn without_data(pins: Vec<Pin>, writable: &[&Path]) -> Vec<Pin> {
    let is_data = |pin: &Pin| {
        pin.role == OPERAND && writable.iter().any(|folder| Path::new(&pin.path).starts_with(folder))
    };
    pins.into_iter().filter(|pin| !is_data(pin)).collect()
}

/// Pins a file or a whole folder that is part of the program.
pub fn pin_artifact(path: &str) -> Result<Pin, EndpointError> {
    let path = Path::new(path);
    if !path.is_absolute() {
        return Err(EndpointError::NotAbsolute(printable(&path.to_string_lossy())));
    }
    let resolved = std::fs::canonicalize(path).map_err(|error| unusable(path, error))?;
    pin(&resolved, if resolved.is_dir() { TREE } else { "artifact" })
}

/// The role of a pinned folder.
const TREE: &str = "tree";

/// Re-checks pins before a start (GOV §3): what runs is what was registered.
pub fn check_pins(pins: &[Pin]) -> Result<(), EndpointError> {
    for registered in pins {
        let path = Path::new(&registered.path);
        if pin(path, &registered.role)?.sha256 != registered.sha256 {
            return Err(EndpointError::Changed { path: registered.path.clone() });
        }
    }
    Ok(())
}

/// GOV-302.
fn refuse_runner(command: &str, args: &[String]) -> Result<(), EndpointError> {
    let name =
        Path::new(command).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let first = args.first().map(String::as_str);
    let runner = match name.as_str() {
        "npx" | "uvx" | "bunx" | "env" => true,
        "pnpm" => first == Some("dlx"),
        "pipx" => first == Some("run"),
        "docker" | "podman" => first == Some("run"),
        "sh" | "bash" | "dash" | "zsh" | "busybox" => args.iter().any(|arg| arg == "-c" || arg == "sh"),
        _ => false,
    };
    if runner { Err(EndpointError::Runner(printable(&name))) } else { Ok(()) }
}

/// Every component owned by root or us and not writable by others.
pub(crate) fn check_permissions(path: &Path) -> Result<Metadata, EndpointError> {
    let ours = rustix::process::geteuid().as_raw();
    let mut walked = PathBuf::new();
    let mut last = None;
    for component in path.components() {
        walked.push(component);
        if matches!(component, Component::ParentDir) {
            return Err(unusable(&walked, "contains `..`"));
        }
        let metadata = std::fs::symlink_metadata(&walked).map_err(|error| unusable(&walked, error))?;
        if metadata.uid() != 0 && metadata.uid() != ours {
            return Err(unusable(&walked, "owned by neither root nor the gateway's user"));
        }
        // Sticky does not excuse (GOV §3): whoever may write into the folder may replace by name.
        if metadata.permissions().mode() & 0o022 != 0 {
            return Err(unusable(
                &walked,
                "writable by group or others, so somebody else could replace what runs; keep programs and the folders above them writable by their owner alone",
            ));
        }
        last = Some(metadata);
    }
    last.ok_or_else(|| unusable(path, "empty path"))
}

pub(crate) fn pin(path: &Path, role: &str) -> Result<Pin, EndpointError> {
    let metadata = check_permissions(path)?;
    if role == TREE && metadata.is_dir() {
        let mut hasher = sha2::Sha256::new();
        hash_folder(path, path, &mut hasher)?;
        let sha256 = Sha256Digest::from_bytes(hasher.finalize().into());
        return Ok(Pin { path: path.to_string_lossy().into_owned(), role: role.to_owned(), sha256 });
    }
    if !metadata.is_file() {
        return Err(unusable(path, "not a regular file"));
    }
    if metadata.permissions().mode() & 0o6000 != 0 {
        return Err(unusable(path, "setuid or setgid"));
    }
    // Rights that come with a file, whoever starts it.
    let mut capabilities = [0; 64];
    if rustix::fs::lgetxattr(path, "security.capability", &mut capabilities[..])
        .is_ok_and(|length| length > 0)
    {
        return Err(unusable(path, "has file capabilities"));
    }
    let sha256 = hash_file(path)?;
    Ok(Pin { path: path.to_string_lossy().into_owned(), role: role.to_owned(), sha256 })
}

/// Names, kinds and contents of everything in a folder, in the order of names.
fn hash_folder(root: &Path, folder: &Path, hasher: &mut sha2::Sha256) -> Result<(), EndpointError> {
    let entries = std::fs::read_dir(folder).map_err(|error| unusable(folder, error))?;
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(folder, error))?;
    paths.sort();
    for path in paths {
        let kind = std::fs::symlink_metadata(&path).map_err(|error| unusable(&path, error))?.file_type();
        let name = path.strip_prefix(root).unwrap_or(&path).as_os_str().as_encoded_bytes();
        let mut note = |tag: u8, content: &[u8]| {
            hasher.update([tag]);
            for part in [name, content] {
                hasher.update((part.len() as u64).to_be_bytes());
                hasher.update(part);
            }
        };
        if kind.is_dir() {
            note(b'd', b"");
            hash_folder(root, &path, hasher)?;
        } else if kind.is_symlink() {
            let target = std::fs::read_link(&path).map_err(|error| unusable(&path, error))?;
            note(b'l', target.as_os_str().as_encoded_bytes());
        } else if kind.is_file() {
            note(b'f', hash_file(&path)?.as_bytes());
        } else {
            return Err(unusable(&path, "neither a file, a folder nor a link"));
        }
    }
    Ok(())
}

fn hash_file(path: &Path) -> Result<Sha256Digest, EndpointError> {
    let mut file = File::open(path).map_err(|error| unusable(path, error))?;
    let mut hasher = sha2::Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer).map_err(|error| unusable(path, error))? {
            0 => break,
            n => hasher.update(&buffer[..n]),
        }
    }
    Ok(Sha256Digest::from_bytes(hasher.finalize().into()))
}

fn shebang(path: &Path) -> Result<Option<PathBuf>, EndpointError> {
    let mut head = [0; 256];
    let read =
        File::open(path).and_then(|mut file| file.read(&mut head)).map_err(|error| unusable(path, error))?;
    let Some(line) = head[..read].strip_prefix(b"#!") else { return Ok(None) };
    let line = String::from_utf8_lossy(line);
    let interpreter = line.lines().next().and_then(|line| line.split_whitespace().next()).unwrap_or_default();
    Ok(Some(PathBuf::from(interpreter)))
}

pub(crate) fn unusable(path: &Path, reason: impl std::fmt::Display) -> EndpointError {
    EndpointError::Unusable { path: path.display().to_string(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_loopback_literals_only() {
        // GOV-301, T-REG-2
        for good in ["http://127.1", "http://0x7f000001", "http://2130706433"] {
            assert_eq!(HttpEndpoint::parse(good).unwrap().url().host_str(), Some("127.0.0.1"), "{good}");
        }
        for good in ["http://localhost:8080/mcp", "http://[::1]:9/mcp", "https://example.com/mcp"] {
            assert!(HttpEndpoint::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "http://0/",
            "http://localhost.evil.example",
            "http://127.0.0.1.nip.io",
            "http://[::ffff:127.0.0.1]",
            "http://user@localhost",
            "https://user:pw@example.com",
            "https://@example.com",
            "http://example.com",
            "ftp://localhost",
            "not a url",
            "file:///etc/passwd",
        ] {
            assert!(HttpEndpoint::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_a_server_works_on_is_not_taken_for_the_server() {
        let pin =
            |path: &str, role: &str| Pin { path: path.into(), role: role.into(), sha256: Sha256Digest::ZERO };
        let pins = vec![
            pin("/opt/server", "binary"),
            pin("/data/app.py", "program"),
            pin("/data/notes.db", "operand"),
            pin("/opt/settings.json", "operand"),
            pin("/database/x", "operand"),
        ];
        let left = without_data(pins, &[Path::new("/data")]);
        let left: Vec<&str> = left.iter().map(|pin| pin.path.as_str()).collect();
        assert_eq!(left, ["/opt/server", "/data/app.py", "/opt/settings.json", "/database/x"]);
        for yes in ["/usr/bin/python3.13", "/usr/bin/node", "/usr/bin/nodejs", "/bin/sh", "/opt/ruby-3.2"] {
            assert!(is_interpreter(Path::new(yes)), "{yes}");
        }
        for no in ["/opt/mcp-server-sqlite", "/usr/bin/nodejs-server", "/opt/shell"] {
            assert!(!is_interpreter(Path::new(no)), "{no}");
        }
    }

    #[test]
    fn package_runners_are_refused_with_a_reason() {
        // GOV-302
        let args = |list: &[&str]| list.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
        for (command, list) in [
            ("/usr/bin/npx", &["-y", "x"][..]),
            ("/usr/bin/uvx", &["x"]),
            ("/usr/bin/pnpm", &["dlx", "x"]),
            ("/usr/bin/docker", &["run", "x"]),
            ("/bin/sh", &["-c", "x"]),
        ] {
            assert!(matches!(pin_command(command, &args(list)), Err(EndpointError::Runner(_))), "{command}");
        }
        assert!(matches!(pin_command("node", &[]), Err(EndpointError::NotAbsolute(_))));
        assert!(matches!(pin_command("/nonexistent/x", &[]), Err(EndpointError::Unusable { .. })));
    }

    #[test]
    fn a_file_that_others_may_write_is_refused_and_a_changed_one_is_noticed() {
        // T-REG-1; the folder is made under the crate's target, whose parents are ours alone.
        let base = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let dir = tempfile::tempdir_in(base).unwrap();
        let program = dir.path().join("server");
        std::fs::write(&program, "#!/usr/bin/true\n").unwrap();
        let mode = |bits| std::fs::set_permissions(&program, std::fs::Permissions::from_mode(bits)).unwrap();
        mode(0o755);
        let (_, pins) = pin_command(program.to_str().unwrap(), &[]).unwrap();
        assert_eq!(pins.iter().map(|pin| pin.role.as_str()).collect::<Vec<_>>(), ["binary", "interpreter"]);
        check_pins(&pins).unwrap();
        for bits in [0o775, 0o757, 0o4755, 0o2755] {
            mode(bits);
            let refused = pin_command(program.to_str().unwrap(), &[]);
            assert!(matches!(refused, Err(EndpointError::Unusable { .. })), "{bits:o}");
        }
        mode(0o755);
        // A list that lets somebody else write shows in the group's bits, whoever that is.
        let list: Vec<u8> =
            [(1_u16, 7_u16, u32::MAX), (2, 6, 1234), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 5, u32::MAX)]
                .into_iter()
                .flat_map(|(tag, rights, id)| {
                    [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
                })
                .collect();
        let list = [&2_u32.to_le_bytes()[..], &list].concat();
        let flags = rustix::fs::XattrFlags::empty();
        if rustix::fs::setxattr(&program, "system.posix_acl_access", &list, flags).is_ok() {
            assert!(pin_command(program.to_str().unwrap(), &[]).is_err(), "a list of who may write");
            rustix::fs::removexattr(&program, "system.posix_acl_access").unwrap();
            mode(0o755);
        }
        // CAP_NET_RAW, which only root may give.
        let mut rights = [0_u8; 20];
        (rights[3], rights[5]) = (2, 0x20);
        if rustix::fs::setxattr(&program, "security.capability", &rights, flags).is_ok() {
            let refused = pin_command(program.to_str().unwrap(), &[]).unwrap_err();
            assert!(refused.to_string().contains("capabilities"), "{refused}");
            rustix::fs::removexattr(&program, "security.capability").unwrap();
        }
        assert!(pin_command(program.to_str().unwrap(), &[]).is_ok());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&program, &link).unwrap();
        mode(0o757);
        assert!(pin_command(link.to_str().unwrap(), &[]).is_err(), "a link to what others may write");
        mode(0o755);
        std::fs::write(&program, "#!/usr/bin/true\nchanged\n").unwrap();
        assert!(matches!(check_pins(&pins), Err(EndpointError::Changed { .. })));
        let dir_mode =
            |bits| std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(bits)).unwrap();
        for bits in [0o775, 0o1777] {
            dir_mode(bits);
            assert!(pin_command(program.to_str().unwrap(), &[]).is_err(), "folder {bits:o}");
        }
    }
}
