//! Events that are large, that do not survive their own encoding, or whose decoder panics.

use std::sync::Arc;

use doorbell::bus::{BusError, BusEvent, BusSubscription, DistributedBus, EventBus as _, StreamEvent};
use doorbell::store::{PostgresStore, StoreError};
use serde::{Deserialize, Deserializer, Serialize};
use testkit::within::within;
use throwaway_postgres::Database;

use crate::bus_support::{NEVER, bus, event, note};

/// An event whose decoder does what the event says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Moody {
    key: String,
    #[serde(default)]
    seq: u64,
    #[serde(deserialize_with = "moodily")]
    mood: String,
}

fn moodily<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let mood = String::deserialize(deserializer)?;
    match mood.as_str() {
        "panic" => panic!("the decoder panics"),
        "refuse" => Err(serde::de::Error::custom("the decoder refuses")),
        _ => Ok(mood),
    }
}

impl StreamEvent for Moody {
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

fn moody(mood: &str) -> Moody {
    Moody {
        key: "agent-1".to_owned(),
        seq: 0,
        mood: mood.to_owned(),
    }
}

async fn moody_bus(database: &Database) -> DistributedBus<Moody> {
    let store = PostgresStore::<Moody>::builder()
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

async fn item(subscription: &mut BusSubscription<Moody>) -> BusEvent<Moody> {
    within("an item", subscription.recv()).await.expect("the bus lives")
}

/// Each such event keeps its place, is told of, and stops nobody: neither live nor in the history.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_cannot_be_decoded_keeps_its_place() {
    let database = Database::fresh().unwrap();
    let (here, there) = (moody_bus(&database).await, moody_bus(&database).await);
    let mut all = here.subscribe_all_ready().await.unwrap();
    let mut one = here.subscribe("agent-1");
    one.ready().await.unwrap();
    for mood in ["fine", "refuse", "fine", "panic", "fine"] {
        // Who appends it has it already, and is not made to decode it.
        assert_eq!(there.append_and_publish(moody(mood)).await.unwrap().mood, mood);
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
async fn what_was_written_by_hand_keeps_its_place_too() {
    let database = Database::fresh().unwrap();
    let bus = moody_bus(&database).await;
    let mut all = bus.subscribe_all_ready().await.unwrap();
    let by_hand = [
        "'null'",
        "'[]'",
        r#"'{"key": "agent-2", "mood": "fine"}'"#, // says that it is of another stream
        r#"'{"key": "agent-1", "mood": "fine", "seq": 77, "more": {"than": "is known"}}'"#,
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
        panic!("the last can be read")
    };
    assert_eq!(event.seq, 4, "the number is the store's");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_events_go_through() {
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
async fn what_the_server_cannot_store_is_refused_and_takes_no_number() {
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
