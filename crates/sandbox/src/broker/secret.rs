//! A credential's value in memory of its own.

use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap_anonymous, munmap};
use zeroize::Zeroize as _;

/// A value in pages of its own: locked, so that it is never swapped out, left out of core dumps, and wiped when dropped
/// (SBX-51). The one way to it is [`expose`](Secret::expose).
///
/// ```
/// # use portcullis_sandbox::broker::Secret;
/// let secret = Secret::take(b"hunter2".to_vec()).unwrap();
/// assert_eq!(secret.expose(), b"hunter2");
/// ```
///
/// ```compile_fail,E0277
/// # use portcullis_sandbox::broker::Secret;
/// println!("{:?}", Secret::take(b"hunter2".to_vec()).unwrap());
/// ```
///
/// ```compile_fail,E0599
/// # use portcullis_sandbox::broker::Secret;
/// let copy = Secret::take(b"hunter2".to_vec()).unwrap().clone();
/// ```
pub struct Secret {
    at: NonNull<u8>,
    length: usize,
}

impl Secret {
    /// Takes the bytes into custody, and wipes where they were.
    #[allow(unsafe_code)]
    pub fn take(mut bytes: Vec<u8>) -> io::Result<Self> {
        let length = bytes.len().max(1);
        // SAFETY: a fresh private mapping at an address of the kernel's choice touches nothing that exists.
        let mapped = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let at = mapped.map_err(io::Error::from).and_then(|at| {
            NonNull::new(at.cast::<u8>()).ok_or_else(|| io::Error::other("no memory for a secret"))
        });
        let at = at.inspect_err(|_| bytes.zeroize())?;
        // From here on dropping it unmaps.
        let secret = Self { at, length: bytes.len() };
        // SAFETY: the mapping is ours and `length` bytes long, which is at least as long as `bytes`.
        let locked = unsafe {
            let locked = mlock(at.as_ptr().cast(), length)
                .and_then(|()| madvise(at.as_ptr().cast(), length, Advice::LinuxDontDump));
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.as_ptr(), bytes.len());
            locked
        };
        bytes.zeroize();
        match locked {
            Ok(()) => Ok(secret),
            Err(error) => Err(io::Error::other(format!(
                "memory for a secret cannot be locked ({error}); raise the limit of locked memory (RLIMIT_MEMLOCK)"
            ))),
        }
    }

    /// The value, for the one place that must have it.
    #[allow(unsafe_code)]
    pub fn expose(&self) -> &[u8] {
        // SAFETY: the mapping lives as long as this does, and nobody writes to it after `take`.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.length) }
    }
}

#[allow(unsafe_code)]
// SAFETY: the memory is this value's alone, and only read once it is made.
unsafe impl Send for Secret {}
#[allow(unsafe_code)]
// SAFETY: as above; reading from several threads is fine.
unsafe impl Sync for Secret {}

impl Drop for Secret {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, writable, and used by nobody any more.
        unsafe {
            std::slice::from_raw_parts_mut(self.at.as_ptr(), self.length).zeroize();
            let _ = munmap(self.at.as_ptr().cast(), self.length.max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lies_in_locked_memory_that_no_dump_shows() {
        // SBX-51, SBX-55
        let secret = Secret::take(b"a value of some length".to_vec()).unwrap();
        let at = secret.at.as_ptr() as usize;
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = maps.lines();
        let covers = |line: &str| {
            let range = line.split_whitespace().next().and_then(|range| range.split_once('-'));
            let number = |text: &str| usize::from_str_radix(text, 16).ok();
            range.and_then(|(from, to)| Some((number(from)?..number(to)?).contains(&at))).unwrap_or(false)
        };
        lines.by_ref().find(|line| covers(line)).unwrap();
        let flags = lines.find(|line| line.starts_with("VmFlags:")).unwrap();
        assert!(flags.contains(" lo") && flags.contains(" dd"), "{flags}");
        assert_eq!(Secret::take(Vec::new()).unwrap().expose(), b"");
    }
}
