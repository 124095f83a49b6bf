//! How a subscription differs from the usual.

use super::OnSlow;

/// How a subscription differs from the usual: where it starts, and what happens when its subscriber is slow.
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
    /// The usual: starts with what is committed after it is ready, and loses nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts after event number `seq`, which the subscriber has had, with what the store holds from there on; 0 for the whole history.
    /// For a subscription to one stream; one to all streams takes no notice.
    #[must_use]
    pub fn after(mut self, seq: u64) -> Self {
        self.after = Some(seq);
        self
    }

    /// What happens when the subscriber is so slow that events leave memory.
    #[must_use]
    pub fn on_slow(mut self, on_slow: OnSlow) -> Self {
        self.on_slow = on_slow;
        self
    }
}
