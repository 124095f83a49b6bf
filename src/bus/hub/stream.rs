//! The state of one stream in the table.

use std::sync::Arc;

use super::continuity::Continuity;
use super::late_notifications::StartTime;
use super::lowerings::Lowerings;
use super::recent_ids::RecentIds;
use super::start_signal::StartSignal;
use super::{Era, RingItem, StreamNotice, StreamNoticeKind};
use crate::ring::Publisher;
use crate::store::StreamHead;

/// A stream's place in the table. It is reused for another stream only when no subscription refers to it any more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct StreamIndex(pub(crate) u32);

impl StreamIndex {
    pub(crate) fn as_usize(self) -> usize {
        self.0 as usize
    }
}

/// Identifies a stream and its history.
#[derive(Clone, Debug)]
pub(crate) struct StreamRef {
    pub(crate) index: StreamIndex,
    pub(crate) key: Arc<str>,
    /// Changes with every rewind, and is unique among all streams. Records that were read under another version must not be used.
    pub(crate) version: u64,
}

pub(super) struct Stream<E: Send + Sync + 'static> {
    pub(super) key: Arc<str>,
    pub(super) version: u64,
    pub(super) era: Era,
    /// The ring of the subscriptions to this stream, or `None` if there are only subscriptions to all.
    pub(super) feed: Option<Publisher<RingItem<E>>>,
    pub(super) subscriptions: usize,
    /// The number up to which everything has been delivered, or `None` until the store's high-water mark is known.
    pub(super) cursor: Option<u64>,
    /// The first value of `cursor`.
    pub(super) base: u64,
    /// The highest number that a notification or a sweep has named. Above the cursor there is something to read.
    pub(super) wanted: u64,
    /// The lowest number that was named by a notification before the cursor was known.
    pub(super) first_notified: Option<u64>,
    /// When a subscription last started here, and when an event was last delivered, by the table's clock.
    pub(super) started_at: Option<StartTime>,
    pub(super) delivered_at: u64,
    pub(super) lowerings: Lowerings,
    /// The lowest number of the late notifications that wait for a check. Nothing is delivered before.
    pub(super) late: Option<u64>,
    /// The lowest number that a late notification may lower to, for the start with this tick.
    pub(super) recent_from: Option<(u64, u64)>,
    pub(super) recent_ids: RecentIds,
    pub(super) continuity: Continuity,
    /// Subscriptions that wait for the cursor.
    pub(super) starting: Vec<StartSignal>,
    /// The store has lacked events that were named or delivered. The next sweep asks for the stream's high-water mark, even if there are
    /// only subscriptions to all.
    pub(super) must_sweep: bool,
    /// Whether the stream is in the queue of streams to read.
    pub(super) queued: bool,
}

impl<E: Send + Sync + 'static> Stream<E> {
    pub(super) fn new(key: Arc<str>, version: u64, head: Option<StreamHead>) -> Self {
        let cursor = head.map(|head| head.seq);
        let mut recent_ids = RecentIds::default();
        recent_ids.push_head(head);
        Self {
            key,
            version,
            era: Era::default(),
            feed: None,
            subscriptions: 0,
            cursor,
            base: cursor.unwrap_or(0),
            wanted: 0,
            first_notified: None,
            started_at: None,
            delivered_at: 0,
            lowerings: Lowerings::default(),
            late: None,
            recent_from: None,
            recent_ids,
            continuity: Continuity::default(),
            starting: Vec::new(),
            must_sweep: false,
            queued: false,
        }
    }

    pub(super) fn reference(&self, index: StreamIndex) -> StreamRef {
        StreamRef {
            index,
            key: Arc::clone(&self.key),
            version: self.version,
        }
    }
}

impl StreamNoticeKind {
    pub(super) fn on<E>(self, index: StreamIndex, era: Era) -> RingItem<E> {
        RingItem::StreamNotice(Arc::new(StreamNotice { index, era, kind: self }))
    }
}
