//! The queue of notifications to be sent. It holds one range per stream, is bounded, and never makes callers wait.
//!
//! An idle bus sends a notification at once, so it is as fast as a bare NOTIFY. Notifications that are queued while one is being
//! sent are sent together afterwards, so a busy bus sends batches.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::bus::payload::{self, SWEEP_REQUEST};
use crate::bus::stats::Counters;

pub(crate) struct NotifyQueue {
    pending: Mutex<Pending>,
    pushed: Notify,
    /// Beyond this number of streams, a request for a sweep replaces the ranges.
    max_streams: usize,
    counters: Arc<Counters>,
}

#[derive(Default)]
struct Pending {
    streams: HashMap<Arc<str>, RangeInclusive<u64>>,
    sweep: bool,
}

impl NotifyQueue {
    pub(crate) fn new(max_streams: usize, counters: Arc<Counters>) -> Self {
        Self {
            pending: Mutex::default(),
            pushed: Notify::new(),
            max_streams,
            counters,
        }
    }

    /// Queues a notification for the events `seqs` of a stream.
    pub(crate) fn push(&self, stream_key: &str, seqs: RangeInclusive<u64>) {
        self.counters.events_queued.add(1);
        let mut pending = self.pending.lock();
        if pending.add(stream_key, seqs, self.max_streams, &self.counters) {
            drop(pending);
            self.pushed.notify_one();
        }
    }

    /// Completes when a notification has been pushed.
    pub(crate) async fn pushed(&self) {
        self.pushed.notified().await;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.lock().is_empty()
    }

    /// Removes and returns everything that is queued.
    pub(crate) fn take(&self) -> NotifyBatch {
        NotifyBatch(std::mem::take(&mut *self.pending.lock()))
    }

    /// Queues a batch that could not be sent again. It is merged with notifications pushed in the meantime.
    pub(crate) fn put_back(&self, batch: NotifyBatch) {
        let mut pending = self.pending.lock();
        pending.sweep |= batch.0.sweep;
        for (key, seqs) in batch.0.streams {
            pending.add(&key, seqs, self.max_streams, &self.counters);
        }
    }
}

impl Pending {
    /// Adds a range. Returns true if nothing was pending before.
    fn add(&mut self, stream_key: &str, seqs: RangeInclusive<u64>, max_streams: usize, counters: &Counters) -> bool {
        if self.sweep {
            counters.notifications_dropped.add(1);
            return false;
        }
        if let Some(range) = self.streams.get_mut(stream_key) {
            *range = *range.start().min(seqs.start())..=*range.end().max(seqs.end());
            counters.notifications_coalesced.add(1);
            return false;
        }
        if self.streams.len() >= max_streams {
            counters.notifications_dropped.add(self.streams.len() as u64 + 1);
            self.streams = HashMap::new();
            self.sweep = true;
            return false;
        }
        self.streams.insert(Arc::from(stream_key), seqs);
        self.streams.len() == 1
    }

    fn is_empty(&self) -> bool {
        self.streams.is_empty() && !self.sweep
    }
}

/// Notifications that are sent together.
pub(crate) struct NotifyBatch(Pending);

impl NotifyBatch {
    /// Removes the streams whose keys contain a text, and returns their number.
    pub(crate) fn remove_streams_with(&mut self, text: &str) -> usize {
        let before = self.0.streams.len();
        self.0.streams.retain(|key, _| !key.contains(text));
        before - self.0.streams.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn payloads(&self) -> Vec<String> {
        if self.0.sweep {
            return vec![SWEEP_REQUEST.to_owned()];
        }
        payload::pack(self.0.streams.iter().map(|(key, seqs)| (&**key, seqs.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(max_streams: usize) -> NotifyQueue {
        NotifyQueue::new(max_streams, Arc::default())
    }

    #[test]
    fn events_of_a_stream_share_a_range() {
        let queue = queue(10);
        for seq in [5, 7, 6] {
            queue.push("a", seq..=seq);
        }
        assert_eq!(queue.take().payloads(), ["a:5-7"]);
        assert_eq!(queue.counters.read().notifications_coalesced, 2);
        assert!(queue.take().is_empty());
    }

    #[test]
    fn too_many_streams_become_a_sweep_request() {
        let queue = queue(3);
        for stream in 0..10 {
            queue.push(&stream.to_string(), 1..=1);
        }
        assert_eq!(queue.take().payloads(), [SWEEP_REQUEST]);
        assert_eq!(queue.counters.read().notifications_dropped, 10);
        queue.push("a", 1..=1);
        assert_eq!(queue.take().payloads(), ["a:1"]);
    }

    #[test]
    fn a_batch_that_was_not_sent_is_merged_with_later_events() {
        let queue = queue(10);
        queue.push("a", 1..=1);
        let batch = queue.take();
        queue.push("a", 2..=2);
        queue.put_back(batch);
        assert_eq!(queue.take().payloads(), ["a:1-2"]);
    }
}
