//! From the store to the rings: what to read, and what of it goes out.

use std::sync::Arc;

use super::stream::{Stream, StreamRef, StreamSlot};
use super::table::{Baseline, Hub, PendingRead, Table, Target};
use super::{Item, StreamNoticeKind};
use crate::bus::StreamEvent;
use crate::store::{EventId, Page, Record};

/// How far a stream is delivered.
#[derive(Clone, Debug)]
pub(crate) struct DeliveryCursor {
    pub(crate) stream: StreamRef,
    pub(crate) seq: u64,
    /// The identity of the event there, if it is known.
    pub(crate) id: Option<EventId>,
}

/// What became of a page.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Delivered {
    /// Events that went out.
    pub(crate) events: u64,
    /// Announced events that the store does not have.
    pub(crate) unfounded: u64,
}

impl<E: StreamEvent> Hub<E> {
    /// What to read next, of at most `max` streams.
    pub(crate) fn take_reads(&self, max: usize) -> Vec<PendingRead> {
        let mut table = self.table.lock();
        let table = &mut *table;
        let mut ranges = Vec::new();
        while ranges.len() < max {
            let Some(slot) = table.queue.pop_front() else { break };
            let stream = table.stream_mut(slot);
            stream.queued = false;
            let Some(cursor) = stream.cursor else { continue };
            if stream.wanted > cursor {
                let asked = std::mem::replace(&mut stream.wanted, cursor);
                let target = Target::Stream {
                    slot,
                    version: stream.version,
                };
                ranges.push(PendingRead {
                    key: Arc::clone(&stream.key),
                    after: cursor,
                    target,
                    asked,
                });
            }
        }
        if matches!(table.all.baseline, Baseline::Missing) {
            return ranges;
        }
        let complete = matches!(table.all.baseline, Baseline::Complete(_));
        let room = max - ranges.len();
        let keys: Vec<_> = table.unverified.keys().take(room).cloned().collect();
        for key in keys {
            let seqs = table.unverified.remove(&key).expect("it is there");
            let after = if complete { 0 } else { seqs.start() - 1 };
            ranges.push(PendingRead {
                key,
                after,
                target: Target::Unverified,
                asked: *seqs.end(),
            });
        }
        ranges
    }

    /// The ranges could not be read: they are wanted as before.
    pub(crate) fn put_back(&self, ranges: Vec<PendingRead>) {
        let mut table = self.table.lock();
        for PendingRead {
            key,
            after,
            target,
            asked,
        } in ranges
        {
            match target {
                Target::Stream { slot, version } => {
                    let Some(stream) = table.current(slot, version) else {
                        continue;
                    };
                    stream.wanted = stream.wanted.max(asked);
                    table.queue(slot);
                }
                Target::Unverified if table.all.subscriptions > 0 => {
                    let seqs = table.unverified.entry(key).or_insert(after + 1..=asked);
                    *seqs = (after + 1).min(*seqs.start())..=asked.max(*seqs.end());
                }
                Target::Unverified => {}
            }
        }
    }

    /// A page that was read for `range`, with at most `limit` records.
    pub(crate) fn deliver(&self, range: PendingRead, page: Page<E>, limit: usize) -> Delivered {
        let mut table = self.table.lock();
        let slot = match range.target {
            Target::Stream { slot, version } => match table.current(slot, version) {
                Some(_) => slot,
                None => return Delivered::default(), // rewound or forgotten meanwhile
            },
            Target::Unverified => match table.by_key.get(&range.key) {
                Some(&slot) => slot,
                None if table.all.subscriptions == 0 => return Delivered::default(),
                None if page.records.is_empty() && page.low_water <= range.after => {
                    return Delivered {
                        events: 0,
                        unfounded: 1,
                    };
                }
                None => {
                    let slot = table.insert(range.key, Some(range.after));
                    table.stream_mut(slot).started_at = table.all.started_at;
                    slot
                }
            },
        };
        let full = page.records.len() >= limit;
        let mut items = Vec::with_capacity(page.records.len());
        let stream = table.stream_mut(slot);
        if let Some(cursor) = stream.cursor
            && page.low_water > cursor
        {
            stream.cursor = Some(page.low_water);
            items.push(
                StreamNoticeKind::Trimmed {
                    after: cursor,
                    through: page.low_water,
                }
                .on(slot, stream.era),
            );
        }
        let mut events = 0;
        for record in page.records {
            events += u64::from(take_next(stream, slot, record, &mut items));
        }
        let mut unfounded = 0;
        if full {
            stream.wanted = stream.wanted.max(range.asked);
        } else if stream.cursor.is_some_and(|cursor| cursor < range.asked) {
            unfounded = 1;
        }
        self.send(&mut table, slot, items);
        drop(table);
        self.publish_queue.flush();
        Delivered { events, unfounded }
    }

    /// An event that this process has appended itself. Goes out with the next [`flush`](Self::flush) if it is the next of a stream
    /// that somebody listens to, else it is read from the store like any other. True if it goes out.
    pub(crate) fn enqueue(&self, key: &str, record: &Record<E>) -> bool {
        let seq = record.seq;
        let mut table = self.table.lock();
        let slot = match table.by_key.get(key) {
            Some(&slot) => slot,
            None if table.all.subscriptions == 0 => return false,
            None => {
                let Baseline::Complete(cold) = &mut table.all.baseline else {
                    drop(table);
                    self.announced(key, seq..=seq);
                    return false;
                };
                let cursor = cold.remove(key).unwrap_or(0);
                let slot = table.insert(Arc::from(key), Some(cursor));
                table.stream_mut(slot).started_at = table.all.started_at;
                slot
            }
        };
        let stream = table.stream_mut(slot);
        if stream.cursor.and_then(|cursor| cursor.checked_add(1)) != Some(seq) {
            drop(table);
            self.announced(key, seq..=seq);
            return false;
        }
        let mut items = Vec::with_capacity(1);
        take_next(stream, slot, record.clone(), &mut items);
        self.send(&mut table, slot, items);
        true
    }

    /// Publishes what is [enqueued](Self::enqueue).
    pub(crate) fn flush(&self) {
        self.publish_queue.flush();
    }

    pub(super) fn send(&self, table: &mut Table<E>, slot: StreamSlot, items: Vec<Item<E>>) {
        if !items.is_empty() {
            let tick = table.tick();
            table.stream_mut(slot).delivered_at = tick;
            self.push(table, slot, items);
        }
        let stream = table.stream(slot);
        if stream.cursor.is_some_and(|cursor| stream.wanted > cursor) {
            table.queue(slot);
        }
    }

    /// How far each stream is delivered, and what is known of the event there. All streams, or those that have subscriptions
    /// of their own.
    pub(crate) fn cursors(&self, all: bool) -> Vec<DeliveryCursor> {
        let table = self.table.lock();
        table
            .slots()
            .filter(|(_, stream)| all || stream.subscriptions > 0)
            .filter_map(|(slot, stream)| {
                let seq = stream.cursor?;
                let id = stream.recent.at(seq);
                let stream = StreamRef {
                    slot,
                    key: Arc::clone(&stream.key),
                    version: stream.version,
                };
                Some(DeliveryCursor { stream, seq, id })
            })
            .collect()
    }
}

/// Takes a record if it is the next of its stream.
fn take_next<E: StreamEvent>(
    stream: &mut Stream<E>,
    slot: StreamSlot,
    record: Record<E>,
    items: &mut Vec<Item<E>>,
) -> bool {
    let Record { seq, id, event, .. } = record;
    if stream.cursor.is_none_or(|cursor| cursor.checked_add(1) != Some(seq)) {
        return false;
    }
    stream.cursor = Some(seq);
    if let Some(id) = id {
        stream.recent.note(seq, id);
    }
    items.push(match event {
        Ok(event) => Item::Event {
            slot,
            era: stream.era,
            seq,
            event: Arc::new(event),
        },
        Err(error) => StreamNoticeKind::Undecodable {
            seq,
            reason: error.reason.into(),
        }
        .on(slot, stream.era),
    });
    true
}
