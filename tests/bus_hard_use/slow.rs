//! Subscribers that do not keep up lose nothing, or exactly what is reported.

use doorbell::bus::{BusEvent, DistributedBus, EventBus as _, OnSlow, SubscribeOptions};
use doorbell::store::PostgresStore;
use testkit::account::{Account, Sequence};
use testkit::within::eventually;
use throwaway_postgres::Database;

use crate::bus_support::{builder, expect, expect_nothing, next, note, store};

const MANY: u64 = 1000;

/// A bus that keeps few events in memory, and its store.
async fn small(database: &Database) -> (std::sync::Arc<PostgresStore>, DistributedBus) {
    let store = store(&database.url()).await;
    let bus = builder(&database.url(), &store)
        .stream_capacity(8)
        .all_capacity(8)
        .page(16)
        .connect()
        .await
        .unwrap();
    (store, bus)
}

async fn append_many(bus: &DistributedBus, stream: &str) {
    for _ in 0..MANY / 100 {
        let batch = (0..100).map(|_| note(stream, "hello")).collect();
        bus.append_batch_and_publish(batch).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_subscriber_loses_nothing_by_default() {
    let database = Database::fresh().unwrap();
    let (_, here) = small(&database).await;
    let (_, there) = small(&database).await;
    let mut all = here.subscribe_all_ready().await.unwrap();
    let mut one = here.subscribe("agent-1");
    one.ready().await.unwrap();
    append_many(&there, "agent-1").await;
    append_many(&here, "agent-2").await;
    expect(&mut one, "agent-1", 1..=MANY).await;
    let mut account = Account::new(Sequence::after(0));
    for _ in 0..2 * MANY {
        let event = crate::bus_support::event(&mut all).await;
        account.stream(&event.agent_id).received(event.seq);
    }
    account.assert_sound("all streams");
    assert!(here.stats().lags > 0, "it was slow enough");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_subscriber_that_opts_in_gets_the_exact_number_of_missed_events() {
    let database = Database::fresh().unwrap();
    let (_, here) = small(&database).await;
    let (_, there) = small(&database).await;
    let report = SubscribeOptions::new().on_slow(OnSlow::Report);
    let mut one = here.subscribe_with("agent-1", report);
    one.ready().await.unwrap();
    let mut fast = here.subscribe("agent-1");
    fast.ready().await.unwrap();
    append_many(&there, "agent-1").await;
    expect(&mut fast, "agent-1", 1..=MANY).await; // every event has reached this process
    let mut numbers = Sequence::after(0);
    while numbers.counts().accounted() < MANY {
        match next(&mut one).await {
            BusEvent::Event(event) => numbers.received(event.seq),
            BusEvent::Lagged(events) => numbers.skipped_next(events),
            other => panic!("{other:?}"),
        }
    }
    numbers.assert_sound("the slow subscriber");
    assert_eq!(numbers.last(), MANY);
    assert!(numbers.counts().skipped > 0, "it was slow enough");
}

/// Items other than events, which late notifications put into the rings for new subscriptions, do not count as missed events.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_notifications_do_not_count_as_missed_events() {
    let database = Database::fresh().unwrap();
    let (_, here) = small(&database).await;
    let report = SubscribeOptions::new().on_slow(OnSlow::Report);
    let mut all = here.subscribe_all_with(report);
    all.ready().await.unwrap();
    let first = here.append_and_publish(note("agent-1", "hello")).await.unwrap();
    for _ in 0..20 {
        let fresh = here.subscribe("agent-1");
        fresh.ready().await.unwrap();
        here.publish(first.clone());
    }
    append_many(&here, "agent-2").await;
    let (mut received, mut missed) = (0, 0);
    while received + missed < 1 + MANY {
        match next(&mut all).await {
            BusEvent::Event(_) => received += 1,
            BusEvent::Lagged(events) => missed += events,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(received + missed, 1 + MANY);
    assert!(missed > 0, "it was slow enough");
    expect_nothing(&mut all);
}

/// Retention removes events that a slow subscriber has not received: it gets a gap, and continues after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_that_is_trimmed_while_a_subscriber_is_behind_is_a_gap() {
    let database = Database::fresh().unwrap();
    let (store, here) = small(&database).await;
    let mut slow = here.subscribe("agent-1");
    slow.ready().await.unwrap();
    append_many(&here, "agent-1").await;
    // What the bus has in memory is delivered, so it must be beyond what is removed.
    eventually("the delivery to memory", || here.stats().events_delivered == MANY).await;
    let trimmed = store.trim("agent-1", 900).await.unwrap();
    assert_eq!(trimmed, 900);
    let mut seqs = Vec::new();
    let mut last = 0;
    while last < MANY {
        match next(&mut slow).await {
            BusEvent::Event(event) => {
                assert_eq!(event.seq, last + 1);
                last = event.seq;
            }
            BusEvent::Gap(gap) => {
                assert_eq!((&*gap.stream_key, *gap.seqs.start()), ("agent-1", last + 1));
                last = *gap.seqs.end();
                seqs.push(gap.seqs);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seqs.len(), 1, "{seqs:?}");
    assert_eq!(*seqs[0].end(), 900);
    // A new subscription that starts in the removed part gets the gap, too.
    let mut late = here.subscribe_from("agent-1", 0);
    let BusEvent::Gap(gap) = next(&mut late).await else {
        panic!("expected a gap")
    };
    assert_eq!(gap.seqs, 1..=900);
    expect(&mut late, "agent-1", 901..=MANY).await;
}
