//! `portcullis serve`: the gateway as a service, or for one agent on stdin and stdout.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use portcullis_gateway::control::told_to_stop;
use portcullis_gateway::edge::Edge;
use portcullis_gateway::edge::http::HttpLimits;
use portcullis_gateway::exposure::Mode;
use portcullis_gateway::{Gateway, GatewayOptions};
use tokio::net::{TcpListener, UnixStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Context;
use crate::cli::ServeArgs;
use crate::config::ModeWord;
use crate::failure::Failure;
use crate::home::{self, Daemon};
use crate::image;
use crate::operator;
use crate::operator_listener::OperatorListener;

/// How long requests under way may go on after the stop.
const DRAIN: Duration = Duration::from_secs(10);
/// When servers are connected and lists compiled: what starting needed is not needed any more.
const SETTLED: Duration = Duration::from_secs(3);
/// What agents on this machine can choose by the socket they attach to.
const MODES: [Mode; 3] = [Mode::Passthrough, Mode::Transparent, Mode::Gateway];

pub(super) async fn run(context: &Context<'_>, args: &ServeArgs) -> Result<ExitCode, Failure> {
    if args.stdio {
        return serve_stdio(context, args.mode).await;
    }
    let mut options = context.options()?;
    if let Some(word) = args.mode {
        options.exposure.mode = word.mode();
    }
    options.replay.clone_from(&args.replay);
    let service = Service::start(context, context.config.listen(args.listen), options).await?;
    if let Some(file) = &args.ready_file {
        let ready = serde_json::to_string(&service.daemon).unwrap_or_default();
        write_whole(file, &ready)
            .map_err(|error| Failure::field("ready-file", format!("{}: {error}", file.display())))?;
    }
    context.output.say(format!("portcullis is ready for agents at {}", service.daemon.mcp));
    if let Some(console) = &service.daemon.console {
        context.output.say(format!("and for operators at {console}"));
    }
    service.until_stopped().await;
    Ok(ExitCode::SUCCESS)
}

/// A gateway with its listeners.
pub(super) struct Service {
    pub(super) gateway: Gateway,
    pub(super) daemon: Daemon,
    http: JoinHandle<()>,
    console: Option<JoinHandle<()>>,
    home: std::path::PathBuf,
    signals: Signals,
}

impl Service {
    /// Starts the gateway, then the operator socket, then what agents connect to.
    pub(super) async fn start(
        context: &Context<'_>,
        listen: SocketAddr,
        options: GatewayOptions,
    ) -> Result<Self, Failure> {
        if !context.config.access.admits(listen) {
            return Err(Failure::field(
                "listen",
                format!(
                    "{listen} is not a loopback address, and agents are not authenticated; set `authentication = \
                     \"required\"` in [access] of the configuration"
                ),
            ));
        }
        // The gateway holds keys and everybody's arguments: no core dumps, no tracing by its own user.
        let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
        let listener = TcpListener::bind(listen).await.map_err(|error| {
            Failure::unavailable(format!(
                "cannot listen on {listen}: {error}; choose another address with --listen 127.0.0.1:PORT"
            ))
        })?;
        let address = listener.local_addr().map_err(|error| Failure::unavailable(error.to_string()))?;
        let operators = OperatorListener::bind(&context.config.operator, address, &context.home).await?;
        let console = operators.as_ref().map(OperatorListener::url);
        let options = GatewayOptions { console: console.clone(), ..options };
        let gateway = Gateway::start(options).await?;
        let stop = gateway.stopping();
        let failed = |error: std::io::Error| {
            Failure::unavailable(format!("cannot open a socket in {}: {error}", context.home.display()))
        };
        let desk = Arc::new(operator::Desk::of(&gateway)?);
        operator::serve(desk.clone(), stop.clone()).await.map_err(failed)?;
        serve_agents(&home::agent_socket(&context.home), None, gateway.edge.clone(), stop.clone())
            .map_err(failed)?;
        for mode in MODES {
            let socket = home::agent_socket_in(&context.home, mode);
            serve_agents(&socket, Some(mode), gateway.edge.clone(), stop.clone()).map_err(failed)?;
        }
        let config = &context.config;
        let hosts = config.gateway.allowed_hosts.iter().cloned().chain(config.access.host()).collect();
        let limits = HttpLimits {
            origins: config.gateway.allowed_origins.clone(),
            hosts,
            ..config.gateway.http.limits()?
        };
        let http = tokio::spawn(gateway.edge.clone().serve_http(listener, limits, stop));
        let serving = operators.map(|listener| listener.serve(&desk, gateway.stopping()));
        let daemon = Daemon { mcp: format!("http://{address}/mcp"), console, pid: std::process::id() };
        write_whole(&home::daemon_file(&context.home), &serde_json::to_string(&daemon).unwrap_or_default())
            .map_err(failed)?;
        // Before anybody hears that it is ready: whoever ends it from then on sees it end in order.
        let signals = Signals::watch().map_err(failed)?;
        Ok(Self { gateway, daemon, http, console: serving, home: context.home.clone(), signals })
    }

    /// Serves until SIGINT or SIGTERM, then ends in order; a second signal ends at once.
    pub(super) async fn until_stopped(mut self) {
        let settled = async {
            tokio::time::sleep(SETTLED).await;
            image::give_back();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = self.signals.next() => {}
            () = settled => {}
        }
        self.stop().await;
    }

    pub(super) async fn stop(self) {
        let mut signals = self.signals;
        tokio::spawn(async move {
            signals.next().await;
            std::process::exit(3);
        });
        self.gateway.begin_stop();
        // PRO-39: whoever is still connected after this is cut off.
        for mut serving in std::iter::once(self.http).chain(self.console) {
            if tokio::time::timeout(DRAIN, &mut serving).await.is_err() {
                tracing::warn!(
                    "connections were still open {} s after the stop, and are cut off",
                    DRAIN.as_secs()
                );
                serving.abort();
            }
        }
        let _ = std::fs::remove_file(home::daemon_file(&self.home));
        let _ = std::fs::remove_file(home::agent_socket(&self.home));
        for mode in MODES {
            let _ = std::fs::remove_file(home::agent_socket_in(&self.home, mode));
        }
        self.gateway.finish().await;
    }
}

/// The signals that end a gateway, from when they are watched.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn watch() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// A socket that `serve --stdio` and `call` attach to.
fn serve_agents(
    socket: &std::path::Path,
    mode: Option<Mode>,
    edge: Arc<Edge>,
    mut stop: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let listener = home::listen(socket)?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                    if let Ok(peer) = stream.peer_cred() {
                        edge.agent_users().connected(peer.uid());
                    }
                    let (read, write) = stream.into_split();
                    tokio::spawn(edge.clone().serve_stdio_in(mode, read, write));
                },
                () = told_to_stop(&mut stop) => break,
            }
        }
    });
    Ok(())
}

/// One agent on stdin and stdout: carried to the running gateway, or served by one of our own (PRO-30).
async fn serve_stdio(context: &Context<'_>, mode: Option<ModeWord>) -> Result<ExitCode, Failure> {
    let mode = mode.and_then(ModeWord::mode);
    let broken =
        |error: std::io::Error| Failure::unavailable(format!("the agent's connection broke: {error}"));
    let socket = mode
        .map_or_else(|| home::agent_socket(&context.home), |mode| home::agent_socket_in(&context.home, mode));
    if let Ok(stream) = UnixStream::connect(socket).await {
        let (mut from_gateway, mut to_gateway) = stream.into_split();
        let up = async {
            tokio::io::copy(&mut tokio::io::stdin(), &mut to_gateway).await?;
            drop(to_gateway);
            std::future::pending::<std::io::Result<u64>>().await
        };
        let mut stdout = tokio::io::stdout();
        let down = tokio::io::copy(&mut from_gateway, &mut stdout);
        tokio::select! {
            ended = up => ended,
            ended = down => ended,
        }
        .map_err(broken)?;
        return Ok(ExitCode::SUCCESS);
    }
    let gateway = Gateway::start(context.options()?).await?;
    let desk = Arc::new(operator::Desk::of(&gateway)?);
    operator::serve(desk, gateway.stopping()).await.map_err(|error| {
        Failure::unavailable(format!("cannot open a socket in {}: {error}", context.home.display()))
    })?;
    let mut signals = Signals::watch().map_err(broken)?;
    // Whoever started us is the agent, and so has our user.
    gateway.edge.agent_users().connected(rustix::process::geteuid().as_raw());
    let serving = gateway.edge.clone().serve_stdio_in(mode, tokio::io::stdin(), tokio::io::stdout());
    let ended = tokio::select! {
        ended = serving => ended,
        () = signals.next() => Ok(()),
    };
    gateway.finish().await;
    ended.map_err(broken)?;
    // stdin may still be blocked in a read that nothing can end.
    std::process::exit(0);
}

/// Readers see the whole file or none.
fn write_whole(path: &std::path::Path, text: &str) -> std::io::Result<()> {
    let temporary = path.with_extension("tmp");
    std::fs::write(&temporary, text)?;
    std::fs::rename(&temporary, path)
}
