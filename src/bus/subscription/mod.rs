//! A subscription: a stream of events that is complete by its own account.
//!
//! Items come through a ring. The subscription knows for each stream what comes next; what it has had is dropped, and where
//! something is missing (it was too slow, or starts in the past) it reads the store until it has caught up with the ring.

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
use super::gate::Gate;
use super::history_cache::HistoryCache;
use super::hub::{Attached, Hub};
use super::{BusError, BusEvent, FleetEvent, StreamEvent};

/// What a subscription does when its subscriber is so slow that events leave memory before they are delivered.
///
/// ```
/// assert_eq!(doorbell::bus::OnSlow::default(), doorbell::bus::OnSlow::Replay);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum OnSlow {
    /// Reads what is missing from the store: nothing is lost, everything comes in order, once. A subscriber that stays slow stays
    /// behind.
    #[default]
    Replay,
    /// Says how many events are passed over ([`BusEvent::Lagged`]), and goes on with what is in memory.
    Report,
}

/// A subscription: the events of one stream, or of all. Yields until the bus is shut down, then ends.
///
/// Each event comes once, and in its stream's order, without a hole: what is missing is said by an item of its own. Subscriptions
/// are independent of each other, and a slow one delays nobody. It can be polled on any executor; a bus over Postgres needs
/// its own tokio runtime to live on.
///
/// Dropping it unsubscribes. Receiving is cancel-safe.
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
    /// There never was anything to subscribe to.
    Refused(BusError),
}

impl<E: StreamEvent> BusSubscription<E> {
    pub(crate) fn new(
        hub: Arc<Hub<E>>,
        pages: Arc<HistoryCache<E>>,
        attached: Attached<E>,
        after: Option<u64>,
        on_slow: OnSlow,
    ) -> Self {
        Self(State::StateMachine(Box::new(StateMachine::new(
            hub, pages, attached, after, on_slow,
        ))))
    }

    pub(crate) fn refused(error: BusError) -> Self {
        Self(State::Refused(error))
    }

    /// Completes when the start of the subscription is fixed: every event that is committed from then on will be delivered. Some that
    /// were committed shortly before may be, too.
    ///
    /// # Errors
    ///
    /// The stream key cannot name a stream, or the bus is shut down. The store not answering is no error: this waits.
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
            State::StateMachine(live) => Ready::new(Arc::clone(live.gate())),
            State::Refused(error) => Ready::new(Gate::open(Err(error.clone()))),
        }
    }

    /// The next item; `None` when the bus is shut down and everything is delivered. Cancel-safe.
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

    /// The stream that the subscription is to; none if it is to all.
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
            State::StateMachine(live) => live.stream_key(),
            State::Refused(_) => None,
        }
    }

    /// Polls for the next item, as [`recv`](Self::recv) does.
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
            State::StateMachine(live) => live.poll(cx),
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
