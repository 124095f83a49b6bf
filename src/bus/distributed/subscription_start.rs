//! Fixes where new subscriptions start: at what the store holds once the server has acknowledged the LISTEN.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::shared::SharedBus;
use crate::bus::StreamEvent;
use crate::listen::ListenState;
use crate::pg::backoff::Retry;
use crate::store::StoreError;

/// How long subscriptions wait for the first answer of the listening connection, before they start without it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Streams that one question is about.
const AT_A_TIME: usize = 1000;

pub(super) async fn start<E: StreamEvent>(inner: Arc<SharedBus<E>>) {
    listener_has_answered(&inner).await;
    let mut backoff = Retry::new(Duration::from_millis(20), Duration::from_millis(500));
    loop {
        match start_waiting(&inner).await {
            Ok(()) => {
                backoff.reset();
                inner.wakeups.starter.notified().await;
            }
            Err(error) => {
                inner.health.store_failed(error.into());
                backoff.wait().await;
            }
        }
    }
}

async fn listener_has_answered<E: StreamEvent>(inner: &SharedBus<E>) {
    let Ok(listener) = inner.listener() else { return };
    let mut changes = listener.health_changes();
    let answered =
        async { while changes.latest().state == ListenState::Connecting && changes.changed().await.is_some() {} };
    let _ = tokio::time::timeout(PATIENCE, answered).await; // late or not, subscriptions start
}

async fn start_waiting<E: StreamEvent>(inner: &SharedBus<E>) -> Result<(), StoreError> {
    look_for_more(inner).await?;
    if inner.hub.baseline_wanted() {
        take_baseline(inner).await?;
    }
    loop {
        let streams = inner.hub.unstarted(AT_A_TIME);
        if streams.is_empty() {
            return Ok(());
        }
        let keys: Vec<_> = streams.iter().map(|stream| Arc::clone(&stream.key)).collect();
        let high_waters = inner.store.high_waters(&keys).await?;
        inner.health.store_answered();
        inner.hub.start(streams.into_iter().zip(high_waters));
        inner.wakeups.reader.notify_one(); // for doorbells that came meanwhile
    }
}

/// For subscriptions to history: what the store holds, also if nobody has rung for it.
async fn look_for_more<E: StreamEvent>(inner: &SharedBus<E>) -> Result<(), StoreError> {
    loop {
        let streams = inner.hub.take_unchecked(AT_A_TIME);
        if streams.is_empty() {
            return Ok(());
        }
        let keys: Vec<_> = streams.iter().map(|stream| Arc::clone(&stream.key)).collect();
        match inner.store.high_waters(&keys).await {
            Ok(high_waters) => {
                inner.health.store_answered();
                for (key, high_water) in keys.iter().zip(high_waters) {
                    inner.hub.found(key, high_water);
                }
                inner.wakeups.reader.notify_one();
            }
            Err(error) => {
                for stream in &streams {
                    inner.hub.check(stream);
                }
                return Err(error);
            }
        }
    }
}

/// All streams of the store, and how far they reach.
async fn take_baseline<E: StreamEvent>(inner: &SharedBus<E>) -> Result<(), StoreError> {
    let mut watermark = inner.watermark.lock().await;
    let mut listing = HashMap::new();
    let mut next = None;
    loop {
        let Some(changes) = inner.store.changed_since(next.as_ref(), AT_A_TIME).await? else {
            inner.health.store_answered();
            inner.hub.set_baseline(None);
            return Ok(());
        };
        inner.health.store_answered();
        for stream in changes.streams {
            listing.insert(stream.stream_key, stream.high_water);
        }
        if !changes.more {
            *watermark = Some(changes.watermark);
            break;
        }
        next = Some(changes.watermark);
    }
    inner.hub.set_baseline(Some(listing));
    inner.wakeups.reader.notify_one();
    Ok(())
}
