//! A store that is dropped and installed again while connections stand.

use doorbell::bus::BusEvent;
use testkit::within::within;
use throwaway_postgres::Database;

use crate::bus_support::{builder, expect, next, note, store};

/// The new history takes the old numbers, and has an event after the last delivered one: that names another predecessor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p43_a_store_that_is_installed_again_is_a_replaced_history() {
    let database = Database::fresh().unwrap();
    let used = store(&database.url()).await;
    let bus = builder(&database.url(), &used).connect().await.unwrap();
    let mut subscriptions = [
        bus.subscribe_all_ready().await.unwrap(),
        bus.subscribe_from("agent-1", 0),
    ];
    for _ in 0..3 {
        bus.append_and_publish(note("agent-1", "old")).await.unwrap();
    }
    for subscription in &mut subscriptions {
        expect(subscription, "agent-1", 1..=3).await;
    }
    database.psql("DROP SCHEMA doorbell CASCADE").unwrap();
    within("the migrations", used.migrate()).await.unwrap();
    let append =
        r#"SELECT doorbell.append('agent-1', '{"agent_id": "agent-1", "type": "agent_connected"}', notify => true)"#;
    database
        .psql(&format!("BEGIN; {append}; {append}; {append}; {append}; COMMIT"))
        .unwrap();
    for subscription in &mut subscriptions {
        let item = next(subscription).await;
        let BusEvent::Rewound(rewound) = &item else {
            panic!("{item:?}");
        };
        assert_eq!((rewound.delivered, rewound.resume_after, rewound.exact), (3, 0, true));
        expect(subscription, "agent-1", 1..=4).await;
    }
}
