//! What a store assigns to an event when it appends it.

use std::time::SystemTime;

use super::{EventId, Record};
use crate::event::StreamEvent;

/// A [`Record`] without its event.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordMetadata {
    pub(super) seq: u64,
    pub(super) id: Option<EventId>,
    pub(super) previous_id: Option<EventId>,
    pub(super) appended_at: Option<SystemTime>,
}

impl RecordMetadata {
    pub(super) fn into_record<E: StreamEvent>(self, event: E) -> Record<E> {
        Record {
            seq: self.seq,
            id: self.id,
            previous_id: self.previous_id,
            appended_at: self.appended_at,
            event: Ok(event.with_seq(self.seq)),
        }
    }

    pub(super) fn stamp<E: StreamEvent>(self, event: E) -> E {
        event.with_seq(self.seq)
    }
}
