//! The contract of admin calls, against a real control plane with a real log.

use std::sync::{Arc, Mutex};

use portcullis_admin::args::NoArgs;
use portcullis_admin::{
    Actor, AdminError, AdminGrant, Channel, Class, Committed, Cx, Invoker, Module, Op, Registry, Reply,
    Roles, TargetId, admin_tool, read_tool,
};
use portcullis_audit::EventName;
use portcullis_core::Principal;
use serde_json::json;
use serde_json::value::RawValue;

use crate::house::{House, operator};

const APPLY: &str = r#"{"bundle":{"preset":"balanced"},"confirm":true,"reason":"try balanced"}"#;

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_call_is_one_intent_and_one_executed_event() {
    // ADM-52, ADM-53, SO-12
    let house = House::new().await;
    let done = house.call("portcullis_policies_apply", APPLY).await;
    assert_eq!((&done["status"], &done["data"]["active"]), (&json!("ok"), &json!(true)), "{done}");
    let (intents, executed) =
        (house.events(EventName::AdminOpIntent), house.events(EventName::AdminOpExecuted));
    assert_eq!((intents.len(), executed.len()), (1, 1));
    assert_eq!(
        (&intents[0]["actor"], &intents[0]["reason"], &intents[0]["target"], &intents[0]["tool"]),
        (&json!("ada"), &json!("try balanced"), &json!("policy:bundle"), &json!("portcullis_policies_apply"))
    );
    assert_eq!(intents[0]["op_id"], executed[0]["op_id"]);

    // The same again is a conflict: one failed event, no executed one.
    let again = house.call("portcullis_policies_apply", APPLY).await;
    assert_eq!(again["domain_code"], "conflict", "{again}");
    assert_eq!(house.events(EventName::AdminOpExecuted).len(), 1);
    assert_eq!(house.events(EventName::AdminOpFailed).len(), 1);
    assert_eq!(house.invoker.calls().of("portcullis_policies_apply", "success"), 1);
    assert_eq!(house.invoker.calls().of("portcullis_policies_apply", "conflict"), 1);
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guardrails_come_in_their_order_and_before_every_argument() {
    // ADM-50, SO-10, SO-11
    let house = House::new().await;
    let tool = "portcullis_policies_apply";
    let nobody = house.call_as(None, tool, r#"{"bogus":1}"#).await;
    assert_eq!(
        (&nobody["domain_code"], &nobody["violation"], &nobody["message"]),
        (
            &json!("guardrail_violated"),
            &json!("missing_actor"),
            &json!("Admin operation requires an identified actor")
        )
    );
    let blank = house.call_as(Some(&operator("  ")), tool, r#"{"confirm":true,"reason":"x"}"#).await;
    assert_eq!(blank["violation"], "missing_actor");
    for confirm in
        ["", r#""confirm":false,"#, r#""confirm":1,"#, r#""confirm":"true","#, r#""confirm":null,"#]
    {
        let refused = house.call(tool, &format!(r#"{{{confirm}"reason":"x","bogus":1}}"#)).await;
        assert_eq!(refused["violation"], "missing_confirm", "{confirm}: {refused}");
    }
    let long = format!(r#","reason":"{}""#, "x".repeat(501));
    for reason in
        ["", r#","reason":"""#, r#","reason":"  ""#, ",\"reason\":\"\u{200b}\"", r#","reason":5"#, &long]
    {
        let refused = house.call(tool, &format!(r#"{{"confirm":true{reason},"bogus":1}}"#)).await;
        assert_eq!(refused["violation"], "missing_reason", "{reason}: {refused}");
        assert_eq!(refused["domain_code"], "guardrail_violated");
    }
    let rest = house.call(tool, r#"{"confirm":true,"reason":"x","bogus":1}"#).await;
    assert_eq!(rest["message"], "bundle: required; bogus: unknown field");
    for name in [EventName::AdminOpIntent, EventName::AdminOpExecuted, EventName::AdminOpFailed] {
        assert!(house.events(name).is_empty(), "a refusal leaves no event: {name}");
    }
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_and_what_is_not_seen_are_the_same_bytes() {
    // SO-04, ADM-71
    let house = House::new().await;
    let raw = RawValue::from_string("{}".into()).unwrap();
    let agent = Actor::client(&Principal::agent("a").unwrap());
    let mut answers = Vec::new();
    for tool in ["nothing", "portcullis_policies_apply", "portcullis_servers_list"] {
        for channel in [Channel::Agent, Channel::Operator] {
            answers.push(house.invoker.call(tool, &raw, Some(&agent), channel).await.to_json());
        }
    }
    answers.dedup();
    assert_eq!(answers, [r#"{"code":-32602,"message":"Unknown tool"}"#]);
    assert_eq!(house.invoker.calls().of("unknown", "not_found"), 6, "ADM-33: one label for all");
    assert!(house.invoker.visible(Some(&agent), Channel::Agent).is_empty());
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_paged_and_absent_things_are_not_found() {
    // SO-02, SO-03, SO-05
    let house = House::new().await;
    let listed = house.call("servers_list", "{}").await;
    assert_eq!(
        listed,
        json!({"status": "ok", "data": [], "pagination": {"total": 0, "offset": 0, "limit": 50}})
    );
    let beyond = house.call("policies_list", r#"{"offset":500}"#).await;
    assert_eq!((&beyond["data"], &beyond["pagination"]["total"]), (&json!([]), &json!(1)));
    let refused = house.call("servers_list", r#"{"limit":501,"bogus":1}"#).await;
    assert_eq!(refused["message"], "limit: must be <= 500; bogus: unknown field");
    assert_eq!(refused["tool"], "portcullis_servers_list");
    assert_eq!(
        house.call("servers_list", "[1]").await["message"],
        "arguments must be a JSON object, got list"
    );
    let absent = house.call("servers_get", r#"{"server_id":"x"}"#).await;
    assert_eq!(absent["message"], "NotFoundError: server 'x' does not exist");
    assert_eq!(house.invoker.calls().of("portcullis_servers_get", "not_found"), 1);
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_ends_one_call_and_nothing_else() {
    // ADM-31, SO-21
    let house = House::new().await;
    async fn broken(_: Cx, _: NoArgs) -> Result<Reply<u8>, AdminError> {
        panic!("a defect that holds password=hunter2")
    }
    async fn fine(_: Cx, _: NoArgs) -> Result<Reply<u8>, AdminError> {
        Ok(Reply::ok(1))
    }
    let tools = vec![read_tool("test", "panic", "Panic.", broken), read_tool("test", "fine", "Work.", fine)];
    let registry = Registry::build(vec![Module { name: "test", tools }]).unwrap();
    let invoker = Invoker::with(house.gateway.control.clone(), registry, Roles::default()).unwrap();
    let raw = RawValue::from_string("{}".into()).unwrap();
    let ada = operator("ada");
    let broken = invoker.call("test_panic", &raw, Some(&ada), Channel::Operator).await;
    assert_eq!((broken.http_status(), broken.is_error()), (500, true));
    assert!(broken.to_json().contains(r#""domain_code":"handler_failure""#));
    assert!(!broken.to_json().contains("hunter2"));
    let fine = invoker.call("test_fine", &raw, Some(&ada), Channel::Operator).await;
    assert_eq!(fine.to_json(), r#"{"status":"ok","data":1}"#);
    house.end().await;
}

/// What is written to the log of the process.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Every shape of secrets (admin §8), with the part that must be nowhere.
const SHAPES: [(&str, &str); 24] = [
    ("password=hunter2x", "hunter2x"),
    ("pwd: hunter3x,", "hunter3x"),
    ("client_secret='s3 cr3t'", "s3 cr3t"),
    ("x-api-key=\"k3y v4lue\"", "k3y v4lue"),
    (r#"{"access_token":"t0ken5"}"#, "t0ken5"),
    ("{'refresh_token': 't0ken6'}", "t0ken6"),
    (r#"{\"id_token\":\"t0ken7\"}"#, "t0ken7"),
    ("https://h/cb?code=c0dq8&x=1", "c0dq8"),
    ("Authorization: Digest u=\"r3sp9\"\n", "r3sp9"),
    ("Proxy-Authorization: Basic dTpwMTA=\n", "dTpwMTA"),
    ("Cookie: a=c00kie11; b=c\n", "c00kie11"),
    ("Set-Cookie: id=c00kie12\n", "c00kie12"),
    ("bearer b34rer.13", "b34rer.13"),
    ("postgres://u:p@ss14@h/db", "ss14"),
    ("postgres://u:pa/ss15@h/db", "ss15"),
    ("sk-ant-api03-abcdef16", "abcdef16"),
    ("AKIAIOSFODNN7EXAMPLE", "IOSFODNN7EXAMPLE"),
    ("ghp_abcdefABCDEF18", "abcdefABCDEF18"),
    ("github_pat_11AAAAAA19 glpat-abcdefgh19", "abcdefgh19"),
    ("xoxb-123456-q20x AIzaSyabcdq20x npm_abcdefq20x hf_abcdefq20x pypi-AgEIcHq20x", "q20x"),
    ("pcl_abcdghq21 gAAAAABghq21x=", "ghq21"),
    ("eyJhbGciOi.eyJzdWIi.c2lnMjI", "c2lnMjI"),
    ("access_token%3Denc0ded23", "enc0ded23"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIB24\n", "MIIB24"),
];
const SURVIVORS: &str = "status_code=404 exit_code=1 total_tokens=5 session_id=s1 client_id=abc";

#[tokio::test(flavor = "multi_thread")]
async fn no_shape_of_secret_in_an_error_reaches_envelope_log_or_evidence() {
    // SO-30, ADM-61, ADM-62, ADM-63
    let house = House::new().await;
    let lines = Lines::default();
    let writer = lines.clone();
    let logging = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_ansi(false);
    let _logging = tracing::subscriber::set_default(logging.with_writer(move || writer.clone()).finish());
    let ada = operator("ada");
    for (shape, secret) in SHAPES {
        let text = format!("{SURVIVORS} it failed with {shape}");
        async fn fails(text: String) -> Result<Reply<u8>, AdminError> {
            Err(AdminError::failure(text))
        }
        let told = text.clone();
        let failing = read_tool("test", "told", "Tell.", move |_: Cx, _: NoArgs| fails(told.clone()));
        let told = text.clone();
        let acting = admin_tool("test", "done", "Do.", move |_: Cx, grant: AdminGrant, _: NoArgs| {
            let told = told.clone();
            async move {
                let failed = |_: Op| async move { Err::<u8, _>(AdminError::conflict(told)) };
                let (done, receipt) = grant.commit(TargetId::new("test", 1), failed).await?;
                Ok::<Committed<u8>, AdminError>(Committed::ok(done, receipt))
            }
        });
        let registry = Registry::build(vec![Module { name: "test", tools: vec![failing, acting] }]).unwrap();
        let invoker = Invoker::with(house.gateway.control.clone(), registry, Roles::default()).unwrap();
        let raw = RawValue::from_string(r#"{}"#.into()).unwrap();
        let looked = invoker.call("test_told", &raw, Some(&ada), Channel::Operator).await.to_json();
        let raw = RawValue::from_string(json!({"confirm": true, "reason": text}).to_string()).unwrap();
        let acted = invoker.call("test_done", &raw, Some(&ada), Channel::Operator).await.to_json();
        for envelope in [&looked, &acted] {
            assert!(!envelope.contains(secret), "{shape}: {envelope}");
            assert!(envelope.contains(SURVIVORS), "{shape}: {envelope}");
        }
        let failed = house.events(EventName::AdminOpFailed).pop().unwrap().to_string();
        let intent = house.events(EventName::AdminOpIntent).pop().unwrap().to_string();
        for record in [&failed, &intent] {
            assert!(!record.contains(secret) && record.contains(SURVIVORS), "{shape}: {record}");
        }
        let said = String::from_utf8(std::mem::take(&mut *lines.0.lock().unwrap())).unwrap();
        assert!(said.contains("mcp.handler.invoke_failed") && said.contains(SURVIVORS), "{said}");
        assert!(!said.contains(secret), "{shape}: {said}");
    }
    // What is long is cut, and what is too long to be looked through is withheld whole.
    let long = |bytes: usize| {
        let text = format!("password=hunter2 {}", "x".repeat(bytes));
        read_tool("test", "long", "Tell.", move |_: Cx, _: NoArgs| {
            let text = text.clone();
            async move { Err::<Reply<u8>, _>(AdminError::failure(text)) }
        })
    };
    let none = RawValue::from_string("{}".into()).unwrap();
    for (bytes, ends) in [(2_000, "...[truncated]"), (70_000, "[redacted]")] {
        let registry = Registry::build(vec![Module { name: "test", tools: vec![long(bytes)] }]).unwrap();
        let invoker = Invoker::with(house.gateway.control.clone(), registry, Roles::default()).unwrap();
        let envelope = invoker.call("test_long", &none, Some(&ada), Channel::Operator).await.to_json();
        let said: serde_json::Value = serde_json::from_str(&envelope).unwrap();
        let message = said["message"].as_str().unwrap();
        assert!(message.ends_with(ends) && !message.contains("hunter2"), "{message}");
        assert!(message.chars().count() <= 512 + "...[truncated]".len(), "{}", message.chars().count());
    }
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_changes_nothing() {
    // SO-41
    let house = House::new().await;
    let before = house.gateway.control.log().next_seq();
    for _ in 0..100 {
        for (tool, args) in [
            ("servers_list", "{}"),
            ("approvals_list", r#"{"status":"pending"}"#),
            ("policies_get", "{}"),
            ("trust_list", "{}"),
        ] {
            assert_eq!(house.call(tool, args).await["status"], "ok", "{tool}");
        }
    }
    assert_eq!(house.call("audit_verify", "{}").await["data"]["ok"], true);
    // What surfaces come to is noted at the start, in its own time.
    let records = portcullis_audit::read_from(&house.folder.path().join("audit"), before).unwrap();
    let names: Vec<EventName> = records.map(|record| record.unwrap().event).collect();
    assert!(names.iter().all(|name| *name == EventName::SurfaceCompiled), "{names:?}");
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_version_is_a_conflict() {
    // ADM-56
    let house = House::new().await;
    let args = r#"{"bundle":{"preset":"balanced"},"expected_version":7,"confirm":true,"reason":"x"}"#;
    assert_eq!(house.call("policies_apply", args).await["domain_code"], "conflict");
    let args = args.replace(":7,", ":1,");
    assert_eq!(house.call("policies_apply", &args).await["data"]["version"], 2);
    let back = house.call("policies_rollback", r#"{"version":1,"confirm":true,"reason":"no"}"#).await;
    assert_eq!(back["data"]["version"], 3, "{back}");
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_surface_describes_itself_as_far_as_it_is_seen() {
    // ADM-70, ADM-71
    let house = House::new().await;
    let listed = house.call("meta_list_tools", r#"{"domain":"servers","class":"read"}"#).await;
    let names: Vec<&str> =
        listed["data"].as_array().unwrap().iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["portcullis_servers_get", "portcullis_servers_list"]);
    assert!(listed["data"][0].get("input_schema").is_none());
    let full = house.call("meta_list_tools", r#"{"tool":"portcullis_servers_get","detail":"full"}"#).await;
    assert_eq!(full["data"][0]["input_schema"]["required"], json!(["server_id"]));
    assert!(full["data"][0]["data_schema"]["properties"]["server_id"].is_object(), "{full}");
    let me = house.call("meta_whoami", "{}").await;
    assert_eq!((&me["data"]["actor"]["id"], &me["data"]["roles"]), (&json!("ada"), &json!(["owner"])));
    house.end().await;
}

#[test]
fn every_tool_is_described_as_specified() {
    // ADM-11, ADM-12, SO-34
    let registry = Registry::build(portcullis_admin::tools::modules()).unwrap();
    assert_eq!(registry.len(), 152 + 22, "and more: calls, drafts, and what only commands did");
    // ADM-13: a tool that comes, goes or may do something else is a change that somebody reads.
    let now: Vec<String> = (registry.tools())
        .map(|tool| {
            let behind = if tool.is_wired() { "wired" } else { "later" };
            format!("{} {} {behind}", tool.name(), tool.class().as_str())
        })
        .collect();
    let known: Vec<&str> = include_str!("tools.txt").lines().collect();
    assert_eq!(now, known);
    // ADM-10: giving authority is an admin operation, and so is refusing it.
    for name in ["approvals_approve", "approvals_reject", "users_enrol", "users_vouch", "policies_apply"] {
        assert_eq!(registry.get(name).unwrap().class(), Class::Admin, "{name}");
    }
    for tool in registry.tools() {
        let schema = tool.input_schema();
        assert_eq!((&schema["type"], &schema["additionalProperties"]), (&json!("object"), &json!(false)));
        assert!(tool.description().chars().count() <= 140, "{}", tool.name());
        assert!(tool.description().contains(tool.class().effect()), "{}", tool.name());
        assert!(schema.to_string().len() <= 1600, "{}: {}", tool.name(), schema.to_string().len());
    }
}
