//! The items that the rings carry to subscriptions.

use std::sync::Arc;

use super::{PastRewind, StreamIndex};

/// Identifies one of a stream's histories: the number of the rewind that introduced it, truncated; 0 for the first one.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Era(u32);

impl Era {
    pub(crate) fn of(rewind: &PastRewind) -> Self {
        // Compared only among the rewinds of one subscriber's lag, so 32 bits are enough.
        Self(rewind.number as u32)
    }
}

/// An item of a feed. Most are events, so events are small and cheap to clone.
pub(crate) enum RingItem<E> {
    Event {
        index: StreamIndex,
        era: Era,
        seq: u64,
        event: Arc<E>,
    },
    StreamNotice(Arc<StreamNotice>),
}

impl<E> Clone for RingItem<E> {
    fn clone(&self) -> Self {
        match self {
            Self::Event { index, era, seq, event } => Self::Event {
                index: *index,
                era: *era,
                seq: *seq,
                event: Arc::clone(event),
            },
            Self::StreamNotice(notice) => Self::StreamNotice(Arc::clone(notice)),
        }
    }
}

impl<E> RingItem<E> {
    /// Returns the number of events that the item stands for.
    pub(crate) fn events(&self) -> u64 {
        match self {
            Self::Event { .. } => 1,
            Self::StreamNotice(notice) => match notice.kind {
                StreamNoticeKind::Undecodable { .. } => 1,
                StreamNoticeKind::Missing { after, through } => through - after,
                StreamNoticeKind::Rewound(_) | StreamNoticeKind::Lowered { .. } => 0,
            },
        }
    }
}

/// A change of a stream that is not an event.
pub(crate) struct StreamNotice {
    pub(crate) index: StreamIndex,
    pub(crate) era: Era,
    pub(crate) kind: StreamNoticeKind,
}

pub(crate) enum StreamNoticeKind {
    /// Takes the place of an event that cannot be decoded.
    Undecodable { seq: u64, reason: Arc<str> },
    /// The store lacks the events above `after`, up to `through`. It has, or had, those before.
    Missing { after: u64, through: u64 },
    /// The stream's history was replaced.
    Rewound(PastRewind),
    /// A notification named an event at or before the start of a subscription. Subscriptions that have delivered nothing yet
    /// start after `to` instead. `delivered` is the number up to which the stream was delivered, because a subscriber that has
    /// lagged may find nothing but such notices in the ring.
    Lowered { to: u64, delivered: u64 },
}

impl From<PastRewind> for StreamNoticeKind {
    fn from(rewind: PastRewind) -> Self {
        Self::Rewound(rewind)
    }
}
