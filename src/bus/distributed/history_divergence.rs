//! Notices that the store's history is another than the one that was delivered: after a failover to a standby that had not
//! received everything, or from a restored backup.
//!
//! A stream that is shorter than what was delivered is rewound. So is one in which another event has the place of the last delivered
//! one. The newest event that both histories have in common is where delivery goes on.

use std::sync::Arc;

use super::shared::SharedBus;
use crate::bus::StreamEvent;
use crate::bus::hub::DeliveryCursor;
use crate::store::{EventId, StoreError};

/// Places that one question is about.
const AT_A_TIME: usize = 1000;

/// Identities of last delivered events that are asked for in one sweep, at most.
const NOTED: usize = 4000;

/// Compares the last delivered event of each stream with what the store has in its place.
pub(super) async fn look_for_rewinds<E: StreamEvent>(
    inner: &SharedBus<E>,
    cursors: &[DeliveryCursor],
) -> Result<(), StoreError> {
    for chunk in cursors.chunks(AT_A_TIME) {
        let places: Vec<_> = chunk
            .iter()
            .map(|cursor| (Arc::clone(&cursor.stream.key), cursor.seq))
            .collect();
        let identities = inner.store.event_ids(&places).await?;
        inner.health.store_answered();
        for (cursor, there) in chunk.iter().zip(identities) {
            if cursor.seq == 0 || (there.is_some() && there == cursor.id) {
                continue;
            }
            let replaced = there.is_some() && cursor.id.is_some();
            // An event that is not there may be trimmed; one that we never knew may be any.
            if replaced || (there.is_none() && inner.store.high_water(&cursor.stream.key).await? < cursor.seq) {
                rewind(inner, cursor).await?;
            }
        }
    }
    Ok(())
}

async fn rewind<E: StreamEvent>(inner: &SharedBus<E>, cursor: &DeliveryCursor) -> Result<(), StoreError> {
    let key = &cursor.stream.key;
    let remembered = inner.hub.remembered(&cursor.stream);
    let places: Vec<_> = remembered.iter().map(|&(seq, _)| (Arc::clone(key), seq)).collect();
    let now = inner.store.event_ids(&places).await?;
    let high_water = inner.store.high_water(key).await?;
    let (resume_after, exact) = match newest_common(&remembered, &now) {
        Some(seq) => (seq, true),
        None => (high_water.min(cursor.seq), false),
    };
    tracing::warn!(
        stream = &**key,
        delivered = cursor.seq,
        resume_after,
        exact,
        "the store's history of a stream is not the one that was delivered"
    );
    inner.counters.rewinds.add(1);
    inner.hub.rewind(&cursor.stream, resume_after, exact, high_water);
    Ok(())
}

fn newest_common(remembered: &[(u64, EventId)], now: &[Option<EventId>]) -> Option<u64> {
    let same = |&(&(_, id), &there): &(&(u64, EventId), &Option<EventId>)| there == Some(id);
    remembered.iter().zip(now).rev().find(same).map(|(&(seq, _), _)| seq)
}

/// Asks for the identities of events that were delivered without: those that this process has appended itself, and those that were
/// there before.
pub(super) async fn note_identities<E: StreamEvent>(
    inner: &SharedBus<E>,
    cursors: &[DeliveryCursor],
) -> Result<(), StoreError> {
    let unknown: Vec<_> = cursors
        .iter()
        .filter(|cursor| cursor.seq > 0 && cursor.id.is_none())
        .take(NOTED)
        .collect();
    for chunk in unknown.chunks(AT_A_TIME) {
        let places: Vec<_> = chunk
            .iter()
            .map(|cursor| (Arc::clone(&cursor.stream.key), cursor.seq))
            .collect();
        let identities = inner.store.event_ids(&places).await?;
        for (cursor, id) in chunk.iter().zip(identities) {
            if let Some(id) = id {
                inner.hub.note_identity(&cursor.stream, cursor.seq, id);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_common_event() {
        let remembered = [(3, EventId(30)), (4, EventId(40)), (5, EventId(50))];
        let now = |ids: [Option<u128>; 3]| ids.map(|id| id.map(EventId));
        assert_eq!(
            newest_common(&remembered, &now([Some(30), Some(40), Some(51)])),
            Some(4)
        );
        assert_eq!(newest_common(&remembered, &now([Some(30), None, None])), Some(3));
        assert_eq!(newest_common(&remembered, &now([None, Some(41), Some(51)])), None);
        assert_eq!(newest_common(&[], &[]), None);
    }
}
