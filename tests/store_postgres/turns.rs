//! Appends of one process: they wait without a connection, and share transactions.

use std::collections::BTreeSet;

use doorbell::bus::{FleetEvent, StreamEvent as _};
use doorbell::store::{Store as _, StoreError};
use tokio::task::JoinHandle;

use crate::appending::wait_for_a_waiter;
use crate::store_suite::event;
use crate::support::Store;

type Append = JoinHandle<Result<FleetEvent, StoreError>>;

/// Holds the stream until it is dropped.
async fn hold(store: &Store) -> sqlx::Transaction<'static, sqlx::Postgres> {
    // One connection for this, one for the appends, and one to look.
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

/// The first waits for the lock, the others for the first.
async fn line_up(store: &Store, events: impl IntoIterator<Item = FleetEvent>) -> Vec<Append> {
    let mut events = events.into_iter();
    let mut appends = vec![append(store, events.next().unwrap())];
    wait_for_a_waiter(store).await;
    for event in events {
        let store = (**store).clone();
        let mut append = Box::pin(async move { store.append(event).await });
        assert!(futures::poll!(&mut append).is_pending(), "it has lined up");
        appends.push(tokio::spawn(append));
    }
    appends
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_shares_the_next_transaction() {
    let store = Store::fresh().await;
    let holder = hold(&store).await;
    let appends = line_up(&store, (0..32).map(|number| event("one", &number.to_string()))).await;
    // The holder's connection, and one for all who wait. The one that looked is still being given back.
    let only_two = async {
        while store.pool().size() as usize - store.pool().num_idle() != 2 {
            tokio::task::yield_now().await;
        }
    };
    let given_back = tokio::time::timeout(std::time::Duration::from_secs(10), only_two).await;
    given_back.expect("a connection for the holder, and one for all who wait");
    // Another stream is not held up.
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
async fn who_is_refused_spoils_nobody_elses() {
    let store = Store::fresh().await;
    let holder = hold(&store).await;
    let events = (0..8).map(|number| {
        let event = event("one", &number.to_string());
        if number == 4 { event.with_seq(99) } else { event }
    });
    let appends = line_up(&store, events).await;
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
async fn who_gives_up_leaves_the_turn_to_the_others() {
    let store = Store::fresh().await;
    let holder = hold(&store).await;
    let mut appends = line_up(&store, (0..4).map(|number| event("one", &number.to_string()))).await;
    for given_up in appends.drain(..2) {
        given_up.abort();
        assert!(given_up.await.unwrap_err().is_cancelled());
    }
    holder.rollback().await.unwrap();
    for append in appends {
        append.await.unwrap().unwrap();
    }
    // The stream is free.
    store.append(event("one", "after")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_not_given_is_an_error_for_all_who_waited() {
    let store = Store::fresh().await;
    let holder = hold(&store).await;
    let appends = line_up(&store, (0..3).map(|number| event("one", &number.to_string()))).await;
    for append in appends {
        assert!(matches!(append.await.unwrap(), Err(StoreError::LockTimeout)));
    }
    holder.rollback().await.unwrap();
    assert_eq!(store.append(event("one", "after")).await.unwrap().seq(), 1);
}

/// How many transactions have appended what is in the store.
fn transactions(store: &Store) -> u64 {
    let count = store.psql("SELECT count(DISTINCT xid) FROM doorbell.events");
    count.trim().parse().unwrap()
}

/// Appends all of them at the same time. On one thread, so that all have lined up before the first shared transaction begins.
async fn append_all(store: &Store, events: impl IntoIterator<Item = FleetEvent>) -> Vec<FleetEvent> {
    let appends = events.into_iter().map(|event| store.append(event));
    let appended = futures::future::join_all(appends).await;
    appended.into_iter().map(Result::unwrap).collect()
}

#[tokio::test]
async fn streams_share_transactions() {
    let store = Store::fresh().await;
    let events = || (0..32).map(|stream| event(&format!("stream-{stream}"), "x"));
    append_all(&store, events()).await;
    // The first ones do not know yet that there are many.
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
async fn who_comes_alone_shares_with_nobody() {
    let store = Store::fresh().await;
    for number in 1..=5 {
        append_all(&store, [event("one", "x"), event("two", "x")]).await;
        assert_eq!(
            transactions(&store),
            2 * number,
            "both go at once, by two of the three connections"
        );
    }
}

#[tokio::test]
async fn more_than_fits_into_one_transaction() {
    let store = Store::fresh().await;
    let long = "x".repeat(600_000);
    append_all(&store, (0..6).map(|stream| event(&format!("stream-{stream}"), &long))).await;
    assert_eq!(
        transactions(&store),
        4,
        "two at once, and each of the others has a mebibyte and a bit"
    );
    append_all(
        &store,
        (0..600).map(|number| event(&format!("stream-{}", number % 7), "x")),
    )
    .await;
    let transactions = transactions(&store) - 4;
    assert!((3..=6).contains(&transactions), "256 at a time, in {transactions}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_taken_holds_up_no_other() {
    let store = Store::fresh().await;
    let holder = hold(&store).await;
    let taken = append(&store, event("one", "waits"));
    wait_for_a_waiter(&store).await;
    // More of them than transactions that could wait.
    let also_taken: Vec<_> = (0..8).map(|_| append(&store, event("one", "waits, too"))).collect();
    for round in 1..=20 {
        let appends = ["two", "three", "four"].map(|key| store.append(event(key, "x")));
        for appended in futures::future::join_all(appends).await {
            assert_eq!(appended.unwrap().seq(), round);
        }
    }
    assert!(!taken.is_finished());
    holder.rollback().await.unwrap();
    assert_eq!(taken.await.unwrap().unwrap().seq(), 1);
    for append in also_taken {
        append.await.unwrap().unwrap();
    }
    assert_eq!(store.high_water("one").await.unwrap(), 9);
}

#[tokio::test]
async fn who_is_refused_spoils_nobody_elses_in_other_streams() {
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

/// The first of a transaction goes away, and its answer with it.
#[tokio::test]
async fn who_goes_away_takes_nobody_along() {
    let store = Store::fresh().await;
    let mut gone = Box::pin(store.append(event("gone", "x")));
    assert!(futures::poll!(&mut gone).is_pending());
    let mut stays = Box::pin(store.append(event("stays", "x")));
    assert!(futures::poll!(&mut stays).is_pending());
    drop(gone);
    assert_eq!(stays.await.unwrap().seq(), 1);
    // Whether it was appended was left open; that the stream is free is not.
    assert!(store.append(event("gone", "y")).await.unwrap().seq() <= 2);
}

/// As in a `select!` whose other branch appends.
#[tokio::test]
async fn who_is_not_polled_holds_up_nobody() {
    let store = Store::fresh().await;
    for many in [false, true] {
        if many {
            append_all(&store, (0..32).map(|_| event("one", "x"))).await;
        }
        let mut not_polled = Box::pin(store.append(event("one", "x")));
        assert!(futures::poll!(&mut not_polled).is_pending());
        store.append(event("one", "x")).await.unwrap();
        not_polled.await.unwrap();
    }
}

#[test]
fn outside_a_runtime_there_is_an_error() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = runtime.block_on(Store::fresh());
    let refused = futures::executor::block_on(store.append(event("one", "x")));
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    assert_eq!(runtime.block_on(store.append(event("one", "x"))).unwrap().seq(), 1);
}
