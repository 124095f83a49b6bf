//! P31: rows that were changed by hand become gaps, and stop no stream.

use std::time::Duration;

use doorbell::bus::{BusEvent, BusState, BusSubscription, EventBus as _};
use doorbell::store::Store as _;
use throwaway_postgres::Database;

use crate::bus_support::{builder, next, note, store, until};

/// Receives until the event with this number, and returns the numbers of the events and of the gaps.
async fn until_event(subscription: &mut BusSubscription, stream: &str, last: u64) -> (Vec<u64>, Vec<(u64, u64)>) {
    let (mut events, mut gaps) = (Vec::new(), Vec::new());
    loop {
        match next(subscription).await {
            BusEvent::Event(event) if event.agent_id == stream => events.push(event.seq),
            BusEvent::Gap(gap) if &*gap.stream_key == stream => gaps.push((*gap.seqs.start(), *gap.seqs.end())),
            BusEvent::Rewound(rewound) => panic!("{rewound:?}"),
            _ => {} // of another stream
        }
        if events.last() == Some(&last) {
            return (events, gaps);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p31_rows_changed_by_hand_become_gaps_and_stop_no_stream() {
    let database = Database::fresh().unwrap();
    let url = database.url();
    let store = store(&url).await;
    let bus = builder(&url, &store).sweep_interval(Duration::from_millis(100));
    let bus = bus.connect().await.unwrap();
    let streams = ["hole", "deleted", "mark", "last number", "good"];
    let mut subscriptions = Vec::new();
    for stream in streams {
        let subscription = bus.subscribe(stream);
        subscription.ready().await.unwrap();
        subscriptions.push(subscription);
    }
    let mut all = bus.subscribe_all_ready().await.unwrap();
    for (stream, subscription) in streams.iter().zip(&mut subscriptions) {
        for seq in 1..=3 {
            assert_eq!(store.append(note(stream, "x")).await.unwrap().seq, seq);
        }
        until_event(subscription, stream, 3).await;
    }
    // One session changes the rows, so no subscription receives anything in between.
    let psql = |sql: &str| database.psql(sql).unwrap();
    let row = r#"{"agent_id": "KEY", "type": "agent_connected"}"#;
    let insert = |key: &str, seq: u64| {
        let row = row.replace("KEY", key);
        format!("INSERT INTO doorbell.events (stream_key, seq, payload) VALUES ('{key}', {seq}, '{row}');")
    };
    let last = i64::MAX.unsigned_abs();
    psql(&format!(
        "BEGIN; {} {} {} {} UPDATE doorbell.events SET appended_at = 'infinity' WHERE stream_key = 'deleted';
        INSERT INTO doorbell.low_water_marks (stream_key, low_water) VALUES ('mark', 1000000), ('only', {last}); COMMIT",
        insert("hole", 100),
        insert("deleted", 4),
        insert("deleted", 6),
        insert("last number", last),
    ));
    assert_eq!(store.append(note("hole", "x")).await.unwrap().seq, 101);
    for (stream, next) in [("deleted", 7), ("mark", 4), ("good", 4)] {
        assert_eq!(store.append(note(stream, "x")).await.unwrap().seq, next);
    }
    let expected = [
        (vec![100, 101], vec![(4, 99)]),
        (vec![4, 6, 7], vec![(5, 5)]),
        (vec![4], vec![]),
        (vec![last], vec![(4, last - 1)]),
        (vec![4], vec![]),
    ];
    for ((stream, subscription), (events, gaps)) in streams.iter().zip(&mut subscriptions).zip(expected) {
        let last = *events.last().unwrap();
        let received = until_event(subscription, stream, last).await;
        assert_eq!(received, (events.clone(), gaps.clone()), "{stream}");
        // The history says the same.
        let mut from_start = bus.subscribe_from(stream, 0);
        let (history, history_gaps) = until_event(&mut from_start, stream, last).await;
        assert_eq!(history, [vec![1, 2, 3], events].concat(), "{stream}");
        assert_eq!(history_gaps, gaps, "{stream}");
    }
    until_event(&mut all, "good", 4).await;
    assert_eq!(store.append(note("good", "x")).await.unwrap().seq, 5);
    until_event(&mut all, "good", 5).await;
    // Sweeps go on, and find no stream rewound.
    let sweeps = bus.stats().sweeps;
    testkit::within::eventually("two sweeps", || bus.stats().sweeps >= sweeps + 2).await;
    until(&bus, BusState::Live).await;
    assert_eq!((bus.stats().rewinds, bus.stats().failed_reads), (0, 0));
    bus.shutdown().await;
}
