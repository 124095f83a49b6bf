//! The errors returned by receives and by the builder.

use core::fmt;

/// The error of a subscriber that fell behind and lost the events from `first_missed` up to (not including) `resume_at`.
///
/// It is reported once per loss. The subscriber has already moved past the lost events: its next receive is for `resume_at`.
///
/// ```
/// use doorbell::ring::{self, Lagged, TryRecvError};
///
/// let (publisher, mut subscriber) = ring::channel(4);
/// for event in 1..=10 {
///     publisher.publish(event);
/// }
/// let lagged = Lagged { skipped: 6, first_missed: 1, resume_at: 7 };
/// assert_eq!(subscriber.try_recv(), Err(TryRecvError::Lagged(lagged)));
/// assert_eq!(subscriber.try_recv(), Ok(7));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lagged {
    /// The number of sequences that were passed over, including those that [carry no event](super::RingStats::void).
    pub skipped: u64,
    /// The first sequence that was passed over.
    pub first_missed: u64,
    /// The sequence of the next receive: `first_missed + skipped`.
    pub resume_at: u64,
}

impl fmt::Display for Lagged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "subscriber lagged: {} events lost from sequence {}, resuming at {}",
            self.skipped, self.first_missed, self.resume_at
        )
    }
}

impl std::error::Error for Lagged {}

/// The error returned by receives that do not wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TryRecvError {
    /// The next event is not published yet.
    Empty,
    /// The next events were overwritten; the subscriber has moved past them.
    Lagged(Lagged),
    /// Every publisher was dropped, and every retained event has been received.
    Closed,
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("no event is available yet"),
            Self::Lagged(lagged) => lagged.fmt(f),
            Self::Closed => RecvError::Closed.fmt(f),
        }
    }
}

impl std::error::Error for TryRecvError {}

impl From<Lagged> for TryRecvError {
    fn from(lagged: Lagged) -> Self {
        Self::Lagged(lagged)
    }
}

/// The error returned by receives that wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RecvError {
    /// The next events were overwritten; the subscriber has moved past them and can continue to receive.
    Lagged(Lagged),
    /// Every publisher was dropped, and every retained event has been received.
    Closed,
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lagged(lagged) => lagged.fmt(f),
            Self::Closed => f.write_str("the channel is closed: every publisher was dropped"),
        }
    }
}

impl std::error::Error for RecvError {}

impl From<Lagged> for RecvError {
    fn from(lagged: Lagged) -> Self {
        Self::Lagged(lagged)
    }
}

/// The error returned by receives with a time limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RecvTimeoutError {
    /// The time limit has passed. Nothing was received or lost.
    Timeout,
    /// The next events were overwritten; the subscriber has moved past them and can continue to receive.
    Lagged(Lagged),
    /// Every publisher was dropped, and every retained event has been received.
    Closed,
}

impl fmt::Display for RecvTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("timed out before an event was published"),
            Self::Lagged(lagged) => lagged.fmt(f),
            Self::Closed => RecvError::Closed.fmt(f),
        }
    }
}

impl std::error::Error for RecvTimeoutError {}

impl From<RecvError> for RecvTimeoutError {
    fn from(error: RecvError) -> Self {
        match error {
            RecvError::Lagged(lagged) => Self::Lagged(lagged),
            RecvError::Closed => Self::Closed,
        }
    }
}

/// The error returned when a [`Builder`](super::Builder) cannot create its channel. Nothing was allocated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BuildError {
    /// A ring must hold at least one event.
    ZeroCapacity,
    /// More events than a ring can hold, or than fit into memory at this event size.
    CapacityTooLarge {
        /// The requested value.
        capacity: usize,
        /// The largest capacity that this event type allows.
        max: usize,
    },
    /// The first sequence must be between 1 and [`MAX_SEQ`](super::MAX_SEQ).
    FirstSeqOutOfRange {
        /// The requested value.
        first_seq: u64,
        /// The largest first sequence.
        max: u64,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroCapacity => f.write_str("the capacity is zero: a ring must hold at least one event"),
            Self::CapacityTooLarge { capacity, max } => {
                write!(
                    f,
                    "the capacity {capacity} is too large: at most {max} for this event type"
                )
            }
            Self::FirstSeqOutOfRange { first_seq, max } => {
                write!(
                    f,
                    "the first sequence {first_seq} is out of range: it must be between 1 and {max}"
                )
            }
        }
    }
}

impl std::error::Error for BuildError {}
