//! Detects that the store's history is not the one that was delivered, as after a failover to a standby that had not received all
//! events, or after a backup was restored.
//!
//! A stream is *rewound* if the store has fewer events than were delivered, or another event in the place of the last delivered
//! one. Delivery continues after the newest event that both histories have in common.

use std::sync::Arc;

use super::shared::SharedBus;
use crate::bus::StreamEvent;
use crate::bus::hub::{DeliveryCursor, MAX_REMEMBERED};
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

/// Compares all events whose ids are remembered, and rewinds streams in which one differs: if the history was replaced while events were
/// delivered, the last ones may be of the new history, and those before them of the old one.
pub(super) async fn check_remembered<E: StreamEvent>(
    shared: &SharedBus<E>,
    cursors: &[DeliveryCursor],
) -> Result<(), StoreError> {
    for chunk in cursors.chunks(IDS_PER_QUERY / MAX_REMEMBERED) {
        let remembered: Vec<_> = chunk
            .iter()
            .map(|cursor| shared.hub.recent_ids(&cursor.stream))
            .collect();
        let of_stream = |(cursor, ids): (&DeliveryCursor, &Vec<(u64, EventId)>)| {
            let key = Arc::clone(&cursor.stream.key);
            ids.iter().map(|&(seq, _)| (Arc::clone(&key), seq)).collect::<Vec<_>>()
        };
        let places: Vec<_> = chunk.iter().zip(&remembered).flat_map(of_stream).collect();
        if places.is_empty() {
            continue;
        }
        let mut stored = shared.store.event_ids(&places).await?.into_iter();
        for (cursor, ids) in chunk.iter().zip(remembered) {
            let stored: Vec<_> = stored.by_ref().take(ids.len()).collect();
            let mut pairs = ids.iter().zip(stored);
            if pairs.any(|(&(_, id), stored)| stored.is_some_and(|stored| stored != id)) {
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
    let (resume_after, exact) =
        divergence(&remembered, &stored, high_water).unwrap_or((high_water.min(cursor.seq), false));
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

/// Returns the number before the first remembered event that the store lacks or has replaced, and whether both histories are known to have
/// that one. Without such an event, the last one that both have. `None` if nothing is known.
fn divergence(remembered: &[(u64, EventId)], stored: &[Option<EventId>], high_water: u64) -> Option<(u64, bool)> {
    let mut common = None;
    for (&(seq, id), &stored) in remembered.iter().zip(stored) {
        match stored {
            Some(stored) if stored == id => common = Some((seq, true)),
            None if seq <= high_water => {} // it may have been trimmed
            Some(_) | None => return Some(common.unwrap_or(((seq - 1).min(high_water), false))),
        }
    }
    common
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
        let at =
            |ids: [Option<u128>; 3], high_water| divergence(&remembered, &ids.map(|id| id.map(EventId)), high_water);
        assert_eq!(at([Some(30), Some(40), Some(51)], 9), Some((4, true)));
        assert_eq!(at([Some(30), None, None], 3), Some((3, true)));
        assert_eq!(at([None, None, None], 1), Some((1, false)));
        assert_eq!(divergence(&[], &[], 9), None);
    }

    #[test]
    fn delivery_resumes_before_the_first_event_that_was_replaced() {
        let remembered = [(3, EventId(30)), (4, EventId(40)), (5, EventId(50))];
        let at = |ids: [Option<u128>; 3]| divergence(&remembered, &ids.map(|id| id.map(EventId)), 9);
        // The oldest were trimmed, so nothing is known about them.
        assert_eq!(at([None, Some(41), Some(51)]), Some((3, false)));
        // The last one was delivered from the new history already.
        assert_eq!(at([Some(31), Some(41), Some(50)]), Some((2, false)));
        assert_eq!(at([Some(30), Some(41), Some(50)]), Some((3, true)));
    }
}
