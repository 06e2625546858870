//! What all pages have in common.

use std::sync::LazyLock;

use askama::Template;
use axum::http::{StatusCode, Uri};
use axum::response::{Html, IntoResponse as _, Redirect, Response};
use portcullis_gateway::alarms::Alarm;

use crate::admission::LoggedIn;
use crate::session::Session;
use crate::{Console, assets};

/// What surrounds a page: who is logged in, and where in the console this is.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) operator: String,
    pub(crate) csrf: String,
    /// The entry of the menu that this page belongs to.
    pub(crate) here: &'static str,
    pub(crate) version: &'static str,
    /// How many calls wait for an operator.
    pub(crate) waiting: u64,
    /// What somebody should look at and no call fails for.
    pub(crate) alarms: Vec<Alarm>,
}

impl Frame {
    pub(crate) fn of(session: &Session, here: &'static str) -> Self {
        let operator = session.operator.name().to_owned();
        Self {
            operator,
            csrf: session.csrf().to_owned(),
            here,
            version: assets_version(),
            waiting: 0,
            alarms: Vec::new(),
        }
    }

    /// The menu: path, word, and whether this is it.
    pub(crate) fn menu(&self) -> impl Iterator<Item = (&'static str, &'static str, bool)> + '_ {
        MENU.into_iter().map(|(path, word)| (path, word, path == self.here))
    }
}

const MENU: [(&str, &str); 8] = [
    ("/approvals", "Approvals"),
    ("/overview", "Overview"),
    ("/calls", "Calls"),
    ("/servers", "Servers"),
    ("/tools", "Tools"),
    ("/surface", "Surface"),
    ("/policy", "Policy"),
    ("/audit", "Audit"),
];

/// Where in a long list a page is.
#[derive(Debug, Clone)]
pub(crate) struct Pager {
    first: u64,
    last: u64,
    total: u64,
    pub(crate) newer: Option<String>,
    pub(crate) older: Option<String>,
}

impl Pager {
    /// `shown` rows from `offset` on, of `total`; `address` says where others are.
    pub(crate) fn new(
        offset: u64,
        shown: u64,
        total: u64,
        rows: u64,
        address: impl Fn(u64) -> String,
    ) -> Self {
        Self {
            first: offset + 1,
            last: offset + shown,
            total,
            newer: (offset > 0).then(|| address(offset.saturating_sub(rows))),
            older: (offset + shown < total).then(|| address(offset + shown)),
        }
    }

    /// Which rows these are.
    pub(crate) fn words(&self) -> String {
        format!("{}–{} of {}", self.first, self.last, self.total)
    }
}

/// An address with what is asked for, from the row `offset` on. What is blank is not asked for.
pub(crate) fn address(path: &str, asked: &[(&str, &str)], offset: u64) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in asked.iter().filter(|(_, value)| !value.trim().is_empty()) {
        query.append_pair(name, value.trim());
    }
    if offset > 0 {
        query.append_pair("offset", &offset.to_string());
    }
    match query.finish() {
        query if query.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

impl Console {
    /// The frame of a page, with what the menu says.
    pub(crate) async fn frame(&self, session: &Session, here: &'static str) -> Frame {
        let alarms = self.control.alarms();
        Frame { waiting: self.waiting(session).await, alarms, ..Frame::of(session, here) }
    }
}

/// A page that says one thing.
#[derive(Template)]
#[template(path = "message.html")]
pub(crate) struct Message {
    frame: Frame,
    title: String,
    text: String,
}

impl Message {
    pub(crate) fn new(frame: Frame, title: &str, text: &str) -> Self {
        Self { frame, title: title.to_owned(), text: text.to_owned() }
    }

    pub(crate) fn with(&self, status: StatusCode) -> Response {
        (status, rendered(self)).into_response()
    }
}

/// The first page.
pub(crate) async fn home(LoggedIn(_): LoggedIn) -> Response {
    Redirect::to("/approvals").into_response()
}

/// Whatever there is no page for.
pub(crate) async fn not_found(LoggedIn(session): LoggedIn, uri: Uri) -> Response {
    let text = format!("There is no page at {}.", uri.path());
    Message::new(Frame::of(&session, ""), "Not here", &text).with(StatusCode::NOT_FOUND)
}

/// A template as an answer.
pub(crate) fn rendered(template: &impl Template) -> Response {
    match template.render() {
        Ok(text) => Html(text).into_response(),
        Err(error) => {
            tracing::error!(%error, "a page could not be written");
            (StatusCode::INTERNAL_SERVER_ERROR, "the page could not be written").into_response()
        }
    }
}

/// Part of the address of every asset, so that a new binary's are fetched anew.
pub(crate) fn assets_version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(assets::version);
    &VERSION
}
