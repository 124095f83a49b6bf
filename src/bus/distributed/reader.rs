//! Reads the events that notifications and sweeps have named. One query reads everything that is pending; after its events are
//! delivered, the next query follows. If a query fails for a reason that may lie in one of its streams, each of them is read on its own
//! ([`isolated_reads`](super::isolated_reads)).

use std::sync::Arc;
use std::time::Duration;

use super::isolated_reads::may_concern_one_stream;
use super::shared::SharedBus;
use super::store_operation::StoreOperation;
use crate::bus::StreamEvent;
use crate::bus::hub::{LateCheck, PendingRead};
use crate::pg::backoff::Retry;
use crate::store::{Page, ReplayRange, StoreError};

pub(super) async fn run<E: StreamEvent>(shared: Arc<SharedBus<E>>) {
    let mut backoff = Retry::new(Duration::from_millis(20), Duration::from_millis(500));
    let mut report = shared.health.report(StoreOperation::Read);
    loop {
        // After a failover the next number may belong to another history than the delivered events.
        if shared.wakeups.needs_history_check() {
            shared.wakeups.reader.notified().await;
            continue;
        }
        let checks = shared.hub.take_late_checks(shared.settings.streams_per_read);
        if !checks.is_empty() {
            match decide_late(&shared, &checks).await {
                Ok(()) => {
                    backoff.reset();
                    report.succeeded();
                }
                Err(error) => {
                    report.failed(error);
                    backoff.wait().await;
                }
            }
            continue;
        }
        let reads = shared.hub.take_reads(shared.settings.streams_per_read, |key| {
            !shared.isolated_reads.contains(key)
        });
        if reads.is_empty() {
            report.not_due(); // the subscriptions whose reads failed are gone
            shared.wakeups.reader_idle.notify_waiters();
            shared.wakeups.reader.notified().await;
            continue;
        }
        let ranges: Vec<_> = reads.iter().map(range_of).collect();
        shared.counters.reads.add(1);
        let checks_requested = shared.wakeups.checks_requested();
        match shared.store.replay_many(&ranges, shared.settings.page).await {
            Ok(pages) => {
                backoff.reset();
                report.succeeded();
                deliver(&shared, reads, pages, shared.settings.page, checks_requested);
            }
            Err(error) if may_concern_one_stream(&error) => {
                report.failed(error);
                let failed = std::mem::replace(&mut report, shared.health.report(StoreOperation::Read));
                shared.isolated_reads.add(&reads, failed);
                shared.hub.put_back(reads);
            }
            Err(error) => {
                report.failed(error);
                shared.hub.put_back(reads);
                backoff.wait().await;
            }
        }
    }
}

pub(super) fn range_of(read: &PendingRead) -> ReplayRange {
    ReplayRange {
        stream_key: Arc::clone(&read.key),
        after: read.after,
    }
}

/// Delivers what was read. `checks_requested` is the value of [`Wakeups::checks_requested`](super::wakeups::Wakeups::checks_requested)
/// before the read.
pub(super) fn deliver<E: StreamEvent>(
    shared: &SharedBus<E>,
    reads: Vec<PendingRead>,
    pages: Vec<Page<E>>,
    limit: usize,
    checks_requested: u64,
) {
    // The connection may have been lost during the read, and another server may have answered it.
    if shared.wakeups.needs_history_check() || shared.wakeups.checks_requested() != checks_requested {
        shared.hub.put_back(reads);
        return;
    }
    let pages = reads.into_iter().zip(pages);
    let (cut, whole): (Vec<_>, Vec<_>) = pages.partition(|(_, page)| page.more);
    // Of a read that was cut, the streams that it did not reach come first next time.
    let (not_reached, cut): (Vec<_>, Vec<_>) = cut.into_iter().partition(|(_, page)| page.records.is_empty());
    shared
        .hub
        .put_back(not_reached.into_iter().map(|(read, _)| read).collect());
    let mut any_unfounded = false;
    for (read, page) in whole.into_iter().chain(cut) {
        let appended_at = page.records.last().and_then(|record| record.appended_at);
        let delivered = shared.hub.deliver(read, page, limit);
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

/// Asks the store which of the events that late notifications have named are recent.
async fn decide_late<E: StreamEvent>(shared: &SharedBus<E>, checks: &[LateCheck]) -> Result<(), StoreError> {
    let ranges: Vec<_> = checks.iter().map(|check| check.range.clone()).collect();
    let checks_requested = shared.wakeups.checks_requested();
    let recent = shared.store.first_recent(&ranges).await;
    let is_same_history = shared.wakeups.checks_requested() == checks_requested;
    match recent {
        Ok(recent) if is_same_history => {
            for (check, recent) in checks.iter().zip(recent) {
                shared.hub.decide_late(check, recent);
            }
            Ok(())
        }
        // The connection may have been lost during the read, and another server may have answered it.
        recent => {
            checks.iter().for_each(|check| shared.hub.put_back_late(check));
            recent.map(|_| ())
        }
    }
}
