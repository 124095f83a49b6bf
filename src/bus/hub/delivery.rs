//! Decides what to read from the store, and which of the records are delivered to the rings.

use std::sync::Arc;

use super::stream::{Stream, StreamIndex};
use super::stream_table::{Baseline, StreamTable};
use super::{Hub, RingItem, StreamNoticeKind, Work};
use crate::bus::StreamEvent;
use crate::event::foreign;
use crate::store::{Page, Record, StreamHead};

/// A range of a stream to read.
#[derive(Debug)]
pub(crate) struct PendingRead {
    pub(crate) key: Arc<str>,
    pub(crate) after: u64,
    pub(super) target: Target,
    /// The highest number that notifications or sweeps have named.
    pub(super) through: u64,
    /// Whether the store was just found to have the last delivered event.
    pub(super) is_confirmed: bool,
}

#[derive(Debug)]
pub(super) enum Target {
    Stream {
        index: StreamIndex,
        version: u64,
    },
    /// The stream is not in the table. Only the store can determine whether it exists.
    Unverified,
}

/// The result of a delivery.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Delivered {
    /// The number of events that were delivered.
    pub(crate) events: u64,
    /// 1 if a notification named an event that the store does not have, else 0.
    pub(crate) unfounded: u64,
}

impl<E: StreamEvent> Hub<E> {
    /// Takes the next reads, of at most `max` streams that are `wanted`. The caller [delivers](Self::deliver) their pages, or puts the
    /// reads back.
    pub(crate) fn take_reads(&self, max: usize, wanted: impl Fn(&str) -> bool) -> Vec<PendingRead> {
        let mut table = self.table.lock();
        let table = &mut *table;
        let mut reads = Vec::new();
        let mut unwanted = Vec::new();
        while reads.len() < max {
            let Some(index) = table.queue.pop_front() else { break };
            let stream = table.stream_mut(index);
            if !wanted(&stream.key) {
                unwanted.push(index);
                continue;
            }
            stream.queued = false;
            let Some(cursor) = stream.cursor else { continue };
            if let Some(after) = stream.read_after() {
                let through = std::mem::replace(&mut stream.wanted, cursor);
                let target = Target::Stream {
                    index,
                    version: stream.version,
                };
                reads.push(PendingRead {
                    key: Arc::clone(&stream.key),
                    after,
                    target,
                    through,
                    is_confirmed: stream.take_confirmation(),
                });
            }
        }
        for index in unwanted.into_iter().rev() {
            table.queue.push_front(index);
        }
        if matches!(table.all.baseline, Baseline::Missing) {
            return reads; // it is not known yet where unknown streams start
        }
        let complete = matches!(table.all.baseline, Baseline::Complete(_));
        let room = max - reads.len();
        let keys: Vec<_> = table
            .unverified
            .keys()
            .filter(|key| wanted(key))
            .take(room)
            .cloned()
            .collect();
        for key in keys {
            let seqs = table.unverified.remove(&key).expect("the key was just listed");
            // The complete baseline lacks this stream, so it was empty then, and all of it is to be delivered.
            let after = if complete { 0 } else { seqs.start() - 1 };
            reads.push(PendingRead {
                key,
                after,
                target: Target::Unverified,
                through: *seqs.end(),
                is_confirmed: false,
            });
        }
        reads
    }

    /// Delivers a page that was read for `read`, with at most `limit` records.
    pub(crate) fn deliver(&self, read: PendingRead, page: Page<E>, limit: usize) -> Delivered {
        let Page {
            records,
            low_water,
            low_water_id,
            more,
        } = page;
        let removed = StreamHead {
            seq: low_water,
            id: low_water_id,
        };
        let mut records = foreign::DropLater(records);
        let mut table = self.table.lock();
        let index = match read.target {
            Target::Stream { index, version } => match table.current(index, version) {
                Some(_) => index,
                None => return Delivered::default(), // rewound or removed in the meantime
            },
            Target::Unverified => match table.by_key.get(&read.key) {
                Some(&index) => index,
                None if table.all.subscriptions == 0 => return Delivered::default(),
                // The stream does not exist. It gets no entry, or false notifications would fill the table.
                None if records.0.is_empty() && low_water <= read.after && !more => {
                    return Delivered {
                        events: 0,
                        unfounded: 1,
                    };
                }
                None => {
                    let id = None;
                    table.insert_for_all(read.key, StreamHead { seq: read.after, id })
                }
            },
        };
        let stream = table.stream_mut(index);
        if stream.late.is_some() || stream.is_in_doubt() {
            // A late notification has come since, and its events go before the others; or a doubt.
            stream.wanted = stream.wanted.max(read.through);
            return Delivered::default();
        }
        let is_full = more || records.0.len() >= limit;
        let mut items = Vec::with_capacity(records.0.len());
        let stream = table.stream_mut(index);
        // The page shows what the store has after `read.after`, so a number that it lacks is missing in the store.
        let shows_gaps = stream.cursor.is_some_and(|cursor| read.after <= cursor);
        let confirmed = read.is_confirmed.then_some(read.after);
        let mut events = 0;
        let mut follows = true;
        for record in std::mem::take(&mut records.0) {
            follows = follows && stream.may_be_followed_by(&record, low_water, events > 0, confirmed);
            if !follows {
                records.0.push(record);
                continue;
            }
            if shows_gaps {
                pass_gap(stream, index, record.seq.saturating_sub(1), removed, &mut items);
            }
            match accept_next(stream, index, record, &mut items) {
                Ok(()) => events += 1,
                Err(record) => records.0.push(record),
            }
        }
        if follows && (!is_full || !shows_gaps) {
            pass_gap(stream, index, low_water, removed, &mut items);
        }
        let mut unfounded = 0;
        if is_full || !shows_gaps || !follows {
            stream.wanted = stream.wanted.max(read.through); // the rest is in the next page
        } else if stream.cursor.is_some_and(|cursor| cursor < read.through) {
            // The server that has answered may lack it. The sweep that has named it does not name it again.
            stream.must_sweep = true;
            unfounded = 1;
        }
        if !follows {
            table.doubt(index);
        }
        self.send(&mut table, index, items);
        drop(table);
        self.publish_queue.flush();
        if !follows {
            (self.wakeup)(Work::Sweep);
        }
        Delivered { events, unfounded }
    }

    /// Enqueues an event that this process has appended itself. If it is the next of a stream that has subscriptions, the next
    /// [`flush`](Self::flush) delivers it, and this method returns true. Otherwise, the event is read from the store like any
    /// other.
    ///
    /// `record` creates the event's record, which clones it. It is called only if the stream has subscriptions.
    pub(crate) fn enqueue(&self, key: &str, seq: u64, record: impl FnOnce() -> Record<E>) -> bool {
        let has_subscriptions = {
            let table = self.table.lock();
            table.all.subscriptions > 0 || table.by_key.contains_key(key)
        };
        if !has_subscriptions {
            return false;
        }
        let mut record = foreign::DropLater(vec![record()]);
        let mut table = self.table.lock();
        let index = match table.by_key.get(key) {
            Some(&index) => index,
            None if table.all.subscriptions == 0 => return false,
            None => {
                let Baseline::Complete(untracked) = &mut table.all.baseline else {
                    drop(table);
                    self.on_notification(key, seq..=seq);
                    return false;
                };
                let head = untracked.remove(key).unwrap_or_default();
                table.insert_for_all(Arc::from(key), head)
            }
        };
        let stream = table.stream_mut(index);
        let is_next = stream.cursor.and_then(|cursor| cursor.checked_add(1)) == Some(seq)
            && record
                .0
                .iter()
                .all(|record| stream.may_be_followed_by(record, 0, false, None));
        if !is_next || stream.late.is_some() || stream.is_in_doubt() {
            drop(table);
            self.on_notification(key, seq..=seq);
            return false;
        }
        let mut items = Vec::with_capacity(1);
        let refused = record
            .0
            .pop()
            .and_then(|record| accept_next(stream, index, record, &mut items).err());
        record.0.extend(refused);
        self.send(&mut table, index, items);
        true
    }

    /// Publishes the [enqueued](Self::enqueue) events.
    pub(crate) fn flush(&self) {
        self.publish_queue.flush();
    }

    /// Queues items for publishing, and the stream for reading if more of it is wanted.
    pub(super) fn send(&self, table: &mut StreamTable<E>, index: StreamIndex, items: Vec<RingItem<E>>) {
        if !items.is_empty() {
            let tick = table.tick();
            table.stream_mut(index).delivered_at = tick;
            self.push(table, index, items);
        }
        let stream = table.stream(index);
        if stream.read_after().is_some() {
            table.queue(index);
        }
    }
}

/// Advances a stream's cursor to `through`, and adds the notice that the events up to there are missing in the store. `removed` is the last
/// event that retention has removed.
fn pass_gap<E: StreamEvent>(
    stream: &mut Stream<E>,
    index: StreamIndex,
    through: u64,
    removed: StreamHead,
    items: &mut Vec<RingItem<E>>,
) {
    if let Some(after) = stream.cursor.filter(|&cursor| cursor < through) {
        stream.cursor = Some(through);
        stream
            .recent_ids
            .push_head(Some(removed).filter(|removed| removed.seq == through));
        items.push(StreamNoticeKind::Missing { after, through }.on(index, stream.era));
    }
}

/// Accepts a record if it is the next of its stream, and returns it otherwise. This is the only place where an event enters a ring.
fn accept_next<E: StreamEvent>(
    stream: &mut Stream<E>,
    index: StreamIndex,
    record: Record<E>,
    items: &mut Vec<RingItem<E>>,
) -> Result<(), Record<E>> {
    if stream
        .cursor
        .is_none_or(|cursor| cursor.checked_add(1) != Some(record.seq))
    {
        return Err(record);
    }
    let Record { seq, id, event, .. } = record;
    stream.cursor = Some(seq);
    if let Some(id) = id {
        stream.recent_ids.push(seq, id);
    }
    items.push(match event {
        Ok(event) => RingItem::Event {
            index,
            era: stream.era,
            seq,
            event: Arc::new(event),
        },
        Err(error) => StreamNoticeKind::Undecodable {
            seq,
            reason: error.reason.into(),
        }
        .on(index, stream.era),
    });
    Ok(())
}
