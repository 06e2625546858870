//! Servers behind a URL.

use std::sync::Arc;
use std::time::Duration;

use portcullis_governance::boundary::{CancellationSignal, Outcome, TransmitFailure};
use serde_json::{Value, json};

use super::spy::{Ask, Scene, at, call, event, raw, text};
use crate::{Era, Settings, UpstreamError, UpstreamEvent};

fn frames(scene: &Scene, method: &str) -> Vec<Value> {
    scene.log().into_iter().filter(|line| line["method"] == method).collect()
}

#[tokio::test]
async fn both_eras_are_found_out_and_spoken_over_http() {
    // PRO-2, PRO-37
    for (revision, era) in [("modern", Era::Modern), ("both", Era::Modern), ("legacy", Era::Legacy)] {
        let scene = Scene::new();
        let spy = scene.http_spy(revision);
        let connection = scene.connection(spy.endpoint(), Settings::default());
        let snapshot = connection.probe().await.unwrap();
        assert_eq!((snapshot.greeting.era, snapshot.tools.len()), (era, 9));
        let live = connection.ready().await.unwrap();
        assert_eq!(text(call(&live, "echo", json!({"text": "h"})).await), "h");
        let called = frames(&scene, "tools/call").remove(0);
        let header = |name: &str| called["headers"][name].as_str();
        match era {
            Era::Modern => {
                assert_eq!(header("mcp-protocol-version"), Some("2026-07-28"));
                assert_eq!((header("mcp-method"), header("mcp-name")), (Some("tools/call"), Some("echo")));
                assert_eq!(header("mcp-session-id"), None);
            }
            Era::Legacy => {
                assert_eq!(header("mcp-protocol-version"), Some("2025-11-25"));
                assert!(header("mcp-session-id").is_some() && header("mcp-method").is_none());
            }
        }
        connection.close().await;
        let farewells = scene.log().iter().filter(|line| line["http_method"] == "DELETE").count();
        assert_eq!(farewells, usize::from(era == Era::Legacy));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_at_once_as_documents_and_as_streams() {
    for sse in [false, true] {
        let scene = Scene::new();
        scene.switch(&json!({"sse": sse}));
        let spy = scene.http_spy("both");
        let connection = Arc::new(scene.connection(spy.endpoint(), Settings::default()));
        let tasks: Vec<_> = (0..50u64)
            .map(|n| {
                let connection = Arc::clone(&connection);
                tokio::spawn(async move {
                    let live = connection.ready().await.unwrap();
                    if n % 5 == 0 {
                        call(&live, "slow", json!({"ms": 100})).await;
                    }
                    text(call(&live, "echo", json!({"text": format!("call {n}")})).await)
                })
            })
            .collect();
        for (n, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.await.unwrap(), format!("call {n}"));
        }
        connection.close().await;
    }
}

#[tokio::test]
async fn an_expired_session_is_renewed_and_only_a_repeatable_call_repeated() {
    // PRO-37
    let scene = Scene::new();
    let spy = scene.http_spy("legacy");
    let connection = scene.connection(spy.endpoint(), Settings::default());
    let live = connection.ready().await.unwrap();
    scene.switch(&json!({"expire_session": true}));
    let ask = Ask { repeatable: true, ..Ask::default() };
    assert_eq!(text(ask.call(&live, "echo", &json!({"text": "again"})).await), "again");
    assert_eq!(frames(&scene, "tools/call").len(), 2);
    assert_eq!(frames(&scene, "initialize").len(), 2);

    scene.switch(&json!({"expire_session": true, "version": "2"}));
    let outcome = call(&live, "echo", json!({"text": "once"})).await;
    assert!(
        matches!(outcome, Outcome::Failed(TransmitFailure::Unavailable { sent: true, .. })),
        "{outcome:?}"
    );
    assert_eq!(frames(&scene, "tools/call").len(), 3);
    let mut events = connection.events();
    let live = connection.ready().await.unwrap();
    assert_eq!(text(call(&live, "echo", json!({"text": "new"})).await), "new");
    event(&mut events, |event| matches!(event, UpstreamEvent::Reconnected { .. })).await;
    connection.close().await;
}

#[tokio::test]
async fn what_is_not_the_protocol_is_not_taken_for_it() {
    let scene = Scene::new();
    let elsewhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let redirect = format!("http://{}/mcp", elsewhere.local_addr().unwrap());
    let spy = scene.http_spy("both");
    let connection = scene.connection(spy.endpoint(), Settings::default());
    let live = connection.ready().await.unwrap();
    for (switch, sent) in [
        (json!({"redirect": redirect}), None),
        (json!({"content_type": "text/html"}), None),
        (json!({"status": 418}), None),
        // Somebody must log in; it is no answer either.
        (json!({"status": 401}), Some(true)),
        (json!({"status": 503}), Some(true)),
        (json!({"garbage": true}), None),
        (json!({"unknown_id": true}), None),
    ] {
        scene.switch(&switch);
        let outcome = call(&live, "echo", json!({"text": "x"})).await;
        match (&outcome, sent) {
            (Outcome::Failed(TransmitFailure::Protocol { .. }), None) => {}
            (Outcome::Failed(TransmitFailure::Unavailable { sent, .. }), Some(expected))
                if *sent == expected => {}
            _ => panic!("{switch}: {outcome:?}"),
        }
    }
    assert!(elsewhere.accept().is_err(), "a redirect is not followed");
    scene.switch(&json!({}));
    let error = raw(call(&live, "no_such_tool", json!({})).await);
    assert!(String::from_utf8_lossy(&error).contains("-32602"));
    connection.close().await;
}

#[tokio::test]
async fn giving_up_is_said_in_the_manner_of_the_era() {
    // PRO-67
    for (revision, sse, how) in
        [("legacy", false, "notified"), ("modern", false, "disconnected"), ("modern", true, "disconnected")]
    {
        let scene = Scene::new();
        scene.switch(&json!({"sse": sse}));
        let spy = scene.http_spy(revision);
        let connection = scene.connection(spy.endpoint(), Settings::default());
        let live = connection.ready().await.unwrap();
        let (canceller, signal) = CancellationSignal::pair();
        let ask = Ask { cancel: Some(signal), ..Ask::default() };
        let arguments = json!({"ms": 600_000});
        let (outcome, ()) = tokio::join!(ask.call(&live, "slow", &arguments), async {
            scene.wait_for("the call", |line| line["method"] == "tools/call").await;
            canceller.cancel();
        });
        assert!(matches!(outcome, Outcome::Failed(TransmitFailure::Cancelled)));
        scene.wait_for("the cancellation", |line| line["event"] == "cancelled" && line["how"] == how).await;
        let ask = Ask { timeout: Duration::from_millis(50), ..Ask::default() };
        let outcome = ask.call(&live, "slow", &json!({"ms": 600_000})).await;
        assert!(matches!(outcome, Outcome::Failed(TransmitFailure::Timeout)));
        connection.close().await;
    }
}

#[tokio::test]
async fn an_answer_beyond_its_limit_is_cut_off() {
    for sse in [false, true] {
        let scene = Scene::new();
        scene.switch(&json!({"sse": sse}));
        let spy = scene.http_spy("both");
        let connection = scene.connection(spy.endpoint(), Settings::default());
        let live = connection.ready().await.unwrap();
        for bytes in [5_000, 2_000_000] {
            let ask = Ask { max: 1_000, ..Ask::default() };
            let outcome = ask.call(&live, "big", &json!({"bytes": bytes})).await;
            assert!(matches!(outcome, Outcome::TooLarge { .. }), "{outcome:?}");
        }
        connection.close().await;
    }
}

#[tokio::test]
async fn what_a_server_asks_in_a_stream_is_refused_there() {
    let scene = Scene::new();
    let spy = scene.http_spy("legacy");
    let connection = scene.connection(spy.endpoint(), Settings::default());
    let mut events = connection.events();
    let live = connection.ready().await.unwrap();
    scene.switch(&json!({"server_request": ["ping", "sampling/createMessage"]}));
    let told = raw(call(&live, "echo", json!({"text": "x"})).await);
    assert!(String::from_utf8_lossy(&told).contains("-32601"));
    event(&mut events, |event| matches!(event, UpstreamEvent::ServerRequest { .. })).await;
    connection.close().await;
}

#[tokio::test]
async fn plain_http_goes_to_this_machine() {
    let scene = Scene::new();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let connection = scene.connection(at(&format!("http://{closed}/mcp")), Settings::default());
    assert!(matches!(connection.ready().await, Err(UpstreamError::Unavailable { .. })));
    let spy = scene.http_spy("both");
    let connection = scene.connection(at(&spy.url.replace("127.0.0.1", "localhost")), Settings::default());
    connection.ready().await.unwrap();
    connection.close().await;
}

#[tokio::test]
async fn a_changed_list_is_announced_over_http_in_both_eras() {
    for revision in ["legacy", "modern"] {
        let scene = Scene::new();
        let spy = scene.http_spy(revision);
        let connection = scene.connection(spy.endpoint(), Settings::default());
        let mut events = connection.events();
        connection.ready().await.unwrap();
        scene
            .wait_for("a listener", |line| {
                line["method"] == "subscriptions/listen" || line["http_method"] == "GET"
            })
            .await;
        // The spy announces once per content of its file, to whoever listens by then.
        scene.switch(&json!({"list_changed": true}));
        event(&mut events, |event| matches!(event, UpstreamEvent::ListChanged)).await;
        assert_eq!(connection.status().in_flight, 0, "listening holds up nobody");
        connection.close().await;
    }
}
