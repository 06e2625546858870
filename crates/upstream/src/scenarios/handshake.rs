//! Both eras, found out; lists, read whole.

use std::time::Duration;

use serde_json::{Value, json};

use super::spy::{Scene, call, text};
use crate::{Endpoint, Era, Settings, UpstreamError, probe_once};

#[tokio::test]
async fn each_revision_is_greeted_in_its_era() {
    // PRO-2, PRO-62
    for (revision, era, version) in [
        ("modern", Era::Modern, "2026-07-28"),
        ("both", Era::Modern, "2026-07-28"),
        ("legacy", Era::Legacy, "2025-11-25"),
        ("2025-06-18", Era::Legacy, "2025-06-18"),
        ("2024-11-05", Era::Legacy, "2024-11-05"),
    ] {
        let scene = Scene::new();
        let connection = scene.stdio(revision);
        let live = connection.ready().await.unwrap();
        let greeting = live.greeting();
        assert_eq!((greeting.era, greeting.protocol_version), (era, version), "{revision}");
        assert_eq!(greeting.server_name.as_deref(), Some("spy"));
        assert_eq!(greeting.server_version.as_deref(), Some("1.0.0"));
        assert_eq!(text(call(&live, "echo", json!({"text": "h\u{e9}"})).await), "h\u{e9}");
        let starts = scene.log().iter().filter(|line| line["event"] == "start").count();
        assert_eq!(starts, if era == Era::Modern { 1 } else { 2 }, "a fresh process for the other era");
        connection.close().await;

        // PRO-2: a remembered era is not asked for again.
        let again = Scene::new();
        let connection = again.stdio(revision).remembering(era);
        connection.ready().await.unwrap();
        let starts = again.log().iter().filter(|line| line["event"] == "start").count();
        assert_eq!(starts, 1);
        connection.close().await;
    }
}

#[tokio::test]
async fn every_exchange_without_a_permit_to_call_has_a_permit_to_probe() {
    // GOV-404: recorded before anything is sent
    let scene = Scene::new();
    let connection = scene.stdio("legacy");
    connection.probe().await.unwrap();
    connection.close().await;
    let folder = scene.path("audit");
    drop(connection);
    let Scene { folder: _folder, audit } = scene;
    drop(audit);
    let records = portcullis_audit::read(&folder);
    let told = format!("{:?}", records.unwrap().map(Result::unwrap).collect::<Vec<_>>());
    for method in ["server/discover", "initialize", "tools/list"] {
        assert!(told.contains(method), "{method}: {told}");
    }
}

#[tokio::test]
async fn a_server_that_dies_of_the_question_or_ignores_it_is_an_old_one() {
    // PRO-62
    for (switch, settings) in [
        (json!({"die_on_discover": true}), Settings::default()),
        (
            json!({"silent_discover": true}),
            Settings { probe_patience: Duration::from_millis(300), ..Settings::default() },
        ),
    ] {
        let scene = Scene::new();
        scene.switch(&switch);
        let connection = scene.connection(Endpoint::Stdio(scene.program("legacy")), settings);
        assert_eq!(connection.ready().await.unwrap().greeting().era, Era::Legacy);
        connection.close().await;
    }
}

#[tokio::test]
async fn a_server_remembered_as_old_may_have_become_new() {
    let scene = Scene::new();
    let connection = scene.stdio("modern").remembering(Era::Legacy);
    assert_eq!(connection.ready().await.unwrap().greeting().era, Era::Modern);
    connection.close().await;
}

#[tokio::test]
async fn all_pages_are_read_and_definitions_kept_as_written() {
    // PRO-13, PRO-65, CAT-40
    for revision in ["modern", "legacy"] {
        let scene = Scene::new();
        scene.switch(&json!({"pages": 4, "empty_cursor": true}));
        let connection = scene.stdio(revision);
        let snapshot = connection.probe().await.unwrap();
        let names: Vec<String> = snapshot
            .tools
            .iter()
            .map(|tool| {
                serde_json::from_str::<Value>(tool.get()).unwrap()["name"].as_str().unwrap().to_owned()
            })
            .collect();
        assert_eq!(names.len(), 9, "{names:?}");
        assert_eq!((names[0].as_str(), names[8].as_str()), ("echo", "pid"));
        assert_eq!(scene.methods().iter().filter(|method| *method == "tools/list").count(), 4);
        connection.close().await;
    }
}

#[tokio::test]
async fn a_list_that_never_ends_is_refused() {
    // CAT-40, SG-02
    let scene = Scene::new();
    scene.switch(&json!({"cursor_loop": true}));
    let connection = scene.stdio("legacy");
    let error = connection.probe().await.unwrap_err();
    assert!(matches!(error, UpstreamError::CursorLoop));
    assert_eq!(error.violation(), Some("mcp-list-cursor-loop"));
    connection.close().await;
}

#[tokio::test]
async fn a_list_with_one_tool_too_many_is_refused_whole() {
    // CAT-40, T-PRO-4
    for (count, fits) in [(20_000, true), (20_001, false)] {
        let tools: Vec<Value> = (0..count)
            .map(|number| json!({"name": format!("t{number}"), "inputSchema": {"type": "object"}}))
            .collect();
        let scene = Scene::new();
        scene.switch(&json!({"catalogue": tools, "pages": 3}));
        let connection = scene.stdio("modern");
        match connection.probe().await {
            Ok(snapshot) => assert!(fits && snapshot.tools.len() == count),
            Err(error) => assert!(!fits && matches!(error, UpstreamError::ListTooLong { .. }), "{error}"),
        }
        connection.close().await;
    }
}

#[tokio::test]
async fn a_burst_of_changes_after_the_greeting_is_waited_out() {
    // PRO-64
    let scene = Scene::new();
    scene.switch(&json!({"list_changed": 5, "extra_tool": "late_comer"}));
    let connection = scene.stdio("legacy");
    let snapshot = connection.probe().await.unwrap();
    assert!(snapshot.tools.iter().any(|tool| tool.get().contains("late_comer")));
    connection.close().await;
}

#[tokio::test]
async fn looking_once_leaves_nothing_behind() {
    let scene = Scene::new();
    let prober = portcullis_governance::boundary::Prober::new(scene.audit.clone(), "1.0".parse().unwrap());
    let endpoint = Endpoint::Stdio(scene.program("both"));
    let settings = Settings::default();
    let snapshot =
        probe_once(&"spy".parse().unwrap(), &endpoint, std::sync::Arc::new(prober), &settings).await.unwrap();
    assert_eq!((snapshot.greeting.era, snapshot.tools.len()), (Era::Modern, 9));
    let control = scene.path("control.json").display().to_string();
    assert!(super::spy::processes_with(&control).is_empty());
}

#[tokio::test]
async fn a_program_that_fails_is_explained_by_its_last_words() {
    let scene = Scene::new();
    let mut program = scene.program("both");
    program.profile.args.push("--no-such-option".into());
    let settings =
        Settings { breaker_failures: 2, backoff_first: Duration::from_secs(20), ..Settings::default() };
    let connection = scene.connection(Endpoint::Stdio(program), Settings { breaker_failures: 1, ..settings });
    let error = connection.ready().await.unwrap_err().to_string();
    assert!(error.contains("status 2") && error.contains("--help"), "{error}");
    // PRO-39: after too many failures nobody is let through for a while.
    let error = connection.ready().await.unwrap_err();
    assert!(matches!(error, UpstreamError::BreakerOpen { failures: 1, .. }), "{error}");
    assert_eq!(connection.status().phase, crate::Phase::BreakerOpen);

    let missing = crate::StdioEndpoint { profile: scene.caged("/nonexistent/server", &[]), pins: Vec::new() };
    let connection = scene.connection(Endpoint::Stdio(missing), Settings::default());
    let error = connection.ready().await.unwrap_err();
    assert!(matches!(error, UpstreamError::Isolation { .. }), "{error}");
    assert_eq!(connection.status().phase, crate::Phase::Failing);
}
