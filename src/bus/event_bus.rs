//! What every bus can do.

use super::{BusSubscription, FleetEvent, StreamEvent};

/// A bus for events that are held in a store. Object-safe: a service takes an `Arc<dyn EventBus>`, a [`LocalBus`](super::LocalBus)
/// in its tests and a `DistributedBus` in a cluster.
///
/// ```
/// use std::sync::Arc;
///
/// use doorbell::bus::{BusEvent, EventBus, FleetEvent, LocalBus};
///
/// async fn first_word(bus: Arc<dyn EventBus>) -> String {
///     let mut subscription = bus.subscribe_all();
///     subscription.ready().await.unwrap();
///     bus.publish(FleetEvent::custom("agent-1", "word", "hello"));
///     let Some(BusEvent::Event(event)) = subscription.recv().await else { panic!() };
///     event.agent_id.clone()
/// }
/// # assert_eq!(futures::executor::block_on(first_word(Arc::new(LocalBus::new()))), "agent-1");
/// ```
pub trait EventBus<E: StreamEvent = FleetEvent>: Send + Sync + 'static {
    /// Rings for an event that the store holds already. Never waits, neither for the network nor for a subscriber, and tells
    /// nobody whether anybody heard: what counts is the store, and who listens finds there what it was not told.
    ///
    /// Each bus says what it does with an event that is *not* in its store.
    fn publish(&self, event: E);

    /// The events of one stream, from when the subscription is [ready](BusSubscription::ready) on. Whoever reads the history, too,
    /// subscribes first, and drops by number what it gets twice; or uses the bus's `subscribe_from`, which does that.
    ///
    /// A key that cannot name a stream makes a subscription that is never ready, and ends at once.
    fn subscribe(&self, stream_key: &str) -> BusSubscription<E>;

    /// The events of all streams, also of those that do not exist yet. Each stream is in order, the streams among each other in none.
    fn subscribe_all(&self) -> BusSubscription<E>;
}
