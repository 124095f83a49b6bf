//! Numbered events for consoles: this crate's publisher, and the usual way to make one out of a broadcast channel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use doorbell::cluster::{ClusterEvent, ClusterEventMeta, ClusterEventPublisher, ClusterStreamLagged};
use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender, channel};

use super::settings::CAPACITY;

/// An emitting end.
pub(crate) trait Emitter: Send + Sync + 'static {
    /// A reading end.
    type Console: Console;

    /// Stamps, builds, broadcasts, returns.
    fn emit(&self, build: impl FnOnce(ClusterEventMeta) -> ClusterEvent) -> ClusterEvent;

    /// A console that is attached from now on.
    fn attach(&self) -> Self::Console;
}

/// A reading end.
pub(crate) trait Console: Send + 'static {
    /// The next event; `None` once there is no emitter any more. A console that lags stops the bench.
    fn next(&mut self) -> impl Future<Output = Option<ClusterEvent>> + Send;
}

/// The stream that the contract is about.
pub(crate) type Events = BoxStream<'static, Result<ClusterEvent, ClusterStreamLagged>>;

impl Console for Events {
    #[inline]
    async fn next(&mut self) -> Option<ClusterEvent> {
        let item = StreamExt::next(self).await?;
        Some(item.expect("the emitter is paced"))
    }
}

/// Makes events whose texts exist already, as a service has them.
pub(crate) struct Source {
    peer: Arc<str>,
    shard: Arc<str>,
}

impl Source {
    /// One with texts of the usual length.
    pub(crate) fn new() -> Self {
        Self {
            peer: "node-eu-west-2b-017".into(),
            shard: "orders/7f3a".into(),
        }
    }

    /// The event of an adopted shard.
    #[inline]
    pub(crate) fn event(&self, meta: ClusterEventMeta) -> ClusterEvent {
        ClusterEvent::ShardAdopted {
            meta,
            shard: self.shard.clone(),
            peer: self.peer.clone(),
        }
    }
}

/// This crate's publisher.
pub(crate) fn doorbell() -> ClusterEventPublisher {
    ClusterEventPublisher::new(CAPACITY.try_into().expect("not zero"))
}

impl Emitter for ClusterEventPublisher {
    type Console = Events;

    #[inline]
    fn emit(&self, build: impl FnOnce(ClusterEventMeta) -> ClusterEvent) -> ClusterEvent {
        self.emit(build)
    }

    fn attach(&self) -> Events {
        self.subscribe(0)
    }
}

/// An atomic counter, the wall clock, and then a send through `tokio::sync::broadcast`. Two emitters can send in the other order
/// than they were numbered.
pub(crate) struct TwoStep {
    next: AtomicU64,
    sender: Sender<ClusterEvent>,
}

impl TwoStep {
    /// A publisher of the same capacity.
    pub(crate) fn new() -> Self {
        Self {
            next: AtomicU64::new(1),
            sender: channel(CAPACITY).0,
        }
    }
}

impl Emitter for TwoStep {
    type Console = Events;

    #[inline]
    fn emit(&self, build: impl FnOnce(ClusterEventMeta) -> ClusterEvent) -> ClusterEvent {
        let event = build(ClusterEventMeta {
            cluster_seq: self.next.fetch_add(1, Ordering::Relaxed),
            observed_at: SystemTime::now(),
        });
        // An error means that nobody listens.
        let _ = self.sender.send(event.clone());
        event
    }

    /// The stream with the contract of the cluster's: it suppresses, and ends after a lag.
    fn attach(&self) -> Events {
        let after_seq = 0;
        let open = Some(self.sender.subscribe());
        let events = stream::unfold(open, move |open| async move {
            let mut receiver = open?;
            loop {
                match receiver.recv().await {
                    Ok(event) if event.meta().cluster_seq <= after_seq => {}
                    Ok(event) => return Some((Ok(event), Some(receiver))),
                    Err(RecvError::Lagged(skipped)) => return Some((Err(ClusterStreamLagged { skipped }), None)),
                    Err(RecvError::Closed) => return None,
                }
            }
        });
        events.boxed()
    }
}

/// The same, read by the channel's own receiver, which is quicker than a stream and suppresses nothing.
pub(crate) struct Bare(pub(crate) TwoStep);

impl Emitter for Bare {
    type Console = Receiver<ClusterEvent>;

    #[inline]
    fn emit(&self, build: impl FnOnce(ClusterEventMeta) -> ClusterEvent) -> ClusterEvent {
        self.0.emit(build)
    }

    fn attach(&self) -> Receiver<ClusterEvent> {
        self.0.sender.subscribe()
    }
}

impl Console for Receiver<ClusterEvent> {
    #[inline]
    async fn next(&mut self) -> Option<ClusterEvent> {
        match self.recv().await {
            Ok(event) => Some(event),
            Err(RecvError::Closed) => None,
            Err(lagged) => panic!("the emitter is paced: {lagged}"),
        }
    }
}
