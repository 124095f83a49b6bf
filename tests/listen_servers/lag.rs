//! Slow subscribers: told exactly what they lost, and nobody else's trouble.

use std::num::NonZeroUsize;

use doorbell::listen::{ListenItem, ListenMultiplexer};
use futures::StreamExt;
use throwaway_postgres::Database;

use crate::support::{next, notification, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sleeper_is_told_what_it_lost_and_holds_nobody_up() {
    const SENT: u64 = 1_000;
    let database = Database::fresh().unwrap();
    let mux = ListenMultiplexer::builder()
        .url(&database.url())
        .channel_capacity(NonZeroUsize::new(16).unwrap())
        .connect()
        .await
        .unwrap();
    let mut sleeper = mux.subscribe("jobs").await.unwrap();
    let mut quick = mux.subscribe("jobs").await.unwrap();
    for n in 0..SENT {
        mux.notify("jobs", &n.to_string()).await.unwrap();
        assert_eq!(notification(&mut quick).await.payload(), n.to_string());
    }
    let ListenItem::Lagged(lagged) = next(&mut sleeper).await else {
        panic!("expected a lag");
    };
    let mut expected = lagged.skipped;
    assert!(expected >= SENT - 16, "{lagged:?}");
    while expected < SENT {
        assert_eq!(notification(&mut sleeper).await.payload(), expected.to_string());
        expected += 1;
    }
    let stats = mux.stats();
    assert_eq!((stats.lags, stats.lost_to_lag), (1, lagged.skipped));
}

/// The stream form gives the same items and ends with the listener.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_a_stream_it_ends_with_the_listener() {
    let database = Database::fresh().unwrap();
    let mux = ListenMultiplexer::connect(&database.url()).await.unwrap();
    let jobs = mux.subscribe("jobs").await.unwrap();
    for n in 0..3 {
        mux.notify("jobs", &n.to_string()).await.unwrap();
    }
    mux.shutdown().await;
    let items: Vec<ListenItem> = within("the end", jobs.collect()).await;
    let payloads: Vec<&str> = items
        .iter()
        .filter_map(|item| Some(item.notification()?.payload()))
        .collect();
    assert_eq!(payloads, ["0", "1", "2"]);
}

/// A future that waits for an item can be dropped at any time: the item is for the next call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_receive_loses_nothing() {
    let database = Database::fresh().unwrap();
    let mux = ListenMultiplexer::connect(&database.url()).await.unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    for n in 0..50 {
        tokio::select! {
            biased;
            item = jobs.recv() => panic!("nothing was sent yet: {item:?}"),
            () = tokio::task::yield_now() => {}
        }
        mux.notify("jobs", &n.to_string()).await.unwrap();
        assert_eq!(notification(&mut jobs).await.payload(), n.to_string());
    }
}
