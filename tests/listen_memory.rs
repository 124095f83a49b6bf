//! Nothing grows: not while a subscriber sleeps, not while subscriptions come and go, not while there is no server.
//!
//! Each test runs on one thread, whose memory is counted.

#[path = "listen_support/mod.rs"]
mod support;

use std::num::NonZeroUsize;
use std::time::Duration;

use doorbell::listen::{ListenItem, ListenMultiplexer};
use support::{next, within};
use testkit::alloc::{CountingAllocator, live_bytes};
use throwaway_postgres::Database;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Room for what the runtime, the allocator's users and the buffers of the connection keep for themselves.
const SLACK: i64 = 128 << 10;

#[tokio::test]
async fn nothing_grows_while_a_subscriber_sleeps() {
    const SENT: u64 = 20_000;
    let database = Database::fresh().unwrap();
    let mux = ListenMultiplexer::builder()
        .url(&database.url())
        .channel_capacity(NonZeroUsize::new(16).unwrap())
        .connect()
        .await
        .unwrap();
    let mut sleeper = mux.subscribe("jobs").await.unwrap();
    let before = live_bytes();
    // 20 MB in all, of which the ring keeps at most 32 kB.
    let sql = format!("SELECT count(pg_notify('jobs', repeat('x', 1000) || n)) FROM generate_series(1, {SENT}) n");
    database.psql(&sql).unwrap();
    within("the last notification", async {
        while mux.stats().notifications < SENT {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let grown = live_bytes() - before;
    assert!(grown < 32 * 1100 + SLACK, "{grown} bytes more");
    assert!(matches!(next(&mut sleeper).await, ListenItem::Lagged(_)));
}

#[tokio::test]
async fn nothing_grows_while_subscriptions_come_and_go() {
    let database = Database::fresh().unwrap();
    let mux = ListenMultiplexer::builder()
        .url(&database.url())
        .channel_capacity(NonZeroUsize::new(16).unwrap())
        .unlisten_delay(Duration::ZERO)
        .connect()
        .await
        .unwrap();
    let mut before = 0;
    for round in 0..20_000 {
        let subscription = mux.subscribe_lazy(&format!("channel {round}")).unwrap();
        if round % 100 == 0 {
            within("ready", subscription.ready()).await.unwrap();
        }
        drop(subscription);
        // What a thousand of them leave has been left by then.
        if round == 1_000 {
            before = live_bytes();
        }
    }
    let _last = mux.subscribe("last").await.unwrap();
    let grown = live_bytes() - before;
    assert!(grown < SLACK, "{grown} bytes more");
}

#[tokio::test]
async fn nothing_grows_without_a_server() {
    let mux = ListenMultiplexer::builder()
        .url("postgres://localhost:1/app")
        .channel_capacity(NonZeroUsize::new(16).unwrap())
        .notify_timeout(Duration::ZERO)
        .start()
        .unwrap();
    let before = live_bytes();
    for round in 0..100_000 {
        drop(mux.subscribe_lazy(&format!("channel {round}")).unwrap());
    }
    for _ in 0..1_000 {
        assert!(mux.notify("jobs", &"x".repeat(7_000)).await.is_err());
    }
    assert_eq!(mux.stats().subscriptions, 0);
    let grown = live_bytes() - before;
    // At most 64 notifications wait for a connection.
    assert!(grown < 64 * 7_200 + SLACK, "{grown} bytes more");
}
