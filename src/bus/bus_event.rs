//! What a subscription yields.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::FleetEvent;

/// What a [`BusSubscription`](super::BusSubscription) yields. Most are events; the others say what would otherwise be silent.
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
    /// The next event of its stream. All subscriptions of a process share it.
    Event(Arc<E>),
    /// The subscriber was too slow, and its policy is [`OnSlow::Report`](super::OnSlow::Report): this many events are passed
    /// over. They are in the store.
    Lagged(u64),
    /// Events that the subscription has not delivered are gone from the store.
    Gap(Gap),
    /// The store's history is another than the one that was delivered.
    Rewound(Rewound),
    /// An event that this build cannot decode. It has its place in the stream, and stays in the store.
    Undecodable {
        /// The stream.
        stream_key: Arc<str>,
        /// The event's number.
        seq: u64,
        /// What the decoder says.
        reason: Arc<str>,
    },
}

/// Events that retention removed before they were delivered. The subscription goes on behind them.
///
/// ```
/// let gap = doorbell::bus::Gap { stream_key: "agent-1".into(), seqs: 4..=9 };
/// assert_eq!(gap.count(), 6);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The stream.
    pub stream_key: Arc<str>,
    /// The numbers of the events.
    pub seqs: RangeInclusive<u64>,
}

impl Gap {
    /// How many events are gone.
    ///
    /// ```
    /// assert_eq!(doorbell::bus::Gap { stream_key: "agent-1".into(), seqs: 4..=4 }.count(), 1);
    /// ```
    #[must_use]
    pub fn count(&self) -> u64 {
        self.seqs.end() - self.seqs.start() + 1
    }
}

/// The store has lost events that were delivered: a failover to a standby that had not received them, a restored backup. Other
/// events may carry their numbers now.
///
/// ```
/// let rewound = doorbell::bus::Rewound { stream_key: "agent-1".into(), delivered: 9, resume_after: 7, exact: true };
/// assert_eq!(rewound.delivered - rewound.resume_after, 2); // 8 and 9 never happened
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rewound {
    /// The stream.
    pub stream_key: Arc<str>,
    /// The number up to which the old history was delivered.
    pub delivered: u64,
    /// The subscription goes on after this number, with the events that the store holds now.
    pub resume_after: u64,
    /// Whether the two histories are the same up to `resume_after`. If not they part earlier, nobody knows where: read
    /// the stream anew from a point that you trust.
    pub exact: bool,
}
