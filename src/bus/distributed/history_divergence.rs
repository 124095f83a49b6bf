//! Settles whether the store's history is the one that was delivered, for streams of which something does not fit: after a failover to a
//! standby that had not received all events, after a backup was restored, or after rows were changed by hand.
//!
//! A stream is *rewound* if the store has lost events that were delivered, or has others in their places. Delivery continues after the newest
//! event that both histories have in common.

use std::sync::Arc;

use super::shared::SharedBus;
use crate::bus::StreamEvent;
use crate::bus::hub::{Comparison, MAX_REMEMBERED, StoredHistory, Verdict};
use crate::store::{ReplayRange, StoreError};

/// The maximum number of streams that are compared at once.
const STREAMS_PER_COMPARISON: usize = 1000 / MAX_REMEMBERED;

/// Compares what was delivered of the streams in doubt with what the store has.
pub(super) async fn settle<E: StreamEvent>(shared: &SharedBus<E>) -> Result<(), StoreError> {
    loop {
        let comparisons = shared.hub.take_doubts(STREAMS_PER_COMPARISON);
        if comparisons.is_empty() {
            return Ok(());
        }
        let checks_requested = shared.wakeups.checks_requested();
        let stored = match ask(shared, &comparisons).await {
            Ok(stored) => stored,
            Err(error) => {
                shared.hub.put_back_doubts(comparisons);
                return Err(error);
            }
        };
        // The connection may have been lost meanwhile, and several servers may have answered.
        if shared.wakeups.checks_requested() != checks_requested {
            shared.hub.put_back_doubts(comparisons);
            return Ok(()); // the next sweep follows at once
        }
        for (comparison, stored) in comparisons.iter().zip(stored) {
            let Verdict::Replaced { resume_after, exact } = shared.hub.settle(comparison, &stored) else {
                continue;
            };
            shared.counters.rewinds.add(1);
            tracing::warn!(
                stream = &*comparison.stream.key,
                delivered = comparison.delivered,
                resume_after,
                exact,
                "the store's history of a stream differs from the delivered one, rewinding"
            );
        }
    }
}

async fn ask<E: StreamEvent>(
    shared: &SharedBus<E>,
    comparisons: &[Comparison],
) -> Result<Vec<StoredHistory>, StoreError> {
    let keys: Vec<Arc<str>> = comparisons
        .iter()
        .map(|comparison| Arc::clone(&comparison.stream.key))
        .collect();
    let positions = |comparison: &Comparison| {
        let key = Arc::clone(&comparison.stream.key);
        comparison
            .seqs()
            .map(move |seq| (Arc::clone(&key), seq))
            .collect::<Vec<_>>()
    };
    let positions: Vec<_> = comparisons.iter().flat_map(positions).collect();
    // In this order: what retention removes meanwhile is below the low-water mark when that is read.
    let mut ids = shared.store.event_ids(&positions).await?.into_iter();
    let heads = shared.store.heads(&keys).await?;
    let low_waters = low_waters(shared, keys).await?;
    let of_streams = comparisons.iter().zip(heads.streams.into_iter().zip(low_waters));
    let stored = of_streams.map(|(comparison, (head, low_water))| StoredHistory {
        ids: ids.by_ref().take(comparison.seqs().count()).collect(),
        head,
        low_water,
        is_standby: heads.is_standby,
    });
    Ok(stored.collect())
}

/// Returns the streams' low-water marks.
async fn low_waters<E: StreamEvent>(shared: &SharedBus<E>, keys: Vec<Arc<str>>) -> Result<Vec<u64>, StoreError> {
    // A page shows the mark even if it has no records.
    let beyond_the_end = |stream_key| ReplayRange {
        stream_key,
        after: u64::MAX,
    };
    let ranges: Vec<_> = keys.into_iter().map(beyond_the_end).collect();
    let pages = shared.store.replay_many(&ranges, 1).await?;
    Ok(pages.into_iter().map(|page| page.low_water).collect())
}
