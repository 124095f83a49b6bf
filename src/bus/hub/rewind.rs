//! Histories that turned out to be others.

use super::stream::{StreamRef, StreamSlot};
use super::table::Hub;
use super::{Era, StreamNoticeKind};
use crate::bus::StreamEvent;
use crate::store::EventId;

/// Rewinds that are remembered, for subscriptions that were too slow to have their notices.
const REMEMBERED: usize = 10_000;

/// A stream's history was replaced by another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PastRewind {
    /// Counts the rewinds of all streams.
    pub(crate) number: u64,
    pub(crate) slot: StreamSlot,
    pub(crate) resume_after: u64,
    pub(crate) exact: bool,
}

impl<E: StreamEvent> Hub<E> {
    /// The identity of a delivered event.
    pub(crate) fn note_identity(&self, stream: &StreamRef, seq: u64, id: EventId) {
        if let Some(stream) = self.table.lock().current(stream.slot, stream.version) {
            stream.recent.note(seq, id);
        }
    }

    /// What is remembered of a stream's events, the oldest first.
    pub(crate) fn remembered(&self, stream: &StreamRef) -> Vec<(u64, EventId)> {
        let mut table = self.table.lock();
        let stream = table.current(stream.slot, stream.version);
        stream.map_or_else(Vec::new, |stream| stream.recent.all())
    }

    /// The store's history of a stream is another one, and reaches up to `high_water`: goes on after `resume_after`.
    pub(crate) fn rewind(&self, reference: &StreamRef, resume_after: u64, exact: bool, high_water: u64) {
        let mut table = self.table.lock();
        let slot = reference.slot;
        if table.current(slot, reference.version).is_none() {
            return;
        }
        let version = table.new_version();
        let number = table.rewinds.back().map_or(0, |last| last.number) + 1;
        let rewind = PastRewind {
            number,
            slot,
            resume_after,
            exact,
        };
        if table.rewinds.len() == REMEMBERED {
            table.rewinds.pop_front();
        }
        table.rewinds.push_back(rewind);
        let stream = table.stream_mut(slot);
        stream.version = version;
        stream.era = Era::of(&rewind);
        let era = stream.era;
        stream.cursor = Some(resume_after);
        stream.wanted = high_water;
        stream.recent.truncate(if exact { resume_after } else { 0 });
        self.send(&mut table, slot, vec![StreamNoticeKind::Rewound(rewind).on(slot, era)]);
        drop(table);
        self.flush();
        (self.wakeup)();
    }

    /// The rewinds after number `seen`, of one stream or of all.
    pub(crate) fn rewinds_after(&self, seen: u64, slot: Option<StreamSlot>) -> Vec<PastRewind> {
        let table = self.table.lock();
        let of_interest = |rewind: &&PastRewind| rewind.number > seen && slot.is_none_or(|slot| slot == rewind.slot);
        table.rewinds.iter().filter(of_interest).copied().collect()
    }
}
