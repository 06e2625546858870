//! Roles, operators, and what takes two of them.

use std::time::Duration;

use portcullis_audit::EventName;
use portcullis_gateway::control::AdminOptions;
use serde_json::{Value, json};

use crate::house::{House, operator};

async fn sees(house: &House, who: &str, tool: &str) -> bool {
    let listed = house.call_as(Some(&operator(who)), "meta_whoami", "{}").await;
    let called = house.call_as(Some(&operator(who)), tool, r#"{"bogus":1}"#).await;
    assert!(listed["status"] == "ok" || listed["code"] == -32602, "{listed}");
    called["code"] != -32602
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_decide_what_operators_see_and_outlive_a_restart() {
    // ADM-71, SO-23, SO-04
    let house = House::new().await;
    let role = json!({
        "role_id": "auditor", "patterns": ["*:read"], "deny": ["portcullis_credentials_list"],
        "allow": ["portcullis_servers_set_state"],
    });
    let put = house.act("ada", "roles_put", role).await;
    assert_eq!((&put["data"]["role_id"], &put["data"]["version"]), (&json!("auditor"), &json!(1)), "{put}");
    let user = json!({"user_id": "bob", "roles": ["auditor"], "enabled": true});
    assert_eq!(house.act("ada", "users_put", user.clone()).await["status"], "ok");
    for house in [house] {
        assert!(sees(&house, "bob", "servers_list").await, "by pattern");
        assert!(sees(&house, "bob", "servers_set_state").await, "allowed by name");
        assert!(!sees(&house, "bob", "credentials_list").await, "denied by name");
        assert!(!sees(&house, "bob", "servers_remove").await, "not named at all");
        let shown = house.invoker.visible(Some(&operator("bob")), portcullis_admin::Channel::Operator);
        assert!(shown.iter().all(|tool| tool.name() != "portcullis_credentials_list"));
        assert!(shown.iter().any(|tool| tool.name() == "portcullis_servers_set_state"));
        let hidden = house.call_as(Some(&operator("bob")), "credentials_list", "{}").await;
        let absent = house.call_as(Some(&operator("bob")), "nothing_list", "{}").await;
        assert_eq!(hidden, absent, "hidden is unknown, byte for byte");
        let house = house.again().await;
        assert!(!sees(&house, "bob", "servers_remove").await, "after a restart");
        assert!(sees(&house, "ada", "servers_remove").await, "who has no roles of its own is an owner");

        // In use: not removed. Switched off: sees nothing.
        let used = house.act("ada", "roles_delete", json!({"role_id": "auditor"})).await;
        assert_eq!(used["domain_code"], "conflict", "{used}");
        let off = json!({"user_id": "bob", "roles": ["auditor"], "enabled": false, "expected_version": 1});
        assert_eq!(house.act("ada", "users_put", off.clone()).await["data"]["enabled"], false);
        assert!(!sees(&house, "bob", "servers_list").await);
        assert_eq!(
            house.act("ada", "users_put", off).await["domain_code"],
            "conflict",
            "ADM-56: a stale version"
        );
        house.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_changes_its_own_roles_and_an_owner_is_always_left() {
    // admin §12: users_put, users_delete, roles_delete
    let house = House::new().await;
    let own = house.act("ada", "users_put", json!({"user_id": "ada", "roles": [], "enabled": true})).await;
    assert_eq!(own["violation"], "self_approval", "{own}");
    let unknown =
        house.act("ada", "users_put", json!({"user_id": "bob", "roles": ["x"], "enabled": true})).await;
    assert_eq!(unknown["message"], "roles: there is no role \"x\"", "{unknown}");
    // Bob alone would be left without anything: ada is an owner, so that is allowed; the reverse is not.
    assert_eq!(
        house.act("ada", "users_put", json!({"user_id": "bob", "roles": ["owner"], "enabled": true})).await["status"],
        "ok"
    );
    assert_eq!(
        house.act("bob", "users_put", json!({"user_id": "ada", "roles": [], "enabled": false})).await["status"],
        "ok"
    );
    let last = house.act("bob", "users_delete", json!({"user_id": "bob"})).await;
    assert_eq!(last["domain_code"], "conflict", "{last}");
    assert_eq!(
        house.act("bob", "roles_delete", json!({"role_id": "owner"})).await["domain_code"],
        "conflict"
    );
    house.end().await;
}

fn two_for(patterns: &[&str], ttl: Duration) -> AdminOptions {
    AdminOptions {
        four_eyes: patterns.iter().map(ToString::to_string).collect(),
        four_eyes_ttl: ttl,
        ..AdminOptions::default()
    }
}

async fn shown(house: &House, id: &str) -> Value {
    house.call("approvals_get", &json!({"approval_id": id}).to_string()).await["data"].clone()
}

async fn agree(house: &House, who: &str, id: &str) -> Value {
    let seen = shown(house, id).await["presented_sha256"].clone();
    house
        .act(who, "approvals_approve", json!({"approval_id": id, "scope": "once", "presented_sha256": seen}))
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_takes_two_happens_once_another_agrees() {
    // ADM-54, SO-14
    let house = House::administered(two_for(&["policies:admin"], Duration::from_secs(3600))).await;
    let asked = house.act("ada", "policies_apply", json!({"bundle": {"preset": "balanced"}})).await;
    let id = asked["data"]["pending_approval"].as_str().expect("it waits").to_owned();
    assert_eq!(asked["status"], "ok");
    assert_eq!(house.events(EventName::AdminOpDeferred).len(), 1);
    assert!(house.events(EventName::AdminOpIntent).is_empty(), "nothing was done");
    assert_eq!(house.invoker.calls().of("portcullis_policies_apply", "pending"), 1);
    let listed = house.call("approvals_list", r#"{"status":"pending","action_type":"admin"}"#).await;
    assert_eq!(listed["data"][0]["approval_id"], json!(id), "{listed}");
    assert_eq!(shown(&house, &id).await["presented"]["arguments"]["bundle"]["preset"], "balanced");

    let own = agree(&house, "ada", &id).await;
    assert_eq!(own["violation"], "self_approval", "{own}");
    // What waits outlives a restart.
    let house = house.again().await;
    let done = agree(&house, "bob", &id).await;
    assert_eq!(
        (&done["data"]["status"], &done["data"]["result"]["active"]),
        (&json!("approved"), &json!(true)),
        "{done}"
    );
    let of_policy = |events: Vec<Value>| -> Vec<Value> {
        events.into_iter().filter(|data| data["tool"] == "portcullis_policies_apply").collect()
    };
    let intents = of_policy(house.events(EventName::AdminOpIntent));
    assert_eq!(intents.len(), 1, "once");
    assert_eq!(
        (&intents[0]["actor"], &intents[0]["approver"]),
        (&json!("ada"), &json!("bob")),
        "both are named"
    );
    assert_eq!(of_policy(house.events(EventName::AdminOpExecuted)).len(), 1);
    assert_eq!(agree(&house, "bob", &id).await["domain_code"], "conflict", "not twice");
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changed_meanwhile_what_is_late_and_what_is_refused_does_not_happen() {
    // ADM-54, SO-14, SO-15
    let house = House::administered(two_for(&["roles:*", "profiles:admin"], Duration::from_secs(3600))).await;
    let put = json!({"role_id": "helper", "patterns": ["*:read"]});
    let wait = |asked: Value| asked["data"]["pending_approval"].as_str().expect("it waits").to_owned();
    let first = wait(house.act("ada", "roles_put", put.clone()).await);
    let second = wait(house.act("ada", "roles_put", json!({"role_id": "helper", "patterns": ["*"]})).await);
    assert_eq!(agree(&house, "bob", &first).await["status"], "ok");
    let changed = agree(&house, "bob", &second).await;
    assert_eq!(changed["domain_code"], "conflict", "what it is about is another by now: {changed}");
    assert_eq!(shown(&house, &second).await["status"], "invalidated");
    let roles = house.call("roles_list", "{}").await;
    assert_eq!(roles["data"][0]["patterns"], json!(["*:read"]), "{roles}");

    // Who asked can take it back, another can refuse, and neither is done.
    let third = wait(house.act("ada", "profiles_put", json!({"profile_id": "p", "mode": "gateway"})).await);
    let withdraw = json!({"approval_id": third}).to_string();
    let others = house.call_as(Some(&operator("bob")), "approvals_withdraw", &withdraw).await;
    assert_eq!(others["domain_code"], "not_found", "{others}");
    assert_eq!(house.call("approvals_withdraw", &withdraw).await["data"]["status"], "withdrawn");
    let fourth = wait(house.act("ada", "profiles_put", json!({"profile_id": "p", "mode": "gateway"})).await);
    assert_eq!(
        house.act("bob", "approvals_reject", json!({"approval_id": fourth})).await["data"]["status"],
        "denied"
    );
    assert_eq!(agree(&house, "bob", &fourth).await["domain_code"], "conflict");
    assert_eq!(house.call("profiles_list", "{}").await["data"], json!([]));
    house.end().await;

    let house = House::administered(two_for(&["*"], Duration::ZERO)).await;
    let late = wait(house.act("ada", "profiles_put", json!({"profile_id": "p", "mode": "gateway"})).await);
    assert_eq!(shown(&house, &late).await["status"], "expired");
    let refused = agree(&house, "bob", &late).await;
    assert!(refused["message"].as_str().unwrap().contains("is expired"), "{refused}");
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_who_decide_at_once_one_finds_it_decided() {
    // ADM-56, SO-15
    let house = House::administered(two_for(&["profiles:*"], Duration::from_secs(60))).await;
    let asked = house.act("ada", "profiles_put", json!({"profile_id": "p", "mode": "gateway"})).await;
    let id = asked["data"]["pending_approval"].as_str().unwrap().to_owned();
    let (one, other) = tokio::join!(agree(&house, "bob", &id), agree(&house, "cyd", &id));
    let outcomes = [one, other];
    assert_eq!(outcomes.iter().filter(|outcome| outcome["status"] == "ok").count(), 1, "{outcomes:?}");
    assert_eq!(
        outcomes.iter().filter(|outcome| outcome["domain_code"] == "conflict").count(),
        1,
        "{outcomes:?}"
    );
    assert_eq!(house.call("profiles_list", "{}").await["data"][0]["version"], 1, "once");
    house.end().await;
}

/// A key that somebody may be enrolled with.
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINdamAGCsQq31Uv+08lkBzoO4XLz2qYjJa8CGmj3B1Ea";

#[tokio::test(flavor = "multi_thread")]
async fn a_second_name_is_not_a_second_operator() {
    // ADM-54, SO-14
    let house = House::administered(two_for(&["profiles:*"], Duration::from_secs(3600))).await;
    let enrol = |who: &'static str| json!({"user_id": who, "ssh_key": KEY});
    assert_eq!(house.act("ada", "users_enrol", enrol("bob")).await["status"], "ok");
    assert_eq!(house.act("bob", "users_enrol", enrol("eve")).await["status"], "ok");
    let put = json!({"profile_id": "p", "mode": "gateway"});
    let asked = house.act("ada", "profiles_put", put.clone()).await;
    let id = asked["data"]["pending_approval"].as_str().unwrap().to_owned();
    // Whom ada enrolled, and whom that one enrolled, may all be ada.
    for who in ["ada", "bob", "eve"] {
        assert_eq!(agree(&house, who, &id).await["violation"], "self_approval", "{who}");
    }
    let asked = house.act("eve", "profiles_put", json!({"profile_id": "q", "mode": "gateway"})).await;
    let other = asked["data"]["pending_approval"].as_str().unwrap().to_owned();
    assert_eq!(agree(&house, "bob", &other).await["violation"], "self_approval");
    assert_eq!(house.call("profiles_list", "{}").await["data"], json!([]));

    // None of them says that bob is somebody else; who is none of them does.
    for who in ["ada", "bob", "eve"] {
        let vouched = house.act(who, "users_vouch", json!({"user_id": "bob"})).await;
        assert_eq!(vouched["violation"], "self_approval", "{who}: {vouched}");
    }
    assert_eq!(house.act("cyd", "users_vouch", json!({"user_id": "zed"})).await["domain_code"], "not_found");
    let vouched = house.act("cyd", "users_vouch", json!({"user_id": "bob"})).await;
    assert_eq!(
        (&vouched["data"]["enrolled_by"], &vouched["data"]["vouched_by"]),
        (&json!("ada"), &json!("cyd")),
        "{vouched}"
    );
    let house = house.again().await;
    assert_eq!(agree(&house, "eve", &id).await["status"], "ok", "eve is bob's, and bob is not ada");

    // To whom ada gives another key, ada may be again.
    assert_eq!(house.act("ada", "users_enrol", enrol("bob")).await["status"], "ok");
    let asked = house.act("ada", "profiles_delete", json!({"profile_id": "p"})).await;
    let id = asked["data"]["pending_approval"].as_str().unwrap().to_owned();
    assert_eq!(agree(&house, "bob", &id).await["violation"], "self_approval");
    // They enrolled each other: still one.
    assert_eq!(house.act("bob", "users_enrol", enrol("ada")).await["status"], "ok");
    assert_eq!(agree(&house, "bob", &id).await["violation"], "self_approval");
    assert_eq!(agree(&house, "cyd", &id).await["status"], "ok");
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn founders_count_as_two_and_nobody_alone_says_what_takes_two() {
    // ADM-54
    let founders = vec!["ada".to_owned(), "bob".to_owned()];
    let house =
        House::administered(AdminOptions { founders, ..two_for(&["users:*"], Duration::from_secs(60)) })
            .await;
    // The first two are enrolled by one: nobody else is there yet.
    for who in ["ada", "bob"] {
        let enrolled = house.act("ada", "users_enrol", json!({"user_id": who, "ssh_key": KEY})).await;
        assert_eq!(enrolled["data"]["user_id"], who, "{enrolled}");
    }
    let asked = house.act("ada", "users_enrol", json!({"user_id": "cyd", "ssh_key": KEY})).await;
    let id = asked["data"]["pending_approval"].as_str().unwrap_or_else(|| panic!("{asked}")).to_owned();
    assert_eq!(agree(&house, "ada", &id).await["violation"], "self_approval");
    assert_eq!(agree(&house, "bob", &id).await["status"], "ok");
    // Two wanted cyd: it is somebody else than either.
    let users = house.call("users_list", "{}").await;
    let cyd = users["data"].as_array().unwrap().iter().find(|user| user["user_id"] == "cyd").unwrap().clone();
    assert_eq!((&cyd["enrolled_by"], &cyd["vouched_by"]), (&json!("ada"), &json!("bob")), "{users}");
    for (tool, args) in [
        ("config_set", json!({"key": "admin.four_eyes", "value": []})),
        ("config_set", json!({"key": "admin.four_eyes_ttl", "value": "1s"})),
        ("config_reset", json!({"key": "admin.four_eyes"})),
    ] {
        let asked = house.act("ada", tool, args).await;
        assert!(asked["data"]["pending_approval"].is_string(), "{tool}: {asked}");
    }
    let other = house.act("ada", "config_set", json!({"key": "approvals.wait", "value": "5s"})).await;
    assert!(other["data"]["pending_approval"].is_null() && other["status"] == "ok", "{other}");
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_waits_for_who_asked_and_for_nobody_else() {
    // ADM-4, ADM-24
    use portcullis_governance::operator::{Method, OperatorProof, Separation};
    let house = House::new().await;
    let control = &house.gateway.control;
    let proof = |name: &str| OperatorProof::authenticated(name, Method::Uid, Separation::SameUid);
    let capture = |answer: &Value| {
        answer["data"]["capture_id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    let token = capture(&house.act("ada", "tokens_create", json!({"name": "t"})).await);
    assert!(control.fetch_key(&proof("bob"), &token).is_err(), "the id alone is worth nothing");
    assert!(control.capture_kind(&proof("bob"), &token).is_err());
    assert!(control.fetch_key(&proof("ada"), &token).is_ok(), "and is not used up by who tries");
    let expected =
        capture(&house.act("ada", "credentials_capture", json!({"name": "c", "kind": "token"})).await);
    assert!(control.give(&proof("bob"), &expected, b"a value of bob's".to_vec()).await.is_err());
    assert!(control.secrets().is_empty());
    assert!(control.give(&proof("ada"), &expected, b"a value of ada's".to_vec()).await.is_ok());
    let passphrase = capture(&house.act("ada", "users_enrol", json!({"user_id": "cyd"})).await);
    assert!(control.give(&proof("bob"), &passphrase, b"bob would be cyd then".to_vec()).await.is_err());
    assert!(control.operators().is_empty());
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_profiles_and_quotas_are_kept_with_versions() {
    // ADM-56, admin §12
    let house = House::new().await;
    let created = house
        .act(
            "ada",
            "clients_create",
            json!({"client_id": "ci", "display_name": "CI", "kind": "service", "grants": ["declared"]}),
        )
        .await;
    assert_eq!(
        (&created["data"]["state"], &created["data"]["version"]),
        (&json!("active"), &json!(1)),
        "{created}"
    );
    let capture = created["data"]["capture_id"].as_str().unwrap();
    assert!(!created.to_string().contains("pck_"), "ADM-4: no tool returns a key");
    let proof = portcullis_governance::operator::OperatorProof::authenticated(
        "ada",
        portcullis_governance::operator::Method::Uid,
        portcullis_governance::operator::Separation::SameUid,
    );
    let key = house.gateway.control.fetch_key(&proof, capture).unwrap();
    assert!(key.expose().starts_with("pck_"));
    assert!(house.gateway.control.fetch_key(&proof, capture).is_err(), "once");
    let again = house
        .act("ada", "clients_create", json!({"client_id": "ci", "display_name": "x", "kind": "agent"}))
        .await;
    assert_eq!(again["domain_code"], "conflict", "{again}");

    assert_eq!(
        house.act("ada", "profiles_put", json!({"profile_id": "small", "mode": "gateway"})).await["data"]["version"],
        1
    );
    let absent = house.act("ada", "clients_update", json!({"client_id": "ci", "profile_id": "none"})).await;
    assert_eq!(absent["domain_code"], "invalid_argument", "{absent}");
    let stale = json!({"client_id": "ci", "profile_id": "small", "expected_version": 7});
    assert_eq!(house.act("ada", "clients_update", stale).await["domain_code"], "conflict");
    let update = json!({"client_id": "ci", "profile_id": "small", "expected_version": 1});
    assert_eq!(house.act("ada", "clients_update", update).await["data"]["profile_id"], "small");
    let used = house.act("ada", "profiles_delete", json!({"profile_id": "small"})).await;
    assert_eq!(used["domain_code"], "conflict", "{used}");
    let grants = house
        .act("ada", "clients_set_grants", json!({"client_id": "ci", "grants": ["mcp.call:notes/*"]}))
        .await;
    assert_eq!(
        (&grants["data"]["grant_epoch"], &grants["data"]["grants"]),
        (&json!(1), &json!(["mcp.call:notes/*"]))
    );
    let bad = house.act("ada", "clients_set_grants", json!({"client_id": "ci", "grants": ["NO"]})).await;
    assert_eq!(bad["domain_code"], "invalid_argument", "{bad}");

    let quota =
        json!({"subject": "client:ci", "metric": "calls", "limit": 5, "window": "hour", "action": "refuse"});
    assert_eq!(house.act("ada", "quotas_set", quota.clone()).await["data"]["version"], 1);
    let usage = house.call("quotas_usage", r#"{"subject":"client:ci"}"#).await;
    assert_eq!((&usage["data"][0]["used"], &usage["data"][0]["limit"]), (&json!(0), &json!(5)), "{usage}");
    let got = house.call("clients_get", r#"{"client_id":"ci"}"#).await;
    assert_eq!(got["data"]["quotas"][0]["metric"], "calls", "{got}");

    let house = house.again().await;
    let got = house.call("clients_get", r#"{"client_id":"ci"}"#).await;
    assert_eq!((&got["data"]["profile_id"], &got["data"]["version"]), (&json!("small"), &json!(3)), "{got}");
    let bad =
        json!({"subject": "nobody", "metric": "calls", "limit": 5, "window": "hour", "action": "refuse"});
    assert_eq!(house.act("ada", "quotas_set", bad).await["message"], "subject: is not a subject");
    let cleared = house.act("ada", "quotas_clear", json!({"subject": "client:ci", "metric": "calls"})).await;
    assert_eq!(cleared["data"]["limit"], 5);
    let gone = house.act("ada", "quotas_clear", json!({"subject": "client:ci", "metric": "calls"})).await;
    assert_eq!(gone["domain_code"], "not_found", "{gone}");
    assert_eq!(house.call("quotas_list", r#"{"history":true}"#).await["data"][0]["limit"], 5);
    let revoked = house.act("ada", "clients_revoke", json!({"client_id": "ci"})).await;
    assert_eq!(revoked["data"]["sessions_ended"], 0, "{revoked}");
    assert_eq!(house.call("clients_get", r#"{"client_id":"ci"}"#).await["data"]["state"], "revoked");
    house.end().await;
}
