//! Approvals decided in the console, with scripts and without; each with a real call of an agent waiting (GOV §9).

use serde_json::{Value, json};

use super::browser::Browser;
use super::client::Client;
use super::{PASSPHRASE, with_spy};
use crate::approvals::enrol;
use crate::support::{Daemon, eventually, exchange, modern_meta};

/// Two operators for everything.
const TWO: &str = r#"@id("mine/two") forbid (principal, action == Portcullis::Action::"invoke", resource)
    when { context.approval.scope != "none" && context.approval.approvers < 2 };"#;

/// An agent calls while operators do something.
fn while_calling<T>(
    daemon: &Daemon,
    tool: &str,
    arguments: &Value,
    operate: impl FnOnce() -> T,
) -> (Value, T) {
    std::thread::scope(|scope| {
        let call = scope.spawn(|| daemon.call(tool, arguments).unwrap());
        let done = operate();
        (call.join().unwrap(), done)
    })
}

fn error_of(response: &Value) -> &str {
    response["error"]["data"]["error"].as_str().unwrap_or_default()
}

#[test]
fn a_link_and_a_form_are_enough_to_approve_and_to_deny() {
    // GOV-902, GOV-903: no scripts at all.
    let (home, _spy, daemon) = with_spy("20s", "", "");
    let mut alice = Client::new(&daemon);
    let arguments = json!({"text": "pay\u{202e}<script>alert(1)</script>e\u{301}"});
    let (answer, ()) = while_calling(&daemon, "spy__echo", &arguments, || {
        let id = home.next_pending()["approval_id"].as_str().unwrap().to_owned();
        let link = format!("/approvals/{id}");
        assert_eq!(alice.get(&link).header("location"), Some(&*format!("/login?next=%2Fapprovals%2F{id}")));
        let begun = alice.post("/login", &[("name", "alice"), ("passphrase", PASSPHRASE), ("next", &link)]);
        assert_eq!(begun.header("location"), Some(&*link));
        let page = alice.get(&link).body;
        // What the agent wrote is text, and none of it is hidden.
        assert!(page.contains("&#60;script&#62;") && !page.contains("<script>alert"), "{page}");
        assert!(page.contains(r"\u{202e}</mark>") && page.contains(r"\u{301}</mark>"), "{page}");
        for fact in ["spy/echo@1.0.0#", "untrusted", "agent:local", "exactly these arguments, one time"] {
            assert!(page.contains(fact), "{fact} in {page}");
        }
        let form = [
            ("csrf", &*alice.token()),
            ("scope", "once"),
            ("reason", "looks odd, is fine"),
            ("seen", &field(&page, "seen")),
            ("from", "card"),
        ];
        let mut forged = form;
        forged[3].1 = "0000000000000000000000000000000000000000000000000000000000000000";
        assert_eq!(alice.post(&format!("{link}/approve"), &forged).status, 409, "not what was shown");
        assert_eq!(alice.post(&format!("{link}/approve"), &form).header("location"), Some(&*link));
        let page = alice.get(&link).body;
        assert!(
            page.contains("<strong>alice</strong> approved it at") && page.contains("looks odd, is fine"),
            "{page}"
        );
        assert_eq!(alice.post(&format!("{link}/approve"), &form).status, 409, "decided is decided");
    });
    assert!(answer["result"].is_object(), "{answer}");

    let (answer, ()) = while_calling(&daemon, "spy__echo", &json!({"text": "no"}), || {
        let id = home.next_pending()["approval_id"].as_str().unwrap().to_owned();
        let token = alice.token();
        let path = format!("/approvals/{id}/deny");
        assert!(alice.post(&path, &[("csrf", &token), ("reason", " ")]).status >= 400, "no reason");
        let denied = alice.post(&path, &[("csrf", &token), ("reason", "not today")]);
        assert_eq!(denied.header("location"), Some(&*format!("/approvals?decided={id}")));
        assert!(alice.get(&format!("/approvals?decided={id}")).body.contains("not today"));
    });
    assert_eq!(error_of(&answer), "POLICY_DENIED", "{answer}");
    daemon.stop();
    let recorded = home.events("approval.recorded");
    assert_eq!(recorded.len(), 2);
    assert!(home.events("admin.op_executed").len() >= 2, "through the admin tools");
    home.verify();
}

/// An admin tool, asked by a page (ADM-2).
fn admin_over_http(client: &Client, token: &str) -> u16 {
    let cookie = client.cookie.clone().unwrap();
    let headers = [("Cookie", &*cookie), ("X-CSRF-Token", token), ("Content-Type", "application/json")];
    let path = "/api/admin/portcullis_approvals_list";
    exchange(&client.address, "POST", path, &headers, "{}").unwrap().status
}

/// The value of a hidden field.
fn field(page: &str, name: &str) -> String {
    let (_, rest) = page.split_once(&format!("name=\"{name}\" value=\"")).expect("a field");
    rest.split('"').next().unwrap().to_owned()
}

#[test]
fn an_operator_sees_a_call_come_in_and_approves_it_by_keyboard() {
    let (home, _spy, daemon) = with_spy("20s", "", "");
    let mut browser = Browser::at(&daemon);
    browser.goto("/approvals");
    browser.inspect("login");
    browser.log_in("alice", PASSPHRASE);
    browser.wait("#nothing");
    browser.wait("[data-connected]");
    browser.act("mark", json!({}));
    let (answer, ()) = while_calling(&daemon, "spy__echo", &json!({"text": "hello \u{200b}there"}), || {
        // Without a reload.
        browser.wait("article.approval");
        browser.inspect("approvals");
        assert!(browser.text("#waiting").starts_with('1'));
        assert_eq!(browser.act("marked", json!({})), true, "the page was reloaded");
        browser.press("a");
        assert_eq!(browser.act("focused", json!({})), "reason");
        browser.type_text("asked for it");
        browser.press("Enter");
        browser.wait("#decided");
    });
    assert!(answer["result"].is_object(), "{answer}");
    browser.wait("#settled .tag.good");
    assert!(browser.text("#settled").contains("asked for it"));
    assert_eq!(browser.count("article.approval"), 0, "nothing waits any more");

    let (answer, ()) = while_calling(&daemon, "spy__echo", &json!({"text": "again"}), || {
        browser.wait("article.approval");
        browser.press("d");
        browser.type_text("enough");
        browser.press("Enter");
        browser.wait("#decided.problem");
    });
    assert_eq!(error_of(&answer), "POLICY_DENIED", "{answer}");
    browser.inspect("decided");
    drop(browser);
    daemon.stop();
    home.verify();
}

#[test]
fn what_changes_things_is_asked_twice_and_a_quorum_takes_two_people() {
    // GOV-902, GOV-905
    let (home, spy, daemon) = with_spy("20s", "[admin]\nfounders = [\"alice\", \"bob\"]\n", TWO);
    enrol(&home, "bob", "another good passphrase");
    let mut alice = Browser::at(&daemon);
    let mut bob = Browser::without_scripts(&daemon);
    for (browser, name, passphrase) in
        [(&mut alice, "alice", PASSPHRASE), (&mut bob, "bob", "another good passphrase")]
    {
        browser.goto("/approvals");
        browser.log_in(name, passphrase);
    }
    alice.wait("[data-connected]");
    let (answer, ()) = while_calling(
        &daemon,
        "spy__write_thing",
        &json!({"path": spy.workspace.join("a.txt"), "text": "x"}),
        || {
            alice.wait("article.approval");
            alice.press("a");
            alice.type_text("needed");
            alice.press("Enter");
            alice.wait("[data-key=y]");
            alice.inspect("sure");
            alice.press("y");
            alice.wait("#decided");
            assert!(alice.text("#decided").contains("another operator must approve it too"));
            assert!(alice.text("article.approval").contains("You have decided"));
            alice.inspect("quorum");
            bob.goto("/approvals");
            assert!(bob.text("article.approval").contains("Approved by alice"));
            bob.fill("article.approval form[action$=approve] input[name=reason]", "I agree");
            bob.click("article.approval form[action$=approve] button");
            bob.wait("[data-key=y]");
            bob.click("[data-key=y]");
            bob.wait("#decided");
            // And alice sees it without doing anything.
            alice.gone("article.approval");
            assert!(alice.text("#settled").contains("bob"));
        },
    );
    assert!(answer["result"].is_object(), "{answer}");
    drop((alice, bob));
    daemon.stop();
    home.verify();
}

#[test]
fn a_session_that_ends_leads_to_the_login_and_back() {
    let (_home, _spy, daemon) = with_spy("20s", "session_idle = \"1500ms\"\n", "");
    let mut browser = Browser::at(&daemon);
    browser.goto("/approvals");
    browser.log_in("alice", PASSPHRASE);
    browser.wait("[data-connected]");
    // An open page does not keep its session alive, and says so by itself.
    browser.wait_url("/login?next=%2Fapprovals");
    browser.log_in("alice", PASSPHRASE);
    browser.wait_url("/approvals");
    drop(browser);
    daemon.stop();
}

#[test]
fn agents_are_told_where_to_decide_and_those_that_can_show_it() {
    // GOV-903
    let (home, _spy, daemon) = with_spy("300ms", "", "");
    let refused = daemon.call("spy__echo", &json!({"text": "x"})).unwrap();
    let id = home.next_pending()["approval_id"].as_str().unwrap().to_owned();
    let link = format!("{}/approvals/{id}", daemon.console);
    assert_eq!(refused["error"]["data"]["details"]["url"], json!(link), "{refused}");

    // A modern client that opens links is asked to, by ending the call; coming back decides nothing.
    let ask = |state: &Value, answers: &Value| {
        let mut meta = modern_meta();
        meta["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {"url": {}}});
        let mut params = json!({"name": "spy__echo", "arguments": {"text": "y"}, "_meta": meta});
        if !state.is_null() {
            params["requestState"] = state.clone();
            params["inputResponses"] = answers.clone();
        }
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let headers =
            [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "spy__echo")];
        daemon.post(&headers, &body).unwrap().json()
    };
    let shown = ask(&Value::Null, &Value::Null);
    let result = &shown["result"];
    assert_eq!(result["resultType"], "input_required", "{shown}");
    let (key, question) = result["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(
        (&question["method"], &question["params"]["mode"]),
        (&json!("elicitation/create"), &json!("url"))
    );
    let url = question["params"]["url"].as_str().unwrap();
    assert!(url.starts_with(&format!("{}/approvals/", daemon.console)), "{url}");
    let accepted = json!({ key: {"action": "accept"} });
    let still = ask(&result["requestState"], &accepted);
    assert_eq!(error_of(&still), "AUTH_REQUIRED", "an answer of the client is no approval: {still}");

    // Decided while the client was away: the call goes on when it comes back.
    let shown = ask(&Value::Null, &Value::Null);
    let (key, question) = shown["result"]["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let path = question["params"]["url"].as_str().unwrap().trim_start_matches(&daemon.console).to_owned();
    let mut alice = Client::new(&daemon);
    alice.log_in("alice", PASSPHRASE);
    let page = alice.get(&path).body;
    let token = alice.token();
    assert_eq!(admin_over_http(&alice, &token), 200);
    assert_eq!(admin_over_http(&alice, "0"), 401, "not of this session");
    let form = [("csrf", &*token), ("scope", "once"), ("reason", "seen"), ("seen", &field(&page, "seen"))];
    assert_eq!(alice.post(&format!("{path}/approve"), &form).status, 303);
    let answer = ask(&shown["result"]["requestState"], &json!({ key: {"action": "accept"} }));
    assert!(answer["result"]["content"].is_array(), "{answer}");
    eventually("it to be used", || alice.get(&path).body.contains("approved and used").then_some(()));
    daemon.stop();
    home.verify();
}

#[test]
fn a_client_of_2025_is_shown_the_way_beside_its_call() {
    // GOV-903, T-APR-1: by a request of its own, on the stream of the call; nobody answers, and nothing is approved.
    let (home, spy, daemon) = with_spy("1500ms", "", "");
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {"url": {}}},
        "clientInfo": {"name": "opener", "version": "1"}}});
    let opened = daemon.post(&[], &hello).unwrap();
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    let headers = [("Mcp-Session-Id", session.as_str()), ("MCP-Protocol-Version", "2025-11-25")];
    daemon.post(&headers, &json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).unwrap();
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "spy__echo", "arguments": {"text": "x"}}});
    let reply = daemon.post(&headers, &call).unwrap();
    let messages = reply.body.lines().filter_map(|line| line.strip_prefix("data:"));
    let mut messages = messages.filter_map(|text| serde_json::from_str::<Value>(text).ok());
    let question = messages.find(|message| message["method"] == "elicitation/create");
    let question = question.unwrap_or_else(|| panic!("{}", reply.body));
    let id = home.next_pending()["approval_id"].as_str().unwrap().to_owned();
    assert_eq!(question["params"]["mode"], "url", "{question}");
    assert_eq!(question["params"]["url"], format!("{}/approvals/{id}", daemon.console));
    assert_eq!(error_of(&reply.json()), "AUTH_REQUIRED");
    daemon.stop();
    assert_eq!(spy.calls(), 0);
    home.verify();
}
