//! What a recorder of the `metrics` crate gets from a bus: descriptions at the start and final values at the end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use doorbell::bus::{BusEvent, DistributedBus, EventBus, FleetEvent};
use doorbell::store::MemoryStore;
use metrics::{
    Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit, with_local_recorder,
};

/// Records every call.
#[derive(Clone, Default)]
struct TestRecorder(Arc<Mutex<Notes>>);

#[derive(Default)]
struct Notes {
    descriptions: BTreeMap<String, String>,
    counters: BTreeMap<String, u64>,
}

struct RecordedCounter {
    recorder: TestRecorder,
    name: String,
}

impl CounterFn for RecordedCounter {
    fn increment(&self, value: u64) {
        panic!("{} is set, not incremented by {value}", self.name);
    }

    fn absolute(&self, value: u64) {
        let mut notes = self.recorder.0.lock().unwrap();
        notes.counters.insert(self.name.clone(), value);
    }
}

impl Recorder for TestRecorder {
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
        Counter::from_arc(Arc::new(RecordedCounter {
            recorder: self.clone(),
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
    let recorder = TestRecorder::default();
    let stats = with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            // There is no server: the process still delivers its own appends.
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
    let notes = recorder.0.lock().unwrap();
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
