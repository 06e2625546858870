//! Pages for looking into things: tools as agents find them, what clients read first, evidence, records, and rules before
//! they are in force.

use serde_json::json;

use super::browser::Browser;
use super::{PASSPHRASE, with_spy};
use crate::support::eventually;

#[test]
fn tools_are_found_as_agents_find_them_and_a_call_is_rehearsed() {
    // ADM-4: a rehearsal sends nothing.
    let (home, spy, daemon) = with_spy("200ms", "", "");
    let mut browser = Browser::at(&daemon);
    browser.goto("/tools");
    browser.log_in("alice", PASSPHRASE);
    browser.wait("#tools");
    assert!(browser.count("#tools > li") > 1, "all of them, before anything is asked for");
    assert_eq!(browser.count(".why"), 0);
    browser.press("/");
    browser.type_text("echo some txet");
    browser.press("Enter");
    browser.wait(".why");
    let best = browser.text("#tools > li:first-child");
    assert!(best.contains("spy__echo") && best.contains("points") && best.contains("echo"), "{best}");
    browser.inspect("tools");

    browser.click("#tools > li:first-child h2 a");
    browser.wait("#rehearse");
    browser.inspect("tool");
    browser.fill("[id='arg.text']", "hello");
    browser.click("#rehearse button");
    browser.wait("#rehearsal");
    assert!(browser.text("#rehearsal").contains("An operator would be asked"));
    // What does not fit is said by its place.
    browser.fill("[id='arg.text']", "");
    browser.click("#rehearse button");
    eventually("the refusal", || browser.text("#rehearsal").contains("refused before policy").then_some(()));
    assert!(
        browser.text("#rehearsal").contains("missing required property"),
        "{}",
        browser.text("#rehearsal")
    );
    drop(browser);
    daemon.stop();
    assert_eq!(spy.calls(), 0, "nothing was sent");
    assert!(home.events("proposal.received").is_empty(), "nor recorded as a call");
}

#[test]
fn what_clients_read_first_is_shown_with_what_it_costs() {
    // SURF-50, SURF-54
    let (home, _spy, daemon) = with_spy("200ms", "", "");
    eventually("the list to be on record", || home.events("surface.compiled").pop());
    let mut browser = Browser::at(&daemon);
    browser.goto("/surface");
    browser.log_in("alice", PASSPHRASE);
    browser.wait("#budget");
    let page = browser.text("main");
    for words in ["tokens", "passthrough", "gateway", "spy__echo"] {
        assert!(page.contains(words), "{words} in {page}");
    }
    assert!(browser.text("#instructions .head").len() > 100, "{}", browser.text("#instructions"));
    // By server and tool, what making it fit would save, what is published otherwise, and how it came to be so.
    assert!(browser.text("#servers").contains("Description"), "{}", browser.text("#servers"));
    assert!(browser.text("#ladder").contains("without output schemas"), "{}", browser.text("#ladder"));
    assert!(browser.text("#published").contains("otherwise than they were accepted"), "{page}");
    assert!(browser.text("#history").contains("bytes"), "{page}");
    browser.inspect("surface");
    browser.goto("/surface?profile=claude-code&mode=gateway");
    browser.wait("#budget");
    assert_eq!(browser.goto("/surface?profile=nobody"), 400);
    drop(browser);
    daemon.stop();
}

#[test]
fn rules_are_tried_before_they_are_in_force() {
    // GOV-801
    let (home, _spy, daemon) = with_spy("20s", "", "");
    daemon.approved_call(&home, "spy__echo", &json!({"text": "asked about"})).unwrap();
    let mut browser = Browser::at(&daemon);
    browser.goto("/policy/draft");
    browser.log_in("alice", PASSPHRASE);
    browser.fill("#rules", "permit (nobody);");
    browser.click("button[value=try]");
    browser.wait("#tried .tag.bad");
    assert_eq!(browser.count("#apply"), 0, "what cannot be in force is not offered");
    browser.fill("#rules", r#"@id("mine/never") forbid (principal, action, resource);"#);
    browser.click("button[value=try]");
    browser.wait("#tried .tag.good");
    let tried = browser.text("#tried");
    assert!(tried.contains("otherwise about 1") && tried.contains("deny"), "{tried}");
    browser.inspect("policy-draft");
    assert!(home.events("policy.activated").iter().all(|event| event["data"]["reason"] != "enough"));
    browser.fill("#why", "enough");
    browser.click("button[value=apply]");
    browser.wait_url("/policy");
    eventually("the rule", || browser.text("main").contains("mine/never").then_some(()));
    let refused = daemon.call("spy__echo", &json!({"text": "x"})).unwrap();
    assert_eq!(refused["error"]["code"], -31021, "{refused}");
    drop(browser);
    daemon.stop();
    home.verify();
}

#[test]
fn evidence_is_opened_on_record_beside_what_the_model_saw() {
    // AUD-44
    let (home, spy, daemon) = with_spy("20s", "", "");
    let hostile = "raw <|im_start|> & more";
    let result =
        json!({"content": [{"type": "text", "text": hostile}], "structuredContent": {"text": hostile}});
    spy.control(&json!({"result": {"echo": result}}));
    daemon.approved_call(&home, "spy__echo", &json!({"text": "look at this"})).unwrap();
    let mut browser = Browser::at(&daemon);
    browser.goto("/calls");
    browser.log_in("alice", PASSPHRASE);
    browser.click("#calls tbody tr:first-child a");
    browser.wait("#open");
    browser.fill("#open input[name=reason]", "what came back");
    browser.click("#open button");
    browser.wait(".beside");
    let sent = browser.text("main > section");
    assert!(sent.contains("look at this"), "{sent}");
    let (raw, shown) =
        (browser.text(".beside section:first-child pre"), browser.text(".beside section:last-child pre"));
    assert_ne!(raw, shown);
    assert!(!shown.contains("<|im_start|>"), "{shown}");
    browser.inspect("evidence");

    browser.goto("/audit?event=execution.result");
    browser.wait("#records");
    assert_eq!(browser.count("#records tbody tr"), 1);
    browser.click("#records tbody a");
    browser.wait("#proof");
    assert!(browser.text("#proof").contains("signed root"));
    browser.inspect("record");
    browser.goto("/audit");
    assert!(browser.text("#checkpoint").contains("— portcullis/"), "signed by the log's own key");
    browser.fill("#exports input[name=reason]", "for the auditor");
    browser.click("#exports button");
    eventually("the export", || browser.text("#exports").contains("exports/op_").then_some(()));
    drop(browser);
    daemon.stop();
    let read = home.events("audit.evidence_read");
    assert_eq!((read.len(), &read[0]["data"]["reason"]), (1, &json!("what came back")));
    let exports = std::fs::read_dir(home.path().join("exports")).unwrap();
    let made: Vec<_> = exports.map(|entry| entry.unwrap().path()).collect();
    assert!(made.len() == 1 && made[0].join("checkpoint").is_file(), "{made:?}");
    home.verify();
}

#[test]
fn a_draft_is_seen_with_what_it_means_and_accepted_with_one_click() {
    // GOV-1403
    let (home, spy, daemon) = with_spy("20s", "", "");
    let (program, folder) = (spy.executable.to_str().unwrap(), spy.workspace.to_str().unwrap());
    // The log is in its cage's own folder for temporary files.
    home.json(&["mcp", "draft", "twin", "--", program, "--log", "/tmp/spy.log", "--folder", folder]);
    let mut browser = Browser::at(&daemon);
    browser.goto("/servers");
    browser.log_in("alice", PASSPHRASE);
    browser.wait("#draft-twin");
    let card = browser.text("#draft-twin");
    assert!(card.contains("echo") && card.contains("Could touch"), "{card}");
    browser.inspect("draft");
    browser.fill("#draft-twin input[name=reason]", "wanted");
    browser.click("#draft-twin button");
    browser.wait_url("/servers/twin");
    browser.wait("#scopes");
    browser.fill("#test input[name=reason]", "is it well?");
    browser.click("#test button");
    browser.wait("#test .tag.good");
    browser.goto("/servers");
    assert_eq!(browser.count("#draft-twin"), 0, "it is registered now");
    drop(browser);
    daemon.stop();
    assert_eq!(home.events("server.registered").len(), 2);
    home.verify();
}
