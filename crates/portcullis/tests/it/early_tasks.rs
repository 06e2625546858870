//! Tasks as revision 2025-11-25 has them, towards clients and servers, bridged with the modern form (PRO §3, PRO-3).

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::reference::Reference;
use crate::support::{Daemon, Home, Operator, Spy, eventually, open_home};
use crate::tasks::scene;
use crate::third_party::{register_everything, typescript};

const EARLY: &str = "2025-11-25";
const RELATED: &str = "io.modelcontextprotocol/related-task";

fn early(daemon: &Daemon) -> Agent {
    Agent::able(daemon, EARLY, json!({"elicitation": {"form": {}, "url": {}}}))
}

fn ask_for_task(agent: &Agent, tool: &str, arguments: Value) -> Value {
    agent.ask("tools/call", json!({"name": tool, "arguments": arguments, "task": {"ttl": 60_000}}))
}

fn begin(agent: &Agent, tool: &str, arguments: Value) -> String {
    let begun = ask_for_task(agent, tool, arguments);
    begun["result"]["task"]["taskId"].as_str().unwrap_or_else(|| panic!("{begun}")).to_owned()
}

fn look(agent: &Agent, id: &str) -> Value {
    agent.result("tasks/get", json!({"taskId": id}))
}

/// Everything that is asked about tasks belongs to the permits of their calls.
fn all_on_record(home: &Home) {
    let intents = home.events("execution.intent");
    let permits: Vec<&Value> = intents.iter().map(|intent| &intent["data"]["permit_id"]).collect();
    let requests = home.events("execution.task_request");
    assert!(!requests.is_empty() && requests.len() == home.events("execution.task_answer").len());
    for request in &requests {
        assert!(permits.contains(&&request["data"]["permit_id"]), "{request}");
    }
    let report = home.json(&["audit", "verify", "--invariants", "--evidence"]);
    assert_eq!(report["ok"], true, "{report}");
}

#[test]
fn a_client_of_2025_11_25_has_the_tasks_of_a_modern_server_in_its_own_form() {
    // PRO-3, PRO-11, PRO §3
    let (home, _server) = scene(true);
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let agent = early(&daemon);
    let capability = json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
    assert_eq!(agent.hello["capabilities"]["tasks"], capability, "{}", agent.hello);
    let listed = agent.result("tools/list", json!({}));
    let tool =
        listed["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "conformance__slow_compute");
    assert_eq!(tool.unwrap()["execution"], json!({"taskSupport": "optional"}));

    let begun = ask_for_task(&agent, "conformance__slow_compute", json!({"seconds": 1}));
    let task = &begun["result"]["task"];
    let id = task["taskId"].as_str().unwrap();
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{begun}");
    assert!(task["createdAt"].is_string() && task["lastUpdatedAt"].is_string() && task["ttl"].is_u64());
    let seen = look(&agent, id);
    assert_eq!((&seen["status"], seen.get("ttlMs"), seen.get("resultType")), (&json!("working"), None, None));
    assert_eq!(agent.result("tasks/list", json!({}))["tasks"][0]["taskId"], id);
    let result = agent.result("tasks/result", json!({"taskId": id}));
    assert_eq!(result["content"][0]["text"], "Computed for 1 seconds", "{result}");
    assert_eq!(result["_meta"][RELATED], json!({"taskId": id}), "{result}");
    assert_eq!(look(&agent, id)["status"], "completed");
    // A tool's own failure is a result of a task that failed; one of the protocol is an error.
    let id = begin(&agent, "conformance__failing_job", json!({}));
    assert_eq!(agent.result("tasks/result", json!({"taskId": id}))["isError"], true);
    assert_eq!(look(&agent, &id)["status"], "failed");
    let id = begin(&agent, "conformance__protocol_error_job", json!({}));
    let failed = agent.ask("tasks/result", json!({"taskId": id}));
    assert_eq!(failed["error"]["code"], -32603, "{failed}");
    // What is answered at once is a task that has ended.
    let begun = ask_for_task(&agent, "conformance__test_simple_text", json!({}));
    assert_eq!(begun["result"]["task"]["status"], "completed", "{begun}");
    let at_once = agent.result("tasks/result", json!({"taskId": begun["result"]["task"]["taskId"]}));
    assert_eq!(at_once["content"][0]["type"], "text", "{at_once}");
    // And who wants no task gets none.
    let plain = agent.call("conformance__slow_compute", json!({"seconds": 0}));
    assert_eq!(plain["result"]["content"][0]["text"], "Computed for 0 seconds", "{plain}");
    // What is cancelled stays so.
    let id = begin(&agent, "conformance__slow_compute", json!({"seconds": 60}));
    assert_eq!(agent.result("tasks/cancel", json!({"taskId": id}))["status"], "cancelled");
    assert_eq!(agent.ask("tasks/cancel", json!({"taskId": id}))["error"]["code"], -32602);
    assert!(agent.ask("tasks/result", json!({"taskId": id}))["error"].is_object());
    // Revisions before it know nothing of all this.
    let older = Agent::open(&daemon, "2025-06-18");
    assert!(older.hello["capabilities"].get("tasks").is_none(), "{}", older.hello);
    assert_eq!(older.ask("tasks/list", json!({}))["error"]["code"], -32601);
    assert_eq!(agent.ask("tasks/update", json!({"taskId": id}))["error"]["code"], -32601);
    drop(operator);
    daemon.stop();
    all_on_record(&home);
}

#[test]
fn what_a_modern_servers_task_asks_is_asked_on_the_stream_of_its_result() {
    // PRO-3, GOV-408
    let (home, _server) = scene(true);
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = early(&daemon);
    let id = begin(&agent, "conformance__confirm_delete", json!({"filename": "a"}));
    let mut stream = agent.begin("tasks/result", json!({"taskId": id}));
    let mut told = stream.next().unwrap();
    if told["method"] == "notifications/tasks/status" {
        assert_eq!(
            (&told["params"]["taskId"], &told["params"]["status"]),
            (&json!(id), &json!("input_required"))
        );
        told = stream.next().unwrap();
    }
    assert_eq!(told["method"], "elicitation/create", "{told}");
    assert_eq!(told["params"]["_meta"][RELATED], json!({"taskId": id}), "{told}");
    assert!(told["params"]["message"].as_str().unwrap().starts_with("Server 'conformance' asks:"), "{told}");
    let answer = json!({"action": "accept", "content": {"confirm": true}});
    agent.post(&json!({"jsonrpc": "2.0", "id": told["id"], "result": answer}), &[]);
    let result = stream.last().unwrap();
    assert_eq!(result["result"]["content"][0]["text"], "Confirmed: &quot;accept&quot;", "{result}");
}

#[test]
fn an_early_task_is_nobody_elses_and_survives_its_session() {
    // PRO-11: a foreign id is refused like an unknown one; PRO §3: state survives reconnect
    let home = Home::new("[policy]\npreset = \"observe\"\n[access]\nauthentication = \"required\"\n");
    let server = Reference::start("both");
    server.register(&home, &json!({"tasks": true}));
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let opened = |name: &str, key: &str| {
        let mut agent = Agent::unopened(&daemon, EARLY, json!({})).with_key(key);
        let params = json!({"protocolVersion": EARLY, "capabilities": {}, "clientInfo": {"name": name, "version": "1"}});
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        agent.session = agent.post(&body, &[]).header("mcp-session-id").map(str::to_owned);
        agent.tell("notifications/initialized", json!({}));
        agent
    };
    let key =
        |agent: &str| format!("Bearer {}", home.json(&["key", "create", agent])["key"].as_str().unwrap());
    let (ci, ide) = (key("ci"), key("ide"));
    let id = begin(&opened("first", &ci), "conformance__slow_compute", json!({"seconds": 60}));
    let theirs = opened("other", &ide);
    let unknown = theirs.ask("tasks/get", json!({"taskId": "00000000000000000000000000000000"}));
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        assert_eq!(theirs.ask(method, json!({"taskId": id}))["error"], unknown["error"], "{method}");
    }
    assert_eq!(theirs.result("tasks/list", json!({}))["tasks"], json!([]));
    let again = opened("second", &ci);
    assert_eq!(look(&again, &id)["status"], "working");
    assert_eq!(again.result("tasks/cancel", json!({"taskId": id}))["status"], "cancelled");
}

#[test]
fn a_task_that_no_declaration_allows_is_not_begun() {
    // Where nobody has tasks the word means nothing; where others have, it is refused.
    let (home, _server) = scene(false);
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let agent = early(&daemon);
    assert!(agent.hello["capabilities"].get("tasks").is_none(), "{}", agent.hello);
    let plain = ask_for_task(&agent, "conformance__slow_compute", json!({"seconds": 0}));
    assert_eq!(plain["result"]["content"][0]["text"], "Computed for 0 seconds", "{plain}");
    drop(operator);
    daemon.stop();

    let (home, _server) = scene(true);
    let spy = Spy::speaking(&home, "spy", EARLY);
    spy.register_with(&home, "");
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = early(&daemon);
    let refused = ask_for_task(&agent, "spy__echo", json!({"text": "x"}));
    assert_eq!(refused["error"]["code"], -32601, "{refused}");
    assert_eq!(spy.calls(), 0, "nothing left");
}

#[test]
fn the_tasks_of_a_server_of_2025_11_25_are_had_in_both_forms() {
    // PRO-3, PRO-11, PRO-52: the everything server's tool requires to be called as a task, and asks in the middle of it
    let home = open_home();
    register_everything(&home, &json!({"server_requests": ["elicitation"], "tasks": true}));
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let topic = json!({"topic": "python", "ambiguous": true});
    let tool = "everything__simulate-research-query";

    let agent = early(&daemon);
    let listed = agent.result("tools/list", json!({}));
    let listed = listed["tools"].as_array().unwrap().iter().find(|listed| listed["name"] == tool);
    assert_eq!(listed.unwrap()["execution"], json!({"taskSupport": "required"}));
    let id = begin(&agent, tool, topic.clone());
    let mut stream = agent.begin("tasks/result", json!({"taskId": id}));
    let question = stream.find(|told| told["method"] == "elicitation/create").unwrap();
    assert_eq!(question["params"]["_meta"][RELATED], json!({"taskId": id}), "{question}");
    let answer = json!({"action": "accept", "content": {"interpretation": "snake"}});
    agent.post(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}), &[]);
    let result = stream.last().unwrap();
    let text = result["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"));
    assert!(text.contains("python (snake)"), "{result}");
    assert_eq!(result["result"]["_meta"][RELATED], json!({"taskId": id}), "{result}");

    // Without pages: the approval is not asked of it.
    let able = json!({"elicitation": {"form": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}});
    let agent = Agent::able(&daemon, "2026-07-28", able);
    let begun = agent.call(tool, topic);
    assert_eq!(begun["result"]["resultType"], "task", "{begun}");
    let id = begun["result"]["taskId"].as_str().unwrap();
    let until =
        |status: &str| eventually(status, || Some(look(&agent, id)).filter(|task| task["status"] == status));
    let waiting = until("input_required");
    let (key, asked) = waiting["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert!(
        asked["params"]["message"].as_str().unwrap().starts_with("Server 'everything' asks:"),
        "{waiting}"
    );
    assert!(asked["params"].get("_meta").is_none(), "the server's id is the server's: {waiting}");
    let answer = json!({"action": "accept", "content": {"interpretation": "comedy"}});
    agent.result("tasks/update", json!({"taskId": id, "inputResponses": {key: answer}}));
    let done = until("completed");
    assert!(done["result"]["content"][0]["text"].as_str().unwrap().contains("python (comedy)"), "{done}");
    assert!(done["result"]["_meta"].get(RELATED).is_none(), "{done}");
    drop(operator);
    daemon.stop();
    all_on_record(&home);
}

#[test]
fn the_typescript_sdk_follows_a_task_to_its_end() {
    // PRO-52
    let (home, _server) = scene(true);
    let daemon = home.serve();
    let url = format!("http://{}/mcp", daemon.address);
    let seen = typescript(&home, "sdk_tasks.mjs", &[&url, "conformance__slow_compute"]);
    assert_eq!(seen["text"], "Computed for 1 seconds", "{seen}");
    assert!(seen["steps"].as_array().unwrap().contains(&json!("taskCreated")), "{seen}");
    assert_eq!(seen["listed"], 1, "{seen}");
}
