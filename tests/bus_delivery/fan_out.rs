//! Many subscribers, and many streams.

use doorbell::bus::EventBus as _;
use testkit::account::{Account, Sequence};
use throwaway_postgres::Database;

use crate::bus_support::{builder, bus, expect, listener, note, store};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p13_a_thousand_subscribers_cost_one_read_per_event_and_one_connection() {
    const MANY: usize = 1000;
    let database = Database::fresh().unwrap();
    let store = store(&database.url()).await;
    let here = builder(&database.url(), &store)
        .listen(listener(&database.url()).application_name("the fan-out listener"))
        .connect()
        .await
        .unwrap();
    let there = bus(&database.url()).await;
    let mut subscriptions: Vec<_> = (0..MANY).map(|_| here.subscribe("agent-1")).collect();
    for subscription in &subscriptions {
        subscription.ready().await.unwrap();
    }
    let before = here.stats();
    let receiving = tokio::spawn(async move {
        for subscription in &mut subscriptions {
            expect(subscription, "agent-1", 1..=MANY as u64).await;
        }
        subscriptions
    });
    // Half one by one, half in batches.
    for _ in 0..MANY / 2 {
        there.append_and_publish(note("agent-1", "hello")).await.unwrap();
    }
    for _ in 0..MANY / 2 / 100 {
        let burst = (0..100).map(|_| note("agent-1", "hello")).collect();
        there.append_batch_and_publish(burst).await.unwrap();
    }
    let mut subscriptions = receiving.await.unwrap();
    for subscription in &mut subscriptions {
        crate::bus_support::expect_nothing(subscription);
    }
    let after = here.stats();
    let reads = after.reads - before.reads;
    println!(
        "{reads} live and {} replay reads for {MANY} events and {MANY} subscribers",
        after.replay_reads - before.replay_reads
    );
    assert!(reads <= MANY as u64, "{after:?}");
    assert_eq!(after.events_delivered - before.events_delivered, MANY as u64);
    let listeners = database
        .psql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'the fan-out listener'")
        .unwrap();
    assert_eq!(listeners, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_over_a_thousand_streams_reaches_every_subscription() {
    const STREAMS: usize = 1000;
    let database = Database::fresh().unwrap();
    let (here, there) = (bus(&database.url()).await, bus(&database.url()).await);
    let keys: Vec<_> = (0..STREAMS).map(|stream| format!("agent-{stream}")).collect();
    let mut ones: Vec<_> = keys.iter().map(|key| here.subscribe(key)).collect();
    for one in &ones {
        one.ready().await.unwrap();
    }
    let mut all = here.subscribe_all_ready().await.unwrap();
    let before = here.stats();
    let burst = keys
        .iter()
        .cycle()
        .take(3 * STREAMS)
        .map(|key| note(key, "hello"))
        .collect();
    there.append_batch_and_publish(burst).await.unwrap();
    for (key, one) in keys.iter().zip(&mut ones) {
        expect(one, key, 1..=3).await;
    }
    let mut account = Account::new(Sequence::after(0));
    for _ in 0..3 * STREAMS {
        let event = crate::bus_support::event(&mut all).await;
        account.stream(&event.agent_id).received(event.seq);
    }
    account.assert_sound("all streams");
    let after = here.stats();
    let reads = after.reads - before.reads;
    println!("{reads} reads for {} events of {STREAMS} streams", 3 * STREAMS);
    assert!(reads < 3 * STREAMS as u64 / 10, "{after:?}");
}
