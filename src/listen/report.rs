//! Publishes the listener's health, the outcome of the first attempt, and the end of the listener.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::{oneshot, watch};

use super::error::ListenError;
use super::health::{Delivery, ListenHealth, ListenState};
use super::shared::SharedListener;

/// The worker's means to report. The worker's task owns it and drops it, however the task ends; the drop ends every subscription
/// and closes the listener.
pub(super) struct Report {
    shared: Arc<SharedListener>,
    health: watch::Sender<ListenHealth>,
    first_attempt: Option<oneshot::Sender<Result<(), ListenError>>>,
}

impl Report {
    pub(super) fn new(
        shared: Arc<SharedListener>,
        health: watch::Sender<ListenHealth>,
        first_attempt: Option<oneshot::Sender<Result<(), ListenError>>>,
    ) -> Self {
        Self {
            shared,
            health,
            first_attempt,
        }
    }

    /// Changes the health, and logs one line if the state has changed.
    pub(super) fn update(&self, change: impl FnOnce(&mut ListenHealth)) {
        let before = self.health.borrow().state;
        self.health.send_modify(|health| {
            change(health);
            health.last_received = self.shared.last_received();
            if health.state != before {
                health.since = SystemTime::now();
            }
        });
        let health = self.health.borrow().clone();
        if health.state != before {
            log(&health);
        }
    }

    pub(super) fn delivery(&self) -> Delivery {
        self.health.borrow().delivery
    }

    /// Reports the outcome of the first attempt. Later calls do nothing.
    pub(super) fn first_attempt(&mut self, outcome: Result<(), ListenError>) {
        if let Some(first_attempt) = self.first_attempt.take() {
            // The receiver may have been dropped.
            let _ = first_attempt.send(outcome);
        }
    }
}

fn log(health: &ListenHealth) {
    let reason = health.reason.as_ref().map(tracing::field::display);
    let backend = health.server.as_ref().map(|server| server.backend_pid);
    match health.state {
        ListenState::Healthy | ListenState::Connecting => tracing::info!(backend, "listening for notifications"),
        ListenState::Degraded => tracing::error!(reason, "notifications do not reach the listener"),
        ListenState::Disconnected => tracing::warn!(reason, "the listener lost its connection; reconnecting"),
        ListenState::Closed if matches!(health.reason, Some(ListenError::Panicked)) => {
            tracing::error!(reason, "the listener has ended");
        }
        ListenState::Closed => tracing::info!("the listener has shut down"),
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.shared.channels.close();
        self.update(|health| {
            if std::thread::panicking() {
                health.reason = Some(ListenError::Panicked);
            }
            health.state = ListenState::Closed;
            health.server = None;
            health.delivery = Delivery::Unverified;
        });
    }
}
