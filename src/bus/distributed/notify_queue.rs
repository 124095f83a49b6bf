//! Doorbells on their way out: merged per stream, bounded, and never in a caller's way.
//!
//! The first bell goes at once. What comes while it is on its way waits, one pointer per stream, and goes together after it; so an
//! idle bus is as fast as a bare NOTIFY, and a busy one batches by itself.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::bus::payload::{self, SWEEP_REQUEST};
use crate::bus::stats::Counters;

pub(super) struct NotifyQueue {
    waiting: Mutex<Pending>,
    arrived: Notify,
    /// Streams beyond which a request for a sweep takes the place of the pointers.
    most: usize,
    counters: Arc<Counters>,
}

#[derive(Default)]
struct Pending {
    streams: HashMap<Arc<str>, RangeInclusive<u64>>,
    sweep: bool,
}

impl NotifyQueue {
    pub(super) fn new(most: usize, counters: Arc<Counters>) -> Self {
        Self {
            waiting: Mutex::default(),
            arrived: Notify::new(),
            most,
            counters,
        }
    }

    /// Rings for an event, soon.
    pub(super) fn ring(&self, stream_key: &str, seqs: RangeInclusive<u64>) {
        self.counters.events_announced.add(1);
        if self.waiting.lock().add(stream_key, seqs, self.most, &self.counters) {
            self.arrived.notify_one();
        }
    }

    /// Completes when something waits to be sent.
    pub(super) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Whether nothing waits to be sent.
    pub(super) fn is_empty(&self) -> bool {
        let waiting = self.waiting.lock();
        waiting.streams.is_empty() && !waiting.sweep
    }

    /// Everything that waits, as payloads.
    pub(super) fn take(&self) -> Batch {
        Batch(std::mem::take(&mut *self.waiting.lock()))
    }

    /// A batch was not sent: it waits again, together with what came meanwhile.
    pub(super) fn put_back(&self, batch: Batch) {
        let mut waiting = self.waiting.lock();
        waiting.sweep |= batch.0.sweep;
        for (key, seqs) in batch.0.streams {
            waiting.add(&key, seqs, self.most, &self.counters);
        }
    }
}

impl Pending {
    /// True if nothing waited before.
    fn add(&mut self, stream_key: &str, seqs: RangeInclusive<u64>, most: usize, counters: &Counters) -> bool {
        if self.sweep {
            counters.notifications_dropped.add(1);
            return false;
        }
        if let Some(waiting) = self.streams.get_mut(stream_key) {
            *waiting = *waiting.start().min(seqs.start())..=*waiting.end().max(seqs.end());
            counters.notifications_coalesced.add(1);
            return false;
        }
        if self.streams.len() >= most {
            counters.notifications_dropped.add(self.streams.len() as u64 + 1);
            self.streams = HashMap::new();
            self.sweep = true;
            return false;
        }
        self.streams.insert(Arc::from(stream_key), seqs);
        self.streams.len() == 1
    }
}

/// What goes out together.
pub(super) struct Batch(Pending);

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.0.streams.is_empty() && !self.0.sweep
    }

    pub(super) fn payloads(&self) -> Vec<String> {
        if self.0.sweep {
            return vec![SWEEP_REQUEST.to_owned()];
        }
        payload::pack(self.0.streams.iter().map(|(key, seqs)| (&**key, seqs.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bells(most: usize) -> NotifyQueue {
        NotifyQueue::new(most, Arc::default())
    }

    #[test]
    fn a_stream_has_one_pointer() {
        let bells = bells(10);
        for seq in [5, 7, 6] {
            bells.ring("a", seq..=seq);
        }
        assert_eq!(bells.take().payloads(), ["a:5-7"]);
        assert_eq!(bells.counters.read().notifications_coalesced, 2);
        assert!(bells.take().is_empty());
    }

    #[test]
    fn too_many_streams_become_a_sweep() {
        let bells = bells(3);
        for stream in 0..10 {
            bells.ring(&stream.to_string(), 1..=1);
        }
        assert_eq!(bells.take().payloads(), [SWEEP_REQUEST]);
        assert_eq!(bells.counters.read().notifications_dropped, 10);
        bells.ring("a", 1..=1);
        assert_eq!(bells.take().payloads(), ["a:1"]);
    }

    #[test]
    fn what_was_not_sent_waits_with_what_came() {
        let bells = bells(10);
        bells.ring("a", 1..=1);
        let batch = bells.take();
        bells.ring("a", 2..=2);
        bells.put_back(batch);
        assert_eq!(bells.take().payloads(), ["a:1-2"]);
    }
}
