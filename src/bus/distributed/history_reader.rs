//! Reads history for subscriptions that are behind, in tasks of the bus. Few reads run at a time, and each is retried until it
//! succeeds.

use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use tokio::sync::oneshot;

use super::health::HealthTracker;
use super::isolated_reads::may_concern_one_stream;
use super::read_permits::ReadPermits;
use super::runtime::Runtime;
use super::store_operation::StoreOperation;
use crate::bus::StreamEvent;
use crate::bus::history_cache::HistorySource;
use crate::bus::stats::Counters;
use crate::pg::backoff::Retry;
use crate::store::{Page, Store};

/// The limits of the delay before a read is repeated, because it failed or lacked the events for which it was made.
const FIRST_DELAY: Duration = Duration::from_millis(20);
const MAX_DELAY: Duration = Duration::from_secs(1);

pub(super) struct HistoryReader<E: StreamEvent> {
    store: Arc<dyn Store<E>>,
    runtime: Arc<Runtime>,
    permits: Arc<ReadPermits>,
    counters: Arc<Counters>,
    health: Arc<HealthTracker>,
}

impl<E: StreamEvent> HistoryReader<E> {
    pub(super) fn new(
        store: Arc<dyn Store<E>>,
        runtime: Arc<Runtime>,
        permits: Arc<ReadPermits>,
        counters: Arc<Counters>,
        health: Arc<HealthTracker>,
    ) -> Self {
        Self {
            store,
            runtime,
            permits,
            counters,
            health,
        }
    }
}

impl<E: StreamEvent> HistorySource<E> for HistoryReader<E> {
    fn read(&self, key: Arc<str>, after: u64, limit: usize, empty_reads: u32) -> BoxFuture<'static, Option<Page<E>>> {
        let (mut answer, page) = oneshot::channel();
        let (store, permits, counters) = (
            Arc::clone(&self.store),
            Arc::clone(&self.permits),
            Arc::clone(&self.counters),
        );
        let mut report = self.health.report(StoreOperation::History);
        let read = async move {
            let mut backoff = Retry::after_failures(empty_reads.saturating_sub(1), FIRST_DELAY, MAX_DELAY);
            if empty_reads > 0 {
                tracing::debug!(
                    stream = &*key,
                    after,
                    empty_reads,
                    "a read of history lacked events, reading again"
                );
                tokio::select! {
                    () = backoff.wait() => {}
                    () = answer.closed() => return,
                }
            }
            let mut asked = limit;
            let mut is_retry = false;
            loop {
                let read = async {
                    let _permit = match is_retry {
                        false => permits.first().await,
                        true => permits.retry().await,
                    };
                    counters.replay_reads.add(1);
                    store.replay(&key, after, asked).await
                };
                let read = tokio::select! {
                    read = read => read,
                    () = answer.closed() => return, // no subscription waits for it any more
                };
                match read {
                    Ok(mut page) => {
                        report.succeeded();
                        page.more |= asked < limit && page.records.len() >= asked;
                        let _ = answer.send(page);
                        return;
                    }
                    Err(error) => {
                        tracing::debug!(stream = &*key, after, asked, %error, "failed to read history, retrying");
                        is_retry = may_concern_one_stream(&error);
                        let was_least = asked == 1;
                        asked = if is_retry { 1 } else { asked };
                        report.failed(error);
                        if was_least || !is_retry {
                            backoff.wait().await;
                        }
                    }
                }
            }
        };
        self.runtime.spawn("a read of history", read);
        Box::pin(async move { page.await.ok() })
    }
}
