//! Who may open what, and what goes when there is no more room.

use std::time::Duration;

use portcullis_context::{Artifacts, Handle, Limits, NotKept, NotThere, Owner};
use portcullis_core::{SessionId, Timestamp};

use crate::shelf::{Shelf, key, owner};

fn text_of(shelf: &Shelf, handle: Handle, owner: &Owner) -> Result<String, NotThere> {
    let opened = shelf.artifacts.open(handle, owner)?;
    let selector =
        portcullis_context::Selector::read(&serde_json::json!({"type": "head", "chars": 100_000})).unwrap();
    match portcullis_context::view_artifact(&opened, &selector, 100_000).unwrap().slice {
        portcullis_context::view::Slice::Text(text) | portcullis_context::view::Slice::Part(text) => Ok(text),
    }
}

#[test]
fn only_the_same_principal_in_the_same_session_opens_an_artifact() {
    // CTX-21, T-CTX-5
    let shelf = Shelf::new();
    let ann = owner("ann");
    let handle = shelf.keep(&ann, "text/plain", b"hers").unwrap();
    assert_eq!(text_of(&shelf, handle, &ann).unwrap(), "hers");
    let elsewhere = Owner { session: SessionId::new(Timestamp::from_millis(5)), ..ann.clone() };
    let bob = Owner { principal: owner("bob").principal, session: ann.session };
    for other in [&elsewhere, &bob, &owner("bob")] {
        assert_eq!(shelf.artifacts.open(handle, other).unwrap_err(), NotThere::Unknown);
    }
    for _ in 0..100_000 {
        assert_eq!(shelf.artifacts.find(Handle::random(), &ann).unwrap_err(), NotThere::Unknown);
    }
}

#[test]
fn equal_content_is_kept_once_under_two_handles() {
    // CTX-20, CTX-23, T-CTX-2
    let shelf = Shelf::new();
    let (ann, bob) = (owner("ann"), owner("bob"));
    let one = shelf.keep(&ann, "text/plain", b"same").unwrap();
    let two = shelf.keep(&bob, "text/plain", b"same").unwrap();
    assert_ne!(one, two);
    assert_eq!(shelf.blobs(), 1);
    shelf.artifacts.session_ended(ann.session);
    shelf.clock.advance(Duration::from_secs(301));
    shelf.artifacts.sweep();
    assert_eq!(text_of(&shelf, two, &bob).unwrap(), "same");
    shelf.artifacts.session_ended(bob.session);
    shelf.clock.advance(Duration::from_secs(301));
    shelf.artifacts.sweep();
    assert_eq!(shelf.blobs(), 0);
}

#[test]
fn nothing_on_disk_can_be_read_or_guessed_without_the_key() {
    // CTX-23
    let shelf = Shelf::new();
    let secret = b"the quick brown fox".repeat(2_000);
    let handle = shelf.keep(&owner("ann"), "text/plain", &secret).unwrap();
    for folder in ["blobs", "records"] {
        for entry in std::fs::read_dir(shelf.folder.path().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            for needle in [b"quick brown".as_slice(), b"agent:ann", handle.to_string().as_bytes(), b"notes"] {
                assert!(!bytes.windows(needle.len()).any(|window| window == needle), "{}", path.display());
            }
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            assert_ne!(name, blake3::hash(&secret).to_hex().to_string());
            let mode =
                std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}

#[test]
fn a_file_that_was_changed_cut_or_swapped_does_not_open() {
    let shelf = Shelf::new();
    let ann = owner("ann");
    let content = "line\n".repeat(10_000);
    let handle = shelf.keep(&ann, "text/plain", content.as_bytes()).unwrap();
    let path = std::fs::read_dir(shelf.folder.path().join("blobs")).unwrap().next().unwrap().unwrap().path();
    let good = std::fs::read(&path).unwrap();
    let mut swapped = good.clone();
    let (first, second) = (24, 24 + 16_400);
    for at in 0..16_400 {
        swapped.swap(first + at, second + at);
    }
    let mut flipped = good.clone();
    flipped[100] ^= 1;
    for bad in [flipped, good[..good.len() / 2].to_vec(), swapped] {
        std::fs::write(&path, bad).unwrap();
        let opened = shelf.artifacts.open(handle, &ann).unwrap();
        let selector =
            portcullis_context::Selector::read(&serde_json::json!({"type": "grep", "pattern": "x"})).unwrap();
        let error = portcullis_context::view_artifact(&opened, &selector, 1_000).unwrap_err();
        assert_eq!(error, NotThere::Unreadable.into());
    }
}

#[test]
fn an_artifact_lives_an_hour_after_it_was_viewed_and_a_day_at_most() {
    // CTX-24, T-CTX-27
    let shelf = Shelf::new();
    let (ann, bob) = (owner("ann"), owner("bob"));
    let handle = shelf.keep(&ann, "text/plain", b"x").unwrap();
    for _ in 0..26 {
        shelf.clock.advance(Duration::from_secs(3_300));
        assert!(shelf.artifacts.open(handle, &ann).is_ok());
    }
    shelf.clock.advance(Duration::from_secs(900));
    assert_eq!(shelf.artifacts.open(handle, &ann).unwrap_err(), NotThere::Expired);
    // Only to its owner: to everybody else it was never there.
    assert_eq!(shelf.artifacts.open(handle, &bob).unwrap_err(), NotThere::Unknown);
    shelf.artifacts.sweep();
    assert_eq!(shelf.artifacts.open(handle, &ann).unwrap_err(), NotThere::Expired);
    assert_eq!(shelf.artifacts.open(handle, &bob).unwrap_err(), NotThere::Unknown);
    assert_eq!((shelf.blobs(), shelf.artifacts.records().len()), (0, 0));
}

#[test]
fn the_end_of_a_session_is_the_end_of_its_artifacts() {
    // CTX-24, T-CTX-27
    let shelf = Shelf::new();
    let (ann, bob) = (owner("ann"), owner("bob"));
    let (hers, his) =
        (shelf.keep(&ann, "text/plain", b"a").unwrap(), shelf.keep(&bob, "text/plain", b"b").unwrap());
    shelf.artifacts.session_ended(ann.session);
    shelf.clock.advance(Duration::from_secs(299));
    assert!(shelf.artifacts.find(hers, &ann).is_ok());
    shelf.clock.advance(Duration::from_secs(2));
    assert_eq!(shelf.artifacts.find(hers, &ann).unwrap_err(), NotThere::Expired);
    assert!(shelf.artifacts.find(his, &bob).is_ok());
}

#[test]
fn room_is_made_by_the_least_recently_viewed_of_the_same_principal() {
    // CTX-24, T-CTX-27
    let limits = Limits { total_bytes: 1_000, session_bytes: 1_000, ..Limits::default() };
    let shelf = Shelf::with(limits);
    let (ann, bob) = (owner("ann"), owner("bob"));
    let his = shelf.keep(&bob, "text/plain", &[b'b'; 400]).unwrap();
    let one = shelf.keep(&ann, "text/plain", &[b'1'; 300]).unwrap();
    let two = shelf.keep(&ann, "text/plain", &[b'2'; 300]).unwrap();
    shelf.artifacts.open(one, &ann).unwrap();
    let three = shelf.keep(&ann, "text/plain", &[b'3'; 300]).unwrap();
    assert_eq!(shelf.artifacts.find(two, &ann).unwrap_err(), NotThere::Expired);
    for (handle, owner) in [(one, &ann), (three, &ann), (his, &bob)] {
        assert!(shelf.artifacts.find(handle, owner).is_ok());
    }
    // Everything of hers would not be enough, and his stays.
    assert!(matches!(shelf.keep(&ann, "text/plain", &[b'4'; 700]), Err(NotKept::NoRoom)));
    assert!(shelf.artifacts.find(his, &bob).is_ok());
    // A third principal has nothing that could go.
    let full = Shelf::with(Limits { total_bytes: 400, ..limits });
    let his = full.keep(&bob, "text/plain", &[b'b'; 400]).unwrap();
    assert!(matches!(full.keep(&ann, "text/plain", b"x"), Err(NotKept::NoRoom)));
    assert!(full.artifacts.find(his, &bob).is_ok());
    // What has expired is nobody's.
    full.clock.advance(Duration::from_secs(3_601));
    assert!(full.keep(&ann, "text/plain", b"x").is_ok());
}

#[test]
fn a_session_has_limits_of_its_own() {
    // CTX-24
    let limits = Limits { session_bytes: 100, session_artifacts: 2, artifact_bytes: 60, ..Limits::default() };
    let shelf = Shelf::with(limits);
    let ann = owner("ann");
    let other = Owner { session: SessionId::new(Timestamp::from_millis(9)), ..ann.clone() };
    let elsewhere = shelf.keep(&other, "text/plain", &[b'0'; 50]).unwrap();
    assert!(matches!(shelf.keep(&ann, "text/plain", &[b'x'; 61]), Err(NotKept::NoRoom)));
    let one = shelf.keep(&ann, "text/plain", &[b'1'; 60]).unwrap();
    let two = shelf.keep(&ann, "text/plain", &[b'2'; 50]).unwrap();
    assert_eq!(shelf.artifacts.find(one, &ann).unwrap_err(), NotThere::Expired);
    shelf.keep(&ann, "text/plain", b"3").unwrap();
    shelf.keep(&ann, "text/plain", b"4").unwrap();
    assert_eq!(shelf.artifacts.find(two, &ann).unwrap_err(), NotThere::Expired);
    // Another session of the same principal is not full.
    assert!(shelf.artifacts.find(elsewhere, &other).is_ok());
}

#[test]
fn a_restart_keeps_what_lives_and_removes_what_is_left_over() {
    // CTX-25
    let shelf = Shelf::with(Limits { ttl: Duration::from_secs(100), ..Limits::default() });
    let ann = owner("ann");
    let old = shelf.keep(&ann, "text/plain", b"old").unwrap();
    shelf.clock.advance(Duration::from_secs(60));
    let young = shelf.keep(&ann, "text/plain", b"young").unwrap();
    shelf.clock.advance(Duration::from_secs(60));
    std::fs::write(shelf.folder.path().join("blobs/deadbeef.0.new"), b"half").unwrap();
    let shelf = shelf.reopened();
    assert_eq!(text_of(&shelf, young, &ann).unwrap(), "young");
    assert_eq!(shelf.artifacts.find(old, &ann).unwrap_err(), NotThere::Unknown);
    assert_eq!(shelf.blobs(), 1);
    // Another installation's key opens nothing, and what it cannot open it does not keep.
    let other =
        Artifacts::open_in(shelf.folder.path(), &key(8), Limits::default(), shelf.clock.clone()).unwrap();
    assert!(other.records().is_empty());
}
