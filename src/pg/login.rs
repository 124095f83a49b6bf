//! Logins that the server refuses: a wrong password, a role without LOGIN, no such database.

use std::sync::Arc;

use parking_lot::Mutex;
use thiserror::Error;
use tokio::time::{Duration, Instant};

use super::backoff::Backoff;

/// The server's reason for refusing the login.
#[derive(Clone, Debug, Error)]
#[error("{0}")]
pub(crate) struct LoginRefused(Arc<str>);

impl LoginRefused {
    pub(crate) fn new(reason: &str) -> Self {
        Self(reason.into())
    }
}

impl From<LoginRefused> for sqlx::Error {
    fn from(refused: LoginRefused) -> Self {
        Self::Configuration(Box::new(refused))
    }
}

/// Lets one login at a time be attempted after one was refused, with the listener's delays. Servers count refusals, and may lock the role.
#[derive(Default)]
pub(crate) struct LoginGate(Mutex<Option<Refusal>>);

struct Refusal {
    refused: LoginRefused,
    /// When the next attempt is due.
    due: Instant,
}

fn next_attempt() -> Instant {
    Instant::now() + Backoff::default().delay(0, Duration::ZERO, true, fastrand::f64())
}

impl LoginGate {
    pub(crate) fn is_refused(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Whether a login may be attempted. If so, no other may until another delay has passed, or this one is [accepted](Self::accepted).
    pub(crate) fn try_attempt(&self) -> Result<(), LoginRefused> {
        let mut refusal = self.0.lock();
        match &mut *refusal {
            Some(Refusal { due, .. }) if *due <= Instant::now() => *due = next_attempt(),
            Some(Refusal { refused, .. }) => return Err(refused.clone()),
            None => {}
        }
        Ok(())
    }

    pub(crate) fn refused(&self, refused: LoginRefused) {
        let due = next_attempt();
        *self.0.lock() = Some(Refusal { refused, due });
    }

    pub(crate) fn accepted(&self) {
        *self.0.lock() = None;
    }

    /// Another connection was accepted: the next attempt is due.
    pub(crate) fn retry_now(&self) {
        if let Some(refusal) = &mut *self.0.lock() {
            refusal.due = Instant::now();
        }
    }
}
