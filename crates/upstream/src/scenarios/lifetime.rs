//! No process outlives its connection, nor us.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;

use super::spy::{Scene, call, gone, processes_with, runs, text};
use crate::{Endpoint, Phase, Settings, StdioEndpoint, UpstreamError};

#[tokio::test]
async fn closing_leaves_no_process() {
    // PRO-39, PRO-64
    let scene = Scene::new();
    let connection = scene.stdio("both");
    let live = connection.ready().await.unwrap();
    let pid = live.pid().unwrap();
    assert!(runs(pid));
    connection.close().await;
    assert!(!runs(pid));
    assert!(matches!(connection.ready().await, Err(UpstreamError::Closed)));
    assert_eq!(connection.status().phase, Phase::Closed);
    assert_eq!(scene.log().last().unwrap()["reason"], "stdin closed", "it was asked politely");
}

#[tokio::test]
async fn a_connection_that_is_dropped_takes_its_process_with_it() {
    let scene = Scene::new();
    let connection = scene.stdio("both");
    let pid = connection.ready().await.unwrap().pid().unwrap();
    drop(connection);
    assert!(gone(pid).await);
}

#[tokio::test]
async fn calls_under_way_are_let_finish() {
    let scene = Scene::new();
    let connection = scene.stdio("both");
    let live = connection.ready().await.unwrap();
    let (outcome, ()) = tokio::join!(call(&live, "slow", json!({"ms": 300})), async {
        scene.wait_for("the call", |line| line["method"] == "tools/call").await;
        connection.close().await;
    });
    assert_eq!(text(outcome), "done");
}

#[tokio::test]
async fn a_stubborn_child_and_what_it_started_are_ended() {
    // PRO-64: it ignores the end of its input and SIGTERM, and has a child of its own.
    let scene = Scene::new();
    let script = scene.path("stubborn.sh");
    let unique = format!("1000.{}", std::process::id());
    let lines = format!("trap '' TERM\nsleep {unique} &\nwhile :; do sleep 0.1; done\n");
    std::fs::write(&script, lines).unwrap();
    let script = script.display().to_string();
    let mut profile = scene.caged(std::fs::canonicalize("/bin/sh").unwrap(), &[&script, &unique]);
    profile.exec.push("/usr/bin/sleep".into());
    let program = StdioEndpoint { profile, pins: Vec::new() };
    let settings = Settings {
        probe_patience: Duration::from_millis(500),
        handshake_timeout: Duration::from_millis(100),
        grace: Duration::from_millis(200),
        ..Settings::default()
    };
    let connection = scene.connection(Endpoint::Stdio(program), settings);
    let (outcome, most) = tokio::join!(connection.ready(), async {
        let mut most = 0;
        for _ in 0..100 {
            most = most.max(processes_with(&unique).len());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        most
    });
    assert!(matches!(outcome, Err(UpstreamError::Timeout { .. })), "{outcome:?}");
    assert!(most >= 2, "it and its child did run");
    for pid in processes_with(&unique) {
        assert!(gone(pid).await, "{pid} is left");
    }
}

#[tokio::test]
async fn a_changed_program_is_not_started() {
    // GOV §3: pins are compared before each start
    let scene = Scene::new();
    let exe = std::env::current_exe().unwrap();
    let ours = tempfile::tempdir_in(exe.parent().unwrap()).unwrap();
    let program = ours.path().join("server");
    std::fs::copy(super::spy::spyd(), &program).unwrap();
    let mut endpoint = scene.program("both");
    let (command, pins) =
        portcullis_governance::endpoint::pin_command(program.to_str().unwrap(), &[]).unwrap();
    (endpoint.profile.command, endpoint.pins) = (command, pins);
    let connection = scene.connection(Endpoint::Stdio(endpoint.clone()), Settings::default());
    connection.ready().await.unwrap();
    connection.close().await;
    let mut bytes = std::fs::read(&program).unwrap();
    bytes.push(0);
    std::fs::write(&program, bytes).unwrap();
    let connection = scene.connection(Endpoint::Stdio(endpoint), Settings::default());
    let error = connection.ready().await.unwrap_err();
    assert_eq!(error.fault().as_str(), "MP-FH-009", "{error}");
}

/// Not a test of its own: the process that is killed below.
#[tokio::test]
#[ignore = "started by another test"]
#[allow(clippy::print_stdout)]
async fn a_gateway_to_be_killed() {
    let scene = Scene::new();
    let connection = scene.stdio("both");
    let pid = connection.ready().await.unwrap().pid().unwrap();
    println!("\nchild {pid}");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn children_die_with_a_gateway_that_was_killed() {
    // SIGKILL leaves no time to clean up: the kernel does it.
    let mut gateway = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "scenarios::lifetime::a_gateway_to_be_killed", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(gateway.stdout.take().unwrap()).lines();
    let pid = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("child ")?.parse().ok());
    let pid = pid.expect("the gateway names its child");
    assert!(runs(pid));
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    assert!(gone(pid).await, "{pid} outlived its gateway");
}
