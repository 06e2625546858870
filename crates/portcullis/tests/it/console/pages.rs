//! Every page: in Chromium at two widths, light and dark, without an error, with nothing serious for axe-core to say.

use std::path::Path;

use serde_json::json;

use super::browser::Browser;
use super::client::Client;
use super::{PASSPHRASE, with_spy};
use crate::agent::Agent;
use crate::support::{Operator, eventually, exchange};

/// Something to apply.
const OPEN: &str =
    r#"@id("mine/open") permit (principal, action == Portcullis::Action::"invokeUnattended", resource);"#;

#[test]
fn calls_are_listed_as_they_happen_and_each_has_its_story() {
    let (home, _spy, daemon) = with_spy("200ms", "", "");
    let mut browser = Browser::at(&daemon);
    browser.goto("/calls");
    browser.log_in("alice", PASSPHRASE);
    browser.wait("[data-connected]");
    browser.wait(".empty");
    daemon.call("spy__echo", &json!({"text": "one"})).unwrap();
    browser.wait("#calls .tag.warn");
    home.grant_next("once");
    daemon.call("spy__echo", &json!({"text": "one"})).unwrap();
    browser.wait("#calls .tag.good");
    daemon.call("spy__no_such_tool", &json!({})).unwrap();
    daemon.call("spy__echo", &json!({"wrong": true})).unwrap();
    daemon.call("spy__echo", &json!({"text": "nobody decides"})).unwrap();
    eventually("all five", || (browser.count("#calls tbody tr") == 5).then_some(()));
    browser.inspect("calls");

    browser.click("#calls tbody tr:nth-last-child(2) a");
    browser.wait("ol.steps");
    assert_eq!(browser.count("ol.steps > li"), 10);
    assert_eq!(browser.count("ol.steps > li.unreached"), 0);
    let story = browser.text("main");
    for words in ["agent:local", "allowed if an operator approves", "operator:", "all eight held", "answered"]
    {
        assert!(story.contains(words), "{words} in {story}");
    }
    browser.inspect("call");

    browser.goto("/calls?kind=refused");
    assert_eq!(browser.count("#calls tbody tr"), 2);
    browser.click("#calls tbody tr:first-child a");
    browser.wait("ol.steps li.ended");
    browser.goto("/calls?kind=asked&tool=spy");
    assert_eq!(browser.count("#calls tbody tr"), 2);
    browser.goto("/overview");
    assert!(browser.text(".numbers").contains("5"), "{}", browser.text(".numbers"));
    browser.inspect("overview");
    drop(browser);
    daemon.stop();
    home.verify();
}

#[test]
fn a_long_history_is_shown_a_page_at_a_time() {
    let (home, _spy, daemon) = with_spy("20s", "[policy]\npreset = \"observe\"\n", "");
    let calls = 121;
    std::thread::scope(|scope| {
        scope.spawn(|| daemon.call("spy__echo", &json!({"text": "first"})));
        home.grant_next("until-version-change");
    });
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                (0..(calls - 1) / 4)
                    .for_each(|n| drop(daemon.call("spy__echo", &json!({"text": n.to_string()}))));
            });
        }
    });
    let mut alice = Client::new(&daemon);
    alice.log_in("alice", PASSPHRASE);
    let mut seen = std::collections::BTreeSet::new();
    let mut path = "/calls".to_owned();
    for (first, last) in [(1, 50), (51, 100), (101, 121)] {
        let page = alice.get(&path).body;
        assert!(page.contains(&format!("{first}–{last} of {calls}")), "{page}");
        seen.extend(page.split("id=\"call-").skip(1).map(|row| row[..26].to_owned()));
        path = page
            .split("rel=\"next\"")
            .next()
            .and_then(|head| head.rsplit_once("href=\""))
            .map_or(String::new(), |(_, href)| href.split('"').next().unwrap().to_owned());
    }
    assert_eq!(seen.len(), calls, "each of them once");
    daemon.stop();
}

#[test]
fn a_server_that_changed_is_seen_and_accepted_and_one_can_be_halted() {
    let (home, spy, daemon) = with_spy("20s", "", "");
    let mut browser = Browser::at(&daemon);
    browser.goto("/servers");
    browser.log_in("alice", PASSPHRASE);
    browser.inspect("servers");
    browser.click("a[href='/servers/spy']");
    browser.wait("#act");
    browser.inspect("server");

    browser.fill("#act input[name=reason]", "looking into it");
    browser.click("#act button");
    browser.wait(".problem");
    assert!(browser.text(".problem").contains("looking into it"));
    browser.fill("#act input[name=reason]", "it was nothing");
    browser.click("#act button");
    browser.gone(".problem");

    let told = json!({"echo": "Answer. <img src=x onerror=alert(1)>"});
    spy.control(&json!({"description": told, "list_changed": true}));
    // It announces the change with its next frame.
    daemon.approved_call(&home, "spy__echo", &json!({"text": "x"})).unwrap();
    eventually("the change to be noticed", || {
        browser.goto("/servers/spy");
        (browser.count("#drift") == 1).then_some(())
    });
    assert!(browser.text("#drift").contains("img src=x onerror"), "text, and nothing else");
    assert_eq!(browser.count("#drift img"), 0);
    browser.inspect("drift");
    browser.fill("#drift input[name=reason]", "harmless");
    browser.click("#drift button");
    browser.gone("#drift");
    assert_eq!(home.json(&["mcp", "show", "spy"])["drift"], json!([]));
    drop(browser);
    daemon.stop();
    home.verify();
}

#[test]
fn policy_is_explained_and_rolled_back_and_the_log_is_checked() {
    let (home, _spy, daemon) = with_spy("200ms", "", "");
    let mut browser = Browser::at(&daemon);
    browser.goto("/policy");
    browser.log_in("alice", PASSPHRASE);
    browser.fill("#tool", "spy__echo");
    browser.fill("#arguments", "{\"text\": \"hello\"}");
    browser.click(".ask button");
    browser.wait("#verdict");
    assert!(browser.text("#verdict").contains("Allowed if an operator approves"));
    browser.inspect("policy");
    browser.fill("#arguments", "{");
    browser.click(".ask button");
    browser.wait(".problem");

    std::fs::create_dir(home.path().join("next")).unwrap();
    std::fs::write(home.path().join("next/open.cedar"), OPEN).unwrap();
    let folder = home.path().join("next");
    home.json(&["policy", "apply", folder.to_str().unwrap(), "--reason", "trial"]);
    browser.goto("/policy");
    browser.fill("form.back input[name=reason]", "enough of that");
    browser.click("form.back button");
    eventually("it to be rolled back", || (browser.text("table").contains("enough of that")).then_some(()));

    browser.goto("/audit");
    browser.click("main form button");
    browser.wait("#report .tag.good");
    browser.inspect("audit");
    drop(browser);
    daemon.stop();
    home.verify();
}

#[test]
fn a_first_visit_takes_less_than_100_kilobytes() {
    let (_home, _spy, daemon) = with_spy("20s", "", "");
    let mut browser = Browser::at(&daemon);
    browser.goto("/login");
    let login = browser.act("bytes", json!({})).as_u64().unwrap();
    browser.log_in("alice", PASSPHRASE);
    browser.goto("/approvals");
    let page = browser.act("bytes", json!({})).as_u64().unwrap();
    let address = daemon.console.trim_start_matches("http://");
    let assets = ["htmx.min.js", "console.js", "console.css"];
    let sizes =
        assets.map(|name| exchange(address, "GET", &format!("/assets/{name}"), &[], "").unwrap().body.len());
    let all = login + page + sizes.iter().sum::<usize>() as u64;
    assert!(login > 0 && all < 100_000, "{login} + {page} + {sizes:?}");
    drop(browser);
    daemon.stop();
}

#[test]
fn ten_thousand_calls_are_a_page_at_a_time() {
    let (home, _spy, daemon) = with_spy("20s", "", "");
    // Batches of calls of a tool that does not exist: each is a call of its own, refused and on record.
    let agent = Agent::open(&daemon, "2025-03-26");
    let (batches, each) = (157, 64);
    for batch in 0..batches {
        let call = |n: u64| json!({"jsonrpc": "2.0", "id": batch * each + n, "method": "tools/call", "params": {"name": "spy__nothing"}});
        let calls: Vec<_> = (0..each).map(call).collect();
        assert_eq!(agent.post(&json!(calls), &[]).status, 200);
    }
    let total = batches * each;
    assert!(total > 10_000);
    let mut alice = Client::new(&daemon);
    alice.log_in("alice", PASSPHRASE);
    for (offset, rows) in [(0, 50), (5_000, 50), (total - 8, 8)] {
        let page = alice.get(&format!("/calls?offset={offset}")).body;
        let words = format!("{}–{} of {total}", offset + 1, offset + rows);
        assert!(page.contains(&words), "{words}");
        assert_eq!(page.matches("id=\"call-").count() as u64, rows);
        assert!(page.len() < 64 << 10, "a page is no longer for being late: {}", page.len());
    }
    daemon.stop();
    home.verify();
}

#[test]
fn the_attacks_of_the_corpus_are_text_on_every_page() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gauntlet/corpus/sanitiser.jsonl");
    let lines = std::fs::read_to_string(corpus).unwrap();
    let attacks: Vec<String> = (lines.lines())
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["in"].as_str().unwrap().to_owned()
        })
        .chain(["<img src=x onerror=alert(1)>".into(), "\"><svg onload=alert(1)>".into()])
        .chain(["</pre></main><iframe src=/login></iframe>{{ 7 * 7 }}".into()])
        .collect();
    let hostile = attacks.join("\n");
    let (home, spy, daemon) = with_spy("20s", "", "");
    // In arguments, in what a server answers, in what it calls its tools, and in the words of an operator.
    let mut browser = Browser::at(&daemon);
    browser.goto("/approvals");
    browser.log_in("alice", PASSPHRASE);
    let pages = std::thread::scope(|scope| {
        let call = scope.spawn(|| daemon.call("spy__echo", &json!({"text": hostile})));
        let id = home.next_pending()["approval_id"].as_str().unwrap().to_owned();
        let pages = [format!("/approvals/{id}"), "/approvals".to_owned()];
        for page in &pages {
            browser.goto(page);
            inert(&mut browser, page);
        }
        home.json(&["approve", "deny", &id, "--reason", "<img src=x onerror=alert(2)>"]);
        call.join().unwrap();
        pages
    });
    daemon
        .approved_call(&home, "spy__fail", &json!({"message": attacks[attacks.len() - 3..].join("")}))
        .unwrap();
    browser.goto("/calls");
    browser.click("#calls tbody tr:first-child a");
    browser.fill("#open input[name=reason]", "<img src=x onerror=alert(3)>");
    browser.click("#open button");
    browser.wait(".beside");
    inert(&mut browser, "the evidence");
    spy.control(&json!({"description": {"echo": hostile}, "list_changed": true}));
    // It announces the change with its next frame, and may be halted before or after it answers.
    let operator = Operator::on_duty(&home);
    daemon.call("spy__echo", &json!({"text": "x"})).unwrap();
    drop(operator);
    eventually("the change", || {
        browser.goto("/servers/spy");
        (browser.count("#drift") == 1).then_some(())
    });
    inert(&mut browser, "/servers/spy");
    let more = ["/calls", "/tools", "/tools/spy__echo", "/policy", "/audit", "/surface"].map(str::to_owned);
    for page in pages.iter().chain(&more) {
        browser.goto(page);
        inert(&mut browser, page);
    }
    assert_eq!(browser.act("errors", json!({})), json!([]));
    drop(browser);
    daemon.stop();
}

/// Nothing on the page came of somebody's text: no element that the templates do not have.
fn inert(browser: &mut Browser, page: &str) {
    let foreign =
        "main script, main img, main iframe, main object, main style, main [onerror], main [onload]";
    assert_eq!(browser.count(foreign), 0, "{page}");
    assert_eq!(browser.count("main"), 1, "{page}");
}
