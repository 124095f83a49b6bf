//! Options of a subscription.

use super::{BusError, OnSlow};

/// The options of a subscription: where it starts, and what it does when its subscriber is slow.
///
/// ```
/// use doorbell::bus::{BusEvent, EventBus, FleetEvent, LocalBus, OnSlow, SubscribeOptions};
///
/// # futures::executor::block_on(async {
/// let bus = LocalBus::new();
/// bus.publish(FleetEvent::custom("agent-1", "note", "one"));
/// bus.publish(FleetEvent::custom("agent-1", "note", "two"));
/// let options = SubscribeOptions::new().after(1).on_slow(OnSlow::Report);
/// let mut subscription = bus.subscribe_with("agent-1", options);
/// let Some(BusEvent::Event(event)) = subscription.recv().await else { panic!() };
/// assert_eq!(event.seq, 2);
/// # });
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct SubscribeOptions {
    pub(crate) after: Option<u64>,
    pub(crate) on_slow: OnSlow,
}

impl SubscribeOptions {
    /// Checks the options of a subscription to all streams.
    pub(crate) fn check_for_all(self) -> Result<(), BusError> {
        match self.after {
            None => Ok(()),
            Some(after) => Err(BusError::InvalidSetting {
                setting: "after",
                value: after.to_string(),
                bounds: "unset for a subscription to all streams, of which each has its own numbers",
            }),
        }
    }

    /// Creates the default options: the subscription starts with the events that are committed after it is ready, and loses
    /// nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the start after event number `seq`: the subscription delivers the later events of the store, then live events. With
    /// 0, it starts with the first event. Default: it starts with the events that are committed after it is ready.
    ///
    /// If the stream ends before `seq` when the subscription starts, the event that the subscriber says it has received is lost, as after
    /// a failover or the restore of a backup. The first item is then a [`Rewound`](super::Rewound), which names the stream's last number
    /// at the start, and the events after it follow. Later appends, and the time of the first poll, do not change this. An
    /// event with that number may be another one than the subscriber has received: a number alone cannot tell.
    ///
    /// A subscription to all streams has no such number: with this option it is refused, and [`ready`](super::BusSubscription::ready)
    /// returns [`BusError::InvalidSetting`].
    #[must_use]
    pub fn after(mut self, seq: u64) -> Self {
        self.after = Some(seq);
        self
    }

    /// Sets what the subscription does when its subscriber is so slow that events leave memory. Default: [`OnSlow::Replay`].
    #[must_use]
    pub fn on_slow(mut self, on_slow: OnSlow) -> Self {
        self.on_slow = on_slow;
        self
    }
}
