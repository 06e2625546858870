//! Leases: for whom, and what the log says of them.

use super::vault::{Entry, Kind, Vault};
use super::*;
use crate::approval::Scope;
use crate::fixture::{ARGS, Gate};
use portcullis_core::{Secret as Key, Timestamp};

#[tokio::test]
async fn a_permit_that_does_not_list_a_class_leases_nothing_of_it() {
    // SBX-52
    let gate = Gate::open();
    let request = gate.request(ARGS);
    gate.approve(&request, Scope::Once);
    let permit = gate.permit(&request);
    let mut trail = gate.trail(&request);
    let validated = gate.admit(permit, request, &mut trail).await.unwrap();
    drop(trail);
    let dir = tempfile::tempdir().unwrap();
    let vault = Vault::open(dir.path().join("vault.json"), Key::new([1; 32])).unwrap();
    let class: CredentialClass = "issues.read".parse().unwrap();
    let entry = Entry {
        name: "github".into(),
        class: class.clone(),
        kind: Kind::Static,
        version: 1,
        id: "h".into(),
        stored_at: Timestamp::from_millis(0),
    };
    vault.put(&entry, &Secret::take(b"canary-value".to_vec()).unwrap()).unwrap();
    let broker = Arc::new(Broker::new(vault, gate.log.clone()));
    let denied = broker.lease(&validated, &class).map(drop);
    assert_eq!(denied, Err(CredentialDenied::NotPermitted(class)));
    let records = gate.close();
    let events: Vec<_> = records.iter().map(|record| record.event).collect();
    assert!(events.contains(&EventName::CredentialDenied) && !events.contains(&EventName::CredentialLeased));
    assert!(records.iter().all(|record| !format!("{record:?}").contains("canary")));
}
