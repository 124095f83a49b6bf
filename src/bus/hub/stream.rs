//! One stream that somebody here listens to.

use std::sync::Arc;

use super::recent::Recent;
use super::table::StartSignal;
use super::{Era, Item, StreamNoticeKind};
use crate::ring::Publisher;

/// Where a stream is in the table. Given again to another stream only when nobody has it any more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct StreamSlot(pub(crate) u32);

impl StreamSlot {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A stream, as a reader of its history needs it.
#[derive(Clone, Debug)]
pub(crate) struct StreamRef {
    pub(crate) slot: StreamSlot,
    pub(crate) key: Arc<str>,
    /// Goes up with every rewind, and is never given to two streams: what was read under another number is not to be used.
    pub(crate) version: u64,
}

pub(super) struct Stream<E: Send + Sync + 'static> {
    pub(super) key: Arc<str>,
    pub(super) version: u64,
    pub(super) era: Era,
    /// The ring of the subscriptions to this stream; none if there are only subscriptions to all.
    pub(super) feed: Option<Publisher<Item<E>>>,
    pub(super) subscriptions: usize,
    /// The number up to which everything has been delivered; none until the worker has asked the store.
    pub(super) cursor: Option<u64>,
    /// The cursor that the stream began with.
    pub(super) base: u64,
    /// The highest number that somebody has announced; more than the cursor means that there is something to read.
    pub(super) wanted: u64,
    /// The lowest number that was announced before the cursor was known.
    pub(super) early: Option<u64>,
    /// When a subscription last began here, and when an event was last delivered, by the table's clock.
    pub(super) started_at: u64,
    pub(super) delivered_at: u64,
    /// Where a late doorbell has last lowered fresh subscriptions to.
    pub(super) lowered: Option<u64>,
    pub(super) recent: Recent,
    /// Subscriptions that wait for the cursor.
    pub(super) starting: Vec<StartSignal>,
    /// Whether it is in the queue of streams to read.
    pub(super) queued: bool,
}

impl<E: Send + Sync + 'static> Stream<E> {
    pub(super) fn new(key: Arc<str>, version: u64, cursor: Option<u64>) -> Self {
        Self {
            key,
            version,
            era: Era::default(),
            feed: None,
            subscriptions: 0,
            cursor,
            base: cursor.unwrap_or(0),
            wanted: 0,
            early: None,
            started_at: 0,
            delivered_at: 0,
            lowered: None,
            recent: Recent::default(),
            starting: Vec::new(),
            queued: false,
        }
    }
}

impl StreamNoticeKind {
    pub(super) fn on<E>(self, slot: StreamSlot, era: Era) -> Item<E> {
        Item::StreamNotice(Arc::new(super::StreamNotice { slot, era, kind: self }))
    }
}
