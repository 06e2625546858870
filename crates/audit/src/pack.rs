//! Packs: the files evidence objects lie in (AUD-17, AUD-21).
//!
//! One pack at a time is open per retention class and day: `blobs/<class>/<yyyymmdd>-<n>.pack`, objects end to
//! end over preallocated zeros. A class and day is also the reach of a data key, so when a key is destroyed the
//! packs beside it can go as whole files.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::path::{Path, PathBuf};

use portcullis_core::{Sha256Digest, failpoint};

use crate::error::{AtPath as _, AuditError};
use crate::evidence::{Day, EvidenceRef, RetentionClass};
use crate::files::{self, Spare};
use crate::filling::Filling;
use crate::layout::Layout;
use crate::seal::{self, OBJECT_HEAD, ObjectHead};

/// A class's first pack is small, because many gateways live short; the following ones are not. None is larger than a
/// segment: who wants those small has little room.
const FIRST_PACK: u64 = 4 << 20;
const PACK: u64 = 32 << 20;

/// An object on its way to its pack.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) class: RetentionClass,
    pub(crate) day: Day,
    pub(crate) bytes: Vec<u8>,
}

/// The packs open for writing.
pub(crate) struct Packs {
    layout: Layout,
    /// How long a pack is at most.
    most: u64,
    open: HashMap<(RetentionClass, Day), Pack>,
    spares: HashMap<RetentionClass, Spare>,
    /// The newest day anything was written for.
    newest: Option<Day>,
}

struct Pack {
    number: u32,
    file: Filling,
}

impl Packs {
    pub(crate) fn new(layout: Layout, most: u64) -> Self {
        Self { layout, most, open: HashMap::new(), spares: HashMap::new(), newest: None }
    }

    /// Begins to prepare the first pack of the class nearly everything goes to, if today has none.
    pub(crate) fn warm_up(&mut self, today: Day) {
        let class = RetentionClass::Standard;
        if list(&self.layout.packs(class), today).is_ok_and(|packs| packs.is_empty()) {
            spare(&mut self.spares, &self.layout, class).prepare(FIRST_PACK.min(self.most));
        }
    }

    /// Puts an object among those the next [`write`](Packs::write) stores.
    pub(crate) fn add(&mut self, object: &Sealed) -> Result<(), AuditError> {
        let place = (object.class, object.day);
        let needed = object.bytes.len() as u64;
        if !self.open.contains_key(&place) {
            let pack = self.open_or_create(place, needed)?;
            self.open.insert(place, pack);
            self.forget_old_days(object.day);
        }
        let full = self.open.get(&place).is_some_and(|pack| pack.file.room() < needed);
        if full && let Some(mut done) = self.open.remove(&place) {
            done.write()?;
            done.sync()?;
            let pack = self.create(place, done.number + 1, needed, PACK)?;
            self.open.insert(place, pack);
        }
        if let Some(pack) = self.open.get_mut(&place) {
            pack.file.add(&object.bytes);
            if pack.file.room() < pack.file.len() / 2 {
                spare(&mut self.spares, &self.layout, object.class).prepare(PACK.min(self.most));
            }
        }
        Ok(())
    }

    /// Writes and syncs every pack that something was added to; says how many there were.
    pub(crate) fn write(&mut self) -> Result<u64, AuditError> {
        let mut synced = 0;
        for pack in self.open.values_mut().filter(|pack| pack.file.added() > 0) {
            pack.write()?;
            pack.sync()?;
            pack.file.check_place()?;
            synced += 1;
        }
        Ok(synced)
    }

    fn open_or_create(&mut self, place: (RetentionClass, Day), needed: u64) -> Result<Pack, AuditError> {
        let (class, day) = place;
        let existing = list(&self.layout.packs(class), day)?;
        let Some((number, path)) = existing.last() else { return self.create(place, 1, needed, FIRST_PACK) };
        let file = files::open_rw(path)?;
        let len = file.metadata().at(path)?.len();
        match end_of_objects(&file, len).at(path)? {
            Some(offset) => Ok(Pack { number: *number, file: Filling::open(path, len, offset)? }),
            // Something was torn while it was being written. Nothing refers to it, but what would be appended
            // could not be found behind it.
            None => self.create(place, number + 1, needed, FIRST_PACK),
        }
    }

    fn create(
        &mut self,
        (class, day): (RetentionClass, Day),
        number: u32,
        needed: u64,
        usual: u64,
    ) -> Result<Pack, AuditError> {
        let path = self.layout.packs(class).join(format!("{day}-{number}.pack"));
        let usual = usual.min(self.most);
        let file = spare(&mut self.spares, &self.layout, class).take(&path, needed, usual, &[])?;
        Ok(Pack { number, file })
    }

    /// Around midnight two days are open; a day before those will not come again.
    fn forget_old_days(&mut self, day: Day) {
        let before = self.newest;
        if before.is_none_or(|newest| newest < day) {
            self.newest = Some(day);
            self.open
                .retain(|(_, open), pack| *open == day || Some(*open) == before || pack.file.added() > 0);
        }
    }
}

fn spare<'s>(
    spares: &'s mut HashMap<RetentionClass, Spare>,
    layout: &Layout,
    class: RetentionClass,
) -> &'s mut Spare {
    spares.entry(class).or_insert_with(|| Spare::at(layout.packs(class).join("spare")))
}

impl Pack {
    fn write(&mut self) -> Result<(), AuditError> {
        let written = self.file.write();
        written.at(self.file.path())
    }

    fn sync(&self) -> Result<(), AuditError> {
        failpoint::pass_io("audit.pack_sync").and_then(|()| self.file.sync()).at(self.file.path())
    }
}

/// The packs of a day, by number.
pub(crate) fn list(dir: &Path, day: Day) -> Result<Vec<(u32, PathBuf)>, AuditError> {
    let prefix = format!("{day}-");
    let mut packs = Vec::new();
    for entry in std::fs::read_dir(dir).at(dir)? {
        let path = entry.at(dir)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_prefix(&prefix)?.strip_suffix(".pack")?.parse().ok());
        packs.extend(number.map(|number| (number, path)));
    }
    packs.sort_unstable();
    Ok(packs)
}

/// Where the objects of a pack end; `None` if they end in something that is none.
fn end_of_objects(file: &File, len: u64) -> io::Result<Option<u64>> {
    let mut end = 0;
    let mut objects = Objects::new(file.try_clone()?, len);
    while let Some(object) = objects.next()? {
        if !seal::intact(object) {
            return Ok(None);
        }
        end += object.len() as u64;
    }
    Ok(objects.clean.then_some(end))
}

/// Finds the object a record refers to.
pub(crate) fn find(layout: &Layout, wanted: &EvidenceRef) -> Result<Option<Vec<u8>>, AuditError> {
    let dir = layout.packs(wanted.key.class);
    for (_, path) in list(&dir, wanted.key.day)? {
        let file = files::open_read(&path)?;
        let len = file.metadata().at(&path)?.len();
        let mut objects = Objects::new(file, len);
        while let Some(object) = objects.next().at(&path)? {
            if seal::may_hold(object.len(), object[OBJECT_HEAD], wanted.bytes)
                && seal::address(object) == wanted.object
            {
                return Ok(Some(object.to_vec()));
            }
        }
    }
    Ok(None)
}

/// Every object in the packs of a class, with its address; one whose bytes are damaged has an address nothing names.
pub(crate) fn objects(
    dir: &Path,
    mut each: impl FnMut(Sha256Digest, &[u8]) -> Result<(), AuditError>,
) -> Result<(), AuditError> {
    for entry in std::fs::read_dir(dir).at(dir)? {
        let path = entry.at(dir)?.path();
        if path.extension().is_none_or(|extension| extension != "pack") {
            continue;
        }
        let file = files::open_read(&path)?;
        let len = file.metadata().at(&path)?.len();
        let mut objects = Objects::new(file, len);
        while let Some(object) = objects.next().at(&path)? {
            each(seal::address(object), object)?;
        }
    }
    Ok(())
}

/// The objects of a pack, one after the other.
struct Objects {
    file: BufReader<File>,
    left: u64,
    object: Vec<u8>,
    /// Whether the objects ended where nothing was written, and not in rubble.
    clean: bool,
}

impl Objects {
    fn new(file: File, len: u64) -> Self {
        Self { file: BufReader::with_capacity(1 << 18, file), left: len, object: Vec::new(), clean: false }
    }

    fn next(&mut self) -> io::Result<Option<&[u8]>> {
        let mut head = [0; OBJECT_HEAD];
        if self.left < OBJECT_HEAD as u64 {
            self.clean = true;
            return Ok(None);
        }
        self.file.read_exact(&mut head)?;
        let len = match seal::head(&head) {
            ObjectHead::Object(len) if len as u64 <= self.left => len,
            ObjectHead::End => {
                self.clean = true;
                return Ok(None);
            }
            _ => return Ok(None),
        };
        self.object.clear();
        self.object.extend_from_slice(&head);
        self.object.resize(len, 0);
        self.file.read_exact(&mut self.object[OBJECT_HEAD..])?;
        self.left -= len as u64;
        Ok(Some(&self.object))
    }
}
