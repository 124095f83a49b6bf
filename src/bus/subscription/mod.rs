//! A subscription: a stream of events without repetition and without unreported gaps.
//!
//! Items come through a ring. The subscription knows the next number of each of its streams. It drops items that it has already received. Where
//! events are missing, because it was too slow or starts in the past, it reads the store until it has caught up with the ring.

mod cursors;
mod ready;
mod state_machine;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;

pub use self::ready::Ready;
use self::state_machine::StateMachine;
use super::history_cache::HistoryCache;
use super::hub::{Attached, Hub, StartSignal};
use super::{BusError, BusEvent, FleetEvent, StreamEvent};

/// What a subscription does when its subscriber is so slow that events leave memory before they are delivered.
///
/// ```
/// assert_eq!(doorbell::bus::OnSlow::default(), doorbell::bus::OnSlow::Replay);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum OnSlow {
    /// Reads the missing events from the store: nothing is lost, and every event is delivered once and in order. A subscriber
    /// that stays slow stays behind.
    #[default]
    Replay,
    /// Yields [`BusEvent::Lagged`] with the number of skipped events, and continues with the events in memory.
    Report,
}

/// A subscription to the events of one stream, or of all streams.
///
/// It implements [`Stream`], and ends when the bus is shut down.
///
/// Each event is delivered once, in the order of its stream, and without a gap: a separate item reports missing events. A slow
/// subscription does not delay others. Subscriptions can be polled on any executor, also those of a bus over Postgres, whose own tasks
/// run on tokio.
///
/// Dropping a subscription unsubscribes. Receiving is cancel-safe.
///
/// ```
/// use doorbell::bus::{BusEvent, EventBus, FleetEvent, LocalBus};
/// use futures::StreamExt;
///
/// # futures::executor::block_on(async {
/// let bus = LocalBus::new();
/// let mut subscription = bus.subscribe("agent-1");
/// subscription.ready().await.unwrap();
/// bus.publish(FleetEvent::custom("agent-2", "note", "not for us"));
/// bus.publish(FleetEvent::custom("agent-1", "note", "hello"));
/// let Some(BusEvent::Event(event)) = subscription.next().await else { panic!() };
/// assert_eq!((event.agent_id.as_str(), event.seq), ("agent-1", 1));
/// # });
/// ```
pub struct BusSubscription<E: StreamEvent = FleetEvent>(State<E>);

enum State<E: StreamEvent> {
    StateMachine(Box<StateMachine<E>>),
    /// The subscription was refused, and ends at once.
    Refused(BusError),
}

impl<E: StreamEvent> BusSubscription<E> {
    pub(crate) fn new(
        hub: Arc<Hub<E>>,
        history: Arc<HistoryCache<E>>,
        attached: Attached<E>,
        after: Option<u64>,
        on_slow: OnSlow,
    ) -> Self {
        Self(State::StateMachine(Box::new(StateMachine::new(
            hub, history, attached, after, on_slow,
        ))))
    }

    pub(crate) fn refused(error: BusError) -> Self {
        Self(State::Refused(error))
    }

    /// Returns a future that completes when the subscription has started.
    ///
    /// Every event that is committed from then on is delivered. Events that were committed shortly before may also be delivered.
    ///
    /// The future does not borrow the subscription. It waits for as long as the store does not answer.
    ///
    /// # Errors
    ///
    /// - [`BusError::InvalidStreamKey`] if the key cannot name a stream.
    /// - [`BusError::Closed`] if the bus is shut down, or the subscription is dropped.
    ///
    /// ```
    /// use doorbell::bus::{EventBus, LocalBus};
    ///
    /// # futures::executor::block_on(async {
    /// let bus = LocalBus::new();
    /// bus.subscribe("agent-1").ready().await.unwrap();
    /// # });
    /// ```
    pub fn ready(&self) -> Ready {
        match &self.0 {
            State::StateMachine(machine) => Ready::new(machine.start().wait()),
            State::Refused(error) => Ready::new(StartSignal::already(Err(error.clone())).wait()),
        }
    }

    /// Receives the next item. Returns `None` when the bus is shut down and the items in memory are delivered.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it completes, no item is lost.
    ///
    /// ```
    /// use doorbell::bus::{BusEvent, EventBus, FleetEvent, LocalBus};
    ///
    /// # futures::executor::block_on(async {
    /// let bus = LocalBus::new();
    /// let mut subscription = bus.subscribe_all();
    /// bus.publish(FleetEvent::custom("agent-1", "note", "hello"));
    /// assert!(matches!(subscription.recv().await, Some(BusEvent::Event(_))));
    /// drop(bus);
    /// assert_eq!(subscription.recv().await, None);
    /// # });
    /// ```
    pub async fn recv(&mut self) -> Option<BusEvent<E>> {
        std::future::poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Returns the key of the stream, or `None` for a subscription to all streams.
    ///
    /// ```
    /// use doorbell::bus::{EventBus, LocalBus};
    ///
    /// let bus = LocalBus::new();
    /// assert_eq!(bus.subscribe("agent-1").stream_key(), Some("agent-1"));
    /// assert_eq!(bus.subscribe_all().stream_key(), None);
    /// ```
    #[must_use]
    pub fn stream_key(&self) -> Option<&str> {
        match &self.0 {
            State::StateMachine(machine) => machine.stream_key(),
            State::Refused(_) => None,
        }
    }

    /// Polls for the next item, like [`recv`](Self::recv).
    ///
    /// ```
    /// use std::task::{Context, Poll, Waker};
    ///
    /// use doorbell::bus::{EventBus, LocalBus};
    ///
    /// let bus = LocalBus::new();
    /// let mut subscription = bus.subscribe_all();
    /// assert_eq!(subscription.poll_recv(&mut Context::from_waker(Waker::noop())), Poll::Pending);
    /// ```
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<BusEvent<E>>> {
        match &mut self.0 {
            State::StateMachine(machine) => machine.poll(cx),
            State::Refused(_) => Poll::Ready(None),
        }
    }
}

impl<E: StreamEvent> Stream for BusSubscription<E> {
    type Item = BusEvent<E>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<BusEvent<E>>> {
        self.poll_recv(cx)
    }
}

impl<E: StreamEvent> fmt::Debug for BusSubscription<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BusSubscription")
            .field("stream_key", &self.stream_key())
            .finish_non_exhaustive()
    }
}
