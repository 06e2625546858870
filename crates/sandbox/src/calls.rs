//! Seccomp: which system calls are answered (SBX-34).
//!
//! An allow-list for the C libraries and the runtimes of Node, Python, Go and the JVM. What is not on it does not exist
//! (ENOSYS), so that libraries fall back; what is dangerous is refused (EPERM). Filters stack, and the strictest answer
//! counts, so each of them says one thing.

use std::collections::BTreeMap;

use libc::c_long;
#[cfg(target_arch = "x86_64")]
use seccompiler::sock_filter;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

use crate::notify;
use crate::stage::{Failure, Within as _};

/// The name of this filter in records.
pub(crate) const NAME: &str = "pcl-1";

type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

/// Puts all filters in force. What `asks` is about is left to the filter that asks, because a refusal would come first.
pub(crate) fn filter(asks: bool) -> Result<(), Failure> {
    let errno = |code: i32| SeccompAction::Errno(u32::try_from(code).unwrap_or(1));
    #[cfg(target_arch = "x86_64")]
    apply_filter(&without_x32()).within("seccomp", "x32")?;
    // The allow-list goes last: applying a filter must itself still be possible.
    apply(refused(asks)?, errno(libc::EPERM), SeccompAction::Allow)?;
    apply(unsupported_families()?, errno(libc::EAFNOSUPPORT), SeccompAction::Allow)?;
    let answered: Rules = ANSWERED.iter().chain(&REFUSED).map(|call| (*call, Vec::new())).collect();
    apply(answered, SeccompAction::Allow, errno(libc::ENOSYS))
}

fn apply(rules: Rules, matched: SeccompAction, otherwise: SeccompAction) -> Result<(), Failure> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).within("seccomp", "architecture")?;
    let filter = SeccompFilter::new(rules, otherwise, matched, arch).within("seccomp", "rules")?;
    let program: BpfProgram = filter.try_into().within("seccomp", "program")?;
    apply_filter(&program).within("seccomp", "filter")
}

/// Calls of the second manner that this architecture knows have numbers of their own, which no rule would match: whoever
/// makes one is ended, like a program of another architecture.
#[cfg(target_arch = "x86_64")]
fn without_x32() -> BpfProgram {
    const X32: u32 = 0x4000_0000;
    const KILL: u32 = 0x8000_0000;
    const ALLOW: u32 = 0x7fff_0000;
    let statement = |code, k| sock_filter { code, jt: 0, jf: 0, k };
    // Load the number; if the bit is in it, go on to the next line, else skip that.
    vec![
        statement(0x20, 0),
        sock_filter { code: 0x45, jt: 0, jf: 1, k: X32 },
        statement(0x06, KILL),
        statement(0x06, ALLOW),
    ]
}

/// What is always refused, and what is refused with certain arguments.
fn refused(asks: bool) -> Result<Rules, Failure> {
    let left = |call: &&c_long| !asks || !notify::ASKED.contains(call);
    let mut rules: Rules = REFUSED.iter().filter(left).map(|call| (*call, Vec::new())).collect();
    let namespaces = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    let clones = namespaces.map(|flag| {
        let flag = u64::try_from(flag).unwrap_or_default();
        rule(vec![condition(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag)?])
    });
    rules.insert(libc::SYS_clone, clones.into_iter().collect::<Result<_, _>>()?);
    // Typing into somebody's terminal.
    let terminals = [libc::TIOCSTI, libc::TIOCLINUX]
        .map(|request| rule(vec![condition(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, request)?]));
    rules.insert(libc::SYS_ioctl, terminals.into_iter().collect::<Result<_, _>>()?);
    // Asking is allowed, changing is not.
    let query = 0xffff_ffff;
    rules.insert(
        libc::SYS_personality,
        vec![rule(vec![
            condition(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, query)?,
            condition(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0)?,
        ])?],
    );
    // Any family but these four, and anything but streams and datagrams.
    let asked = notify::FAMILIES.into_iter().filter(|_| asks);
    let known = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK].into_iter().chain(asked);
    let others = known.map(|family| condition(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, number(family)));
    let mut sockets = vec![rule(others.collect::<Result<_, _>>()?)?];
    for kind in [libc::SOCK_RAW, libc::SOCK_RDM] {
        let masked = SeccompCmpOp::MaskedEq(0xf);
        let mut conditions = vec![condition(1, SeccompCmpArgLen::Dword, masked, number(kind))?];
        if asks && kind == libc::SOCK_RAW {
            let asked = [libc::AF_INET].into_iter().chain(notify::FAMILIES);
            for family in asked {
                conditions.push(condition(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, number(family))?);
            }
        }
        sockets.push(rule(conditions)?);
    }
    rules.insert(libc::SYS_socket, sockets);
    for (call, refused) in borrowed_rights()? {
        rules.insert(call, refused);
    }
    Ok(rules)
}

/// Files that take on the rights of their owner, which is us, when somebody else on the machine starts them. The mounts of the
/// view do not heed such bits; the host's do. (`openat2` says in memory which bits it wants, so it does not exist.)
fn borrowed_rights() -> Result<Rules, Failure> {
    let bit = |argument, bit: u32| {
        let bit = u64::from(bit);
        condition(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bit), bit)
    };
    let mut rules = Rules::new();
    for (call, mode) in [
        (libc::SYS_chmod, 1),
        (libc::SYS_fchmod, 1),
        (libc::SYS_fchmodat, 2),
        (libc::SYS_creat, 1),
        (libc::SYS_mknod, 1),
        (libc::SYS_mknodat, 2),
    ] {
        let refused = [libc::S_ISUID, libc::S_ISGID].map(|right| rule(vec![bit(mode, right)?]));
        rules.insert(call, refused.into_iter().collect::<Result<_, _>>()?);
    }
    // Without one of these two the mode is not looked at, and may be anything.
    const NAMELESS: u32 = 0o20_000_000;
    let creating = [libc::O_CREAT as u32, NAMELESS];
    for (call, flags, mode) in [(libc::SYS_open, 1, 2), (libc::SYS_openat, 2, 3)] {
        let mut refused = Vec::new();
        for right in [libc::S_ISUID, libc::S_ISGID] {
            for flag in creating {
                refused.push(rule(vec![bit(flags, flag)?, bit(mode, right)?])?);
            }
        }
        rules.insert(call, refused);
    }
    Ok(rules)
}

/// Families that runtimes ask for out of habit: they are told that there is no such thing.
fn unsupported_families() -> Result<Rules, Failure> {
    let families = [libc::AF_INET6, libc::AF_NETLINK]
        .map(|family| rule(vec![condition(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, number(family))?]));
    Ok(Rules::from([(libc::SYS_socket, families.into_iter().collect::<Result<_, _>>()?)]))
}

fn number(value: i32) -> u64 {
    u64::try_from(value).unwrap_or_default()
}

fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, Failure> {
    SeccompRule::new(conditions).within("seccomp", "rule")
}

fn condition(
    argument: u8,
    width: SeccompCmpArgLen,
    op: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, Failure> {
    SeccompCondition::new(argument, width, op, value).within("seccomp", "condition")
}

/// Refused whatever the arguments.
const REFUSED: [c_long; 44] = [
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_pidfd_getfd,
];

/// What programs need. `clone3` and `io_uring_*` are not among it: their arguments cannot be looked at, and libraries
/// fall back when there is no such call.
const ANSWERED: &[c_long] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_access,
    libc::SYS_alarm,
    libc::SYS_arch_prctl,
    libc::SYS_bind,
    libc::SYS_brk,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_chdir,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_connect,
    libc::SYS_copy_file_range,
    libc::SYS_creat,
    libc::SYS_dup,
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_epoll_create,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_eventfd2,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fchdir,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_fgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_flock,
    libc::SYS_fork,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_futimesat,
    libc::SYS_get_mempolicy,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getcwd,
    libc::SYS_getdents,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getitimer,
    libc::SYS_getpeername,
    libc::SYS_getpgid,
    libc::SYS_getpgrp,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpriority,
    libc::SYS_getrandom,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrlimit,
    libc::SYS_getrusage,
    libc::SYS_getsid,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_getxattr,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_ioctl,
    libc::SYS_ioprio_get,
    libc::SYS_kill,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_restrict_self,
    libc::SYS_lchown,
    libc::SYS_lgetxattr,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_listen,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_lseek,
    libc::SYS_lstat,
    libc::SYS_madvise,
    libc::SYS_mbind,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_mincore,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_mknod,
    libc::SYS_mknodat,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_pause,
    libc::SYS_personality,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_pipe,
    libc::SYS_pipe2,
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
    libc::SYS_pkey_mprotect,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_prctl,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_prlimit64,
    libc::SYS_pselect6,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readahead,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_restart_syscall,
    libc::SYS_rmdir,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getattr,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_yield,
    libc::SYS_seccomp,
    libc::SYS_select,
    libc::SYS_sendfile,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_set_mempolicy,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_setfsgid,
    libc::SYS_setfsuid,
    libc::SYS_setgid,
    libc::SYS_setgroups,
    libc::SYS_setitimer,
    libc::SYS_setpgid,
    libc::SYS_setpriority,
    libc::SYS_setregid,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_setreuid,
    libc::SYS_setrlimit,
    libc::SYS_setsid,
    libc::SYS_setsockopt,
    libc::SYS_setuid,
    libc::SYS_setxattr,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_shmget,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_signalfd,
    libc::SYS_signalfd4,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_splice,
    libc::SYS_stat,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_symlink,
    libc::SYS_symlinkat,
    libc::SYS_sync,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_sysinfo,
    libc::SYS_tee,
    libc::SYS_tgkill,
    libc::SYS_time,
    libc::SYS_timer_create,
    libc::SYS_timer_delete,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_gettime,
    libc::SYS_timer_settime,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    libc::SYS_times,
    libc::SYS_tkill,
    libc::SYS_truncate,
    libc::SYS_umask,
    libc::SYS_uname,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_utime,
    libc::SYS_utimensat,
    libc::SYS_utimes,
    libc::SYS_vfork,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_write,
    libc::SYS_writev,
];
