//! The state that the tasks of the bus share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use super::builder::notify_pool;
use super::health::HealthTracker;
use super::isolated_reads::IsolatedReads;
use super::notify_queue::NotifyQueue;
use super::read_permits::ReadPermits;
use super::runtime::Runtime;
use super::wakeups::Wakeups;
use super::{isolated_reads, notification_listener, notifier, reader, subscription_start, sweeper};
use crate::bus::history_cache::HistoryCache;
use crate::bus::hub::Hub;
use crate::bus::stats::Counters;
use crate::bus::{BusError, StreamEvent};
use crate::listen::{ListenBuilder, ListenMultiplexer};
use crate::pg::warm_pool::WarmPool;
use crate::store::{Store, Watermark};

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) channel: String,
    pub(super) sweep_interval: Duration,
    pub(super) poll_interval: Duration,
    pub(super) notify_interval: Duration,
    /// The maximum number of records of one stream in one read.
    pub(super) page: usize,
    /// The maximum number of streams in one read.
    pub(super) streams_per_read: usize,
}

/// The longest time that pending deliveries and notifications may delay the end of the bus.
pub(super) const LAST_WORK: Duration = Duration::from_secs(1);

/// The number of buses that were created in this process.
static BUSES: AtomicU64 = AtomicU64::new(0);

/// Returns a number that no other bus of the process has.
pub(super) fn next_id() -> u64 {
    BUSES.fetch_add(1, Ordering::Relaxed) // numbers nothing else
}

pub(super) struct SharedBus<E: StreamEvent> {
    /// Identifies the bus to the store.
    pub(super) id: u64,
    pub(super) hub: Arc<Hub<E>>,
    pub(super) history: Arc<HistoryCache<E>>,
    pub(super) store: Arc<dyn Store<E>>,
    pub(super) isolated_reads: IsolatedReads,
    pub(super) read_permits: Arc<ReadPermits>,
    pub(super) counters: Arc<Counters>,
    pub(super) settings: Settings,
    /// The pool for notifications. Without one, they are sent over the listening connection.
    pub(super) notify_pool: OnceLock<WarmPool>,
    /// The URL for which the pool is created when the bus starts.
    pub(super) notify_url: Option<String>,
    pub(super) runtime: Arc<Runtime>,
    pub(super) notify_queue: NotifyQueue,
    pub(super) health: Arc<HealthTracker>,
    pub(super) wakeups: Arc<Wakeups>,
    /// Where the next sweep of all streams starts. Set while the hub has a baseline.
    pub(super) watermark: tokio::sync::Mutex<Option<Watermark>>,
    pub(super) listen: ListenBuilder,
    pub(super) listener: OnceLock<Result<ListenMultiplexer, BusError>>,
    /// Held while the bus is started.
    pub(super) starting: Mutex<()>,
}

impl<E: StreamEvent> SharedBus<E> {
    /// Starts the tasks of the bus, on the first call from inside a tokio runtime. They are running when this returns `Ok`.
    pub(super) fn start(self: &Arc<Self>) -> Result<(), BusError> {
        if self.listener.get().is_some() {
            return Ok(());
        }
        // Concurrent calls wait here, so that they do not find the bus half started.
        let _starting = self.starting.lock();
        match self.runtime.enter() {
            None => return Err(BusError::NoRuntime),
            Some(false) => return Ok(()),
            Some(true) => {}
        }
        if let Some(pool) = self.notify_url.as_deref().and_then(notify_pool) {
            let _ = self.notify_pool.set(pool); // only one call gets here
        }
        let listener = self.listen.clone().start().map_err(BusError::from);
        if let Err(error) = &listener {
            self.health.listener(false, Some(error.clone()));
        }
        let listener = self.listener.get_or_init(|| listener);
        if let Ok(listener) = listener {
            self.runtime.spawn(
                "the listener's task",
                notification_listener::run(Arc::clone(self), listener.clone()),
            );
        }
        self.runtime
            .spawn("the start of subscriptions", subscription_start::run(Arc::clone(self)));
        self.runtime.spawn("the sweeper", sweeper::run(Arc::clone(self)));
        self.runtime.spawn("the notifier", notifier::run(Arc::clone(self)));
        self.runtime.spawn("the reader", reader::run(Arc::clone(self)));
        self.runtime
            .spawn("the reader of single streams", isolated_reads::run(Arc::clone(self)));
        let close_on_end = CloseOnEnd(Arc::clone(self));
        self.runtime.spawn("the end of the bus", async move {
            let _close_on_end = close_on_end;
            std::future::pending().await
        });
        Ok(())
    }

    pub(super) fn listener(&self) -> Result<&ListenMultiplexer, BusError> {
        match self.listener.get() {
            Some(Ok(listener)) => Ok(listener),
            Some(Err(error)) => Err(error.clone()),
            None => Err(BusError::NoRuntime),
        }
    }

    /// Returns `true` if notifications are received, as far as is known.
    pub(super) fn is_listening(&self) -> bool {
        self.listener().is_ok_and(|listener| listener.health().is_listening())
    }

    /// Completes when every event that was named so far is delivered, or after [`LAST_WORK`] at the latest.
    pub(super) async fn deliver_pending(&self) {
        let delivered = async {
            loop {
                let idle = self.wakeups.reader_idle.notified();
                self.wakeups.reader.notify_one();
                idle.await;
                if !self.hub.has_pending_reads() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(LAST_WORK, delivered).await; // late or not, the bus closes
    }

    /// Ends subscriptions, after the items in memory, and stops all tasks.
    pub(super) fn close(&self) {
        self.runtime.close();
        self.hub.close();
        self.health.closed(self.runtime.failure());
        self.store.follow_server(self.id, None);
        #[cfg(feature = "metrics")]
        self.counters.report(); // includes what happened since the last sweep
    }
}

/// Closes the bus when its runtime shuts down, or one of its tasks has panicked.
struct CloseOnEnd<E: StreamEvent>(Arc<SharedBus<E>>);

impl<E: StreamEvent> Drop for CloseOnEnd<E> {
    fn drop(&mut self) {
        self.0.close();
    }
}
