//! How much a store in memory keeps.

use std::num::NonZeroUsize;

/// How many events a [`MemoryStore`](super::MemoryStore) keeps. What goes beyond is removed as events are appended, the oldest
/// first; the numbers of its stream go on, and a reader that comes too late learns of it by
/// [`Page::low_water`](crate::store::Page::low_water).
///
/// The default is 10,000 events of each stream and 100,000 in all.
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
    /// The most events of one stream.
    pub per_stream: NonZeroUsize,
    /// The most events of all streams together.
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
