//! Resources that clients follow: one subscription at the server for all of them, and an update for exactly those who
//! asked (PRO §3, PRO-20, GOV-407).

use serde_json::{Value, json};

use crate::agent::{Agent, Stream};
use crate::support::{Home, Operator, Spy, eventually, open_home};

const ERAS: [&str; 2] = ["2025-11-25", "2026-07-28"];
const UPDATED: &str = "notifications/resources/updated";

/// A gateway in front of a spy of one revision whose readme may be followed, and whose items may not.
fn scene(revision: &str) -> (Home, Spy) {
    let home = open_home();
    let spy = Spy::speaking(&home, "spy", revision);
    let plain = "mime_types: [text/plain],";
    let declaration = spy.declaration().replacen(plain, &format!("{plain} subscribe: true,"), 1);
    spy.register_as(&home, &declaration);
    (home, spy)
}

fn readme() -> String {
    "portcullis://spy/spy%3A%2F%2Freadme".to_owned()
}

/// A client that follows the readme, and the stream on which it hears.
fn following(agent: &Agent, id: u64) -> Stream {
    if agent.is_modern() {
        let wish = json!({"notifications": {"resourceSubscriptions": [readme()]}});
        let mut stream = agent.begin_as(id, "subscriptions/listen", wish);
        let first = stream.next().unwrap();
        assert_eq!(first["params"]["notifications"], json!({"resourceSubscriptions": [readme()]}), "{first}");
        assert!(first["params"]["_meta"].get("io.portcullis/refused").is_none(), "{first}");
        return stream;
    }
    let stream = agent.send("GET", "/mcp", "", &[]);
    assert!(stream.status == 200 && stream.streams());
    assert_eq!(agent.result("resources/subscribe", json!({"uri": readme()})), json!({}));
    stream
}

fn assert_update(heard: &Value, agent: &Agent, id: u64) {
    let mut params = json!({"uri": readme()});
    if agent.is_modern() {
        params["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": id});
    }
    assert_eq!(*heard, json!({"jsonrpc": "2.0", "method": UPDATED, "params": params}));
}

/// Tells the spy that its readme changed, for the `count`th time.
fn change(spy: &Spy, count: u32) {
    // Another text each time, which is another change; what nobody follows is not ours to hear of.
    let hidden = vec!["spy://hidden"; count as usize];
    let mut updated = vec!["spy://readme"];
    updated.extend(hidden);
    spy.control(&json!({"updated": updated}));
}

/// What a modern server was asked to say when its readme changes; it is also asked to say when its lists change.
fn listens(spy: &Spy) -> Vec<Value> {
    let frames = spy.frames("subscriptions/listen");
    let of_the_readme = |frame: &&String| frame.contains("\"resourceSubscriptions\":[\"spy://readme\"]");
    frames.iter().filter(of_the_readme).map(|frame| serde_json::from_str(frame).unwrap()).collect()
}

/// How often the server was asked to say when its readme changes.
fn asked(spy: &Spy, revision: &str) -> usize {
    match revision {
        "2026-07-28" => listens(spy).len(),
        _ => spy.frames("resources/subscribe").len(),
    }
}

/// How often it was told that nobody wants to hear of it any more.
fn given_up(spy: &Spy, revision: &str) -> usize {
    match revision {
        "2026-07-28" => {
            let ended = spy.log_events("cancelled");
            let is_over = |listen: &&Value| ended.iter().any(|event| event["request"] == listen["id"]);
            listens(spy).iter().filter(is_over).count()
        }
        _ => spy.frames("resources/unsubscribe").len(),
    }
}

#[test]
fn an_update_reaches_every_follower_in_every_era_once_and_nobody_else() {
    // PRO §3, PRO-11, PRO-12, PRO-20
    for server in ERAS {
        let (home, spy) = scene(server);
        let daemon = home.serve();
        let _operator = Operator::on_duty(&home);
        let agents = ERAS.map(|client| Agent::open(&daemon, client));
        let others = ERAS.map(|client| Agent::open(&daemon, client));
        for agent in &agents {
            assert_eq!(agent.hello["capabilities"]["resources"]["subscribe"], true, "{}", agent.hello);
        }
        let mut streams = [following(&agents[0], 71), following(&agents[1], 72)];
        // Who only listens hears nothing of it.
        let idle = others[0].send("GET", "/mcp", "", &[]);
        let wish = json!({"notifications": {"resourcesListChanged": true}});
        let mut elsewhere = others[1].begin_as(73, "subscriptions/listen", wish);
        assert!(elsewhere.next().is_some());
        assert_eq!(asked(&spy, server), 1, "one subscription at the server for both");

        change(&spy, 1);
        for (stream, (agent, id)) in streams.iter_mut().zip([(&agents[0], 71), (&agents[1], 72)]) {
            assert_update(&stream.next().unwrap(), agent, id);
        }
        let [legacy, mut modern] = streams;
        // One goes; the other still hears, and the server is not asked to stop.
        assert_eq!(agents[0].result("resources/unsubscribe", json!({"uri": readme()})), json!({}));
        assert_eq!(agents[0].result("resources/unsubscribe", json!({"uri": readme()})), json!({}));
        change(&spy, 2);
        assert_update(&modern.next().unwrap(), &agents[1], 72);
        assert_eq!((asked(&spy, server), given_up(&spy, server)), (1, 0), "server {server}");
        // The last one goes, and with it the server's subscription.
        drop(modern);
        eventually("the end of the server's subscription", || (given_up(&spy, server) == 1).then_some(()));
        daemon.stop();
        for silent in [legacy, idle, elsewhere] {
            let rest: Vec<Value> = silent.collect();
            assert!(rest.iter().all(|said| said["method"] != UPDATED), "server {server}: {rest:?}");
        }
        assert_eq!(home.events("subscription.opened").len(), 2);
        assert_eq!(home.events("subscription.ended").len(), 2);
        assert!(
            home.events("execution.late_result").is_empty() && home.events("execution.intent").is_empty()
        );
        home.verify();
    }
}

#[test]
fn what_is_not_declared_to_be_followed_is_refused_with_its_reason() {
    // GOV-407
    for server in ERAS {
        let (home, spy) = scene(server);
        let daemon = home.serve();
        let _operator = Operator::on_duty(&home);
        let item = "portcullis://spy/spy%3A%2F%2Fitem%2F1";
        let unknown = "portcullis://spy/spy%3A%2F%2Fhidden";
        let legacy = Agent::open(&daemon, ERAS[0]);
        let refused = legacy.ask("resources/subscribe", json!({"uri": item}));
        assert_eq!(refused["error"]["data"]["error"], "POLICY_DENIED", "{refused}");
        assert_eq!(refused["error"]["data"]["details"]["code"], "subscribe_undeclared", "{refused}");
        let refused = legacy.ask("resources/subscribe", json!({"uri": unknown}));
        assert_eq!(refused["error"]["data"]["details"]["code"], "MP-FH-002", "{refused}");
        assert_eq!(legacy.ask("resources/subscribe", json!({}))["error"]["code"], -32602);

        let modern = Agent::open(&daemon, ERAS[1]);
        assert_eq!(modern.ask("resources/subscribe", json!({"uri": readme()}))["error"]["code"], -32601);
        let wish = json!({"notifications": {"resourceSubscriptions": [item, readme(), unknown]}});
        let first = modern.begin("subscriptions/listen", wish).next().unwrap();
        assert_eq!(first["params"]["notifications"]["resourceSubscriptions"], json!([readme()]), "{first}");
        let why = &first["params"]["_meta"]["io.portcullis/refused"];
        assert_eq!(why[item]["details"]["code"], "subscribe_undeclared", "{first}");
        assert_eq!(why[unknown]["details"]["code"], "MP-FH-002", "{first}");
        let bad =
            modern.ask("subscriptions/listen", json!({"notifications": {"resourceSubscriptions": "x"}}));
        assert_eq!(bad["error"]["code"], -32602, "{bad}");

        assert_eq!(asked(&spy, server), 1, "nothing else reached the server");
        drop(daemon);
        assert_eq!(home.events("subscription.opened").len(), 1);
        assert_eq!(home.events("proposal.refused").len(), 2);
    }
}

#[test]
fn subscriptions_are_made_again_when_the_server_is_back() {
    // PRO §3: re-established after reconnect, by itself
    for server in ERAS {
        let (home, spy) = scene(server);
        let daemon = home.serve();
        let _operator = Operator::on_duty(&home);
        let agents = ERAS.map(|client| Agent::open(&daemon, client));
        let mut streams = [following(&agents[0], 81), following(&agents[1], 82)];
        let before = spy.processes();
        assert_eq!(before.len(), 1);
        for pid in &before {
            let killed = std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status();
            assert!(killed.unwrap().success());
        }
        eventually("the server being asked again", || (asked(&spy, server) == 2).then_some(()));
        assert_ne!(spy.processes(), before);
        change(&spy, 1);
        for (stream, (agent, id)) in streams.iter_mut().zip([(&agents[0], 81), (&agents[1], 82)]) {
            assert_update(&stream.next().unwrap(), agent, id);
        }
    }
}

#[test]
fn who_may_not_read_a_resource_may_not_follow_it() {
    // GOV-101: the default policy asks; nobody answers, and nothing is sent
    let home = Home::new("[approvals]\nwait = \"300ms\"\n");
    let spy = Spy::speaking(&home, "spy", ERAS[0]);
    let plain = "mime_types: [text/plain],";
    let declaration = spy.declaration().replacen(plain, &format!("{plain} subscribe: true,"), 1);
    spy.register_as(&home, &declaration);
    let daemon = home.serve();
    let agent = Agent::open(&daemon, ERAS[0]);
    let refused = agent.ask("resources/subscribe", json!({"uri": readme()}));
    assert_eq!(refused["error"]["data"]["error"], "AUTH_REQUIRED", "{refused}");
    assert_eq!(asked(&spy, ERAS[0]), 0);
    // Granted once, following uses nothing up: the reading that was approved is still to come.
    home.grant_next("once");
    assert_eq!(agent.result("resources/subscribe", json!({"uri": readme()})), json!({}));
    let read = agent.result("resources/read", json!({"uri": readme()}));
    assert_eq!(read["contents"][0]["text"], "Read me.", "{read}");
    let again = agent.ask("resources/read", json!({"uri": readme()}));
    assert_eq!(again["error"]["data"]["error"], "AUTH_REQUIRED", "{again}");
}

#[test]
fn an_update_passes_from_a_server_behind_a_url() {
    // PRO §3, PRO-37: a legacy server says it on a stream of its own, a modern one on that of the subscription
    for server in ERAS {
        let home = open_home();
        let spy = Spy::speaking(&home, "spy", server);
        let _process = spy.behind_a_url(&home, |declaration| {
            let plain = "mime_types: [text/plain],";
            declaration.replacen(plain, &format!("{plain} subscribe: true,"), 1)
        });
        let daemon = home.serve();
        let _operator = Operator::on_duty(&home);
        let agents = ERAS.map(|client| Agent::open(&daemon, client));
        let mut streams = [following(&agents[0], 91), following(&agents[1], 92)];
        assert_eq!(asked(&spy, server), 1, "one subscription at the server for both");
        change(&spy, 1);
        for (stream, (agent, id)) in streams.iter_mut().zip([(&agents[0], 91), (&agents[1], 92)]) {
            assert_update(&stream.next().unwrap(), agent, id);
        }
        drop(streams);
        agents[0].result("resources/unsubscribe", json!({"uri": readme()}));
        eventually("the end of the server's subscription", || (given_up(&spy, server) == 1).then_some(()));
        daemon.stop();
        home.verify();
    }
}
