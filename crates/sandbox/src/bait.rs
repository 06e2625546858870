//! Files that nobody has a reason to open (SBX-61), and files that nobody has a reason to change.
//!
//! Baits lie in the view where thieves look first. They are watched by their inodes, so that the watch works from outside
//! and no name inside matters.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::notify::Attempt;
use crate::profile::Profile;
use crate::stage::{Failure, Within as _};

/// Where thieves look first.
pub const USUAL: [&str; 4] =
    ["/etc/shadow", "/root/.ssh/id_ed25519", "/tmp/home/.ssh/id_ed25519", "/run/docker.sock"];

/// A file in the view, and what is in it.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Bait {
    pub(crate) path: PathBuf,
    pub(crate) content: String,
}

/// Fresh baits at these places, but for those that the profile itself has something at.
pub(crate) fn prepare(places: &[PathBuf], profile: &Profile) -> io::Result<Vec<Bait>> {
    let own = || {
        let scopes = profile.fs.iter().map(|scope| &scope.path);
        scopes.chain(&profile.artifacts).chain(&profile.exec).chain([&profile.command])
    };
    let free = |place: &&PathBuf| own().all(|path| !place.starts_with(path) && !path.starts_with(place));
    let plain = |place: &&PathBuf| {
        place.is_absolute() && place.components().all(|part| part != std::path::Component::ParentDir)
    };
    let mut baits = Vec::new();
    for path in places.iter().filter(plain).filter(free) {
        let content = crate::broker::Format::parse("{64}").map_err(io::Error::other)?.fill()?;
        baits.push(Bait { path: path.clone(), content });
    }
    Ok(baits)
}

/// Puts a bait into the view that is being made below the current folder.
pub(crate) fn lay(bait: &Bait) -> Result<(), Failure> {
    let place = Path::new(".").join(bait.path.strip_prefix("/").unwrap_or(&bait.path));
    if fs::symlink_metadata(&place).is_ok() {
        return Ok(());
    }
    fs::create_dir_all(place.parent().unwrap_or(Path::new("."))).within("view", bait.path.display())?;
    fs::write(&place, &bait.content).within("view", bait.path.display())
}

/// Watches the baits of a view that is the root now. The order of watches is that of the baits.
pub(crate) fn watch(baits: &[Bait]) -> Result<OwnedFd, Failure> {
    let watching = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).within("bait", "inotify")?;
    for bait in baits {
        inotify::add_watch(&watching, &bait.path, WatchFlags::OPEN).within("bait", bait.path.display())?;
    }
    Ok(watching)
}

/// Files that are watched, as the gateway sees them.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    watching: Arc<OwnedFd>,
    /// What is watched, in the order of the watches.
    names: Vec<String>,
    attempt: fn(String) -> Attempt,
}

impl Watched {
    /// Baits, watched by who was inside.
    pub(crate) fn baits(watching: OwnedFd, baits: &[Bait]) -> Self {
        let names = baits.iter().map(|bait| bait.path.display().to_string()).collect();
        Self { watching: Arc::new(watching), names, attempt: Attempt::Bait }
    }

    /// The files of a program, watched from outside. Of folders, what lies directly in them.
    pub(crate) fn artifacts(profile: &Profile) -> io::Result<Self> {
        let watching = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let mut names = Vec::new();
        for path in std::iter::once(&profile.command).chain(&profile.artifacts) {
            let name = path.display().to_string();
            // What cannot be watched was hashed before the start, as always.
            if !names.contains(&name) && inotify::add_watch(&watching, path, WatchFlags::MODIFY).is_ok() {
                names.push(name);
            }
        }
        Ok(Self { watching: Arc::new(watching), names, attempt: Attempt::Artifact })
    }

    /// What happened since the last look.
    pub(crate) fn look(&self) -> Vec<Attempt> {
        let mut space = [std::mem::MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&*self.watching, &mut space);
        let mut seen = Vec::new();
        while let Ok(event) = reader.next() {
            // Watch descriptors are counted from one.
            let index = usize::try_from(event.wd() - 1).unwrap_or(usize::MAX);
            // A view that goes away is told of too.
            if event.events().intersects(ReadFlags::OPEN | ReadFlags::MODIFY) {
                seen.push((self.attempt)(self.names.get(index).cloned().unwrap_or_default()));
            }
        }
        seen
    }

    #[allow(unsafe_code)]
    fn ready(&self) -> Option<AsyncFd<Arc<OwnedFd>>> {
        // SAFETY: the descriptor belongs to the value that is handed over, and stays open for as long as that lives.
        unsafe { AsyncFd::register_with_interest(Arc::clone(&self.watching), Interest::READABLE) }.ok()
    }

    /// Tells of what happens, until the descriptor fails.
    pub(crate) async fn tell(self, told: impl Fn(Attempt)) {
        let Some(ready) = self.ready() else { return };
        while let Ok(mut readable) = ready.readable().await {
            readable.clear_ready();
            self.look().into_iter().for_each(&told);
        }
    }
}
