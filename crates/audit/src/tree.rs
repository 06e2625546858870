//! The Merkle tree over a log's records (AUD-30): RFC 6962, SHA-256.
//!
//! Everything here is arithmetic on hashes. Where hashes lie is the business of [`tile`](crate::tile); a proof asks
//! for the perfect subtrees it needs through [`Nodes`].

use portcullis_core::Sha256Digest;

/// The hash of an inner node.
pub(crate) fn node(left: &Sha256Digest, right: &Sha256Digest) -> Sha256Digest {
    let mut bytes = [1; 65];
    bytes[1..33].copy_from_slice(left.as_bytes());
    bytes[33..].copy_from_slice(right.as_bytes());
    Sha256Digest::of(&bytes)
}

/// The root of a tree without records.
pub(crate) fn empty_root() -> Sha256Digest {
    Sha256Digest::of(b"")
}

/// The root of a perfect tree over `hashes`, whose number is a power of two.
pub(crate) fn perfect(hashes: &[Sha256Digest]) -> Sha256Digest {
    match hashes {
        [] => empty_root(),
        [only] => *only,
        _ => {
            let (left, right) = hashes.split_at(hashes.len() / 2);
            node(&perfect(left), &perfect(right))
        }
    }
}

/// The root over perfect subtrees of falling size, which are what a tree of any size is made of.
pub(crate) fn root_of_frontier(frontier: &[Sha256Digest]) -> Sha256Digest {
    let mut rest = frontier.iter().rev();
    let Some(last) = rest.next() else { return empty_root() };
    rest.fold(*last, |right, left| node(left, &right))
}

/// Where a proof gets its hashes: the root of the perfect subtree number `index` over `2^level` records each.
pub(crate) trait Nodes {
    type Error;
    fn at(&mut self, level: u32, index: u64) -> Result<Sha256Digest, Self::Error>;
}

/// The hashes that show that record `index` is in the tree of `size` records, from the record upwards.
pub(crate) fn inclusion<N: Nodes>(
    nodes: &mut N,
    index: u64,
    size: u64,
) -> Result<Vec<Sha256Digest>, N::Error> {
    let mut path = Vec::new();
    let (mut low, mut high) = (0, size);
    // From the root down; the proof is read the other way.
    while high - low > 1 {
        let middle = low + split(high - low);
        if index < middle {
            path.push(range(nodes, middle, high)?);
            high = middle;
        } else {
            path.push(range(nodes, low, middle)?);
            low = middle;
        }
    }
    path.reverse();
    Ok(path)
}

/// The hashes that show that the tree of `old` records is the beginning of that of `size`; none if either is all
/// of the other or nothing.
pub(crate) fn consistency<N: Nodes>(
    nodes: &mut N,
    old: u64,
    size: u64,
) -> Result<Vec<Sha256Digest>, N::Error> {
    let mut path = Vec::new();
    if old == 0 || old >= size {
        return Ok(path);
    }
    let (mut low, mut high) = (0, size);
    // Whether the subtree at hand is one that the verifier knows as the old root.
    let mut known = true;
    while old != high {
        let middle = low + split(high - low);
        if old <= middle {
            path.push(range(nodes, middle, high)?);
            high = middle;
        } else {
            path.push(range(nodes, low, middle)?);
            (low, known) = (middle, false);
        }
    }
    if !known {
        path.push(range(nodes, low, high)?);
    }
    path.reverse();
    Ok(path)
}

/// The root over the records from `low` to `high`, where `low` is where a subtree can begin.
fn range<N: Nodes>(nodes: &mut N, low: u64, high: u64) -> Result<Sha256Digest, N::Error> {
    let count = high - low;
    if count.is_power_of_two() {
        return nodes.at(count.trailing_zeros(), low / count);
    }
    let middle = low + split(count);
    let left = range(nodes, low, middle)?;
    Ok(node(&left, &range(nodes, middle, high)?))
}

/// The largest power of two below `count`, which is at least two.
fn split(count: u64) -> u64 {
    1 << (63 - (count - 1).leading_zeros())
}

/// Whether `path` shows that `leaf` is record `index` of the tree of `size` records with this `root`.
pub fn verify_inclusion(
    leaf: &Sha256Digest,
    index: u64,
    size: u64,
    path: &[Sha256Digest],
    root: &Sha256Digest,
) -> bool {
    if index >= size {
        return false;
    }
    let (mut at, mut last, mut hash) = (index, size - 1, *leaf);
    for other in path {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            hash = node(other, &hash);
            while at & 1 == 0 && at != 0 {
                (at, last) = (at >> 1, last >> 1);
            }
        } else {
            hash = node(&hash, other);
        }
        (at, last) = (at >> 1, last >> 1);
    }
    last == 0 && hash == *root
}

/// Whether `path` shows that the tree of `old` records with `old_root` is the beginning of that of `size` with `root`.
pub fn verify_consistency(
    old: u64,
    old_root: &Sha256Digest,
    size: u64,
    root: &Sha256Digest,
    path: &[Sha256Digest],
) -> bool {
    if old == size {
        return path.is_empty() && old_root == root;
    }
    if old == 0 || old > size {
        return old == 0 && path.is_empty();
    }
    let mut rest = path.iter();
    let first = if old.is_power_of_two() { Some(old_root) } else { rest.next() };
    let Some(first) = first else { return false };
    let (mut at, mut last) = (old - 1, size - 1);
    while at & 1 == 1 {
        (at, last) = (at >> 1, last >> 1);
    }
    let (mut before, mut now) = (*first, *first);
    for other in rest {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            (before, now) = (node(other, &before), node(other, &now));
            while at & 1 == 0 && at != 0 {
                (at, last) = (at >> 1, last >> 1);
            }
        } else {
            now = node(&now, other);
        }
        (at, last) = (at >> 1, last >> 1);
    }
    last == 0 && before == *old_root && now == *root
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    struct Leaves(Vec<Sha256Digest>);

    impl Nodes for Leaves {
        type Error = Infallible;
        fn at(&mut self, level: u32, index: u64) -> Result<Sha256Digest, Infallible> {
            let count = 1usize << level;
            Ok(perfect(&self.0[index as usize * count..(index as usize + 1) * count]))
        }
    }

    /// The definition of RFC 6962, word for word.
    fn defined(leaves: &[Sha256Digest]) -> Sha256Digest {
        match leaves.len() {
            0 => empty_root(),
            1 => leaves[0],
            n => {
                let (left, right) = leaves.split_at(split(n as u64) as usize);
                node(&defined(left), &defined(right))
            }
        }
    }

    fn leaves(count: u64) -> Leaves {
        Leaves((0..count).map(|n| Sha256Digest::of_parts(&[&[0], &n.to_be_bytes()])).collect())
    }

    #[test]
    fn the_published_vectors_hold() {
        // AUD-30: the vectors of RFC 6962's reference implementation, roots of the first 0 to 8 of these records.
        let records: [&[u8]; 8] = [
            b"",
            b"\x00",
            b"\x10",
            b"\x20\x21",
            b"\x30\x31",
            b"\x40\x41\x42\x43",
            b"\x50\x51\x52\x53\x54\x55\x56\x57",
            b"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f",
        ];
        let roots = [
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
            "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
            "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
            "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
            "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
        ];
        let hashes: Vec<_> = records.iter().map(|record| Sha256Digest::of_parts(&[&[0], record])).collect();
        for (count, root) in roots.iter().enumerate() {
            assert_eq!(defined(&hashes[..count]).to_string(), *root, "{count}");
        }
    }

    #[test]
    fn every_record_of_every_size_can_be_shown_and_nothing_else_can() {
        // AUD-30
        for size in 1..=40u64 {
            let mut nodes = leaves(size);
            let root = defined(&nodes.0);
            for index in 0..size {
                let path = inclusion(&mut nodes, index, size).unwrap();
                let leaf = nodes.0[index as usize];
                assert!(verify_inclusion(&leaf, index, size, &path, &root), "{index} of {size}");
                assert!(!verify_inclusion(&Sha256Digest::ZERO, index, size, &path, &root));
                assert!(!verify_inclusion(&leaf, (index + 1) % size, size, &path, &root) || size == 1);
                assert!(!verify_inclusion(&leaf, size, size, &path, &root));
                let longer = [&path[..], &[Sha256Digest::ZERO]].concat();
                assert!(!verify_inclusion(&leaf, index, size, &longer, &root));
            }
        }
    }

    #[test]
    fn every_beginning_of_every_size_can_be_shown_and_nothing_else_can() {
        // AUD-5
        for size in 1..=40u64 {
            let mut nodes = leaves(size);
            let root = defined(&nodes.0);
            for old in 0..=size {
                let path = consistency(&mut nodes, old, size).unwrap();
                let old_root = defined(&nodes.0[..old as usize]);
                assert!(verify_consistency(old, &old_root, size, &root, &path), "{old} of {size}");
                if old > 0 {
                    assert!(!verify_consistency(old, &Sha256Digest::ZERO, size, &root, &path));
                    assert!(!verify_consistency(old, &old_root, size, &Sha256Digest::ZERO, &path));
                }
            }
            assert!(!verify_consistency(size + 1, &root, size, &root, &[]));
        }
    }
}
