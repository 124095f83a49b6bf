//! A publisher with other than the usual settings.

use core::fmt;
use core::marker::PhantomData;
use core::num::NonZeroUsize;
use std::sync::Arc;
use std::time::SystemTime;

use super::clock::Clock;
use super::publisher::ClusterEventPublisher;
use crate::ring::{self, BuildError, OnLag};

/// Settings of a [`ClusterEventPublisher`]; made by [`ClusterEventPublisher::builder`].
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
#[must_use = "a builder does nothing until it builds"]
pub struct ClusterEventPublisherBuilder<E> {
    ring: ring::Builder,
    clock: Clock,
    event: PhantomData<fn() -> E>,
}

impl<E: Clone + Send + Sync + 'static> ClusterEventPublisherBuilder<E> {
    pub(super) fn new(capacity: NonZeroUsize) -> Self {
        Self {
            // A stream that lags ends, so what it could still have had does not count as lost.
            ring: ring::Builder::new(capacity.get()).on_lag(OnLag::Oldest),
            clock: Clock::default(),
            event: PhantomData,
        }
    }

    /// The number of the first event, from 1 to [`MAX_SEQ`](ring::MAX_SEQ). Usually 1.
    ///
    /// For a service whose consoles remember the last number they have seen beyond its restart: if it starts beyond all that it
    /// gave out before, no console takes new events for ones it knows.
    pub fn first_seq(mut self, first_seq: u64) -> Self {
        self.ring = self.ring.first_seq(first_seq);
        self
    }

    /// What tells the instant of observation. Usually the system's clock, to within about a microsecond.
    ///
    /// It is asked by each `emit`, before the number is stamped. If it panics, no number is used up.
    pub fn clock(mut self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.clock = Clock::Given(Arc::new(clock));
        self
    }

    /// Makes the publisher.
    ///
    /// # Errors
    ///
    /// When the capacity or the first number is out of bounds. Nothing is allocated then.
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
