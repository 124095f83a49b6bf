//! Reads what the doorbells announce: one query for everything that waits, then delivery, then the next.

use std::sync::Arc;
use std::time::Duration;

use super::shared::SharedBus;
use crate::bus::StreamEvent;
use crate::pg::backoff::Retry;
use crate::store::ReplayRange;

pub(super) async fn read<E: StreamEvent>(inner: Arc<SharedBus<E>>) {
    let mut backoff = Retry::new(Duration::from_millis(20), Duration::from_millis(500));
    loop {
        // What comes after a failover may follow on what was delivered before it, by its number only.
        if inner.wakeups.is_in_doubt() {
            inner.wakeups.reader.notified().await;
            continue;
        }
        let ranges = inner.hub.take_reads(inner.settings.streams_per_read);
        if ranges.is_empty() {
            inner.wakeups.reader.notified().await;
            continue;
        }
        let wanted: Vec<_> = ranges
            .iter()
            .map(|range| ReplayRange {
                stream_key: Arc::clone(&range.key),
                after: range.after,
            })
            .collect();
        inner.counters.reads.add(1);
        let pages = match inner.store.replay_many(&wanted, inner.settings.page).await {
            Ok(pages) => pages,
            Err(error) => {
                inner.counters.failed_reads.add(1);
                inner.health.store_failed(error.into());
                inner.hub.put_back(ranges);
                backoff.wait().await;
                continue;
            }
        };
        backoff.reset();
        inner.health.store_answered();
        if inner.wakeups.is_in_doubt() {
            inner.hub.put_back(ranges);
            continue;
        }
        let mut unfounded = false;
        for (range, page) in ranges.into_iter().zip(pages) {
            let appended_at = page.records.last().and_then(|record| record.appended_at);
            let delivered = inner.hub.deliver(range, page, inner.settings.page);
            if delivered.events > 0 {
                inner.counters.events_delivered.add(delivered.events);
                inner.health.delivered(appended_at);
            }
            inner.counters.notifications_invalid.add(delivered.unfounded);
            unfounded |= delivered.unfounded > 0;
        }
        if unfounded {
            // Forged, most likely; or announced by a server that is ahead of the one that is read. The sweep will tell.
            tracing::debug!("a doorbell announced events that the store does not have");
        }
    }
}
