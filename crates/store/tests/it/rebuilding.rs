//! AUD-6: state rebuilt from the log equals state that followed it, however it followed.

use portcullis_store::Store;
use proptest::prelude::*;
use serde_json::json;

use crate::log::{
    Entry, about_approval, accepted, decided, entry, everything, log_id, records, registered, requested,
};

fn any_entry() -> impl Strategy<Value = Entry> {
    let server = prop::sample::select(vec!["fs", "web"]);
    let approval = prop::sample::select(vec!["a", "b"]);
    let ending = prop::sample::select(vec![
        "approval.expired",
        "approval.withdrawn",
        "approval.revoked",
        "approval.invalidated",
    ]);
    let about_server = prop::sample::select(vec!["server.halted", "server.resumed", "server.removed"]);
    prop_oneof![
        (server.clone(), "e[0-9]").prop_map(|(name, epoch)| registered(name, &epoch)),
        (about_server, server.clone()).prop_map(|(event, name)| entry(
            event,
            json!({"server": name, "reason": "why", "fault": null}),
            &[]
        )),
        (server.clone(), 1..4u64).prop_map(|(name, counter)| accepted(name, counter)),
        (server, 1..4u64).prop_map(|(name, counter)| {
            entry("declaration.withdrawn", json!({"server": name, "version": format!("{counter}:aa")}), &[])
        }),
        approval.clone().prop_map(requested),
        (approval.clone(), prop::sample::select(vec!["pending", "approved", "denied"]), 0..4u64)
            .prop_map(|(id, decision, uses)| decided(id, decision, uses)),
        approval.clone().prop_map(|id| about_approval("execution.intent", id)),
        // Twice, because calls are what there is most of.
        approval.clone().prop_map(|id| about_approval("execution.intent", id)),
        (ending, approval).prop_map(|(event, id)| about_approval(event, id)),
        (1..9u64).prop_map(|n| entry(
            "policy.activated",
            json!({"version": format!("{n}:cc")}),
            &[("policy", b"p")]
        )),
        prop::sample::select(vec!["ci", "ide"]).prop_map(|agent| {
            entry("credential.stored", json!({"kind": "agent_key", "key": {"agent": agent}}), &[])
        }),
        prop::sample::select(vec!["ci", "ide"]).prop_map(|agent| entry(
            "credential.removed",
            json!({"kind": "agent_key", "agent": agent}),
            &[]
        )),
        Just(entry("session.opened", json!({}), &[])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_rebuilt_state_equals_one_that_followed(
        entries in prop::collection::vec(any_entry(), 1..40),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0..3usize), 0..8),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let batch = records(&entries, log_id(), 0);
            let followed = Store::open(&dir.path().join("followed.db")).await.unwrap();
            // In pieces, some of which overlap what is applied already.
            let mut ends: Vec<_> = cuts.iter().map(|(cut, overlap)| (cut.index(batch.len()), *overlap)).collect();
            ends.push((batch.len(), 0));
            ends.sort_unstable();
            let mut start = 0;
            for (end, overlap) in ends {
                followed.apply(&batch[start.min(end)..end]).await.unwrap();
                start = end.saturating_sub(overlap);
            }
            let followed = everything(&followed).await;
            let rebuilt = Store::open(&dir.path().join("rebuilt.db")).await.unwrap();
            rebuilt.apply(&batch[..1]).await.unwrap();
            rebuilt.reset().await.unwrap();
            rebuilt.apply(&batch).await.unwrap();
            prop_assert_eq!(everything(&rebuilt).await, followed);
            Ok(())
        })?;
    }
}
