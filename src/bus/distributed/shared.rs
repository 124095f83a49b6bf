//! What the parts of the bus share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::builder::notify_pool;
use super::health::HealthBoard;
use super::notify_queue::NotifyQueue;
use super::runtime::Runtime;
use super::{notification_listener, notifier, reader, subscription_start, sweeper};
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
    /// Records of one stream that one read brings at most.
    pub(super) page: usize,
    /// Streams that one read covers at most.
    pub(super) streams_per_read: usize,
}

pub(super) struct SharedBus<E: StreamEvent> {
    pub(super) hub: Arc<Hub<E>>,
    pub(super) pages: Arc<HistoryCache<E>>,
    pub(super) store: Arc<dyn Store<E>>,
    pub(super) counters: Arc<Counters>,
    pub(super) settings: Settings,
    /// For bells. None if they go over the listening connection.
    pub(super) connections: OnceLock<WarmPool>,
    /// From which the pool is made when there is a runtime for it.
    pub(super) notify_url: Option<String>,
    pub(super) runtime: Arc<Runtime>,
    pub(super) notify_queue: NotifyQueue,
    pub(super) health: HealthBoard,
    pub(super) wakeups: Arc<Wakeups>,
    /// From where the next sweep asks what has changed; set while a baseline stands.
    pub(super) watermark: tokio::sync::Mutex<Option<Watermark>>,
    pub(super) listen: ListenBuilder,
    pub(super) listener: OnceLock<Result<ListenMultiplexer, BusError>>,
    /// Held while the bus is started.
    pub(super) starting: Mutex<()>,
}

/// How the parts wake each other.
#[derive(Default)]
pub(super) struct Wakeups {
    pub(super) reader: Notify,
    pub(super) starter: Notify,
    pub(super) sweeper: Notify,
    /// How often the server may have been another one since the start: the listener was away, or came back.
    away: AtomicU64,
    /// How many of these times it was looked whether the history is still the same.
    looked: AtomicU64,
}

impl Wakeups {
    /// The history has to be looked at before anything else is delivered.
    pub(super) fn away(&self) {
        self.away.fetch_add(1, Ordering::Release); // pairs with the loads of `times_away`
        self.sweeper.notify_one();
    }

    pub(super) fn times_away(&self) -> u64 {
        self.away.load(Ordering::Acquire) // pairs with the increment
    }

    /// The history was looked at after the server was away that often.
    pub(super) fn have_looked(&self, times_away: u64) {
        self.looked.store(times_away, Ordering::Release); // pairs with the load below
        self.reader.notify_one();
    }

    /// Whether the history may be another one than what was delivered.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.looked.load(Ordering::Acquire) != self.times_away() // pairs with the store above
    }
}

impl<E: StreamEvent> SharedBus<E> {
    /// Starts the bus's tasks, if this is called from inside a tokio runtime for the first time. When it has returned `Ok`, they run.
    pub(super) fn start(self: &Arc<Self>) -> Result<(), BusError> {
        if self.listener.get().is_some() {
            return Ok(());
        }
        // Who comes while another call starts the bus waits until it has, and does not find half of it.
        let _starting = self.starting.lock();
        match self.runtime.enter() {
            None => return Err(BusError::NoRuntime),
            Some(false) => return Ok(()),
            Some(true) => {}
        }
        if let Some(pool) = self.notify_url.as_deref().and_then(notify_pool) {
            let _ = self.connections.set(WarmPool::exclusive(pool)); // this is the only call that gets here
        }
        let listener = self.listen.clone().start().map_err(BusError::from);
        if let Err(error) = &listener {
            self.health.listener(false, Some(error.clone()));
        }
        let listener = self.listener.get_or_init(|| listener);
        if let Ok(listener) = listener {
            self.runtime
                .spawn(notification_listener::listen(Arc::clone(self), listener.clone()));
        }
        self.runtime.spawn(subscription_start::start(Arc::clone(self)));
        self.runtime.spawn(sweeper::sweep(Arc::clone(self)));
        self.runtime.spawn(notifier::ring(Arc::clone(self)));
        let closing = Closing(Arc::clone(self));
        self.runtime.spawn(async move {
            let Closing(inner) = &closing;
            reader::read(Arc::clone(inner)).await;
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

    /// Whether doorbells are heard, as far as anybody can tell.
    pub(super) fn is_listening(&self) -> bool {
        self.listener().is_ok_and(|listener| listener.health().is_listening())
    }

    /// Ends everything: subscriptions after what is in memory, tasks at once.
    pub(super) fn close(&self) {
        self.runtime.close();
        self.hub.close();
        self.health.closed();
        #[cfg(feature = "metrics")]
        self.counters.report(); // what the last sweep could not know
    }
}

/// Closes the bus when its reader ends, which is when the runtime does.
struct Closing<E: StreamEvent>(Arc<SharedBus<E>>);

impl<E: StreamEvent> Drop for Closing<E> {
    fn drop(&mut self) {
        self.0.close();
    }
}
