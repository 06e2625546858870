//! The gateway's side of a launch: start ourselves in the hidden mode, look at the report, let go.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::broker::StandIns;
use crate::cgroup::Cgroup;
use crate::doors;
use crate::egress::Doors;
use crate::profile::Profile;
use crate::trial::Canaries;

/// The hidden mode of the executable.
pub const MODE: &str = "__sandbox";
/// How long everything up to the report may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// A report is short.
const LONGEST_REPORT: u64 = 64 << 10;

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// A layer cannot be had (MP-FH-007).
    #[error("cannot isolate the program: {facility}: {detail}")]
    Facility {
        /// Which one.
        facility: String,
        /// What the kernel or the test said.
        detail: String,
    },
    /// It is not about a layer.
    #[error("cannot start the launcher: {0}")]
    Io(#[from] io::Error),
}

/// What the launcher says before the program starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Report {
    /// Every layer is in place and tested.
    Ready(Layers),
    /// One is not.
    Failed {
        /// Which one.
        facility: String,
        /// What the kernel or the test said.
        detail: String,
    },
}

/// What the host supplied (SBX-11).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layers {
    /// The landlock ABI in force.
    pub landlock: i32,
    /// The seccomp filter in force.
    pub seccomp: String,
    /// Whether the program has a user id that no other process of this machine has.
    pub uid_separation: bool,
    /// What the self-test looked at.
    pub checks: Vec<String>,
}

/// What the hidden mode is told.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) profile: Profile,
    /// What is added to the profile's environment: made for this one process, and no part of what was declared.
    pub(crate) variables: BTreeMap<String, String>,
    /// The certificate of an authority that this process trusts besides the system's.
    pub(crate) authority: Option<String>,
    pub(crate) canaries: Canaries,
}

/// Starts confined programs.
#[derive(Debug)]
pub struct Launcher {
    executable: File,
}

/// A confined program that runs.
#[derive(Debug)]
pub struct Caged {
    /// The launcher's first stage; it ends as the program ends, and everything ends with it.
    pub child: Child,
    /// What confines it.
    pub layers: Layers,
    /// What bounds it.
    pub cgroup: Cgroup,
    /// Its ways out, at which nobody listens until a [`Gate`](crate::egress::Gate) does.
    pub doors: Doors,
}

impl Launcher {
    /// A launcher that starts this executable, which must hand [`MODE`] to [`stage::main`](crate::stage::main).
    pub fn own() -> io::Result<Self> {
        // Opened now: what is started later is what runs now, even if the file is replaced.
        Ok(Self { executable: File::open("/proc/self/exe")? })
    }

    /// A launcher that starts another executable, which must do the same.
    pub fn at(executable: &Path) -> io::Result<Self> {
        Ok(Self { executable: File::open(executable)? })
    }

    /// Starts the profile's program, confined, with these three streams.
    pub fn launch(
        &self,
        profile: &Profile,
        stdin: Stdio,
        stdout: Stdio,
        stderr: Stdio,
    ) -> Result<Caged, LaunchError> {
        let (mut command, handshake) = self.prepare(profile)?;
        command.stdin(stdin).stdout(stdout).stderr(stderr);
        let mut child = Guard(Some(command.spawn()?));
        let Confined { layers, cgroup, doors } = handshake.complete(child.0.as_ref().map_or(0, Child::id))?;
        let child = child.0.take().expect("taken once");
        Ok(Caged { child, layers, cgroup, doors })
    }

    /// The command that starts the launcher, for whoever has a way of their own to start it. The program runs only
    /// after [`Handshake::complete`]; whoever does not get that far kills the child.
    pub fn prepare(&self, profile: &Profile) -> io::Result<(Command, Handshake)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(PATIENCE))?;
        let theirs = OwnedFd::from(theirs);
        let mut command = Command::new(format!("/proc/self/fd/{}", self.executable.as_raw_fd()));
        command.arg(MODE).arg(theirs.as_raw_fd().to_string()).env_clear();
        hand_over(&mut command, &theirs);
        Ok((command, Handshake { ours, theirs, profile: profile.clone() }))
    }
}

/// What a program that was let go is confined by.
#[derive(Debug)]
pub struct Confined {
    /// What confines it.
    pub layers: Layers,
    /// What bounds it.
    pub cgroup: Cgroup,
    /// Its ways out.
    pub doors: Doors,
}

/// A launcher that was started, or is about to be.
#[derive(Debug)]
pub struct Handshake {
    ours: UnixStream,
    theirs: OwnedFd,
    profile: Profile,
}

impl Handshake {
    /// Tells the launcher with this process id what to do, looks at its report, and lets it go. Blocks for as long as
    /// that takes.
    pub fn complete(self, pid: u32) -> Result<Confined, LaunchError> {
        let Self { ours, theirs, profile } = self;
        // Its end is its own now; if it dies, ours must see that.
        drop(theirs);
        let baits = Baits::set()?;
        let cgroup = Cgroup::around(pid, &profile.limits);
        let stand_ins = StandIns::of(&profile)?;
        let order = Order {
            profile,
            variables: stand_ins.variables(),
            authority: stand_ins.certificate(),
            canaries: baits.canaries.clone(),
        };
        let mut line = serde_json::to_vec(&order).map_err(io::Error::other)?;
        line.push(b'\n');
        (&ours).write_all(&line)?;
        let profile = order.profile;
        let doors = doors::receive(&profile, &ours)?;
        let layers = match report(&ours)? {
            Report::Ready(layers) => layers,
            Report::Failed { facility, detail } => return Err(LaunchError::Facility { facility, detail }),
        };
        // The test says that it reached nothing; we say so too, or it does not start (SBX-41).
        if let Some(reached) = baits.reached() {
            let detail = format!("the confined process reached {reached} of ours");
            return Err(LaunchError::Facility { facility: "netns".into(), detail });
        }
        let doors = Doors::new(profile, doors, stand_ins)?;
        (&ours).write_all(b"go\n")?;
        Ok(Confined { layers, cgroup, doors })
    }
}

fn report(control: &UnixStream) -> Result<Report, LaunchError> {
    let mut line = String::new();
    BufReader::new(control.take(LONGEST_REPORT)).read_line(&mut line)?;
    serde_json::from_str(&line).map_err(|_| LaunchError::Facility {
        facility: "launcher".into(),
        detail: "it ended without a report".into(),
    })
}

/// Ends a child that is not let go.
struct Guard(Option<Child>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[allow(unsafe_code)]
fn hand_over(command: &mut Command, control: &OwnedFd) {
    let control = control.as_raw_fd();
    // SAFETY: between fork and exec only async-signal-safe functions may run; the closure makes one system call, on
    // a descriptor that is open until `spawn` has returned.
    unsafe {
        command.pre_exec(move || {
            let control = std::os::fd::BorrowedFd::borrow_raw(control);
            rustix::io::fcntl_setfd(control, rustix::io::FdFlags::empty())?;
            Ok(())
        });
    }
}

/// Things of ours that nobody confined can reach: the test tries, and we look.
struct Baits {
    canaries: Canaries,
    file: PathBuf,
    tcp: TcpListener,
    udp: UdpSocket,
    local: UnixListener,
}

impl Baits {
    fn set() -> io::Result<Self> {
        let mut random = [0; 8];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let name = format!("portcullis-canary-{:016x}", u64::from_ne_bytes(random));
        let file = Path::new("/var/tmp").join(&name);
        File::options().write(true).create_new(true).open(&file)?;
        let tcp = TcpListener::bind("127.0.0.1:0")?;
        let udp = UdpSocket::bind("127.0.0.1:0")?;
        let local = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        tcp.set_nonblocking(true)?;
        udp.set_nonblocking(true)?;
        local.set_nonblocking(true)?;
        let canaries = Canaries {
            file: file.clone(),
            tcp: tcp.local_addr()?.port(),
            udp: udp.local_addr()?.port(),
            abstract_name: name,
        };
        Ok(Self { canaries, file, tcp, udp, local })
    }

    fn reached(&self) -> Option<&'static str> {
        if self.tcp.accept().is_ok() {
            Some("a TCP port")
        } else if self.udp.recv(&mut [0; 16]).is_ok() {
            Some("a UDP port")
        } else if self.local.accept().is_ok() {
            Some("an abstract socket")
        } else {
            None
        }
    }
}

impl Drop for Baits {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}
