//! Reads the events that notifications and sweeps have named. One query reads everything that is pending; after its events are
//! delivered, the next query follows.

use std::sync::Arc;
use std::time::Duration;

use super::shared::SharedBus;
use crate::bus::StreamEvent;
use crate::pg::backoff::Retry;
use crate::store::ReplayRange;

pub(super) async fn run<E: StreamEvent>(shared: Arc<SharedBus<E>>) {
    let mut backoff = Retry::new(Duration::from_millis(20), Duration::from_millis(500));
    loop {
        // After a failover the next number may belong to another history than the delivered events.
        if shared.wakeups.needs_history_check() {
            shared.wakeups.reader.notified().await;
            continue;
        }
        let reads = shared.hub.take_reads(shared.settings.streams_per_read);
        if reads.is_empty() {
            shared.wakeups.reader_idle.notify_waiters();
            shared.wakeups.reader.notified().await;
            continue;
        }
        let ranges: Vec<_> = reads
            .iter()
            .map(|read| ReplayRange {
                stream_key: Arc::clone(&read.key),
                after: read.after,
            })
            .collect();
        shared.counters.reads.add(1);
        let checks_requested = shared.wakeups.checks_requested();
        let pages = match shared.store.replay_many(&ranges, shared.settings.page).await {
            Ok(pages) => pages,
            Err(error) => {
                shared.counters.failed_reads.add(1);
                shared.health.store_failed(error.into());
                shared.hub.put_back(reads);
                backoff.wait().await;
                continue;
            }
        };
        backoff.reset();
        shared.health.store_answered();
        // The connection may have been lost during the read, and another server may have answered it.
        if shared.wakeups.needs_history_check() || shared.wakeups.checks_requested() != checks_requested {
            shared.hub.put_back(reads);
            continue;
        }
        let mut any_unfounded = false;
        for (read, page) in reads.into_iter().zip(pages) {
            let appended_at = page.records.last().and_then(|record| record.appended_at);
            let delivered = shared.hub.deliver(read, page, shared.settings.page);
            if delivered.events > 0 {
                shared.counters.events_delivered.add(delivered.events);
                shared.health.delivered(appended_at);
            }
            shared.counters.notifications_invalid.add(delivered.unfounded);
            any_unfounded |= delivered.unfounded > 0;
        }
        if any_unfounded {
            // The notification was false, or its sender is ahead of the server that was read. In that case a sweep finds the event.
            tracing::debug!("a notification named events that the store does not have");
        }
    }
}
