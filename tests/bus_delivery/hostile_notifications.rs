//! Notifications of a role that has no right to anything, except to connect.

use std::sync::Arc;
use std::time::{Duration, Instant};

use doorbell::bus::EventBus as _;
use doorbell::store::Store as _;
use testkit::within::eventually;
use throwaway_postgres::Database;

use crate::bus_support::{blocking, builder, expect, expect_nothing, note, store};

/// Makes the events look as if they had been appended before the bus was there.
const BACKDATE: &str = "UPDATE doorbell.events SET appended_at = appended_at - interval '1 minute'";

/// A database, and the SQL that turns a session into one of a role without any right in it.
fn with_stranger() -> (Arc<Database>, String) {
    let database = Database::fresh().unwrap();
    let stranger = format!("stranger_{}", database.name());
    database.psql(&format!("CREATE ROLE \"{stranger}\"")).unwrap();
    (Arc::new(database), format!("SET ROLE \"{stranger}\";"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p25_a_flood_of_notifications_causes_one_early_sweep_per_interval_and_stops_no_reader() {
    const INTERVAL: Duration = Duration::from_secs(2);
    let (database, as_stranger) = with_stranger();
    let store = store(&database.url()).await;
    let here = builder(&database.url(), &store)
        .sweep_interval(INTERVAL)
        .connect()
        .await
        .unwrap();
    let there = builder(&database.url(), &store).connect().await.unwrap();
    let mut one = here.subscribe("agent-1");
    one.ready().await.unwrap();
    let before = here.stats();
    let started = Instant::now();
    let flood = {
        let database = Arc::clone(&database);
        blocking(move || {
            for _ in 0..20 {
                let flood = "SELECT count(pg_notify('doorbell', 'garbage ' || n)) FROM generate_series(1, 20000) AS n";
                database.psql(&format!("{as_stranger} {flood}")).unwrap();
            }
        })
    };
    let mut flood = std::pin::pin!(flood);
    let mut local = here.subscribe("agent-2");
    local.ready().await.unwrap();
    let mut seq = 0;
    while futures::poll!(&mut flood).is_pending() {
        seq += 1;
        let appended = Instant::now();
        there.append_and_publish(note("agent-1", "hello")).await.unwrap();
        here.append_and_publish(note("agent-2", "hello")).await.unwrap();
        expect(&mut local, "agent-2", seq..=seq).await;
        expect(&mut one, "agent-1", seq..=seq).await;
        // Its notification may have been lost in the flood.
        assert!(appended.elapsed() < INTERVAL * 2, "{:?}", appended.elapsed());
    }
    let (stats, intervals) = (here.stats(), started.elapsed().as_secs_f64() / INTERVAL.as_secs_f64());
    assert!(stats.notifications_invalid > before.notifications_invalid);
    // While the history is in doubt, events of this process are read from the store instead. So they are if a sweep finds them first.
    let found = stats.missed_recovered - before.missed_recovered;
    assert!(stats.events_local + found >= seq, "the reader was stopped: {stats:?}");
    let sweeps = stats.sweeps - before.sweeps;
    assert!(
        sweeps <= 2 * (intervals / 0.9).ceil() as u64 + 1,
        "{sweeps} sweeps in {intervals} intervals"
    );
}

/// The events were appended long before the subscriptions, and some are removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p29_a_forged_notification_makes_no_new_subscriber_receive_old_events() {
    let (database, as_stranger) = with_stranger();
    let store = store(&database.url()).await;
    for _ in 0..5 {
        store.append(note("quiet", "long before")).await.unwrap();
    }
    database.psql(BACKDATE).unwrap();
    database.psql("SELECT doorbell.trim_stream('quiet', 2)").unwrap();
    let bus = builder(&database.url(), &store).connect().await.unwrap();
    let forge = |seqs: &str| {
        let received = bus.stats().notifications_received;
        let forged = format!("{as_stranger} SELECT pg_notify('doorbell', 'quiet:{seqs}')");
        database.psql(&forged).unwrap();
        let bus = &bus;
        async move { eventually("the notification", || bus.stats().notifications_received > received).await }
    };
    let mut all = bus.subscribe_all_ready().await.unwrap();
    let mut one = bus.subscribe("quiet");
    one.ready().await.unwrap();
    forge("1").await;
    forge("3-5").await;
    store.append(note("quiet", "shortly before")).await.unwrap();
    let mut later = bus.subscribe("quiet");
    later.ready().await.unwrap();
    // It is true for number 6, which no other notification has named.
    forge("1-6").await;
    bus.append_and_publish(note("quiet", "after")).await.unwrap();
    for subscription in [&mut all, &mut one, &mut later] {
        expect(subscription, "quiet", 6..=7).await;
        expect_nothing(subscription);
    }
}

/// A notification may name old events and recent ones together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p29_only_the_recent_events_of_a_late_notification_are_delivered() {
    let database = Database::fresh().unwrap();
    let store = store(&database.url()).await;
    for _ in 0..3 {
        store.append(note("agent-1", "long before")).await.unwrap();
    }
    database.psql(BACKDATE).unwrap();
    let bus = builder(&database.url(), &store).connect().await.unwrap();
    for _ in 0..2 {
        store.append(note("agent-1", "shortly before")).await.unwrap();
    }
    let mut all = bus.subscribe_all_ready().await.unwrap();
    let mut one = bus.subscribe("agent-1");
    one.ready().await.unwrap();
    let received = bus.stats().notifications_received;
    database.psql("SELECT pg_notify('doorbell', 'agent-1:1-5')").unwrap();
    eventually("the notification", || bus.stats().notifications_received > received).await;
    bus.append_and_publish(note("agent-1", "after")).await.unwrap();
    for subscription in [&mut all, &mut one] {
        expect(subscription, "agent-1", 4..=6).await;
        expect_nothing(subscription);
    }
}

/// When events were appended does not matter, once the bus knows what was visible 10 s before the subscriptions: one transaction was
/// open all the time, and the others' events look younger than they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p29_what_was_visible_long_before_decides_and_not_when_it_was_appended() {
    let (database, as_stranger) = with_stranger();
    let store = store(&database.url()).await;
    for _ in 0..3 {
        store.append(note("quiet", "long before")).await.unwrap();
    }
    let mut open = store.pool().begin().await.unwrap();
    store.append_in(&mut open, note("slow", "long before")).await.unwrap();
    let bus = builder(&database.url(), &store)
        .sweep_interval(Duration::from_millis(500))
        .connect()
        .await
        .unwrap();
    let (sweeps, begun) = (bus.stats().sweeps, Instant::now());
    eventually("sweeps, more than 10 s after the first ones", || {
        bus.stats().sweeps > sweeps + 2 && begun.elapsed() > Duration::from_secs(13)
    })
    .await;
    let look_younger = "UPDATE doorbell.events SET appended_at = clock_timestamp() WHERE stream_key = 'quiet'";
    database.psql(look_younger).unwrap();
    open.commit().await.unwrap();
    let mut all = bus.subscribe_all_ready().await.unwrap();
    let mut slow = bus.subscribe("slow");
    let mut quiet = bus.subscribe("quiet");
    slow.ready().await.unwrap();
    quiet.ready().await.unwrap();
    let received = bus.stats().notifications_received;
    database
        .psql(&format!("{as_stranger} SELECT pg_notify('doorbell', 'quiet:1-3')"))
        .unwrap();
    eventually("the notification", || bus.stats().notifications_received > received).await;
    bus.append_and_publish(note("quiet", "after")).await.unwrap();
    expect(&mut all, "quiet", 4..=4).await;
    expect(&mut quiet, "quiet", 4..=4).await;
    database.psql("SELECT pg_notify('doorbell', 'slow:1')").unwrap();
    expect(&mut slow, "slow", 1..=1).await;
    expect(&mut all, "slow", 1..=1).await;
    for subscription in [&mut all, &mut slow, &mut quiet] {
        expect_nothing(subscription);
    }
}
