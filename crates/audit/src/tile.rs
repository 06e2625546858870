//! Tiles: the tree's hashes as files that anybody can serve and read (AUD-30, C2SP tlog-tiles).
//!
//! Level 0 has the records' leaf hashes, 256 to a tile; each level above has the roots of the tiles below it. A full
//! tile never changes. What is left over at the end of each level is a partial tile, named by its width, which the
//! next checkpoint replaces by a wider one. Tiles are derived from segments and can be made again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use portcullis_core::Sha256Digest;

use crate::error::{AtPath as _, AuditError};
use crate::files;
use crate::tree::{self, Nodes};

/// How many hashes a full tile has.
pub(crate) const WIDTH: usize = 256;
const HEIGHT: u32 = 8;

/// The name of a tile below `tile/`: `0/x001/x234/067`, or `0/x001/x234/067.p/5` for a partial one of 5 hashes.
pub(crate) fn path(level: &str, number: u64, width: usize) -> String {
    let mut groups = vec![format!("{:03}", number % 1000)];
    let mut rest = number / 1000;
    while rest > 0 {
        groups.push(format!("x{:03}", rest % 1000));
        rest /= 1000;
    }
    groups.reverse();
    let name = format!("{level}/{}", groups.join("/"));
    if width == WIDTH { name } else { format!("{name}.p/{width}") }
}

/// A tile that is to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tile {
    pub(crate) level: u32,
    pub(crate) number: u64,
    pub(crate) hashes: Vec<Sha256Digest>,
}

impl Tile {
    /// Its name below `tile/`.
    pub(crate) fn path(&self) -> String {
        path(&self.level.to_string(), self.number, self.hashes.len())
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.hashes.iter().flat_map(|hash| *hash.as_bytes()).collect()
    }
}

/// The right edge of a growing tree: the hashes of each level that do not fill a tile yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Edge {
    size: u64,
    levels: Vec<Vec<Sha256Digest>>,
}

impl Edge {
    /// How many records the tree has.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Adds a record's leaf hash; `full` gets every tile that becomes full by it.
    pub(crate) fn push(&mut self, leaf: Sha256Digest, mut full: impl FnMut(Tile)) {
        self.size += 1;
        let mut hash = leaf;
        for level in 0.. {
            if self.levels.len() == level {
                self.levels.push(Vec::with_capacity(WIDTH));
            }
            let hashes = &mut self.levels[level];
            hashes.push(hash);
            if hashes.len() < WIDTH {
                return;
            }
            hash = tree::perfect(hashes);
            let number = (self.size >> (HEIGHT * (level as u32 + 1))) - 1;
            let hashes = std::mem::replace(hashes, Vec::with_capacity(WIDTH));
            full(Tile { level: level as u32, number, hashes });
        }
    }

    /// The partial tiles of the tree as it is.
    pub(crate) fn partial(&self) -> impl Iterator<Item = Tile> + '_ {
        (self.levels.iter().enumerate()).filter(|(_, hashes)| !hashes.is_empty()).map(|(level, hashes)| {
            let level = level as u32;
            Tile { level, number: self.size >> (HEIGHT * (level + 1)), hashes: hashes.clone() }
        })
    }

    pub(crate) fn root(&self) -> Sha256Digest {
        let mut frontier = Vec::new();
        for hashes in self.levels.iter().rev() {
            let mut rest = hashes.as_slice();
            while !rest.is_empty() {
                let (subtree, after) = rest.split_at(1 << rest.len().ilog2());
                frontier.push(tree::perfect(subtree));
                rest = after;
            }
        }
        tree::root_of_frontier(&frontier)
    }
}

/// The tiles of a tree of `size` records, in the folder of a log or an export.
pub(crate) struct Tiles {
    dir: PathBuf,
    size: u64,
    read: HashMap<(u32, u64), Vec<Sha256Digest>>,
}

impl Tiles {
    /// The tiles below `dir`, which is the folder that has `tile/`.
    pub(crate) fn new(dir: &Path, size: u64) -> Self {
        Self { dir: dir.join("tile"), size, read: HashMap::new() }
    }

    /// The right edge, from which the tree can grow on.
    pub(crate) fn edge(&mut self) -> Result<Edge, AuditError> {
        let mut levels = Vec::new();
        let mut level = 0;
        while self.size >> (HEIGHT * level) > 0 {
            let here = self.size >> (HEIGHT * level);
            let width = here as usize % WIDTH;
            let hashes = if width == 0 {
                Vec::with_capacity(WIDTH)
            } else {
                self.tile(level, here / WIDTH as u64)?.to_vec()
            };
            levels.push(hashes);
            level += 1;
        }
        Ok(Edge { size: self.size, levels })
    }

    fn tile(&mut self, level: u32, number: u64) -> Result<&[Sha256Digest], AuditError> {
        // A proof goes up one path: what it needs are a few tiles, again and again.
        if !self.read.contains_key(&(level, number)) {
            let here = self.size >> (HEIGHT * level);
            let width = (here - number * WIDTH as u64).min(WIDTH as u64) as usize;
            let hashes = read(&self.dir, level, number, width)?;
            self.read.insert((level, number), hashes);
        }
        Ok(&self.read[&(level, number)])
    }
}

impl Nodes for Tiles {
    type Error = AuditError;
    fn at(&mut self, level: u32, index: u64) -> Result<Sha256Digest, AuditError> {
        let (tile_level, above) = (level / HEIGHT, level % HEIGHT);
        let first = index << above;
        let hashes = self.tile(tile_level, first / WIDTH as u64)?;
        let at = (first % WIDTH as u64) as usize;
        Ok(tree::perfect(&hashes[at..at + (1 << above)]))
    }
}

/// Reads a tile of at least `width` hashes; the partial one may have been replaced by a wider or the full one.
pub(crate) fn read(
    dir: &Path,
    level: u32,
    number: u64,
    width: usize,
) -> Result<Vec<Sha256Digest>, AuditError> {
    let exact = dir.join(path(&level.to_string(), number, width));
    let full = dir.join(path(&level.to_string(), number, WIDTH));
    let bytes = match files::read(&exact) {
        Err(_) if width < WIDTH && full.exists() => files::read(&full)?,
        other => other?,
    };
    let hashes: Vec<Sha256Digest> =
        bytes.as_chunks::<32>().0.iter().map(|hash| Sha256Digest::from_bytes(*hash)).collect();
    if bytes.len() % 32 != 0 || hashes.len() < width {
        let short = std::io::Error::new(std::io::ErrorKind::InvalidData, "is not a whole tile");
        return Err(short).at(&exact);
    }
    Ok(hashes[..width].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(n: u64) -> Sha256Digest {
        Sha256Digest::of_parts(&[&[0], &n.to_be_bytes()])
    }

    #[test]
    fn tiles_are_named_as_the_format_says() {
        // AUD-30
        assert_eq!(path("0", 1_234_067, WIDTH), "0/x001/x234/067");
        assert_eq!(path("0", 0, 5), "0/000.p/5");
        assert_eq!(path("entries", 999, WIDTH), "entries/999");
        assert_eq!(path("1", 1000, 255), "1/x001/000.p/255");
    }

    #[test]
    fn the_edge_has_the_root_the_definition_gives_and_goes_on_from_its_tiles() {
        // AUD-30
        let dir = tempfile::tempdir().unwrap();
        let store = |tile: &Tile| {
            let path = dir.path().join("tile").join(tile.path());
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, tile.bytes()).unwrap();
        };
        let (mut edge, mut tiles) = (Edge::default(), 0);
        // More than two full tiles of the second level would take too long in a test; a full one and some do.
        let total = 256 * 256 + 300;
        let mut leaves = Vec::new();
        for n in 0..total {
            leaves.push(leaf(n));
            edge.push(leaf(n), |tile| {
                store(&tile);
                tiles += 1;
            });
        }
        assert_eq!(tiles, 256 + 1 + 1);
        edge.partial().for_each(|tile| store(&tile));
        let widths: Vec<_> =
            edge.partial().map(|tile| (tile.level, tile.number, tile.hashes.len())).collect();
        assert_eq!(widths, [(0, 257, 44), (1, 1, 1), (2, 0, 1)]);

        let mut read = Tiles::new(dir.path(), total);
        assert_eq!(read.edge().unwrap().root(), edge.root());
        let root = edge.root();
        for index in [0, 255, 256, 65_535, 65_536, total - 1] {
            let proof = tree::inclusion(&mut read, index, total).unwrap();
            assert!(tree::verify_inclusion(&leaf(index), index, total, &proof, &root), "{index}");
        }
        let old = 1000;
        let mut earlier = Edge::default();
        leaves[..old as usize].iter().for_each(|leaf| earlier.push(*leaf, drop));
        let proof = tree::consistency(&mut read, old, total).unwrap();
        assert!(tree::verify_consistency(old, &earlier.root(), total, &root, &proof));
        assert_eq!(Edge::default().root(), tree::empty_root());
    }

    #[test]
    fn a_tile_that_is_cut_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("0/000.p")).unwrap();
        std::fs::write(dir.path().join("0/000.p/2"), [0; 63]).unwrap();
        assert!(read(dir.path(), 0, 0, 2).is_err());
    }
}
