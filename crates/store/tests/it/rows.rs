//! What each event makes of the rows.

use portcullis_store::Store;
use serde_json::{Value, json};

use crate::log::{Entry, about_approval, accepted, decided, entry, log_id, records, registered, requested};

async fn store_after(entries: &[Entry]) -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("state/state.db")).await.unwrap();
    store.apply(&records(entries, log_id(), 0)).await.unwrap();
    (dir, store)
}

#[tokio::test]
async fn a_server_is_registered_halted_resumed_and_removed() {
    let halted = entry(
        "server.halted",
        json!({"server": "fs", "reason": "left its scope", "fault": "MP-FH-008"}),
        &[],
    );
    let mut entries = vec![registered("fs", "e1"), registered("web", "e2"), halted];
    let (_dir, store) = store_after(&entries).await;
    let servers = store.servers().await.unwrap();
    assert_eq!(servers.len(), 2);
    assert_eq!((servers[0].state.as_str(), servers[0].halt.as_deref()), ("halted", Some("left its scope")));
    assert_eq!((servers[0].fault.as_deref(), servers[0].epoch.as_str()), (Some("MP-FH-008"), "e1"));
    assert_eq!(servers[0].record["server_identity"], "fs");
    assert_eq!((servers[1].state.as_str(), servers[1].halt.as_deref()), ("active", None));

    entries = vec![
        entry("server.resumed", json!({"server": "fs"}), &[]),
        entry("server.removed", json!({"server": "web"}), &[]),
    ];
    store.apply(&records(&entries, log_id(), 3)).await.unwrap();
    let states: Vec<_> =
        store.servers().await.unwrap().into_iter().map(|row| (row.state, row.halt, row.fault)).collect();
    assert_eq!(
        states,
        [("active".into(), None, None), ("removed".into(), None, None)],
        "a removed server leaves its row"
    );

    store.apply(&records(&[registered("web", "e3")], log_id(), 5)).await.unwrap();
    let web = store.servers().await.unwrap().remove(1);
    assert_eq!(
        (web.epoch.as_str(), web.state.as_str()),
        ("e3", "active"),
        "and can come back in another life"
    );
}

#[tokio::test]
async fn accepting_a_declaration_supersedes_the_one_before() {
    let withdrawn = entry("declaration.withdrawn", json!({"server": "web", "version": "1:aa"}), &[]);
    let (_dir, store) =
        store_after(&[accepted("fs", 1), accepted("web", 1), accepted("fs", 2), withdrawn]).await;
    let rows = store.declarations().await.unwrap();
    let states: Vec<_> =
        rows.iter().map(|row| (row.server.as_str(), row.version.as_str(), row.state.as_str())).collect();
    assert_eq!(
        states,
        [("fs", "1:aa", "superseded"), ("web", "1:aa", "withdrawn"), ("fs", "2:aa", "accepted")]
    );
    assert_eq!((rows[0].document.as_slice(), rows[0].probe.as_slice()), (&b"fs"[..], &b"{}"[..]));
}

#[tokio::test]
async fn an_approval_is_requested_decided_used_and_consumed() {
    let id = "0123456789abcdef0123456789abcdef";
    let intent = || about_approval("execution.intent", id);
    let (_dir, store) =
        store_after(&[requested(id), decided(id, "pending", 0), decided(id, "approved", 3), intent()]).await;
    let row = store.approvals(Some("approved")).await.unwrap().remove(0);
    assert_eq!((row.approval_id.as_str(), row.presented.as_slice()), (id, &b"the view"[..]));
    assert_eq!(row.approval["uses_left"], 2);
    assert_eq!(row.approval["scope"], "session");
    assert_eq!(row.approval["expires_at"], "later");
    assert_eq!(row.approval["state"], "approved");
    let decision = json!({"at": "2026-11-16T09:00:00.000Z", "by": "ana", "method": "terminal", "reason": "fine", "separation": "same_user"});
    assert_eq!(row.approval["decisions"], Value::from(vec![decision; 2]));

    let unapproved = entry("execution.intent", json!({"approval_id": null}), &[]);
    store.apply(&records(&[intent(), unapproved, intent()], log_id(), 4)).await.unwrap();
    assert!(store.approvals(Some("approved")).await.unwrap().is_empty());
    let row = store.approvals(Some("consumed")).await.unwrap().remove(0);
    assert_eq!((&row.approval["uses_left"], &row.approval["state"]), (&json!(0), &json!("consumed")));
}

#[tokio::test]
async fn an_approval_can_end_in_other_ways_and_stays_ended() {
    for (event, state) in [
        ("approval.expired", "expired"),
        ("approval.withdrawn", "withdrawn"),
        ("approval.revoked", "revoked"),
        ("approval.invalidated", "invalidated"),
    ] {
        let entries = [
            requested("a"),
            decided("a", "approved", 1),
            about_approval(event, "a"),
            about_approval("execution.intent", "a"),
        ];
        let (_dir, store) = store_after(&entries).await;
        let row = store.approvals(None).await.unwrap().remove(0);
        assert_eq!((row.state.as_str(), &row.approval["state"]), (state, &json!(state)));
    }
    let (_dir, store) = store_after(&[requested("a"), decided("a", "denied", 0)]).await;
    assert_eq!(store.approvals(Some("denied")).await.unwrap().len(), 1);
}

#[tokio::test]
async fn uses_before_a_decision_in_the_same_batch_are_counted_before_it() {
    let (_dir, store) = store_after(&[
        requested("a"),
        decided("a", "approved", 2),
        about_approval("execution.intent", "a"),
        decided("a", "approved", 2),
        about_approval("execution.intent", "a"),
    ])
    .await;
    assert_eq!(store.approvals(None).await.unwrap()[0].approval["uses_left"], 1);
}

#[tokio::test]
async fn every_activated_policy_is_kept_and_the_last_is_in_force() {
    // GOV-801
    let activated = |version: &str| {
        let data = json!({"version": version, "reason": "tried"});
        entry("policy.activated", data, &[("policy", version.as_bytes())])
    };
    let (_dir, store) = store_after(&[activated("1:aa"), activated("2:bb")]).await;
    let policies = store.policies().await.unwrap();
    assert_eq!(policies.iter().map(|policy| policy.version.as_str()).collect::<Vec<_>>(), ["1:aa", "2:bb"]);
    let policy = policies.last().unwrap();
    assert_eq!((policy.document.as_slice(), policy.seq), (&b"2:bb"[..], 1));
    assert_eq!(policy.activation["data"]["reason"], "tried");
}

#[tokio::test]
async fn an_agent_has_the_last_key_it_was_given_until_it_is_taken_back() {
    let stored = |agent: &str, hash: &str| {
        entry("credential.stored", json!({"kind": "agent_key", "key": {"agent": agent, "hash": hash}}), &[])
    };
    let (_dir, store) = store_after(&[
        stored("ci", "a"),
        stored("ide", "b"),
        stored("ci", "c"),
        entry("credential.removed", json!({"kind": "agent_key", "agent": "ide"}), &[]),
        entry("credential.removed", json!({"kind": "header", "agent": "ci"}), &[]),
    ])
    .await;
    let keys = store.agent_keys().await.unwrap();
    assert_eq!(keys.len(), 1);
    assert_eq!((keys[0].agent.as_str(), &keys[0].key["hash"], keys[0].seq), ("ci", &json!("c"), 2));
}

#[tokio::test]
async fn a_session_is_stopped_by_the_first_checkpoint_until_it_is_resolved_or_the_session_is_over() {
    // GOV-1203
    let opened = |session: &str, trigger: &str| {
        let data = json!({"checkpoint": {"session_id": session, "trigger": trigger}});
        entry("checkpoint.opened", data, &[])
    };
    let about = |event: &str, session: &str, data: Value| {
        let mut entry = entry(event, data, &[]);
        entry.record["session"] = json!(session);
        entry
    };
    let (_dir, store) = store_after(&[
        opened("s1", "operator"),
        opened("s1", "demotion"),
        opened("s2", "call_budget"),
        opened("s3", "operator"),
        opened("s4", "operator"),
        // What another policy does resolves nothing else.
        opened("s1", "policy_activation"),
        about("checkpoint.resolved", "s1", json!({"how": "automatic"})),
        about("checkpoint.resolved", "s2", json!({"how": "operator"})),
        about("session.ended", "s3", json!({})),
        about("session.expired", "s4", json!({})),
    ])
    .await;
    let stopped = store.checkpoints().await.unwrap();
    assert_eq!(stopped.len(), 1, "{stopped:?}");
    assert_eq!((stopped[0].session.as_str(), &stopped[0].checkpoint["trigger"]), ("s1", &json!("operator")));
}

#[tokio::test]
async fn what_a_server_has_become_is_kept_until_it_is_accepted_or_gone() {
    // GOV-502
    let changed = |server: &str, documents: &[(&str, &[u8])]| {
        entry("server.surface_changed", json!({ "server": server }), documents)
    };
    let halted =
        entry("server.halted", json!({"server": "still", "fault": "MP-FH-003"}), &[("probe", b"other")]);
    let servers = ["a", "b", "c", "d", "still"].map(|name| registered(name, "e1"));
    let (_dir, store) = store_after(
        &[
            servers.to_vec(),
            vec![changed("a", &[("probe", b"one")]), changed("a", &[("probe", b"two")])],
            vec![changed("b", &[("probe", b"one")]), changed("b", &[])],
            vec![changed("c", &[("probe", b"one")]), accepted("c", 2)],
            vec![changed("d", &[("probe", b"one")]), entry("server.removed", json!({"server": "d"}), &[])],
            vec![halted, entry("server.resumed", json!({"server": "still"}), &[])],
        ]
        .concat(),
    )
    .await;
    let surfaces = store.surfaces().await.unwrap();
    let found: Vec<_> = surfaces.iter().map(|row| (row.server.as_str(), row.probe.as_slice())).collect();
    assert_eq!(found, [("a", &b"two"[..]), ("still", &b"other"[..])]);
}
