//! Whether what is synced to a folder outlives a crash of the machine (AUD-25), by the table of mounts.

use std::path::{Path, PathBuf};

/// File systems that are in memory, or behind a network that may say yes too early.
const FORGETFUL: [&str; 4] = ["tmpfs", "ramfs", "nfs", "nfs4"];

/// What `dir` is on and where that is mounted, if it may forget what was synced.
pub(crate) fn volatile(dir: &Path) -> Option<String> {
    let dir = std::fs::canonicalize(dir).ok()?;
    volatile_by(&std::fs::read_to_string("/proc/self/mountinfo").ok()?, &dir)
}

fn volatile_by(table: &str, dir: &Path) -> Option<String> {
    let mount = Mount::of(table, dir)?;
    let at = mount.point.display();
    if FORGETFUL.contains(&mount.kind) {
        return Some(format!("{}, mounted at {at}", mount.kind));
    }
    // An overlay keeps what is written in another folder. In a container that is often out of sight, and then nobody
    // can tell from inside.
    let upper = mount.options.split(',').find_map(|option| option.strip_prefix("upperdir="))?;
    let below = Mount::of(table, Path::new(upper)).filter(|below| below.point != mount.point)?;
    FORGETFUL.contains(&below.kind).then(|| format!("an overlay over {}, mounted at {at}", below.kind))
}

/// A line of the table.
struct Mount<'t> {
    point: PathBuf,
    kind: &'t str,
    /// Those of the file system.
    options: &'t str,
}

impl<'t> Mount<'t> {
    /// The mount that a path leads into: of those around it the innermost, and of several there the last.
    fn of(table: &'t str, path: &Path) -> Option<Self> {
        let around = table.lines().filter_map(Self::read).filter(|mount| path.starts_with(&mount.point));
        around.max_by_key(|mount| mount.point.components().count())
    }

    fn read(line: &'t str) -> Option<Self> {
        let (ours, of_the_file_system) = line.split_once(" - ")?;
        let point = ours.split(' ').nth(4)?;
        let mut rest = of_the_file_system.split(' ');
        let (kind, _source, options) = (rest.next()?, rest.next()?, rest.next().unwrap_or_default());
        Some(Self { point: unescaped(point), kind, options })
    }
}

/// The table writes blanks and backslashes as three octal digits.
fn unescaped(text: &str) -> PathBuf {
    let known = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    known.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_networks_and_overlays_over_memory_are_told_from_disks() {
        // AUD-25
        let table = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:30 / /run rw,nosuid shared:2 - tmpfs tmpfs rw,size=1k
24 22 0:31 / /mnt/with\\040blank rw - nfs4 server:/export rw,vers=4.2
25 22 0:32 / /live rw - overlay overlay rw,lowerdir=/a,upperdir=/run/upper,workdir=/run/work
26 22 0:33 / /kept rw - overlay overlay rw,lowerdir=/a,upperdir=/var/upper,workdir=/var/work
27 23 8:2 / /run/disk rw - xfs /dev/sdb1 rw
28 22 0:34 / /box rw - overlay overlay rw,lowerdir=/a,upperdir=/box/elsewhere,workdir=/b
";
        let volatile = |dir: &str| volatile_by(table, Path::new(dir));
        assert_eq!(volatile("/var/lib/portcullis/audit"), None);
        assert_eq!(volatile("/run/portcullis").unwrap(), "tmpfs, mounted at /run");
        assert_eq!(volatile("/runner"), None, "a name is not a path");
        assert_eq!(volatile("/run/disk/audit"), None, "the innermost counts");
        assert_eq!(volatile("/mnt/with blank/audit").unwrap(), "nfs4, mounted at /mnt/with blank");
        assert_eq!(volatile("/live/home").unwrap(), "an overlay over tmpfs, mounted at /live");
        assert_eq!((volatile("/kept/home"), volatile("/box/home")), (None, None));
    }
}
