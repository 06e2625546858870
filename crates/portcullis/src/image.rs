//! The program's own code and constants in memory.
//!
//! Starting runs through much that serving never needs again: command lines, configuration, policies, schemas, tables. The
//! kernel maps the pages around each one that is touched, so an idle gateway would be charged for most of its file. They
//! are clean pages of that file; given back, the few that are needed come again from the page cache.

use std::fs;

use rustix::mm::{Advice, madvise};

/// A stretch of memory that shows a file.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    start: usize,
    end: usize,
}

/// Unmaps what of the program's file is mapped and unchanged. Best effort: where the kernel does not say what is
/// mapped, everything stays.
pub(crate) fn give_back() {
    let Ok(program) = std::env::current_exe() else { return };
    let Ok(listed) = fs::read_to_string("/proc/self/smaps") else { return };
    for mapping in clean(&listed, &program.to_string_lossy()) {
        unmap(&mapping);
    }
}

#[allow(unsafe_code)]
fn unmap(mapping: &Mapping) {
    let (start, length) = (mapping.start as *mut std::ffi::c_void, mapping.end - mapping.start);
    // SAFETY: the mapping shows a file, cannot be written to, and has no page of its own (see `clean`), so every page that is
    // dropped comes back from the file with the same bytes when it is touched.
    let _ = unsafe { madvise(start, length, Advice::LinuxDontNeed) };
}

/// The mappings of `file` that cannot be written to and of which no page was ever changed. Pages that the loader wrote
/// addresses into are read-only as well, but they are no longer the file's: `Anonymous` counts them.
fn clean(smaps: &str, file: &str) -> Vec<Mapping> {
    let mut found = Vec::new();
    let mut candidate = None;
    for line in smaps.lines() {
        if let Some(mapping) = header(line, file) {
            candidate = mapping;
        } else if let Some(count) = line.strip_prefix("Anonymous:")
            && let Some(mapping) = candidate.take()
            && count.trim() == "0 kB"
        {
            found.push(mapping);
        }
    }
    found
}

/// `None` for a line that begins no mapping; `Some(None)` for one of another file, or one that can be written to.
fn header(line: &str, file: &str) -> Option<Option<Mapping>> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let mapping = Mapping { start: address(start)?, end: address(end)? };
    let unchangeable = rest.starts_with("r--p") || rest.starts_with("r-xp");
    // Address, rights, offset, device, inode, and the rest is the path.
    let path = rest.splitn(5, ' ').nth(4).unwrap_or_default().trim_start();
    Some((unchangeable && path == file).then_some(mapping))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
1000-3000 r--p 00000000 fe:00 77 /opt/a b/portcullis
Rss:                   8 kB
Anonymous:             0 kB
3000-5000 r-xp 00002000 fe:00 77 /opt/a b/portcullis
Anonymous:             0 kB
5000-6000 r--p 00004000 fe:00 77 /opt/a b/portcullis
Anonymous:             4 kB
6000-7000 rw-p 00005000 fe:00 77 /opt/a b/portcullis
Anonymous:             0 kB
7000-8000 r-xp 00000000 fe:00 78 /usr/lib/libc.so.6
Anonymous:             0 kB
8000-9000 rw-p 00000000 00:00 0 
Anonymous:             0 kB
";

    #[test]
    fn only_pages_that_are_still_the_files_are_given_back() {
        let found = clean(SMAPS, "/opt/a b/portcullis");
        assert_eq!(
            found,
            [Mapping { start: 0x1000, end: 0x3000 }, Mapping { start: 0x3000, end: 0x5000 }],
            "not what was relocated, can be written to or belongs to others"
        );
        assert!(
            clean(SMAPS, "/opt/other").is_empty() && clean("nonsense - 1\nAnonymous: 0 kB", "").is_empty()
        );
    }

    #[test]
    fn a_program_that_gave_its_image_back_goes_on() {
        let file_pages = || -> u64 {
            let status = fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        // Whatever was mapped so far of a program that is many megabytes long.
        let before = file_pages();
        give_back();
        assert!(file_pages() < before, "{before} kB were mapped");
        assert_eq!(clean(SMAPS, "/usr/lib/libc.so.6").len(), 1);
    }
}
