//! Histories that are replaced while connections stand, and that no number gives away: each event names the one before it.

use std::time::Duration;

use doorbell::bus::{BusEvent, BusSubscription, EventBus as _, Rewound, StreamEvent as _};
use doorbell::store::Store as _;
use throwaway_postgres::{Database, Server, Stop};

use crate::bus_support::{builder, event, expect, expect_nothing, next, note, store};

/// Appends events by SQL and notifies of the last.
fn append(count: u32, text: &str) -> String {
    format!(
        "SELECT doorbell.append_many(array_agg('a'::text), array_agg(jsonb_build_object(
             'agent_id', 'a', 'type', 'custom', 'name', 'note', 'data', '{text}')))
         FROM generate_series(1, {count});
         SELECT doorbell.notify_events('a', max(seq)) FROM doorbell.events WHERE stream_key = 'a';"
    )
}

async fn rewound(subscription: &mut BusSubscription) -> (u64, u64, bool) {
    let item = next(subscription).await;
    let BusEvent::Rewound(Rewound {
        delivered,
        resume_after,
        exact,
        ..
    }) = item
    else {
        panic!("expected a rewind, got {item:?}")
    };
    (delivered, resume_after, exact)
}

/// Receives these events, which all have this text.
async fn expect_texts(subscription: &mut BusSubscription, seqs: std::ops::RangeInclusive<u64>, text: &str) {
    for seq in seqs {
        let event = event(subscription).await;
        assert_eq!(*event, note("a", text).with_seq(seq));
    }
}

/// A hundred events were delivered. The new history shares twenty of them and is longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p47_a_longer_history_is_noticed_at_its_first_event() {
    let database = Database::fresh().unwrap();
    let store = store(&database.url()).await;
    let bus = builder(&database.url(), &store).connect().await.unwrap();
    let mut subscriptions = [
        bus.subscribe_all_ready().await.unwrap(),
        bus.subscribe_from("a", 0),
        bus.subscribe_from("other", 0),
    ];
    bus.append_and_publish(note("other", "old")).await.unwrap();
    expect(&mut subscriptions[0], "other", 1..=1).await;
    let batch = (0..100).map(|_| note("a", "old")).collect();
    bus.append_batch_and_publish(batch).await.unwrap();
    for subscription in &mut subscriptions[..2] {
        expect_texts(subscription, 1..=100, "old").await;
    }
    let lost = "DELETE FROM doorbell.events WHERE stream_key = 'a' AND seq > 20;";
    database
        .psql(&format!("BEGIN; {lost} {} COMMIT", append(90, "new")))
        .unwrap();
    for subscription in &mut subscriptions[..2] {
        // The bus remembers the last 64 events, and the store has others in all of their places.
        assert_eq!(rewound(subscription).await, (100, 36, false));
        expect_texts(subscription, 37..=110, "new").await;
    }
    expect(&mut subscriptions[2], "other", 1..=1).await;
    expect_nothing(&mut subscriptions[2]);
    assert_eq!(bus.stats().rewinds, 1);
}

/// The last events are lost, others take their places, and nobody notifies: the sweep compares the last event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p47_a_history_of_the_same_length_is_noticed_by_the_next_sweep() {
    let database = Database::fresh().unwrap();
    let store = store(&database.url()).await;
    let batch = (0..5).map(|_| note("a", "old")).collect();
    store.append_batch(batch).await.unwrap();
    let bus = builder(&database.url(), &store).connect().await.unwrap();
    let mut had_all = bus.subscribe_from("a", 0);
    expect_texts(&mut had_all, 1..=5, "old").await;
    // No sweep has seen this one, and it has received nothing.
    let mut young = bus.subscribe("a");
    young.ready().await.unwrap();
    database
        .psql("DELETE FROM doorbell.events WHERE stream_key = 'a' AND seq > 3")
        .unwrap();
    let batch = (0..2).map(|_| note("a", "new")).collect();
    store.append_batch(batch).await.unwrap();
    // Whatever is no valid payload asks for a sweep.
    database.psql("SELECT pg_notify('doorbell', '')").unwrap();
    let (delivered, resume_after, exact) = rewound(&mut had_all).await;
    assert!((delivered, exact) == (5, false) && resume_after < 5);
    // Only the last event was known to the bus, so the other may have to be read again.
    expect_texts(&mut had_all, resume_after + 1..=5, "new").await;
    let mut first = event(&mut young).await;
    while first.seq < 4 {
        first = event(&mut young).await; // it was appended shortly before the subscription
    }
    assert_eq!(*first, note("a", "new").with_seq(4));
    expect_texts(&mut young, 5..=5, "new").await;
}

/// A row that was deleted by hand frees the stream's last number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p47_another_event_with_the_number_of_a_deleted_one_is_delivered() {
    let database = Database::fresh().unwrap();
    let store = store(&database.url()).await;
    let bus = builder(&database.url(), &store).connect().await.unwrap();
    let mut all = bus.subscribe_all_ready().await.unwrap();
    for _ in 0..5 {
        bus.append_and_publish(note("a", "old")).await.unwrap();
    }
    expect_texts(&mut all, 1..=5, "old").await;
    database
        .psql("DELETE FROM doorbell.events WHERE stream_key = 'a' AND seq = 5")
        .unwrap();
    // The own append, too, names its predecessor.
    for _ in 0..2 {
        bus.append_and_publish(note("a", "new")).await.unwrap();
    }
    assert_eq!(rewound(&mut all).await, (5, 4, true));
    expect_texts(&mut all, 5..=6, "new").await;
}

/// Rows that were inserted by hand name no predecessor, and may leave holes. They are read in pages all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p47_rows_that_were_inserted_by_hand_are_delivered() {
    let database = Database::fresh().unwrap();
    let store = store(&database.url()).await;
    let bus = builder(&database.url(), &store).connect().await.unwrap();
    let mut all = bus.subscribe_all_ready().await.unwrap();
    bus.append_and_publish(note("a", "first")).await.unwrap();
    expect_texts(&mut all, 1..=1, "first").await;
    let reads = bus.stats().reads;
    database
        .psql(
            "INSERT INTO doorbell.events (stream_key, seq, payload)
             SELECT 'a', seq, '{\"agent_id\": \"a\", \"type\": \"custom\", \"name\": \"note\", \"data\": \"row\"}'
             FROM generate_series(2, 2000) AS seq WHERE seq % 500 <> 0;
             SELECT doorbell.notify_events('a', 2000 - 1)",
        )
        .unwrap();
    for hole in [500, 1000, 1500] {
        expect_texts(&mut all, (hole - 500).max(1) + 1..=hole - 1, "row").await;
        let item = next(&mut all).await;
        assert!(
            matches!(&item, BusEvent::Gap(gap) if gap.seqs == (hole..=hole)),
            "{item:?}"
        );
    }
    expect_texts(&mut all, 1501..=1999, "row").await;
    assert_eq!(bus.stats().rewinds, 0);
    let reads = bus.stats().reads - reads;
    assert!(reads < 50, "{reads} reads");
}

/// The server loses what it had not flushed, and gives the numbers again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p47_a_crash_with_asynchronous_commit_rewinds() {
    let server = Server::start().unwrap();
    for setting in [
        "synchronous_commit = off",
        "wal_writer_delay = '10s'",
        "autovacuum = off",
    ] {
        server.psql(&format!("ALTER SYSTEM SET {setting}")).unwrap();
    }
    server.psql("SELECT pg_reload_conf()").unwrap();
    let store = store(&server.url()).await;
    let bus = builder(&server.url(), &store).connect().await.unwrap();
    let mut all = bus.subscribe_all_ready().await.unwrap();
    bus.append_and_publish(note("a", "kept")).await.unwrap();
    server.psql("CHECKPOINT").unwrap();
    let mut delivered = 1;
    expect_texts(&mut all, 1..=1, "kept").await;
    // Until a crash loses something: the server may flush at any time.
    for round in 1..=20_u64 {
        let text = format!("round {round}");
        for _ in 0..5 {
            bus.append_and_publish(note("a", &text)).await.unwrap();
        }
        expect_texts(&mut all, delivered + 1..=delivered + 5, &text).await;
        delivered += 5;
        server.restart(Stop::Kill).unwrap();
        let kept: u64 = server
            .psql("SELECT max(seq) FROM doorbell.events")
            .unwrap()
            .parse()
            .unwrap();
        if kept < delivered {
            server
                .psql(&append(u32::try_from(delivered - kept).unwrap() + 3, "new"))
                .unwrap();
            let (had, resume_after, exact) = rewound(&mut all).await;
            assert_eq!((had, resume_after, exact), (delivered, kept, true));
            expect_texts(&mut all, kept + 1..=delivered + 3, "new").await;
            return;
        }
        tokio::time::timeout(Duration::from_secs(30), store.high_water("a"))
            .await
            .unwrap()
            .unwrap();
    }
    panic!("no crash has lost anything");
}
