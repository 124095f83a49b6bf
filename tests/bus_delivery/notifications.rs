//! Notifications sent by SQL, late, lost or forged.

use std::task::{Context, Poll};
use std::time::Duration;

use doorbell::bus::EventBus as _;
use doorbell::store::Store as _;
use testkit::wakers::WakeCounter;
use testkit::within::eventually;
use throwaway_postgres::Database;

use crate::bus_support::{builder, bus, event, expect, expect_nothing, note, store};

/// The event is appended before the subscription, and its notification arrives afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_notification_delivers_an_earlier_event_once() {
    let database = Database::fresh().unwrap();
    let store = store(&database.url()).await;
    let bus = builder(&database.url(), &store).connect().await.unwrap();
    store.append(note("agent-1", "long before")).await.unwrap();
    let stamped = store.append(note("agent-1", "before")).await.unwrap();
    let mut all = bus.subscribe_all_ready().await.unwrap();
    expect_nothing(&mut all);
    for _ in 0..3 {
        database.psql("SELECT pg_notify('doorbell', 'agent-1:2')").unwrap();
    }
    assert_eq!(*event(&mut all).await, stamped);
    bus.append_and_publish(note("agent-1", "after")).await.unwrap();
    expect(&mut all, "agent-1", 3..=3).await;
    expect_nothing(&mut all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notification_of_another_stream_wakes_no_subscription() {
    let database = Database::fresh().unwrap();
    let (here, there) = (bus(&database.url()).await, bus(&database.url()).await);
    let mut one = here.subscribe("agent-1");
    one.ready().await.unwrap();
    let wake_counter = WakeCounter::new();
    let waker = wake_counter.waker();
    let mut context = Context::from_waker(&waker);
    assert!(matches!(one.poll_recv(&mut context), Poll::Pending));
    let reads = here.stats().reads;
    for _ in 0..50 {
        there.append_and_publish(note("agent-2", "hello")).await.unwrap();
    }
    // The last notification marks that all of them have arrived.
    there.append_and_publish(note("agent-3", "hello")).await.unwrap();
    eventually("arrival of all notifications", || {
        let (sent, received) = (there.stats(), here.stats());
        sent.events_queued == 51
            && received.notifications_received >= sent.notifications_sent
            && sent.notifications_sent > 0
    })
    .await;
    assert!(here.stats().notifications_ignored > 0);
    assert_eq!(here.stats().reads, reads, "no subscription needs those streams");
    assert_eq!(wake_counter.wakes(), 0);
    there.append_and_publish(note("agent-1", "hello")).await.unwrap();
    eventually("the wake-up", || wake_counter.wakes() == 1).await;
    expect(&mut one, "agent-1", 1..=1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p08_forged_notifications_deliver_nothing() {
    let database = Database::fresh().unwrap();
    let bus = bus(&database.url()).await;
    let mut all = bus.subscribe_all_ready().await.unwrap();
    let mut one = bus.subscribe("agent-1");
    one.ready().await.unwrap();
    bus.append_and_publish(note("agent-1", "hello")).await.unwrap();
    expect(&mut all, "agent-1", 1..=1).await;
    expect(&mut one, "agent-1", 1..=1).await;
    let before = bus.stats();
    let long = "x".repeat(7_999);
    let forged = [
        "",
        "*",
        "garbage",
        ":",
        "agent-1:",
        "agent-1:-1",
        "agent-1:0",
        "agent-1:99999999999999999999999",
        "agent-1:18446744073709551615",
        "agent-1:9223372036854775807",
        "agent-1:2-18446744073709551615",
        "agent-1:1-1",
        "unknown:1",
        "unknown:18446744073709551615",
        "\u{1e}\u{1e}\u{1e}",
        &long,
    ];
    for _ in 0..20 {
        for payload in forged {
            database
                .psql(&format!("SELECT pg_notify('doorbell', '{payload}')"))
                .unwrap();
        }
    }
    eventually("arrival and refusal of all notifications", || {
        let now = bus.stats();
        now.notifications_received >= before.notifications_received + 20 * forged.len() as u64
            && now.notifications_invalid >= before.notifications_invalid + 20 * 8
    })
    .await;
    let after = bus.stats();
    // One for all forged notifications, and those at the start.
    assert!(after.sweeps <= before.sweeps + 3, "one early sweep: {after:?}");
    expect_nothing(&mut all);
    expect_nothing(&mut one);
    // Valid notifications are still handled.
    for _ in 0..3 {
        bus.append_and_publish(note("agent-1", "hello")).await.unwrap();
    }
    bus.append_and_publish(note("unknown", "hello")).await.unwrap();
    expect(&mut one, "agent-1", 2..=4).await;
    expect(&mut all, "agent-1", 2..=4).await;
    expect(&mut all, "unknown", 1..=1).await;
}

/// In an SQL_ASCII database any client can send a payload that makes the listener lose its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p08_a_payload_that_is_not_utf8_does_not_stop_the_bus() {
    let server = throwaway_postgres::Server::builder()
        .encoding("SQL_ASCII")
        .start()
        .unwrap();
    let bus = bus(&server.url()).await;
    let mut all = bus.subscribe_all_ready().await.unwrap();
    for seq in 1..=5 {
        server
            .psql("SET client_encoding = 'SQL_ASCII'; SELECT pg_notify('doorbell', convert_from('\\xff', 'SQL_ASCII'))")
            .unwrap();
        bus.append_and_publish(note("agent-1", "hello")).await.unwrap();
        expect(&mut all, "agent-1", seq..=seq).await;
    }
}

/// The sweep finds events whose notification was never sent, for subscriptions to one stream and to all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p04_events_without_notification_arrive_within_the_sweep_interval() {
    let database = Database::fresh().unwrap();
    let store = store(&database.url()).await;
    let interval = Duration::from_millis(300);
    let bus = builder(&database.url(), &store)
        .sweep_interval(interval)
        .connect()
        .await
        .unwrap();
    let mut all = bus.subscribe_all_ready().await.unwrap();
    let mut one = bus.subscribe("agent-1");
    one.ready().await.unwrap();
    let mut slowest = Duration::ZERO;
    for seq in 1..=5 {
        store.append(note("agent-1", "hello")).await.unwrap();
        let committed = std::time::Instant::now();
        expect(&mut one, "agent-1", seq..=seq).await;
        expect(&mut all, "agent-1", seq..=seq).await;
        slowest = slowest.max(committed.elapsed());
    }
    // The jitter adds up to a tenth; the rest is slack for a busy machine.
    assert!(slowest < interval * 2, "{slowest:?}");
    assert!(bus.stats().missed_recovered >= 5);
}
