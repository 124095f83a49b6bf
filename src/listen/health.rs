//! The health of a listener: its state, since when, and why.

use std::time::SystemTime;

use tokio::sync::watch;

use super::error::ListenError;

/// The state of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ListenState {
    /// The first attempt to connect is under way.
    Connecting,
    /// Connected, and the server has acknowledged every channel that was subscribed to at the time.
    Healthy,
    /// The server answers, but notifications do not reach this session: for example, it is a standby, or there is a pooler in
    /// transaction mode. See [`ListenHealth::reason`]. The listener keeps trying.
    Degraded,
    /// There is no connection; notifications are missed until the listener reconnects.
    Disconnected,
    /// The listener or its runtime has been shut down, or its task panicked: then the reason is [`ListenError::Panicked`]. Final.
    Closed,
}

/// Whether notifications are known to reach this session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Delivery {
    /// Not checked yet on this connection, or [`self_probe`](super::ListenBuilder::self_probe) is off.
    Unverified,
    /// A notification that the listener sent to itself has arrived over this connection.
    Verified,
    /// A notification that the listener sent to itself did not arrive, or the server is a standby.
    Failed,
}

/// The server process behind the connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ServerInfo {
    /// Process id of the backend, as `pg_backend_pid()` returns it.
    pub backend_pid: i32,
    /// The server's `server_version`, such as `15.18`.
    pub version: String,
    /// When the server was started, in UTC, to the microsecond: distinguishes it from other servers. `None` if the role may not execute
    /// `pg_postmaster_start_time()`.
    pub started_at: Option<String>,
    /// Whether the connection goes through a pooler.
    pub pooled: bool,
}

/// A snapshot of the listener's health, from [`ListenMultiplexer::health`](super::ListenMultiplexer::health).
///
/// ```
/// use doorbell::listen::{Delivery, ListenMultiplexer, ListenState};
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let mux = ListenMultiplexer::builder().url("postgres://localhost:1/app").start()?;
/// let mut changes = mux.health_changes();
/// while changes.latest().state != ListenState::Disconnected {
///     changes.changed().await;
/// }
/// let health = mux.health();
/// assert_eq!(health.delivery, Delivery::Unverified);
/// assert!(health.reason.unwrap().to_string().starts_with("cannot connect"));
/// # Ok::<_, doorbell::listen::ListenError>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListenHealth {
    /// The current state.
    pub state: ListenState,
    /// When the listener entered this state, by the system clock.
    pub since: SystemTime,
    /// Why the listener is not healthy: the error of the latest attempt or probe.
    pub reason: Option<ListenError>,
    /// When the latest message from the server arrived, by the system clock. An idle server sends one per heartbeat interval.
    pub last_received: Option<SystemTime>,
    /// The server process; `None` while disconnected.
    pub server: Option<ServerInfo>,
    /// Whether the server is a standby; `None` before the first connection.
    pub standby: Option<bool>,
    /// Whether notifications are known to arrive.
    pub delivery: Delivery,
}

impl ListenHealth {
    pub(super) fn new() -> Self {
        Self {
            state: ListenState::Connecting,
            since: SystemTime::now(),
            reason: None,
            last_received: None,
            server: None,
            standby: None,
            delivery: Delivery::Unverified,
        }
    }

    /// Whether subscribers can rely on notifications: the state is `Healthy`, and delivery has not failed.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mux = doorbell::listen::ListenMultiplexer::builder().url("postgres://localhost:1/app").start().unwrap();
    /// assert!(!mux.health().is_listening());
    /// # });
    /// ```
    pub fn is_listening(&self) -> bool {
        self.state == ListenState::Healthy && self.delivery != Delivery::Failed
    }
}

/// Watches the listener's health, from [`ListenMultiplexer::health_changes`](super::ListenMultiplexer::health_changes).
///
/// Only the latest health is kept: a slow reader skips the ones in between.
#[derive(Clone, Debug)]
pub struct HealthChanges {
    pub(super) receiver: watch::Receiver<ListenHealth>,
}

impl HealthChanges {
    /// The current health. Its `last_received` dates from the latest change;
    /// [`ListenMultiplexer::health`](super::ListenMultiplexer::health) has the current one.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// use doorbell::listen::{ListenMultiplexer, ListenState};
    ///
    /// let mux = ListenMultiplexer::builder().url("postgres://localhost:1/app").start().unwrap();
    /// let changes = mux.health_changes();
    /// mux.shutdown().await;
    /// assert_eq!(changes.latest().state, ListenState::Closed);
    /// # });
    /// ```
    pub fn latest(&self) -> ListenHealth {
        self.receiver.borrow().clone()
    }

    /// Waits for the next change, and returns the health after it; `None` once the listener is closed and its last change has been
    /// returned.
    ///
    /// Cancel-safe: a dropped future does not consume a change.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// use doorbell::listen::{ListenMultiplexer, ListenState};
    ///
    /// let mux = ListenMultiplexer::builder().url("postgres://localhost:1/app").start().unwrap();
    /// let mut changes = mux.health_changes();
    /// drop(mux);
    /// let mut last = changes.latest().state;
    /// while let Some(health) = changes.changed().await {
    ///     last = health.state;
    /// }
    /// assert_eq!(last, ListenState::Closed);
    /// # });
    /// ```
    pub async fn changed(&mut self) -> Option<ListenHealth> {
        self.receiver.changed().await.ok()?;
        Some(self.receiver.borrow_and_update().clone())
    }
}
