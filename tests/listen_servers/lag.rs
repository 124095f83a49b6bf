//! Slow subscriptions get an exact count of lost items, and do not slow others down.

use std::num::NonZeroUsize;

use doorbell::listen::{ListenItem, ListenMultiplexer};
use futures::StreamExt;
use testkit::within::within;
use throwaway_postgres::Database;

use crate::listen_support::{next, notification};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lagging_subscription_gets_the_exact_count_and_does_not_slow_others() {
    const SENT: u64 = 1_000;
    let database = Database::fresh().unwrap();
    let mux = ListenMultiplexer::builder()
        .url(&database.url())
        .channel_capacity(NonZeroUsize::new(16).unwrap())
        .connect()
        .await
        .unwrap();
    let mut slow = mux.subscribe("jobs").await.unwrap();
    let mut quick = mux.subscribe("jobs").await.unwrap();
    for n in 0..SENT {
        mux.notify("jobs", &n.to_string()).await.unwrap();
        assert_eq!(notification(&mut quick).await.payload(), n.to_string());
    }
    let ListenItem::Lagged(lagged) = next(&mut slow).await else {
        panic!("expected a lag");
    };
    let mut expected = lagged.skipped;
    assert!(expected >= SENT - 16, "{lagged:?}");
    while expected < SENT {
        assert_eq!(notification(&mut slow).await.payload(), expected.to_string());
        expected += 1;
    }
    let stats = mux.stats();
    assert_eq!((stats.lags, stats.items_skipped), (1, lagged.skipped));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stream_yields_all_items_and_ends_at_shutdown() {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_recv_future_loses_no_item() {
    let database = Database::fresh().unwrap();
    let mux = ListenMultiplexer::connect(&database.url()).await.unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    for n in 0..50 {
        tokio::select! {
            biased;
            item = jobs.recv() => panic!("received an item that was not sent: {item:?}"),
            () = tokio::task::yield_now() => {}
        }
        mux.notify("jobs", &n.to_string()).await.unwrap();
        assert_eq!(notification(&mut jobs).await.payload(), n.to_string());
    }
}
