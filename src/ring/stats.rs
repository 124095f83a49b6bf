//! Statistics of a ring and of its subscribers.

/// A snapshot of a ring, taken by [`Publisher::stats`](super::Publisher::stats).
///
/// The values are read one after another while other threads publish and receive. Each was correct at some moment during the
/// call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct RingStats {
    /// The number of sequences that the ring retains.
    pub capacity: usize,
    /// The first sequence of the ring.
    pub first_seq: u64,
    /// The next sequence to be claimed.
    pub next_seq: u64,
    /// The number of sequences that were claimed for an event, including those whose publication is still in progress.
    pub published: u64,
    /// The number of *void* sequences: they were claimed but carry no event, because the closure or iterator that should have
    /// supplied it panicked or yielded too few.
    pub void: u64,
    /// The number of subscribers.
    pub subscribers: usize,
    /// The number of publishers.
    pub publishers: usize,
    /// The position of the subscriber that is furthest behind, if there is one.
    pub slowest_position: Option<u64>,
}

/// Statistics of one subscriber, taken by [`Subscriber::stats`](super::Subscriber::stats).
///
/// `received + skipped + void` is always the number of sequences by which the subscriber has advanced since it was created.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct SubscriberStats {
    /// The number of events delivered.
    pub received: u64,
    /// The number of sequences lost to lag.
    pub skipped: u64,
    /// The number of sequences passed over because they carry no event.
    pub void: u64,
    /// The number of times that lag was reported or, by [`recv_lossy`](super::Subscriber::recv_lossy), passed over.
    pub lag_events: u64,
    /// The number of sequences claimed and not yet received; more than the capacity if the next receive will report a lag.
    pub backlog: u64,
    /// The largest backlog seen; sampled about once in 64 receives (more often for capacities below 512) and at every lag.
    pub backlog_high_water: u64,
}
