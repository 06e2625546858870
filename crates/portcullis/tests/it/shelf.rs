//! The catalogue and its meta-tools against real servers: pages, loops, versions, refreshes, hidden tools, results and defects.

use portcullis_core::tokens::Encoding;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::support::{Daemon, Home, Operator, Spy, eventually};

/// A gateway whose clients search; every tool is called through what they find.
fn searching(more: &str) -> Home {
    Home::new(&format!("[policy]\npreset = \"observe\"\n[exposure]\nmode = \"gateway\"\n{more}"))
}

fn browser(daemon: &Daemon) -> Agent {
    Agent::open(daemon, "2026-07-28")
}

fn text(response: &Value) -> String {
    response["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{response}")).to_owned()
}

fn browse(agent: &Agent, arguments: Value) -> String {
    text(&agent.call("tool_browse", arguments))
}

fn execute(agent: &Agent, id: &str, args: Value) -> Value {
    agent.call("tool_execute", json!({"tool_id": id, "args": args}))
}

fn refusal(response: &Value) -> Value {
    assert_eq!(response["result"]["isError"], true, "{response}");
    serde_json::from_str(&text(response)).unwrap()
}

/// The ids on the cards of an answer.
fn ids(answer: &str) -> Vec<String> {
    let cards = answer.lines().filter(|line| line.contains("] — "));
    cards.map(|line| line.split('(').next().unwrap().to_owned()).collect()
}

/// So many tools, each of which says its number.
fn numbered(count: usize) -> Vec<Value> {
    let tool = |n: usize| {
        let word = ["amber", "birch", "cedar", "delta", "ember", "fjord"][n % 6];
        json!({"name": format!("{word}_report_{n}"), "description": format!("Report number {n} of the {word} desk"), "inputSchema": {"type": "object", "additionalProperties": false}})
    };
    (0..count).map(tool).collect()
}

/// Every id that paging through a path shows.
fn all_below(agent: &Agent, path: &str) -> Vec<String> {
    let (mut found, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let mut arguments = json!({"path": path, "top_k": 50});
        if let Some(cursor) = &cursor {
            arguments["cursor"] = json!(cursor);
        }
        let answer = browse(agent, arguments);
        found.extend(ids(&answer));
        for line in answer.lines().filter(|line| line.starts_with(path) && line.contains("/ (")) {
            found.extend(all_below(agent, line.split("/ (").next().unwrap()));
        }
        cursor = answer.lines().find_map(|line| line.strip_prefix("more: cursor=")).map(ToOwned::to_owned);
        if cursor.is_none() {
            return found;
        }
    }
}

#[test]
fn every_page_is_read_and_a_listing_that_goes_in_circles_changes_nothing() {
    // T-CAT-4, T-CTX-10, CAT-40
    let home = searching("");
    let spy = Spy::new(&home);
    let tools = numbered(20);
    spy.offers(&home, &tools, &json!({"pages": 2}));
    let daemon = home.serve();
    let agent = browser(&daemon);
    assert_eq!(home.json(&["catalog", "refresh"])["registered"], 20);
    let found = all_below(&agent, "/");
    assert_eq!(found.len(), 20, "{found:?}");
    // From now on every page names the same next page.
    spy.control(&json!({"catalogue": tools, "pages": 2, "cursor_loop": true, "list_changed": true}));
    let tested = home.run(&["--output", "json", "mcp", "test", "spy"]);
    assert!(!tested.status.success(), "{tested:?}");
    assert_eq!(all_below(&agent, "/"), found, "the old items stay");
    daemon.stop();
}

#[test]
fn looking_twice_and_hearing_of_changes_gives_the_same_items_and_what_is_hidden_is_not_there() {
    // T-CAT-5, T-CTX-1: two servers with sixty tools, fifteen of which an agent is not shown.
    let home = searching("[catalog.filter.left]\nexclude = [\"cedar_*\", \"delta_*\", \"ember_*\"]\n");
    let (left, right) =
        (Spy::speaking(&home, "left", "2025-11-25"), Spy::speaking(&home, "right", "2026-07-28"));
    let tools = numbered(30);
    left.offers(&home, &tools, &json!({}));
    right.offers(&home, &tools, &json!({}));
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = browser(&daemon);
    for _ in 0..2 {
        assert_eq!(home.json(&["catalog", "refresh"])["registered"], 60);
        assert_eq!(all_below(&agent, "/").len(), 45);
    }
    // A call connects both; then each says that its list changed, though it did not.
    for spy in [&left, &right] {
        let mut id = ids(&browse(&agent, json!({"query": "amber_report_0"})));
        id.retain(|id| id.contains(":amber_report_0#"));
        assert_eq!(id.len(), 2, "both have it: {id:?}");
        for id in id {
            assert!(execute(&agent, &id, json!({}))["result"]["content"].is_array());
        }
        spy.control(&json!({"catalogue": tools, "list_changed": 5}));
    }
    eventually("both to be looked at again", || {
        let again = |spy: &Spy| spy.frames("tools/list").len() > 1;
        (again(&left) && again(&right)).then_some(())
    });
    assert_eq!(home.json(&["catalog", "refresh"])["registered"], 60);
    assert_eq!(all_below(&agent, "/").len(), 45);
    // What is hidden is as unknown as what never was.
    let [hidden, never] = ["cedar:cedar_report_2", "cedar:cedar_report_9"].map(|id| {
        let document = refusal(&execute(&agent, id, json!({})));
        (document["error"].clone(), document["message"].as_str().unwrap().replace(id, "ID"))
    });
    assert_eq!(hidden.0, "HYDRATE_FAILED");
    assert_eq!(hidden, never);
    daemon.stop();
    home.verify();
}

#[test]
fn looking_is_limited_like_calling_and_a_rehearsal_says_what_is_left() {
    // CTX-93, CTX-73, T-CTX-18
    let home =
        searching("[calls.limits]\ncalls_per_session = 4\n[calls.limits.tools]\n\"tool_browse\" = 2\n");
    let spy = Spy::new(&home);
    spy.offers(&home, &numbered(2), &json!({}));
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    let look = || agent.call("tool_browse", json!({"query": "amber_report_0"}));
    let id = ids(&text(&look())).swap_remove(0);
    look();
    let refused = refusal(&look());
    assert_eq!((&refused["error"], &refused["details"]["scope"]), (&json!("RATE_LIMITED"), &json!("tool")));
    let rehearse = || {
        let answer = agent.call("tool_execute", json!({"tool_id": id, "args": {}, "dry_run": true}));
        serde_json::from_str::<Value>(&text(&answer)).unwrap()
    };
    let check = |report: &Value| report["checks"].as_array().unwrap()[1].clone();
    // However often it is rehearsed, nothing is used up.
    for _ in 0..3 {
        assert_eq!(check(&rehearse()), json!({"name": "rate_limit", "status": "pass"}));
    }
    for _ in 0..2 {
        assert!(execute(&agent, &id, json!({}))["result"]["content"].is_array());
    }
    assert_eq!(check(&rehearse()), json!({"name": "rate_limit", "status": "limited"}));
    assert_eq!(refusal(&execute(&agent, &id, json!({})))["details"]["scope"], "calls_per_session");
    drop(operator);
    daemon.stop();
    assert_eq!(spy.calls(), 2);
}

#[test]
fn a_server_that_is_updated_keeps_its_ids_and_no_later_one_gets_them() {
    // CAT-26, T-CAT-7
    let home = searching("");
    let (elder, younger) =
        (Spy::speaking(&home, "elder", "2025-11-25"), Spy::speaking(&home, "younger", "2025-11-25"));
    let tools = numbered(1);
    elder.offers(&home, &tools, &json!({}));
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let agent = browser(&daemon);
    let found = || ids(&browse(&agent, json!({"query": "amber_report_0"})));
    let alone = found();
    assert_eq!(alone.len(), 1, "{alone:?}");
    younger.offers(&home, &tools, &json!({}));
    let both = found();
    assert!(both.len() == 2 && both.contains(&alone[0]), "{both:?}");
    let mut update = elder.add_args(&home.beside("elder.yaml"));
    update[1] = "update".into();
    home.json(&update.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(found(), both);
    assert!(execute(&agent, &alone[0], json!({}))["result"]["content"].is_array());
    assert_eq!((elder.calls(), younger.calls()), (1, 0));
    drop(operator);
    daemon.stop();
}

#[test]
fn a_thousand_tools_are_reached_by_path_each_exactly_once_and_a_version_is_part_of_its_id() {
    // T-CTX-8, T-CAT-11, T-CAT-8, T-CTX-10, CAT-21
    let home = searching("");
    // A declaration has room for some hundred tools, so there are four servers.
    for number in 0..4 {
        let spy = Spy::speaking(&home, &format!("desk-{number}"), "2025-11-25");
        let mut tools = numbered(if number == 0 { 249 } else { 250 });
        if number == 0 {
            tools.push(json!({
                "name": "versioned", "description": "Has a version", "_meta": {"version": "1.4.0"},
                "inputSchema": {"type": "object", "additionalProperties": false},
            }));
        }
        spy.offers(&home, &tools, &json!({"pages": 3}));
    }
    let daemon = home.serve();
    let agent = browser(&daemon);
    let root = browse(&agent, json!({"path": "/"}));
    assert!(root.starts_with('/') && !root.contains("] — "), "namespaces, not tools: {root}");
    let mut found = all_below(&agent, "/");
    assert!(found.iter().any(|id| id.ends_with(":versioned@1.4.0")), "{found:?}");
    found.sort();
    let reached = found.len();
    found.dedup();
    assert_eq!((reached, found.len()), (1000, 1000));
    daemon.stop();
}

#[test]
fn arguments_and_results_are_held_to_their_schemas_behind_a_meta_tool_too() {
    // T-CTX-16, T-CTX-17
    let home = searching("");
    let spy = Spy::new(&home);
    spy.register(&home);
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = browser(&daemon);
    let wrong = refusal(&execute(&agent, "spy__echo", json!({"text": 7})));
    assert_eq!(
        (&wrong["error"], &wrong["details"]["violations"][0]["pointer"]),
        (&json!("ARGS_INVALID"), &json!("/text"))
    );
    assert!(wrong["details"]["schema"]["properties"].is_object(), "{wrong}");
    assert_eq!(spy.calls(), 0, "the server saw nothing");
    spy.control(&json!({"bad_output": true}));
    let response = execute(&agent, "spy__echo", json!({"text": "canary-7f3a"}));
    let bad = refusal(&response);
    assert_eq!(
        (&bad["error"], &bad["details"]["code"]),
        (&json!("POLICY_DENIED"), &json!("MP-FH-003")),
        "{bad}"
    );
    assert!(!response.to_string().contains("canary-7f3a"), "nothing of it is released: {response}");
    assert_eq!(spy.calls(), 1);
    daemon.stop();
    home.verify();
}

#[test]
fn a_tool_that_changes_while_its_approval_waits_is_not_called() {
    // T-CTX-24, CTX-94
    let home = Home::new("[approvals]\nwait = \"20s\"\n[exposure]\nmode = \"gateway\"\n");
    let spy = Spy::new(&home);
    spy.register(&home);
    let daemon = home.serve();
    let agent = browser(&daemon);
    let response = std::thread::scope(|scope| {
        let call = scope.spawn(|| execute(&agent, "spy__echo", json!({"text": "x"})));
        let pending = home.next_pending();
        spy.control(&json!({"description": {"echo": "Now it does something else"}}));
        assert_eq!(home.run(&["mcp", "test", "spy"]).status.code(), Some(7), "it drifted");
        // Whoever decides decides about a tool that is no longer there.
        let id = pending["approval_id"].as_str().unwrap();
        home.run(&["approve", "grant", id, "--scope", "once", "--reason", "test", "--yes"]);
        call.join().unwrap()
    });
    let refused = refusal(&response);
    let code = refused["error"].as_str().unwrap();
    assert!(["HYDRATE_FAILED", "POLICY_DENIED", "AUTH_REQUIRED"].contains(&code), "{refused}");
    assert_eq!(spy.calls(), 0);
    daemon.stop();
    home.verify();
}

#[test]
fn a_server_that_is_late_dies_and_comes_back_is_said_to_be_away_while_it_is() {
    // T-CTX-23, CTX-95: listed all the time, since what is listed was accepted and needs no server.
    let home = searching("");
    let spy = Spy::new(&home);
    spy.register(&home);
    let away = home.beside("spyd.away");
    // It is not there yet when the gateway starts.
    spy.control(&json!({"silent_discover": true, "silent_initialize": true}));
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = browser(&daemon);
    assert!(browse(&agent, json!({"query": "echo a text"})).contains(":echo#"));
    spy.control(&json!({}));
    let answered = |agent: &Agent| {
        let response = execute(agent, "spy__echo", json!({"text": "hello"}));
        response["result"]["isError"].as_bool().is_none_or(|failed| !failed).then_some(response)
    };
    eventually("the late server to answer", || answered(&agent));
    // It dies, and its program cannot be started.
    std::fs::rename(&spy.executable, &away).unwrap();
    for pid in spy.processes() {
        std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    }
    std::process::Command::new("pkill")
        .args(["-9", "-f", spy.executable.to_str().unwrap()])
        .status()
        .unwrap();
    eventually("the gateway to notice", || {
        let response = execute(&agent, "spy__echo", json!({"text": "hello"}));
        (response["result"]["isError"] == true).then_some(())
    });
    let answer = browse(&agent, json!({"query": "echo a text"}));
    assert!(answer.contains(":echo#"), "its tools stay listed: {answer}");
    std::fs::rename(&away, &spy.executable).unwrap();
    eventually("it to come back", || answered(&agent));
    daemon.stop();
    home.verify();
}

#[test]
fn what_is_over_a_tools_own_limit_is_not_read_to_its_end_and_what_is_below_is_said_in_short() {
    // T-CTX-25, CTX-5, CTX-40
    let home = searching("");
    let spy = Spy::new(&home);
    let declaration = spy.declaration().replace("max_response_bytes: 262144", "max_response_bytes: 16777216");
    assert_ne!(declaration, spy.declaration(), "the limit is in the declaration");
    spy.register_as(&home, &declaration);
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = browser(&daemon);
    let large = refusal(&execute(&agent, "spy__big", json!({"bytes": 17 << 20})));
    assert_eq!(
        (&large["error"], &large["details"]["executed"]),
        (&json!("RESULT_TOO_LARGE"), &json!(true)),
        "{large}"
    );
    let fits = execute(&agent, "spy__big", json!({"bytes": 15 << 20}));
    let envelope: Value = serde_json::from_str(&text(&fits)).unwrap();
    assert_eq!(envelope["status"], "ok", "{envelope}");
    let size = envelope["artifacts"][0]["size_bytes"].as_u64().unwrap();
    assert!(size >= 15 << 20, "{envelope}");
    assert!(fits.to_string().len() < 4_000, "said in short");
    daemon.stop();
    home.verify();
}

#[test]
fn a_defect_ends_one_call_and_no_other() {
    // T-CTX-31, CTX-80
    let home = searching("");
    let spy = Spy::new(&home);
    spy.register(&home);
    let daemon = home.serve_with("permit.after_issue=panic@2");
    let _operator = Operator::on_duty(&home);
    let agents: Vec<Agent> = (0..4).map(|_| browser(&daemon)).collect();
    // The first call has itself approved, so that the others need not wait for one another.
    assert!(execute(&agents[0], "spy__echo", json!({"text": "x"}))["result"]["content"].is_array());
    let responses: Vec<Value> = std::thread::scope(|scope| {
        let calls: Vec<_> = agents
            .iter()
            .map(|agent| scope.spawn(|| execute(agent, "spy__echo", json!({"text": "x"}))))
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let (failed, fine): (Vec<_>, Vec<_>) =
        responses.iter().partition(|response| response["result"]["isError"] == true);
    assert_eq!((failed.len(), fine.len()), (1, 3), "{responses:?}");
    let document = refusal(failed[0]);
    assert_eq!(document["error"], "INTERNAL");
    assert!(document["details"]["incident"].is_string(), "{document}");
    assert!(execute(&agents[0], "spy__echo", json!({"text": "x"}))["result"]["isError"] != true);
    daemon.stop();
    home.verify();
}

#[test]
fn what_gateway_mode_lists_is_the_same_bytes_after_every_start() {
    // T-CTX-30, CTX-71
    let home = searching("");
    Spy::new(&home).register(&home);
    let mut seen: Option<String> = None;
    for _ in 0..3 {
        let daemon = home.serve();
        let listed = browser(&daemon).result("tools/list", json!({}))["tools"].to_string();
        assert_eq!(*seen.get_or_insert(listed.clone()), listed);
        daemon.stop();
    }
    let tools: Vec<Value> = serde_json::from_str(&seen.unwrap()).unwrap();
    let three: Vec<&Value> =
        tools.iter().filter(|tool| tool["name"].as_str().unwrap().starts_with("tool_")).collect();
    assert_eq!(three.len(), 3);
    let bytes = serde_json::to_string(&three).unwrap();
    for encoding in [Encoding::Cl100k, Encoding::O200k] {
        let tokens = encoding.count(&bytes);
        assert!(tokens <= 450, "{tokens} tokens");
    }
}

#[test]
fn a_schema_that_refers_elsewhere_is_refused_and_nobody_is_asked_for_it() {
    // T-CTX-7, T-CAT-6, CAT-41
    let trap = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    trap.set_nonblocking(true).unwrap();
    let address = trap.local_addr().unwrap();
    let home = searching("");
    let spy = Spy::new(&home);
    let schema = json!({"type": "object", "properties": {"x": {"$ref": format!("http://{address}/x.json")}}});
    let tools = [json!({"name": "reaching", "description": "Reaches out", "inputSchema": schema})];
    spy.control(&json!({"catalogue": tools}));
    let file = home.beside("spy.yaml");
    std::fs::write(&file, spy.declaration_of(&tools)).unwrap();
    let args = spy.add_args(&file);
    let (code, error) = home.fails(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert_ne!(code, 0, "{error}");
    let daemon = home.serve();
    let unknown = refusal(&execute(&browser(&daemon), "spy:reaching", json!({"x": 1})));
    assert_eq!(unknown["error"], "HYDRATE_FAILED");
    daemon.stop();
    assert_eq!(trap.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "somebody asked");
}

#[test]
fn a_session_is_written_down_where_an_operator_wants_it_and_a_prompt_is_built_of_it() {
    // CTX-52
    let home = searching("[gateway]\nsession_log = \"on\"\n");
    let spy = Spy::new(&home);
    spy.register(&home);
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    execute(&agent, "spy__echo", json!({"text": "remember the portcullis"}));
    execute(&agent, "spy__echo", json!({"text": "AKIAIOSFODNN7EXAMPLE"}));
    refusal(&execute(&agent, "spy__echo", json!({"text": 7})));
    let session = home.json(&["session", "list"])[0]["session_id"].as_str().unwrap().to_owned();
    let exported = eventually("three calls to be written", || {
        let output = home.run(&["session", "export", &session]);
        let text = String::from_utf8(output.stdout).unwrap();
        (text.lines().count() == 6).then_some(text)
    });
    assert!(exported.contains("remember the portcullis") && exported.contains("ARGS_INVALID"), "{exported}");
    assert!(!exported.contains("AKIAIOSFODNN7EXAMPLE"), "no secret is written: {exported}");
    let file = home.path().join("sessions").join(format!("{session}.jsonl"));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let built = home.run(&[
        "context",
        "build",
        "--session",
        file.to_str().unwrap(),
        "--phase",
        "answer",
        "--query",
        "portcullis",
    ]);
    let prompt = String::from_utf8(built.stdout).unwrap();
    assert!(built.status.success() && prompt.contains("[TOOL RESULT]"), "{prompt}");
    daemon.stop();
    // Without being told to, nothing is written; and nothing is found of who never was.
    let (code, error) = home.fails(&["session", "export", "01ARZ3NDEKTSV4RRFFQ69G5FAV"]);
    assert_eq!((code, error["code"].as_str()), (8, Some("PATH_NOT_FOUND")), "{error}");
    let (code, _) = home.fails(&["session", "export", "../portcullis"]);
    assert_eq!(code, 7);
    let quiet = searching("");
    Spy::new(&quiet).register(&quiet);
    quiet.serve().stop();
    assert!(!quiet.path().join("sessions").exists());
}
