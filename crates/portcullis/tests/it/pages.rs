//! Pages that servers want visited before they go on (PRO-70): shown to whom a client works for, never opened here.

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::support::{Daemon, Home, Operator, Spy, eventually, open_home};

const ASKS: &str = "server_requests: [elicitation]";
const URL: &str = "https://login.example/start?client=spy&state=1%202#here";

fn wanting(revision: &str, declared: &str) -> (Home, Spy) {
    let home = open_home();
    let spy = Spy::speaking(&home, "spy", revision);
    spy.register_with(&home, declared);
    (home, spy)
}

fn page(url: &str) -> Value {
    json!({"mode": "url", "elicitationId": "e-1", "url": url, "message": "Log in <first>."})
}

fn wants(spy: &Spy, pages: &Value) {
    let error = json!({"code": -32042, "message": "a login is needed", "data": {"elicitations": pages}});
    spy.control(&json!({"error": {"echo": error}}));
}

fn echo() -> Value {
    json!({"name": "spy__echo", "arguments": {"text": "x"}})
}

/// Has the tool approved for good by somebody who cannot be shown where that is decided.
fn approve(daemon: &Daemon, spy: &Spy) {
    spy.control(&json!({}));
    let answer = Agent::open(daemon, "2025-11-25").ask("tools/call", echo());
    assert_eq!(answer["result"]["structuredContent"]["text"], "x", "{answer}");
}

/// The records about questions.
fn about_questions(home: &Home, event: &str) -> usize {
    let is = |record: &Value| record["tool_id"].as_str().is_some_and(|id| id.contains("/request:"));
    home.events(event).iter().filter(|record| is(record)).count()
}

#[test]
fn a_modern_client_is_given_the_page_and_the_call_is_made_again_as_it_was() {
    // PRO-70, PRO §3
    let (home, spy) = wanting("2025-11-25", ASKS);
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    approve(&daemon, &spy);
    wants(&spy, &json!([page(URL)]));
    let agent = Agent::able(&daemon, "2026-07-28", json!({"elicitation": {"url": {}}}));
    let asked = agent.ask("tools/call", echo());
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let questions = asked["result"]["inputRequests"].as_object().unwrap();
    let (key, question) = questions.iter().next().unwrap();
    assert_eq!((questions.len(), &question["method"]), (1, &json!("elicitation/create")));
    let params = &question["params"];
    assert_eq!(
        (&params["mode"], &params["url"]),
        (&json!("url"), &json!(URL)),
        "as it was written: {params}"
    );
    assert_eq!(params["message"], "Server 'spy' asks: Log in &lt;first&gt;.");
    let again = |answers: Value| {
        let mut params = echo();
        params["requestState"] = asked["result"]["requestState"].clone();
        params["inputResponses"] = answers;
        agent.ask("tools/call", params)
    };
    let calls = spy.calls();
    // Whoever does not want to open it does not want the call; whoever says nothing is asked again.
    let declined = again(json!({key: {"action": "decline"}}));
    assert_eq!(declined["result"]["structuredContent"]["details"]["code"], "declined", "{declined}");
    assert_eq!(again(json!({}))["result"]["resultType"], "input_required");
    assert_eq!(spy.calls(), calls, "neither reached the server");
    spy.control(&json!({}));
    let done = again(json!({key: {"action": "accept"}}));
    assert_eq!(done["result"]["structuredContent"]["text"], "x", "{done}");
    let frames = spy.frames("tools/call");
    assert!(frames.iter().all(|frame| !frame.contains("inputResponses") && !frame.contains("requestState")));
    let arguments =
        |frame: &String| serde_json::from_str::<Value>(frame).unwrap()["params"]["arguments"].clone();
    assert_eq!(arguments(&frames[0]), arguments(frames.last().unwrap()));
    drop(operator);
    daemon.stop();
    assert_eq!(about_questions(&home, "permit.validated"), 1, "the page was permitted before it was shown");
    home.verify();
}

#[test]
fn a_server_that_is_never_satisfied_is_not_asked_for_ever() {
    // GOV-408, PRO-70
    let (home, spy) = wanting("2025-11-25", ASKS);
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    approve(&daemon, &spy);
    wants(&spy, &json!([page(URL)]));
    let agent = Agent::able(&daemon, "2026-07-28", json!({"elicitation": {"url": {}}}));
    let mut params = echo();
    let mut rounds = 0;
    let refused = loop {
        assert!(rounds < 10, "it never ends");
        let answer = agent.ask("tools/call", params.clone());
        if answer["result"]["resultType"] != "input_required" {
            break answer;
        }
        rounds += 1;
        params["requestState"] = answer["result"]["requestState"].clone();
        params["inputResponses"] = json!({"page0": {"action": "accept"}});
    };
    assert_eq!((rounds, spy.calls()), (4, 1 + 5), "{refused}");
    assert!(refused.to_string().contains("more often than is allowed"), "{refused}");
}

#[test]
fn a_legacy_client_that_opens_links_hears_it_in_its_own_words_and_others_are_told() {
    // PRO-70, PRO-63
    let (home, spy) = wanting("2025-11-25", ASKS);
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    approve(&daemon, &spy);
    wants(&spy, &json!([page(URL)]));
    let able = Agent::able(&daemon, "2025-11-25", json!({"elicitation": {"form": {}, "url": {}}}));
    let told = able.ask("tools/call", echo());
    assert_eq!(told["error"]["code"], -32042, "{told}");
    let pages = told["error"]["data"]["elicitations"].as_array().unwrap();
    assert_eq!((pages.len(), &pages[0]["url"], &pages[0]["elicitationId"]), (1, &json!(URL), &json!("e-1")));
    assert_eq!(pages[0]["message"], "Server 'spy' asks: Log in &lt;first&gt;.");
    assert!(told["error"]["data"]["io.portcullis/call"].is_object(), "{told}");
    for (revision, said) in [("2025-06-18", json!({"elicitation": {}})), ("2024-11-05", json!({}))] {
        let refused = Agent::able(&daemon, revision, said).ask("tools/call", echo());
        let document = &refused["result"]["structuredContent"];
        assert_eq!(document["error"], "UPSTREAM_ERROR", "{revision}: {refused}");
        assert_eq!(document["details"]["rpc_code"], -32042, "{revision}: {refused}");
        assert!(!refused.to_string().contains("login.example"), "{revision}: {refused}");
    }
    let unable = Agent::able(&daemon, "2026-07-28", json!({"elicitation": {}})).begin("tools/call", echo());
    assert_eq!(unable.status, 400);
    let unable = unable.last().unwrap();
    assert_eq!(unable["error"]["code"], -32021, "{unable}");
    assert_eq!(unable["error"]["data"]["requiredCapabilities"], json!({"elicitation": {"url": {}}}));
    drop(operator);
    daemon.stop();
    assert_eq!(
        (spy.calls(), about_questions(&home, "permit.validated")),
        (1 + 4, 1),
        "one client could be asked"
    );
    home.verify();
}

#[test]
fn a_page_that_nobody_declared_or_that_cannot_be_shown_is_refused() {
    // PRO-70, GOV-408, MP-FH-005, T-PRO-6
    let (home, spy) = wanting("2025-11-25", ASKS);
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    approve(&daemon, &spy);
    let able = json!({"elicitation": {"url": {}}});
    let agent = Agent::able(&daemon, "2026-07-28", able.clone());
    for pages in [
        json!([page("javascript:alert(1)")]),
        json!([page("file:///etc/passwd")]),
        json!([page("https://good.example@evil.example/")]),
        json!([page("https://a.example/__system__")]),
        json!([]),
        json!([{"mode": "form", "message": "m", "requestedSchema": {"type": "object", "properties": {}}}]),
        json!([page(URL), page(URL), page(URL), page(URL), page(URL)]),
    ] {
        wants(&spy, &pages);
        let refused = agent.ask("tools/call", echo());
        assert_eq!(refused["result"]["structuredContent"]["error"], "UPSTREAM_ERROR", "{pages}: {refused}");
    }
    drop(operator);
    daemon.stop();
    assert_eq!(about_questions(&home, "permit.issued"), 0);

    let (home, spy) = wanting("2025-11-25", "");
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    approve(&daemon, &spy);
    wants(&spy, &json!([page(URL)]));
    let refused = Agent::able(&daemon, "2026-07-28", able).ask("tools/call", echo());
    assert_eq!(refused["error"]["data"]["details"]["code"], "MP-FH-005", "{refused}");
    assert!(!refused.to_string().contains("login.example"), "{refused}");
    eventually("the halt", || (home.json(&["mcp", "show", "spy"])["state"] == "halted").then_some(()));
}

#[test]
fn the_address_of_a_modern_servers_page_reaches_the_client_as_it_was_written() {
    // PRO §3, PRO §4: an escaped address leads somewhere else
    let home = open_home();
    let spy = Spy::speaking(&home, "spy", "2026-07-28");
    spy.register_with(&home, ASKS);
    let asks = json!({
        "resultType": "input_required", "requestState": "s",
        "inputRequests": {"q": {"method": "elicitation/create", "params": page(URL)}},
    });
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    approve(&daemon, &spy);
    spy.control(&json!({"result": {"echo": asks}}));
    let modern = Agent::able(&daemon, "2026-07-28", json!({"elicitation": {"url": {}}}));
    let asked = modern.ask("tools/call", echo());
    assert_eq!(asked["result"]["inputRequests"]["q"]["params"]["url"], URL, "{asked}");
    let legacy = Agent::able(&daemon, "2025-11-25", json!({"elicitation": {"url": {}}}));
    let mut stream = legacy.begin("tools/call", echo());
    let question = stream.next().unwrap();
    assert_eq!(
        (&question["method"], &question["params"]["url"]),
        (&json!("elicitation/create"), &json!(URL))
    );
}
