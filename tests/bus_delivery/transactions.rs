//! Appends in slow and rolled-back transactions, and unrelated open transactions.

use std::time::{Duration, Instant};

use doorbell::bus::{DistributedBus, EventBus as _};
use doorbell::store::{PostgresStore, Store as _};
use sqlx::postgres::PgPoolOptions;
use throwaway_postgres::Database;

use crate::bus_support::{builder, bus, event, expect, expect_nothing, listener, note, store};

/// A second append to the stream waits for the first, so numbers follow the order of commit, and no reader can skip one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p11_a_low_number_cannot_be_committed_after_a_high_one() {
    let database = Database::fresh().unwrap();
    let store = store(&database.url()).await;
    let bus = builder(&database.url(), &store)
        .sweep_interval(Duration::from_millis(20)) // sweeps all the time
        .connect()
        .await
        .unwrap();
    let mut one = bus.subscribe("agent-1");
    one.ready().await.unwrap();
    let mut slow = store.pool().begin().await.unwrap();
    assert_eq!(
        store.append_in(&mut slow, note("agent-1", "slow")).await.unwrap().seq,
        1
    );
    let fast = tokio::spawn({
        let bus = bus.clone();
        async move { bus.append_and_publish(note("agent-1", "fast")).await }
    });
    let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    testkit::within::eventually("the wait of the second writer", || {
        database.psql(waiting).unwrap() == "1"
    })
    .await;
    expect_nothing(&mut one);
    assert!(!fast.is_finished());
    slow.commit().await.unwrap();
    assert_eq!(fast.await.unwrap().unwrap().seq, 2);
    expect(&mut one, "agent-1", 1..=2).await;
}

/// Eight writers append to one stream in transactions of different length, and roll a third of them back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p11_fast_and_slow_transactions_leave_no_gap() {
    const WRITERS: u64 = 8;
    const EACH: u64 = 30;
    let database = Database::fresh().unwrap();
    let store = store(&database.url()).await;
    let bus = builder(&database.url(), &store)
        .sweep_interval(Duration::from_millis(20))
        .connect()
        .await
        .unwrap();
    let mut one = bus.subscribe("agent-1");
    let mut all = bus.subscribe_all();
    one.ready().await.unwrap();
    all.ready().await.unwrap();
    let pool = PgPoolOptions::new()
        .max_connections(WRITERS as u32)
        .connect(&database.url())
        .await
        .unwrap();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (pool, store) = (pool.clone(), store.clone());
            tokio::spawn(async move {
                let mut committed = 0;
                for round in 0..EACH {
                    let mut transaction = pool.begin().await.unwrap();
                    store
                        .append_in(&mut transaction, note("agent-1", "hello"))
                        .await
                        .unwrap();
                    let millis = (writer * 31 + round * 17) % 4;
                    sqlx::query("SELECT pg_sleep($1)")
                        .bind(millis as f64 / 1000.0)
                        .execute(&mut *transaction)
                        .await
                        .unwrap();
                    if (writer + round) % 3 == 0 {
                        transaction.rollback().await.unwrap();
                    } else {
                        transaction.commit().await.unwrap();
                        committed += 1;
                    }
                }
                committed
            })
        })
        .collect();
    let mut committed = 0;
    for writer in writers {
        committed += writer.await.unwrap();
    }
    expect(&mut one, "agent-1", 1..=committed).await;
    expect(&mut all, "agent-1", 1..=committed).await;
    assert_eq!(store.high_water("agent-1").await.unwrap(), committed);
}

/// Neither an old snapshot nor an open transaction that has written delays a delivery.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p12_unrelated_open_transactions_delay_nothing() {
    let database = Database::fresh().unwrap();
    let store = store(&database.url()).await;
    let others = PgPoolOptions::new().connect(&database.url()).await.unwrap();
    database.psql("CREATE TABLE unrelated (id int)").unwrap();
    let mut writing = others.begin().await.unwrap();
    sqlx::raw_sql("INSERT INTO unrelated VALUES (1)")
        .execute(&mut *writing)
        .await
        .unwrap();
    let mut reading = others
        .begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ")
        .await
        .unwrap();
    sqlx::raw_sql("SELECT count(*) FROM doorbell.events")
        .execute(&mut *reading)
        .await
        .unwrap();
    let sweep = Duration::from_millis(200);
    let bus = builder(&database.url(), &store)
        .sweep_interval(sweep)
        .connect()
        .await
        .unwrap();
    let mut all = bus.subscribe_all_ready().await.unwrap();
    let there = crate::bus_support::bus(&database.url()).await;
    let mut slowest = [Duration::ZERO; 2];
    for round in 0..20 {
        let begun = Instant::now();
        there
            .append_and_publish(note("agent-1", "with a notification"))
            .await
            .unwrap();
        expect(&mut all, "agent-1", 2 * round + 1..=2 * round + 1).await;
        slowest[0] = slowest[0].max(begun.elapsed());
        let begun = Instant::now();
        store.append(note("agent-1", "without a notification")).await.unwrap();
        expect(&mut all, "agent-1", 2 * round + 2..=2 * round + 2).await;
        slowest[1] = slowest[1].max(begun.elapsed());
    }
    println!(
        "with open transactions: at most {:?} by notification, {:?} by sweep",
        slowest[0], slowest[1]
    );
    assert!(
        slowest[0] < Duration::from_secs(1) && slowest[1] < Duration::from_secs(1),
        "{slowest:?}"
    );
    // An event appended by the transaction that was open all the while is found, too.
    store.append_in(&mut writing, note("agent-2", "late")).await.unwrap();
    writing.commit().await.unwrap();
    expect(&mut all, "agent-2", 1..=1).await;
    reading.rollback().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p14_a_rolled_back_append_leaves_no_trace() {
    let database = Database::fresh().unwrap();
    let store = store(&database.url()).await;
    let bus = bus(&database.url()).await;
    let mut all = bus.subscribe_all_ready().await.unwrap();
    for seq in 1..=5 {
        let mut transaction = store.pool().begin().await.unwrap();
        let rolled_back = store
            .append_in_notifying(&mut transaction, note("agent-1", "no"))
            .await
            .unwrap();
        assert_eq!(rolled_back.seq, seq);
        transaction.rollback().await.unwrap();
        // Publishing it anyway has no effect.
        bus.publish(rolled_back);
        let mut transaction = store.pool().begin().await.unwrap();
        let committed = store.append_in(&mut transaction, note("agent-1", "yes")).await.unwrap();
        transaction.commit().await.unwrap();
        bus.publish(committed.clone());
        assert_eq!((*event(&mut all).await).clone(), committed);
    }
    let seqs = database
        .psql("SELECT array_agg(seq ORDER BY seq) FROM doorbell.events")
        .unwrap();
    assert_eq!(seqs, "{1,2,3,4,5}");
    expect_nothing(&mut all);
}

/// The application holds every connection of the pool that it shares with the bus.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p15_an_exhausted_pool_stops_neither_notifications_nor_the_listener() {
    let database = Database::fresh().unwrap();
    let limit = Duration::from_millis(500);
    let pool = PgPoolOptions::new()
        .max_connections(3)
        .acquire_timeout(limit)
        .connect(&database.url())
        .await
        .unwrap();
    let shared = PostgresStore::new(pool.clone());
    shared.migrate().await.unwrap();
    // Both its notifications and its store use the pool.
    let here = DistributedBus::builder(std::sync::Arc::new(shared.clone()))
        .pool(pool.clone())
        .listen(listener(&database.url()))
        .connect()
        .await
        .unwrap();
    let there = bus(&database.url()).await;
    let mut theirs = there.subscribe_all_ready().await.unwrap();
    let mut ours = here.subscribe_all_ready().await.unwrap();
    let stamped = store(&database.url())
        .await
        .append(note("agent-1", "hello"))
        .await
        .unwrap();
    let taken = {
        let mut taken = Vec::new();
        for _ in 0..3 {
            taken.push(pool.acquire().await.unwrap());
        }
        taken
    };
    let begun = Instant::now();
    here.publish(stamped);
    expect(&mut theirs, "agent-1", 1..=1).await;
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "the notification took another connection"
    );
    let begun = Instant::now();
    let error = here.append_and_publish(note("agent-2", "hello")).await.unwrap_err();
    assert!(begun.elapsed() < limit * 10, "bounded: {:?}", begun.elapsed());
    assert!(error.to_string().contains("pool"), "{error}");
    assert!(here.listen_stats().unwrap().disconnects == 0);
    drop(taken);
    expect(&mut ours, "agent-1", 1..=1).await;
    here.append_and_publish(note("agent-2", "hello")).await.unwrap();
    for subscription in [&mut ours, &mut theirs] {
        expect(subscription, "agent-2", 1..=1).await;
    }
}
