//! The items of a subscription.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::FleetEvent;

/// An item of a [`BusSubscription`](super::BusSubscription). Most items are events. The others report what the subscription
/// cannot deliver.
///
/// ```
/// use doorbell::bus::{BusEvent, FleetEvent};
///
/// let item = BusEvent::Event(FleetEvent::custom("agent-1", "note", "hello").into());
/// match item {
///     BusEvent::Event(event) => assert_eq!(event.agent_id, "agent-1"),
///     other => panic!("{other:?}"),
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BusEvent<E = FleetEvent> {
    /// The next event of its stream. All subscriptions of a process share its allocation.
    Event(Arc<E>),
    /// The subscriber was too slow, and its policy is [`OnSlow::Report`](super::OnSlow::Report). Contains the number of skipped
    /// events, which are still in the store.
    Lagged(u64),
    /// The store lacks events that were not delivered yet: retention has removed them, or somebody has deleted their rows.
    Gap(Gap),
    /// The store has lost events that were delivered.
    Rewound(Rewound),
    /// An event that this build cannot decode, at its place in the stream. It stays in the store.
    Undecodable {
        /// The key of the stream.
        stream_key: Arc<str>,
        /// The event's number.
        seq: u64,
        /// The decoder's error message.
        reason: Arc<str>,
    },
}

/// Events that are missing in the store before they were delivered, because retention has removed them, or because rows were deleted
/// or inserted by hand. The subscription continues after them.
///
/// ```
/// let gap = doorbell::bus::Gap { stream_key: "agent-1".into(), seqs: 4..=9 };
/// assert_eq!(gap.count(), 6);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The key of the stream.
    pub stream_key: Arc<str>,
    /// The numbers of the missing events.
    pub seqs: RangeInclusive<u64>,
}

impl Gap {
    /// The number of missing events.
    ///
    /// ```
    /// assert_eq!(doorbell::bus::Gap { stream_key: "agent-1".into(), seqs: 4..=4 }.count(), 1);
    /// ```
    #[must_use]
    pub fn count(&self) -> u64 {
        self.seqs.end() - self.seqs.start() + 1
    }
}

/// The store has lost events that were delivered, because of a failover to a standby that had not received them or a restored
/// backup. Also the first item of a subscription that starts after a number that the store does not have; see
/// [`SubscribeOptions::after`](super::SubscribeOptions::after).
///
/// Other events may have their numbers now.
///
/// ```
/// let rewound = doorbell::bus::Rewound { stream_key: "agent-1".into(), delivered: 9, resume_after: 7, exact: true };
/// assert_eq!(rewound.delivered - rewound.resume_after, 2); // 8 and 9 never happened
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rewound {
    /// The key of the stream.
    pub stream_key: Arc<str>,
    /// The number up to which the old history was delivered, or after which the subscription was to start.
    pub delivered: u64,
    /// The number after which the subscription continues, with the events that the store holds now. Lower than `delivered`, or equal to it
    /// if it is not `exact`.
    pub resume_after: u64,
    /// Whether both histories are known to be the same up to `resume_after`. If false, they may also differ at earlier numbers:
    /// read the stream again from a number at which you know them to agree.
    pub exact: bool,
}
