//! Following a log: exactly once, all or nothing, one log only, in a private file.

use std::future::Future as _;
use std::os::unix::fs::PermissionsExt as _;
use std::pin::pin;
use std::task::{Context, Waker};

use portcullis_core::ErrorCode;
use portcullis_store::{Store, StoreError};
use serde_json::json;

use crate::log::{
    about_approval, decided, entry, everything, log_id, other_log, records, registered, requested,
};

#[tokio::test]
async fn applying_again_changes_nothing() {
    // AUD-67
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("state.db")).await.unwrap();
    let entries = [
        registered("fs", "e"),
        requested("a"),
        decided("a", "approved", 5),
        about_approval("execution.intent", "a"),
    ];
    let batch = records(&entries, log_id(), 0);
    store.apply(&batch).await.unwrap();
    let once = everything(&store).await;
    store.apply(&batch).await.unwrap();
    store.apply(&batch[2..]).await.unwrap();
    assert_eq!(everything(&store).await, once);
    store.close().await;
    let store = Store::open(&dir.path().join("state.db")).await.unwrap();
    store.apply(&batch).await.unwrap();
    assert_eq!(everything(&store).await, once, "also after a restart");
    assert_eq!(once.0, Some((log_id(), 3)));
}

#[tokio::test]
async fn a_batch_is_applied_whole_or_not_at_all() {
    // AUD-67
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("state.db")).await.unwrap();
    store.apply(&records(&[registered("fs", "e")], log_id(), 0)).await.unwrap();
    let before = everything(&store).await;
    let broken = [registered("web", "e"), entry("server.halted", json!({}), &[])];
    let error = store.apply(&records(&broken, log_id(), 1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Record { seq: 2, .. }), "{error}");
    assert_eq!(error.code(), ErrorCode::Integrity);
    assert_eq!(everything(&store).await, before);
}

#[tokio::test]
async fn an_interrupted_batch_leaves_the_store_behind_but_never_half_way() {
    // AUD-67: a crash between the log's sync and the store's commit.
    let dir = tempfile::tempdir().unwrap();
    let entries: Vec<_> = (0..20).map(|n| registered(&format!("s{n}"), "e")).collect();
    let batch = records(&entries, log_id(), 0);
    for polls in 0..60 {
        let store = Store::open(&dir.path().join(format!("{polls}.db"))).await.unwrap();
        {
            let mut apply = pin!(store.apply(&batch));
            for _ in 0..polls {
                if apply.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
                std::thread::yield_now();
            }
        }
        let (position, servers, ..) = everything(&store).await;
        match position {
            None => assert!(servers.is_empty()),
            Some((_, seq)) => assert_eq!((seq, servers.len()), (19, 20)),
        }
        store.apply(&batch).await.unwrap();
        assert_eq!(store.servers().await.unwrap().len(), 20);
        store.close().await;
    }
}

#[tokio::test]
async fn an_unknown_event_changes_nothing_but_the_position() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("state.db")).await.unwrap();
    assert_eq!(store.position().await.unwrap(), None);
    store.apply(&[]).await.unwrap();
    store.apply(&records(&[entry("who.knows", json!({}), &[])], log_id(), 41)).await.unwrap();
    let (position, servers, declarations, approvals, policy) = everything(&store).await;
    assert_eq!(position, Some((log_id(), 41)));
    assert!(servers.is_empty() && declarations.is_empty() && approvals.is_empty() && policy.is_empty());
}

#[tokio::test]
async fn records_of_another_log_are_refused_until_the_store_is_emptied() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("state.db")).await.unwrap();
    store.apply(&records(&[registered("fs", "e")], log_id(), 0)).await.unwrap();
    let before = everything(&store).await;
    let entries = [registered("web", "e")];
    let others = records(&entries, other_log(), 1);
    let error = store.apply(&others).await.unwrap_err();
    assert!(matches!(&error, StoreError::OtherLog { follows, .. } if *follows == log_id().to_string()));
    assert_eq!((error.code(), everything(&store).await), (ErrorCode::Conflict, before));
    store.reset().await.unwrap();
    assert_eq!(store.position().await.unwrap(), None);
    store.apply(&others).await.unwrap();
    assert_eq!(store.servers().await.unwrap()[0].identity, "web");
}

#[tokio::test]
async fn the_files_are_private_and_a_looser_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state").join("state.db");
    let store = Store::open(&path).await.unwrap();
    store.apply(&records(&[registered("fs", "e")], log_id(), 0)).await.unwrap();
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    for entry in std::fs::read_dir(path.parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{path:?}");
    }
    store.close().await;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(Store::open(&path).await, Err(StoreError::Permissions { mode: 0o640, .. })));
}

#[tokio::test]
async fn a_file_that_is_no_state_is_refused_and_one_of_a_newer_version_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    std::fs::write(&path, vec![b'x'; 4096]).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(Store::open(&path).await, Err(StoreError::Database(_))));

    let path = dir.path().join("newer.db");
    Store::open(&path).await.unwrap().close().await;
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path);
    let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
    sqlx::raw_sql("PRAGMA user_version = 99").execute(&pool).await.unwrap();
    pool.close().await;
    assert!(matches!(Store::open(&path).await, Err(StoreError::Damaged { .. })));
}
