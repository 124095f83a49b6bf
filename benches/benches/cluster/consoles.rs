//! Numbered events for consoles: doorbell's publisher, and the usual one on top of a broadcast channel.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use doorbell::cluster::{ClusterEvent, ClusterEventMeta, ClusterEventPublisher, ClusterStreamLagged, Text};
use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender, channel};

use doorbell_perf::channels::settings::CAPACITY;

/// An event with its stamp.
pub(crate) trait Stamped: Clone + Send + Sync + 'static {
    /// Its number.
    fn seq(&self) -> u64;
}

impl Stamped for ClusterEvent {
    #[inline]
    fn seq(&self) -> u64 {
        self.meta().cluster_seq
    }
}

/// A service's own event, of plain data.
#[derive(Clone)]
pub(crate) struct Moved {
    meta: ClusterEventMeta,
    shard: u32,
    peer: u32,
}

impl Moved {
    /// A shard that moved to another peer.
    #[inline]
    pub(crate) fn new(meta: ClusterEventMeta, shard: u32, peer: u32) -> Self {
        Self { meta, shard, peer }
    }
}

impl Stamped for Moved {
    #[inline]
    fn seq(&self) -> u64 {
        debug_assert!(self.shard != self.peer);
        self.meta.cluster_seq
    }
}

/// An emitting end.
pub(crate) trait Emitter<E>: Send + Sync + 'static {
    /// A reading end.
    type Console: Console<E>;

    /// Numbers, builds, broadcasts and returns an event.
    fn emit(&self, build: impl FnOnce(ClusterEventMeta) -> E) -> E;

    /// A console that receives events from now on.
    fn attach(&self) -> Self::Console;
}

/// A reading end.
pub(crate) trait Console<E>: Send + 'static {
    /// The next event; `None` once there is no emitter any more. A console that lags stops the bench.
    fn next(&mut self) -> impl Future<Output = Option<E>> + Send;
}

/// The stream of the contract's clauses.
pub(crate) type Events<E> = BoxStream<'static, Result<E, ClusterStreamLagged>>;

impl<E: Stamped> Console<E> for Events<E> {
    #[inline]
    async fn next(&mut self) -> Option<E> {
        let item = StreamExt::next(self).await?;
        Some(item.expect("the emitter is paced"))
    }
}

/// Makes events from existing texts, as a service does.
pub(crate) struct Source {
    peer: Text,
    shard: Text,
}

impl Source {
    /// Texts of the usual length.
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

/// Doorbell's publisher.
pub(crate) fn doorbell<E: Stamped>() -> ClusterEventPublisher<E> {
    ClusterEventPublisher::with_capacity(CAPACITY.try_into().expect("not zero"))
}

impl<E: Stamped> Emitter<E> for ClusterEventPublisher<E> {
    type Console = Events<E>;

    #[inline]
    fn emit(&self, build: impl FnOnce(ClusterEventMeta) -> E) -> E {
        self.emit(build)
    }

    fn attach(&self) -> Events<E> {
        self.subscribe(0)
    }
}

/// An atomic counter, the wall clock, and then a send through `tokio::sync::broadcast`. Two emitters may send in an
/// order different from their numbers.
pub(crate) struct TwoStep<E> {
    next: AtomicU64,
    sender: Sender<E>,
}

impl<E: Stamped> TwoStep<E> {
    /// A publisher with the same capacity.
    pub(crate) fn new() -> Self {
        Self {
            next: AtomicU64::new(1),
            sender: channel(CAPACITY).0,
        }
    }
}

impl<E: Stamped> Emitter<E> for TwoStep<E> {
    type Console = Events<E>;

    #[inline]
    fn emit(&self, build: impl FnOnce(ClusterEventMeta) -> E) -> E {
        let event = build(ClusterEventMeta {
            cluster_seq: self.next.fetch_add(1, Ordering::Relaxed),
            observed_at: SystemTime::now(),
        });
        // Fails without receivers.
        let _ = self.sender.send(event.clone());
        event
    }

    /// The stream with the contract of the cluster's: it suppresses, and ends after a lag.
    fn attach(&self) -> Events<E> {
        let after_seq = 0;
        let open = Some(self.sender.subscribe());
        let events = stream::unfold(open, move |open| async move {
            let mut receiver = open?;
            loop {
                match receiver.recv().await {
                    Ok(event) if event.seq() <= after_seq => {}
                    Ok(event) => return Some((Ok(event), Some(receiver))),
                    Err(RecvError::Lagged(skipped)) => return Some((Err(ClusterStreamLagged { skipped }), None)),
                    Err(RecvError::Closed) => return None,
                }
            }
        });
        events.boxed()
    }
}

/// The same, read by the channel's own receiver, which is faster than a stream and suppresses nothing.
pub(crate) struct Bare<E>(pub(crate) TwoStep<E>);

impl<E: Stamped> Emitter<E> for Bare<E> {
    type Console = Receiver<E>;

    #[inline]
    fn emit(&self, build: impl FnOnce(ClusterEventMeta) -> E) -> E {
        self.0.emit(build)
    }

    fn attach(&self) -> Receiver<E> {
        self.0.sender.subscribe()
    }
}

impl<E: Stamped> Console<E> for Receiver<E> {
    #[inline]
    async fn next(&mut self) -> Option<E> {
        match self.recv().await {
            Ok(event) => Some(event),
            Err(RecvError::Closed) => None,
            Err(lagged) => panic!("the emitter is paced: {lagged}"),
        }
    }
}
