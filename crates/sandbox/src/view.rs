//! The file system as the program sees it (SBX §4).
//!
//! A new root on a small tmpfs, into which what the profile names is mounted from descriptors. What is not mounted does
//! not exist: a symbolic link that leads out leads nowhere, and no race can change that.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use crate::bait::{self, Bait};
use crate::broker::{FOLDER, OWN_BUNDLE, WHOLE_BUNDLE, names};
use crate::doors;
use crate::own_user;
use crate::profile::{Access, Profile};
use crate::rules;
use crate::stage::{Failure, Within as _};

/// Where the new root is put together. Anything that exists everywhere will do: it is covered in our namespace only.
const ROOT: &str = "/tmp";
const VIEW: &str = "view";
/// Files for credentials, beside the view: we write them from here, and they are shown for reading.
const SECRETS: &str = "secrets";

/// Libraries and data of the system. Folders without which programs do not start, and with which they can start
/// nothing else.
const RUNTIME: [&str; 7] = [
    "/usr/lib",
    "/usr/lib64",
    "/usr/lib32",
    "/usr/share/zoneinfo",
    "/usr/share/ca-certificates",
    "/lib",
    "/lib64",
];
/// What no scope may be in or over (GOV-403.5).
const FORBIDDEN: [&str; 5] = ["/proc", "/sys", "/dev", "/run", "/boot"];
/// Devices that everybody may have.
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// What is mounted, opened on the host before anything changes.
pub(crate) struct Sources {
    items: Vec<(Item, Source)>,
    /// Names under which scripts know their interpreters, and what they lead to.
    links: Vec<(PathBuf, PathBuf)>,
}

/// A file or folder of the host that is to be mounted.
enum Source {
    /// As it is.
    Opened(OwnedFd),
    /// In a mount of its own, in which user ids are translated.
    Translated(OwnedFd),
}

/// One thing in the view.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    /// Where it is shown.
    pub(crate) path: PathBuf,
    /// Where it is.
    real: PathBuf,
    pub(crate) kind: Kind,
}

impl Item {
    /// Opens it without following a symbolic link anywhere on the way (SBX-20, step 1).
    pub(crate) fn open(&self) -> Result<OwnedFd, Failure> {
        resolve(&self.real)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Part of the system, which everybody may read.
    System,
    /// Part of the program: readable, and mappable as code.
    Program,
    /// The host's, for reading.
    Read,
    /// The host's, for writing too.
    Write,
    Device,
}

impl Kind {
    /// Whether it belongs to us and not to the system: a program with a user id of its own could not have it as it is.
    pub(crate) fn is_translated(self) -> bool {
        matches!(self, Kind::Program | Kind::Read | Kind::Write)
    }
}

/// Everything that is shown, the outer before the inner. Some paths of the program show other bytes than lie there.
pub(crate) fn items(profile: &Profile, copies: &BTreeMap<PathBuf, PathBuf>) -> Result<Vec<Item>, Failure> {
    let as_it_is = |path: PathBuf, kind| Item { real: path.clone(), path, kind };
    let mut items = Vec::new();
    for path in RUNTIME.map(Path::new) {
        // A link, as on systems with one /usr, is made again instead.
        if path.is_dir() && !path.is_symlink() {
            items.push(as_it_is(path.to_owned(), Kind::System));
        }
    }
    items.extend(DEVICES.map(|device| as_it_is(Path::new("/dev").join(device), Kind::Device)));
    let links = interpreters(profile);
    let own = std::iter::once(&profile.command).chain(&profile.artifacts).chain(&profile.exec);
    for path in own.chain(links.iter().map(|(_, interpreter)| interpreter)) {
        let copy = copies.get(path);
        // What lies in the runtime is there already, unless other bytes are shown.
        let there = copy.is_none() && RUNTIME.iter().any(|runtime| path.starts_with(runtime))
            || items.iter().any(|known| known.path == *path);
        if !there {
            let real = copy.unwrap_or(path).clone();
            items.push(Item { path: path.clone(), real, kind: Kind::Program });
        }
    }
    for scope in &profile.fs {
        if FORBIDDEN.iter().any(|own| scope.path.starts_with(own) || Path::new(own).starts_with(&scope.path))
        {
            let path = scope.path.display();
            return Err(Failure::new(
                "view",
                format!("{path} is in or over what the system keeps for itself"),
            ));
        }
        let kind = match scope.access {
            Access::Ro => Kind::Read,
            Access::Rw => Kind::Write,
        };
        items.push(as_it_is(scope.path.clone(), kind));
    }
    // Outer before inner, or the outer mount would hide the inner one.
    items.sort_by_key(|item| item.path.components().count());
    Ok(items)
}

impl Sources {
    /// Opens everything once, but what was opened and translated before.
    pub(crate) fn open(
        profile: &Profile,
        items: Vec<Item>,
        mut translated: BTreeMap<usize, OwnedFd>,
    ) -> Result<Self, Failure> {
        let mut opened = Vec::new();
        for (place, item) in items.into_iter().enumerate() {
            let source = match translated.remove(&place) {
                Some(mount) => Source::Translated(mount),
                None => Source::Opened(item.open()?),
            };
            opened.push((item, source));
        }
        Ok(Self { items: opened, links: interpreters(profile) })
    }
}

/// What the program and declared programs name in their first lines, if they are scripts, and where that really is.
fn interpreters(profile: &Profile) -> Vec<(PathBuf, PathBuf)> {
    let programs = std::iter::once(&profile.command).chain(&profile.exec);
    let named = programs.filter_map(|program| rules::shebang(program)).filter(|named| named.is_absolute());
    named.filter_map(|named| fs::canonicalize(&named).ok().map(|real| (named, real))).collect()
}

fn resolve(path: &Path) -> Result<OwnedFd, Failure> {
    let plain = path.is_absolute() && path.components().all(|part| part != Component::ParentDir);
    if !plain || path == Path::new("/") {
        return Err(Failure::new("view", format!("{} cannot be shown", path.display())));
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat2(
        CWD,
        path,
        flags,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )
    .within("view", path.display())
}

/// The view, being made.
pub(crate) struct View<'a> {
    profile: &'a Profile,
    authority: Option<&'a str>,
    baits: &'a [Bait],
}

impl View<'_> {
    /// Makes the view and, unless a test wants to see what happens without, moves into it; gives the files for credentials, open for writing.
    pub(crate) fn build(
        profile: &Profile,
        sources: &Sources,
        authority: Option<&str>,
        baits: &[Bait],
        move_in: bool,
    ) -> Result<Vec<OwnedFd>, Failure> {
        let view = View { profile, authority, baits };
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
            .within("mountns", "private mounts")?;
        let etc = Etc::read();
        tmpfs(Path::new(ROOT), "size=4m,nr_inodes=4096,mode=755", MsFlags::empty())?;
        std::env::set_current_dir(ROOT).within("mountns", "new root")?;
        directory(Path::new(VIEW))?;
        let secrets = secret_files(profile)?;
        // A mount of its own, as pivoting wants it.
        mount(Some(VIEW), VIEW, none, MsFlags::MS_BIND, none).within("mountns", "new root")?;
        std::env::set_current_dir(VIEW).within("mountns", "new root")?;
        view.fill(sources, &etc)?;
        if !secrets.is_empty() {
            let folder = Path::new("..").join(SECRETS);
            let opened = rustix::fs::open(&folder, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
            show(Path::new(FOLDER), &Source::Opened(opened.within("view", FOLDER)?), Kind::Read)?;
        }
        if !move_in {
            return Ok(secrets);
        }
        nix::unistd::pivot_root(".", ".").within("mountns", "pivot_root")?;
        umount2(".", MntFlags::MNT_DETACH).within("mountns", "the old root")?;
        std::env::set_current_dir("/").within("mountns", "new root")?;
        // Nothing is added to the root after this.
        let flags = MsFlags::MS_BIND
            | MsFlags::MS_REMOUNT
            | MsFlags::MS_RDONLY
            | MsFlags::MS_NOSUID
            | MsFlags::MS_NODEV;
        mount(none, "/", none, flags, none).within("mountns", "read-only root")?;
        Ok(secrets)
    }

    /// Makes everything below the current folder.
    fn fill(&self, sources: &Sources, etc: &Etc) -> Result<(), Failure> {
        for path in RUNTIME.map(Path::new).into_iter().filter(|path| path.is_symlink()) {
            let target = fs::read_link(path).within("view", path.display())?;
            symlink(target, inside(path)).within("view", path.display())?;
        }
        directory(Path::new("etc"))?;
        etc.write(&hosts(self.profile), self.authority).within("view", "/etc")?;
        directory(Path::new("dev"))?;
        directory(Path::new("dev/shm"))?;
        directory(Path::new("proc"))?;
        directory(Path::new("tmp"))?;
        let size = format!("size={},mode=1777", self.profile.limits.tmp);
        tmpfs(Path::new("tmp"), &size, MsFlags::MS_NOEXEC)?;
        tmpfs(Path::new("dev/shm"), &size, MsFlags::MS_NOEXEC)?;
        directory(Path::new("tmp/home"))?;
        for (item, source) in &sources.items {
            show(&item.path, source, item.kind)?;
        }
        for bait in self.baits {
            bait::lay(bait)?;
        }
        for (link, interpreter) in &sources.links {
            let place = inside(link);
            // It may have come with the folder it lies in.
            if fs::symlink_metadata(&place).is_err() {
                directory(place.parent().unwrap_or(Path::new(".")))?;
                symlink(interpreter, &place).within("view", link.display())?;
            }
        }
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(Some("proc"), "proc", Some("proc"), flags, Some("subset=pid,hidepid=invisible"))
            .within("proc", "mount")
    }
}

/// Empty files for credentials, open for writing; for the program to read, and for nobody to write.
fn secret_files(profile: &Profile) -> Result<Vec<OwnedFd>, Failure> {
    if names(profile).next().is_none() {
        return Ok(Vec::new());
    }
    directory(Path::new(SECRETS))?;
    let create = |name: &str| {
        let mut options = fs::File::options();
        options.write(true).create_new(true).mode(0o400);
        options.open(Path::new(SECRETS).join(name)).map(OwnedFd::from).within("view", name)
    };
    names(profile).map(create).collect()
}

/// Mounts an opened file or folder at its own path. Without what is mounted below it, which the kernel refuses if
/// there is anything (SBX-31).
fn show(path: &Path, source: &Source, kind: Kind) -> Result<(), Failure> {
    let target = inside(path);
    let what = || path.display().to_string();
    let (Source::Opened(opened) | Source::Translated(opened)) = source;
    let stat = rustix::fs::fstat(opened).within("view", what())?;
    if !target.exists() {
        let is_folder = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
        if is_folder {
            directory(&target)?;
        } else {
            directory(target.parent().unwrap_or(Path::new(".")))?;
            fs::write(&target, "").within("view", what())?;
        }
    }
    let none = None::<&str>;
    match source {
        Source::Opened(opened) => {
            let from = format!("/proc/self/fd/{}", opened.as_raw_fd());
            mount(Some(from.as_str()), &target, none, MsFlags::MS_BIND, none).within("view", what())?;
        }
        Source::Translated(mount) => own_user::place(mount, &target).within("view", what())?,
    }
    let mut flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_NOSUID;
    flags |= match kind {
        Kind::System | Kind::Program => MsFlags::MS_NODEV | MsFlags::MS_RDONLY,
        Kind::Read => MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY,
        Kind::Write => MsFlags::MS_NODEV | MsFlags::MS_NOEXEC,
        Kind::Device => MsFlags::MS_NOEXEC,
    };
    mount(none, &target, none, flags, none).within("view", what())
}

fn tmpfs(path: &Path, options: &str, more: MsFlags) -> Result<(), Failure> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | more;
    mount(Some("tmpfs"), path, Some("tmpfs"), flags, Some(options)).within("mountns", path.display())
}

fn directory(path: &Path) -> Result<(), Failure> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(path).within("view", path.display())
}

/// A path of the view, seen from its root.
fn inside(path: &Path) -> PathBuf {
    Path::new(".").join(path.strip_prefix("/").unwrap_or(path))
}

/// Declared hosts under the addresses that stand for them inside (SBX-45).
fn hosts(profile: &Profile) -> String {
    let mut text = String::from("127.0.0.1 localhost sandbox\n");
    let mut known: Vec<&str> = Vec::new();
    for scope in &profile.egress {
        if let Some(address) = doors::address_of(profile, &scope.host)
            && !known.contains(&scope.host.as_str())
        {
            known.push(&scope.host);
            text.push_str(&format!("{address} {}\n", scope.host));
        }
    }
    text
}

/// The few files of `/etc` that programs look for.
struct Etc {
    certificates: Option<Vec<u8>>,
    loader_cache: Option<Vec<u8>>,
}

impl Etc {
    /// What comes from the host, read while it is still there.
    fn read() -> Self {
        Self {
            certificates: fs::read("/etc/ssl/certs/ca-certificates.crt").ok(),
            loader_cache: fs::read("/etc/ld.so.cache").ok(),
        }
    }

    fn write(&self, hosts: &str, authority: Option<&str>) -> std::io::Result<()> {
        fs::write("etc/passwd", "sandbox:x:1000:1000:sandbox:/tmp/home:/\n")?;
        fs::write("etc/group", "sandbox:x:1000:\n")?;
        fs::write("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")?;
        fs::write("etc/hosts", hosts)?;
        fs::write("etc/resolv.conf", "nameserver 127.0.0.1\n")?;
        let mut certificates = self.certificates.clone().unwrap_or_default();
        if let Some(authority) = authority {
            certificates.extend_from_slice(b"\n");
            certificates.extend_from_slice(authority.as_bytes());
        }
        if !certificates.is_empty() {
            fs::create_dir_all("etc/ssl/certs")?;
            fs::write(inside(Path::new(WHOLE_BUNDLE)), certificates)?;
        }
        if let Some(authority) = authority {
            fs::write(inside(Path::new(OWN_BUNDLE)), authority)?;
        }
        if let Some(cache) = &self.loader_cache {
            fs::write("etc/ld.so.cache", cache)?;
        }
        fs::set_permissions("etc", fs::Permissions::from_mode(0o755))
    }
}
