use super::*;
use crate::cards::tokens;
use crate::fixture::{catalogue, tools};

fn path<'a>(path: &'a str, top_k: Option<usize>, cursor: Option<&'a str>) -> Request<'a> {
    Request { path: Some(path), top_k, cursor, ..Request::default() }
}

fn query(query: &str) -> Request<'_> {
    Request { query: Some(query), ..Request::default() }
}

/// Everything below a path, page by page and node by node.
fn leaves(snapshot: &CatalogSnapshot, at: &str, top_k: usize) -> Vec<usize> {
    let (mut found, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let request = path(at, Some(top_k), cursor.as_deref());
        let answer = snapshot.browse(request, snapshot.everything(), BrowseOptions::default(), None).unwrap();
        found.extend(&answer.items);
        cursor = None;
        for line in answer.text.lines() {
            if let Some(next) = line.strip_prefix("more: cursor=") {
                cursor = Some(next.to_owned());
            } else if line.starts_with('/') {
                assert!(tokens(line) <= 60, "{line}");
                let node = line.split(' ').next().unwrap().trim_end_matches('/');
                found.extend(leaves(snapshot, node, top_k));
            }
        }
        if cursor.is_none() {
            return found;
        }
    }
}

#[test]
fn every_tool_of_a_thousand_is_reached_by_paths_exactly_once() {
    // CAT-76, CAT-77, T-CAT-11
    let nouns =
        ["issue", "repo", "user", "build", "file", "alert", "team", "label", "hook", "branch", "x", "y"];
    let verbs =
        ["create", "list", "get", "delete", "update", "search", "close", "open", "lock", "sync", "move"];
    let names = (0..1_000usize)
        .map(|n| format!("ns{}.{}_{}_{n}", n % 8, verbs[n % verbs.len()], nouns[(n / 8) % nouns.len()]));
    let snapshot = catalogue(&names.map(|name| (name, "does something".to_owned())).collect::<Vec<_>>());
    for top_k in [7, 50] {
        let mut found = leaves(&snapshot, "/", top_k);
        assert_eq!(found.len(), 1_000);
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), 1_000);
    }
}

#[test]
fn a_namespace_is_always_there_however_many_there_are() {
    // T-CAT-12
    let few = tools(&["github.a", "github.b", "github.c"]);
    let thirty = |ns: &str| (0..30).map(move |n| format!("{ns}.t{n}")).collect::<Vec<_>>();
    let sixty: Vec<String> = thirty("github").into_iter().chain(thirty("slack")).collect();
    let many: Vec<String> = (0..200).map(|n| format!("ns{n}.x")).chain(["github.y".into()]).collect();
    let named = |names: &[String]| tools(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for (snapshot, count) in [(few, 3), (named(&sixty), 30), (named(&many), 1)] {
        let answer = |at: &str| {
            snapshot.browse(path(at, None, None), snapshot.everything(), BrowseOptions::default(), None)
        };
        assert_eq!(answer("/github").unwrap().items.len(), count);
        assert!(answer("/").unwrap().text.lines().count() >= 1);
        assert_eq!(answer("/none"), Err(BrowseError::PathNotFound));
    }
}

#[test]
fn odd_requests_are_named_errors() {
    // CAT-70, T-CAT-21
    let snapshot = tools(&["github.create_issue", "slack.send_message"]);
    let ask = |request| snapshot.browse(request, snapshot.everything(), BrowseOptions::default(), None);
    let arguments = |request| matches!(ask(request), Err(BrowseError::Arguments(_)));
    assert!(arguments(query("")) && arguments(query(" \n")) && arguments(Request::default()));
    assert!(arguments(Request { path: Some("/"), ..query("x") }));
    assert!(
        arguments(Request { top_k: Some(0), ..query("x") })
            && arguments(Request { top_k: Some(51), ..query("x") })
    );
    let long = "x ".repeat(5_000);
    let Err(BrowseError::Arguments(message)) = ask(query(&long)) else { panic!("it is too long") };
    assert!(message.contains("8192"), "{message}");
    assert_eq!(ask(query("🙂")).unwrap().text, "no match; namespaces: github, slack");
    for bad in ["//x", "/X", "/a/", "/*/a"] {
        assert!(matches!(ask(path(bad, None, None)), Err(BrowseError::PathInvalid(_))), "{bad}");
    }
    assert_eq!(ask(path("/", None, Some("50-abc"))), Err(BrowseError::StaleCursor));
}

#[test]
fn a_cursor_is_of_one_catalogue_and_one_path() {
    // CAT-77
    let names: Vec<String> = (0..30).map(|n| format!("a.t{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (old, new) = (tools(&names), tools(&names[1..]));
    let ask = |snapshot: &CatalogSnapshot, at: &str, cursor: Option<&str>| {
        snapshot.browse(path(at, Some(10), cursor), snapshot.everything(), BrowseOptions::default(), None)
    };
    let first = ask(&old, "/a", None).unwrap();
    let cursor = first.text.lines().last().unwrap().strip_prefix("more: cursor=").unwrap().to_owned();
    assert_eq!(ask(&old, "/a", Some(&cursor)).unwrap().items.len(), 10);
    assert_eq!(ask(&new, "/a", Some(&cursor)), Err(BrowseError::StaleCursor));
    assert_eq!(ask(&old, "/", Some(&cursor)), Err(BrowseError::StaleCursor));
}

#[test]
fn what_is_hidden_leaves_no_trace() {
    // CAT-53, T-CAT-14
    let names: Vec<String> = (0..50).map(|n| format!("pay.refund_v{n}")).collect();
    let with: Vec<(String, String)> =
        names.iter().map(|n| (n.clone(), "refund a payment".to_owned())).collect();
    let snapshot = catalogue(&with);
    let few = snapshot.view(|item| item.name.ends_with("_v1") || item.name.ends_with("_v2"));
    let without = catalogue(&with[1..3]);
    for request in
        [query("refund"), path("/", None, None), path("/pay", None, None), path("/pay/refund_v1", None, None)]
    {
        let hidden = snapshot.browse(request, &few, BrowseOptions::default(), None).unwrap();
        let absent = without.browse(request, without.everything(), BrowseOptions::default(), None).unwrap();
        assert_eq!(hidden.text, absent.text);
    }
    let none = snapshot.view(|_| false);
    assert_eq!(
        snapshot.browse(path("/pay", None, None), &none, BrowseOptions::default(), None),
        Err(BrowseError::PathNotFound)
    );
}

#[test]
fn a_leaf_lists_all_of_its_family() {
    // CAT-66, CAT-76
    let with: Vec<(String, String)> =
        (1..5).map(|n| (format!("pay.refund_v{n}"), format!("refund a payment (variant {n})"))).collect();
    let snapshot = catalogue(&with);
    let ask =
        |request| snapshot.browse(request, snapshot.everything(), BrowseOptions::default(), None).unwrap();
    assert!(ask(query("refund a payment")).text.ends_with("(+3 similar)"));
    assert_eq!(ask(path("/pay/refund_v2", None, None)).items.len(), 4);
    let all = BrowseOptions { family_max: 0, ..BrowseOptions::default() };
    assert_eq!(snapshot.browse(query("refund"), snapshot.everything(), all, None).unwrap().items.len(), 4);
}

#[test]
fn the_beginning_of_an_answer_never_changes() {
    // CAT-92, CAT-93, T-CAT-15, T-CTX-12
    let nouns = ["issue", "repo", "user", "build", "alert"];
    let verbs = ["create", "list", "get", "delete", "update"];
    let names: Vec<String> =
        nouns.iter().flat_map(|noun| verbs.iter().map(move |verb| format!("hub.{verb}_{noun}"))).collect();
    let snapshot = tools(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for form in Form::ALL {
        let mut ledger = Ledger::default();
        let options = BrowseOptions { form, top_k: 4, ..BrowseOptions::default() };
        let mut expected = String::new();
        let mut state = 3usize;
        for round in 0..20 {
            state = (state * 31 + 17) % 10_007;
            let words = format!("{} {}", verbs[state % 5], nouns[(state / 5) % 5]);
            let answer =
                snapshot.browse(query(&words), snapshot.everything(), options, Some(&mut ledger)).unwrap();
            let text = answer.text.trim_start_matches('[');
            assert!(text.starts_with(&expected), "round {round}: {text}");
            for item in &answer.items {
                assert!(text.contains(&snapshot.items()[*item].id), "every hit is in the answer");
            }
            let rank = if form == Form::Lines { "rank: " } else { "{\"rank\":[\"" };
            let best = &snapshot.items()[answer.items[0]].id;
            assert!(text.contains(&format!("{rank}{best}")), "{text}");
            let cards = &text[..text.rfind(rank).unwrap()];
            let marker = "__cache_breakpoint__";
            expected = match form {
                Form::Lines => cards.replace(&format!("{marker}\n"), ""),
                _ => cards.replace(
                    "{\"id\":\"__cache_breakpoint__\",\"name\":\"cache_breakpoint\",\"kind\":\"internal\"},",
                    "",
                ),
            };
        }
        assert_eq!(ledger.epoch(), 0);
        // A revoked tool is gone from the very next answer (CAT-94).
        let gone = snapshot.items()[0].id.clone();
        let view = snapshot.view(|item| item.id != gone);
        let answer = snapshot.browse(query("create issue"), &view, options, Some(&mut ledger)).unwrap();
        assert!(!answer.text.contains(&gone) && ledger.epoch() == 1, "{}", answer.text);
    }
}

#[test]
fn schemas_come_for_the_first_five_within_their_budget() {
    // CTX-72
    let snapshot = tools(&["a.b", "a.c", "a.d", "a.e", "a.f", "a.g"]);
    let schemas: Value = serde_json::from_str(&snapshot.schemas(&[0, 1, 2, 3, 4, 5], Clone::clone)).unwrap();
    assert_eq!(schemas.as_object().unwrap().len(), 5);
}
