//! The latest rewinds, for subscriptions that were too slow to find the notices in their ring.

use super::Hub;
use super::stream::StreamIndex;

/// A stream's history was replaced by another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PastRewind {
    /// Counts the rewinds of all streams.
    pub(crate) number: u64,
    pub(crate) index: StreamIndex,
    pub(crate) resume_after: u64,
    pub(crate) exact: bool,
}

impl<E: Send + Sync + 'static> Hub<E> {
    /// Returns the rewinds after number `seen`, of one stream or of all.
    pub(crate) fn rewinds_after(&self, seen: u64, index: Option<StreamIndex>) -> Vec<PastRewind> {
        let table = self.table.lock();
        let is_relevant =
            |rewind: &&PastRewind| rewind.number > seen && index.is_none_or(|index| index == rewind.index);
        table.rewinds.iter().filter(is_relevant).copied().collect()
    }
}
