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
use crate::store::StoreError;

/// The maximum number of streams in one query.
const STREAMS_PER_QUERY: usize = 1000;

/// How long the check of the server's notifications may take. A sweep does without it.
const NOTIFY_CHECK_TIMEOUT: Duration = Duration::from_millis(100);

/// How long the search for a connection to the listening connection's server may take, if one led to another primary.
const NEW_CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);

/// What the sweeper knows of the store's history.
#[derive(Default)]
struct History {
    /// The identity that the last sweep found, if the store has one.
    identity: Option<Arc<str>>,
    /// The identity has changed since the remembered events were last compared: the store was installed again, or bound to a restored
    /// database, perhaps while the connections stood.
    is_another: bool,
}

impl History {
    fn found(&mut self, identity: &str) {
        let is_same = self.identity.as_deref() == Some(identity);
        if !is_same && self.identity.replace(identity.into()).is_some() {
            self.is_another = true;
        }
    }
}

pub(super) async fn run<E: StreamEvent>(shared: Arc<SharedBus<E>>) {
    #[cfg(feature = "metrics")]
    crate::bus::stats::Counters::describe();
    let mut backoff = Retry::new(Duration::from_millis(20), Duration::from_millis(500));
    let mut report = shared.health.report(StoreOperation::Sweep);
    let mut history = History::default();
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
            let _ = tokio::time::timeout_at(due, shared.wakeups.sweeper.notified()).await;
            continue;
        }
        may_come_early = is_due;
        match sweep(&shared, check_history, &mut history).await {
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

async fn sweep<E: StreamEvent>(
    shared: &SharedBus<E>,
    check_history: bool,
    history: &mut History,
) -> Result<(), StoreError> {
    shared.counters.sweeps.add(1);
    #[cfg(feature = "metrics")]
    shared.counters.report();
    if shared.hub.collect() {
        *shared.watermark.lock().await = None;
    }
    if check_history {
        let requested = shared.wakeups.checks_requested();
        if history.is_another {
            history_divergence::check_remembered(shared, &shared.hub.cursors(true)).await?;
            history.is_another = false;
        }
        history_divergence::check(shared, &shared.hub.cursors(true)).await?;
        shared.wakeups.history_checked(requested);
    }
    // With a watermark, `sweep_all` covers the streams that only subscriptions to all look at.
    let cursors = shared.hub.cursors(shared.watermark.lock().await.is_none());
    for chunk in cursors.chunks(STREAMS_PER_QUERY) {
        let keys: Vec<_> = chunk.iter().map(|cursor| Arc::clone(&cursor.stream.key)).collect();
        let high_waters = high_waters(shared, &keys, history).await?;
        if history.is_another {
            // Before anything more is delivered. The next sweep follows at once.
            shared.wakeups.request_history_check();
            return Ok(());
        }
        let mut shortened = Vec::new();
        for (cursor, high_water) in chunk.iter().zip(high_waters) {
            if high_water < cursor.seq {
                shortened.push(cursor.clone());
            } else if shared.hub.report_high_water(&cursor.stream.key, high_water) {
                shared.counters.missed_recovered.add(1);
            }
        }
        if !shortened.is_empty() {
            history_divergence::check(shared, &shortened).await?;
        }
    }
    if cursors.is_empty() {
        // Without subscriptions a query still shows whether the store answers.
        high_waters(shared, &["-".into()], history).await?;
        if history.is_another {
            shared.wakeups.request_history_check();
            return Ok(());
        }
    }
    if shared.hub.has_subscriptions_to_all() {
        sweep_all(shared).await?;
    }
    history_divergence::remember_ids(shared, &shared.hub.cursors(true)).await?;
    shared.wakeups.reader.notify_one();
    shared.wakeups.subscription_start.notify_one();
    Ok(())
}

/// Returns the streams' high-water marks, and has the hub remember what the store shows.
async fn high_waters<E: StreamEvent>(
    shared: &SharedBus<E>,
    keys: &[Arc<str>],
    history: &mut History,
) -> Result<Vec<u64>, StoreError> {
    let heads = shared.store.heads(keys).await?;
    if let Some(watermark) = heads.watermark {
        if let Some(identity) = watermark.history() {
            history.found(identity);
        }
        shared.hub.on_watermark(watermark);
    }
    Ok(heads.streams.into_iter().map(|head| head.seq).collect())
}

/// Sweeps all streams, for subscriptions to all: asks which have changed since the last sweep.
async fn sweep_all<E: StreamEvent>(shared: &SharedBus<E>) -> Result<(), StoreError> {
    let mut watermark = shared.watermark.lock().await;
    let mut changed = HashMap::new();
    while let Some(since) = watermark.clone() {
        let Some(changes) = shared.store.changed_since(Some(&since), STREAMS_PER_QUERY).await? else {
            break;
        };
        for stream in changes.streams {
            let high_water = changed.entry(stream.stream_key).or_insert(0);
            *high_water = stream.head.seq.max(*high_water);
        }
        for (key, high_water) in changed.drain() {
            if shared.hub.report_high_water(&key, high_water) {
                shared.counters.missed_recovered.add(1);
            }
        }
        *watermark = Some(changes.watermark);
        if !changes.more {
            break;
        }
    }
    Ok(())
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
