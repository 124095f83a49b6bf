//! The retention of a memory store.

use std::num::NonZeroUsize;

/// The limits on the number of events that a [`MemoryStore`](super::MemoryStore) keeps.
///
/// Each append removes the events that exceed a limit, the oldest first. The streams' numbering continues, and readers find the
/// last removed number in [`Page::low_water`](crate::store::Page::low_water).
///
/// ```
/// use std::num::NonZeroUsize;
///
/// use doorbell::store::MemoryRetention;
///
/// let retention = MemoryRetention { per_stream: NonZeroUsize::new(100).unwrap(), ..MemoryRetention::default() };
/// assert_eq!(retention.total.get(), 100_000);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryRetention {
    /// The maximum number of events per stream. Default: 10,000.
    pub per_stream: NonZeroUsize,
    /// The maximum number of events in all streams together. Default: 100,000.
    pub total: NonZeroUsize,
}

impl Default for MemoryRetention {
    fn default() -> Self {
        Self {
            per_stream: const { NonZeroUsize::new(10_000).unwrap() },
            total: const { NonZeroUsize::new(100_000).unwrap() },
        }
    }
}
