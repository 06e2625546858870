//! A program that tries what no confined program may do (the fixture of the sandbox's test matrix).
//!
//! `evil ACT [ARGUMENT]…` tries the act and prints one line of JSON: whether it worked, the error's number if not, and
//! what it saw. `evil serve` is an MCP server whose tools do the same on demand. It shares no code with the sandbox.
#![allow(clippy::print_stdout, reason = "this is what it is for")]

mod https;
mod serve;
mod without;

use std::fs;
use std::io::{self, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::Command;
use std::time::Duration;

use serde_json::json;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if arguments == ["serve"] {
        return serve::run();
    }
    println!("{}", told(&arguments));
}

/// What came of an act.
fn told(arguments: &[&str]) -> serde_json::Value {
    match attempt(arguments) {
        Ok(seen) => json!({"act": arguments.first(), "worked": true, "seen": seen}),
        Err(error) => {
            json!({"act": arguments.first(), "worked": false, "errno": error.raw_os_error(), "said": error.to_string()})
        }
    }
}

fn attempt(arguments: &[&str]) -> io::Result<String> {
    match arguments {
        ["read", path] => fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        ["list", path] => {
            let names =
                fs::read_dir(path)?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
            Ok(names.collect::<Vec<_>>().join(" "))
        }
        ["write", path] => fs::write(path, "evil").map(|()| String::new()),
        ["truncate", path] => {
            fs::File::options().write(true).truncate(true).open(path).map(|_| String::new())
        }
        ["link", from, to] => fs::hard_link(from, to).map(|()| String::new()),
        ["symlink", from, to] => std::os::unix::fs::symlink(from, to).map(|()| String::new()),
        ["remove", path] => fs::remove_file(path).map(|()| String::new()),
        ["mknod", path] => {
            let path = std::ffi::CString::new(*path).map_err(io::Error::other)?;
            let mode = i64::from(libc::S_IFIFO | 0o600);
            raw(libc::SYS_mknodat, [i64::from(libc::AT_FDCWD), path.as_ptr() as i64, mode])
        }
        ["rename", from, to] => fs::rename(from, to).map(|()| String::new()),
        ["borrow", path] => borrow_rights(path),
        ["chmod", path] => {
            let everything = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            fs::set_permissions(path, everything).map(|()| String::new())
        }
        ["tcp", address] => {
            let address = address.to_socket_addrs()?.next().ok_or_else(|| io::Error::other("no address"))?;
            TcpStream::connect_timeout(&address, Duration::from_secs(2)).map(|_| String::new())
        }
        ["udp", address] => UdpSocket::bind("0.0.0.0:0")?.send_to(b"evil", address).map(|_| String::new()),
        ["abstract", name] => {
            UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?).map(|_| String::new())
        }
        ["resolve", name] => Ok(format!("{:?}", (*name, 80).to_socket_addrs()?.collect::<Vec<_>>())),
        ["run", program, rest @ ..] => {
            let output = Command::new(program).args(rest).output()?;
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        ["environment"] => {
            Ok(std::env::vars().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("\n"))
        }
        ["descriptors"] => {
            let names = fs::read_dir("/proc/self/fd")?.flatten().map(|entry| entry.file_name());
            let mut numbers: Vec<u32> = names.filter_map(|name| name.to_str()?.parse().ok()).collect();
            numbers.sort_unstable();
            // The last one is the folder itself.
            numbers.pop();
            Ok(format!("{numbers:?}"))
        }
        ["without", facility, program, rest @ ..] => Err(without::run(facility, program, rest)),
        ["https", address, path, headers @ ..] => https::get(address, path, headers),
        ["http", address, path, headers @ ..] => https::get_in_the_clear(address, path, headers),
        ["everything"] => Ok(everything()),
        ["say", text] => Ok((*text).to_owned()),
        ["variable", name] => std::env::var(name).map_err(io::Error::other),
        // Turned round, so that nobody who looks for it finds it.
        ["reversed", "file", path] => fs::read_to_string(path).map(|text| text.chars().rev().collect()),
        ["reversed", "variable", name] => {
            std::env::var(name).map(|text| text.chars().rev().collect()).map_err(io::Error::other)
        }
        ["stderr", "file", path] => {
            let text = fs::read_to_string(path)?;
            writeln!(io::stderr(), "its key is {text}").map(|()| String::new())
        }
        ["stderr", text] => writeln!(io::stderr(), "{text}").map(|()| String::new()),
        ["call", name] => call(name),
        ["socket", family, kind] => {
            let number = |text: &str| text.parse::<i32>().map_err(io::Error::other);
            socket(number(family)?, number(kind)?)
        }
        ["kill", pid] => {
            let pid = pid.parse::<i32>().map_err(io::Error::other)?;
            raw(libc::SYS_kill, [pid.into(), 9, 0])
        }
        ["icmp"] => socket_of(libc::AF_INET, libc::SOCK_DGRAM, 1),
        ["race", folder, outside, rounds] => race(folder, outside, rounds.parse().map_err(io::Error::other)?),
        ["shout", lines] => shout(lines.parse().map_err(io::Error::other)?),
        ["deaf"] => serve::be_deaf(),
        ["later", milliseconds, rest @ ..] => {
            let pause = Duration::from_millis(milliseconds.parse().map_err(io::Error::other)?);
            let act: Vec<String> = rest.iter().map(|word| (*word).to_owned()).collect();
            std::thread::spawn(move || {
                std::thread::sleep(pause);
                let _ = attempt(&act.iter().map(String::as_str).collect::<Vec<_>>());
            });
            Ok(String::new())
        }
        ["forks", most] => fork_many(most.parse().map_err(io::Error::other)?),
        ["allocate", mebibytes] => {
            allocate(mebibytes.parse().map_err(io::Error::other)?).map(|kept| kept.len().to_string())
        }
        ["hoard", mebibytes] => hoard(mebibytes.parse().map_err(io::Error::other)?),
        ["fill", path] => fill(path),
        ["linger", marker] => linger(marker),
        _ => Err(io::Error::other("no such act")),
    }
}

/// All that is to be seen of processes, and of where secrets could lie.
fn everything() -> String {
    let mut seen: Vec<String> = std::env::args().collect();
    seen.extend(std::env::vars().map(|(name, value)| format!("{name}={value}")));
    let files = |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    for process in files("/proc") {
        for file in ["environ", "cmdline"] {
            let text = fs::read(process.join(file)).unwrap_or_default();
            seen.push(String::from_utf8_lossy(&text).into_owned());
        }
    }
    for folder in ["/run", "/run/secrets", "/tmp", "/tmp/home", "/dev/shm", "/etc"] {
        for path in files(folder).filter(|path| path.is_file()) {
            seen.push(path.display().to_string());
            // Files that exist to be opened are somebody else's act.
            let short = path.metadata().is_ok_and(|about| about.len() < 16 << 10);
            if short && !path.ends_with("shadow") {
                seen.push(String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).into_owned());
            }
        }
    }
    seen.join("\n")
}

fn call(name: &str) -> io::Result<String> {
    let newuser = i64::from(libc::CLONE_NEWUSER);
    match name {
        "unshare" => raw(libc::SYS_unshare, [newuser, 0, 0]),
        "clone" => raw(libc::SYS_clone, [newuser, 0, 0]),
        "clone3" => raw(libc::SYS_clone3, [0, 0, 0]),
        "mount" => raw(libc::SYS_mount, [0, 0, 0]),
        "bpf" => raw(libc::SYS_bpf, [0, 0, 0]),
        "io_uring" => raw(libc::SYS_io_uring_setup, [1, 0, 0]),
        "keyctl" => raw(libc::SYS_keyctl, [0, 0, 0]),
        "userfaultfd" => raw(libc::SYS_userfaultfd, [0, 0, 0]),
        "ptrace" => raw(libc::SYS_ptrace, [0, 0, 0]),
        "attach" => raw(libc::SYS_ptrace, [16, 1, 0]),
        "process_vm_readv" => raw(libc::SYS_process_vm_readv, [1, 0, 0]),
        "open_by_handle_at" => raw(libc::SYS_open_by_handle_at, [0, 0, 0]),
        "setns" => raw(libc::SYS_setns, [0, 0, 0]),
        "x32" => raw(libc::SYS_getpid | 0x4000_0000, [0, 0, 0]),
        _ => Err(io::Error::other("no such call")),
    }
}

#[allow(unsafe_code)]
fn raw(call: libc::c_long, arguments: [i64; 3]) -> io::Result<String> {
    // SAFETY: none of the calls made here is given an address to write to.
    let answer = unsafe { libc::syscall(call, arguments[0], arguments[1], arguments[2], 0, 0, 0) };
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(answer.to_string()) }
}

fn socket(family: i32, kind: i32) -> io::Result<String> {
    socket_of(family, kind, 0)
}

#[allow(unsafe_code)]
fn socket_of(family: i32, kind: i32, protocol: i32) -> io::Result<String> {
    // SAFETY: only numbers go in and out.
    let descriptor = unsafe { libc::socket(family, kind, protocol) };
    if descriptor == -1 { Err(io::Error::last_os_error()) } else { Ok(String::new()) }
}

/// A folder is a link out, then a folder again, over and over, while somebody reads in it; says what was read of each kind.
fn race(folder: &str, outside: &str, rounds: usize) -> io::Result<String> {
    let place = |name: &str| std::path::Path::new(folder).join(name);
    let (here, there, aside) = (place("here"), place("there"), place("aside"));
    fs::create_dir_all(&here)?;
    fs::write(here.join("note"), "inside")?;
    let _ = fs::remove_file(&there);
    std::os::unix::fs::symlink(outside, &there)?;
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (mut inside, mut escaped) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Acquire) {
                for (from, to) in [(&here, &aside), (&there, &here), (&here, &there), (&aside, &here)] {
                    let _ = fs::rename(from, to);
                }
            }
        });
        for _ in 0..rounds {
            match fs::read_to_string(here.join("note")) {
                Ok(text) if text == "inside" => inside += 1,
                Ok(_) => escaped += 1,
                Err(_) => {}
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Release);
    });
    Ok(format!("{inside} {escaped}"))
}

/// Says a great deal where nobody listens closely.
fn shout(lines: usize) -> io::Result<String> {
    let mut stderr = io::BufWriter::new(io::stderr());
    for number in 0..lines {
        writeln!(stderr, "line {number}: the quick brown fox jumps over the lazy dog")?;
    }
    stderr.flush().map(|()| String::new())
}

/// Starts processes until it cannot; says how many there were.
fn fork_many(most: usize) -> io::Result<String> {
    let mut children = Vec::new();
    for _ in 0..most {
        match Command::new("/proc/self/exe").args(["linger", "/nowhere"]).spawn() {
            Ok(child) => children.push(child),
            Err(_) => break,
        }
    }
    let count = children.len();
    for mut child in children {
        let _ = child.kill();
        let _ = child.wait();
    }
    Ok(count.to_string())
}

/// Touches memory until it has it all, or is stopped.
fn allocate(mebibytes: usize) -> io::Result<Vec<Vec<u8>>> {
    let mut kept = Vec::new();
    for _ in 0..mebibytes {
        let mut block = Vec::new();
        block.try_reserve_exact(1 << 20).map_err(io::Error::other)?;
        block.resize(1 << 20, 1u8);
        kept.push(block);
    }
    Ok(kept)
}

/// Makes a file that takes on its owner's rights when somebody starts it: by the way it is made, and afterwards.
fn borrow_rights(path: &str) -> io::Result<String> {
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    let made = fs::File::options().write(true).create(true).truncate(true).mode(0o4755).open(path).map(drop);
    if made.is_err() {
        fs::write(path, "evil")?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o4755))?;
    Ok(String::new())
}

/// Takes memory and never gives it back.
fn hoard(mebibytes: usize) -> io::Result<String> {
    let _kept = allocate(mebibytes)?;
    loop {
        std::thread::park();
    }
}

/// Writes until the disk is full; says how much that was.
fn fill(path: &str) -> io::Result<String> {
    let mut file = fs::File::create(path)?;
    let block = vec![1; 1 << 20];
    let mut written = 0;
    while written < 4096 && file.write_all(&block).is_ok() {
        written += 1;
    }
    Ok(written.to_string())
}

/// Leaves its parents behind and goes on, writing a mark if it can; the gateway's end must end it too.
#[allow(unsafe_code)]
fn linger(marker: &str) -> io::Result<String> {
    // SAFETY: this process has one thread.
    if unsafe { libc::fork() } == 0 {
        // SAFETY: takes and gives only numbers.
        unsafe { libc::setsid() };
        let _ = fs::write(marker, "here");
        std::thread::sleep(Duration::from_secs(600));
        std::process::exit(0);
    }
    std::thread::sleep(Duration::from_secs(600));
    Ok(String::new())
}
