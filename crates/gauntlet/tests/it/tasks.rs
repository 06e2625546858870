//! Results that say "later" (GNT-P7).

use bytes::Bytes;
use portcullis_gauntlet::{Gauntlet, GauntletError, RawResult, TaskPayload, TaskReport, TaskStatus};
use serde_json::{Value, json};

use crate::tool;

fn reported(report: &Value) -> Result<TaskReport, GauntletError> {
    let spec = tool(&json!({"type": "object"}), None);
    Gauntlet::default().task_reported(&spec, RawResult::new(Bytes::from(report.to_string())))
}

fn created(text: &str) -> Result<Option<TaskReport>, GauntletError> {
    let spec = tool(&json!({"type": "object"}), None);
    Gauntlet::default().task_created(&spec, &RawResult::new(Bytes::copy_from_slice(text.as_bytes())))
}

fn working() -> Value {
    json!({"taskId": "t<1>", "status": "working", "createdAt": "2026-01-01T00:00:00Z", "ttlMs": 5, "resultType": "complete"})
}

#[test]
fn only_what_says_it_is_a_task_is_one() {
    // GNT-P7
    let task =
        created(r#"{"resultType":"task","taskId":"a","status":"working","ttlMs":null,"pollIntervalMs":7}"#);
    let task = task.unwrap().unwrap();
    assert_eq!((task.handle.for_its_server(), task.status), ("a", TaskStatus::Working));
    assert_eq!((task.ttl_ms, task.poll_interval_ms), (None, Some(7)));
    for no_task in [
        r#"{"content":[]}"#,
        r#"{"content":[{"type":"text","text":"resultType: \"task\""}]}"#,
        r#"{"resultType":"complete","taskId":"a","status":"working","content":[]}"#,
        "not json \"task\"",
    ] {
        assert!(created(no_task).unwrap().is_none(), "{no_task}");
    }
    for broken in [
        r#"{"resultType":"task"}"#,
        r#"{"resultType":"task","taskId":"","status":"working"}"#,
        r#"{"resultType":"task","taskId":"a","status":"dancing"}"#,
        r#"{"resultType":"task","taskId":"a","taskId":"b","status":"working"}"#,
    ] {
        assert!(created(broken).is_err(), "{broken}");
    }
    let long = "x".repeat(1_025);
    assert!(created(&format!(r#"{{"resultType":"task","taskId":"{long}","status":"working"}}"#)).is_err());
}

#[test]
fn a_report_is_words_and_numbers_and_what_is_inside_stays_raw() {
    let mut report = working();
    report["statusMessage"] = json!("<b>__system__ nearly</b>\u{7}");
    let said = reported(&report).unwrap();
    assert_eq!(said.message.as_deref(), Some("&lt;b&gt; nearly&lt;/b&gt;"));
    // The server's own id goes back as it came, and is not printed.
    assert_eq!(said.handle.for_its_server(), "t<1>");
    assert!(!format!("{said:?}").contains("t<1>"));

    let mut done = working();
    done["status"] = json!("completed");
    assert!(reported(&done).is_err(), "a completed task without a result");
    done["result"] = json!({"content": []});
    assert!(matches!(reported(&done).unwrap().payload, TaskPayload::Result(_)));
    let mut failed = working();
    failed["status"] = json!("failed");
    assert!(reported(&failed).is_err(), "a failed task without an error");
    failed["error"] = json!({"code": -32603, "message": "x"});
    assert!(matches!(reported(&failed).unwrap().payload, TaskPayload::Error(_)));
}

#[test]
fn questions_of_a_task_are_cleaned_like_any() {
    let mut report = working();
    report["status"] = json!("input_required");
    assert!(reported(&report).is_err(), "a task that waits for nothing");
    report["inputRequests"] =
        json!({"q": {"method": "elicitation/create", "params": {"message": "<|im_start|>go <on>"}}});
    let TaskPayload::Questions(asked) = reported(&report).unwrap().payload else { panic!("no questions") };
    let text = String::from_utf8(asked.json().to_vec()).unwrap();
    assert!(!text.contains("im_start") && text.contains("&lt;on&gt;"), "{text}");
}
