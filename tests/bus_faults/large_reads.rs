//! Reads that fail because of what they read: they stop no other stream.

use std::sync::Arc;
use std::time::Duration;

use doorbell::bus::{BusEvent, BusState, BusSubscription, DistributedBus, EventBus as _, FleetEvent, StoreOperation};
use doorbell::store::PostgresStore;
use testkit::within::within;
use throwaway_postgres::Database;

use crate::bus_support::{builder, bus, event, expect, next, note, store, until, until_health};

/// 81 kB of JSON, and more than 1 GB as the server writes it.
const BOMB: &str = r#"('{"extra":[' || repeat('1e131071,', 9000) || '1]}')::jsonb"#;

/// Makes the server run a statement first in each read of more than so many events of the stream.
fn interfere(database: &Database, stream: &str, more_than: usize, statement: &str) {
    let statement = statement.replace('\'', "''");
    database
        .psql(&format!(
            "DO $$ BEGIN EXECUTE regexp_replace(pg_get_functiondef('doorbell.replay_many'::regproc), E'\nBEGIN\n.*more := false', \
             E'\nBEGIN\n IF max_events > {more_than} AND ''{stream}'' = ANY (stream_keys) THEN {statement}; END IF; more := false'); END $$"
        ))
        .unwrap();
}

fn repair(database: &Database) {
    interfere(database, "no such stream", 0, "NULL");
}

async fn subscribe(bus: &DistributedBus, stream: &str) -> BusSubscription {
    let subscription = bus.subscribe(stream);
    within("ready", subscription.ready()).await.unwrap();
    subscription
}

/// A bus whose store waits half a second for an answer.
async fn impatient_bus(url: &str) -> DistributedBus {
    store(url).await; // migrates
    let store = PostgresStore::<FleetEvent>::builder().response_timeout(Duration::from_millis(500));
    builder(url, &Arc::new(store.connect(url).await.unwrap()))
        .connect()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p45_an_event_that_cannot_be_read_is_undecodable_and_stops_nothing() {
    let database = Database::fresh().unwrap();
    let (here, there) = (bus(&database.url()).await, bus(&database.url()).await);
    let large = subscribe(&here, "large").await;
    let mut good = subscribe(&here, "good").await;
    database
        .psql(&format!(
            "INSERT INTO doorbell.events (stream_key, seq, payload) VALUES ('large', 1, {BOMB}); SELECT doorbell.notify_events('large', 1)"
        ))
        .unwrap();
    there.append_and_publish(note("good", "hello")).await.unwrap();
    there.append_and_publish(note("large", "hello")).await.unwrap();
    expect(&mut good, "good", 1..=1).await;
    for mut subscription in [large, here.subscribe_from("large", 0)] {
        let first = next(&mut subscription).await;
        assert!(
            matches!(&first, BusEvent::Undecodable { seq: 1, reason, .. } if reason.contains("64 MiB")),
            "{first:?}"
        );
        assert_eq!(event(&mut subscription).await.seq, 2);
    }
    until(&here, BusState::Live).await;
}

/// The events of streams whose reads fail together: `bad` and 20 others.
fn batch() -> Vec<FleetEvent> {
    let mut events = vec![note("bad", "1"), note("bad", "2")];
    events.extend((0..20).map(|n| note(&format!("good-{n}"), "hello")));
    events
}

/// The server refuses whatever part of one stream is read, or does not answer in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p45_a_stream_that_cannot_be_read_stops_no_other_stream() {
    let database = Database::fresh().unwrap();
    let (here, there) = (impatient_bus(&database.url()).await, bus(&database.url()).await);
    let mut all = within("ready", here.subscribe_all_ready()).await.unwrap();
    for (round, fault) in (1..).zip(["RAISE 'no room' USING ERRCODE = '53400'", "PERFORM pg_sleep(600)"]) {
        interfere(&database, "bad", 0, fault);
        there.append_batch_and_publish(batch()).await.unwrap();
        for _ in 0..20 {
            let good = event(&mut all).await;
            assert!(good.agent_id.starts_with("good") && good.seq == round, "{good:?}");
        }
        let down = |health: &doorbell::bus::BusHealth| {
            let reason = health.reason.as_ref().map(ToString::to_string).unwrap_or_default();
            health.state == BusState::Down && health.failing == [StoreOperation::Read] && reason.contains("\"bad\"")
        };
        until_health(&here, "the stream that fails", down).await;
        // New events of other streams do not wait for it.
        there.append_and_publish(note("new", "hello")).await.unwrap();
        expect(&mut all, "new", round..=round).await;
        repair(&database);
        expect(&mut all, "bad", 2 * round - 1..=2 * round).await;
        until(&here, BusState::Live).await;
    }
}

/// Fewer events at once can be read: in time, or at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p45_what_is_too_much_for_one_read_is_read_in_parts() {
    let database = Database::fresh().unwrap();
    let (here, there) = (impatient_bus(&database.url()).await, bus(&database.url()).await);
    let mut live = subscribe(&here, "bad").await;
    for fault in ["RAISE 'no room' USING ERRCODE = '53400'", "PERFORM pg_sleep(600)"] {
        interfere(&database, "bad", 10, fault);
        let first = there.append_batch_and_publish(batch()).await.unwrap()[0].seq;
        expect(&mut live, "bad", first..=first + 1).await;
        let mut history = here.subscribe_from("bad", 0);
        expect(&mut history, "bad", 1..=first + 1).await;
        until(&here, BusState::Live).await;
    }
}

/// History that cannot be read occupies one connection at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p45_history_that_cannot_be_read_delays_no_other_history() {
    let database = Database::fresh().unwrap();
    let here = impatient_bus(&database.url()).await;
    let there = bus(&database.url()).await;
    for stream in ["bad", "worse", "good"] {
        there.append_and_publish(note(stream, "hello")).await.unwrap();
    }
    interfere(&database, "bad", 0, "PERFORM pg_sleep(600)");
    let mut bad: Vec<_> = (0..2).map(|_| here.subscribe_from("bad", 0)).collect();
    let fails = |health: &doorbell::bus::BusHealth| health.failing == [StoreOperation::History];
    let failing = async {
        tokio::select! {
            _ = next(&mut bad[0]) => panic!("it cannot be read"),
            health = until_health(&here, "a failing read of history", fails) => health,
        }
    };
    failing.await;
    for _ in 0..3 {
        expect(&mut here.subscribe_from("good", 0), "good", 1..=1).await;
    }
    repair(&database);
    for subscription in &mut bad {
        expect(subscription, "bad", 1..=1).await;
    }
}

/// A page of history that the store has cut is continued, from the cache and without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p45_a_history_of_large_events_is_delivered() {
    let database = Database::fresh().unwrap();
    let (here, there) = (bus(&database.url()).await, bus(&database.url()).await);
    let mut live = subscribe(&here, "large").await;
    let text = "x".repeat(600_000);
    let events: Vec<_> = (0..30).map(|_| note("large", &text)).collect();
    there.append_batch_and_publish(events).await.unwrap();
    expect(&mut live, "large", 1..=30).await;
    let before = here.stats().replay_reads;
    expect(&mut here.subscribe_from("large", 0), "large", 1..=30).await;
    let reads = here.stats().replay_reads - before;
    assert!(
        (7..=10).contains(&reads),
        "{reads} reads of at most 2 MiB and one event"
    );
    expect(&mut here.subscribe_from("large", 17), "large", 18..=30).await;
    let elsewhere = bus(&database.url()).await;
    expect(&mut elsewhere.subscribe_from("large", 17), "large", 18..=30).await;
}
