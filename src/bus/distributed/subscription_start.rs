//! Starts new subscriptions at the streams' last events, which are queried after the server has acknowledged the LISTEN.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::shared::SharedBus;
use super::store_operation::StoreOperation;
use crate::bus::StreamEvent;
use crate::listen::ListenState;
use crate::pg::backoff::Retry;
use crate::store::StoreError;

/// How long subscriptions wait for the first answer of the listening connection before they start without it.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum number of streams in one query.
const STREAMS_PER_QUERY: usize = 1000;

pub(super) async fn run<E: StreamEvent>(shared: Arc<SharedBus<E>>) {
    wait_for_listener(&shared).await;
    let mut report = shared.health.report(StoreOperation::Start);
    let mut backoff = Retry::new(Duration::from_millis(20), Duration::from_millis(500));
    loop {
        match start_subscriptions(&shared).await {
            Ok(asked) => {
                backoff.reset();
                if asked {
                    report.succeeded();
                } else {
                    report.not_due(); // the subscriptions whose start failed are gone
                }
                shared.wakeups.subscription_start.notified().await;
            }
            Err(error) => {
                report.failed(error);
                backoff.wait().await;
            }
        }
    }
}

async fn wait_for_listener<E: StreamEvent>(shared: &SharedBus<E>) {
    let Ok(listener) = shared.listener() else { return };
    let mut changes = listener.health_changes();
    let answered =
        async { while changes.latest().state == ListenState::Connecting && changes.changed().await.is_some() {} };
    let _ = tokio::time::timeout(LISTEN_TIMEOUT, answered).await; // subscriptions start in either case
}

/// Returns whether the store had to be asked for anything.
async fn start_subscriptions<E: StreamEvent>(shared: &SharedBus<E>) -> Result<bool, StoreError> {
    let mut asked = false;
    if shared.hub.needs_baseline() {
        set_baseline(shared).await?;
        asked = true;
    }
    loop {
        let streams = shared.hub.unstarted(STREAMS_PER_QUERY);
        if streams.is_empty() {
            return Ok(asked);
        }
        let keys: Vec<_> = streams.iter().map(|stream| Arc::clone(&stream.key)).collect();
        let heads = shared.store.heads(&keys).await?;
        asked = true;
        let started = shared.hub.start(streams.into_iter().zip(heads.streams));
        shared.hub.signal(started);
        shared.wakeups.reader.notify_one(); // notifications may have come before the start
    }
}

/// Lists all streams of the store with their last events, for subscriptions to all streams.
async fn set_baseline<E: StreamEvent>(shared: &SharedBus<E>) -> Result<(), StoreError> {
    let mut watermark = shared.watermark.lock().await;
    let mut listing = HashMap::new();
    let mut next = None;
    loop {
        let Some(changes) = shared.store.changed_since(next.as_ref(), STREAMS_PER_QUERY).await? else {
            let started = shared.hub.set_baseline(None);
            shared.hub.signal(started);
            return Ok(());
        };
        for stream in changes.streams {
            listing.insert(stream.stream_key, stream.head);
        }
        if !changes.more {
            *watermark = Some(changes.watermark);
            break;
        }
        next = Some(changes.watermark);
    }
    let started = shared.hub.set_baseline(Some(listing));
    shared.hub.signal(started);
    shared.wakeups.reader.notify_one();
    Ok(())
}
