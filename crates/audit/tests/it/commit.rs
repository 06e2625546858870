//! Committing: order, chain, groups, time, subscribers.

use std::time::Duration;

use portcullis_audit::{AuditLog, Event, EventName, Health, Options, read_from};
use portcullis_core::{Actor, Sha256Digest, Timestamp};
use serde_json::json;

use crate::home::{Home, event, manual};

#[test]
fn a_new_log_begins_with_its_genesis_and_every_record_names_the_one_before() {
    // AUD-10, AUD-11, AUD-13, AUD-16
    let home = Home::new();
    let log = home.open();
    log.append(vec![event(1), event(2)]).unwrap();
    let receipt = log.commit_blocking(vec![event(3), event(4)]).unwrap();
    assert_eq!((receipt.log, receipt.first_seq, receipt.seq), (log.id(), 3, 4));
    assert_eq!((log.next_seq(), log.last_time()), (5, receipt.time));
    let records = home.records();
    assert_eq!(records[0].event, EventName::SystemInitialized);
    assert_eq!(records[0].data["format"], "portcullis-audit-v1");
    assert!(records[0].data["origin"].as_str().unwrap().ends_with(&log.id().to_string()));
    let mut prev = Sha256Digest::ZERO;
    for (seq, record) in records.iter().enumerate() {
        assert_eq!((record.seq, record.prev, record.log), (seq as u64, prev, log.id()));
        prev = record.leaf;
    }
    assert_eq!(records[4].id, receipt.id);
    assert_eq!(home.verify().head, prev);
    home.assert_whole(5);
}

#[test]
fn a_log_goes_on_where_it_ended_over_many_segments() {
    // AUD-17
    let home = Home::new();
    for round in 0..4u64 {
        let log = home.open();
        for n in 0..60 {
            log.commit_blocking(vec![event(round), event(n), event(n)]).unwrap();
        }
    }
    assert!(home.segments().len() > 3, "{:?}", home.segments());
    home.assert_whole(1 + 4 * 60 * 3);
    let log_dir = home.audit();
    for from in [0, 1, 100, 500, 720, 721, 900] {
        let seqs: Vec<u64> = read_from(&log_dir, from).unwrap().map(|record| record.unwrap().seq).collect();
        assert_eq!(seqs, (from..721).collect::<Vec<_>>());
    }
}

#[test]
fn sixty_four_threads_make_one_linear_log_with_far_fewer_syncs_than_commits() {
    // A-14, P-2, AUD-20, AUD-23
    let home = Home::new();
    let log = AuditLog::open(Options::new(home.audit(), home.path().join("kek"))).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..64u64 {
            let log = &log;
            scope.spawn(move || {
                for n in 0..20u64 {
                    let event = |half: u64| {
                        Event::new(EventName::ProposalReceived, &Actor::system())
                            .data(json!([thread, n * 2 + half]))
                    };
                    log.append(vec![event(0)]).unwrap();
                    let receipt = log.commit_blocking(vec![event(1)]).unwrap();
                    assert!(receipt.seq < log.next_seq());
                }
            });
        }
    });
    let (commits, stats) = (64 * 20, log.stats());
    assert!(stats.segment_syncs <= commits / 4, "{stats:?}");
    log.close();
    home.assert_whole(1 + 2 * commits);
    let mut expected = [0u64; 64];
    for record in &home.records()[1..] {
        let (thread, n): (usize, u64) = serde_json::from_value(record.data.clone()).unwrap();
        assert_eq!(n, expected[thread], "the order of one caller's events is kept");
        expected[thread] += 1;
    }
    assert_eq!(expected, [40; 64]);
}

#[tokio::test]
async fn a_task_waits_for_durability_without_blocking_its_thread() {
    // AUD-20
    let home = Home::new();
    let log = home.open();
    let commits = (0..100).map(|n| {
        let log = log.clone();
        tokio::spawn(async move { log.commit(vec![event(n)]).await.unwrap().seq })
    });
    let mut seqs = Vec::new();
    for commit in commits.collect::<Vec<_>>() {
        seqs.push(commit.await.unwrap());
    }
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=100).collect::<Vec<_>>());
    assert_eq!(home.records().len(), 101, "a live log can be read up to its last commit");
    assert!(log.commit(Vec::new()).await.is_err());
}

#[test]
fn subscribers_see_what_they_want_after_it_is_durable_and_in_order() {
    let home = Home::new();
    let log = home.open();
    let seen = log.subscribe(|name| name == EventName::ProposalReceived);
    drop(log.subscribe(|_| true));
    for n in 0..10 {
        log.append(vec![Event::new(EventName::SessionOpened, &Actor::system()), event(n)]).unwrap();
    }
    log.close();
    let seen: Vec<_> = seen.iter().collect();
    let numbers: Vec<_> =
        seen.iter().map(|record| record.parse().unwrap().data["n"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..10).collect::<Vec<_>>());
    assert!(seen.iter().all(|record| record.seq % 2 == 0 && record.parse().unwrap().seq == record.seq));
}

#[test]
fn time_never_goes_back_and_the_log_says_when_the_clock_did() {
    // A-24, AUD-10
    let home = Home::new();
    let start: Timestamp = "2026-11-16T09:00:00.000Z".parse().unwrap();
    let (options, clock) = manual(home.options(), start);
    let log = AuditLog::open(options).unwrap();
    let commit = |n| log.commit_blocking(vec![event(n)]).unwrap().time;
    assert_eq!(commit(1), start);
    clock.set_wall(Timestamp::from_millis(start.as_millis() - 4_000));
    assert_eq!(commit(2), start, "within the tolerance");
    clock.set_wall(Timestamp::from_millis(start.as_millis() - 3_600_000));
    assert_eq!(commit(3), start);
    assert_eq!(commit(4), start);
    let later = start.after(Duration::from_secs(86_400));
    clock.set_wall(later);
    assert_eq!(commit(5), later);
    log.close();
    // The log remembers the time over a restart.
    let (options, _) = manual(home.options(), start);
    let log = AuditLog::open(options).unwrap();
    assert_eq!(log.last_time(), later);
    assert_eq!(log.commit_blocking(vec![event(6)]).unwrap().time, later);
    log.close();
    let anomalies: Vec<_> =
        home.records().into_iter().filter(|record| record.event == EventName::SystemClockAnomaly).collect();
    let behind: Vec<_> = anomalies.iter().map(|record| record.data["behind_ms"].as_u64().unwrap()).collect();
    assert_eq!(behind, [3_600_000, 86_400_000], "once per episode");
    home.assert_whole(9);
}

#[test]
fn a_closed_log_takes_nothing_and_can_be_opened_again() {
    let home = Home::new();
    let log = home.open();
    log.append(vec![event(1)]).unwrap();
    log.close();
    log.close();
    assert!(log.append(vec![event(2)]).is_err());
    assert!(log.commit_blocking(vec![event(2)]).is_err());
    assert_eq!(log.health(), Health::Ok);
    assert_eq!(home.open().next_seq(), 2);
}

#[test]
fn a_trail_that_could_never_fit_is_refused_without_harm() {
    let home = Home::new();
    let log = home.open();
    let large = || Event::new(EventName::ProposalReceived, &Actor::system()).data("x".repeat(15_000));
    assert!(log.append((0..3).map(|_| large()).collect()).is_err());
    let no_json = std::collections::BTreeMap::from([((1, 2), 3)]);
    let event_of_it = Event::new(EventName::ProposalReceived, &Actor::system()).data(no_json);
    assert!(log.append(vec![event_of_it]).is_err());
    assert_eq!(log.health(), Health::Ok);
    assert_eq!(log.commit_blocking(vec![event(1)]).unwrap().seq, 1);
}
