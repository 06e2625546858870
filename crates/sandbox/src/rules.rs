//! Landlock: which files may be read, written and executed (SBX-33).
//!
//! The view decides what exists; these rules decide what may be done with it, a second time and by another part of the
//! kernel. Only the program, its interpreter, the loader and declared programs may be executed.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, NetPort, PathBeneath,
    PathFd, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, Scope,
};

use crate::bait::Bait;
use crate::broker::{FOLDER, names};
use crate::doors;
use crate::profile::{Access, Profile};
use crate::stage::{Failure, Within as _};

/// Kernel 6.2. Less is not enough.
const NEEDED: i32 = 3;

/// Puts the rules in force; gives the ABI of the kernel.
pub(crate) fn enforce(profile: &Profile, baits: &[Bait]) -> Result<i32, Failure> {
    let abi = kernel_abi();
    if abi < NEEDED {
        return Err(Failure::new("landlock", format!("ABI {NEEDED} is needed, the kernel has {abi}")));
    }
    let known = ABI::V3;
    let read = AccessFs::from_read(known) & !BitFlags::from(AccessFs::Execute);
    let write = AccessFs::from_all(known)
        & !BitFlags::from(AccessFs::Execute)
        & !BitFlags::from(AccessFs::MakeChar)
        & !BitFlags::from(AccessFs::MakeBlock);

    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(known))
        .within("landlock", "file rights")?;
    rules = rules.set_compatibility(CompatLevel::BestEffort);
    // What newer kernels add is taken where it is there: no TCP but what is allowed, no devices, no foreign sockets.
    rules = rules.handle_access(AccessFs::IoctlDev).within("landlock", "devices")?;
    rules = rules.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp).within("landlock", "tcp")?;
    rules = rules.scope(Scope::AbstractUnixSocket | Scope::Signal).within("landlock", "scopes")?;
    let mut rules = rules.create().within("landlock", "ruleset")?;

    for path in ["/usr", "/lib", "/lib64", "/etc", "/proc", "/dev"] {
        rules = allow(rules, Path::new(path), read)?;
    }
    for path in ["/dev/null", "/dev/zero", "/dev/full"] {
        rules = allow(rules, Path::new(path), AccessFs::ReadFile | AccessFs::WriteFile)?;
    }
    for path in ["/tmp", "/dev/shm"] {
        rules = allow(rules, Path::new(path), write)?;
    }
    for path in &profile.artifacts {
        rules = allow(rules, path, read)?;
    }
    if names(profile).next().is_some() {
        rules = allow(rules, Path::new(FOLDER), read)?;
    }
    // What cannot be opened would not be noticed.
    for bait in baits {
        rules = allow(rules, &bait.path, AccessFs::ReadFile)?;
    }
    for scope in &profile.fs {
        let rights = match scope.access {
            Access::Ro => read,
            Access::Rw => write,
        };
        rules = allow(rules, &scope.path, rights)?;
    }
    for path in executables(profile) {
        rules = allow(rules, &path, AccessFs::Execute | AccessFs::ReadFile)?;
    }
    // Where the kernel knows ports, only those behind which there is a door.
    for (_, at) in doors::plan(profile) {
        let port = NetPort::new(at.port(), AccessNet::ConnectTcp);
        rules = rules.add_rule(port).within("landlock", format_args!("port {}", at.port()))?;
    }
    rules.restrict_self().within("landlock", "restrict")?;
    Ok(abi)
}

fn allow(
    rules: RulesetCreated,
    path: &Path,
    rights: impl Into<BitFlags<AccessFs>>,
) -> Result<RulesetCreated, Failure> {
    // Not every system has all of these folders; what is not in the view needs no rule.
    let Ok(opened) = PathFd::new(path) else { return Ok(rules) };
    let mut rights = rights.into();
    if !path.is_dir() {
        rights &= AccessFs::from_file(ABI::V3);
    }
    rules.add_rule(PathBeneath::new(opened, rights)).within("landlock", path.display())
}

/// The program, what it names in its first line, declared programs, and the loaders of all of them.
fn executables(profile: &Profile) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut open: Vec<PathBuf> = std::iter::once(&profile.command).chain(&profile.exec).cloned().collect();
    while let Some(path) = open.pop() {
        if found.contains(&path) {
            continue;
        }
        open.extend(interpreter(&path).or_else(|| loader(&path)));
        found.push(path);
    }
    found
}

/// What a script names in its first line: `#!/usr/bin/node`
pub(crate) fn shebang(path: &Path) -> Option<PathBuf> {
    let mut first = Vec::new();
    BufReader::new(File::open(path).ok()?.take(256)).read_until(b'\n', &mut first).ok()?;
    let line = String::from_utf8(first.strip_prefix(b"#!")?.to_vec()).ok()?;
    Some(PathBuf::from(line.split_whitespace().next()?))
}

fn interpreter(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(shebang(path)?).ok()
}

/// The loader that an ELF file of 64 bits names in its program headers.
fn loader(path: &Path) -> Option<PathBuf> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(64 << 10).read_to_end(&mut bytes).ok()?;
    let number = |at: usize, size: usize| -> Option<usize> {
        let bytes = bytes.get(at..at + size)?;
        Some(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
    };
    if bytes.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    (0..count).find_map(|index| {
        let header = table + index * size;
        // PT_INTERP
        (number(header, 4)? == 3).then_some(())?;
        let (offset, length) = (number(header + 8, 8)?, number(header + 32, 8)?);
        let name = bytes.get(offset..offset + length)?;
        let name = std::str::from_utf8(name).ok()?.trim_end_matches('\0');
        std::fs::canonicalize(name).ok()
    })
}

/// What this kernel has; 0 if nothing.
#[allow(unsafe_code)]
pub(crate) fn kernel_abi() -> i32 {
    const CREATE_RULESET_VERSION: libc::c_uint = 1;
    // SAFETY: with no attributes and this flag, the call only answers a number.
    let abi = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, CREATE_RULESET_VERSION)
    };
    i32::try_from(abi).unwrap_or(0).max(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_brings_its_loader_and_a_script_its_interpreter() {
        let own = std::env::current_exe().unwrap();
        let loader = loader(&own).unwrap();
        assert!(loader.file_name().unwrap().to_string_lossy().contains("ld-"), "{}", loader.display());
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        std::fs::write(&script, format!("#!{} -u\nprint()\n", own.display())).unwrap();
        assert_eq!(interpreter(&script), Some(own.canonicalize().unwrap()));
        assert_eq!(interpreter(&own), None);
        let profile = Profile::bare(&script, Vec::new());
        assert_eq!(executables(&profile), [script, own.canonicalize().unwrap(), loader]);
    }
}
