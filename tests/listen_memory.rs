//! The listener's memory does not grow: with an idle subscriber, with short-lived subscriptions, or without a server.
//!
//! Each test runs on one thread, whose allocations are counted.

mod listen_support;

use std::num::NonZeroUsize;
use std::time::Duration;

use doorbell::listen::{ListenItem, ListenMultiplexer};
use listen_support::next;
use testkit::alloc::{CountingAllocator, live_bytes};
use testkit::within::within;
use throwaway_postgres::Database;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Allowance for the runtime and for the buffers of the connection.
const SLACK: i64 = 128 << 10;

#[tokio::test]
async fn memory_does_not_grow_with_an_idle_subscriber() {
    const SENT: u64 = 20_000;
    let database = Database::fresh().unwrap();
    let mux = ListenMultiplexer::builder()
        .url(&database.url())
        .channel_capacity(NonZeroUsize::new(16).unwrap())
        .connect()
        .await
        .unwrap();
    let mut idle = mux.subscribe("jobs").await.unwrap();
    let before = live_bytes();
    // 20 MB in total, of which the ring retains at most 32 kB.
    let sql = format!("SELECT count(pg_notify('jobs', repeat('x', 1000) || n)) FROM generate_series(1, {SENT}) n");
    database.psql(&sql).unwrap();
    within("the last notification", async {
        while mux.stats().notifications_received < SENT {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let grown = live_bytes() - before;
    assert!(grown < 32 * 1100 + SLACK, "grew by {grown} bytes");
    assert!(matches!(next(&mut idle).await, ListenItem::Lagged(_)));
}

#[tokio::test]
async fn memory_does_not_grow_with_short_lived_subscriptions() {
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
        // By then, tables and buffers have reached their size.
        if round == 1_000 {
            before = live_bytes();
        }
    }
    let _last = mux.subscribe("last").await.unwrap();
    let grown = live_bytes() - before;
    assert!(grown < SLACK, "grew by {grown} bytes");
}

#[tokio::test]
async fn memory_does_not_grow_without_a_server() {
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
    // At most 64 notifications are queued.
    assert!(grown < 64 * 7_200 + SLACK, "grew by {grown} bytes");
}
