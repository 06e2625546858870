//! Paths that a program asks for, and whether they are any business of its (SBX-62).
//!
//! What is not in the view does not exist, and a program that asks for it is told so by the kernel; nobody else hears of it.
//! Where every opening of a file is looked at, asking is noticed as well. Runtimes ask for much that they do not need, so what
//! loaders, locales and runtimes look for is let pass; it is in the view or it is not.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Component, Path, PathBuf};

use crate::bait::Bait;
use crate::profile::Profile;

/// What every program may ask for: the system's folders, which hold nothing of anybody's in the view.
const COMMON: [&str; 12] = [
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/bin",
    "/etc",
    "/proc",
    "/dev",
    "/tmp",
    "/run/secrets",
    "/sys/devices",
    "/sys/fs/cgroup",
];
/// What runtimes look for in each folder above a program.
const MANIFESTS: [&str; 4] = ["package.json", "node_modules", "pyvenv.cfg", "tsconfig.json"];
/// The longest path the kernel takes.
const LONGEST: usize = 4096;

/// The places that a program may ask for.
#[derive(Debug, Clone)]
pub(crate) struct Roots(Vec<PathBuf>);

impl Roots {
    /// What the profile names, and where baits lie, which are noticed in their own way.
    pub(crate) fn of(profile: &Profile, baits: &[Bait]) -> Self {
        let own = std::iter::once(&profile.command).chain(&profile.artifacts).chain(&profile.exec);
        let own =
            own.chain(profile.fs.iter().map(|scope| &scope.path)).chain(baits.iter().map(|bait| &bait.path));
        Self(COMMON.iter().map(PathBuf::from).chain(own.cloned()).collect())
    }

    /// A path that is none of a program's business, if that is what it asks for. `folder` is where it is.
    fn beyond(&self, path: &Path, folder: Option<&Path>) -> Option<PathBuf> {
        // What is relative to an open folder cannot leave the view but upward.
        let asked = plain(&folder.unwrap_or(Path::new("/")).join(path));
        if !path.is_absolute() && folder.is_none() {
            return None;
        }
        let inside = self.0.iter().any(|root| asked.starts_with(root) || root.starts_with(&asked));
        let named = asked.file_name().and_then(|name| name.to_str());
        let above =
            || asked.parent().is_some_and(|parent| self.0.iter().any(|root| root.starts_with(parent)));
        let manifest = named.is_some_and(|name| MANIFESTS.contains(&name)) && above();
        (!inside && !manifest).then_some(asked)
    }
}

/// Without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// What a process asks to open that is none of its business. `folder` is the descriptor it starts from, `at` where the path is in
/// its memory.
pub(crate) fn beyond(roots: &Roots, pid: u32, folder: u64, at: u64) -> Option<String> {
    let path = text(pid, at)?;
    // The number is an int, whatever the register holds above it.
    let here = folder as u32 == libc::AT_FDCWD as u32;
    let folder = if here {
        std::fs::read_link(format!("/proc/{pid}/cwd")).ok()
    } else {
        std::fs::read_link(format!("/proc/{pid}/fd/{}", folder as u32)).ok()
    };
    roots.beyond(Path::new(&path), folder.as_deref()).map(|path| path.display().to_string())
}

/// The text that ends with a zero, at an address of a process.
fn text(pid: u32, at: u64) -> Option<String> {
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut bytes = Vec::with_capacity(256);
    while bytes.len() < LONGEST {
        // Never over the end of a page: the next one may not be there.
        let next = at + bytes.len() as u64;
        let mut piece = vec![0; usize::try_from(256 - next % 256).ok()?];
        let read = memory.read_at(&mut piece, next).ok().filter(|read| *read > 0)?;
        match memchr::memchr(0, &piece[..read]) {
            Some(end) => {
                bytes.extend_from_slice(&piece[..end]);
                return Some(String::from_utf8_lossy(&bytes).into_owned());
            }
            None => bytes.extend_from_slice(&piece[..read]),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Access, FsScope};

    #[test]
    fn what_is_outside_the_view_is_nobody_s_business() {
        // SBX-62
        let mut profile = Profile::bare("/opt/app/server.js", Vec::new());
        profile.fs = vec![FsScope { path: "/srv/project".into(), access: Access::Ro }];
        let roots = Roots::of(&profile, &[]);
        let beyond =
            |path: &str, folder: Option<&str>| roots.beyond(Path::new(path), folder.map(Path::new)).is_some();
        for (path, folder) in [
            ("/home/somebody/.aws/credentials", None),
            ("/var/lib/secrets", None),
            ("/srv/project/../other", None),
            ("../../home/x", Some("/srv/project")),
            ("/opt/other/package.json", None),
            ("/opt/app/neighbour.js", None),
        ] {
            assert!(beyond(path, folder), "{path}");
        }
        for (path, folder) in [
            ("/srv/project/a/../b", None),
            ("/srv", None),
            ("/usr/share/locale/de", None),
            ("/etc/ld.so.preload", None),
            ("/opt/package.json", None),
            ("/opt/app/server.js", None),
            ("note", Some("/srv/project")),
            ("whatever", None),
        ] {
            assert!(!beyond(path, folder), "{path}");
        }
    }

    #[test]
    fn a_path_is_read_where_it_lies() {
        let path = std::ffi::CString::new("/srv/".to_owned() + &"x".repeat(700)).unwrap();
        let read = text(std::process::id(), path.as_ptr() as u64);
        assert_eq!(read.as_deref(), path.to_str().ok());
        assert_eq!(text(std::process::id(), 8), None, "nothing is mapped there");
    }
}
