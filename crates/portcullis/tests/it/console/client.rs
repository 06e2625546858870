//! A browser without scripts: it keeps a cookie and sends forms.

use crate::support::{Daemon, Reply, exchange};

pub(super) struct Client {
    pub(super) address: String,
    pub(super) cookie: Option<String>,
}

impl Client {
    pub(super) fn new(daemon: &Daemon) -> Self {
        Self { address: daemon.console.trim_start_matches("http://").to_owned(), cookie: None }
    }

    pub(super) fn get(&mut self, path: &str) -> Reply {
        self.send("GET", path, "")
    }

    pub(super) fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Reply {
        let body: Vec<String> =
            fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        self.send("POST", path, &body.join("&"))
    }

    pub(super) fn log_in(&mut self, name: &str, passphrase: &str) -> Reply {
        self.post("/login", &[("name", name), ("passphrase", passphrase)])
    }

    /// The token that forms of this session carry.
    pub(super) fn token(&mut self) -> String {
        let page = self.get("/approvals").body;
        let (_, rest) = page.split_once("name=\"csrf\" value=\"").expect("a form");
        rest.split('"').next().unwrap().to_owned()
    }

    fn send(&mut self, method: &str, path: &str, body: &str) -> Reply {
        let origin = format!("http://{}", self.address);
        let mut headers = vec![("Content-Type", "application/x-www-form-urlencoded")];
        if method == "POST" {
            headers.push(("Origin", &origin));
        }
        let cookie = self.cookie.clone();
        headers.extend(cookie.as_deref().map(|cookie| ("Cookie", cookie)));
        let reply = exchange(&self.address, method, path, &headers, body).expect("an answer");
        if let Some(set) = reply.header("set-cookie") {
            self.cookie = set.split(';').next().map(ToOwned::to_owned);
        }
        reply
    }
}

fn encoded(value: &str) -> String {
    value
        .bytes()
        .map(|b| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}
