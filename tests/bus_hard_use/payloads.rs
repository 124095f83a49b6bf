//! Events that are large, cannot be decoded, or whose decoder panics.

use std::sync::Arc;

use doorbell::bus::{BusError, BusEvent, BusSubscription, DistributedBus, EventBus as _, StreamEvent};
use doorbell::store::{PostgresStore, StoreError};
use serde::{Deserialize, Deserializer, Serialize};
use testkit::within::within;
use throwaway_postgres::Database;

use crate::bus_support::{NEVER, bus, event, note};

/// An event that controls its own decoder.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Scripted {
    key: String,
    #[serde(default)]
    seq: u64,
    #[serde(deserialize_with = "decode_as_told")]
    decoding: String,
}

fn decode_as_told<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let decoding = String::deserialize(deserializer)?;
    match decoding.as_str() {
        "panic" => panic!("the decoder panics"),
        "refuse" => Err(serde::de::Error::custom("the decoder refuses")),
        _ => Ok(decoding),
    }
}

impl StreamEvent for Scripted {
    fn stream_key(&self) -> &str {
        &self.key
    }

    fn seq(&self) -> u64 {
        self.seq
    }

    fn with_seq(mut self, seq: u64) -> Self {
        self.seq = seq;
        self
    }
}

fn scripted(decoding: &str) -> Scripted {
    Scripted {
        key: "agent-1".to_owned(),
        seq: 0,
        decoding: decoding.to_owned(),
    }
}

async fn scripted_bus(database: &Database) -> DistributedBus<Scripted> {
    let store = PostgresStore::<Scripted>::builder()
        .connect(&database.url())
        .await
        .unwrap();
    store.migrate().await.unwrap();
    DistributedBus::builder(Arc::new(store))
        .url(&database.url())
        .sweep_interval(NEVER)
        .connect()
        .await
        .unwrap()
}

async fn item(subscription: &mut BusSubscription<Scripted>) -> BusEvent<Scripted> {
    within("an item", subscription.recv()).await.expect("the bus lives")
}

/// Such an event keeps its place, is reported, and stops no subscription, live or in history.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_cannot_be_decoded_keeps_its_place() {
    let database = Database::fresh().unwrap();
    let (here, there) = (scripted_bus(&database).await, scripted_bus(&database).await);
    let mut all = here.subscribe_all_ready().await.unwrap();
    let mut one = here.subscribe("agent-1");
    one.ready().await.unwrap();
    for decoding in ["fine", "refuse", "fine", "panic", "fine"] {
        // The publisher does not decode its own event.
        assert_eq!(
            there.append_and_publish(scripted(decoding)).await.unwrap().decoding,
            decoding
        );
    }
    let mut history = here.subscribe_from("agent-1", 0);
    for subscription in [&mut all, &mut one, &mut history] {
        for (seq, reason) in (1..).zip([None, Some("refuses"), None, Some("panic"), None]) {
            match (item(subscription).await, reason) {
                (BusEvent::Event(event), None) => assert_eq!(event.seq, seq),
                (
                    BusEvent::Undecodable {
                        stream_key,
                        seq: at,
                        reason,
                    },
                    Some(expected),
                ) => {
                    assert_eq!((&*stream_key, at), ("agent-1", seq));
                    assert!(reason.contains(expected), "{reason}");
                }
                (other, _) => panic!("number {seq}: {other:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undecodable_events_written_by_sql_keep_their_place() {
    let database = Database::fresh().unwrap();
    let bus = scripted_bus(&database).await;
    let mut all = bus.subscribe_all_ready().await.unwrap();
    let by_hand = [
        "'null'",
        "'[]'",
        r#"'{"key": "agent-2", "decoding": "fine"}'"#, // names another stream
        r#"'{"key": "agent-1", "decoding": "fine", "seq": 77, "more": {"than": "is known"}}'"#,
    ];
    for payload in by_hand {
        database
            .psql(&format!("SELECT doorbell.append('agent-1', {payload}, notify => true)"))
            .unwrap();
    }
    for seq in 1..=3 {
        let item = item(&mut all).await;
        assert!(
            matches!(item, BusEvent::Undecodable { seq: at, .. } if at == seq),
            "{item:?}"
        );
    }
    let BusEvent::Event(event) = item(&mut all).await else {
        panic!("the last event can be decoded")
    };
    assert_eq!(event.seq, 4, "the number is the store's");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_events_are_delivered() {
    let database = Database::fresh().unwrap();
    let (here, there) = (bus(&database.url()).await, bus(&database.url()).await);
    let mut all = here.subscribe_all_ready().await.unwrap();
    let megabyte = "🔔 large".repeat(100_000);
    for _ in 0..8 {
        let stamped = there.append_and_publish(note("agent-1", &megabyte)).await.unwrap();
        assert_eq!(*event(&mut all).await, stamped);
    }
    let mut history = here.subscribe_from("agent-1", 0);
    for seq in 1..=8 {
        assert_eq!(event(&mut history).await.seq, seq);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_the_server_cannot_store_takes_no_number() {
    let database = Database::fresh().unwrap();
    let bus = bus(&database.url()).await;
    let mut all = bus.subscribe_all_ready().await.unwrap();
    let refused = bus.append_and_publish(note("agent-1", "a\0b")).await;
    assert!(
        matches!(refused, Err(BusError::Store(StoreError::Encode { .. }))),
        "{refused:?}"
    );
    let ahead = bus.append_and_publish(note("agent-1", "ahead").with_seq(7)).await;
    assert!(
        matches!(
            ahead,
            Err(BusError::Store(StoreError::SeqConflict {
                expected: 1,
                actual: 7,
                ..
            }))
        ),
        "{ahead:?}"
    );
    let stamped = bus.append_and_publish(note("agent-1", "fine")).await.unwrap();
    assert_eq!(stamped.seq, 1);
    assert_eq!(*event(&mut all).await, stamped);
}
