//! Determines where subscriptions start, from what the store held when it was queried.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::start_signal::{StartPosition, StartSignal};
use super::stream::{StreamIndex, StreamRef};
use super::stream_table::{Baseline, StreamTable};
use super::{Hub, Work};
use crate::store::StreamHead;

/// What a start has to signal, as soon as the caller holds no lock: see [`Hub::signal`].
#[must_use]
#[derive(Default)]
pub(crate) struct Started {
    signals: Vec<(StartSignal, StartPosition)>,
    /// Notifications that came before the baseline.
    notified: HashMap<Arc<str>, RangeInclusive<u64>>,
}

impl<E: Send + Sync + 'static> Hub<E> {
    /// Returns at most `max` streams whose subscriptions wait for the store's high-water mark.
    pub(crate) fn unstarted(&self, max: usize) -> Vec<StreamRef> {
        let table = self.table.lock();
        let indexes = table.unstarted.iter().take(max);
        indexes.map(|&index| table.stream(index).reference(index)).collect()
    }

    /// Starts subscriptions at their streams' last events.
    pub(crate) fn start(&self, heads: impl IntoIterator<Item = (StreamRef, StreamHead)>) -> Started {
        let mut started = Started::default();
        let mut table = self.table.lock();
        for (StreamRef { index, version, .. }, head) in heads {
            match table.current(index, version) {
                Some(stream) if stream.cursor.is_none() => {
                    self.start_stream(&mut table, index, head, &mut started);
                }
                Some(_) => start_in_started_stream(&mut table, index, head, &mut started),
                None => {}
            }
        }
        table.retain_unstarted();
        started
    }

    fn start_stream(&self, table: &mut StreamTable<E>, index: StreamIndex, head: StreamHead, started: &mut Started) {
        let high_water = head.seq;
        let started_at = table.start_now();
        let stream = table.stream_mut(index);
        stream.recent_ids.push_head(Some(head));
        stream.cursor = Some(high_water);
        stream.base = high_water;
        stream.started_at = Some(started_at);
        let (first_notified, wanted) = (stream.first_notified.take(), stream.wanted);
        let signals = stream.starting.drain(..);
        started
            .signals
            .extend(signals.map(|signal| (signal, StartPosition::One(high_water))));
        if let Some(first) = first_notified {
            self.on_late_notification(table, index, first);
        }
        if wanted > high_water {
            table.queue(index);
        }
    }

    /// Signals subscriptions their start. The caller must not hold a lock of the bus, because this calls wakers.
    pub(crate) fn signal(&self, started: Started) {
        let signals = started.signals.into_iter();
        StartSignal::set_all(signals.map(|(signal, start)| (signal, Ok(start))));
        self.publish_queue.flush();
        if !self.table.lock().doubts.is_empty() {
            (self.wakeup)(Work::Sweep); // the store's answer does not fit what was delivered
        }
        for (key, seqs) in started.notified {
            self.on_notification(&key, seqs);
        }
    }

    /// Returns `true` if subscriptions to all streams wait for a baseline.
    pub(crate) fn needs_baseline(&self) -> bool {
        let table = self.table.lock();
        table.all.subscriptions > 0 && matches!(table.all.baseline, Baseline::Missing)
    }

    /// Sets the baseline, at which subscriptions to all streams start. It consists of the last events of all streams, or is
    /// `None` if the store cannot list its streams.
    pub(crate) fn set_baseline(&self, listing: Option<HashMap<Arc<str>, StreamHead>>) -> Started {
        let mut started = Started::default();
        let mut table = self.table.lock();
        if !matches!(table.all.baseline, Baseline::Missing) {
            return started;
        }
        table.all.baseline = match listing {
            Some(mut listing) => {
                let known: Vec<_> = table
                    .indexed()
                    .map(|(index, stream)| (index, Arc::clone(&stream.key)))
                    .collect();
                for (index, key) in known {
                    let listed = listing.remove(&key).unwrap_or_default();
                    // From the listing, not from a later answer: subscriptions to all are owed the events in between.
                    if table.stream(index).cursor.is_none() {
                        self.start_stream(&mut table, index, listed, &mut started);
                    } else {
                        table.found_head(index, listed); // sweeps list only what changes later
                    }
                }
                table.retain_unstarted();
                Baseline::Complete(listing)
            }
            None => Baseline::Unknown,
        };
        table.all.started_at = Some(table.start_now());
        let start = StartPosition::All(table.snapshot());
        let signals = std::mem::take(&mut table.all.starting).into_iter();
        started.signals.extend(signals.map(|signal| (signal, start.clone())));
        // Notifications that came before the baseline are judged by it.
        started.notified = std::mem::take(&mut table.unverified);
        started
    }
}

/// Starts subscriptions after a number of a stream that has others: at the store's high-water mark, which may be ahead of the deliveries.
fn start_in_started_stream<E: Send + Sync + 'static>(
    table: &mut StreamTable<E>,
    index: StreamIndex,
    head: StreamHead,
    started: &mut Started,
) {
    let started_at = table.start_now();
    let stream = table.stream_mut(index);
    stream.started_at = Some(started_at);
    let signals = stream.starting.drain(..);
    started
        .signals
        .extend(signals.map(|signal| (signal, StartPosition::One(head.seq))));
    table.found_head(index, head);
}
