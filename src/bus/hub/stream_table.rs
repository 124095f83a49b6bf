//! The hub's table of streams.

use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::lag_accounting::LagAccounting;
use super::late_notifications::{StartTime, Watermarks};
use super::publish_queue::QueuedItems;
use super::start_signal::StartSignal;
use super::stream::{Stream, StreamIndex, StreamRef};
use super::{Hub, PastRewind, RingItem};
use crate::ring::Publisher;
use crate::store::StreamHead;

pub(super) struct StreamTable<E: Send + Sync + 'static> {
    pub(super) by_key: HashMap<Arc<str>, StreamIndex>,
    pub(super) streams: Vec<Option<Stream<E>>>,
    pub(super) free: Vec<StreamIndex>,
    next_version: u64,
    /// Counts starts and deliveries, to decide which came first.
    clock: u64,
    pub(super) all: AllStreams<E>,
    /// Streams with something to read.
    pub(super) queue: VecDeque<StreamIndex>,
    /// The streams with a late notification, except those whose check is being decided.
    pub(super) late: VecDeque<StreamIndex>,
    /// The streams that are in doubt, except those that are being compared.
    pub(super) doubts: Vec<StreamIndex>,
    pub(super) watermarks: Watermarks,
    /// Events named by notifications, of streams that are not in the table. Used only while there are subscriptions to all.
    pub(super) unverified: HashMap<Arc<str>, RangeInclusive<u64>>,
    /// The latest rewinds, the oldest first.
    pub(super) rewinds: VecDeque<PastRewind>,
    /// Streams without a cursor.
    pub(super) unstarted: Vec<StreamIndex>,
    /// A notification could not be parsed, or the table had no room for it.
    pub(super) sweep_requested: bool,
    pub(super) closed: bool,
    /// The number of streams at which [`collect_if_grown`](Hub::collect_if_grown) collects.
    pub(super) collect_at: usize,
}

/// The subscriptions to all streams.
pub(super) struct AllStreams<E: Send + Sync + 'static> {
    pub(super) feed: Option<Publisher<RingItem<E>>>,
    pub(super) subscriptions: usize,
    pub(super) baseline: Baseline,
    /// Subscriptions that wait for the baseline.
    pub(super) starting: Vec<StartSignal>,
    /// When a subscription last started, by the table's clock.
    pub(super) started_at: Option<StartTime>,
    pub(super) lag_accounting: LagAccounting,
}

/// How far streams that are not in the table are delivered, that is, what they held when the first subscription to all started.
pub(super) enum Baseline {
    /// The store has not answered yet.
    Missing,
    /// These streams had these last events, and there were no others.
    Complete(HashMap<Arc<str>, StreamHead>),
    /// The store cannot list its streams. Their notifications determine where they begin.
    Unknown,
}

impl<E: Send + Sync + 'static> StreamTable<E> {
    pub(super) fn new() -> Self {
        Self {
            by_key: HashMap::new(),
            streams: Vec::new(),
            free: Vec::new(),
            next_version: 0,
            clock: 0,
            all: AllStreams {
                feed: None,
                subscriptions: 0,
                baseline: Baseline::Missing,
                starting: Vec::new(),
                started_at: None,
                lag_accounting: LagAccounting::starting_at(0),
            },
            queue: VecDeque::new(),
            late: VecDeque::new(),
            doubts: Vec::new(),
            watermarks: Watermarks::default(),
            unverified: HashMap::new(),
            rewinds: VecDeque::new(),
            unstarted: Vec::new(),
            sweep_requested: false,
            closed: false,
            collect_at: 64,
        }
    }

    pub(super) fn stream(&self, index: StreamIndex) -> &Stream<E> {
        self.streams[index.as_usize()].as_ref().expect("the index is in use")
    }

    pub(super) fn stream_mut(&mut self, index: StreamIndex) -> &mut Stream<E> {
        self.streams[index.as_usize()].as_mut().expect("the index is in use")
    }

    /// Returns the stream in a index, unless it is now another stream or has another history.
    pub(super) fn current(&mut self, index: StreamIndex, version: u64) -> Option<&mut Stream<E>> {
        self.streams
            .get_mut(index.as_usize())?
            .as_mut()
            .filter(|stream| stream.version == version)
    }

    pub(super) fn new_version(&mut self) -> u64 {
        self.next_version += 1;
        self.next_version
    }

    pub(super) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Adds a stream that is delivered up to `head`.
    pub(super) fn insert(&mut self, key: Arc<str>, head: Option<StreamHead>) -> StreamIndex {
        let version = self.new_version();
        let stream = Stream::new(Arc::clone(&key), version, head);
        let index = match self.free.pop() {
            Some(index) => {
                self.streams[index.as_usize()] = Some(stream);
                index
            }
            None => {
                let index = StreamIndex(u32::try_from(self.streams.len()).expect("fewer than 2^32 streams"));
                self.streams.push(Some(stream));
                index
            }
        };
        self.by_key.insert(key, index);
        index
    }

    /// Adds a stream for the subscriptions to all. They started before it was known.
    pub(super) fn insert_for_all(&mut self, key: Arc<str>, head: StreamHead) -> StreamIndex {
        let index = self.insert(key, Some(head));
        let started_at = self.all.started_at.clone();
        self.stream_mut(index).started_at = started_at;
        index
    }

    /// Queues a stream for reading.
    pub(super) fn queue(&mut self, index: StreamIndex) {
        let stream = self.stream_mut(index);
        if !stream.queued {
            stream.queued = true;
            self.queue.push_back(index);
        }
    }

    /// Handles the store's last event of a stream: what it shows beyond the cursor is read. If it is another event than the one that was
    /// delivered with that number, the stream is in doubt.
    pub(super) fn found_head(&mut self, index: StreamIndex, head: StreamHead) {
        let stream = self.stream_mut(index);
        stream.wanted = stream.wanted.max(head.seq);
        // If the store has fewer events than were delivered, the next sweep decides.
        stream.must_sweep = stream.cursor.is_some_and(|cursor| cursor > head.seq);
        let is_other = match (stream.recent_ids.get(head.seq), head.id) {
            (Some(delivered), Some(stored)) => delivered != stored,
            _ => false,
        };
        if stream.cursor == Some(head.seq) {
            stream.recent_ids.push_head(Some(head));
        }
        if is_other {
            self.doubt(index);
        } else if stream.read_after().is_some() {
            self.queue(index);
        }
    }

    /// Removes from `unstarted` the streams that have a cursor now, and no subscription that waits for its start.
    pub(super) fn retain_unstarted(&mut self) {
        let streams = &self.streams;
        let is_unstarted = |index: &StreamIndex| {
            streams[index.as_usize()]
                .as_ref()
                .is_some_and(|stream| stream.cursor.is_none() || !stream.starting.is_empty())
        };
        self.unstarted.retain(is_unstarted);
    }

    /// Returns the number of the last rewind.
    pub(super) fn last_rewind(&self) -> u64 {
        self.rewinds.back().map_or(0, |last| last.number)
    }

    /// Returns the number in each stream after which a subscription to all that starts now begins.
    pub(super) fn snapshot(&self) -> Arc<[u64]> {
        self.streams
            .iter()
            .map(|stream| stream.as_ref().and_then(|stream| stream.cursor).unwrap_or(UNSET))
            .collect()
    }

    pub(super) fn indexed(&self) -> impl Iterator<Item = (StreamIndex, &Stream<E>)> {
        self.streams
            .iter()
            .enumerate()
            .filter_map(|(index, stream)| Some((StreamIndex(u32::try_from(index).ok()?), stream.as_ref()?)))
    }
}

/// Stands in place of a number if the subscription to all has no start in this stream.
pub(crate) const UNSET: u64 = u64::MAX;

impl<E: Send + Sync + 'static> Hub<E> {
    /// Queues items for publishing to the stream's ring and to the ring of all streams.
    pub(super) fn push(&self, table: &mut StreamTable<E>, index: StreamIndex, items: Vec<RingItem<E>>) {
        if let Some(feed) = &table.all.feed {
            let oldest = feed.next_seq().saturating_sub(feed.capacity() as u64);
            table.all.lag_accounting.record(&items, oldest);
        }
        self.publish_queue.push(QueuedItems {
            feeds: [table.stream(index).feed.clone(), table.all.feed.clone()],
            items,
        });
    }

    /// Returns the number of events minus the number of items in the ring of all streams before a position. May include later
    /// items that are already overwritten.
    pub(crate) fn surplus_before(&self, position: u64) -> i128 {
        self.table.lock().all.lag_accounting.surplus_before(position)
    }

    /// The stream in a index from which a subscription has received an item.
    pub(crate) fn stream_ref(&self, index: StreamIndex) -> StreamRef {
        self.table.lock().stream(index).reference(index)
    }

    /// Returns the number after which a subscription to all starts in a stream that it did not know.
    pub(crate) fn base(&self, index: StreamIndex) -> u64 {
        self.table.lock().stream(index).base
    }

    /// Returns a stream, and the number up to which it is delivered.
    pub(crate) fn delivered_stream(&self, index: StreamIndex) -> (StreamRef, u64) {
        let table = self.table.lock();
        let stream = table.stream(index);
        (stream.reference(index), stream.cursor.unwrap_or(0))
    }

    /// Returns `true` if the stream was delivered beyond number `at`. A read of history after it has found nothing: a sweep compares the
    /// store with what was delivered.
    pub(crate) fn on_empty_history(&self, index: StreamIndex, at: u64) -> bool {
        let mut table = self.table.lock();
        let stream = table.stream_mut(index);
        let is_beyond = stream.cursor.is_some_and(|cursor| cursor > at);
        stream.must_sweep |= is_beyond;
        drop(table);
        if is_beyond {
            self.request_sweep();
        }
        is_beyond
    }

    /// Returns, for every stream, how far it is delivered, and the lowest number to which a subscription that has attached at
    /// `attached_at` was [lowered](super::StreamNoticeKind::Lowered).
    pub(crate) fn delivered(&self, attached_at: u64) -> Vec<(StreamIndex, u64, Option<u64>)> {
        let table = self.table.lock();
        let delivered = |(index, stream): (StreamIndex, &Stream<E>)| {
            Some((index, stream.cursor?, stream.lowerings.since(attached_at)))
        };
        table.indexed().filter_map(delivered).collect()
    }

    /// Returns the lowest number to which a subscription that has attached at `attached_at` was
    /// [lowered](super::StreamNoticeKind::Lowered).
    pub(crate) fn lowered(&self, index: StreamIndex, attached_at: u64) -> Option<u64> {
        self.table.lock().stream(index).lowerings.since(attached_at)
    }
}
