//! A user of its own for every server (SBX-20, step 3).
//!
//! Root may give a program a user id that nobody else on the machine has: what it leaves, sends signals to or looks at is then
//! no other program's. Files would be out of its reach so, and out of ours what it writes; so they are shown through mounts
//! that translate. What belongs to us looks like the program's own, and what the program makes belongs to us.
//!
//! It takes the host's rights, which are gone with the first namespace, so it is prepared before. Where that cannot be done
//! the program has our own id, as whoever is not root has to make do with.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::sched::{CloneFlags, unshare};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Gid, Pid, Uid, fork, getpid, setgroups, setresgid, setresuid};

use crate::stage::{Failure, Within as _};
use crate::view::Item;

/// Where the ids of servers begin, unless somebody says otherwise.
pub const UID_BASE: u32 = 2_147_000_000;
/// How many there are.
const RANGE: u32 = 400_000;
/// The facility, in errors and in what is recorded.
pub const FACILITY: &str = "uid_separation";

/// The id of a server, always the same for one name unless another server of this process had it first.
pub fn uid_of(base: u32, name: &str) -> u32 {
    static TAKEN: Mutex<Option<HashMap<u32, String>>> = Mutex::new(None);
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let taken = taken.get_or_insert_with(HashMap::new);
    // FNV-1a: nothing depends on it being hard to guess.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let first = u32::try_from(hash % u64::from(RANGE)).unwrap_or_default();
    let mut ids = (0..RANGE).map(|step| base.saturating_add((first + step) % RANGE));
    let free = |id: &u32| taken.get(id).is_none_or(|by| by == name);
    let id = ids.find(free).unwrap_or(base);
    taken.insert(id, name.to_owned());
    id
}

/// Everything that needs the host's rights, done.
pub(crate) struct OwnUser {
    id: u32,
    /// What is shown, translated, by its place among the items.
    shown: BTreeMap<usize, OwnedFd>,
    helper: Helper,
}

impl OwnUser {
    /// Makes the translated mounts of everything in the view that is not the system's.
    pub(crate) fn prepare(id: Option<u32>, items: &[Item]) -> Result<Self, Failure> {
        let id = id.ok_or_else(|| Failure::new(FACILITY, "no user id is set aside"))?;
        if !rustix::process::geteuid().is_root() {
            return Err(Failure::new(FACILITY, "the gateway does not run as root"));
        }
        let translation = translation(id).within(FACILITY, "a translation of user ids")?;
        let mut shown = BTreeMap::new();
        for (place, item) in items.iter().enumerate().filter(|(_, item)| item.kind.is_translated()) {
            nothing_below(&item.path)?;
            let mount = translated(&item.open()?, &translation)
                .within(FACILITY, format_args!("translating {}", item.path.display()))?;
            shown.insert(place, mount);
        }
        let helper = Helper::start().within(FACILITY, "a helper")?;
        Ok(Self { id, shown, helper })
    }

    /// In the new user namespace, which nobody has said anything about yet: the program is `inside` there. Gives what is shown.
    pub(crate) fn enter(self, inside: u32) -> Result<BTreeMap<usize, OwnedFd>, Failure> {
        self.helper.map(inside, self.id).within("userns", "uid map")?;
        Ok(self.shown)
    }
}

/// Becomes the program's user, after everything was opened that only we may open.
pub(crate) fn become_user(id: u32) -> Result<(), Failure> {
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    setgroups(&[]).within("userns", "groups")?;
    setresgid(gid, gid, gid).within("userns", "group id")?;
    setresuid(uid, uid, uid).within("userns", "user id")
}

/// A user namespace in which what is ours is the program's, and everybody else is who they are.
fn translation(id: u32) -> io::Result<OwnedFd> {
    let (mut ours, mut theirs) = UnixStream::pair()?;
    match child()? {
        None => {
            drop(ours);
            if unshare(CloneFlags::CLONE_NEWUSER).is_ok() && theirs.write_all(b"!").is_ok() {
                // Until nobody needs it any more.
                let _ = theirs.read(&mut [0]);
            }
            leave()
        }
        Some(child) => {
            drop(theirs);
            let made = ours.read_exact(&mut [0]).and_then(|()| {
                write_maps(child, &format!("0 {id} 1\n1 1 {}\n", id - 1))?;
                File::open(format!("/proc/{child}/ns/user")).map(OwnedFd::from)
            });
            drop(ours);
            let _ = waitpid(child, None);
            made
        }
    }
}

fn write_maps(of: Pid, map: &str) -> io::Result<()> {
    fs::write(format!("/proc/{of}/uid_map"), map)?;
    fs::write(format!("/proc/{of}/gid_map"), map)
}

/// Stays behind in the host's namespaces to say who is who in the new one; whoever is in there may not say it.
struct Helper {
    told: UnixStream,
    pid: Pid,
}

impl Helper {
    fn start() -> io::Result<Self> {
        let (ours, mut theirs) = UnixStream::pair()?;
        let stage = getpid();
        match child()? {
            Some(pid) => Ok(Self { told: ours, pid }),
            None => {
                drop(ours);
                let mut map = [0; 64];
                // The whole line comes at once, or we are not needed.
                let length = theirs.read(&mut map).unwrap_or_default();
                let map = std::str::from_utf8(&map[..length]).unwrap_or_default();
                if !map.is_empty() && write_maps(stage, map).is_ok() {
                    let _ = theirs.write_all(b"!");
                }
                leave()
            }
        }
    }

    fn map(mut self, inside: u32, outside: u32) -> io::Result<()> {
        self.told.write_all(format!("{inside} {outside} 1\n").as_bytes())?;
        let done = self.told.read_exact(&mut [0]);
        let _ = waitpid(self.pid, None);
        done.map_err(|_| io::Error::other("it was not accepted"))
    }
}

#[allow(unsafe_code)]
fn child() -> io::Result<Option<Pid>> {
    // SAFETY: this process has one thread, so the child may do whatever the parent may.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(Some(child)),
        ForkResult::Child => Ok(None),
    }
}

fn leave() -> ! {
    std::process::exit(0)
}

/// A copy of a mount is without what is mounted below it, and so would show what that hides (SBX-31).
fn nothing_below(path: &Path) -> Result<(), Failure> {
    let table = fs::read_to_string("/proc/self/mountinfo").within("view", "mounts")?;
    match mounts(&table).find(|point| point != path && point.starts_with(path)) {
        None => Ok(()),
        Some(point) => {
            let (path, point) = (path.display(), point.display());
            Err(Failure::new("view", format!("{path}: something else is mounted below it, at {point}")))
        }
    }
}

/// Mount points, as the kernel lists them: spaces and the like are written as octal numbers.
fn mounts(table: &str) -> impl Iterator<Item = PathBuf> {
    table.lines().filter_map(|line| {
        let mut parts = line.split(' ').nth(4)?.split('\\');
        let mut point = parts.next()?.to_owned();
        for part in parts {
            point.push(char::from(u8::from_str_radix(part.get(..3)?, 8).ok()?));
            point.push_str(&part[3..]);
        }
        Some(PathBuf::from(point))
    })
}

#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// A mount of the same file or folder, nowhere yet, in which ids are translated.
#[allow(unsafe_code)]
fn translated(source: &OwnedFd, translation: &OwnedFd) -> io::Result<OwnedFd> {
    const CLONE: libc::c_uint = 1;
    const IDMAP: u64 = 0x0010_0000;
    let flags = CLONE | libc::O_CLOEXEC as libc::c_uint | libc::AT_EMPTY_PATH as libc::c_uint;
    // SAFETY: the path is a constant that ends in a zero, and the call keeps none of its arguments.
    let opened = unsafe { libc::syscall(libc::SYS_open_tree, source.as_raw_fd(), c"".as_ptr(), flags) };
    let opened = RawFd::try_from(opened).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just opened it for us, and nobody else knows of it.
    let mount = unsafe { OwnedFd::from_raw_fd(opened) };
    let userns = u64::try_from(translation.as_raw_fd()).unwrap_or_default();
    let attributes = MountAttributes { set: IDMAP, clear: 0, propagation: 0, userns };
    // SAFETY: the attributes are as long as is said, and live until the call returns.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    if answer == 0 { Ok(mount) } else { Err(io::Error::last_os_error()) }
}

/// Puts such a mount in its place.
#[allow(unsafe_code)]
pub(crate) fn place(mount: &OwnedFd, target: &Path) -> io::Result<()> {
    const FROM_EMPTY_PATH: libc::c_uint = 4;
    let target = std::ffi::CString::new(target.as_os_str().as_encoded_bytes())?;
    // SAFETY: both paths end in a zero and live until the call returns.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            target.as_ptr(),
            FROM_EMPTY_PATH,
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_has_an_id_of_its_own_and_keeps_it() {
        // SBX-20, step 3
        let ids: std::collections::BTreeSet<u32> =
            (0..5000).map(|index| uid_of(UID_BASE, &format!("server-{index}"))).collect();
        assert_eq!(ids.len(), 5000);
        assert!(ids.iter().all(|id| (UID_BASE..UID_BASE + RANGE).contains(id)));
        assert_eq!(uid_of(UID_BASE, "server-7"), uid_of(UID_BASE, "server-7"));
    }

    #[test]
    fn mount_points_are_read_as_they_are_called() {
        // SBX-31
        let table = "22 1 0:5 / /proc rw - proc proc rw\n30 1 8:1 / /srv/my\\040project\\134x rw - ext4 /dev/sda rw\n";
        let found: Vec<PathBuf> = mounts(table).collect();
        assert_eq!(found, [PathBuf::from("/proc"), PathBuf::from("/srv/my project\\x")]);
    }
}
