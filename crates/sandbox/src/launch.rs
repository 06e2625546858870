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
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use portcullis_core::failpoint;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::bait::{self, Bait, Watched};
use crate::broker::{Secret, SecretFiles, StandIns};
use crate::cgroup::Cgroup;
use crate::doors;
use crate::egress::{Doors, Outlook};
use crate::looking::Roots;
use crate::notify;
use crate::own_user::UID_BASE;
use crate::profile::Profile;
use crate::sentry::Sentry;
use crate::stage::GO;
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
    #[error(
        "cannot isolate the program: {facility}: {detail}{}",
        crate::doctor::advice(facility).map_or_else(String::new, |fix| format!("; what helps: {fix}"))
    )]
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
    /// Facilities that are missing, and that an operator waived.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waived: Vec<String>,
    /// Whether the program has a user id that no other process of this machine has.
    pub uid_separation: bool,
    /// What the self-test looked at.
    pub checks: Vec<String>,
}

/// What holds for a start besides the profile: where baits lie, and which facilities an operator waived for this server.
#[derive(Debug, Clone)]
pub struct Conditions {
    /// Where files lie that nobody has a reason to open (SBX-61).
    pub baits: Vec<PathBuf>,
    /// Facilities without which the program is started all the same (SBX-71).
    pub waived: Vec<String>,
    /// Where the bytes are that are shown at some paths of the program, in place of what is there (SBX-30).
    pub copies: BTreeMap<PathBuf, PathBuf>,
    /// How closely it is watched.
    pub detect: Detect,
    /// The user id set aside for it, which it has where we run as root (SBX-20).
    pub user: Option<u32>,
    /// Whether it is not started without one of its own (SBX-70).
    pub needs_own_user: bool,
    /// Whether policy closes every way out, declared or not, from now on or again (SBX-10).
    pub closed: Arc<AtomicBool>,
}

/// How closely a program is watched (SBX-62).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Detect {
    /// Calls that nobody has a reason to make, addresses, baits.
    #[default]
    Standard,
    /// Every file that it asks for, too; that takes time.
    Full,
}

/// Facilities that an operator may waive.
pub const WAIVABLE: [&str; 2] = ["landlock", "seccomp_notify"];

impl Default for Conditions {
    fn default() -> Self {
        let baits = bait::USUAL.iter().map(PathBuf::from).collect();
        Self {
            baits,
            waived: Vec::new(),
            copies: BTreeMap::new(),
            detect: Detect::Standard,
            user: Some(UID_BASE),
            needs_own_user: false,
            closed: Arc::default(),
        }
    }
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
    pub(crate) baits: Vec<Bait>,
    pub(crate) waived: Vec<String>,
    pub(crate) copies: BTreeMap<PathBuf, PathBuf>,
    pub(crate) detect: Detect,
    /// The user id set aside for the program, if we may give it one.
    pub(crate) user: Option<u32>,
    /// Whether it is not started without.
    pub(crate) needs_own_user: bool,
    /// Layers that are left out: a test build's way to see the self-test notice it.
    pub(crate) sabotaged: Vec<String>,
}

impl Order {
    /// Whether the program is started without a facility, if there is no way to have it.
    pub(crate) fn waives(&self, facility: &str) -> bool {
        WAIVABLE.contains(&facility) && self.waived.iter().any(|waived| waived == facility)
    }
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
        self.launch_under(&Conditions::default(), profile, stdin, stdout, stderr)
    }

    /// The same, under other conditions than the usual ones.
    pub fn launch_under(
        &self,
        conditions: &Conditions,
        profile: &Profile,
        stdin: Stdio,
        stdout: Stdio,
        stderr: Stdio,
    ) -> Result<Caged, LaunchError> {
        let (mut command, handshake) = self.prepare(profile, conditions)?;
        command.stdin(stdin).stdout(stdout).stderr(stderr);
        let mut child = Guard(Some(command.spawn()?));
        let pid = child.0.as_ref().map_or(0, Child::id);
        let Confined { layers, cgroup, doors, .. } = handshake.complete(pid, &[])?;
        let child = child.0.take().expect("taken once");
        Ok(Caged { child, layers, cgroup, doors })
    }

    /// The command that starts the launcher, for whoever has a way of their own to start it. The program runs only
    /// after [`Handshake::complete`]; whoever does not get that far kills the child.
    pub fn prepare(&self, profile: &Profile, conditions: &Conditions) -> io::Result<(Command, Handshake)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(PATIENCE))?;
        let theirs = OwnedFd::from(theirs);
        let mut command = Command::new(format!("/proc/self/fd/{}", self.executable.as_raw_fd()));
        command.arg(MODE).arg(theirs.as_raw_fd().to_string()).env_clear();
        hand_over(&mut command, &theirs);
        let conditions = conditions.clone();
        Ok((command, Handshake { ours, theirs, profile: profile.clone(), conditions }))
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
    /// Its files for credentials.
    pub files: SecretFiles,
}

/// What is in the environment of one process alone: names, and credentials that were lent to its one call.
pub type Variables = [(String, Arc<Secret>)];

/// A launcher that was started, or is about to be.
#[derive(Debug)]
pub struct Handshake {
    ours: UnixStream,
    theirs: OwnedFd,
    profile: Profile,
    conditions: Conditions,
}

impl Handshake {
    /// Tells the launcher with this process id what to do, looks at its report, and lets it go. Blocks for as long as
    /// that takes.
    pub fn complete(self, pid: u32, lent: &Variables) -> Result<Confined, LaunchError> {
        let Self { ours, theirs, profile, conditions } = self;
        // Its end is its own now; if it dies, ours must see that.
        drop(theirs);
        let baits = Baits::set()?;
        let cgroup = Cgroup::around(pid, &profile.limits);
        let stand_ins = StandIns::of(&profile)?;
        let order = Order {
            variables: stand_ins.variables(),
            authority: stand_ins.certificate(),
            canaries: baits.canaries.clone(),
            baits: bait::prepare(&conditions.baits, &profile)?,
            waived: conditions.waived,
            copies: conditions.copies,
            detect: conditions.detect,
            user: conditions.user,
            needs_own_user: conditions.needs_own_user,
            sabotaged: sabotaged(),
            profile,
        };
        let mut line = serde_json::to_vec(&order).map_err(io::Error::other)?;
        line.push(b'\n');
        (&ours).write_all(&line)?;
        let Order { profile, baits: laid, detect, .. } = order;
        let doors = doors::receive(&profile, &ours)?;
        let files = doors::take(&ours, doors::FILES)?.unwrap_or_default();
        let (sentry, told) = Sentry::new(&profile.expected_denials);
        let sentry = Arc::new(sentry);
        let unwatched = |error: io::Error| LaunchError::Facility {
            facility: "bait".into(),
            detail: format!("watching the program's files: {error}"),
        };
        let mut watched = vec![Watched::artifacts(&profile).map_err(unwatched)?];
        if let Some(watching) = doors::take(&ours, doors::BAITS)?.and_then(|mut opened| opened.pop()) {
            watched.push(Watched::baits(watching, &laid));
        }
        // The self-test asks too, so answers are given from here on.
        if let Some(listener) = doors::take(&ours, doors::QUESTIONS)?.and_then(|mut opened| opened.pop()) {
            let roots = (detect == Detect::Full).then(|| Roots::of(&profile, &laid));
            notify::answer(listener, Arc::clone(&sentry), roots)?;
        }
        let layers = match report(&ours)? {
            Report::Ready(layers) => layers,
            Report::Failed { facility, detail } => return Err(LaunchError::Facility { facility, detail }),
        };
        // The test says that it reached nothing; we say so too, or it does not start (SBX-41).
        if let Some(reached) = baits.reached() {
            let detail = format!("the confined process reached {reached} of ours");
            return Err(LaunchError::Facility { facility: "netns".into(), detail });
        }
        watched.iter().for_each(|watched| drop(watched.look()));
        sentry.arm();
        let contents = laid.into_iter().map(|bait| bait.content).collect();
        let outlook = Outlook { sentry, told, watched, contents };
        let files = SecretFiles::new(&profile, files)?;
        let doors = Doors::new(profile, doors, stand_ins, outlook, conditions.closed)?;
        failpoint::pass_io("sandbox.before_exec")?;
        (&ours).write_all(&go(lent)?)?;
        Ok(Confined { layers, cgroup, doors, files })
    }
}

/// Layers that a test wants left out (S-ST-1).
fn sabotaged() -> Vec<String> {
    let asked = [
        ("view", failpoint::pass_io("sandbox.sabotage_mounts")),
        ("netns", failpoint::pass_io("sandbox.sabotage_network")),
        ("limits", failpoint::pass_io("sandbox.sabotage_limits")),
        ("landlock", failpoint::pass_io("sandbox.sabotage_landlock")),
        ("seccomp", failpoint::pass_io("sandbox.sabotage_seccomp")),
    ];
    asked.into_iter().filter(|(_, asked)| asked.is_err()).map(|(layer, _)| layer.to_owned()).collect()
}

/// The word that lets the program go, with what it alone is given. Wiped once it is said.
fn go(lent: &Variables) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut values = BTreeMap::new();
    for (name, secret) in lent {
        let value = std::str::from_utf8(secret.expose()).ok().filter(|value| !value.contains('\0'));
        let value = value.ok_or_else(|| io::Error::other(format!("{name}: a variable holds text")))?;
        values.insert(name.as_str(), value);
    }
    // Long enough from the start: what grows leaves copies behind.
    let room = values.iter().map(|(name, value)| 6 * (name.len() + value.len()) + 16).sum::<usize>();
    let mut word = Zeroizing::new(Vec::with_capacity(room + 16));
    word.extend_from_slice(GO.as_bytes());
    if !values.is_empty() {
        serde_json::to_writer(&mut *word, &values).map_err(io::Error::other)?;
    }
    word.push(b'\n');
    Ok(word)
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
