//! What operators and their programs reach by HTTP: the console, and the admin tools (GOV-104, ADM-2). Agents have a listener of their own, where none of this is.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use portcullis_admin::http::Door;
use portcullis_console::{Console, ConsoleOptions};
use portcullis_gateway::control::told_to_stop;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::OperatorSection;
use crate::failure::Failure;
use crate::operator::Desk;

/// Bound, and not serving yet: agents are told its address before the gateway starts.
pub(crate) struct OperatorListener {
    listener: TcpListener,
    options: ConsoleOptions,
}

impl OperatorListener {
    /// Listens where the configuration says. Where it says nothing, on the port after the agents' one, or on any if
    /// that is taken; `None` where it says `off`.
    pub(crate) async fn bind(
        section: &OperatorSection,
        agents: SocketAddr,
        home: &Path,
    ) -> Result<Option<Self>, Failure> {
        let settings = section.listener()?;
        let listener = match settings.listen {
            None => return Ok(None),
            Some(Some(address)) => TcpListener::bind(address).await.map_err(|error| {
                let message = format!("operator.listen: cannot listen on {address}: {error}");
                Failure::field("operator.listen", message)
            })?,
            Some(None) => beside(agents).await?,
        };
        let local = listener.local_addr().map_err(|error| Failure::unavailable(error.to_string()))?;
        let options =
            ConsoleOptions { local, url: settings.url, life: settings.life, enrol: enrol_command(home) };
        Ok(Some(Self { listener, options }))
    }

    /// Where operators open the console.
    pub(crate) fn url(&self) -> String {
        match &self.options.url {
            Some(url) => url.origin().ascii_serialization(),
            None => format!("http://{}", self.options.local),
        }
    }

    /// Serves until told to stop.
    pub(crate) fn serve(self, desk: &Desk, mut stop: watch::Receiver<bool>) -> JoinHandle<()> {
        let door = Door { local: self.options.local, public: self.options.url.clone() };
        let (control, invoker) = (desk.control.clone(), desk.invoker.clone());
        let programs =
            portcullis_admin::http::router(control.clone(), invoker, door, env!("CARGO_PKG_VERSION"));
        let console = Console::new(control, desk.invoker.clone(), self.options, stop.clone());
        let sessions = axum::middleware::from_fn_with_state(console.clone(), portcullis_console::admit);
        let router = programs.layer(sessions).merge(console.router());
        tokio::spawn(async move {
            let stopped = async move { told_to_stop(&mut stop).await };
            if let Err(error) = axum::serve(self.listener, router).with_graceful_shutdown(stopped).await {
                tracing::error!(%error, "the operator listener ended");
            }
        })
    }
}

/// Next to what agents were given, so that the address is the same at every start as long as it can be.
async fn beside(agents: SocketAddr) -> Result<TcpListener, Failure> {
    let wanted = agents.port().checked_add(1).filter(|_| agents.port() != 0).unwrap_or(0);
    if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, wanted)).await {
        return Ok(listener);
    }
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .map_err(|error| Failure::unavailable(format!("cannot listen for operators: {error}")))
}

/// What to run where nobody is enrolled.
fn enrol_command(home: &Path) -> String {
    let usual = std::env::home_dir().is_some_and(|user| user.join(".portcullis") == home);
    let place = if usual { String::new() } else { format!(" --home {}", home.display()) };
    format!("portcullis{place} operator enrol YOUR-NAME")
}
