//! Creates a ring, with the default or with other settings.

use super::error::BuildError;
use super::geometry::{Geometry, MAX_CAPACITY, MAX_SEQ};
use super::publisher::Publisher;
use super::shared::RingShared;
use super::slots::Slots;
use super::subscriber::Subscriber;
use crate::sync::{Arc, barriers_are_asymmetric};

/// Determines where a subscriber continues after a lag.
///
/// Everything that it passes over counts as skipped, in [`Lagged`](super::Lagged) and in the statistics.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OnLag {
    /// Continues at the oldest retained event. Loses the least now, but under load that event is the next to be overwritten.
    Oldest,
    /// Continues this many events after the oldest retained one, but at most at the next event to be published.
    Headroom(u64),
    /// Continues at the next event to be published. Skips everything published so far.
    Latest,
}

/// Determines where a new subscriber starts.
///
/// ```
/// use doorbell::ring::{self, Start};
///
/// let (publisher, _subscriber) = ring::channel(4);
/// publisher.publish_batch(["a", "b", "c"]);
/// let mut oldest = publisher.subscribe_from(Start::Oldest);
/// let mut after_two = publisher.subscribe_from(Start::After(2));
/// let mut latest = publisher.subscribe_from(Start::Latest);
/// assert_eq!(oldest.try_recv(), Ok("a"));
/// assert_eq!(after_two.try_recv(), Ok("c"));
/// assert_eq!(latest.try_recv(), Err(ring::TryRecvError::Empty));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Start {
    /// Starts with the next event. Excludes every sequence claimed before the subscriber exists.
    Latest,
    /// Starts with the oldest retained event.
    Oldest,
    /// Starts with the event after this sequence.
    ///
    /// If events after it are already overwritten, the first receive reports exactly those as lost. If it lies beyond the latest
    /// event, the subscriber receives nothing at or below it.
    After(u64),
}

/// Determines how the blocking receives wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum WaitStrategy {
    /// Spins briefly, yields a few times, then parks the thread. The right choice unless measurements say otherwise.
    #[default]
    Park,
    /// Spins briefly, then yields until there is an event. Keeps a core busy but lets other threads run.
    Yield,
    /// Spins until there is an event. Has the lowest latency, but keeps a core busy, and is very slow with more threads than
    /// cores.
    Spin,
}

/// Determines how waiting subscribers are woken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Wake {
    /// A publication wakes a few waiters, and each of these wakes more when it runs, so the cost of publishing does not depend on
    /// the number of waiters.
    #[default]
    Cascade,
    /// A publication wakes every waiter before it returns; its cost is proportional to their number.
    All,
}

/// Creates a ring with settings other than the default ones.
///
/// ```
/// use doorbell::ring::{Builder, OnLag, Wake};
///
/// let (publisher, mut subscriber) = Builder::new(1000)
///     .on_lag(OnLag::Headroom(100))
///     .wake(Wake::All)
///     .first_seq(1_000_000)
///     .channel()?;
/// assert_eq!(publisher.publish("first"), 1_000_000);
/// assert_eq!(subscriber.try_recv_seq(), Ok((1_000_000, "first")));
/// # Ok::<(), doorbell::ring::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    pub(super) capacity: usize,
    pub(super) on_lag: Option<OnLag>,
    pub(super) first_seq: u64,
    pub(super) wait: WaitStrategy,
    pub(super) wake: Wake,
    pub(super) wake_watchdog: bool,
    /// Receives rely on asymmetric barriers; otherwise each fences.
    pub(super) asymmetric: bool,
}

impl Builder {
    /// Creates a builder for a ring that retains `capacity` events (exactly, not rounded), with the default settings.
    ///
    /// Range: 1 to 2^31. The ring allocates room for up to twice as many, once; like any allocation, it aborts the process if it fails.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            on_lag: None,
            first_seq: 1,
            wait: WaitStrategy::Park,
            wake: Wake::Cascade,
            wake_watchdog: true,
            asymmetric: barriers_are_asymmetric(),
        }
    }

    /// Sets where subscribers continue after a lag. Default: [`OnLag::Headroom`] of an eighth of the capacity.
    #[must_use]
    pub fn on_lag(mut self, on_lag: OnLag) -> Self {
        self.on_lag = Some(on_lag);
        self
    }

    /// Sets the first sequence. Default: 1. Range: 1 to [`MAX_SEQ`].
    #[must_use]
    pub fn first_seq(mut self, first_seq: u64) -> Self {
        self.first_seq = first_seq;
        self
    }

    /// Sets how the blocking receives wait. Default: [`WaitStrategy::Park`].
    #[must_use]
    pub fn wait(mut self, wait: WaitStrategy) -> Self {
        self.wait = wait;
        self
    }

    /// Sets how waiting subscribers are woken. Default: [`Wake::Cascade`].
    #[must_use]
    pub fn wake(mut self, wake: Wake) -> Self {
        self.wake = wake;
        self
    }

    /// Sets whether a background thread (one per process) wakes the next subscribers when woken ones are too busy to do so.
    /// Default: true.
    ///
    /// The thread starts when a second subscriber waits, or when a task waits behind an event whose publication has begun. Without it, if a
    /// woken subscriber never runs, those that it should wake wait for the next publication; a publication costs one more fence; and such
    /// a task is polled again and again.
    #[must_use]
    pub fn wake_watchdog(mut self, wake_watchdog: bool) -> Self {
        self.wake_watchdog = wake_watchdog;
        self
    }

    /// Creates a ring for many publishers and many subscribers.
    ///
    /// # Errors
    ///
    /// Returns [`BuildError`] if the capacity or the first sequence is out of range. Nothing is allocated then.
    pub fn channel<T: Send + Sync + 'static>(self) -> Result<(Publisher<T>, Subscriber<T>), BuildError> {
        let shared = Arc::new(RingShared::new(self.checked::<T>()?));
        let subscriber = Subscriber::new(shared.clone(), Start::Latest);
        Ok((Publisher::from_shared(shared), subscriber))
    }

    pub(super) fn checked<T>(&self) -> Result<&Self, BuildError> {
        let Self {
            capacity, first_seq, ..
        } = *self;
        if capacity == 0 {
            return Err(BuildError::ZeroCapacity);
        }
        let fit = isize::MAX.unsigned_abs() / Slots::<T>::STRIDE / 2;
        let max = MAX_CAPACITY.min(fit);
        if capacity > max {
            return Err(BuildError::CapacityTooLarge { capacity, max });
        }
        if !(1..=MAX_SEQ).contains(&first_seq) {
            return Err(BuildError::FirstSeqOutOfRange {
                first_seq,
                max: MAX_SEQ,
            });
        }
        debug_assert!(Geometry::new(capacity).slots() <= 2 * capacity as u64);
        Ok(self)
    }
}

/// Creates a ring that retains `capacity` events, for many publishers and many subscribers.
///
/// Every subscriber sees every event, in one order, numbered from 1. A subscriber that falls more than `capacity` events behind
/// gets an error that says exactly what it missed; publishers never wait.
///
/// ```
/// let (publisher, mut subscriber) = doorbell::ring::channel(1024);
/// let mut second = publisher.subscribe();
/// assert_eq!(publisher.publish("event"), 1);
/// assert_eq!(subscriber.try_recv(), Ok("event"));
/// assert_eq!(second.try_recv_seq(), Ok((1, "event")));
/// ```
///
/// # Panics
///
/// Panics if `capacity` is zero or too large ([`Builder`] returns an error instead).
#[must_use]
pub fn channel<T: Send + Sync + 'static>(capacity: usize) -> (Publisher<T>, Subscriber<T>) {
    Builder::new(capacity)
        .channel()
        .unwrap_or_else(|error| panic!("{error}"))
}
