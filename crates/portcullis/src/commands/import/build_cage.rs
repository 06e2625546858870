//! The cage in which packages are fetched (GOV-1402): it may write into one folder and talk to the registry, and that is all.
//!
//! npm and pip read what strangers wrote, and have run it before when told not to. So they get what a server gets: a view of
//! their own, no network but a gate toward the registry, none of our files and none of our credentials.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use portcullis_sandbox::{Access, EgressScope, FsScope, Gate, Launcher, Profile, Tls};
use url::Url;

use crate::failure::Failure;
use crate::output::visible;

/// A package that takes longer to fetch is none that anybody waits for.
const PATIENCE: Duration = Duration::from_secs(600);
/// Where the cage has the machine's certificate authorities.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// What is fetched with what, from where.
#[derive(Debug)]
pub(super) struct Build {
    /// The program, and its words.
    pub(super) command: PathBuf,
    pub(super) args: Vec<String>,
    /// What is part of the program, besides what every cage has.
    pub(super) artifacts: Vec<PathBuf>,
    pub(super) env: Vec<(&'static str, String)>,
    /// The registry, and where it keeps its files if that is elsewhere.
    pub(super) registries: Vec<Url>,
}

impl Build {
    /// Runs it to its end in its cage, with `folder` to write to.
    pub(super) fn run(self, folder: &Path, known: &BTreeMap<String, Vec<IpAddr>>) -> Result<(), Failure> {
        let what = self.command.display().to_string();
        let (profile, known) = (self.profile(folder, known)?, known.clone());
        // A thread of its own from the start to the end: a confined program dies with the thread that started it.
        let done = std::thread::spawn(move || confined(&profile, known)).join();
        let (status, said) = done.map_err(|_| Failure::unavailable("the fetching broke off"))??;
        if status.success() {
            return Ok(());
        }
        let mut lines = said
            .lines()
            .filter(|line| !line.trim().is_empty() && !line.contains("A complete log of this run"));
        let last = lines.next_back().unwrap_or("nothing was said");
        Err(Failure::field("command", format!("{} failed: {}", visible(&what), visible(last.trim()))))
    }

    fn profile(self, folder: &Path, known: &BTreeMap<String, Vec<IpAddr>>) -> Result<Profile, Failure> {
        let mut profile = Profile::bare(self.command, self.args);
        profile.cwd = folder.to_owned();
        profile.fs = vec![FsScope { path: folder.to_owned(), access: Access::Rw }];
        // What every cage has need not be added to it.
        profile.artifacts = self.artifacts.into_iter().filter(|path| !path.starts_with("/usr/lib")).collect();
        for name in ["NODE_EXTRA_CA_CERTS", "PIP_CERT", "SSL_CERT_FILE"] {
            profile.env.insert(name.into(), AUTHORITIES.into());
        }
        profile.env.extend(self.env.into_iter().map(|(name, value)| (name.to_owned(), value)));
        let scopes = self.registries.iter().enumerate().map(|(index, url)| scope(index, url, known));
        profile.egress = scopes.collect::<Result<_, _>>()?;
        profile.egress.dedup_by(|a, b| (&a.host, a.port) == (&b.host, b.port));
        // There are no calls here: it may talk as long as it runs.
        profile.background_egress = true;
        profile.limits.memory = 2 << 30;
        profile.limits.pids = 256;
        profile.limits.nofile = 4096;
        profile.limits.tmp = 1 << 30;
        Ok(profile)
    }
}

fn scope(index: usize, url: &Url, known: &BTreeMap<String, Vec<IpAddr>>) -> Result<EgressScope, Failure> {
    let wrong = |problem: String| Failure::field("registry", format!("{}: {problem}", visible(url.as_str())));
    let tls = match url.scheme() {
        "https" => Tls::Required,
        "http" => Tls::None,
        _ => return Err(wrong("not an address of a registry".into())),
    };
    let host = url.host_str().ok_or_else(|| wrong("no host in it".into()))?.to_ascii_lowercase();
    let port = url.port_or_known_default().unwrap_or(443);
    // The registry is the operator's own word, so it may be on the operator's own network.
    let addrs = match known.get(&host) {
        Some(addrs) => addrs.clone(),
        None => (host.as_str(), port)
            .to_socket_addrs()
            .map_err(|error| wrong(error.to_string()))?
            .map(|address| address.ip())
            .collect(),
    };
    Ok(EgressScope { scope: format!("registry_{index}"), host, port, tls, addrs })
}

/// How the program ended, and what it complained about.
fn confined(
    profile: &Profile,
    known: BTreeMap<String, Vec<IpAddr>>,
) -> Result<(ExitStatus, String), Failure> {
    let broken = |error: std::io::Error| Failure::unavailable(format!("cannot fetch in a cage: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(broken)?;
    runtime.block_on(async {
        let launcher = Launcher::own().map_err(broken)?;
        let mut caged =
            launcher.launch(profile, Stdio::null(), Stdio::null(), Stdio::piped()).map_err(|error| {
                Failure::unavailable(format!("{error}; `portcullis sandbox doctor` says more"))
            })?;
        let stderr = caged.child.stderr.take();
        let heard = std::thread::spawn(move || {
            let mut said = Vec::new();
            if let Some(stderr) = stderr {
                let _ = stderr.take(1 << 20).read_to_end(&mut said);
            }
            String::from_utf8_lossy(&said).into_owned()
        });
        let told = Box::new(|observed| tracing::debug!(?observed, "the fetching program"));
        let gate = Gate::open(caged.doors, known, None, told).map_err(broken)?;
        let began = Instant::now();
        let status = loop {
            if let Some(status) = caged.child.try_wait().map_err(broken)? {
                break status;
            }
            if began.elapsed() > PATIENCE {
                let _ = caged.child.kill();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        drop(gate);
        Ok((status, heard.join().unwrap_or_default()))
    })
}
