//! The interface of every bus.

use super::{BusSubscription, FleetEvent, StreamEvent};

/// A bus for events that are kept in a store.
///
/// The trait is dyn-compatible: a service that takes an `Arc<dyn EventBus>` can run on a [`LocalBus`](super::LocalBus) in its tests and
/// on a `DistributedBus` in a cluster.
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
    /// Notifies subscribers of an event that is already in the store.
    ///
    /// This is best effort and never blocks: if a notification is lost, the event is only delayed until the next
    /// [sweep](super#notifications). Each bus documents what it does with an event that is *not* in its store.
    fn publish(&self, event: E);

    /// Subscribes to one stream. The subscription delivers every event that is committed after it is
    /// [ready](BusSubscription::ready).
    ///
    /// To read the history as well, use the bus's `subscribe_from`. Alternatively, subscribe first, then read the store, and
    /// discard events whose number you have already seen.
    ///
    /// If the key cannot name a stream, the subscription ends at once, and [`ready`](BusSubscription::ready) returns an error.
    fn subscribe(&self, stream_key: &str) -> BusSubscription<E>;

    /// Subscribes to all streams, including those that do not exist yet. Each stream is in order; there is no order between streams.
    fn subscribe_all(&self) -> BusSubscription<E>;
}
