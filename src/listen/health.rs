//! How the listener is doing: its state, since when, and why.

use std::time::SystemTime;

use tokio::sync::watch;

use super::error::ListenError;

/// What the listener is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ListenState {
    /// No connection has stood yet.
    Connecting,
    /// Connected, and the server has acknowledged every channel that was subscribed to when the connection was made.
    Healthy,
    /// The server answers, but notifications do not reach this session: it is a standby, or there is a pooler in
    /// transaction mode in between. The reason says which. The listener looks again every few seconds.
    Degraded,
    /// The connection is lost; notifications are being missed until it is back.
    Disconnected,
    /// The listener has been shut down, or its runtime has; final.
    Closed,
}

/// Whether notifications are known to reach this session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Delivery {
    /// Not tried yet on this connection, or the probe is switched off.
    Unproven,
    /// A notification to ourselves has arrived over this connection.
    Proven,
    /// A notification to ourselves did not arrive in time, or the server is a standby.
    Failed,
}

/// The server process behind the connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ServerInfo {
    /// The process id of the backend.
    pub backend_pid: i32,
    /// The version as the server writes it, such as `15.18`.
    pub version: String,
    /// Whether what answers the connection is not the backend itself: a pooler.
    pub pooled: bool,
}

/// A snapshot of how the listener is doing, from [`ListenMultiplexer::health`](super::ListenMultiplexer::health).
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
/// assert_eq!(health.delivery, Delivery::Unproven);
/// assert!(health.reason.unwrap().to_string().starts_with("cannot connect"));
/// # Ok::<_, doorbell::listen::ListenError>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListenHealth {
    /// What the listener is doing.
    pub state: ListenState,
    /// Since when it has been in this state.
    pub since: SystemTime,
    /// Why it is not healthy; what the last attempt ran into.
    pub reason: Option<ListenError>,
    /// When the server was last heard. While idle it is heard once in a heartbeat interval.
    pub last_received: Option<SystemTime>,
    /// The server process, while connected.
    pub server: Option<ServerInfo>,
    /// Whether the server is a standby; `None` until one has said.
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
            delivery: Delivery::Unproven,
        }
    }

    /// Whether a subscriber may rely on being notified: connected, acknowledged, and not known to be deaf.
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

/// Follows the changes of the listener's health, from
/// [`ListenMultiplexer::health_changes`](super::ListenMultiplexer::health_changes).
///
/// Changes that come faster than they are read are merged: what counts is the latest.
#[derive(Clone, Debug)]
pub struct HealthChanges {
    pub(super) receiver: watch::Receiver<ListenHealth>,
}

impl HealthChanges {
    /// The health as it is. `last_received` is that of the latest change;
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

    /// Waits for a change that this value has not seen yet, and returns the health after it; `None` when there will be no more,
    /// because the listener is gone.
    ///
    /// Cancel-safe: a change is seen only when it has been returned.
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
