//! The service. It changes its state and emits under one lock, so the events that a snapshot includes are known exactly.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use doorbell::cluster::{ClusterEvent, ClusterEventMeta, ClusterEventPublisher};

use crate::cluster::Cluster;

/// A console's position: the last event it saw, and the run of the service. Numbers from another run are meaningless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) run: u64,
    pub(crate) seq: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.run, self.seq)
    }
}

impl FromStr for Position {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let position = text.split_once('-').and_then(|(run, seq)| {
            let run = u64::from_str_radix(run, 16).ok()?;
            Some(Self {
                run,
                seq: seq.parse().ok()?,
            })
        });
        position.ok_or_else(|| format!("{text:?} is not an event id"))
    }
}

pub(crate) struct Service {
    pub(crate) publisher: ClusterEventPublisher,
    /// Identifies this run of the service.
    pub(crate) run: u64,
    cluster: Mutex<Cluster>,
}

impl Service {
    pub(crate) fn new(capacity: NonZeroUsize) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            publisher: ClusterEventPublisher::new(capacity),
            run: since.as_micros() as u64,
            cluster: Mutex::default(),
        }
    }

    /// Emits an event and applies it to the cluster.
    pub(crate) fn change(&self, build: impl FnOnce(ClusterEventMeta) -> ClusterEvent) -> ClusterEvent {
        let mut cluster = self.cluster();
        let event = self.publisher.emit(build);
        cluster.apply(&event);
        event
    }

    /// Returns the cluster and the position of the last event that it includes.
    pub(crate) fn snapshot(&self) -> (Position, Cluster) {
        let cluster = self.cluster();
        let as_of = self.position(self.publisher.as_of_seq());
        (as_of, cluster.clone())
    }

    pub(crate) fn position(&self, seq: u64) -> Position {
        Position { run: self.run, seq }
    }

    pub(crate) fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
