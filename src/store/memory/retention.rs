//! How much a memory store keeps.

use std::num::NonZeroUsize;

/// How many events a [`MemoryStore`](super::MemoryStore) keeps. Each append removes the events that exceed a limit, the oldest
/// first. The streams' numbering continues, and [`Page::low_water`](crate::store::Page::low_water) tells readers what is gone.
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
    /// The most events per stream. Default: 10,000.
    pub per_stream: NonZeroUsize,
    /// The most events in all streams together. Default: 100,000.
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
