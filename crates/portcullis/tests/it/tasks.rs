//! Tasks: calls that go on after their answer (PRO §3, extension `io.modelcontextprotocol/tasks`).

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::reference::Reference;
use crate::support::{Daemon, Home, Operator, eventually, open_home};

const TASKS: &str = "io.modelcontextprotocol/tasks";

fn able() -> Value {
    json!({"elicitation": {}, "extensions": {TASKS: {}}})
}

/// A gateway in front of the reference server, whose calls may be answered with tasks or not.
pub(crate) fn scene(allowed: bool) -> (Home, Reference) {
    let home = open_home();
    let server = Reference::start("both");
    server.register(&home, &json!({"server_requests": ["elicitation"], "tasks": allowed}));
    (home, server)
}

fn begin(agent: &Agent, tool: &str, arguments: Value) -> String {
    let begun = agent.call(&format!("conformance__{tool}"), arguments);
    assert_eq!(begun["result"]["resultType"], "task", "{begun}");
    begun["result"]["taskId"].as_str().unwrap().to_owned()
}

fn look(agent: &Agent, id: &str) -> Value {
    agent.result("tasks/get", json!({"taskId": id}))
}

fn until(agent: &Agent, id: &str, status: &str) -> Value {
    eventually(status, || Some(look(agent, id)).filter(|task| task["status"] == status))
}

fn modern(daemon: &Daemon) -> Agent {
    Agent::able(daemon, "2026-07-28", able())
}

#[test]
fn a_task_is_told_of_under_an_id_of_ours_until_it_has_a_result() {
    // PRO-11, PRO §3
    let (home, _server) = scene(true);
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let agent = modern(&daemon);
    assert_eq!(agent.hello["capabilities"]["extensions"], json!({TASKS: {}}), "{}", agent.hello);
    let id = begin(&agent, "slow_compute", json!({"seconds": 1}));
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    assert_eq!(look(&agent, &id)["status"], "working");
    let done = until(&agent, &id, "completed");
    assert_eq!(done["result"]["content"][0]["text"], "Computed for 1 seconds", "{done}");
    // What came of it is told again, and the server is asked no more.
    let answers = || home.events("execution.task_answer").len();
    let asked = answers();
    assert_eq!(look(&agent, &id)["result"], done["result"]);
    assert_eq!(answers(), asked);
    // A tool's own failure is a result, one of the protocol is an error.
    let id = begin(&agent, "failing_job", json!({}));
    assert_eq!(until(&agent, &id, "completed")["result"]["isError"], true);
    let id = begin(&agent, "protocol_error_job", json!({}));
    assert_eq!(until(&agent, &id, "failed")["error"]["code"], -32603);
    drop(operator);
    daemon.stop();
    // Everything about a task belongs to the permit of its call, and is evidence.
    let intents: Vec<Value> = home.events("execution.intent");
    let permits: Vec<&Value> = intents.iter().map(|intent| &intent["data"]["permit_id"]).collect();
    assert_eq!(permits.len(), 3);
    let requests = home.events("execution.task_request");
    assert!(requests.len() >= 3 && requests.len() == home.events("execution.task_answer").len());
    for request in &requests {
        assert!(permits.contains(&&request["data"]["permit_id"]), "{request}");
    }
    let report = home.json(&["audit", "verify", "--invariants", "--evidence"]);
    assert_eq!(report["ok"], true, "{report}");
}

#[test]
fn a_task_is_nobody_elses_and_survives_the_connection() {
    // PRO-11: a foreign id is refused like an unknown one; PRO §3: state survives reconnect
    let home = Home::new("[policy]\npreset = \"observe\"\n[access]\nauthentication = \"required\"\n");
    let server = Reference::start("both");
    server.register(&home, &json!({"tasks": true}));
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let key =
        |agent: &str| format!("Bearer {}", home.json(&["key", "create", agent])["key"].as_str().unwrap());
    let (ci, ide) = (key("ci"), key("ide"));
    let agent = Agent::unopened(&daemon, "2026-07-28", able());
    let (mine, theirs) = (agent.with_key(&ci), agent.with_key(&ide));
    let id = begin(&mine, "slow_compute", json!({"seconds": 60}));
    let unknown = theirs.ask("tasks/get", json!({"taskId": "00000000000000000000000000000000"}));
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let params = json!({"taskId": id, "inputResponses": {}});
        let refused = theirs.ask(method, params);
        assert_eq!(refused["error"], unknown["error"], "{method}");
    }
    // Another client program of the same principal, on a connection of its own.
    assert_eq!(look(&agent.with_key(&ci), &id)["status"], "working");
    assert_eq!(mine.result("tasks/cancel", json!({"taskId": id})), json!({"resultType": "complete"}));
    until(&mine, &id, "cancelled");
    assert_eq!(mine.result("tasks/cancel", json!({"taskId": id})), json!({"resultType": "complete"}));
}

#[test]
fn questions_of_a_task_are_held_to_the_declaration_and_answers_to_the_question() {
    // GOV-408, PRO-63
    let (home, _server) = scene(true);
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = modern(&daemon);
    let id = begin(&agent, "confirm_delete", json!({"filename": "a"}));
    let waiting = until(&agent, &id, "input_required");
    let asked = &waiting["inputRequests"]["confirm"]["params"];
    assert!(asked["message"].as_str().unwrap().starts_with("Server 'conformance' asks:"), "{waiting}");
    // A client that cannot ask its user learns what is missing.
    let mute = agent.with_capabilities(json!({"extensions": {TASKS: {}}}));
    let refused = mute.ask("tasks/get", json!({"taskId": id}));
    assert_eq!(refused["error"]["data"]["requiredCapabilities"], json!({"elicitation": {}}), "{refused}");
    let update = |answer: Value| {
        agent.ask("tasks/update", json!({"taskId": id, "inputResponses": {"confirm": answer}}))
    };
    let wrong = update(json!({"action": "accept", "content": {"confirm": "maybe"}}));
    assert_eq!(wrong["error"]["code"], -32602, "{wrong}");
    let before = home.events("execution.task_request").len();
    let ignored = agent
        .result("tasks/update", json!({"taskId": id, "inputResponses": {"other": {"action": "accept"}}}));
    assert_eq!(ignored, json!({"resultType": "complete"}));
    assert_eq!(home.events("execution.task_request").len(), before, "an answer to nothing does not leave");
    assert_eq!(
        update(json!({"action": "accept", "content": {"confirm": true}}))["result"]["resultType"],
        "complete"
    );
    let done = until(&agent, &id, "completed");
    assert_eq!(done["result"]["content"][0]["text"], "Confirmed: &quot;accept&quot;", "{done}");
}

#[test]
fn whoever_does_not_take_tasks_gets_results_or_is_told() {
    // PRO-63: a capability is never invented
    let (home, _server) = scene(true);
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    for revision in ["2025-06-18", "2026-07-28"] {
        let agent = Agent::able(&daemon, revision, json!({"elicitation": {}}));
        let at_once = agent.call("conformance__slow_compute", json!({"seconds": 0}));
        assert_eq!(at_once["result"]["content"][0]["text"], "Computed for 0 seconds", "{at_once}");
        let refused = agent.call("conformance__failing_job", json!({}));
        assert_eq!(refused["error"]["code"], -32021, "{refused}");
        let needed = &refused["error"]["data"]["requiredCapabilities"];
        assert_eq!(*needed, json!({"extensions": {TASKS: {}}}), "{refused}");
    }
    let agent = Agent::open(&daemon, "2026-07-28");
    let refused = agent.begin("tasks/get", json!({"taskId": "x"}));
    assert_eq!(refused.status, 400);
    assert_eq!(refused.last().unwrap()["error"]["code"], -32021);
}

#[test]
fn an_undeclared_task_is_never_asked_for() {
    let (home, _server) = scene(false);
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = modern(&daemon);
    assert!(agent.hello["capabilities"].get("extensions").is_none(), "{}", agent.hello);
    let at_once = agent.call("conformance__slow_compute", json!({"seconds": 0}));
    assert_eq!(at_once["result"]["resultType"], "complete", "{at_once}");
    let unknown = agent.begin("tasks/get", json!({"taskId": "x"}));
    assert_eq!(unknown.status, 404);
    assert_eq!(unknown.last().unwrap()["error"]["code"], -32601);
}

#[test]
fn a_halted_server_is_not_asked_about_its_tasks() {
    let (home, _server) = scene(true);
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = modern(&daemon);
    let id = begin(&agent, "slow_compute", json!({"seconds": 60}));
    home.json(&["mcp", "halt", "conformance", "--reason", "to see"]);
    let refused = agent.ask("tasks/get", json!({"taskId": id}));
    assert!(refused["error"]["code"].as_i64().unwrap() < -31000, "{refused}");
}
