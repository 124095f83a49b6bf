//! The builder, for settings beyond the capacity.

use core::fmt;
use core::marker::PhantomData;
use core::num::NonZeroUsize;
use std::sync::Arc;
use std::time::SystemTime;

use super::clock::Clock;
use super::publisher::ClusterEventPublisher;
use crate::ring::{self, BuildError, OnLag};

/// Builds a [`ClusterEventPublisher`]. Created by [`ClusterEventPublisher::builder`].
///
/// ```
/// use doorbell::cluster::{ClusterEventMeta, ClusterEventPublisher};
/// use std::num::NonZeroUsize;
/// use std::time::UNIX_EPOCH;
///
/// let publisher = ClusterEventPublisher::<ClusterEventMeta>::builder(NonZeroUsize::MIN)
///     .first_seq(1_001)
///     .clock(|| UNIX_EPOCH)
///     .build()?;
/// let meta = publisher.emit(|meta| meta);
/// assert_eq!(meta, ClusterEventMeta { cluster_seq: 1_001, observed_at: UNIX_EPOCH });
/// # Ok::<(), doorbell::ring::BuildError>(())
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct ClusterEventPublisherBuilder<E> {
    ring: ring::Builder,
    clock: Clock,
    event: PhantomData<fn() -> E>,
}

impl<E: Clone + Send + Sync + 'static> ClusterEventPublisherBuilder<E> {
    pub(super) fn new(capacity: NonZeroUsize) -> Self {
        Self {
            // A stream ends when it lags, so `skipped` counts only up to the oldest retained event.
            ring: ring::Builder::new(capacity.get()).on_lag(OnLag::Oldest),
            clock: Clock::default(),
            event: PhantomData,
        }
    }

    /// Sets the number of the first event. Default: 1. Range: 1 to [`MAX_SEQ`](ring::MAX_SEQ).
    ///
    /// Use this when consoles remember the last number they saw across a restart of the service. Start above every number used
    /// before, so that no console mistakes a new event for one it has already seen.
    pub fn first_seq(mut self, first_seq: u64) -> Self {
        self.ring = self.ring.first_seq(first_seq);
        self
    }

    /// Sets the clock behind [`observed_at`](super::ClusterEventMeta::observed_at). Default: the system clock, accurate to about
    /// a microsecond.
    ///
    /// Each `emit` calls it once, before the number is claimed. If it panics, no number is used.
    pub fn clock(mut self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.clock = Clock::Custom(Arc::new(clock));
        self
    }

    /// Builds the publisher.
    ///
    /// # Errors
    ///
    /// Returns an error, and allocates nothing, if the capacity or the first number is out of range.
    pub fn build(self) -> Result<ClusterEventPublisher<E>, BuildError> {
        let (publisher, _) = self.ring.channel()?;
        Ok(ClusterEventPublisher::from_parts(publisher, self.clock))
    }
}

impl<E> fmt::Debug for ClusterEventPublisherBuilder<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterEventPublisherBuilder")
            .field("ring", &self.ring)
            .field("clock", &self.clock)
            .finish()
    }
}
