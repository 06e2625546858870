//! Where artifacts lie: two drawers of named objects, each there whole or not at all (CTX-25).
//!
//! A [`Folder`] is this gateway's alone. Another place may be shared with other gateways: then nobody knows who else
//! points to an object, so objects are left where they are until they are older than anything can live.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::RngExt as _;

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drawer {
    /// Content.
    Blobs,
    /// What is known of it.
    Records,
}

impl Drawer {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Drawer::Blobs => "blobs",
            Drawer::Records => "records",
        }
    }
}

/// Somewhere to keep objects.
pub(crate) trait Place: Debug + Send + Sync {
    /// Whether others keep theirs here too.
    fn is_shared(&self) -> bool;

    /// Puts an object there, as `write` has it. Who reads it sees all of it or, until then, none.
    fn put(&self, drawer: Drawer, name: &str, write: Writing<'_>) -> io::Result<()>;

    /// An object that can be read from anywhere.
    fn open(&self, drawer: Drawer, name: &str) -> io::Result<Box<dyn Object>>;

    /// Takes an object away, if it is there.
    fn remove(&self, drawer: Drawer, name: &str) -> io::Result<()>;

    /// The names of a drawer; in a shared place only of what is older than `age`.
    fn names(&self, drawer: Drawer, age: Duration) -> io::Result<Vec<String>>;
}

/// Writes an object's bytes.
pub(crate) type Writing<'w> = &'w mut dyn FnMut(&mut dyn Write) -> io::Result<()>;

/// One object.
pub(crate) trait Object: Send + Sync {
    /// Fills `bytes` with what stands at `offset`.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// How long it is.
    fn len(&self) -> io::Result<u64>;
}

/// All of an object.
pub(crate) fn whole(place: &dyn Place, drawer: Drawer, name: &str) -> io::Result<Vec<u8>> {
    let object = place.open(drawer, name)?;
    let mut bytes = vec![0; object.len()? as usize];
    object.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// A folder of this machine that is nobody else's.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn make(folder: &Path) -> io::Result<Self> {
        for drawer in [Drawer::Blobs, Drawer::Records] {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder.join(drawer.as_str()))?;
        }
        Ok(Self(folder.into()))
    }

    fn path(&self, drawer: Drawer, name: &str) -> PathBuf {
        self.0.join(drawer.as_str()).join(name)
    }
}

impl Place for Folder {
    fn is_shared(&self) -> bool {
        false
    }

    /// To a file of another name first, then to its own. Content is on the disk by then; a record is not worth waiting for
    /// it: if one is lost, only a handle is.
    fn put(&self, drawer: Drawer, name: &str, write: Writing<'_>) -> io::Result<()> {
        let own = self.path(drawer, name);
        let aside = self.path(drawer, &format!("{name}.{:016x}.new", rand::rng().random::<u64>()));
        let written =
            File::options().write(true).create_new(true).mode(0o600).open(&aside).and_then(|file| {
                let mut out = io::BufWriter::with_capacity(64 << 10, file);
                write(&mut out)?;
                let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
                if drawer == Drawer::Blobs { file.sync_data() } else { Ok(()) }
            });
        let placed = written.and_then(|()| std::fs::rename(&aside, &own));
        if placed.is_err() {
            let _ = std::fs::remove_file(&aside);
        }
        placed
    }

    fn open(&self, drawer: Drawer, name: &str) -> io::Result<Box<dyn Object>> {
        Ok(Box::new(File::open(self.path(drawer, name))?))
    }

    fn remove(&self, drawer: Drawer, name: &str) -> io::Result<()> {
        match std::fs::remove_file(self.path(drawer, name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn names(&self, drawer: Drawer, _: Duration) -> io::Result<Vec<String>> {
        std::fs::read_dir(self.0.join(drawer.as_str()))?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }
}

impl Object for File {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, bytes, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}
