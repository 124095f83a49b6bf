//! Whether what the store returns follows what was delivered.
//!
//! Each event names the one before it, so an event that names the last delivered one is delivered. If it does not, or if there is a hole
//! before it, or if the store's last event is not the delivered one, the stream is in doubt: nothing more of it is read or delivered
//! until its delivered events were compared with those that the store has in their places.

use super::stream::{Stream, StreamIndex};
use super::stream_table::StreamTable;
use crate::store::Record;

/// What is known about the place up to which a stream is delivered.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) enum Continuity {
    /// The next event has to prove that it follows.
    #[default]
    Unproven,
    /// Something does not fit.
    InDoubt,
    /// The store was just found to have the last delivered event. Whatever the read that is due finds after it follows.
    Confirmed,
}

impl<E: Send + Sync + 'static> Stream<E> {
    pub(super) fn is_in_doubt(&self) -> bool {
        self.continuity == Continuity::InDoubt
    }

    /// Whether a record, of a page with this low-water mark, may be delivered next. `is_within_page` if the last delivered event is of the
    /// same page, which shows one state of the store. `confirmed` is the number of the event that was confirmed before the read.
    pub(super) fn may_be_followed_by(
        &self,
        record: &Record<E>,
        low_water: u64,
        is_within_page: bool,
        confirmed: Option<u64>,
    ) -> bool {
        let Some(cursor) = self.cursor else { return true };
        if record.seq <= cursor || confirmed == Some(cursor) {
            return true;
        }
        if record.seq - 1 > cursor {
            // Retention may have removed the events before it, of whatever history.
            return is_within_page || record.seq - 1 <= low_water;
        }
        match self.recent_ids.get(cursor) {
            Some(delivered) if record.id.is_some() => {
                // A row that was inserted by hand may have none.
                record
                    .previous_id
                    .map_or(is_within_page, |previous| previous == delivered)
            }
            _ => true, // there is nothing to compare
        }
    }
}

impl<E: Send + Sync + 'static> Stream<E> {
    /// Returns whether the last delivered event was confirmed, for one read: later the store may have another history.
    pub(super) fn take_confirmation(&mut self) -> bool {
        let is_confirmed = self.continuity == Continuity::Confirmed;
        if is_confirmed {
            self.continuity = Continuity::Unproven;
        }
        is_confirmed
    }
}

impl<E: Send + Sync + 'static> StreamTable<E> {
    /// Stops reading and delivering a stream until it was compared with the store.
    pub(super) fn doubt(&mut self, index: StreamIndex) {
        let stream = self.stream_mut(index);
        if !stream.is_in_doubt() {
            stream.continuity = Continuity::InDoubt;
            self.doubts.push(index);
        }
    }
}
