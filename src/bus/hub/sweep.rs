//! The hub's interface for sweeps.

use std::sync::Arc;

use super::Hub;
use super::stream::StreamRef;
use super::stream_table::Baseline;
use crate::bus::StreamEvent;
use crate::store::StreamHead;

/// The progress of a stream's delivery.
#[derive(Clone, Debug)]
pub(crate) struct DeliveryCursor {
    pub(crate) stream: StreamRef,
    pub(crate) seq: u64,
}

impl<E: StreamEvent> Hub<E> {
    /// Returns how far streams are delivered: all streams, or only those that have subscriptions of their own, and those of which a read has
    /// lacked events.
    pub(crate) fn cursors(&self, all: bool) -> Vec<DeliveryCursor> {
        let table = self.table.lock();
        table
            .indexed()
            .filter(|(_, stream)| all || stream.subscriptions > 0 || stream.must_sweep)
            .filter_map(|(index, stream)| {
                let seq = stream.cursor?;
                Some(DeliveryCursor {
                    stream: stream.reference(index),
                    seq,
                })
            })
            .collect()
    }

    /// Returns `true` if there are subscriptions to all streams.
    pub(crate) fn has_subscriptions_to_all(&self) -> bool {
        self.table.lock().all.subscriptions > 0
    }

    /// Handles the store's last event of a stream that was delivered up to `cursor` before the store was asked. Schedules a read if events
    /// are missing here. Returns true if it has a higher number than the hub knew.
    pub(crate) fn report_head(&self, cursor: &DeliveryCursor, head: StreamHead, is_standby: bool) -> bool {
        let mut table = self.table.lock();
        let StreamRef { index, version, .. } = cursor.stream;
        let Some(stream) = table.current(index, version) else {
            return false;
        };
        let is_new = head.seq > stream.wanted.max(cursor.seq);
        table.found_head(index, head);
        if head.seq < cursor.seq && !is_standby {
            table.doubt(index);
        }
        is_new
    }

    /// Handles the store's last event of a stream that has changed, like [`report_head`](Self::report_head).
    pub(crate) fn report_change(&self, key: &str, head: StreamHead) -> bool {
        let mut table = self.table.lock();
        let table = &mut *table;
        if let Some(&index) = table.by_key.get(key) {
            let stream = table.stream(index);
            let is_new = head.seq > stream.wanted && stream.cursor.is_none_or(|cursor| head.seq > cursor);
            table.found_head(index, head);
            return is_new;
        }
        if table.all.subscriptions == 0 {
            return false;
        }
        let Baseline::Complete(untracked) = &mut table.all.baseline else {
            return false;
        };
        let known = untracked.get(key).copied().unwrap_or_default();
        if known.seq == head.seq && (known.id == head.id || known.id.is_none() || head.id.is_none()) {
            return false;
        }
        untracked.remove(key);
        let index = table.insert_for_all(Arc::from(key), known);
        table.found_head(index, head);
        head.seq > known.seq
    }

    /// Returns `true` if a sweep was requested since the last call.
    pub(crate) fn take_sweep_request(&self) -> bool {
        std::mem::take(&mut self.table.lock().sweep_requested)
    }
}
