//! Group commit: concurrent appends of a process queue without a connection and share transactions.

use std::collections::BTreeSet;

use doorbell::bus::{FleetEvent, StreamEvent as _};
use doorbell::store::{Store as _, StoreError};
use tokio::task::JoinHandle;

use crate::append_concurrency::wait_for_lock_waiter;
use crate::store_suite::event;
use crate::support::Store;

type Append = JoinHandle<Result<FleetEvent, StoreError>>;

/// Locks the stream "one" until the transaction is dropped.
async fn lock_stream_one(store: &Store) -> sqlx::Transaction<'static, sqlx::Postgres> {
    // Of the pool's three connections, this takes one, the appends another, and the test's own queries the third.
    let mut holder = store.pool().begin().await.unwrap();
    sqlx::query("SELECT doorbell.lock_stream('one')")
        .execute(&mut *holder)
        .await
        .unwrap();
    holder
}

fn append(store: &Store, event: FleetEvent) -> Append {
    let store = (**store).clone();
    tokio::spawn(async move { store.append(event).await })
}

/// Starts appends: the first waits for the stream's lock, the others in the queue.
async fn queue_appends(store: &Store, events: impl IntoIterator<Item = FleetEvent>) -> Vec<Append> {
    let mut events = events.into_iter();
    let mut appends = vec![append(store, events.next().unwrap())];
    wait_for_lock_waiter(store).await;
    for event in events {
        let store = (**store).clone();
        let mut append = Box::pin(async move { store.append(event).await });
        assert!(futures::poll!(&mut append).is_pending(), "the append must be queued");
        appends.push(tokio::spawn(append));
    }
    appends
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_appends_to_one_stream_share_the_next_transaction() {
    let store = Store::fresh().await;
    let holder = lock_stream_one(&store).await;
    let appends = queue_appends(&store, (0..32).map(|number| event("one", &number.to_string()))).await;
    // The connection of the test's last query may not be back in the pool yet.
    let only_two = async {
        while store.pool().size() as usize - store.pool().num_idle() != 2 {
            tokio::task::yield_now().await;
        }
    };
    let two_in_use = tokio::time::timeout(std::time::Duration::from_secs(10), only_two).await;
    two_in_use.expect("the holder uses one connection, all appends together another");
    // Other streams are not delayed.
    store.append(event("two", "")).await.unwrap();
    holder.rollback().await.unwrap();

    let mut seqs = BTreeSet::new();
    for append in appends {
        seqs.insert(append.await.unwrap().unwrap().seq());
    }
    assert_eq!(seqs, (1..=32).collect());
    let transactions = store.psql("SELECT count(DISTINCT xid) FROM doorbell.events WHERE stream_key = 'one'");
    let transactions: u64 = transactions.trim().parse().unwrap();
    assert!(transactions <= 4, "{transactions}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_append_does_not_fail_others_of_its_stream() {
    let store = Store::fresh().await;
    let holder = lock_stream_one(&store).await;
    let events = (0..8).map(|number| {
        let event = event("one", &number.to_string());
        if number == 4 { event.with_seq(99) } else { event }
    });
    let appends = queue_appends(&store, events).await;
    holder.rollback().await.unwrap();

    let mut seqs = BTreeSet::new();
    for (number, append) in appends.into_iter().enumerate() {
        match append.await.unwrap() {
            Err(StoreError::SeqConflict { actual: 99, .. }) => assert_eq!(number, 4),
            appended => assert!(seqs.insert(appended.unwrap().seq()), "{number}"),
        }
    }
    assert_eq!(seqs, (1..=7).collect());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_appends_does_not_affect_others_of_their_stream() {
    let store = Store::fresh().await;
    let holder = lock_stream_one(&store).await;
    let mut appends = queue_appends(&store, (0..4).map(|number| event("one", &number.to_string()))).await;
    for cancelled in appends.drain(..2) {
        cancelled.abort();
        assert!(cancelled.await.unwrap_err().is_cancelled());
    }
    holder.rollback().await.unwrap();
    for append in appends {
        append.await.unwrap().unwrap();
    }
    // The stream accepts appends.
    store.append(event("one", "after")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_timeout_fails_every_queued_append_of_the_stream() {
    let store = Store::fresh().await;
    let holder = lock_stream_one(&store).await;
    let appends = queue_appends(&store, (0..3).map(|number| event("one", &number.to_string()))).await;
    for append in appends {
        assert!(matches!(append.await.unwrap(), Err(StoreError::LockTimeout)));
    }
    holder.rollback().await.unwrap();
    assert_eq!(store.append(event("one", "after")).await.unwrap().seq(), 1);
}

/// How many transactions have appended the events in the store.
fn transactions(store: &Store) -> u64 {
    let count = store.psql("SELECT count(DISTINCT xid) FROM doorbell.events");
    count.trim().parse().unwrap()
}

/// Appends all events concurrently. In single-threaded tests, all are queued before the first shared transaction begins.
async fn append_all(store: &Store, events: impl IntoIterator<Item = FleetEvent>) -> Vec<FleetEvent> {
    let appends = events.into_iter().map(|event| store.append(event));
    let appended = futures::future::join_all(appends).await;
    appended.into_iter().map(Result::unwrap).collect()
}

#[tokio::test]
async fn appends_to_different_streams_share_transactions() {
    let store = Store::fresh().await;
    let events = || (0..32).map(|stream| event(&format!("stream-{stream}"), "x"));
    append_all(&store, events()).await;
    // The first appends run directly, before the queue grows.
    let first = transactions(&store);
    assert!(first <= 3, "{first}");
    for round in 1..=3 {
        for appended in append_all(&store, events()).await {
            assert_eq!(appended.seq(), round + 1);
        }
        assert_eq!(transactions(&store), first + round);
    }
}

#[tokio::test]
async fn few_appends_run_directly() {
    let store = Store::fresh().await;
    for number in 1..=5 {
        append_all(&store, [event("one", "x"), event("two", "x")]).await;
        assert_eq!(
            transactions(&store),
            2 * number,
            "each append runs in its own transaction"
        );
    }
}

#[tokio::test]
async fn a_transaction_is_limited_in_events_and_bytes() {
    let store = Store::fresh().await;
    let long = "x".repeat(600_000);
    append_all(&store, (0..6).map(|stream| event(&format!("stream-{stream}"), &long))).await;
    assert_eq!(
        transactions(&store),
        4,
        "two direct appends, then two groups of slightly more than 1 MiB each"
    );
    append_all(
        &store,
        (0..600).map(|number| event(&format!("stream-{}", number % 7), "x")),
    )
    .await;
    let transactions = transactions(&store) - 4;
    assert!(
        (3..=6).contains(&transactions),
        "{transactions} transactions of at most 256 events"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_stream_does_not_delay_other_streams() {
    let store = Store::fresh().await;
    let holder = lock_stream_one(&store).await;
    let blocked = append(&store, event("one", "waits"));
    wait_for_lock_waiter(&store).await;
    // More appends than there may be transactions.
    let also_blocked: Vec<_> = (0..8).map(|_| append(&store, event("one", "waits, too"))).collect();
    for round in 1..=20 {
        let appends = ["two", "three", "four"].map(|key| store.append(event(key, "x")));
        for appended in futures::future::join_all(appends).await {
            assert_eq!(appended.unwrap().seq(), round);
        }
    }
    assert!(!blocked.is_finished());
    holder.rollback().await.unwrap();
    assert_eq!(blocked.await.unwrap().unwrap().seq(), 1);
    for append in also_blocked {
        append.await.unwrap().unwrap();
    }
    assert_eq!(store.high_water("one").await.unwrap(), 9);
}

#[tokio::test]
async fn a_refused_append_does_not_fail_those_of_other_streams() {
    let store = Store::fresh().await;
    let events = (0..8).map(|stream| {
        let event = event(&format!("stream-{stream}"), "x");
        if stream == 4 { event.with_seq(7) } else { event }
    });
    let appends = futures::future::join_all(events.map(|event| store.append(event))).await;
    for (stream, appended) in appends.into_iter().enumerate() {
        match appended {
            Err(StoreError::SeqConflict {
                stream_key,
                expected,
                actual,
            }) => assert_eq!((&*stream_key, expected, actual), ("stream-4", 1, 7)),
            appended => {
                assert_ne!(stream, 4);
                assert_eq!(appended.unwrap().seq(), 1);
            }
        }
    }
}

/// Cancels the append that starts the transaction.
#[tokio::test]
async fn cancelling_an_append_does_not_affect_other_streams() {
    let store = Store::fresh().await;
    let mut cancelled = Box::pin(store.append(event("cancelled", "x")));
    assert!(futures::poll!(&mut cancelled).is_pending());
    let mut other = Box::pin(store.append(event("other", "x")));
    assert!(futures::poll!(&mut other).is_pending());
    drop(cancelled);
    assert_eq!(other.await.unwrap().seq(), 1);
    // The cancelled append may or may not have happened, but the stream accepts appends.
    assert!(store.append(event("cancelled", "y")).await.unwrap().seq() <= 2);
}

/// As in a `select!` whose other branch appends, too.
#[tokio::test]
async fn an_append_that_is_not_polled_does_not_delay_others() {
    let store = Store::fresh().await;
    for under_load in [false, true] {
        if under_load {
            append_all(&store, (0..32).map(|_| event("one", "x"))).await;
        }
        let mut not_polled = Box::pin(store.append(event("one", "x")));
        assert!(futures::poll!(&mut not_polled).is_pending());
        store.append(event("one", "x")).await.unwrap();
        not_polled.await.unwrap();
    }
}

#[test]
fn appending_outside_a_runtime_is_an_error() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = runtime.block_on(Store::fresh());
    let refused = futures::executor::block_on(store.append(event("one", "x")));
    assert!(matches!(refused, Err(StoreError::NoRuntime)), "{refused:?}");
    assert_eq!(runtime.block_on(store.append(event("one", "x"))).unwrap().seq(), 1);
}
