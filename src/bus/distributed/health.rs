//! The health of the bus.

use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::bus::BusError;

/// What the bus can currently do.
///
/// ```
/// assert_ne!(doorbell::bus::BusState::Live, doorbell::bus::BusState::Polling);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum BusState {
    /// The store or the listening connection has not answered yet.
    Starting,
    /// Notifications are received: events arrive within milliseconds.
    Live,
    /// The store answers, but notifications cannot be received or cannot be sent: events arrive within the poll interval, or, if only
    /// this bus cannot send, those of this bus within the sweep interval of the others. No events are lost.
    Polling,
    /// The store does not answer: no events arrive until it does. No events are lost.
    Down,
    /// The bus is shut down. This state is final.
    Closed,
}

/// The health of a bus.
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
    /// What the bus can currently do.
    pub state: BusState,
    /// When the bus entered this state.
    pub since: SystemTime,
    /// Why the bus is not [`Live`](BusState::Live).
    pub reason: Option<BusError>,
    /// When an event was last delivered to a subscription of this process.
    pub last_delivery: Option<SystemTime>,
    /// The time from append to delivery of the last event that was read from the store: the append by the server's clock, the delivery
    /// by this machine's. Zero if this machine's clock is behind. With the feature `metrics`, all latencies are recorded in the histogram
    /// `doorbell_bus_append_to_delivery_seconds`.
    pub last_latency: Option<Duration>,
    /// The usage of the server's notification queue at the last sweep, from 0 to 1. It grows while a listening session of any database
    /// does not read its notifications. When the queue is full, every NOTIFY fails.
    pub notification_queue_usage: Option<f64>,
    /// The value of [`BusStats::unpersisted`](crate::bus::BusStats::unpersisted).
    pub unpersisted: u64,
}

/// The last answers of the store and of the listening connection.
#[derive(Default)]
struct Answers {
    store_answered: bool,
    store: Option<BusError>,
    /// Whether the store has answered since notifications are received: before that it may have reached another server.
    store_confirmed: bool,
    listener_answered: bool,
    listening: bool,
    listener: Option<BusError>,
    /// Why the latest notifications could not be sent.
    notify: Option<BusError>,
    /// Why none can be sent, as found by the latest sweep.
    notify_check: Option<BusError>,
    closed: bool,
}

/// The usage of the server's notification queue from which a NOTIFY must be expected to fail.
const QUEUE_IS_FULL: f64 = 0.98;

/// Derives the health of the bus from what its tasks report.
pub(super) struct HealthTracker {
    answers: Mutex<Answers>,
    health: watch::Sender<BusHealth>,
    last_delivery: Mutex<(Option<SystemTime>, Option<Duration>)>,
}

impl HealthTracker {
    pub(super) fn new() -> Self {
        Self {
            answers: Mutex::default(),
            health: watch::Sender::new(BusHealth {
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
        let mut health = self.health.borrow().clone();
        (health.last_delivery, health.last_latency) = *self.last_delivery.lock();
        health
    }

    pub(super) fn changes(&self) -> watch::Receiver<BusHealth> {
        self.health.subscribe()
    }

    /// An event was delivered. `appended_at` is known if it was read from the store.
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

    /// What a sweep found out about the server's notifications.
    pub(super) fn notify_checked(&self, queue_usage: f64, may_notify: bool) {
        self.health.send_if_modified(|health| {
            health.notification_queue_usage = Some(queue_usage);
            false
        });
        let reason = if !may_notify {
            "the role has no right to execute pg_notify".to_owned()
        } else if queue_usage >= QUEUE_IS_FULL {
            let percent = queue_usage * 100.0;
            format!("the server's notification queue is {percent:.0} % full; a listening session does not read it")
        } else {
            return self.update(|answers| answers.notify_check = None);
        };
        self.update(|answers| answers.notify_check = Some(BusError::NotificationsNotSent { reason }));
    }

    /// Notifications were sent, or could not be.
    pub(super) fn notify_result(&self, failure: Option<BusError>) {
        self.update(|answers| answers.notify = failure);
    }

    /// Whether notifications can be sent, as far as is known.
    pub(super) fn can_notify(&self) -> bool {
        let answers = self.answers.lock();
        answers.notify.is_none() && answers.notify_check.is_none()
    }

    pub(super) fn store_answered(&self) {
        self.update(|answers| {
            answers.store_answered = true;
            answers.store_confirmed = true;
            answers.store = None;
        });
    }

    pub(super) fn store_failed(&self, error: BusError) {
        self.update(|answers| answers.store = Some(error));
    }

    pub(super) fn listener(&self, listening: bool, reason: Option<BusError>) {
        self.update(|answers| {
            answers.store_confirmed &= listening && answers.listening;
            answers.listener_answered |= listening || reason.is_some();
            answers.listening = listening;
            answers.listener = reason;
        });
    }

    pub(super) fn closed(&self) {
        self.update(|answers| answers.closed = true);
    }

    fn update(&self, change: impl FnOnce(&mut Answers)) {
        let mut answers = self.answers.lock();
        change(&mut answers);
        let (state, reason) = if answers.closed {
            (BusState::Closed, None)
        } else if let Some(error) = &answers.store {
            (BusState::Down, Some(error.clone()))
        } else if !answers.store_answered || !answers.listener_answered {
            (BusState::Starting, answers.listener.clone())
        } else if answers.listening && !answers.store_confirmed {
            return; // the next answer of the store decides
        } else if let Some(error) = answers.notify.as_ref().or(answers.notify_check.as_ref())
            && answers.listening
        {
            (BusState::Polling, Some(error.clone()))
        } else if answers.listening {
            (BusState::Live, None)
        } else {
            (BusState::Polling, answers.listener.clone())
        };
        self.health.send_if_modified(|health| {
            let changed = health.state != state;
            if changed {
                health.since = SystemTime::now();
                match &reason {
                    Some(reason) => {
                        tracing::warn!(from = ?health.state, to = ?state, %reason, "event bus state changed")
                    }
                    None => tracing::info!(from = ?health.state, to = ?state, "event bus state changed"),
                }
            }
            health.state = state;
            health.reason = reason;
            changed
        });
    }
}
