//! What goes through the rings.

use std::sync::Arc;

use super::{PastRewind, StreamSlot};

/// Which of a stream's histories an item is of: the number of the rewind that brought it, as far as it fits; 0 for the first one.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Era(u32);

impl Era {
    pub(crate) fn of(rewind: &PastRewind) -> Self {
        // Only compared among the rewinds of one subscriber's lag.
        Self(rewind.number as u32)
    }
}

/// An item of a feed: mostly an event, so that is small and cheap to clone.
pub(crate) enum Item<E> {
    Event {
        slot: StreamSlot,
        era: Era,
        seq: u64,
        event: Arc<E>,
    },
    StreamNotice(Arc<StreamNotice>),
}

impl<E> Clone for Item<E> {
    fn clone(&self) -> Self {
        match self {
            Self::Event { slot, era, seq, event } => Self::Event {
                slot: *slot,
                era: *era,
                seq: *seq,
                event: Arc::clone(event),
            },
            Self::StreamNotice(notice) => Self::StreamNotice(Arc::clone(notice)),
        }
    }
}

impl<E> Item<E> {
    /// For how many events of its stream it stands.
    pub(crate) fn events(&self) -> u64 {
        match self {
            Self::Event { .. } => 1,
            Self::StreamNotice(notice) => match notice.kind {
                StreamNoticeKind::Undecodable { .. } => 1,
                StreamNoticeKind::Trimmed { after, through } => through - after,
                StreamNoticeKind::Rewound(_) | StreamNoticeKind::Lowered { .. } => 0,
            },
        }
    }
}

/// Something else that concerns a stream.
pub(crate) struct StreamNotice {
    pub(crate) slot: StreamSlot,
    pub(crate) era: Era,
    pub(crate) kind: StreamNoticeKind,
}

pub(crate) enum StreamNoticeKind {
    /// In the place of an event.
    Undecodable { seq: u64, reason: Arc<str> },
    /// Events above `after`, up to `through`, are gone from the store.
    Trimmed { after: u64, through: u64 },
    /// The store's history is another one.
    Rewound(PastRewind),
    /// A doorbell rang for an event at or before the start of a subscription: who has delivered nothing yet starts here. Says how
    /// far the stream was delivered, too: who has lagged may find nothing but such notices in the ring.
    Lowered { to: u64, delivered: u64 },
}
