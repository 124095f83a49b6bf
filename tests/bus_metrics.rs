//! What the `metrics` crate's recorder is told of a bus: descriptions when it starts, and the last figures when it ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use doorbell::bus::{BusEvent, DistributedBus, EventBus, FleetEvent};
use doorbell::store::MemoryStore;
use metrics::{
    Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit, with_local_recorder,
};

/// Remembers what it is told.
#[derive(Clone, Default)]
struct Notebook(Arc<Mutex<Notes>>);

#[derive(Default)]
struct Notes {
    descriptions: BTreeMap<String, String>,
    counters: BTreeMap<String, u64>,
}

struct Figure {
    notebook: Notebook,
    name: String,
}

impl CounterFn for Figure {
    fn increment(&self, value: u64) {
        panic!("{} is set, not incremented by {value}", self.name);
    }

    fn absolute(&self, value: u64) {
        let mut notes = self.notebook.0.lock().unwrap();
        notes.counters.insert(self.name.clone(), value);
    }
}

impl Recorder for Notebook {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        assert_eq!(unit, Some(Unit::Count));
        let mut notes = self.0.lock().unwrap();
        notes
            .descriptions
            .insert(name.as_str().to_owned(), description.into_owned());
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        panic!("the bus has no gauge, {}", name.as_str());
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        assert_eq!(name.as_str(), "doorbell_bus_append_to_delivery_seconds");
        assert_eq!(unit, Some(Unit::Seconds));
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(Figure {
            notebook: self.clone(),
            name: key.name().to_owned(),
        }))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        panic!("the bus has no gauge, {}", key.name());
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn the_recorder_gets_descriptions_and_final_values() {
    let notebook = Notebook::default();
    let stats = with_local_recorder(&notebook, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            // Nobody answers there: what this process appends it delivers all the same.
            let bus = DistributedBus::builder(Arc::new(MemoryStore::<FleetEvent>::new()))
                .url("postgres://localhost:1/nowhere")
                .start()
                .unwrap();
            let mut subscription = bus.subscribe("agent-1");
            subscription.ready().await.unwrap();
            bus.append_and_publish(FleetEvent::custom("agent-1", "note", "hello"))
                .await
                .unwrap();
            assert!(matches!(subscription.recv().await, Some(BusEvent::Event(_))));
            bus.publish(FleetEvent::custom("agent-1", "note", "without a number"));
            bus.shutdown().await;
            bus.stats()
        })
    });
    let notes = notebook.0.lock().unwrap();
    assert_eq!(notes.counters["doorbell_bus_events_delivered_total"], 1);
    assert_eq!(stats.events_delivered, 1);
    assert_eq!(notes.counters["doorbell_bus_unpersisted_total"], 1);
    assert_eq!(
        notes.descriptions["doorbell_bus_notifications_sent_total"],
        "The number of notifications that this process sent."
    );
    let described: Vec<_> = notes.descriptions.keys().collect();
    assert_eq!(described, notes.counters.keys().collect::<Vec<_>>());
}
