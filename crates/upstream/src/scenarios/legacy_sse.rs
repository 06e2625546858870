//! Servers of the first revision over HTTP.

use std::sync::Arc;
use std::time::Duration;

use portcullis_governance::boundary::{CancellationSignal, Outcome, TransmitFailure};
use portcullis_governance::endpoint::HttpEndpoint;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::spy::{Ask, Scene, call, event, text};
use crate::{Endpoint, Era, Remote, Settings, UpstreamError, UpstreamEvent};

fn stream_at(url: &str) -> Endpoint {
    let url = HttpEndpoint::parse(&url.replace("/mcp", "/sse")).unwrap();
    Endpoint::LegacySse(Remote { url, spki: None })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_on_the_stream_reach_the_calls_that_were_posted() {
    // PRO-38
    let scene = Scene::new();
    let spy = scene.http_spy("2024-11-05");
    let connection = Arc::new(scene.connection(stream_at(&spy.url), Settings::default()));
    let snapshot = connection.probe().await.unwrap();
    assert_eq!((snapshot.greeting.era, snapshot.greeting.protocol_version), (Era::Legacy, "2024-11-05"));
    let calls: Vec<_> = (0..30)
        .map(|n| {
            let connection = Arc::clone(&connection);
            tokio::spawn(async move {
                let live = connection.ready().await.unwrap();
                text(call(&live, "echo", json!({"text": format!("call {n}")})).await)
            })
        })
        .collect();
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap(), format!("call {n}"));
    }
    let posted = scene.log().iter().filter(|line| line["path"] == "/messages").count();
    assert!(posted >= 32, "{posted}");
    connection.close().await;
}

#[tokio::test]
async fn giving_up_is_told_and_the_rest_goes_on() {
    let scene = Scene::new();
    let spy = scene.http_spy("2024-11-05");
    let connection = scene.connection(stream_at(&spy.url), Settings::default());
    let live = connection.ready().await.unwrap();
    let (canceller, signal) = CancellationSignal::pair();
    let (ask, arguments) = (Ask { cancel: Some(signal), ..Ask::default() }, json!({"ms": 600_000}));
    let (outcome, ()) = tokio::join!(ask.call(&live, "slow", &arguments), async {
        scene.wait_for("the call", |line| line["method"] == "tools/call").await;
        canceller.cancel();
    });
    assert!(matches!(outcome, Outcome::Failed(TransmitFailure::Cancelled)));
    scene.wait_for("the cancellation", |line| line["method"] == "notifications/cancelled").await;
    assert_eq!(text(call(&live, "echo", json!({"text": "still"})).await), "still");
    connection.close().await;
}

#[tokio::test]
async fn a_stream_that_ends_ends_the_connection_and_a_new_one_is_looked_at_first() {
    let scene = Scene::new();
    let spy = scene.http_spy("2024-11-05");
    let url = spy.url.clone();
    let connection = scene.connection(stream_at(&url), Settings::default());
    let mut events = connection.events();
    let live = connection.ready().await.unwrap();
    drop(spy);
    event(&mut events, |event| matches!(event, UpstreamEvent::Exited { .. })).await;
    let outcome = call(&live, "echo", json!({"text": "x"})).await;
    assert!(
        matches!(outcome, Outcome::Failed(TransmitFailure::Unavailable { sent: false, .. })),
        "{outcome:?}"
    );
    assert!(!live.is_alive());
    connection.close().await;
}

#[tokio::test]
async fn a_changed_list_is_heard_on_the_stream() {
    let scene = Scene::new();
    let spy = scene.http_spy("2024-11-05");
    let connection = scene.connection(stream_at(&spy.url), Settings::default());
    let mut events = connection.events();
    connection.ready().await.unwrap();
    scene.switch(&json!({"list_changed": true}));
    event(&mut events, |event| matches!(event, UpstreamEvent::ListChanged)).await;
    connection.close().await;
}

/// A listener that answers the first request with this.
async fn saying(answer: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/sse", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await;
        stream.write_all(answer.as_bytes()).await.unwrap();
        std::future::pending::<()>().await;
    });
    url
}

#[tokio::test]
async fn a_server_that_wants_its_messages_elsewhere_gets_none() {
    // GOV §3, MP-FH-005
    let elsewhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let foreign = format!("{head}event: endpoint\ndata: http://{}/m\n\n", elsewhere.local_addr().unwrap());
    let scene = Scene::new();
    let connection = scene.connection(stream_at(&saying(foreign).await), Settings::default());
    let mut events = connection.events();
    let error = connection.ready().await.unwrap_err();
    assert!(matches!(error, UpstreamError::Protocol { .. }), "{error}");
    event(&mut events, |event| matches!(event, UpstreamEvent::ForeignEndpoint)).await;
    assert!(elsewhere.accept().is_err());

    let impatient = Settings { handshake_timeout: Duration::from_millis(100), ..Settings::default() };
    let connection = scene.connection(stream_at(&saying(head.into()).await), impatient);
    let error = connection.ready().await.unwrap_err();
    assert!(error.to_string().contains("in time"), "{error}");
    let refused = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned();
    let connection = scene.connection(stream_at(&saying(refused).await), Settings::default());
    let error = connection.ready().await.unwrap_err();
    assert!(error.to_string().contains("404"), "{error}");
}
