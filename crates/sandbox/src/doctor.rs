//! What this machine can do, and what to change if it cannot (SBX-70, SBX-72).

use std::process::Stdio;

use serde::Serialize;

use crate::launch::{LaunchError, Launcher, WAIVABLE};
use crate::own_user;
use crate::profile::Profile;
use crate::rules;

/// One facility.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Facility {
    /// Its name in errors and waivers.
    pub name: &'static str,
    /// Whether it is there.
    pub status: Status,
    /// What was found.
    pub detail: String,
    /// What to do, if it is missing.
    pub fix: Option<&'static str>,
    /// Whether an operator may have a server started without it.
    pub waivable: bool,
}

/// Whether a facility is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It is.
    Ok,
    /// It is not, and something weaker takes its place.
    Degraded,
    /// It is not, and programs cannot be confined without it.
    Missing,
    /// Something before it is missing, so it could not be tried.
    Unknown,
}

/// What came out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// The operating system.
    pub platform: &'static str,
    /// What confines programs here.
    pub backend: &'static str,
    /// `enforceable`, `degraded` or `blocked`.
    pub verdict: &'static str,
    /// Whether programs have user ids of their own: `dedicated-uid` or `same-uid`.
    pub separation: &'static str,
    /// All facilities, in the order they are put in place.
    pub facilities: Vec<Facility>,
}

const USERNS: &str = "allow user namespaces: sysctl kernel.unprivileged_userns_clone=1, \
user.max_user_namespaces above 0, kernel.apparmor_restrict_unprivileged_userns=0; in a container, a seccomp profile \
that allows unshare and mount";
const NAMESPACES: &str = "a kernel with namespaces; in a container, flags that allow them";
const VIEW: &str = "what was found says which path cannot be shown";
const PROC: &str = "in a container, unmask the system paths below /proc";
const LANDLOCK: &str = "kernel 6.2 or newer, started with landlock among lsm=";
const SECCOMP: &str = "a kernel with CONFIG_SECCOMP_FILTER";
const NOTIFY: &str =
    "kernel 5.5 or newer; in a container, a seccomp profile that allows seccomp with a listener";
const OWN_USER: &str = "needed in mode enterprise only: run the gateway as root, on a file system with mounts that \
translate user ids (ext4, xfs, btrfs, tmpfs)";
const BAIT: &str = "raise fs.inotify.max_user_instances and max_user_watches";

/// The facilities that a launch goes through, in order, and what to do about each.
const ORDER: [(&str, &str); 11] = [
    ("userns", USERNS),
    ("mountns", NAMESPACES),
    ("pidns", NAMESPACES),
    ("netns", NAMESPACES),
    ("view", VIEW),
    ("proc", PROC),
    ("bait", BAIT),
    ("capabilities", NAMESPACES),
    ("landlock", LANDLOCK),
    ("seccomp_notify", NOTIFY),
    ("seccomp", SECCOMP),
];

/// What to do where a facility is missing.
pub fn advice(facility: &str) -> Option<&'static str> {
    if facility == own_user::FACILITY {
        return Some(OWN_USER);
    }
    ORDER.iter().find(|(name, _)| *name == facility).map(|(_, fix)| *fix)
}

/// Confines this very program, which then says its version to nobody, and tells how far that came.
pub fn examine(launcher: &Launcher, program: &std::path::Path) -> Diagnosis {
    let profile = Profile::bare(program, vec!["--version".into()]);
    let tried = launcher.launch(&profile, Stdio::null(), Stdio::null(), Stdio::null());
    let mut facilities: Vec<Facility> = Vec::new();
    let failed = match &tried {
        Ok(_) => None,
        Err(LaunchError::Facility { facility, detail }) => Some((facility.as_str(), detail.clone())),
        Err(LaunchError::Io(error)) => Some(("launcher", error.to_string())),
    };
    let position = failed.as_ref().map(|(facility, _)| ORDER.iter().position(|(name, _)| name == facility));
    for (index, (name, fix)) in ORDER.into_iter().enumerate() {
        let (status, detail) = match (&failed, position) {
            (None, _) => (Status::Ok, String::new()),
            (Some((_, said)), Some(Some(at))) if at == index => (Status::Missing, said.clone()),
            (Some(_), Some(Some(at))) if at > index => (Status::Ok, String::new()),
            (Some((facility, said)), Some(None)) => (Status::Unknown, format!("{facility}: {said}")),
            _ => (Status::Unknown, "not tried".into()),
        };
        let detail = if name == "landlock" && detail.is_empty() {
            format!("ABI {}", rules::kernel_abi())
        } else {
            detail
        };
        let fix = (status == Status::Missing).then_some(fix);
        let waivable = WAIVABLE.contains(&name);
        facilities.push(Facility { name, status, detail, fix, waivable });
    }
    let cgroup = tried.as_ref().map_or("unknown", |caged| caged.cgroup.version);
    facilities.push(Facility {
        name: "cgroup",
        status: match cgroup {
            "v1" | "v2" => Status::Ok,
            "none" => Status::Degraded,
            _ => Status::Unknown,
        },
        detail: cgroup.into(),
        fix: (cgroup == "none")
            .then_some("delegate memory and pids: systemd-run --user --scope -p Delegate=yes"),
        waivable: false,
    });
    let has = |status| facilities.iter().any(|facility| facility.status == status);
    let verdict = match (has(Status::Missing) || has(Status::Unknown), has(Status::Degraded)) {
        (true, _) => "blocked",
        (false, true) => "degraded",
        (false, false) => "enforceable",
    };
    // Recorded, and no part of the verdict: what confines a program does not rest on it (SBX-70).
    let separate = tried.as_ref().is_ok_and(|caged| caged.layers.uid_separation);
    facilities.push(Facility {
        name: own_user::FACILITY,
        status: match &tried {
            Ok(_) if separate => Status::Ok,
            Ok(_) => Status::Degraded,
            Err(_) => Status::Unknown,
        },
        detail: match &tried {
            Ok(_) if separate => "a user id for each server".into(),
            Ok(_) => "servers have the gateway's user id, in namespaces of their own".into(),
            Err(_) => "not tried".into(),
        },
        fix: (tried.is_ok() && !separate).then_some(OWN_USER),
        waivable: false,
    });
    if let Ok(mut caged) = tried {
        let _ = caged.child.wait();
    }
    let separation = if separate { "dedicated-uid" } else { "same-uid" };
    let backend = "namespaces, landlock, seccomp";
    Diagnosis { platform: std::env::consts::OS, backend, verdict, separation, facilities }
}
