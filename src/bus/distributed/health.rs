//! How the bus is doing, and since when.

use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::bus::BusError;

/// What the bus can do at present.
///
/// ```
/// assert_ne!(doorbell::bus::BusState::Live, doorbell::bus::BusState::Polling);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum BusState {
    /// The store has not answered yet, or it is not known yet whether doorbells will be heard.
    Starting,
    /// Doorbells are heard: events arrive within milliseconds.
    Live,
    /// The store answers, but doorbells are not heard: events arrive within the poll interval. Nothing is lost.
    Polling,
    /// The store does not answer: nothing arrives until it does, and then everything does.
    Down,
    /// The bus is shut down; final.
    Closed,
}

/// How the bus is doing.
///
/// ```
/// use std::sync::Arc;
///
/// use doorbell::bus::{BusState, DistributedBus, FleetEvent};
/// use doorbell::store::MemoryStore;
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let store = Arc::new(MemoryStore::<FleetEvent>::new());
/// let bus = DistributedBus::builder(store).url("postgres://localhost:1/nowhere").start().unwrap();
/// assert_eq!(bus.health().state, BusState::Starting);
/// # });
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BusHealth {
    /// What the bus can do.
    pub state: BusState,
    /// Since when.
    pub since: SystemTime,
    /// What keeps it from being [`Live`](BusState::Live).
    pub reason: Option<BusError>,
    /// When an event last went out to a subscription of this process.
    pub last_delivery: Option<SystemTime>,
    /// How long the last event that was read from the store took from being appended to going out, by the server's clock and
    /// this machine's; zero if they disagree the other way. The `metrics` crate gets all of them, as the histogram
    /// `doorbell_bus_append_to_delivery_seconds`.
    pub last_latency: Option<Duration>,
    /// How full the server's queue of notifications is, from 0 to 1, as of the last sweep. When it is full, nobody can ring; some session in
    /// the cluster listens and does not read.
    pub notification_queue_usage: Option<f64>,
    /// Events that were published without being in the store.
    pub unpersisted: u64,
}

/// What is known of the two ends.
#[derive(Default)]
struct Ends {
    store_answered: bool,
    store: Option<BusError>,
    listener_answered: bool,
    listening: bool,
    listener: Option<BusError>,
    closed: bool,
}

pub(super) struct HealthBoard {
    ends: Mutex<Ends>,
    shown: watch::Sender<BusHealth>,
    last_delivery: Mutex<(Option<SystemTime>, Option<Duration>)>,
}

impl HealthBoard {
    pub(super) fn new() -> Self {
        Self {
            ends: Mutex::default(),
            shown: watch::Sender::new(BusHealth {
                state: BusState::Starting,
                since: SystemTime::now(),
                reason: None,
                last_delivery: None,
                last_latency: None,
                notification_queue_usage: None,
                unpersisted: 0,
            }),
            last_delivery: Mutex::default(),
        }
    }

    pub(super) fn read(&self) -> BusHealth {
        let mut health = self.shown.borrow().clone();
        (health.last_delivery, health.last_latency) = *self.last_delivery.lock();
        health
    }

    pub(super) fn changes(&self) -> watch::Receiver<BusHealth> {
        self.shown.subscribe()
    }

    /// An event has gone out; with when it was appended, if it was read from the store.
    pub(super) fn delivered(&self, appended_at: Option<SystemTime>) {
        let now = SystemTime::now();
        let latency = appended_at.map(|appended_at| now.duration_since(appended_at).unwrap_or_default());
        #[cfg(feature = "metrics")]
        if let Some(latency) = latency {
            metrics::histogram!(crate::bus::stats::APPEND_TO_DELIVERY).record(latency);
        }
        let mut last = self.last_delivery.lock();
        *last = (Some(now), latency.or(last.1));
    }

    pub(super) fn queue_usage(&self, usage: f64) {
        self.shown.send_if_modified(|shown| {
            shown.notification_queue_usage = Some(usage);
            false
        });
    }

    pub(super) fn store_answered(&self) {
        self.update(|ends| {
            ends.store_answered = true;
            ends.store = None;
        });
    }

    pub(super) fn store_failed(&self, error: BusError) {
        self.update(|ends| ends.store = Some(error));
    }

    pub(super) fn listener(&self, listening: bool, reason: Option<BusError>) {
        self.update(|ends| {
            ends.listener_answered |= listening || reason.is_some();
            ends.listening = listening;
            ends.listener = reason;
        });
    }

    pub(super) fn closed(&self) {
        self.update(|ends| ends.closed = true);
    }

    fn update(&self, change: impl FnOnce(&mut Ends)) {
        let mut ends = self.ends.lock();
        change(&mut ends);
        let (state, reason) = if ends.closed {
            (BusState::Closed, None)
        } else if let Some(error) = &ends.store {
            (BusState::Down, Some(error.clone()))
        } else if !ends.store_answered || !ends.listener_answered {
            (BusState::Starting, ends.listener.clone())
        } else if ends.listening {
            (BusState::Live, None)
        } else {
            (BusState::Polling, ends.listener.clone())
        };
        self.shown.send_if_modified(|shown| {
            let changed = shown.state != state;
            if changed {
                shown.since = SystemTime::now();
                match &reason {
                    Some(reason) => {
                        tracing::warn!(from = ?shown.state, to = ?state, %reason, "the event bus has changed its state")
                    }
                    None => tracing::info!(from = ?shown.state, to = ?state, "the event bus has changed its state"),
                }
            }
            shown.state = state;
            shown.reason = reason;
            changed
        });
    }
}
