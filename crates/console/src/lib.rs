//! The web console: where operators see what waits for them and decide it, in the browser.
//!
//! Pages come from the server, whole; a page works without any script. With scripts, pages follow what happens and
//! keys do what the mouse does. There is no second tool chain: templates are compiled into the binary, and so are the
//! style sheet and three scripts, one of them [htmx](https://htmx.org) 4.0.0.
//!
//! | module | the idea |
//! |---|---|
//! | `session` | who is logged in: cookie, idle and absolute end, a token that forms carry |
//! | `guard` | what is refused before anything is looked at, and the headers of every answer |
//! | `admission` | extractors: an operator who is logged in, a form that its session wrote |
//! | `login` | how a session begins and ends |
//! | `keys` | security keys: enrolled, used to log in, removed |
//! | `challenges`, `confirmation` | what they sign: something new each time, and each change |
//! | `live` | what changed, told to open pages |
//! | `desk` | the admin tools, the only thing pages ask |
//! | `approvals` | the inbox, one card, the decision |
//! | `calls`, `servers`, `tools`, `surface`, `policy`, `audit`, `overview` | a page each |
//! | `visible` | hostile text as it really is |
//! | `assets` | files inside the binary |
//!
//! # Invariants
//! - Nothing is shown and nothing done without a session, but for the login page and what it loads, and a key that is enrolled
//!   by a link.
//! - In a session that began with a security key nothing is changed that the key has not signed.
//! - A template never marks text as safe: whatever a server or an agent wrote is text.
//! - No page has a script or a style in its markup; the policy in its headers forbids both.

mod admission;
mod approvals;
mod assets;
mod audit;
mod calls;
mod challenges;
mod confirmation;
mod desk;
mod guard;
mod keys;
mod live;
mod login;
mod overview;
mod page;
mod policy;
mod servers;
mod session;
mod surface;
mod tools;
mod visible;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use portcullis_admin::Invoker;
use portcullis_gateway::Control;
use tokio::sync::watch;
use url::Url;

pub use admission::admit;
pub use session::SessionLife;

use challenges::Challenges;
use guard::Place;
use live::Live;
use session::Sessions;

/// Largest form: a policy bundle fits.
const MAX_BODY: usize = 1 << 20;

/// How the console is set up.
#[derive(Debug, Clone)]
pub struct ConsoleOptions {
    /// Where it listens.
    pub local: SocketAddr,
    /// Where operators reach it, if something stands in front of it that carries TLS.
    pub url: Option<Url>,
    /// How long sessions last.
    pub life: SessionLife,
    /// The command that enrols an operator of this gateway, for who finds that there is none.
    pub enrol: String,
}

/// The console of one gateway.
#[derive(Debug)]
pub struct Console {
    control: Arc<Control>,
    invoker: Invoker,
    place: Place,
    sessions: Sessions,
    logins: Challenges,
    confirmations: Challenges,
    live: Live,
    enrol: String,
    stop: watch::Receiver<bool>,
}

impl Console {
    /// A console of `control`. Streams end when `stop` turns true, so that stopping waits for no browser.
    pub fn new(
        control: Arc<Control>,
        invoker: Invoker,
        options: ConsoleOptions,
        stop: watch::Receiver<bool>,
    ) -> Arc<Self> {
        let live = Live::follow(&control, stop.clone());
        let sessions = Sessions::new(options.life);
        let place = Place::new(options.local, options.url.as_ref());
        let (logins, confirmations) = (Challenges::default(), Challenges::default());
        let enrol = options.enrol;
        Arc::new(Self { control, invoker, place, sessions, logins, confirmations, live, enrol, stop })
    }

    /// Everything it answers.
    pub fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/", get(page::home))
            .route("/approvals", get(approvals::page))
            .route("/approvals/inbox", get(approvals::inbox))
            .route("/approvals/count", get(approvals::count))
            .route("/approvals/{id}", get(approvals::one))
            .route("/approvals/{id}/part", get(approvals::part))
            .route("/approvals/{id}/approve", post(approvals::approve))
            .route("/approvals/{id}/deny", post(approvals::deny))
            .route("/overview", get(overview::page))
            .route("/calls", get(calls::page))
            .route("/calls/part", get(calls::part))
            .route("/calls/{id}", get(calls::one))
            .route("/calls/{id}/evidence", post(calls::open))
            .route("/servers", get(servers::page))
            .route("/servers/{id}", get(servers::one))
            .route("/servers/{id}/state", post(servers::set_state))
            .route("/servers/{id}/accept", post(servers::accept))
            .route("/servers/{id}/test", post(servers::test))
            .route("/tools", get(tools::page))
            .route("/tools/{name}", get(tools::one))
            .route("/surface", get(surface::page))
            .route("/policy", get(policy::page))
            .route("/policy/draft", get(policy::draft).post(policy::change))
            .route("/policy/rollback", post(policy::roll_back))
            .route("/audit", get(audit::page))
            .route("/audit/export", post(audit::export))
            .route("/audit/{id}", get(audit::one))
            .route("/login", get(login::page).post(login::begin))
            .route("/login/key", post(keys::log_in))
            .route("/login/key/begin", post(keys::begin_login))
            .route("/logout", post(login::end))
            .route("/keys", get(keys::page))
            .route("/keys/add", post(keys::add))
            .route("/keys/remove", post(keys::remove))
            .route("/enrol", get(keys::enrol_page))
            .route("/enrol/begin", post(keys::begin_enrolment))
            .route("/enrol/finish", post(keys::finish_enrolment))
            .route("/passkey/challenge", post(confirmation::challenge))
            .route("/events", get(live::events))
            .route("/assets/{name}", get(assets::serve))
            .fallback(page::not_found)
            .layer(DefaultBodyLimit::max(MAX_BODY))
            .layer(axum::middleware::from_fn_with_state(self.clone(), guard::guard))
            .with_state(self.clone())
    }

    /// Where operators open it.
    pub fn url(&self) -> &str {
        self.place.origin()
    }
}
