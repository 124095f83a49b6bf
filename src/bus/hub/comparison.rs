//! Settles doubts: compares what was delivered of a stream with what the store has.

use super::continuity::Continuity;
use super::stream::{StreamIndex, StreamRef};
use super::{Hub, Work};
use crate::bus::StreamEvent;
use crate::store::{EventId, StreamHead};

/// A question to the store: which events it has in the places of those that were delivered.
#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) stream: StreamRef,
    /// The number up to which the stream is delivered.
    pub(crate) delivered: u64,
    /// The numbers and ids of the last delivered events, the oldest first.
    remembered: Vec<(u64, EventId)>,
}

/// The store's answer.
#[derive(Clone, Debug)]
pub(crate) struct StoredHistory {
    /// The ids of the events with the numbers that were asked for, of those that the store has.
    pub(crate) ids: Vec<Option<EventId>>,
    pub(crate) head: StreamHead,
    pub(crate) low_water: u64,
    /// Whether the server may lack events that it will have later.
    pub(crate) is_standby: bool,
}

/// What a comparison has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The store has the last delivered event, or retention has removed it.
    Same,
    /// The server does not have it yet.
    Later,
    /// The history was replaced. `exact` if both histories are known to be the same up to `resume_after`.
    Replaced { resume_after: u64, exact: bool },
}

impl Comparison {
    /// The numbers whose ids are asked for: those that are remembered, and the one before them, after which delivery may resume.
    pub(crate) fn seqs(&self) -> impl Iterator<Item = u64> + '_ {
        let before = self.before().filter(|&before| before > 0);
        self.remembered.iter().map(|&(seq, _)| seq).chain(before)
    }

    fn before(&self) -> Option<u64> {
        self.remembered.first().map(|&(oldest, _)| oldest - 1)
    }

    /// Returns the id of the store's event with this number, if it is known.
    fn stored_id(&self, seq: u64, stored: &StoredHistory) -> Option<EventId> {
        if seq == stored.head.seq {
            return stored.head.id;
        }
        let position = self.seqs().position(|asked| asked == seq)?;
        stored.ids.get(position).copied().flatten()
    }

    fn verdict(&self, stored: &StoredHistory) -> Verdict {
        let &StoredHistory {
            head,
            low_water,
            is_standby,
            ..
        } = stored;
        let pairs = || self.remembered.iter().zip(&stored.ids).rev();
        let last = pairs().next().filter(|(last, _)| last.0 == self.delivered);
        if let Some((last, &stored)) = last
            && stored == Some(last.1)
        {
            return Verdict::Same;
        }
        let is_replaced = pairs().any(|(&(_, id), &stored)| stored.is_some_and(|stored| stored != id));
        // Retention may have removed it, or its id is not known.
        let may_be_there = self.delivered <= low_water || (last.is_none() && head.seq >= self.delivered);
        if !is_replaced && may_be_there {
            return Verdict::Same;
        }
        if !is_replaced && is_standby && head.seq < self.delivered {
            return Verdict::Later;
        }
        // Events name their predecessors, so two histories that have an event in common have all before it in common.
        let mut resume_after = self.delivered;
        for (&(seq, id), &stored) in pairs() {
            if stored == Some(id) {
                return Verdict::Replaced {
                    resume_after: seq,
                    exact: true,
                };
            }
            if stored.is_none() && seq <= low_water {
                resume_after = seq; // removed, so nothing is known about it and those before
                break;
            }
            resume_after = seq - 1;
        }
        let resume_after = resume_after.min(head.seq);
        Verdict::Replaced {
            resume_after,
            exact: resume_after == 0,
        }
    }
}

impl<E: StreamEvent> Hub<E> {
    /// Returns `true` if streams are in doubt.
    pub(crate) fn has_doubts(&self) -> bool {
        !self.table.lock().doubts.is_empty()
    }

    /// Forgets what comparisons have confirmed: another server may answer the reads that follow.
    pub(crate) fn withdraw_confirmations(&self) {
        let mut table = self.table.lock();
        for stream in table.streams.iter_mut().flatten() {
            stream.take_confirmation();
        }
    }

    /// Takes at most `max` doubts. The caller asks the store and [settles](Self::settle) them, or puts them back.
    pub(crate) fn take_doubts(&self, max: usize) -> Vec<Comparison> {
        let mut table = self.table.lock();
        let count = max.min(table.doubts.len());
        let indexes: Vec<_> = table.doubts.drain(..count).collect();
        let comparison = |index| {
            let stream = table.streams.get(StreamIndex::as_usize(index))?.as_ref()?;
            stream.is_in_doubt().then(|| Comparison {
                delivered: stream.cursor.unwrap_or(0),
                remembered: stream.recent_ids.0.iter().copied().collect(),
                stream: stream.reference(index),
            })
        };
        indexes.into_iter().filter_map(comparison).collect()
    }

    /// Reschedules comparisons that the store did not answer.
    pub(crate) fn put_back_doubts(&self, comparisons: Vec<Comparison>) {
        let mut table = self.table.lock();
        for Comparison { stream, .. } in comparisons {
            if table.current(stream.index, stream.version).is_some() {
                table.doubts.push(stream.index);
            }
        }
    }

    /// Settles a doubt with the store's answer.
    pub(crate) fn settle(&self, comparison: &Comparison, stored: &StoredHistory) -> Verdict {
        let StreamRef { index, version, .. } = comparison.stream;
        let verdict = comparison.verdict(stored);
        if let Verdict::Replaced { resume_after, exact } = verdict {
            let resume_at = StreamHead {
                seq: resume_after,
                id: comparison.stored_id(resume_after, stored),
            };
            self.rewind(&comparison.stream, resume_at, exact, stored.head.seq);
            return verdict;
        }
        let mut table = self.table.lock();
        let Some(stream) = table.current(index, version) else {
            return verdict;
        };
        stream.continuity = Continuity::Unproven;
        stream.must_sweep |= verdict == Verdict::Later;
        if stream.read_after().is_some() {
            if verdict == Verdict::Same {
                stream.continuity = Continuity::Confirmed;
            }
            table.queue(index);
        }
        drop(table);
        (self.wakeup)(Work::Read);
        verdict
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const DELIVERED: [(u64, u128); 3] = [(3, 30), (4, 40), (5, 50)];

    fn verdict(
        remembered: &[(u64, u128)],
        ids: &[Option<u128>],
        head: u64,
        low_water: u64,
        is_standby: bool,
    ) -> Verdict {
        let comparison = Comparison {
            stream: StreamRef {
                index: StreamIndex(0),
                key: Arc::from("a"),
                version: 0,
            },
            delivered: 5,
            remembered: remembered.iter().map(|&(seq, id)| (seq, EventId(id))).collect(),
        };
        comparison.verdict(&StoredHistory {
            ids: ids.iter().map(|id| id.map(EventId)).collect(),
            head: StreamHead { seq: head, id: None },
            low_water,
            is_standby,
        })
    }

    fn replaced(resume_after: u64, exact: bool) -> Verdict {
        Verdict::Replaced { resume_after, exact }
    }

    #[test]
    fn delivery_resumes_after_the_newest_common_event() {
        let primary = |ids: [Option<u128>; 3], head| verdict(&DELIVERED, &ids, head, 0, false);
        assert_eq!(primary([Some(30), Some(40), Some(50)], 5), Verdict::Same);
        assert_eq!(primary([Some(30), Some(40), Some(50)], 9), Verdict::Same);
        assert_eq!(primary([Some(30), Some(40), Some(51)], 9), replaced(4, true));
        assert_eq!(primary([Some(30), None, None], 3), replaced(3, true));
        assert_eq!(primary([Some(31), Some(41), Some(51)], 9), replaced(2, false));
        assert_eq!(primary([None, None, None], 1), replaced(1, false));
        assert_eq!(primary([None, None, None], 0), replaced(0, true));
        // The row of the last delivered event was deleted by hand.
        assert_eq!(primary([Some(30), Some(40), None], 9), replaced(4, true));
    }

    #[test]
    fn removed_events_prove_nothing() {
        let trimmed = |ids: [Option<u128>; 3], low_water| verdict(&DELIVERED, &ids, 9, low_water, false);
        assert_eq!(trimmed([None, None, None], 7), Verdict::Same);
        assert_eq!(trimmed([None, Some(40), Some(50)], 3), Verdict::Same);
        assert_eq!(trimmed([None, Some(41), Some(51)], 3), replaced(3, false));
        // The last removed event is known.
        assert_eq!(trimmed([None, None, Some(51)], 5), replaced(4, false));
    }

    #[test]
    fn a_standby_may_lack_events_but_not_have_others() {
        let standby = |ids: [Option<u128>; 3], head| verdict(&DELIVERED, &ids, head, 0, true);
        assert_eq!(standby([Some(30), Some(40), None], 4), Verdict::Later);
        assert_eq!(standby([Some(30), Some(41), None], 4), replaced(3, true));
        assert_eq!(standby([Some(30), Some(40), Some(51)], 5), replaced(4, true));
    }

    #[test]
    fn without_ids_the_numbers_decide() {
        assert_eq!(verdict(&[], &[], 5, 0, false), Verdict::Same);
        assert_eq!(verdict(&[], &[], 4, 0, false), replaced(4, false));
        assert_eq!(verdict(&[], &[], 4, 0, true), Verdict::Later);
        assert_eq!(verdict(&[(3, 30)], &[Some(31)], 9, 0, false), replaced(2, false));
    }
}
