//! Calls to a child process, and what it may do to them.

use std::sync::Arc;
use std::time::Duration;

use portcullis_governance::boundary::{CancellationSignal, Outcome, TransmitFailure};
use serde_json::{Value, json};

use super::spy::{Ask, Scene, call, event, raw, text};
use crate::{Phase, UpstreamEvent};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_calls_at_once_each_get_their_own_answer() {
    for revision in ["modern", "legacy"] {
        let scene = Scene::new();
        let connection = Arc::new(scene.stdio(revision));
        let tasks: Vec<_> = (0..100u64)
            .map(|n| {
                let connection = Arc::clone(&connection);
                tokio::spawn(async move {
                    let live = connection.ready().await.unwrap();
                    if n % 3 == 0 {
                        assert_eq!(text(call(&live, "slow", json!({"ms": (100 - n) * 3})).await), "done");
                    }
                    text(call(&live, "echo", json!({"text": format!("call {n}")})).await)
                })
            })
            .collect();
        for (n, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.await.unwrap(), format!("call {n}"));
        }
        assert_eq!(scene.methods().iter().filter(|method| *method == "tools/call").count(), 134);
        let greetings =
            scene.methods().iter().filter(|m| ["server/discover", "initialize"].contains(&&***m)).count();
        assert_eq!(greetings, if revision == "modern" { 1 } else { 2 }, "one attempt for all who asked");
        assert_eq!(connection.status().in_flight, 0);
        connection.close().await;
    }
}

#[tokio::test]
async fn the_environment_is_what_the_record_says_and_nothing_else() {
    let scene = Scene::new();
    let connection = scene.stdio("both");
    let live = connection.ready().await.unwrap();
    assert_eq!(text(call(&live, "env", json!({})).await), r#"["ONLY"]"#);
    let status = std::fs::read_to_string(format!("/proc/{}/status", live.pid().unwrap())).unwrap();
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    connection.close().await;
}

#[tokio::test]
async fn answers_come_back_byte_for_byte() {
    // PRO-10
    let scene = Scene::new();
    let connection = scene.stdio("both");
    let live = connection.ready().await.unwrap();
    let error = raw(call(&live, "rpc_error", json!({"code": -32099, "message": "n\u{f6}"})).await);
    let error: Value = serde_json::from_slice(&error).unwrap();
    assert_eq!((&error["code"], &error["message"]), (&json!(-32099), &json!("n\u{f6}")));
    scene.switch(&json!({"split_writes": true}));
    assert_eq!(text(call(&live, "big", json!({"bytes": 300_000})).await).len(), 300_000);
    connection.close().await;
}

#[tokio::test]
async fn noise_on_stdout_is_reported_and_harms_no_call() {
    // PRO-36, GOV-303
    let scene = Scene::new();
    let connection = scene.stdio("both");
    let mut events = connection.events();
    let live = connection.ready().await.unwrap();
    scene.switch(&json!({"garbage": true}));
    assert_eq!(text(call(&live, "echo", json!({"text": "x"})).await), "x");
    event(&mut events, |event| matches!(event, UpstreamEvent::ProtocolViolation { .. })).await;
    connection.close().await;
}

#[tokio::test]
async fn answers_that_nobody_asked_for_are_reported_and_reach_nobody() {
    // GOV-303, PRO-68
    let scene = Scene::new();
    let connection = scene.stdio("both");
    let mut events = connection.events();
    let live = connection.ready().await.unwrap();
    scene.switch(&json!({"answer_twice": true}));
    assert_eq!(text(call(&live, "echo", json!({"text": "x"})).await), "x");
    event(&mut events, |event| matches!(event, UpstreamEvent::UnknownId)).await;
    scene.switch(&json!({"unknown_id": true}));
    let ask = Ask { timeout: Duration::from_millis(500), ..Ask::default() };
    let outcome = ask.call(&live, "echo", &json!({"text": "x"})).await;
    assert!(matches!(outcome, Outcome::Failed(TransmitFailure::Timeout)));
    event(&mut events, |event| matches!(event, UpstreamEvent::UnknownId)).await;
    connection.close().await;
}

#[tokio::test]
async fn who_stops_waiting_is_free_and_the_server_is_told() {
    let scene = Scene::new();
    let connection = scene.stdio("legacy");
    let mut events = connection.events();
    let live = connection.ready().await.unwrap();
    let cancelled = |how: usize| {
        let scene = &scene;
        async move {
            scene
                .wait_for("a cancellation", |_| {
                    scene.log().iter().filter(|line| line["event"] == "cancelled").count() >= how
                })
                .await;
        }
    };
    // By time.
    let ask = Ask { timeout: Duration::from_millis(100), ..Ask::default() };
    let outcome = ask.call(&live, "slow", &json!({"ms": 600_000})).await;
    assert!(matches!(outcome, Outcome::Failed(TransmitFailure::Timeout)));
    cancelled(1).await;
    // By cancellation.
    let (canceller, signal) = CancellationSignal::pair();
    let ask = Ask { cancel: Some(signal), ..Ask::default() };
    let waiting = tokio::spawn({
        let live = Arc::clone(&live);
        async move { ask.call(&live, "slow", &json!({"ms": 600_000})).await }
    });
    scene
        .wait_for("the second call", |_| scene.methods().iter().filter(|m| *m == "tools/call").count() == 2)
        .await;
    canceller.cancel();
    assert!(matches!(waiting.await.unwrap(), Outcome::Failed(TransmitFailure::Cancelled)));
    cancelled(2).await;
    // By going away.
    let waiting = tokio::spawn({
        let live = Arc::clone(&live);
        async move { call(&live, "slow", json!({"ms": 600_000})).await }
    });
    scene
        .wait_for("the third call", |_| scene.methods().iter().filter(|m| *m == "tools/call").count() == 3)
        .await;
    waiting.abort();
    cancelled(3).await;
    assert_eq!(live.in_flight(), 0);
    // And the server never answers, or late.
    scene.switch(&json!({"late_ms": 300}));
    let ask = Ask { timeout: Duration::from_millis(50), ..Ask::default() };
    assert!(matches!(
        ask.call(&live, "echo", &json!({"text": "x"})).await,
        Outcome::Failed(TransmitFailure::Timeout)
    ));
    event(&mut events, |event| matches!(event, UpstreamEvent::LateAnswer { .. })).await;
    scene.switch(&json!({}));
    assert_eq!(text(call(&live, "echo", json!({"text": "y"})).await), "y");
    connection.close().await;
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_takes_only_that_life_with_it() {
    // PRO-39
    let scene = Scene::new();
    let connection = scene.stdio("both");
    let mut events = connection.events();
    let live = connection.ready().await.unwrap();
    scene.switch(&json!({"die_on_call": true}));
    let outcome = call(&live, "echo", json!({"text": "x"})).await;
    assert!(
        matches!(&outcome, Outcome::Failed(TransmitFailure::Unavailable { sent: true, .. })),
        "{outcome:?}"
    );
    event(&mut events, |event| matches!(event, UpstreamEvent::Exited { .. })).await;
    assert!(!live.is_alive());
    assert!(matches!(
        call(&live, "echo", json!({"text": "x"})).await,
        Outcome::Failed(TransmitFailure::Unavailable { sent: false, .. })
    ));
    assert_ne!(connection.status().phase, Phase::Ready);

    scene.switch(&json!({"extra_tool": "new_one"}));
    let again = connection.ready().await.unwrap();
    assert_eq!(text(call(&again, "echo", json!({"text": "back"})).await), "back");
    let back = event(&mut events, |event| matches!(event, UpstreamEvent::Reconnected { .. })).await;
    let UpstreamEvent::Reconnected { snapshot } = back else { unreachable!() };
    assert!(snapshot.tools.iter().any(|tool| tool.get().contains("new_one")), "the change is told with it");
    connection.close().await;
}

#[tokio::test]
async fn an_answer_given_before_death_counts() {
    let scene = Scene::new();
    let connection = scene.stdio("both");
    let live = connection.ready().await.unwrap();
    scene.switch(&json!({"die_after_call": true}));
    assert_eq!(text(call(&live, "echo", json!({"text": "last"})).await), "last");
    connection.close().await;
}

#[tokio::test]
async fn a_result_beyond_its_limit_is_cut_off() {
    let scene = Scene::new();
    let connection = scene.stdio("both");
    let live = connection.ready().await.unwrap();
    let ask = Ask { max: 1_000, ..Ask::default() };
    match ask.call(&live, "big", &json!({"bytes": 5_000})).await {
        Outcome::TooLarge { bytes, prefix } => assert!(bytes > 5_000 && prefix.len() == bytes),
        other => panic!("{other:?}"),
    }
    connection.close().await;
}

#[tokio::test]
async fn a_line_beyond_sixteen_megabytes_ends_its_call_and_no_other() {
    // PRO-36
    let scene = Scene::new();
    let connection = scene.stdio("both");
    let mut events = connection.events();
    let live = connection.ready().await.unwrap();
    scene.switch(&json!({"huge_line": 17 * 1024 * 1024}));
    assert_eq!(text(call(&live, "echo", json!({"text": "after"})).await), "after");
    event(&mut events, |event| matches!(event, UpstreamEvent::ProtocolViolation { .. })).await;
    scene.switch(&json!({}));
    let arguments = json!({"bytes": 20 * 1024 * 1024});
    let (big, small) = tokio::join!(
        Ask { max: usize::MAX, ..Ask::default() }.call(&live, "big", &arguments),
        call(&live, "echo", json!({"text": "beside"})),
    );
    assert!(matches!(big, Outcome::TooLarge { .. }), "{big:?}");
    assert_eq!(text(small), "beside");
    connection.close().await;
}

#[tokio::test]
async fn what_a_server_asks_is_refused_and_reported() {
    // PRO-21: nothing is declared, so nothing is granted
    let scene = Scene::new();
    let connection = scene.stdio("legacy");
    let mut events = connection.events();
    let live = connection.ready().await.unwrap();
    scene.switch(&json!({"server_request": ["ping", "roots/list"]}));
    let outcome = raw(call(&live, "echo", json!({"text": "x"})).await);
    let text = String::from_utf8(outcome.to_vec()).unwrap();
    assert!(text.contains("-32601"), "{text}");
    let asked = event(&mut events, |event| matches!(event, UpstreamEvent::ServerRequest { .. })).await;
    assert!(matches!(asked, UpstreamEvent::ServerRequest { method } if method == "\"roots/list\""));
    connection.close().await;
}

#[tokio::test]
async fn a_changed_list_is_announced_in_both_eras() {
    for revision in ["legacy", "modern"] {
        let scene = Scene::new();
        let connection = scene.stdio(revision);
        let mut events = connection.events();
        connection.ready().await.unwrap();
        scene.switch(&json!({"list_changed": true}));
        event(&mut events, |event| matches!(event, UpstreamEvent::ListChanged)).await;
        connection.close().await;
    }
}
