//! What need not change does not: definitions and results of servers byte for byte (PRO-10, T-PRO-7).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use portcullis_gauntlet::Gauntlet;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::agent::{Agent, Stream};
use crate::support::{Home, Operator, Spy, open_home};

/// Nothing is made to fit and no word is added: only what the protocol of the gateway itself needs.
const PASSTHROUGH: &str = "[policy]\npreset = \"observe\"\n[exposure]\nmode = \"passthrough\"\n[surface]\nmode = \"report\"\ndedup = \"never\"\nroutability = \"off\"\n";

/// As many tools as fit into one declaration.
const PART: usize = 80;

type Members = Vec<(String, Box<RawValue>)>;

/// The tools of real servers as they wrote them: whole where the collection is at hand, else what the repository has of it.
fn real_tools() -> Vec<Box<RawValue>> {
    #[derive(Deserialize)]
    struct Listing {
        tools: Vec<Box<RawValue>>,
    }
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let whole = crates.join("../../shared/data/tools");
    let mut files: Vec<_> =
        fs::read_dir(whole).into_iter().flatten().flatten().map(|file| file.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let listings: Vec<Listing> = if files.is_empty() {
        let text = fs::read(crates.join("catalog/benches/data/real-tools.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    } else {
        files.iter().map(|path| serde_json::from_slice(&fs::read(path).unwrap()).unwrap()).collect()
    };
    let tools = listings.into_iter().flat_map(|listing| listing.tools);
    tools.map(|tool| RawValue::from_string(on_one_line(tool.get())).unwrap()).collect()
}

/// The same text without white space between its tokens: a message is one line.
fn on_one_line(text: &str) -> String {
    let (mut out, mut inside, mut escaped) = (String::new(), false, false);
    for c in text.chars() {
        if inside || !c.is_ascii_whitespace() {
            out.push(c);
        }
        match c {
            _ if escaped => escaped = false,
            '\\' if inside => escaped = true,
            '"' => inside = !inside,
            _ => {}
        }
    }
    out
}

/// The members of an object, in order and as they are written.
fn members(text: &str) -> Members {
    struct Reader;
    impl<'de> serde::de::Visitor<'de> for Reader {
        type Value = Members;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
            std::iter::from_fn(|| map.next_entry().transpose()).collect()
        }
    }
    serde::Deserializer::deserialize_map(&mut serde_json::Deserializer::from_str(text), Reader).unwrap()
}

fn member<'m>(members: &'m Members, name: &str) -> &'m str {
    let found = members.iter().find(|(key, _)| key == name);
    found.map_or_else(|| panic!("no {name} in {members:?}"), |(_, value)| value.get())
}

fn name_of(tool: &RawValue) -> String {
    serde_json::from_str(member(&members(tool.get()), "name")).unwrap()
}

/// The text of the result of one request.
fn result_text(stream: Stream) -> String {
    let body = stream.text();
    let body = body.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&body).to_owned();
    member(&members(&body), "result").to_owned()
}

/// A declaration of tools as their server lists them, with schemas closed at their root.
fn declared(spy: &Spy, tools: &[Box<RawValue>]) -> String {
    let closed = |tool: &RawValue| {
        let mut tool: Value = serde_json::from_str(tool.get()).unwrap();
        let schema = tool["inputSchema"].as_object_mut().unwrap();
        if !schema.contains_key("additionalProperties") && !schema.contains_key("unevaluatedProperties") {
            schema.insert("additionalProperties".into(), json!(false));
        }
        tool
    };
    spy.declaration_of(&tools.iter().map(|tool| closed(tool)).collect::<Vec<_>>())
}

/// Registers as many of the tools as can be declared at all; which.
fn registered(home: &Home, spy: &Spy, mut tools: Vec<Box<RawValue>>) -> Vec<Box<RawValue>> {
    loop {
        let listed: Vec<&str> = tools.iter().map(|tool| tool.get()).collect();
        let known: Vec<Value> = tools.iter().map(|tool| json!({"name": name_of(tool)})).collect();
        spy.control(&json!({"catalogue": known, "verbatim": {"tools": format!("[{}]", listed.join(","))}}));
        // Some claim to read only, which the last of ours does not; some mix scripts.
        let waived = ["--waive", "L005", "--waive", "L010"];
        let args = spy.flagged(home, &declared(spy, &tools), &waived);
        let output = home.command().args(["--output", "json"]).args(&args).output().unwrap();
        if output.status.success() {
            return tools;
        }
        // What is no schema of an object cannot be declared (GOV rule 6).
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rejections = said["error"]["details"]["rejections"].as_array().into_iter().flatten();
        let rejected: BTreeSet<usize> =
            rejections.filter_map(|one| one["pointer"].as_str()?.split('/').nth(2)?.parse().ok()).collect();
        assert!(!rejected.is_empty(), "{said}");
        tools = (tools.into_iter().enumerate())
            .filter(|(index, _)| !rejected.contains(index))
            .map(|(_, tool)| tool)
            .collect();
    }
}

#[test]
fn real_definitions_are_listed_as_their_servers_wrote_them() {
    // PRO-10, T-PRO-7
    let mut seen = BTreeSet::new();
    let mut tools = real_tools();
    let all = tools.len();
    assert!(all > 800, "{all} tools");
    // Two servers have a tool of the same name, and none of ours has two.
    tools.retain(|tool| seen.insert(name_of(tool)));
    let home = Home::new(PASSTHROUGH);
    let mut declared = Vec::new();
    for (number, part) in tools.chunks(PART).enumerate() {
        let spy = Spy::speaking(&home, &format!("spy-{number}"), "2025-11-25");
        let part = registered(&home, &spy, part.to_vec());
        declared.extend(part.into_iter().map(|tool| (format!("\"spy-{number}__{}\"", name_of(&tool)), tool)));
    }
    let tools = declared;
    assert!(tools.len() * 10 > all * 9, "only {} of {all} could be declared", tools.len());
    let daemon = home.serve();
    let gauntlet = Gauntlet::default();
    for revision in ["2025-11-25", "2026-07-28"] {
        let agent = Agent::open(&daemon, revision);
        let text = result_text(agent.begin("tools/list", json!({})));
        let listed: Vec<Box<RawValue>> = serde_json::from_str(member(&members(&text), "tools")).unwrap();
        assert_eq!(listed.len(), tools.len(), "{revision}");
        let mut cleaned = 0;
        let listed: Vec<Members> = listed.iter().map(|one| members(one.get())).collect();
        for (wire, tool) in &tools {
            let found = listed.iter().find(|one| member(one, "name") == wire);
            let found = found.unwrap_or_else(|| panic!("{wire} is not listed"));
            let sent = members(tool.get());
            let keys = |of: &Members| {
                of.iter().map(|(key, _)| key.clone()).filter(|key| key != "_meta").collect::<Vec<_>>()
            };
            assert_eq!(keys(found), keys(&sent), "{wire}: the same members in the same order");
            for (key, value) in &sent {
                // Documented: the name is prefixed, our mark is added, and what a result must fit allows for cleaning.
                if matches!(key.as_str(), "name" | "_meta" | "outputSchema")
                    || member(found, key) == value.get()
                {
                    continue;
                }
                let (said, shown): (Value, Value) = (
                    serde_json::from_str(value.get()).unwrap(),
                    serde_json::from_str(member(found, key)).unwrap(),
                );
                assert_ne!(said, shown, "{wire} {key}: written again for nothing");
                let clean = match key.as_str() {
                    "inputSchema" => gauntlet.advertised_schema(&said),
                    _ => gauntlet.advertised_member(&said).unwrap(),
                };
                assert_eq!(shown, clean, "{wire} {key}");
                cleaned += 1;
            }
            if let Some((_, own)) = sent.iter().find(|(key, _)| key == "_meta") {
                let own = own.get().trim_end_matches('}');
                assert!(member(found, "_meta").starts_with(own), "{wire}: {}", member(found, "_meta"));
            }
        }
        assert!(cleaned * 50 < tools.len(), "{cleaned} members were cleaned");
    }
}

#[test]
fn unknown_members_big_integers_and_escapes_of_results_come_through_unchanged() {
    // PRO-10, T-PRO-7
    let home = open_home();
    let spies = ["2025-11-25", "2026-07-28"].map(|revision| {
        let spy = Spy::speaking(&home, &format!("spy-{revision}"), revision);
        spy.register(&home);
        spy
    });
    let content = r#"[ {"type":"text","text":"caf\u00e9 \/ na\u00efve","x-own":{"z":1,"a":9007199254740991}} , {"type":"text","text":"\ud83d\ude00","annotations":{"priority":0.50}} ]"#;
    let own = r#"{ "z":[1.0, 1e2, -0, 123456789012345678], "a":{"$defs":{},"$anchor":"x"}, "e":"\u2028" }"#;
    let meta = r#"{"n":12345678901234567, "s":"\u00fc"}"#;
    for spy in &spies {
        spy.control(&json!({
            "verbatim": {"content": content, "own": own, "meta": meta},
            "result": {"add": {"content": "@content@", "x-own": "@own@", "_meta": {"vendor.example/k": "@meta@"}}},
        }));
    }
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    for client in ["2024-11-05", "2025-11-25", "2026-07-28"] {
        let agent = Agent::open(&daemon, client);
        for server in ["2025-11-25", "2026-07-28"] {
            let call = json!({"name": format!("spy-{server}__add"), "arguments": {"a": 1, "b": 2}});
            let text = result_text(agent.begin("tools/call", call));
            let result = members(&text);
            assert_eq!(member(&result, "content"), content, "{client} {server}");
            assert_eq!(member(&result, "x-own"), own, "{client} {server}");
            let carried = members(member(&result, "_meta"));
            assert_eq!(member(&carried, "vendor.example/k"), meta, "{client} {server}");
        }
    }
}
