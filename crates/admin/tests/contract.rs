//! The contract of admin calls, against a real control plane with a real log.

use portcullis_admin::args::NoArgs;
use portcullis_admin::{Actor, AdminError, Channel, Cx, Invoker, Module, Registry, Reply, Roles, read_tool};
use portcullis_audit::EventName;
use portcullis_core::Principal;
use portcullis_gateway::{Gateway, GatewayOptions};
use portcullis_governance::operator::{Method, OperatorProof, Separation};
use serde_json::value::RawValue;
use serde_json::{Value, json};

struct House {
    gateway: Gateway,
    invoker: Invoker,
    folder: tempfile::TempDir,
}

impl House {
    async fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let options = GatewayOptions { segment_bytes: 8 << 20, ..GatewayOptions::new(folder.path()) };
        let gateway = Gateway::start(options).await.unwrap();
        let invoker = Invoker::new(gateway.control.clone()).unwrap();
        Self { gateway, invoker, folder }
    }

    async fn call(&self, tool: &str, args: &str) -> Value {
        self.call_as(Some(&operator("ada")), tool, args).await
    }

    async fn call_as(&self, actor: Option<&Actor>, tool: &str, args: &str) -> Value {
        let raw = RawValue::from_string(args.to_owned()).unwrap();
        let envelope = self.invoker.call(tool, &raw, actor, Channel::Operator).await;
        serde_json::from_str(&envelope.to_json()).unwrap()
    }

    fn events(&self, name: EventName) -> Vec<Value> {
        let records = portcullis_audit::read(&self.folder.path().join("audit")).unwrap();
        records.map(Result::unwrap).filter(|record| record.event == name).map(|record| record.data).collect()
    }

    async fn end(self) {
        self.gateway.finish().await;
    }
}

fn operator(name: &str) -> Actor {
    Actor::operator(OperatorProof::authenticated(name, Method::Uid, Separation::SameUid))
}

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
    assert_eq!(registry.len(), 152 + 5, "and five more: calls and drafts");
    assert_eq!(registry.tools().filter(|tool| tool.is_wired()).count(), 74);
    for tool in registry.tools() {
        let schema = tool.input_schema();
        assert_eq!((&schema["type"], &schema["additionalProperties"]), (&json!("object"), &json!(false)));
        assert!(tool.description().chars().count() <= 140, "{}", tool.name());
        assert!(tool.description().contains(tool.class().effect()), "{}", tool.name());
        assert!(schema.to_string().len() <= 1600, "{}: {}", tool.name(), schema.to_string().len());
    }
}
