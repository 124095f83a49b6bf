//! P4: a publisher is killed between commit and notification.

use std::sync::Arc;
use std::time::{Duration, Instant};

use doorbell::bus::{BusEvent, DistributedBus, EventBus as _, FleetEvent};
use doorbell::store::PostgresStore;
use throwaway_postgres::Server;

use doorbell_perf::child::{Child, LIMIT, print_line, runtime, stdin_closed};

/// The sweep interval, which bounds the delay of an event without a notification.
const SWEEP: Duration = Duration::from_millis(500);

pub(crate) fn p04_a_publisher_is_killed_between_commit_and_notification() {
    let server = Server::start().unwrap();
    runtime().block_on(async {
        let store = PostgresStore::connect(&server.url()).await.unwrap();
        store.migrate().await.unwrap();
        let bus = DistributedBus::builder(Arc::new(store))
            .url(&server.url())
            .sweep_interval(SWEEP)
            .connect()
            .await
            .unwrap();
        let mut all = bus.subscribe_all_ready().await.unwrap();
        let mut one = bus.subscribe("agent-1");
        one.ready().await.unwrap();
        for round in 0..3 {
            let mut publisher = Child::start("slow-notifier", &[&server.url()]);
            assert_eq!(publisher.line(), "committed");
            publisher.kill();
            let killed = Instant::now();
            for subscription in [&mut one, &mut all] {
                for seq in 2 * round + 1..=2 * round + 2 {
                    let item = tokio::time::timeout(LIMIT, subscription.recv()).await;
                    let Ok(Some(BusEvent::Event(event))) = item else {
                        panic!("expected event {seq}, got {item:?}")
                    };
                    assert_eq!(event.seq, seq);
                }
            }
            // The jitter adds up to a tenth; the rest is slack for a busy machine.
            assert!(killed.elapsed() < SWEEP * 3, "{:?}", killed.elapsed());
        }
        assert!(bus.stats().missed_recovered >= 1, "{:?}", bus.stats());
    });
}

/// Sends the first notification at once; the second would follow a minute later.
pub(crate) fn slow_notifier(url: &str) {
    runtime().block_on(async {
        let store = PostgresStore::connect(url).await.unwrap();
        let bus = DistributedBus::builder(Arc::new(store))
            .url(url)
            .notify_interval(Duration::from_secs(60))
            .connect()
            .await
            .unwrap();
        let note = |text| FleetEvent::custom("agent-1", "note", text);
        bus.append_and_publish(note("notified")).await.unwrap();
        while bus.stats().notifications_sent == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        bus.append_and_publish(note("not notified")).await.unwrap();
        assert_eq!(bus.stats().notifications_sent, 1);
        print_line("committed");
        stdin_closed().await;
    });
}
