//! Making a ring, and the choices one has.

use super::error::BuildError;
use super::geometry::{Geometry, MAX_CAPACITY, MAX_SEQ};
use super::publisher::Publisher;
use super::shared::{RingShared, Slot};
use super::subscriber::Subscriber;
use crate::sync::Arc;

/// Where a subscriber that lagged goes on.
///
/// Everything that is passed over counts as skipped, and [`Lagged`](super::Lagged) says how much that was.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OnLag {
    /// At the oldest retained event: loses the least now, but under load that event is overwritten next.
    Oldest,
    /// This many events behind the oldest retained one (at most at the next event to come).
    Headroom(u64),
    /// At the next event to come: everything published so far is given up.
    Latest,
}

/// Where a new subscriber starts.
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
    /// With the next event: everything claimed before the subscriber exists is excluded.
    Latest,
    /// With the oldest event that is retained.
    Oldest,
    /// With the event after this sequence.
    ///
    /// If events after it are overwritten already, the first receive reports exactly those as lost. If it lies beyond the end of
    /// the ring, nothing at or below it will be delivered.
    After(u64),
}

/// How the blocking receives wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum WaitStrategy {
    /// Spins briefly, yields a few times, then parks the thread. The right choice unless you have measured.
    #[default]
    Park,
    /// Spins briefly, then yields until there is something. Keeps a core busy, lets other threads run.
    Yield,
    /// Spins until there is something: the lowest latency, for a core of its own. With more threads than cores it is ruinous.
    Spin,
}

/// Who wakes the waiting subscribers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Wake {
    /// A publication wakes a few waiters, and each of these wakes more when it runs: publishing costs the same however many wait.
    #[default]
    Cascade,
    /// A publication wakes every waiter before it returns, which costs time in proportion to their number.
    All,
}

/// Makes a ring with other than the usual settings.
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
}

impl Builder {
    /// Starts with a ring that retains `capacity` events (taken as it is, not rounded) and the usual settings.
    ///
    /// The ring allocates room for up to twice as many, once.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            on_lag: None,
            first_seq: 1,
            wait: WaitStrategy::Park,
            wake: Wake::Cascade,
            wake_watchdog: true,
        }
    }

    /// Where subscribers go on after a lag. Usually [`OnLag::Headroom`] of an eighth of the capacity.
    #[must_use]
    pub fn on_lag(mut self, on_lag: OnLag) -> Self {
        self.on_lag = Some(on_lag);
        self
    }

    /// The first sequence, from 1 to [`MAX_SEQ`]. Usually 1.
    #[must_use]
    pub fn first_seq(mut self, first_seq: u64) -> Self {
        self.first_seq = first_seq;
        self
    }

    /// How the blocking receives wait. Usually [`WaitStrategy::Park`].
    #[must_use]
    pub fn wait(mut self, wait: WaitStrategy) -> Self {
        self.wait = wait;
        self
    }

    /// Who wakes waiting subscribers. Usually [`Wake::Cascade`].
    #[must_use]
    pub fn wake(mut self, wake: Wake) -> Self {
        self.wake = wake;
        self
    }

    /// Whether a background thread (one for the process) may stand in when woken subscribers are too busy to wake the next.
    ///
    /// Usually true; the thread starts when a second subscriber waits. Without it, subscribers behind a woken one that never runs
    /// wait for the next publication, and a publication costs one fence more.
    #[must_use]
    pub fn wake_watchdog(mut self, wake_watchdog: bool) -> Self {
        self.wake_watchdog = wake_watchdog;
        self
    }

    /// Makes a ring for many publishers and many subscribers.
    ///
    /// # Errors
    ///
    /// When the capacity or the first sequence is out of bounds. Nothing is allocated then.
    pub fn channel<T: Send + Sync + 'static>(self) -> Result<(Publisher<T>, Subscriber<T>), BuildError> {
        let core = Arc::new(RingShared::new(self.checked::<T>()?));
        let subscriber = Subscriber::new(core.clone(), Start::Latest);
        Ok((Publisher::from_core(core), subscriber))
    }

    pub(super) fn checked<T>(&self) -> Result<&Self, BuildError> {
        let Self {
            capacity, first_seq, ..
        } = *self;
        if capacity == 0 {
            return Err(BuildError::ZeroCapacity);
        }
        let fit = isize::MAX.unsigned_abs() / size_of::<Slot<T>>() / 2;
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

/// Makes a ring that retains `capacity` events, for many publishers and many subscribers.
///
/// Every subscriber sees every event, in one order, numbered from 1. A subscriber that falls more than `capacity` events behind is
/// told exactly what it missed; publishers never wait.
///
/// ```
/// let (publisher, mut subscriber) = doorbell::ring::channel(1024);
/// let mut second = publisher.subscribe();
/// assert_eq!(publisher.publish("ding"), 1);
/// assert_eq!(subscriber.try_recv(), Ok("ding"));
/// assert_eq!(second.try_recv_seq(), Ok((1, "ding")));
/// ```
///
/// # Panics
///
/// When `capacity` is zero or too large ([`Builder`] returns an error instead).
#[must_use]
pub fn channel<T: Send + Sync + 'static>(capacity: usize) -> (Publisher<T>, Subscriber<T>) {
    Builder::new(capacity)
        .channel()
        .unwrap_or_else(|error| panic!("{error}"))
}
