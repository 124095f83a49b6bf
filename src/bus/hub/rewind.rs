//! Replaces a stream's history by another one.

use super::recent_ids::RecentIds;
use super::stream::StreamRef;
use super::{Era, Hub, PastRewind, StreamNoticeKind, Work};
use crate::bus::StreamEvent;
use crate::store::EventId;

/// The number of rewinds that the hub remembers.
const REMEMBERED: usize = 10_000;

impl<E: StreamEvent> Hub<E> {
    /// Remembers the id of a delivered event.
    pub(crate) fn remember_id(&self, stream: &StreamRef, seq: u64, id: EventId) {
        if let Some(stream) = self.table.lock().current(stream.index, stream.version) {
            stream.recent_ids.push(seq, id);
        }
    }

    /// Returns the remembered numbers and ids of a stream, the oldest first.
    pub(crate) fn recent_ids(&self, stream: &StreamRef) -> Vec<(u64, EventId)> {
        let mut table = self.table.lock();
        let stream = table.current(stream.index, stream.version);
        stream.map_or_else(Vec::new, |stream| stream.recent_ids.0.iter().copied().collect())
    }

    /// Replaces the history of a stream by another one, which reaches up to `high_water`. Delivery continues after
    /// `resume_after`.
    pub(crate) fn rewind(&self, reference: &StreamRef, resume_after: u64, exact: bool, high_water: u64) {
        let mut table = self.table.lock();
        let index = reference.index;
        if table.current(index, reference.version).is_none() {
            return;
        }
        let version = table.new_version();
        let rewind = PastRewind {
            number: table.last_rewind() + 1,
            index,
            resume_after,
            exact,
        };
        if table.rewinds.len() == REMEMBERED {
            table.rewinds.pop_front();
        }
        table.rewinds.push_back(rewind);
        table.forget_late(index); // it named an event of the old history
        let stream = table.stream_mut(index);
        // Reads of the old history that are under way carry the old version, so their pages are refused.
        stream.version = version;
        stream.era = Era::of(&rewind);
        let era = stream.era;
        stream.cursor = Some(resume_after);
        stream.wanted = high_water;
        stream.recent_from = None;
        stream.must_sweep = false;
        stream.recent_ids.truncate(if exact { resume_after } else { 0 });
        self.send(&mut table, index, vec![StreamNoticeKind::from(rewind).on(index, era)]);
        drop(table);
        self.flush();
        (self.wakeup)(Work::Read);
    }
}

impl RecentIds {
    /// Returns the id of number `seq`, if it is remembered.
    pub(super) fn get(&self, seq: u64) -> Option<EventId> {
        let at = self.0.binary_search_by_key(&seq, |&(seq, _)| seq).ok()?;
        Some(self.0[at].1)
    }

    /// Forgets the numbers above `seq`.
    fn truncate(&mut self, seq: u64) {
        while self.0.back().is_some_and(|&(last, _)| last > seq) {
            self.0.pop_back();
        }
    }
}
