//! What comes back: the list, pages, sums, searches, documents and windows.

use serde_json::{Value, json};

use super::{guarded, text};

#[test]
fn the_list_is_what_is_written_down_and_the_instructions_name_what_to_do_first() {
    // REC-20, REC-21, REC-80, T-REC-1, T-REC-2, T-REC-3
    let guarded = guarded("", &["--profile", "rich"]);
    let listed = guarded.agent.result("tools/list", json!({}));
    let wanted: Vec<Value> =
        serde_json::from_str(include_str!("../../../../gateway/corpus/records/tools.json")).unwrap();
    let found = listed["tools"].as_array().unwrap();
    assert_eq!(found.len(), 13);
    for (found, wanted) in found.iter().zip(&wanted) {
        let mut plain = found.clone();
        plain["name"] = json!(found["name"].as_str().unwrap().strip_prefix("personal__").unwrap());
        assert_eq!(plain.to_string(), wanted.to_string());
    }
    let told = guarded.agent.hello["instructions"].as_str().unwrap();
    let head = told[..512].trim_end();
    for topic in [
        "call schema, then schema(stream)",
        "connection_id",
        "Filters are typed objects",
        "page with limit and cursor",
    ] {
        assert!(head.contains(topic), "{head}");
    }
    assert!(head.ends_with('.') && told.contains("Records notes: "), "{told}");
    assert!(!told.to_lowercase().contains("owner"), "{told}");
}

#[test]
fn three_queries_go_through_the_whole_gate() {
    // REC-40, REC-41, T-REC-16, T-REC-18
    let guarded = guarded("", &["--profile", "rich"]).warmed();
    let schema = guarded.good("schema", json!({"stream": "messages"}));
    assert!(
        text(&schema)
            .starts_with("schema: connectors=1 streams=1 detail=compact\nstream messages connector=gmail"),
        "{}",
        text(&schema)
    );
    assert!(text(&schema).contains("expand=message_bodies|attachments"));
    let count = guarded.good("aggregate", json!({"stream": "messages", "metric": "count"}));
    assert_eq!(text(&count), "count(messages) = 70");
    assert_eq!(count["structuredContent"]["data"]["value"], 70);
    let sum =
        guarded.good("aggregate", json!({"stream": "messages", "metric": "sum", "field": "size_bytes"}));
    assert_eq!(sum["structuredContent"]["data"]["value"], 82_150);
    let page = guarded.good(
        "query_records",
        json!({
            "stream": "messages", "limit": 2, "connection_id": "cin_gmail_work", "fields": ["subject"],
            "filter": {"from_email": "p1@example.com", "received_at": {"gte": "2026-01-01T00:00:00Z"}},
        }),
    );
    let first = text(&page);
    assert!(first.starts_with("2 record(s) from messages. has_more=true next_cursor="), "{first}");
    assert!(first.contains("\ncin_gmail_work/messages:m11 subject=Status w11"), "{first}");
    assert!(page["structuredContent"]["request_id"].as_str().unwrap().starts_with("req_"));
    let log = guarded.rs.asked();
    // REC-31, T-REC-5
    assert_eq!(
        log.last().unwrap()["query"],
        json!([
            ["limit", "2"],
            ["filter[from_email]", "p1@example.com"],
            ["filter[received_at][gte]", "2026-01-01T00:00:00Z"],
            ["fields", "subject"],
            ["connection_id", "cin_gmail_work"],
        ])
    );
    let hits = guarded.good("search", json!({"q": "invoice", "limit": 2, "streams": ["messages"]}));
    let id = hits["structuredContent"]["results"][0]["id"].as_str().unwrap().to_owned();
    assert!(
        text(&hits).contains(&format!("first_fetch_id={id}")) && !text(&hits).contains("mark"),
        "{}",
        text(&hits)
    );
    let document = guarded.good("fetch", json!({"id": id}));
    assert_eq!(document["structuredContent"]["id"], id.as_str());
    let body = guarded.good("fetch", json!({"id": "cin_gmail_work/message_bodies:b1"}));
    assert!(body["structuredContent"]["text"].as_str().unwrap().starts_with("Dear reader"));
    // T-REC-17
    let window = guarded.good(
        "read_record_field",
        json!({"id": "cin_gmail_work/message_bodies:b1", "field_path": "body_text", "limit_chars": 100}),
    );
    assert!(
        text(&window).starts_with(
            "cin_gmail_work/message_bodies:b1 body_text 0..100 of 2701 next: offset_chars=100\nDear reader"
        ),
        "{}",
        text(&window)
    );
    let next = guarded.good("read_record_field", json!({"id": "cin_gmail_work/message_bodies:b1", "field_path": "body_text", "limit_chars": 100, "cursor": "100"}));
    assert_eq!(next["structuredContent"]["window"]["start_chars"], 100);
    assert_eq!(
        guarded.refused(
            "read_record_field",
            json!({"id": "cin_gmail_work/message_bodies:b1", "field_path": "body_text", "q": "zebra"})
        )["details"]["code"],
        "query_not_found"
    );
    assert_eq!(
        guarded.refused(
            "read_record_field",
            json!({"id": "cin_gmail_work/messages:m1", "field_path": "size_bytes"})
        )["details"]["http_status"],
        422
    );
    // REC-33, T-REC-15
    let fan = guarded.good("query_records", json!({"stream": "messages", "limit": 2, "fields": ["subject"]}));
    assert!(text(&fan).contains("4 rows for limit 2: several connections; page one with connection_id=cin_gmail_personal|cin_gmail_work"), "{}", text(&fan));
    // Seventy long rows stay within their lines.
    let long = guarded.good("query_records", json!({"stream": "message_bodies", "limit": 100}));
    assert!(long["content"][0]["text"].as_str().unwrap().len() <= 1_792);
    assert_eq!(long["structuredContent"]["data"]["data"].as_array().unwrap().len(), 70);
    let none = guarded.good("query_records", json!({"stream": "messages", "filter": {"subject": "nothing"}}));
    assert_eq!(text(&none), "0 record(s) from messages. has_more=false");
    guarded.home.verify();
}

#[test]
fn pages_and_changes_lead_to_the_end_once() {
    // T-REC-14
    let guarded = guarded("", &["--profile", "rich"]).warmed();
    let (mut ids, mut cursor) = (Vec::new(), None);
    loop {
        let mut asked = json!({"stream": "messages", "limit": 7, "fields": ["subject"], "connection_id": "cin_gmail_work"});
        if let Some(cursor) = &cursor {
            asked["cursor"] = json!(cursor);
        }
        let page = guarded.good("query_records", asked)["structuredContent"]["data"].clone();
        ids.extend(page["data"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()));
        cursor = page["next_cursor"].as_str().map(ToOwned::to_owned);
        if cursor.is_none() {
            assert_eq!(page["has_more"], false);
            break;
        }
    }
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!((count, ids.len()), (30, 30));
    let changes = |since: &str| {
        guarded.good(
            "query_records",
            json!({"stream": "labels", "connection_id": "cin_gmail_work", "changes_since": since}),
        )["structuredContent"]["data"]
            .clone()
    };
    let first = changes("beginning");
    assert_eq!(first["data"].as_array().unwrap().len(), 2);
    let line = json!({"connection_id": "cin_gmail_work", "stream": "labels", "data": {"name": "New", "is_system": false}});
    guarded.rs.turn("POST", "/ingest", &line);
    let second = changes(first["next_changes_since"].as_str().unwrap());
    assert_eq!(second["data"].as_array().unwrap().len(), 1);
    assert_eq!(second["data"][0]["id"], "New");
}

#[test]
fn long_texts_are_read_on_to_their_end_and_windows_are_as_asked() {
    // REC-40, REC-41, T-REC-16, T-REC-17, T-REC-18
    let guarded = guarded("", &["--profile", "rich"]).warmed();
    let whole: String = (0..10_000).map(|n| format!("é{n:03}", n = n % 1_000)).collect();
    let line = json!({"connection_id": "cin_gmail_work", "stream": "message_bodies", "data": {"id": "long", "message_id": "m0", "body_text": whole, "body_source": "text/plain"}});
    guarded.rs.turn("POST", "/ingest", &line);
    let fetched = guarded.good("fetch", json!({"id": "cin_gmail_work/message_bodies:long"}));
    let structured = &fetched["structuredContent"];
    assert_eq!(structured["metadata"]["text_chars"], 40_000, "{}", structured["metadata"]);
    assert!(fetched["content"][0]["text"].as_str().unwrap().len() <= 2_048);
    let mut read = structured["text"].as_str().unwrap().to_owned();
    let next = &structured["metadata"]["next"];
    assert_eq!(next["tool"], "read_record_field");
    // SURF-76, REC-42: one hint for the one field that was cut, none where nothing was, and no ladder of them.
    assert!(next.to_string().len() <= 512, "{next}");
    let short =
        guarded.good("fetch", json!({"id": "cin_gmail_work/messages:m1"}))["structuredContent"].clone();
    assert!(short["metadata"].get("next").is_none(), "{short}");
    let page = guarded.good("query_records", json!({"stream": "message_bodies", "limit": 5}));
    for told in [&short, &page, &fetched] {
        let told = told.to_string();
        assert!(!told.contains("content_ladder") && !told.contains("provider_url"), "{told}");
    }
    let mut arguments = next["args"].clone();
    loop {
        let window =
            guarded.good("read_record_field", arguments.clone())["structuredContent"]["window"].clone();
        read.push_str(window["text"].as_str().unwrap());
        let Some(cursor) = window["next_cursor"].as_str() else { break };
        arguments =
            json!({"id": "cin_gmail_work/message_bodies:long", "field_path": "body_text", "cursor": cursor});
    }
    assert_eq!(read, whole);
    // By search, and beyond the end.
    let field = |more: Value| {
        let mut asked = json!({"id": "cin_gmail_work/message_bodies:b1", "field_path": "body_text"});
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        asked
    };
    let hit = guarded
        .good("read_record_field", field(json!({"q": "overdue", "before_chars": 4, "after_chars": 8})));
    let window = &hit["structuredContent"]["window"];
    assert!(
        window["text"].as_str().unwrap().contains("overdue") && window["match_start_chars"].is_u64(),
        "{window}"
    );
    let past = guarded.good("read_record_field", field(json!({"offset_chars": 99_999})));
    assert_eq!(past["structuredContent"]["window"]["text"], "", "{past}");
    // Seventy rows of bodies, and with fewer fields.
    let wide = guarded.good("query_records", json!({"stream": "message_bodies", "limit": 100}));
    let narrow = guarded
        .good("query_records", json!({"stream": "message_bodies", "limit": 100, "fields": ["message_id"]}));
    let size = |result: &Value| result["structuredContent"].to_string().len();
    assert!(size(&narrow) * 4 < size(&wide), "{} {}", size(&narrow), size(&wide));
    assert!(wide["content"][0]["text"].as_str().unwrap().len() <= 1_792);
    let report = guarded.home.json(&["results", "report"]);
    let row = report["tools"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["tool"] == "personal/query_records")
        .unwrap()
        .clone();
    assert_eq!(row["structured"]["max"].as_u64().unwrap() as usize, size(&wide), "{row}");
    // Hybrid search does not page; whose answer that is can be seen.
    let hybrid = guarded.refused("search", json!({"q": "invoice", "mode": "hybrid", "cursor": "x"}));
    assert!(hybrid["details"]["upstream"]["code"].is_string(), "{hybrid}");
    for mode in ["lexical", "semantic", "hybrid"] {
        let hits = guarded.good(
            "search",
            json!({"q": "overdue invoice", "mode": mode, "limit": 3, "streams": ["messages"]}),
        );
        assert!(!hits["structuredContent"]["results"].as_array().unwrap().is_empty(), "{mode}");
    }
    let groups =
        guarded.good("aggregate", json!({"stream": "messages", "metric": "count", "group_by": "is_seen"}));
    assert_eq!(
        text(&groups).lines().next().unwrap(),
        "count(messages) by is_seen: 2 group(s)",
        "{}",
        text(&groups)
    );
    guarded.home.verify();
}

#[test]
fn without_events_there_are_seven_tools() {
    // REC-20, T-REC-3
    let guarded = guarded("[records.personal]\nevents = \"off\"\n", &[]);
    let listed = guarded.agent.result("tools/list", json!({}));
    assert_eq!(listed["tools"].as_array().unwrap().len(), 7);
}

#[test]
fn names_are_the_same_for_every_client_and_bare_where_the_operator_wants_it() {
    // SURF-36, REC-3, REC-20, REC-41, T-REC-3
    for (config, prefix, count) in [
        ("[surface]\nprofile = \"codex\"\n", "personal__", 13),
        ("[surface]\nprofile = \"claude-code\"\nmode = \"enforce\"\n", "personal__", 13),
        ("[surface]\nprofile = \"chatgpt\"\n[records.personal]\nbare_names = true\n", "", 13),
        ("[records.personal]\nbare_names = true\nevents = \"off\"\n", "", 7),
    ] {
        let guarded = guarded(config, &["--profile", "rich"]);
        let listed = guarded.agent.result("tools/list", json!({}));
        let names: Vec<&str> =
            listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        let wanted: Vec<Value> =
            serde_json::from_str(include_str!("../../../../gateway/corpus/records/tools.json")).unwrap();
        let wanted: Vec<String> = wanted
            .iter()
            .take(count)
            .map(|tool| format!("{prefix}{}", tool["name"].as_str().unwrap()))
            .collect();
        assert_eq!(names, wanted, "{config}");
        if !config.contains("chatgpt") {
            continue;
        }
        // Some clients look for exactly these two, and read documents.
        let hits = guarded.agent.call("search", json!({"q": "invoice", "streams": ["messages"], "limit": 2}));
        let text: Value =
            serde_json::from_str(hits["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
        let id = text["results"][0]["id"].as_str().unwrap();
        let record = guarded.agent.call("fetch", json!({"id": id}));
        let text: Value =
            serde_json::from_str(record["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(
            (text["id"].as_str(), text["metadata"]["stream"].as_str()),
            (Some(id), Some("messages")),
            "{text}"
        );
    }
}
