//! Replaces a stream's history by another one.

use super::continuity::Continuity;
use super::recent_ids::RecentIds;
use super::stream::StreamRef;
use super::{Era, Hub, PastRewind, StreamNoticeKind, Work};
use crate::bus::StreamEvent;
use crate::store::StreamHead;

/// The number of rewinds that the hub remembers.
const REMEMBERED: usize = 10_000;

impl<E: StreamEvent> Hub<E> {
    /// Replaces the history of a stream by another one, which reaches up to `high_water`. Delivery continues after the event
    /// `resume_at` of that.
    pub(crate) fn rewind(&self, reference: &StreamRef, resume_at: StreamHead, exact: bool, high_water: u64) {
        let resume_after = resume_at.seq;
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
        stream.continuity = Continuity::Unproven;
        stream.recent_ids.truncate(if exact { resume_after } else { 0 });
        stream.recent_ids.push_head(Some(resume_at));
        self.push(&mut table, index, vec![StreamNoticeKind::from(rewind).on(index, era)]);
        if !exact {
            // Those who have received nothing since they started are owed what the new history got since then.
            table.stream_mut(index).delivered_at = 0;
            self.on_late_notification(&mut table, index, 1);
        }
        if table.stream(index).read_after().is_some() {
            table.queue(index);
        }
        drop(table);
        self.flush();
        (self.wakeup)(Work::Read);
    }
}

impl RecentIds {
    /// Forgets the numbers above `seq`.
    fn truncate(&mut self, seq: u64) {
        while self.0.back().is_some_and(|&(last, _)| last > seq) {
            self.0.pop_back();
        }
    }
}
