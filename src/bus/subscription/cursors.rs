//! The progress of a subscription in each of its streams.

use crate::bus::hub::{Hub, StartPosition, StreamIndex, UNSET};

/// Marks a cursor as fresh: nothing has been delivered since the start, so a late notification may still lower it. Event numbers
/// never use this bit, since Postgres counts to 2^63.
const FRESH: u64 = 1 << 63;

pub(super) enum Cursors {
    /// The cursor of one stream.
    One(u64),
    /// Cursors by index.
    All(Vec<u64>),
}

impl Cursors {
    pub(super) fn at(start: &StartPosition) -> Self {
        match start {
            StartPosition::One(after) => Self::One(after | FRESH),
            StartPosition::All(after) => Self::All(
                after
                    .iter()
                    .map(|&after| if after == UNSET { UNSET } else { after | FRESH })
                    .collect(),
            ),
        }
    }

    /// Creates a cursor after a number that the subscriber has received. No notification changes this start.
    pub(super) fn after(seq: u64) -> Self {
        Self::One(seq & !FRESH)
    }

    fn entry<E: Send + Sync + 'static>(&mut self, hub: &Hub<E>, index: StreamIndex) -> &mut u64 {
        match self {
            Self::One(cursor) => cursor,
            Self::All(cursors) => {
                if cursors.len() <= index.as_usize() {
                    cursors.resize(index.as_usize() + 1, UNSET);
                }
                let cursor = &mut cursors[index.as_usize()];
                if *cursor == UNSET {
                    *cursor = hub.base(index) | FRESH;
                }
                cursor
            }
        }
    }

    /// Returns the number of the last event. The subscription must have received an item of the stream.
    pub(super) fn get<E: Send + Sync + 'static>(&mut self, hub: &Hub<E>, index: StreamIndex) -> u64 {
        *self.entry(hub, index) & !FRESH
    }

    pub(super) fn set<E: Send + Sync + 'static>(&mut self, hub: &Hub<E>, index: StreamIndex, seq: u64) {
        *self.entry(hub, index) = seq & !FRESH;
    }

    /// Moves back to `to`. Returns the number of the last event that was delivered before, if there was one; if not, the start has moved.
    pub(super) fn rewind<E: Send + Sync + 'static>(
        &mut self,
        hub: &Hub<E>,
        index: StreamIndex,
        to: u64,
    ) -> Option<u64> {
        let cursor = self.entry(hub, index);
        let (delivered, fresh) = (*cursor & !FRESH, *cursor & FRESH);
        *cursor = delivered.min(to) | fresh;
        (fresh == 0).then_some(delivered)
    }

    /// Moves back to `to` if nothing has been delivered. Returns the former start, up to which events have to be read from the
    /// history.
    pub(super) fn lower<E: Send + Sync + 'static>(&mut self, hub: &Hub<E>, index: StreamIndex, to: u64) -> Option<u64> {
        let cursor = self.entry(hub, index);
        let start = *cursor & !FRESH;
        if *cursor & FRESH == 0 || to >= start {
            return None;
        }
        *cursor = to | FRESH;
        Some(start)
    }
}
