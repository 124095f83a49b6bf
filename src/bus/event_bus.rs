//! The interface of every bus.

use super::{BusSubscription, FleetEvent, StreamEvent};

/// A bus for events that are kept in a store.
///
/// The trait is dyn-compatible: what takes an `Arc<dyn EventBus>` can run on a [`LocalBus`](super::LocalBus) in its tests and on a
/// `DistributedBus` in a cluster. It contains what all buses have in common: subscriptions, and publishing an event that is in the store.
/// To append an event, call `append_and_publish` of the bus.
///
/// ```
/// use std::sync::Arc;
///
/// use doorbell::bus::{BusEvent, EventBus, FleetEvent, LocalBus};
///
/// async fn next_agent(bus: &dyn EventBus) -> String {
///     let mut subscription = bus.subscribe_all();
///     subscription.ready().await.unwrap();
///     let Some(BusEvent::Event(event)) = subscription.recv().await else { panic!() };
///     event.agent_id.clone()
/// }
///
/// # futures::executor::block_on(async {
/// let bus = Arc::new(LocalBus::new());
/// let appends = async { bus.append_and_publish(FleetEvent::custom("agent-1", "word", "hello")).await };
/// let (agent, appended) = futures::join!(next_agent(&*bus), appends);
/// assert_eq!((agent.as_str(), appended.unwrap().seq), ("agent-1", 1));
/// # });
/// ```
pub trait EventBus<E: StreamEvent = FleetEvent>: Send + Sync + 'static {
    /// Notifies subscribers of an event that is already in the store.
    ///
    /// This is best effort and never blocks: if a notification is lost, the event is only delayed until the next
    /// [sweep](super#notifications). An event that is *not* in the store is appended by a [`LocalBus`](super::LocalBus), and dropped by a
    /// `DistributedBus`, which counts it in [`BusStats::unpersisted`](super::BusStats::unpersisted).
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
    ///
    /// It starts at the present, and cannot resume after an event: for that, use `subscribe_from` for each stream.
    fn subscribe_all(&self) -> BusSubscription<E>;
}
