//! Sweeps: looks in the store for what no doorbell has said, so that a lost doorbell costs time and never an event.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::history_divergence;
use super::shared::SharedBus;
use crate::bus::StreamEvent;
use crate::pg::backoff::{Retry, jittered};
use crate::store::StoreError;

/// Streams that one question is about.
const AT_A_TIME: usize = 1000;

/// How long the question about the server's queue may take; it is of no great importance.
const QUEUE_PATIENCE: Duration = Duration::from_millis(100);

pub(super) async fn sweep<E: StreamEvent>(inner: Arc<SharedBus<E>>) {
    #[cfg(feature = "metrics")]
    crate::bus::stats::Counters::describe();
    let mut backoff = Retry::new(Duration::from_millis(20), Duration::from_millis(500));
    let mut due = Instant::now();
    // Anybody can ask for a sweep with a bad payload, so at most one comes early.
    let mut early = true;
    loop {
        let now = Instant::now();
        let away = inner.wakeups.is_in_doubt();
        let wanted = inner.hub.take_sweep_wanted();
        if !(now >= due || away || (wanted && early)) {
            let _ = tokio::time::timeout_at(due, inner.wakeups.sweeper.notified()).await;
            continue;
        }
        early = now >= due || away;
        match sweep_once(&inner, away).await {
            Ok(()) => {
                backoff.reset();
                let interval = if inner.is_listening() {
                    inner.settings.sweep_interval
                } else {
                    inner.settings.poll_interval
                };
                due = Instant::now() + jittered(interval);
            }
            Err(error) => {
                inner.health.store_failed(error.into());
                due = Instant::now();
                backoff.wait().await;
            }
        }
    }
}

async fn sweep_once<E: StreamEvent>(inner: &SharedBus<E>, away: bool) -> Result<(), StoreError> {
    inner.counters.sweeps.add(1);
    #[cfg(feature = "metrics")]
    inner.counters.report();
    if inner.hub.collect() {
        *inner.watermark.lock().await = None;
    }
    if away {
        let times_away = inner.wakeups.times_away();
        history_divergence::look_for_rewinds(inner, &inner.hub.cursors(true)).await?;
        inner.wakeups.have_looked(times_away);
    }
    // What has changed tells of the streams that only subscriptions to all look at, if the store knows.
    let cursors = inner.hub.cursors(inner.watermark.lock().await.is_none());
    for chunk in cursors.chunks(AT_A_TIME) {
        let keys: Vec<_> = chunk.iter().map(|cursor| Arc::clone(&cursor.stream.key)).collect();
        let high_waters = inner.store.high_waters(&keys).await?;
        inner.health.store_answered();
        let mut behind = Vec::new();
        for (cursor, high_water) in chunk.iter().zip(high_waters) {
            if high_water < cursor.seq {
                behind.push(cursor.clone());
            } else if inner.hub.found(&cursor.stream.key, high_water) {
                inner.counters.missed_recovered.add(1);
            }
        }
        if !behind.is_empty() {
            history_divergence::look_for_rewinds(inner, &behind).await?;
        }
    }
    if cursors.is_empty() {
        // Nobody listens, but the bus's health is of interest all the same.
        inner.store.high_water("-").await?;
        inner.health.store_answered();
    }
    if inner.hub.listens_to_all() {
        sweep_all(inner).await?;
    }
    history_divergence::note_identities(inner, &inner.hub.cursors(true)).await?;
    inner.wakeups.reader.notify_one();
    inner.wakeups.starter.notify_one();
    look_at_queue(inner).await;
    Ok(())
}

/// For subscriptions to all streams: which streams have changed since the last sweep.
async fn sweep_all<E: StreamEvent>(inner: &SharedBus<E>) -> Result<(), StoreError> {
    let mut watermark = inner.watermark.lock().await;
    let mut found = HashMap::new();
    while let Some(since) = watermark.clone() {
        let Some(changes) = inner.store.changed_since(Some(&since), AT_A_TIME).await? else {
            break;
        };
        for stream in changes.streams {
            found.insert(stream.stream_key, stream.high_water);
        }
        for (key, high_water) in found.drain() {
            if inner.hub.found(&key, high_water) {
                inner.counters.missed_recovered.add(1);
            }
        }
        *watermark = Some(changes.watermark);
        if !changes.more {
            break;
        }
    }
    Ok(())
}

async fn look_at_queue<E: StreamEvent>(inner: &SharedBus<E>) {
    let Some(connections) = inner.connections.get() else {
        return;
    };
    let usage = sqlx::query_scalar::<_, f64>("SELECT pg_notification_queue_usage()").persistent(false);
    if let Ok(Ok(usage)) = timeout(QUEUE_PATIENCE, usage.fetch_one(&connections.pool)).await {
        inner.health.queue_usage(usage);
    }
}
