//! Turns panics of the store into errors. A store is foreign code: its panic must stop no task of the bus, and is a failed operation
//! that is repeated like any other.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt as _;

use crate::event::{StreamEvent, foreign};
use crate::store::{Changes, EventId, Heads, Page, RecentRange, Record, ReplayRange, Store, StoreError, Watermark};

pub(super) struct GuardedStore<E: StreamEvent>(pub(super) Arc<dyn Store<E>>);

async fn guarded<T>(call: impl Future<Output = Result<T, StoreError>> + Send) -> Result<T, StoreError> {
    AssertUnwindSafe(call).catch_unwind().await.unwrap_or_else(|panic| {
        Err(StoreError::Panicked {
            message: foreign::message_of(panic),
        })
    })
}

// Every method, or a store's own would be replaced by the default.
#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<E: StreamEvent> Store<E> for GuardedStore<E> {
    async fn append(&self, event: E) -> Result<E, StoreError> {
        guarded(async move { self.0.append(event).await }).await
    }

    async fn replay(&self, stream_key: &str, after: u64, limit: usize) -> Result<Page<E>, StoreError> {
        guarded(async move { self.0.replay(stream_key, after, limit).await }).await
    }

    async fn high_water(&self, stream_key: &str) -> Result<u64, StoreError> {
        guarded(async move { self.0.high_water(stream_key).await }).await
    }

    async fn append_batch(&self, events: Vec<E>) -> Result<Vec<E>, StoreError> {
        guarded(async move { self.0.append_batch(events).await }).await
    }

    async fn append_record(&self, event: E) -> Result<Record<E>, StoreError> {
        guarded(async move { self.0.append_record(event).await }).await
    }

    async fn append_records(&self, events: Vec<E>) -> Result<Vec<Record<E>>, StoreError> {
        guarded(async move { self.0.append_records(events).await }).await
    }

    async fn replay_many(&self, ranges: &[ReplayRange], limit: usize) -> Result<Vec<Page<E>>, StoreError> {
        guarded(async move { self.0.replay_many(ranges, limit).await }).await
    }

    async fn heads(&self, stream_keys: &[Arc<str>]) -> Result<Heads, StoreError> {
        guarded(async move { self.0.heads(stream_keys).await }).await
    }

    async fn first_recent(&self, ranges: &[RecentRange]) -> Result<Vec<Option<u64>>, StoreError> {
        guarded(async move { self.0.first_recent(ranges).await }).await
    }

    async fn changed_since(&self, since: Option<&Watermark>, limit: usize) -> Result<Option<Changes>, StoreError> {
        guarded(async move { self.0.changed_since(since, limit).await }).await
    }

    async fn event_ids(&self, positions: &[(Arc<str>, u64)]) -> Result<Vec<Option<EventId>>, StoreError> {
        guarded(async move { self.0.event_ids(positions).await }).await
    }

    fn notification_channel(&self) -> Option<&str> {
        self.0.notification_channel()
    }

    fn on_reconnect(&self) {
        foreign::run(|| self.0.on_reconnect());
    }

    fn follow_server(&self, bus: u64, server: Option<&str>) {
        foreign::run(|| self.0.follow_server(bus, server));
    }
}
