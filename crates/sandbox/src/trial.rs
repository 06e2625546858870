//! The self-test: in the final process, after all layers, before every start (SBX-40).
//!
//! Each check tries what must not work, or what must. The gateway looks at its own end of the canaries besides.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::broker::{FOLDER, names};
use crate::doors::{self, Door};
use crate::privileges;
use crate::profile::{Access, Profile};
use crate::stage::Failure;

/// Things of the gateway that must be out of reach.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Canaries {
    pub(crate) file: PathBuf,
    pub(crate) tcp: u16,
    pub(crate) udp: u16,
    pub(crate) abstract_name: String,
}

/// What this process must be, besides confined.
pub(crate) struct Expected<'a> {
    /// The one descriptor that is open besides the three streams.
    pub(crate) control: &'a UnixStream,
    /// Its user and its group, as it sees them.
    pub(crate) uid: u32,
    /// Whether landlock's rules are in force: not where an operator waived them.
    pub(crate) landlock: bool,
}

/// Makes all checks; gives their names, or the first that did not come out as it should.
pub(crate) fn run(
    profile: &Profile,
    canaries: &Canaries,
    expected: &Expected<'_>,
) -> Result<Vec<String>, Failure> {
    let mut checks = Checks::default();
    checks.must_fail("view", "canary file", fs::metadata(&canaries.file).map(drop))?;
    for scope in &profile.fs {
        scope_works(&mut checks, &scope.path, scope.access)?;
    }
    for name in names(profile) {
        credential_file(&mut checks, name)?;
    }
    let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let patience = Duration::from_millis(500);
    checks.must_fail(
        "netns",
        "tcp",
        TcpStream::connect_timeout(&loopback(canaries.tcp), patience).map(drop),
    )?;
    // A datagram into the void is no error; that nothing arrived is for the gateway to see.
    let _ =
        UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.send_to(b"canary", loopback(canaries.udp)));
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&canaries.abstract_name);
    checks.must_fail(
        "netns",
        "abstract socket",
        address.and_then(|at| UnixStream::connect_addr(&at)).map(drop),
    )?;
    doors(&mut checks, profile, patience)?;
    forbidden_calls(&mut checks)?;
    processes(&mut checks)?;
    status(&mut checks)?;
    if expected.landlock {
        // The mounts would show what is there.
        checks.must_fail("landlock", "list /", fs::read_dir("/").map(drop))?;
    }
    let short = privileges::not_limited(&profile.limits);
    let said = short.as_ref().map(|(name, found)| format!("{name}: {found:?}")).unwrap_or_default();
    checks.must("limits", "rlimits", short.is_none(), said)?;
    identity(&mut checks, expected.uid)?;
    descriptors(&mut checks, expected.control)?;
    let environment = std::env::vars_os().count();
    checks.must("environment", "empty", environment == 0, format!("{environment} variables are set"))?;
    Ok(checks.done)
}

/// The program's own user and group, and no other.
fn identity(checks: &mut Checks, uid: u32) -> Result<(), Failure> {
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let is_it = user == uid
        && group == uid
        && rustix::process::geteuid().as_raw() == uid
        && rustix::process::getegid().as_raw() == uid;
    checks.must("userns", "user and group", is_it, format!("they are {user} and {group}"))
}

/// Nothing is open but the three streams, and the way to the gateway, which is closed when the program starts.
fn descriptors(checks: &mut Checks, control: &UnixStream) -> Result<(), Failure> {
    let entries = fs::read_dir("/proc/self/fd").map_err(|error| Failure::new("proc", error))?;
    let mut open: Vec<i32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    // Listing them takes one, which is gone by now.
    open.retain(|fd| *fd > 2 && *fd != control.as_raw_fd() && is_open(*fd));
    checks.must("descriptors", "none of ours", open.is_empty(), format!("{open:?} are open"))
}

fn is_open(fd: i32) -> bool {
    fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_ok()
}

/// Behind each door somebody listens, and nowhere else. The gateway takes these connections for what they are.
fn doors(checks: &mut Checks, profile: &Profile, patience: Duration) -> Result<(), Failure> {
    let plan = doors::plan(profile);
    for (door, at) in plan.iter().filter(|(door, _)| *door != Door::Names) {
        let tried = TcpStream::connect_timeout(&SocketAddr::V4(*at), patience);
        let said = tried.as_ref().err().map(ToString::to_string).unwrap_or_default();
        checks.must("egress", &format!("{door:?} at {at}"), tried.is_ok(), said)?;
    }
    if !plan.is_empty() {
        // One that no plan has: hosts are counted from one.
        let nobody = SocketAddr::from(([127, 77, 0, 0], plan[0].1.port()));
        checks.must_fail(
            "egress",
            "undeclared address",
            TcpStream::connect_timeout(&nobody, patience).map(drop),
        )?;
    }
    Ok(())
}

#[derive(Default)]
struct Checks {
    done: Vec<String>,
}

impl Checks {
    fn must(
        &mut self,
        facility: &'static str,
        name: &str,
        holds: bool,
        otherwise: impl std::fmt::Display,
    ) -> Result<(), Failure> {
        if !holds {
            return Err(Failure::new(facility, format!("self-test {name}: {otherwise}")));
        }
        self.done.push(format!("{facility}: {name}"));
        Ok(())
    }

    fn must_fail(
        &mut self,
        facility: &'static str,
        name: &str,
        tried: io::Result<()>,
    ) -> Result<(), Failure> {
        self.must(facility, name, tried.is_err(), "it can be reached")
    }
}

fn scope_works(checks: &mut Checks, path: &Path, access: Access) -> Result<(), Failure> {
    let name = path.display();
    let readable = if path.is_dir() { fs::read_dir(path).map(drop) } else { fs::File::open(path).map(drop) };
    let said = readable.as_ref().err().map(ToString::to_string).unwrap_or_default();
    checks.must("view", &format!("read {name}"), readable.is_ok(), said)?;
    if !path.is_dir() {
        let written = fs::File::options().append(true).open(path).map(drop);
        return match access {
            Access::Ro => checks.must_fail("view", &format!("write {name}"), written),
            Access::Rw => {
                checks.must("view", &format!("write {name}"), written.is_ok(), "it cannot be written")
            }
        };
    }
    let probe = path.join(format!(".portcullis-probe-{}", std::process::id()));
    let created = fs::File::options().write(true).create_new(true).open(&probe).map(drop);
    if created.is_ok() {
        let _ = fs::remove_file(&probe);
    }
    match access {
        Access::Ro => checks.must_fail("view", &format!("write {name}"), created),
        Access::Rw => {
            let said = created.as_ref().err().map(ToString::to_string).unwrap_or_default();
            checks.must("view", &format!("write {name}"), created.is_ok(), said)
        }
    }
}

/// There, readable, empty, and not to be written: nothing is lent to anybody yet.
fn credential_file(checks: &mut Checks, name: &str) -> Result<(), Failure> {
    let path = Path::new(FOLDER).join(name);
    let empty = fs::read(&path).is_ok_and(|content| content.is_empty());
    checks.must("view", &format!("read {}", path.display()), empty, "it is missing, or not empty")?;
    let written = fs::File::options().append(true).open(&path).map(drop);
    checks.must_fail("view", &format!("write {}", path.display()), written)
}

fn forbidden_calls(checks: &mut Checks) -> Result<(), Failure> {
    for (name, call) in [
        ("unshare", libc::SYS_unshare),
        ("ptrace", libc::SYS_ptrace),
        ("mount", libc::SYS_mount),
        ("bpf", libc::SYS_bpf),
    ] {
        let answer = raw(call);
        let refused = answer.as_ref().err().is_some_and(|error| error.raw_os_error() == Some(libc::EPERM));
        checks.must("seccomp", name, refused, format!("{answer:?} instead of EPERM"))?;
    }
    let answer = raw(libc::SYS_io_uring_setup);
    let absent = answer.as_ref().err().is_some_and(|error| error.raw_os_error() == Some(libc::ENOSYS));
    checks.must("seccomp", "io_uring", absent, format!("{answer:?} instead of ENOSYS"))
}

#[allow(unsafe_code)]
fn raw(call: libc::c_long) -> io::Result<()> {
    // SAFETY: every argument is zero, which none of these calls takes for an address to write to.
    let answer = unsafe { libc::syscall(call, 0, 0, 0, 0, 0, 0) };
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Only our own namespace's processes are to be seen.
fn processes(checks: &mut Checks) -> Result<(), Failure> {
    let entries = fs::read_dir("/proc").map_err(|error| Failure::new("proc", error))?;
    let pids: Vec<u32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    checks.must(
        "pidns",
        "processes",
        pids.iter().all(|pid| *pid <= 8),
        format!("{pids:?} are to be seen"),
    )?;
    let parent = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get());
    checks.must("pidns", "process 1 is ours", parent == Some(1), format!("{parent:?}"))
}

fn status(checks: &mut Checks) -> Result<(), Failure> {
    let text = fs::read_to_string("/proc/self/status").map_err(|error| Failure::new("proc", error))?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        line.unwrap_or_default().trim().to_owned()
    };
    for set in ["CapEff", "CapPrm", "CapBnd", "CapAmb", "CapInh"] {
        let value = field(set);
        let empty = !value.is_empty() && value.bytes().all(|digit| digit == b'0');
        checks.must("capabilities", set, empty, value)?;
    }
    for (name, wanted) in [("NoNewPrivs", "1"), ("Seccomp", "2")] {
        let value = field(name);
        checks.must("seccomp", name, value == wanted, value)?;
    }
    // A view without /proc of its own would show the host's.
    let hidden = fs::metadata("/proc/sys").map(drop);
    let gone = hidden.as_ref().err().is_some_and(|error| error.kind() == ErrorKind::NotFound);
    checks.must("proc", "only processes", gone, "the kernel's settings are to be seen")
}
