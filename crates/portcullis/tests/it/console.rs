//! The console over HTTP, as a browser without scripts has it: what it refuses, and how one logs in (GOV-104).

mod browser;
mod client;
mod deciding;
mod keys;
mod looking;
mod pages;

use serde_json::json;

use crate::approvals::enrol;
use crate::support::{Daemon, Home, Spy, exchange};
use client::Client;

const PASSPHRASE: &str = "correct horse battery";

/// A gateway with one operator.
fn with_alice(config: &str) -> (Home, Daemon) {
    let home = Home::new(config);
    enrol(&home, "alice", PASSPHRASE);
    let daemon = home.serve();
    (home, daemon)
}

/// A gateway with one operator, a spy behind it and, if wanted, a policy of its own.
fn with_spy(wait: &str, operator: &str, policy: &str) -> (Home, Spy, Daemon) {
    let dir = if policy.is_empty() { "" } else { "[policy]\ndir = \"policies\"\n" };
    let home = Home::new(&format!(
        "[approvals]\nwait = \"{wait}\"\n[operator]\nauth = [\"uid\", \"passphrase\"]\n{operator}{dir}"
    ));
    if !policy.is_empty() {
        std::fs::create_dir(home.path().join("policies")).unwrap();
        std::fs::write(home.path().join("policies/mine.cedar"), policy).unwrap();
    }
    let spy = Spy::new(&home);
    spy.register(&home);
    enrol(&home, "alice", PASSPHRASE);
    let daemon = home.serve();
    (home, spy, daemon)
}

#[test]
fn a_login_begins_a_session_and_a_logout_ends_it() {
    // GOV-104
    let (_home, daemon) = with_alice("");
    let mut alice = Client::new(&daemon);
    let reply = alice.get("/approvals/0f3a");
    assert_eq!((reply.status, reply.header("location")), (303, Some("/login?next=%2Fapprovals%2F0f3a")));

    let refused = alice.log_in("alice", "correct horse batterz");
    assert_eq!(refused.status, 401);
    assert!(refused.body.contains("not the passphrase of an operator"), "{}", refused.body);
    assert!(!refused.body.contains("batterz") && refused.header("set-cookie").is_none());

    let begun =
        alice.post("/login", &[("name", "alice"), ("passphrase", PASSPHRASE), ("next", "//evil.example")]);
    assert_eq!((begun.status, begun.header("location")), (303, Some("/")), "{}", begun.body);
    let cookie = begun.header("set-cookie").unwrap();
    for property in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(property), "{cookie}");
    }
    let page = alice.get("/approvals");
    assert_eq!(page.status, 200, "{}", page.body);
    assert!(page.body.contains("alice") && page.body.contains("Log out"));

    // Without the token of its session a form is nobody's.
    for forged in [vec![], vec![("csrf", "")], vec![("csrf", &"0".repeat(64))]] {
        assert_eq!(alice.post("/logout", &forged).status, 403);
    }
    assert_eq!(alice.get("/approvals").status, 200);
    let token = alice.token();
    assert_eq!(alice.post("/logout", &[("csrf", &token)]).header("location"), Some("/login"));
    assert_eq!(alice.get("/").header("location"), Some("/login"));
    daemon.stop();
}

#[test]
fn five_wrong_passphrases_lock_the_login() {
    // GOV-104
    let (home, daemon) = with_alice("");
    let mut eve = Client::new(&daemon);
    for name in ["alice", "alice", "nobody", "alice", "alice"] {
        assert!(eve.log_in(name, "not the passphrase").body.contains("not the passphrase of"), "{name}");
    }
    let locked = eve.log_in("alice", PASSPHRASE);
    assert_eq!(locked.status, 401);
    assert!(locked.body.contains("too many failures"), "{}", locked.body);
    daemon.stop();
    assert_eq!(home.events("operator.auth_failed").len(), 6);
}

#[test]
fn nobody_enrolled_is_said_with_the_command_that_helps() {
    let home = Home::new("");
    let daemon = home.serve();
    let page = Client::new(&daemon).get("/login");
    let command = format!("portcullis --home {} operator enrol YOUR-NAME", home.path().display());
    assert!(page.body.contains(&command), "{}", page.body);
    assert!(!page.body.contains("<form"), "there is nobody to log in");
    daemon.stop();
}

#[test]
fn pages_of_other_sites_reach_nothing() {
    let (_home, daemon) = with_alice("");
    let mut alice = Client::new(&daemon);
    alice.log_in("alice", PASSPHRASE);
    let address = alice.address.clone();
    let cookie = alice.cookie.clone().unwrap();
    let status = |method: &str, headers: &[(&str, &str)]| {
        let headers = [&[("Cookie", cookie.as_str())], headers].concat();
        exchange(&address, method, "/approvals", &headers, "").unwrap().status
    };
    assert_eq!(status("GET", &[]), 200);
    assert_eq!(status("GET", &[("Host", "evil.example")]), 403, "rebinding");
    assert_eq!(status("GET", &[("Origin", "http://evil.example")]), 403);
    assert_eq!(status("POST", &[("Sec-Fetch-Site", "cross-site")]), 403);
    assert_eq!(status("GET", &[("Sec-Fetch-Site", "cross-site")]), 200, "a link is followed");
    let page = alice.get("/approvals");
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "same-origin"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(page.header(name), Some(value), "{name}");
    }
    for inline in ["<style", "style=", "<script>", "onclick", "http://", "https://"] {
        assert!(!page.body.contains(inline), "{inline} in {}", page.body);
    }
    daemon.stop();
}

#[test]
fn an_agents_credential_opens_nothing() {
    // GOV-105
    let (home, daemon) = with_alice("[access]\nauthentication = \"required\"\n");
    let created = home.json(&["key", "create", "claude"]);
    let key = format!("Bearer {}", created["key"].as_str().unwrap());
    let address = Client::new(&daemon).address;
    for path in ["/", "/approvals", "/events", "/api/admin/portcullis_approvals_list", "/admin/mcp"] {
        for method in ["GET", "POST"] {
            let reply = exchange(&address, method, path, &[("Authorization", &key)], "{}").unwrap();
            assert!(
                reply.status == 401 || reply.header("location").is_some_and(|to| to.starts_with("/login")),
                "{method} {path}: {}",
                reply.status
            );
        }
    }
    // And the agents' listener has none of it.
    for path in ["/login", "/approvals", "/api/admin/portcullis_approvals_list"] {
        assert_eq!(daemon.http("GET", path, &[("Authorization", &key)], "").unwrap().status, 404, "{path}");
    }
    daemon.stop();
}

#[test]
fn a_session_ends_by_itself_and_with_its_operator() {
    let (home, daemon) = with_alice("[operator]\nauth = [\"uid\"]\nsession_max = \"1500ms\"\n");
    let mut alice = Client::new(&daemon);
    alice.log_in("alice", PASSPHRASE);
    assert_eq!(alice.get("/approvals").status, 200);
    crate::support::eventually("the session to end", || {
        (alice.get("/approvals").status == 303).then_some(())
    });

    alice.log_in("alice", PASSPHRASE);
    home.json(&["operator", "remove", "alice", "--reason", "left"]);
    assert_eq!(alice.get("/").header("location"), Some("/login"));
    daemon.stop();
}

#[test]
fn the_console_can_be_off_and_says_where_it_is() {
    let home = Home::new("[operator]\nlisten = \"off\"\n");
    let daemon = home.serve();
    assert_eq!(daemon.console, "");
    daemon.stop();
    let home = Home::new("");
    let daemon = home.serve();
    let told: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(home.path().join("run/daemon.json")).unwrap()).unwrap();
    assert_eq!(told["console"], json!(daemon.console));
    assert!(daemon.console.starts_with("http://127.0.0.1:"), "{}", daemon.console);
    daemon.stop();
}
