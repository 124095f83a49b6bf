//! Detects that the store's history is not the one that was delivered, as after a failover to a standby that had not received all
//! events, or after a backup was restored.
//!
//! A stream is *rewound* if the store has fewer events than were delivered, or another event in the place of the last delivered
//! one. Delivery continues after the newest event that both histories have in common.

use std::sync::Arc;

use super::shared::SharedBus;
use crate::bus::StreamEvent;
use crate::bus::hub::DeliveryCursor;
use crate::store::{EventId, StoreError};

/// The maximum number of ids in one query.
const IDS_PER_QUERY: usize = 1000;

/// The maximum number of unknown ids that one sweep asks for.
const IDS_PER_SWEEP: usize = 4000;

/// Compares the last delivered event of each stream with the store's event of the same number, and rewinds streams that differ.
pub(super) async fn check<E: StreamEvent>(shared: &SharedBus<E>, cursors: &[DeliveryCursor]) -> Result<(), StoreError> {
    for chunk in cursors.chunks(IDS_PER_QUERY) {
        let places: Vec<_> = chunk
            .iter()
            .map(|cursor| (Arc::clone(&cursor.stream.key), cursor.seq))
            .collect();
        let stored_ids = shared.store.event_ids(&places).await?;
        for (cursor, stored) in chunk.iter().zip(stored_ids) {
            if cursor.seq == 0 || (stored.is_some() && stored == cursor.id) {
                continue;
            }
            let is_replaced = stored.is_some() && cursor.id.is_some();
            // An event that the store does not have may have been trimmed. Without a known id there is nothing to compare.
            if is_replaced || (stored.is_none() && shared.store.high_water(&cursor.stream.key).await? < cursor.seq) {
                rewind(shared, cursor).await?;
            }
        }
    }
    Ok(())
}

async fn rewind<E: StreamEvent>(shared: &SharedBus<E>, cursor: &DeliveryCursor) -> Result<(), StoreError> {
    let key = &cursor.stream.key;
    let remembered = shared.hub.recent_ids(&cursor.stream);
    let places: Vec<_> = remembered.iter().map(|&(seq, _)| (Arc::clone(key), seq)).collect();
    let stored = shared.store.event_ids(&places).await?;
    let high_water = shared.store.high_water(key).await?;
    let (resume_after, exact) = match newest_common(&remembered, &stored) {
        Some(seq) => (seq, true),
        None => (high_water.min(cursor.seq), false),
    };
    tracing::warn!(
        stream = &**key,
        delivered = cursor.seq,
        resume_after,
        exact,
        "the store's history of a stream differs from the delivered one, rewinding"
    );
    shared.counters.rewinds.add(1);
    shared.hub.rewind(&cursor.stream, resume_after, exact, high_water);
    Ok(())
}

fn newest_common(remembered: &[(u64, EventId)], stored: &[Option<EventId>]) -> Option<u64> {
    let is_same = |&(&(_, id), &stored): &(&(u64, EventId), &Option<EventId>)| stored == Some(id);
    remembered
        .iter()
        .zip(stored)
        .rev()
        .find(is_same)
        .map(|(&(seq, _), _)| seq)
}

/// Queries the ids of last delivered events whose id is unknown: events that this process appended itself, and events from before
/// the subscriptions started.
pub(super) async fn remember_ids<E: StreamEvent>(
    shared: &SharedBus<E>,
    cursors: &[DeliveryCursor],
) -> Result<(), StoreError> {
    let unknown: Vec<_> = cursors
        .iter()
        .filter(|cursor| cursor.seq > 0 && cursor.id.is_none())
        .take(IDS_PER_SWEEP)
        .collect();
    for chunk in unknown.chunks(IDS_PER_QUERY) {
        let places: Vec<_> = chunk
            .iter()
            .map(|cursor| (Arc::clone(&cursor.stream.key), cursor.seq))
            .collect();
        let ids = shared.store.event_ids(&places).await?;
        for (cursor, id) in chunk.iter().zip(ids) {
            if let Some(id) = id {
                shared.hub.remember_id(&cursor.stream, cursor.seq, id);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_common_event_is_found() {
        let remembered = [(3, EventId(30)), (4, EventId(40)), (5, EventId(50))];
        let stored = |ids: [Option<u128>; 3]| ids.map(|id| id.map(EventId));
        assert_eq!(
            newest_common(&remembered, &stored([Some(30), Some(40), Some(51)])),
            Some(4)
        );
        assert_eq!(newest_common(&remembered, &stored([Some(30), None, None])), Some(3));
        assert_eq!(newest_common(&remembered, &stored([None, Some(41), Some(51)])), None);
        assert_eq!(newest_common(&[], &[]), None);
    }
}
