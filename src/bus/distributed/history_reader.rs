//! Reads history for subscriptions that are behind, in tasks of the bus. Few reads run at a time, and each is retried until it
//! succeeds.

use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use tokio::sync::{Semaphore, oneshot};

use super::health::HealthTracker;
use super::runtime::Runtime;
use super::store_operation::StoreOperation;
use crate::bus::StreamEvent;
use crate::bus::history_cache::HistorySource;
use crate::bus::stats::Counters;
use crate::pg::backoff::Retry;
use crate::store::{Page, Store};

/// The maximum number of concurrent history reads. A pool of three connections then has one left for live reads.
const CONCURRENT_READS: usize = 2;

/// The limits of the delay before a read is repeated, because it failed or lacked the events for which it was made.
const FIRST_DELAY: Duration = Duration::from_millis(20);
const MAX_DELAY: Duration = Duration::from_secs(1);

pub(super) struct HistoryReader<E: StreamEvent> {
    store: Arc<dyn Store<E>>,
    runtime: Arc<Runtime>,
    permits: Arc<Semaphore>,
    counters: Arc<Counters>,
    health: Arc<HealthTracker>,
}

impl<E: StreamEvent> HistoryReader<E> {
    pub(super) fn new(
        store: Arc<dyn Store<E>>,
        runtime: Arc<Runtime>,
        counters: Arc<Counters>,
        health: Arc<HealthTracker>,
    ) -> Self {
        Self {
            store,
            runtime,
            permits: Arc::new(Semaphore::new(CONCURRENT_READS)),
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
            loop {
                let read = async {
                    let _permit = permits.acquire().await.ok()?;
                    counters.replay_reads.add(1);
                    Some(store.replay(&key, after, limit).await)
                };
                let read = tokio::select! {
                    read = read => read,
                    () = answer.closed() => return, // no subscription waits for it any more
                };
                match read {
                    Some(Ok(page)) => {
                        report.succeeded();
                        let _ = answer.send(page);
                        return;
                    }
                    Some(Err(error)) => {
                        tracing::debug!(stream = &*key, after, %error, "failed to read history, retrying");
                        report.failed(error);
                        backoff.wait().await;
                    }
                    None => return,
                }
            }
        };
        self.runtime.spawn("a read of history", read);
        Box::pin(async move { page.await.ok() })
    }
}
