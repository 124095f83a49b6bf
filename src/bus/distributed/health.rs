//! The health of the bus.

use std::mem::discriminant;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::store_operation::{OperationReport, StoreOperation};
use crate::bus::BusError;
use crate::bus::stats::Counters;
use crate::store::StoreError;

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
    /// The store answers reads, but refuses every append of this bus: at least two have failed, none has succeeded since, and the reason
    /// lies in the store, for example a full disk. Events of other processes arrive as in `Live` or `Polling`. Ends with the first append
    /// that succeeds, or with a new listening connection.
    ReadOnly,
    /// An operation of the bus on the store fails, such as its reads or its sweeps, and is repeated: some or all events do not arrive
    /// until it succeeds. [`BusHealth::failing`] says which. No events are lost.
    Down,
    /// The bus is shut down, by the application, with its runtime, or because one of its tasks panicked: then there is a reason. This
    /// state is final.
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
    /// The operations on the store that currently fail, in the order in which they began to. Usually they all fail; only some do if a
    /// right is missing, for example.
    pub failing: Vec<StoreOperation>,
    /// When an event was last delivered to a subscription of this process.
    pub last_delivery: Option<SystemTime>,
    /// The time from append to delivery of the last event that was read from the store: the append by the server's clock, the delivery
    /// by this machine's. If the two clocks differ, it is wrong by the difference; it is never negative. With the feature `metrics`, all latencies are recorded in the histogram
    /// `doorbell_bus_append_to_delivery_seconds`.
    pub last_latency: Option<Duration>,
    /// The usage of the server's notification queue at the last sweep, from 0 to 1. It grows while a listening session of any database
    /// does not read its notifications. When the queue is full, every NOTIFY fails.
    pub notification_queue_usage: Option<f64>,
    /// The value of [`BusStats::unpersisted`](crate::bus::BusStats::unpersisted).
    pub unpersisted: u64,
}

/// An operation on the store that fails.
struct Failing {
    /// Identifies its report.
    id: u64,
    operation: StoreOperation,
    error: StoreError,
}

/// The last answers of the store and of the listening connection.
#[derive(Default)]
struct Answers {
    store_answered: bool,
    /// In the order in which they began to fail.
    failing: Vec<Failing>,
    /// Whether the store has answered since notifications are received: before that it may have reached another server.
    store_confirmed: bool,
    listener_answered: bool,
    listening: bool,
    listener: Option<BusError>,
    /// Why the latest notifications could not be sent.
    notify: Option<BusError>,
    /// Why none can be sent, as found by the latest sweep.
    notify_check: Option<BusError>,
    /// Why the latest append failed, if the one before it failed as well, and the reasons lie in the store.
    append: Option<StoreError>,
    closed: bool,
    /// Why the bus has shut down by itself.
    failure: Option<BusError>,
}

/// The usage of the server's notification queue from which a NOTIFY must be expected to fail.
const QUEUE_IS_FULL: f64 = 0.98;

impl Answers {
    /// Returns the state and its reason. `None` if the next answer of the store decides.
    fn state(&self) -> Option<(BusState, Option<BusError>)> {
        Some(if self.closed {
            (BusState::Closed, self.failure.clone())
        } else if let Some(first) = self.failing.first() {
            (BusState::Down, Some(first.error.clone().into()))
        } else if !self.store_answered || !self.listener_answered {
            (BusState::Starting, self.listener.clone())
        } else if self.listening && !self.store_confirmed {
            return None;
        } else if let Some(error) = &self.append {
            (BusState::ReadOnly, Some(error.clone().into()))
        } else if !self.listening {
            (BusState::Polling, self.listener.clone())
        } else if let Some(error) = self.notify.as_ref().or(self.notify_check.as_ref()) {
            (BusState::Polling, Some(error.clone()))
        } else {
            (BusState::Live, None)
        })
    }

    fn failing(&self) -> Vec<StoreOperation> {
        let mut operations = Vec::new();
        let append = self.append.as_ref().map(|_| StoreOperation::Append);
        for operation in self.failing.iter().map(|failing| failing.operation).chain(append) {
            if !operations.contains(&operation) {
                operations.push(operation);
            }
        }
        operations
    }
}

/// Whether an append failed for a reason that lies in the store, so that other appends fail as well.
fn is_reason_of_store(error: &StoreError) -> bool {
    !matches!(
        error,
        StoreError::SeqConflict { .. }
            | StoreError::StreamFull { .. }
            | StoreError::InvalidStreamKey(_)
            | StoreError::Encode { .. }
            | StoreError::LockTimeout
            | StoreError::Deadlock
            | StoreError::Serialization
    )
}

/// Derives the health of the bus from what its tasks report.
pub(super) struct HealthTracker {
    answers: Mutex<Answers>,
    counters: Arc<Counters>,
    /// The id of the next operation's report.
    next_report: AtomicU64,
    /// Appends in a row that failed for a reason of the store. Changed while `answers` is locked.
    failed_appends: AtomicU32,
    health: watch::Sender<BusHealth>,
    last_delivery: Mutex<(Option<SystemTime>, Option<Duration>)>,
}

impl HealthTracker {
    pub(super) fn new(counters: Arc<Counters>) -> Self {
        Self {
            answers: Mutex::default(),
            counters,
            next_report: AtomicU64::new(0),
            failed_appends: AtomicU32::new(0),
            health: watch::Sender::new(BusHealth {
                state: BusState::Starting,
                since: SystemTime::now(),
                reason: None,
                failing: Vec::new(),
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

    /// An append succeeded, or failed with this error.
    pub(super) fn append_result(&self, failure: Option<&StoreError>) {
        match failure {
            // Relaxed: it is changed under a lock. An append that succeeds while another fails may come before or after it.
            None if self.failed_appends.load(Ordering::Relaxed) == 0 => {}
            None => self.update(|answers| self.forget_failed_appends(answers)),
            Some(error) if is_reason_of_store(error) => self.update(|answers| {
                // One failure is usually the loss of a connection, and the next append succeeds.
                if self.failed_appends.fetch_add(1, Ordering::Relaxed) > 0 {
                    answers.append = Some(error.clone());
                }
            }),
            Some(_) => {}
        }
    }

    fn forget_failed_appends(&self, answers: &mut Answers) {
        self.failed_appends.store(0, Ordering::Relaxed); // under the lock
        answers.append = None;
    }

    /// Returns the report of an operation that starts, or that a task repeats.
    pub(super) fn report(self: &Arc<Self>, operation: StoreOperation) -> OperationReport {
        // Relaxed: the ids only have to differ.
        let id = self.next_report.fetch_add(1, Ordering::Relaxed);
        OperationReport::new(Arc::clone(self), operation, id)
    }

    pub(super) fn store_answered(&self, report: u64) {
        self.update(|answers| {
            answers.store_answered = true;
            answers.store_confirmed = true;
            answers.failing.retain(|failing| failing.id != report);
        });
    }

    pub(super) fn store_failed(&self, report: u64, operation: StoreOperation, error: StoreError) {
        self.counters.failed_reads.add(1);
        self.update(
            |answers| match answers.failing.iter_mut().find(|failing| failing.id == report) {
                Some(failing) => failing.error = error,
                None => answers.failing.push(Failing {
                    id: report,
                    operation,
                    error,
                }),
            },
        );
    }

    pub(super) fn store_not_asked(&self, report: u64) {
        self.update(|answers| answers.failing.retain(|failing| failing.id != report));
    }

    pub(super) fn listener(&self, listening: bool, reason: Option<BusError>) {
        self.update(|answers| {
            answers.store_confirmed &= listening && answers.listening;
            if listening && !answers.listening {
                self.forget_failed_appends(answers); // the server may be another one
            }
            answers.listener_answered |= listening || reason.is_some();
            answers.listening = listening;
            answers.listener = reason;
        });
    }

    pub(super) fn closed(&self, failure: Option<BusError>) {
        self.update(|answers| {
            answers.closed = true;
            answers.failure = failure;
        });
    }

    fn update(&self, change: impl FnOnce(&mut Answers)) {
        let mut changed_from = None;
        self.health.send_if_modified(|health| {
            // Locked here, so that states follow each other as the answers do, and released before receivers are woken.
            let mut answers = self.answers.lock();
            change(&mut answers);
            let Some((state, reason)) = answers.state() else {
                return false;
            };
            let failing = answers.failing();
            drop(answers);
            let is_same = health.state == state
                && health.failing == failing
                && is_same_reason(health.reason.as_ref(), reason.as_ref());
            if is_same {
                return false;
            }
            changed_from = Some((
                health.state,
                health.reason.take(),
                state,
                reason.clone(),
                failing.clone(),
            ));
            if health.state != state {
                health.since = SystemTime::now();
            }
            (health.state, health.reason, health.failing) = (state, reason, failing);
            true
        });
        // A log's code may call the bus, so no lock is held here.
        let Some((from, old_reason, to, reason, failing)) = changed_from else {
            return;
        };
        let is_new_kind = match (&old_reason, &reason) {
            (Some(old), Some(new)) => discriminant(old) != discriminant(new),
            _ => false,
        };
        match reason {
            Some(reason) if from != to || is_new_kind => {
                tracing::warn!(?from, ?to, %reason, ?failing, "event bus state changed");
            }
            None if from != to => tracing::info!(?from, ?to, "event bus state changed"),
            _ => {}
        }
    }
}

/// Errors are compared by their messages.
fn is_same_reason(one: Option<&BusError>, other: Option<&BusError>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => one.to_string() == other.to_string(),
        _ => false,
    }
}
