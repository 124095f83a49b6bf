//! Checks that every subscriber receives every event once and in order, and times the deliveries.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::timed_event;
use crate::latencies::Latencies;

/// Histograms for all deliveries. Several, so that tasks rarely contend for one.
const SHARDS: usize = 16;

/// Tracks, in one process, how many subscribers still lack each event.
///
/// Events are spread over the streams round-robin: event k is number k / streams + 1 of stream k % streams. All counters are relaxed: each is
/// exact on its own, and they are read together only once `finished` has been signalled, which orders what came before.
#[derive(Debug)]
pub struct DeliveryTracker {
    streams: usize,
    warm_up: usize,
    missing: Vec<AtomicU32>,
    events_left: AtomicU64,
    deliveries: AtomicU64,
    lost: AtomicU64,
    repeated: AtomicU64,
    reordered: AtomicU64,
    last_delivery: Mutex<Latencies>,
    /// The times of all deliveries, if wanted. Subscribers share the histograms round-robin.
    each_delivery: Vec<Mutex<Latencies>>,
    trackers: AtomicUsize,
    finished_at: AtomicU64,
    finished: Notify,
}

/// Errors of delivery; all zero if there were none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct DeliveryErrors {
    pub lost: u64,
    pub repeated: u64,
    pub reordered: u64,
}

impl DeliveryTracker {
    /// For `events` events to `subscribers` subscribers, both spread evenly over the streams. The first `warm_up` events are
    /// checked, but not timed. `times_each` says whether all deliveries are timed, or only the last one of each event.
    pub fn new(streams: usize, subscribers: usize, events: usize, warm_up: usize, times_each: bool) -> Arc<Self> {
        assert_eq!(
            (subscribers % streams, events % streams),
            (0, 0),
            "the same number for each stream"
        );
        let each = u32::try_from(subscribers / streams).expect("a number of subscribers");
        Arc::new(Self {
            streams,
            warm_up,
            missing: (0..events).map(|_| AtomicU32::new(each)).collect(),
            events_left: AtomicU64::new(events as u64),
            deliveries: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            reordered: AtomicU64::new(0),
            last_delivery: Mutex::default(),
            each_delivery: (0..if times_each { SHARDS } else { 0 })
                .map(|_| Mutex::default())
                .collect(),
            trackers: AtomicUsize::new(0),
            finished_at: AtomicU64::new(0),
            finished: Notify::new(),
        })
    }

    /// The tracker of one subscriber to a stream.
    pub fn tracker(self: &Arc<Self>, stream: usize) -> SubscriberTracker {
        SubscriberTracker {
            deliveries: Arc::clone(self),
            stream,
            shard: self.trackers.fetch_add(1, Ordering::Relaxed) % SHARDS,
            next: 1,
        }
    }

    /// Returns once every subscriber has every event.
    pub async fn finished(&self) {
        self.finished.notified().await;
        // For the next call.
        self.finished.notify_one();
    }

    /// The number of deliveries so far.
    pub fn deliveries(&self) -> u64 {
        self.deliveries.load(Ordering::Relaxed)
    }

    /// The time of the last delivery, in nanoseconds since 1970.
    pub fn finished_at(&self) -> u64 {
        self.finished_at.load(Ordering::Relaxed)
    }

    /// The times of each event's last delivery.
    pub fn last_deliveries(&self) -> Latencies {
        self.last_delivery.lock().expect("no holder panics").clone()
    }

    /// The times of all deliveries; empty unless they were wanted.
    pub fn each_delivery(&self) -> Latencies {
        let mut all = Latencies::default();
        for shard in &self.each_delivery {
            all += &*shard.lock().expect("no holder panics");
        }
        all
    }

    /// The errors so far. Events that have not arrived count as lost.
    pub fn errors(&self) -> DeliveryErrors {
        let missing: u64 = self
            .missing
            .iter()
            .map(|missing| u64::from(missing.load(Ordering::Relaxed)))
            .sum();
        DeliveryErrors {
            lost: missing.max(self.lost.load(Ordering::Relaxed)),
            repeated: self.repeated.load(Ordering::Relaxed),
            reordered: self.reordered.load(Ordering::Relaxed),
        }
    }

    fn delivered(&self, stream: usize, shard: usize, number: u64, sent: u64) {
        self.deliveries.fetch_add(1, Ordering::Relaxed);
        let event = (number as usize - 1) * self.streams + stream;
        let Some(missing) = self.missing.get(event) else { return };
        let is_last = missing.fetch_sub(1, Ordering::Relaxed) == 1;
        if !is_last && self.each_delivery.is_empty() {
            return;
        }
        let now = timed_event::now();
        if event >= self.warm_up {
            let latency = Duration::from_nanos(now.saturating_sub(sent));
            let record = |latencies: &Mutex<Latencies>| latencies.lock().expect("no holder panics").record(latency);
            if let Some(each) = self.each_delivery.get(shard) {
                record(each);
            }
            if is_last {
                record(&self.last_delivery);
            }
        }
        if is_last && self.events_left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.finished_at.store(now, Ordering::Relaxed);
            self.finished.notify_one();
        }
    }
}

/// Checks the order of the events of one subscriber.
#[derive(Debug)]
pub struct SubscriberTracker {
    deliveries: Arc<DeliveryTracker>,
    stream: usize,
    shard: usize,
    next: u64,
}

impl SubscriberTracker {
    /// Records that the subscriber has received this event.
    pub fn take(&mut self, number: u64, sent: u64) {
        let deliveries = &self.deliveries;
        if number < self.next {
            let wrong = if number + 1 == self.next {
                &deliveries.repeated
            } else {
                &deliveries.reordered
            };
            wrong.fetch_add(1, Ordering::Relaxed);
            return;
        }
        deliveries.lost.fetch_add(number - self.next, Ordering::Relaxed);
        self.next = number + 1;
        deliveries.delivered(self.stream, self.shard, number, sent);
    }
}
