//! The expand gate: what the live schema says decides.

use serde_json::{Value, json};

use super::guarded;
use crate::support::{eventually, exchange};

#[test]
fn expansion_is_refused_where_the_live_schema_has_none() {
    // REC-60, REC-61, REC-64, T-REC-7, T-REC-8, T-REC-9
    let guarded = guarded("", &["--profile", "rich"]).warmed();
    let page = guarded.good("query_records", json!({"stream": "messages", "limit": 1, "connection_id": "cin_gmail_work", "expand": ["message_bodies"]}));
    assert!(page["structuredContent"]["data"]["data"][0]["expanded"]["message_bodies"].is_object());
    let log = guarded.rs.asked();
    assert_eq!(
        log.iter().map(|entry| entry["path"].as_str().unwrap()).collect::<Vec<_>>(),
        ["/v1/schema", "/v1/streams/messages/records"]
    );
    assert_eq!(
        log[0]["query"],
        json!([["view", "compact"], ["stream", "messages"], ["connection_id", "cin_gmail_work"]])
    );
    for (tool, arguments) in [
        ("query_records", json!({"stream": "labels", "expand": ["messages"]})),
        ("query_records", json!({"stream": "labels", "expand_limit": {"messages": 2}})),
        ("fetch", json!({"id": "cin_gmail_work/labels:INBOX", "expand": ["messages"]})),
        ("fetch", json!({"id": "cin_gmail_work/labels:INBOX", "expand_limit": {"messages": 2}})),
    ] {
        let refused = guarded.refused(tool, arguments);
        assert_eq!(refused["details"]["code"], "invalid_expand", "{refused}");
        assert_eq!(
            (&refused["details"]["gate"], &refused["details"]["verdict"]),
            (&json!("records-expand"), &json!("deny"))
        );
        let message = refused["message"].as_str().unwrap();
        assert!(
            message.contains("'labels'") && message.contains("GET /v1/schema (expand_capabilities)"),
            "{message}"
        );
        assert_eq!(refused["path"], format!("personal/{tool}"));
    }
    let log = guarded.rs.asked();
    assert!(log.iter().all(|entry| entry["path"] == "/v1/schema") && log.len() == 4, "{log:?}");
    assert_eq!(log[2]["query"][2], json!(["connection_id", "cin_gmail_work"]));
    guarded.good("query_records", json!({"stream": "labels", "expand": []}));
    assert_eq!(guarded.rs.paths(), ["/v1/streams/labels/records"]);
    // A capability binds the next call, in both directions.
    let relation = json!([{"name": "messages", "usable": true}]);
    guarded.rs.turn("PUT", "/capabilities", &json!({"stream": "labels", "expand": relation}));
    let forwarded = guarded.refused(
        "query_records",
        json!({"stream": "labels", "connection_id": "cin_gmail_work", "expand": ["messages"]}),
    );
    assert_eq!(
        (&forwarded["error"], &forwarded["details"]["http_status"]),
        (&json!("UPSTREAM_ERROR"), &json!(400))
    );
    guarded.rs.turn("PUT", "/capabilities", &json!({"stream": "labels", "expand": []}));
    assert_eq!(
        guarded.refused("query_records", json!({"stream": "labels", "expand": ["messages"]}))["details"]["verdict"],
        "deny"
    );
}

#[test]
fn every_shape_of_the_schema_gives_the_same_verdict() {
    // REC-62, T-REC-10
    let guarded = guarded("", &["--profile", "rich"]).warmed();
    for shape in ["nested", "flat", "wrapped", "wrapped-nested"] {
        guarded.rs.turn("PUT", "/schema-shape", &json!({"shape": shape}));
        guarded.good("query_records", json!({"stream": "messages", "limit": 1, "expand": ["attachments"], "connection_id": "cin_gmail_work"}));
        let refused = guarded.refused("query_records", json!({"stream": "labels", "expand": ["x"]}));
        assert_eq!(refused["details"]["verdict"], "deny", "{shape}");
        // One of two connections can: that one, or any.
        guarded.rs.turn(
            "PUT",
            "/capabilities",
            &json!({"stream": "messages", "connection_id": "cin_gmail_work", "expand": []}),
        );
        guarded.good("query_records", json!({"stream": "messages", "limit": 1, "expand": ["attachments"]}));
        let refused = guarded.refused("query_records", json!({"stream": "messages", "limit": 1, "expand": ["attachments"], "connection_id": "cin_gmail_work"}));
        assert_eq!(refused["details"]["verdict"], "deny", "{shape}");
        guarded.rs.turn(
            "PUT",
            "/capabilities",
            &json!({"stream": "messages", "connection_id": "cin_gmail_work", "expand": null}),
        );
    }
}

#[test]
fn a_schema_that_cannot_be_read_stops_nothing_but_is_told_of() {
    // REC-63, SURF-92, SURF-95, T-REC-11
    let guarded = guarded("", &["--profile", "rich"]).warmed();
    let asked = json!({"stream": "messages", "limit": 1, "connection_id": "cin_gmail_work", "expand": ["attachments"]});
    let faults = [
        json!({"kind": "status", "status": 503}),
        json!({"kind": "status", "status": 401}),
        json!({"kind": "hang", "delay_ms": 4000}),
        json!({"kind": "reset"}),
        json!({"kind": "bad_json"}),
        json!({"kind": "html"}),
        json!({"kind": "large", "body_bytes": 2_097_152}),
        json!({"kind": "redirect"}),
    ];
    for fault in faults {
        let mut fault = fault;
        fault["path_prefix"] = json!("/v1/schema");
        guarded.rs.fault(fault.clone());
        guarded.good("query_records", asked.clone());
        assert_eq!(guarded.rs.paths().last().unwrap(), "/v1/streams/messages/records", "{fault}");
    }
    assert_eq!(guarded.home.events("gate.never_decides").len(), 0);
    for _ in 0..12 {
        guarded.rs.fault(json!({"path_prefix": "/v1/schema", "kind": "status", "status": 503}));
        guarded.good("query_records", asked.clone());
    }
    let told = eventually("the alarm", || guarded.home.events("gate.never_decides").pop());
    assert!(told["data"]["reason"].as_str().unwrap().contains("records-expand"), "{told}");
    // The relation itself is judged by the server, unless the operator wants it judged here.
    guarded.rs.asked();
    let passed = guarded.refused(
        "query_records",
        json!({"stream": "messages", "limit": 1, "connection_id": "cin_gmail_work", "expand": ["thread"]}),
    );
    assert_eq!(passed["details"]["upstream"]["code"], "invalid_expand");
}

#[test]
fn relations_are_judged_here_if_the_operator_wants_it() {
    // REC-65, T-REC-12, T-REC-13
    let guarded = guarded("[records.personal]\nstrict_relations = true\n", &["--profile", "rich"]).warmed();
    let refused = guarded.refused("query_records", json!({"stream": "messages", "expand": ["thread"]}));
    assert_eq!(refused["details"]["verdict"], "deny");
    assert_eq!(guarded.rs.paths(), ["/v1/schema"]);
    guarded.rs.turn("PUT", "/profile", &json!({"profile": "v01"}));
    assert_eq!(
        guarded.refused("query_records", json!({"stream": "messages", "expand": ["attachments"]}))["details"]
            ["verdict"],
        "deny"
    );
    let plain = guarded.refused("query_records", json!({"stream": "messages", "filter": {"is_seen": true}}));
    assert_eq!(
        (&plain["details"]["code"], &plain["details"]["upstream"]["param"]),
        (&json!("invalid_request"), &json!("filter"))
    );
}

#[test]
fn what_is_forwarded_is_what_the_server_answers() {
    // REC-64, T-REC-7
    let guarded = guarded("", &["--profile", "rich"]).warmed();
    let asked = json!({"stream": "messages", "limit": 2, "connection_id": "cin_gmail_work", "expand": ["attachments"], "expand_limit": {"attachments": 1}});
    let shown = guarded.good("query_records", asked)["structuredContent"]["data"].to_string();
    // Its links are texts, and texts are escaped.
    let shown: Value = serde_json::from_str(&shown.replace("&amp;", "&")).unwrap();
    let path = "/v1/streams/messages/records?limit=2&expand=attachments&expand_limit%5Battachments%5D=1&connection_id=cin_gmail_work";
    let bearer = format!("Bearer {}", guarded.rs.tokens["client"].as_str().unwrap());
    let own = exchange(
        guarded.rs.rs.strip_prefix("http://").unwrap(),
        "GET",
        path,
        &[("Authorization", &bearer)],
        "",
    )
    .unwrap()
    .json();
    assert_eq!(shown, own);
    let single =
        guarded.good("fetch", json!({"id": "cin_gmail_work/messages:m0", "expand": ["message_bodies"]}));
    assert!(single["structuredContent"]["metadata"]["expanded"]["message_bodies"].is_object(), "{single}");
}
