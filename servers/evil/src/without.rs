//! A machine that lacks something: a filter refuses it, and another program runs behind that filter.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Becomes the program, or says why not.
pub(crate) fn run(facility: &str, program: &str, arguments: &[&str]) -> io::Error {
    let (first, last, errno): (libc::c_long, libc::c_long, i32) = match facility {
        "unshare" => (libc::SYS_unshare, libc::SYS_unshare, libc::EPERM),
        "mount" => (libc::SYS_mount, libc::SYS_mount, libc::EPERM),
        "pivot_root" => (libc::SYS_pivot_root, libc::SYS_pivot_root, libc::EPERM),
        "landlock" => (libc::SYS_landlock_create_ruleset, libc::SYS_landlock_restrict_self, libc::ENOSYS),
        "inotify" => (libc::SYS_inotify_init1, libc::SYS_inotify_init1, libc::EMFILE),
        "notify" => (libc::SYS_seccomp, libc::SYS_seccomp, libc::EINVAL),
        _ => return io::Error::other("no such facility"),
    };
    match filter(facility, first, last, errno) {
        Ok(()) => Command::new(program).args(arguments).exec(),
        Err(error) => error,
    }
}

#[allow(unsafe_code)]
fn filter(facility: &str, first: libc::c_long, last: libc::c_long, errno: i32) -> io::Result<()> {
    let number = |call: libc::c_long| u32::try_from(call).unwrap_or(u32::MAX);
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let refuse = 0x0005_0000 | u32::try_from(errno).unwrap_or(1);
    let allow = 0x7fff_0000;
    // seccomp itself is only refused where it is asked for a listener: the flag is its second argument.
    let flag = if facility == "notify" {
        [step(0x20, 0, 0, 24), step(0x45, 0, 1, 8)]
    } else {
        [step(0x20, 0, 0, 0), step(0x35, 0, 1, 0)]
    };
    let program = [
        step(0x20, 0, 0, 0),
        step(0x35, 0, 4, number(first)),
        step(0x25, 3, 0, number(last)),
        flag[0],
        flag[1],
        step(0x06, 0, 0, refuse),
        step(0x06, 0, 0, allow),
    ];
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap_or_default(),
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: numbers, and a program that the kernel copies before it returns.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    if set { Ok(()) } else { Err(io::Error::last_os_error()) }
}
