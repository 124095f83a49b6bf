//! From where subscriptions start: what the store held when the worker asked.

use std::collections::HashMap;
use std::sync::Arc;

use super::stream::{StreamRef, StreamSlot};
use super::table::{Baseline, Hub, StartPosition, StartSignal, Table};

impl<E: Send + Sync + 'static> Hub<E> {
    /// Streams whose high-water the worker has to ask for.
    pub(crate) fn unstarted(&self, max: usize) -> Vec<StreamRef> {
        let table = self.table.lock();
        let slots = table.unstarted.iter().take(max);
        slots
            .map(|&slot| {
                let stream = table.stream(slot);
                StreamRef {
                    slot,
                    key: Arc::clone(&stream.key),
                    version: stream.version,
                }
            })
            .collect()
    }

    /// Somebody wants all that the store holds of a stream now, also what nobody has rung for.
    pub(crate) fn check(&self, stream: &StreamRef) {
        let mut table = self.table.lock();
        let live = table
            .current(stream.slot, stream.version)
            .is_some_and(|stream| stream.cursor.is_some());
        if live && !table.unchecked.contains(&stream.slot) {
            table.unchecked.push(stream.slot);
            drop(table);
            (self.wakeup)();
        }
    }

    /// Streams whose high-water mark the worker has to ask for, and to tell as [found](Self::found).
    pub(crate) fn take_unchecked(&self, max: usize) -> Vec<StreamRef> {
        let mut table = self.table.lock();
        let now = table.unchecked.len().min(max);
        let slots: Vec<_> = table.unchecked.drain(..now).collect();
        let streams = slots.into_iter().filter_map(|slot| {
            let stream = table.streams.get(slot.index())?.as_ref()?;
            Some(StreamRef {
                slot,
                key: Arc::clone(&stream.key),
                version: stream.version,
            })
        });
        streams.collect()
    }

    /// The high-water marks of streams that had no cursor: their subscriptions start there.
    pub(crate) fn start(&self, high_waters: impl IntoIterator<Item = (StreamRef, u64)>) {
        let mut opened = Vec::new();
        let mut table = self.table.lock();
        for (StreamRef { slot, version, .. }, high_water) in high_waters {
            if table
                .current(slot, version)
                .is_some_and(|stream| stream.cursor.is_none())
            {
                self.start_stream(&mut table, slot, high_water, &mut opened);
            }
        }
        table.forget_started();
        drop(table);
        self.open(opened);
    }

    fn start_stream(
        &self,
        table: &mut Table<E>,
        slot: StreamSlot,
        high_water: u64,
        opened: &mut Vec<(StartSignal, StartPosition)>,
    ) {
        let tick = table.tick();
        let stream = table.stream_mut(slot);
        stream.cursor = Some(high_water);
        stream.base = high_water;
        stream.started_at = tick;
        let (early, wanted) = (stream.early.take(), stream.wanted);
        opened.extend(
            stream
                .starting
                .drain(..)
                .map(|gate| (gate, StartPosition::One(high_water))),
        );
        if let Some(first) = early {
            self.lower(table, slot, first);
        }
        if wanted > high_water {
            table.queue(slot);
        }
    }

    /// Without the table's lock.
    fn open(&self, gates: Vec<(StartSignal, StartPosition)>) {
        for (gate, start) in gates {
            gate.set(Ok(start));
        }
        self.publish_queue.flush();
    }

    /// Whether somebody listens to all streams, and waits for a baseline.
    pub(crate) fn baseline_wanted(&self) -> bool {
        let table = self.table.lock();
        table.all.subscriptions > 0 && matches!(table.all.baseline, Baseline::Missing)
    }

    /// Whether somebody listens to all streams.
    pub(crate) fn listens_to_all(&self) -> bool {
        self.table.lock().all.subscriptions > 0
    }

    /// All streams of the store and their high-water marks, or that the store does not know: subscriptions to all start there.
    pub(crate) fn set_baseline(&self, listing: Option<HashMap<Arc<str>, u64>>) {
        let mut table = self.table.lock();
        if !matches!(table.all.baseline, Baseline::Missing) {
            return;
        }
        let mut opened = Vec::new();
        table.all.baseline = match listing {
            Some(mut cold) => {
                let known: Vec<_> = table
                    .slots()
                    .map(|(slot, stream)| (slot, Arc::clone(&stream.key)))
                    .collect();
                for (slot, key) in known {
                    let listed = cold.remove(&key).unwrap_or(0);
                    // From the listing, not from a later answer: events in between are owed to the subscriptions to all.
                    if table.stream(slot).cursor.is_none() {
                        self.start_stream(&mut table, slot, listed, &mut opened);
                    }
                }
                table.forget_started();
                Baseline::Complete(cold)
            }
            None => Baseline::Unknown,
        };
        table.all.started_at = table.tick();
        let start = StartPosition::All(table.snapshot());
        opened.extend(
            std::mem::take(&mut table.all.starting)
                .into_iter()
                .map(|gate| (gate, start.clone())),
        );
        let early = std::mem::take(&mut table.unverified);
        drop(table);
        self.open(opened);
        for (key, seqs) in early {
            self.announced(&key, seqs);
        }
    }
}
