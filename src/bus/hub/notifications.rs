//! Doorbells: what they may move, and what they may not.
//!
//! Anybody can ring. A doorbell leads to a read, never to more than one at a time in a stream, and what is delivered is what the
//! store holds.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::StreamNoticeKind;
use super::stream::StreamSlot;
use super::table::{Baseline, Hub, Table};

/// What became of a doorbell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Announced {
    /// Its events will be read.
    News,
    /// Its events are delivered, or on their way.
    Known,
    /// Nobody here listens to its stream.
    NotSubscribed,
}

impl<E: Send + Sync + 'static> Hub<E> {
    /// A doorbell for some events of a stream, or a sweep's finding.
    pub(crate) fn announced(&self, key: &str, seqs: RangeInclusive<u64>) -> Announced {
        let mut table = self.table.lock();
        let heard = self.announced_locked(&mut table, key, seqs);
        drop(table);
        if heard == Announced::News {
            (self.wakeup)();
        }
        self.publish_queue.flush();
        heard
    }

    fn announced_locked(&self, table: &mut Table<E>, key: &str, seqs: RangeInclusive<u64>) -> Announced {
        let slot = match table.by_key.get(key) {
            Some(&slot) => slot,
            None if table.all.subscriptions == 0 => return Announced::NotSubscribed,
            None => match &mut table.all.baseline {
                Baseline::Complete(cold) if cold.contains_key(key) => {
                    let (key, cursor) = cold.remove_entry(key).expect("it is there");
                    let slot = table.insert(key, Some(cursor));
                    table.stream_mut(slot).started_at = table.all.started_at;
                    slot
                }
                _ => return self.announced_unknown(table, key, seqs),
            },
        };
        let stream = table.stream_mut(slot);
        stream.wanted = stream.wanted.max(*seqs.end());
        let Some(cursor) = stream.cursor else {
            stream.early = Some(stream.early.map_or(*seqs.start(), |early| early.min(*seqs.start())));
            return Announced::News;
        };
        if *seqs.start() <= cursor {
            self.lower(table, slot, *seqs.start());
        }
        if *seqs.end() <= cursor {
            return Announced::Known;
        }
        table.queue(slot);
        Announced::News
    }

    /// A stream reaches up to `high_water`, as a sweep has found. True if that is news.
    pub(crate) fn found(&self, key: &str, high_water: u64) -> bool {
        let mut table = self.table.lock();
        let table = &mut *table;
        if let Some(&slot) = table.by_key.get(key) {
            let stream = table.stream_mut(slot);
            let news = high_water > stream.wanted && stream.cursor.is_none_or(|cursor| high_water > cursor);
            stream.wanted = stream.wanted.max(high_water);
            if stream.cursor.is_some_and(|cursor| high_water > cursor) {
                table.queue(slot);
            }
            return news;
        }
        if table.all.subscriptions == 0 {
            return false;
        }
        match &mut table.all.baseline {
            Baseline::Complete(cold) => match cold.get_mut(key) {
                Some(cursor) if high_water <= *cursor => {
                    *cursor = high_water; // less only if the history is another one
                    false
                }
                _ => {
                    let cursor = cold.remove(key).unwrap_or(0);
                    if cursor == high_water {
                        return false;
                    }
                    let slot = table.insert(Arc::from(key), Some(cursor));
                    let started_at = table.all.started_at;
                    let stream = table.stream_mut(slot);
                    stream.started_at = started_at;
                    stream.wanted = high_water;
                    table.queue(slot);
                    true
                }
            },
            Baseline::Missing | Baseline::Unknown => false,
        }
    }

    fn announced_unknown(&self, table: &mut Table<E>, key: &str, seqs: RangeInclusive<u64>) -> Announced {
        if let Some(known) = table.unverified.get_mut(key) {
            let wider = *known.start().min(seqs.start())..=*known.end().max(seqs.end());
            let heard = if wider == *known {
                Announced::Known
            } else {
                Announced::News
            };
            *known = wider;
            return heard;
        }
        if table.unverified.len() < self.settings.pending_streams {
            table.unverified.insert(Arc::from(key), seqs);
        } else {
            table.sweep_wanted = true;
        }
        Announced::News
    }

    /// A doorbell rang for `first`, which is at or below the cursor. A subscription that has started since the last delivery has
    /// not had that event, and whoever rang means it to.
    pub(super) fn lower(&self, table: &mut Table<E>, slot: StreamSlot, first: u64) {
        let all_started_at = if table.all.subscriptions > 0 {
            table.all.started_at
        } else {
            0
        };
        let stream = table.stream(slot);
        let fresh = stream.started_at.max(all_started_at) > stream.delivered_at;
        let Some(delivered) = stream.cursor.filter(|&cursor| fresh && first <= cursor) else {
            return;
        };
        let to = first - 1;
        let tick = table.tick();
        let stream = table.stream_mut(slot);
        stream.delivered_at = tick;
        stream.lowered = Some(to);
        let era = stream.era;
        let item = StreamNoticeKind::Lowered { to, delivered }.on(slot, era);
        self.push(table, slot, vec![item]);
    }

    /// Whether something was announced that only a sweep can find. Asking takes the wish back.
    pub(crate) fn take_sweep_wanted(&self) -> bool {
        std::mem::take(&mut self.table.lock().sweep_wanted)
    }

    /// Asks the worker for a sweep.
    pub(crate) fn want_sweep(&self) {
        self.table.lock().sweep_wanted = true;
        (self.wakeup)();
    }
}
