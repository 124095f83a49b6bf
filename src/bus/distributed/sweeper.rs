//! Sweeps: searches the store for events whose notification was lost, so that a lost notification only delays its event.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sqlx::FromRow as _;
use tokio::time::{Instant, timeout};

use super::history_divergence;
use super::shared::SharedBus;
use super::store_operation::StoreOperation;
use crate::bus::StreamEvent;
use crate::listen::STARTED_AT;
use crate::pg::backoff::{Retry, jittered};
use crate::pg::deadline::deadline_in;
use crate::pg::warm_pool::WarmPool;
use crate::store::{Heads, StoreError, StreamHead};

/// The maximum number of streams in one query.
const STREAMS_PER_QUERY: usize = 1000;

/// How long the check of the server's notifications may take. A sweep does without it.
const NOTIFY_CHECK_TIMEOUT: Duration = Duration::from_millis(100);

/// How long the search for a connection to the listening connection's server may take, if one led to another primary.
const NEW_CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) async fn run<E: StreamEvent>(shared: Arc<SharedBus<E>>) {
    #[cfg(feature = "metrics")]
    crate::bus::stats::Counters::describe();
    let mut backoff = Retry::new(Duration::from_millis(20), Duration::from_millis(500));
    let mut report = shared.health.report(StoreOperation::Sweep);
    let mut due = Instant::now();
    // Every client of the database can request a sweep, so at most one per interval comes early.
    let mut may_come_early = true;
    loop {
        let now = Instant::now();
        let check_history = shared.wakeups.needs_history_check();
        // A request that may not come early stays pending until the sweep that is due, so further requests wake nobody.
        let is_due = now >= due || check_history;
        let requested = (is_due || may_come_early) && shared.hub.take_sweep_request();
        if !(is_due || requested) {
            if shared.hub.has_doubts() {
                match history_divergence::settle(&shared).await {
                    Ok(()) => {
                        backoff.reset();
                        report.succeeded();
                        shared.wakeups.reader.notify_one();
                    }
                    Err(error) => {
                        report.failed(error);
                        backoff.wait().await;
                    }
                }
                continue;
            }
            let _ = tokio::time::timeout_at(due, shared.wakeups.sweeper.notified()).await;
            continue;
        }
        may_come_early = is_due;
        match sweep(&shared, check_history).await {
            Ok(()) => {
                backoff.reset();
                report.succeeded();
                check_notify(&shared).await;
                let interval = if shared.is_listening() && shared.health.can_notify() {
                    shared.settings.sweep_interval
                } else {
                    shared.settings.poll_interval
                };
                due = deadline_in(jittered(interval));
            }
            Err(error) => {
                report.failed(error);
                due = Instant::now();
                backoff.wait().await;
            }
        }
    }
}

async fn sweep<E: StreamEvent>(shared: &SharedBus<E>, check_history: bool) -> Result<(), StoreError> {
    shared.counters.sweeps.add(1);
    #[cfg(feature = "metrics")]
    shared.counters.report();
    if shared.hub.collect() {
        *shared.watermark.lock().await = None;
    }
    let requested = shared.wakeups.checks_requested();
    if check_history {
        shared.hub.withdraw_confirmations();
    }
    let covers_all = shared.hub.has_subscriptions_to_all() && sweep_all(shared).await?;
    // Those of the streams that only subscriptions to all look at that have changed are known then.
    let all = check_history || !covers_all;
    let cursors = shared.hub.cursors(all);
    for chunk in cursors.chunks(STREAMS_PER_QUERY) {
        let keys: Vec<_> = chunk.iter().map(|cursor| Arc::clone(&cursor.stream.key)).collect();
        let heads = heads(shared, &keys).await?;
        for (cursor, head) in chunk.iter().zip(heads.streams) {
            if shared.hub.report_head(cursor, head, heads.is_standby) {
                shared.counters.missed_recovered.add(1);
            }
        }
    }
    if cursors.is_empty() {
        // Without subscriptions a query still shows whether the store answers.
        heads(shared, &["-".into()]).await?;
    }
    history_divergence::settle(shared).await?;
    if check_history {
        shared.wakeups.history_checked(requested);
    }
    shared.wakeups.reader.notify_one();
    shared.wakeups.subscription_start.notify_one();
    Ok(())
}

/// Returns the streams' last events, and has the hub remember what the store shows.
async fn heads<E: StreamEvent>(shared: &SharedBus<E>, keys: &[Arc<str>]) -> Result<Heads, StoreError> {
    let mut heads = shared.store.heads(keys).await?;
    if let Some(watermark) = heads.watermark.take() {
        shared.hub.on_watermark(watermark);
    }
    Ok(heads)
}

/// Sweeps all streams, for subscriptions to all: asks which have changed since the last sweep. Returns whether the store knows that. If it
/// only lists the streams that it has, others may have lost all their events.
async fn sweep_all<E: StreamEvent>(shared: &SharedBus<E>) -> Result<bool, StoreError> {
    let mut watermark = shared.watermark.lock().await;
    let mut changed: HashMap<Arc<str>, StreamHead> = HashMap::new();
    while let Some(since) = watermark.clone() {
        let Some(changes) = shared.store.changed_since(Some(&since), STREAMS_PER_QUERY).await? else {
            break;
        };
        for stream in changes.streams {
            let head = changed.entry(stream.stream_key).or_default();
            if stream.head.seq >= head.seq {
                *head = stream.head;
            }
        }
        for (key, head) in changed.drain() {
            if shared.hub.report_change(&key, head) {
                shared.counters.missed_recovered.add(1);
            }
        }
        *watermark = Some(changes.watermark);
        if !changes.more {
            return Ok(!changes.complete);
        }
    }
    Ok(false)
}

/// Asks whether a notification could be sent, and whether by the server that the listening connection reaches. This does not send one.
async fn check_notify<E: StreamEvent>(shared: &SharedBus<E>) {
    let (Some(pool), Ok(listener)) = (shared.notify_pool.get(), shared.listener()) else {
        return;
    };
    let server = listener.health().server.and_then(|server| server.started_at);
    let Ok(Some(check)) = timeout(NOTIFY_CHECK_TIMEOUT, ask(pool, server.as_deref())).await else {
        return;
    };
    shared.health.notify_checked(check.queue_usage, check.may_notify);
    if !check.is_other_primary {
        return;
    }
    // Idle connections may lead to a former primary, and are closed; the last one that is asked is new.
    let all_lead_elsewhere = async {
        for _ in 0..=pool.pool.size() {
            if !ask(pool, server.as_deref())
                .await
                .is_some_and(|check| check.is_other_primary)
            {
                return false;
            }
        }
        true
    };
    if let Ok(true) = timeout(NEW_CONNECTION_TIMEOUT, all_lead_elsewhere).await {
        listener.supersede();
    }
}

/// What a connection for notifications answers.
struct NotifyCheck {
    queue_usage: f64,
    may_notify: bool,
    /// Whether it leads to another primary than the listening connection.
    is_other_primary: bool,
}

/// Asks a connection of the pool. Closes it if it leads to another server than this one.
async fn ask(pool: &WarmPool, server: Option<&str>) -> Option<NotifyCheck> {
    let mut connection = pool.acquire().await.ok()?;
    // The role may not be permitted to know when the server was started; then the listener does not know it either.
    let started_at = if server.is_some() { STARTED_AT } else { "''" };
    let query = format!(
        "SELECT pg_catalog.pg_notification_queue_usage(), \
         pg_catalog.has_function_privilege('pg_catalog.pg_notify(pg_catalog.text, pg_catalog.text)', 'EXECUTE'), \
         pg_catalog.pg_is_in_recovery(), {started_at}"
    );
    // The simple protocol needs no prepared statement, so it works through every pooler.
    let query = sqlx::raw_sql(sqlx::AssertSqlSafe(query));
    let row = query.fetch_one(&mut **connection).await;
    let Ok((queue_usage, may_notify, in_recovery, started_at)) =
        row.and_then(|row| <(f64, bool, bool, String)>::from_row(&row))
    else {
        connection.close_on_drop();
        return None;
    };
    let is_other = server.is_some_and(|server| server != started_at);
    if is_other {
        connection.close_on_drop();
    } else {
        pool.give_back(connection);
    }
    Some(NotifyCheck {
        queue_usage,
        may_notify,
        is_other_primary: is_other && !in_recovery,
    })
}
