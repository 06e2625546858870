//! What passes beside an answer: progress, logs, cancellation, and questions of servers (PRO §3, PRO §4).

use serde_json::{Value, json};

use crate::agent::{Agent, REVISIONS};
use crate::support::{Home, Operator, Spy, eventually, open_home};

fn servers(requests: &str) -> (Home, Vec<Spy>) {
    let home = open_home();
    let spies = REVISIONS.map(|revision| {
        let spy = Spy::speaking(&home, &format!("spy-{revision}"), revision);
        spy.register_with(&home, requests);
        spy
    });
    (home, spies.into())
}

fn name(server: &str, tool: &str) -> String {
    format!("spy-{server}__{tool}")
}

#[test]
fn progress_reaches_the_call_it_belongs_to_under_the_clients_own_token() {
    // PRO-11, PRO §3, T-PRO-1: all 25 pairs
    let (home, _spies) = servers("");
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    for client in REVISIONS {
        let agent = Agent::open(&daemon, client);
        for server in REVISIONS {
            let pair = format!("client {client}, server {server}");
            let params = |token: Value| json!({"name": name(server, "slow"), "arguments": {"ms": 20}, "_meta": {"progressToken": token}});
            let stream = agent.begin("tools/call", params(json!(pair)));
            assert!(stream.streams(), "{pair}");
            assert_eq!(stream.header("x-accel-buffering"), Some("no"));
            let messages: Vec<Value> = stream.collect();
            assert_eq!(messages.len(), 2, "{pair}: {messages:?}");
            let progress = &messages[0]["params"];
            assert_eq!(progress["progressToken"], pair.as_str(), "{pair}");
            assert_eq!((&progress["progress"], &progress["message"]), (&json!(0.5), &json!("still spying")));
            assert_eq!(messages[1]["result"]["content"][0]["text"], "done", "{pair}");
            // Nobody who did not ask hears of it.
            let quiet =
                agent.begin("tools/call", json!({"name": name(server, "slow"), "arguments": {"ms": 20}}));
            assert!(!quiet.streams(), "{pair}");
            assert_eq!(quiet.last().unwrap()["result"]["content"][0]["text"], "done");
        }
    }
}

#[test]
fn log_messages_come_to_who_asked_cleaned_and_with_the_servers_name() {
    // PRO §3
    let (home, spies) = servers("");
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    for spy in &spies {
        spy.control(&json!({"log": "warning"}));
    }
    for client in REVISIONS {
        let agent = Agent::open(&daemon, client);
        for server in REVISIONS {
            let pair = format!("client {client}, server {server}");
            for (level, heard) in [("error", false), ("info", true)] {
                let mut params = json!({"name": name(server, "echo"), "arguments": {"text": "x"}});
                if agent.is_modern() {
                    params["_meta"] = json!({"io.modelcontextprotocol/logLevel": level});
                } else {
                    agent.result("logging/setLevel", json!({"level": level}));
                }
                let messages: Vec<Value> = agent.begin("tools/call", params).collect();
                assert_eq!(messages.len(), 1 + usize::from(heard), "{pair} {level}: {messages:?}");
                if heard {
                    let log = &messages[0]["params"];
                    assert_eq!(log["logger"], format!("spy-{server}/inner"), "{pair}");
                    assert_eq!(log["data"], "spy &lt;b&gt;logs&lt;/b&gt;", "{pair}");
                }
            }
        }
    }
}

#[test]
fn a_cancellation_reaches_exactly_its_request_in_the_servers_own_way() {
    // PRO-67, T-PRO-1
    let (home, spies) = servers("");
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    for client in REVISIONS {
        let agent = Agent::open(&daemon, client);
        for (server, spy) in REVISIONS.iter().zip(&spies) {
            let before = spy.log_events("cancelled").len();
            let params = json!({"name": name(server, "slow"), "arguments": {"ms": 60_000}});
            let calls = spy.calls();
            // The approval of this tool may still be asked for; the request is under way when the spy has it.
            std::thread::scope(|scope| {
                if agent.is_modern() {
                    let hang_up = agent.hang(77, "tools/call", params);
                    eventually("the call", || (spy.calls() > calls).then_some(()));
                    drop(hang_up);
                } else {
                    let copy = agent.copy();
                    let call = scope.spawn(move || copy.begin_as(77, "tools/call", params).last());
                    eventually("the call", || (spy.calls() > calls).then_some(()));
                    agent.tell("notifications/cancelled", json!({"requestId": 77}));
                    let answer = call.join().unwrap().unwrap();
                    assert_eq!(answer["error"]["data"]["error"], "CANCELLED", "{answer}");
                }
            });
            eventually("the cancellation", || (spy.log_events("cancelled").len() > before).then_some(()));
        }
    }
    drop(operator);
    daemon.stop();
    let cancelled = home.events("execution.cancelled");
    assert_eq!(cancelled.len(), 25, "each is on record");
}

#[test]
fn a_question_of_a_legacy_server_is_put_to_a_legacy_client_and_its_answer_goes_back() {
    // PRO §4, PRO-21, PRO-71, GOV-408, T-DEC-4
    let requests =
        "server_requests: [ { kind: sampling, max_per_call: 1, max_tokens: 8 }, elicitation, roots ]";
    let (home, spies) = servers(requests);
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let able = json!({"sampling": {}, "elicitation": {}, "roots": {}});
    for (server, spy) in REVISIONS[..4].iter().zip(&spies) {
        for client in &REVISIONS[..4] {
            let pair = format!("client {client}, server {server}");
            let agent = Agent::able(&daemon, client, able.clone());
            let call = json!({"name": name(server, "echo"), "arguments": {"text": "x"}});
            let converse = |answer: &dyn Fn(&Value) -> Value| {
                let mut stream = agent.begin("tools/call", call.clone());
                let question = stream.next().unwrap();
                let reply = json!({"jsonrpc": "2.0", "id": question["id"], "result": answer(&question)});
                assert_eq!(agent.post(&reply, &[]).status, 202);
                // The same answer again answers nothing any more.
                assert_eq!(agent.post(&reply, &[]).status, 202);
                (question, stream.last().unwrap())
            };
            spy.control(&json!({"server_request": "elicitation/create"}));
            let (question, answer) =
                converse(&|_| json!({"action": "accept", "content": {"answer": "forty-two"}}));
            let message = question["params"]["message"].as_str().unwrap();
            assert_eq!(message, format!("Server 'spy-{server}' asks: The spy asks."), "{pair}");
            let told = answer["result"]["content"][1]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
            assert!(told.contains("forty-two"), "{pair}: {told}");
            // What does not fit the form does not pass.
            let (_, answer) = converse(&|_| json!({"action": "accept", "content": {"answer": 42}}));
            let told = answer["result"]["content"][1]["text"].as_str().unwrap();
            assert!(told.contains("does not fit") && !told.contains("42,"), "{pair}: {told}");
            spy.control(&json!({"server_request": "sampling/createMessage"}));
            let (question, answer) = converse(
                &|_| json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "hm"}}),
            );
            assert_eq!(question["params"]["maxTokens"], 8, "no more than is declared: {question}");
            assert!(answer["result"]["content"][1]["text"].as_str().unwrap().contains("hm"), "{pair}");
            spy.control(&json!({"server_request": "roots/list"}));
            let (_, answer) = converse(&|_| json!({"roots": [{"uri": "file:///here"}]}));
            assert!(
                answer["result"]["content"][1]["text"].as_str().unwrap().contains("file:///here"),
                "{pair}"
            );
            // A client that cannot be asked is not asked.
            let unable = Agent::open(&daemon, client);
            let answer = unable.ask("tools/call", call.clone());
            let told = answer["result"]["content"][1]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
            assert!(told.contains("cannot be asked"), "{pair}: {told}");
            // Two questions where one is declared.
            spy.control(&json!({"server_request": ["sampling/createMessage", "sampling/createMessage"]}));
            let (_, answer) = converse(
                &|_| json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "hm"}}),
            );
            let told = answer["result"]["content"][1]["text"].as_str().unwrap();
            assert!(told.contains("more questions in one call"), "{pair}: {told}");
            spy.control(&json!({}));
        }
    }
    drop(daemon);
    assert!(home.events("execution.server_request").len() >= 6 * 16);
    home.verify();
}

/// Answers whatever a modern client is asked, round after round; the kinds of question, and the last answer.
fn rounds(agent: &Agent, call: &Value) -> (Vec<String>, Value) {
    let mut asked = Vec::new();
    let mut params = call.clone();
    loop {
        let response = agent.ask("tools/call", params.clone());
        if response["result"]["resultType"] != "input_required" {
            return (asked, response);
        }
        params = call.clone();
        params["requestState"] = response["result"]["requestState"].clone();
        for (key, request) in response["result"]["inputRequests"].as_object().unwrap() {
            asked.push(request["method"].as_str().unwrap().to_owned());
            params["inputResponses"][key] = match request["method"].as_str().unwrap() {
                "elicitation/create" => json!({"action": "accept", "content": {"answer": "forty-two"}}),
                "roots/list" => json!({"roots": []}),
                _ => json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "hm"}}),
            };
        }
    }
}

#[test]
fn questions_cross_the_eras_in_rounds_of_input() {
    // PRO §4, T-PRO-2: every server, a modern client; and a modern server, legacy clients; nested twice
    let (home, spies) = servers("server_requests: [sampling, elicitation, roots]");
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let able = json!({"sampling": {}, "elicitation": {}, "roots": {}});
    let modern = Agent::able(&daemon, "2026-07-28", able.clone());
    for (server, spy) in REVISIONS.iter().zip(&spies) {
        spy.control(&json!({"server_request": ["elicitation/create", "sampling/createMessage"]}));
        let call = json!({"name": name(server, "echo"), "arguments": {"text": "x"}});
        let (asked, answer) = rounds(&modern, &call);
        assert_eq!(asked, ["elicitation/create", "sampling/createMessage"], "{server}: {answer}");
        assert_eq!(answer["result"]["structuredContent"]["text"], "x", "{server}: {answer}");
        let told = answer["result"]["content"][1]["text"].as_str().unwrap();
        assert!(told.contains("hm"), "{server}: {told}");
        // A state is good for the request it was given for, unchanged, and for nothing else.
        let first = modern.ask("tools/call", call.clone());
        let state = first["result"]["requestState"].as_str().unwrap_or_else(|| panic!("{first}")).to_owned();
        let key = first["result"]["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
        let answers = json!({key: {"action": "accept", "content": {"answer": "x"}}});
        let again = |state: &str, text: &str| {
            let mut params = json!({"name": name(server, "echo"), "arguments": {"text": text}});
            params["requestState"] = state.into();
            params["inputResponses"] = answers.clone();
            modern.ask("tools/call", params)
        };
        let calls = spy.calls();
        assert_eq!(again(&state, "another text")["error"]["code"], -32602, "{server}");
        assert_eq!(again(&state.replace(&state[..4], "AAAA"), "x")["error"]["code"], -32602, "{server}");
        assert_eq!(again("made up", "x")["error"]["code"], -32602, "{server}");
        assert_eq!(spy.calls(), calls, "none of these reached the server");
        assert_eq!(again(&state, "x")["result"]["resultType"], "input_required", "the second question");
        // A client that cannot be asked: the modern server's call is refused, the legacy one's question.
        let unable = Agent::open(&daemon, "2026-07-28").ask("tools/call", call.clone());
        if *server == "2026-07-28" {
            assert_eq!(unable["error"]["code"], -32021, "{unable}");
        } else {
            assert!(unable["result"]["content"][1]["text"].as_str().unwrap().contains("cannot be asked"));
        }
        spy.control(&json!({}));
    }
    spies[4].control(&json!({"server_request": ["elicitation/create", "roots/list"]}));
    for client in &REVISIONS[..4] {
        let agent = Agent::able(&daemon, client, able.clone());
        let mut stream = agent
            .begin("tools/call", json!({"name": name("2026-07-28", "echo"), "arguments": {"text": "x"}}));
        for (method, answer) in [
            ("elicitation/create", json!({"action": "accept", "content": {"answer": "forty-two"}})),
            ("roots/list", json!({"roots": []})),
        ] {
            let question = stream.next().unwrap();
            assert_eq!(question["method"], method, "{client}: {question}");
            agent.post(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}), &[]);
        }
        let answer = stream.last().unwrap();
        assert_eq!(answer["result"]["structuredContent"]["text"], "x", "{client}: {answer}");
        assert!(answer["result"].get("resultType").is_none());
    }
    let frames = spies[4].frames("tools/call");
    assert!(frames.iter().any(|frame| frame.contains(r#""requestState":"spy:2""#)), "byte for byte (PRO-68)");
    drop(operator);
    daemon.stop();
    home.verify();
}

#[test]
fn an_undeclared_question_is_not_put_and_halts_the_server() {
    // T-DEC-4, GOV-408, MP-FH-005: in both eras
    let (home, spies) = servers("");
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::able(&daemon, "2026-07-28", json!({"elicitation": {}}));
    for server in ["2025-11-25", "2026-07-28"] {
        let spy = &spies[REVISIONS.iter().position(|known| *known == server).unwrap()];
        spy.control(&json!({"server_request": "elicitation/create"}));
        let answer = agent.call(&name(server, "echo"), json!({"text": "x"}));
        assert_ne!(answer["result"]["resultType"], "input_required", "{answer}");
        let wanted = format!("spy-{server}");
        eventually("the halt", || {
            let list = home.json(&["mcp", "list"]);
            let mut servers = list.as_array().unwrap().iter();
            servers.any(|known| known["name"] == wanted.as_str() && known["state"] == "halted").then_some(())
        });
        // GOV-1203: a tool that the session used is not what it was; somebody looks before the session goes on.
        let stopped = home.json(&["checkpoint", "list"]);
        let session = stopped[0]["session_id"].as_str().unwrap_or_else(|| panic!("{stopped}"));
        home.json(&["checkpoint", "resolve", session, "--reason", "that server is halted"]);
    }
}

#[test]
fn what_a_server_says_beside_its_answer_is_counted_and_most_of_a_flood_is_not_even_looked_at() {
    // GOV-303
    let home = open_home();
    let spy = Spy::speaking(&home, "spy-2025-11-25", "2025-11-25");
    spy.register(&home);
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    spy.control(&json!({"log": "warning", "log_times": 2000}));
    let agent = Agent::open(&daemon, "2025-11-25");
    agent.result("logging/setLevel", json!({"level": "info"}));
    let call = json!({"name": name("2025-11-25", "echo"), "arguments": {"text": "x"}});
    let messages: Vec<Value> = agent.begin("tools/call", call).collect();
    assert_eq!(messages.last().unwrap()["result"]["content"][0]["text"], "x", "the answer is not held up");
    let heard = eventually("the count", || home.events("execution.notifications").pop())["data"].clone();
    assert_eq!(heard["count"], 2000, "{heard}");
    let ignored = heard["ignored"].as_u64().unwrap();
    assert!(ignored > 0 && heard["sha256"].as_str().unwrap().len() == 64, "{heard}");
    assert!((messages.len() as u64) < 2000 - ignored, "{heard}: {} came through", messages.len());
    // Nothing of it was acted on.
    assert_eq!(home.json(&["mcp", "show", "spy-2025-11-25"])["state"], "active");
    daemon.stop();
    home.verify();
}
