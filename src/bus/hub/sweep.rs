//! The hub's interface for sweeps.

use std::sync::Arc;

use super::Hub;
use super::stream::StreamRef;
use super::stream_table::Baseline;
use crate::bus::StreamEvent;
use crate::store::EventId;

/// The progress of a stream's delivery.
#[derive(Clone, Debug)]
pub(crate) struct DeliveryCursor {
    pub(crate) stream: StreamRef,
    pub(crate) seq: u64,
    /// The id of the event with this number, if it is known.
    pub(crate) id: Option<EventId>,
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
                    id: stream.recent_ids.get(seq),
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

    /// Handles a stream's high-water mark in the store. Schedules a read if events are missing here. Returns true if the mark is
    /// above every number that the hub knew.
    pub(crate) fn report_high_water(&self, key: &str, high_water: u64) -> bool {
        let mut table = self.table.lock();
        let table = &mut *table;
        if let Some(&index) = table.by_key.get(key) {
            let stream = table.stream(index);
            let is_new = high_water > stream.wanted && stream.cursor.is_none_or(|cursor| high_water > cursor);
            table.found_high_water(index, high_water);
            return is_new;
        }
        if table.all.subscriptions == 0 {
            return false;
        }
        match &mut table.all.baseline {
            Baseline::Complete(untracked) => match untracked.get_mut(key) {
                Some(cursor) if high_water <= *cursor => {
                    *cursor = high_water; // lower only if the history was replaced
                    false
                }
                _ => {
                    let cursor = untracked.remove(key).unwrap_or(0);
                    if cursor == high_water {
                        return false;
                    }
                    let index = table.insert_for_all(Arc::from(key), cursor);
                    table.stream_mut(index).wanted = high_water;
                    table.queue(index);
                    true
                }
            },
            Baseline::Missing | Baseline::Unknown => false,
        }
    }

    /// Returns `true` if a sweep was requested since the last call.
    pub(crate) fn take_sweep_request(&self) -> bool {
        std::mem::take(&mut self.table.lock().sweep_requested)
    }
}
