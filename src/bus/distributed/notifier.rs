//! Sends the queued notifications, so that no caller waits for the server.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::shared::SharedBus;
use crate::bus::{BusError, StreamEvent};
use crate::pg::backoff::Retry;
use crate::pg::quote::push_literal;
use crate::store::StoreError;

/// How long to wait for a connection of the pool before using the listening connection.
const POOL_TIMEOUT: Duration = Duration::from_millis(50);

/// How long to wait for the server. Longer than the lock timeout, to tell a busy notification queue from a dead server.
const SERVER_TIMEOUT: Duration = Duration::from_secs(3);

/// How long to wait for commits of other sessions: the server adds notifications to its queue one commit at a time, over all databases.
const LOCK_TIMEOUT: &str = "1s";

/// The SQLSTATE of a lock timeout.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// Keeps a minimum interval between notifications. What is queued during the interval is sent together.
struct Pacer {
    interval: Duration,
    next: Instant,
}

impl Pacer {
    fn new(interval: Duration) -> Self {
        Self {
            interval,
            next: Instant::now(),
        }
    }

    /// Called when there is something to send, and not right after the last send: tokio's clock has a resolution of a millisecond, so
    /// sleeping in advance would delay a notification that comes after the interval.
    async fn wait(&self) {
        if Instant::now() < self.next {
            tokio::time::sleep_until(self.next).await;
        }
    }

    fn sent(&mut self) {
        self.next = Instant::now() + self.interval;
    }
}

pub(super) async fn run<E: StreamEvent>(shared: Arc<SharedBus<E>>) {
    let mut backoff = Retry::new(Duration::from_millis(20), Duration::from_secs(1));
    let mut failures = 0;
    let mut pacer = Pacer::new(shared.settings.notify_interval);
    loop {
        shared.notify_queue.pushed().await;
        while !shared.notify_queue.is_empty() {
            pacer.wait().await;
            let batch = shared.notify_queue.take();
            pacer.sent();
            let payloads = batch.payloads();
            match send(&shared, &payloads).await {
                Ok(()) => {
                    shared.counters.notifications_sent.add(payloads.len() as u64);
                    backoff.reset();
                    if std::mem::take(&mut failures) > 0 {
                        shared.health.notify_result(None);
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "failed to send notifications, retrying");
                    shared.notify_queue.put_back(batch);
                    failures += 1;
                    // One failure is usually the loss of the connection, and the next attempt succeeds.
                    if failures > 1 {
                        shared.health.notify_result(Some(error));
                    }
                    backoff.wait().await;
                }
            }
        }
    }
}

pub(super) async fn send<E: StreamEvent>(shared: &SharedBus<E>, payloads: &[String]) -> Result<(), BusError> {
    if let Some(pool) = shared.notify_pool.get()
        && let Ok(Ok(mut connection)) = timeout(POOL_TIMEOUT, pool.acquire()).await
    {
        // The simple protocol needs no prepared statement, so it works through every pooler.
        let statement = statement(&shared.settings.channel, payloads);
        let statement = sqlx::raw_sql(sqlx::AssertSqlSafe(statement));
        return match timeout(SERVER_TIMEOUT, statement.execute(&mut **connection)).await {
            Ok(Ok(_)) => {
                pool.give_back(connection);
                Ok(())
            }
            Ok(Err(error)) => {
                // It may lead to a standby.
                connection.close_on_drop();
                Err(refused(&error))
            }
            Err(_) => {
                // The answer may still arrive, so the connection must not be reused.
                connection.close_on_drop();
                Err(StoreError::Unavailable {
                    reason: format!("no answer within {SERVER_TIMEOUT:?}"),
                }
                .into())
            }
        };
    }
    let listener = shared.listener()?;
    for payload in payloads {
        listener.notify(&shared.settings.channel, payload).await?;
    }
    Ok(())
}

fn refused(error: &sqlx::Error) -> BusError {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    let reason = if code.as_deref() == Some(LOCK_NOT_AVAILABLE) {
        format!(
            "another session's commit has held back all notifications of the server for {LOCK_TIMEOUT}, perhaps because it waits for \
             a synchronous standby"
        )
    } else {
        error.to_string()
    };
    BusError::NotificationsNotSent { reason }
}

/// With the schema of each function, or the server would look them up along the session's search path, where other roles may have put
/// their own. A single statement is a single transaction: it takes the lock of the server's queue once, and since it writes no data it does not
/// wait for a flush.
fn statement(channel: &str, payloads: &[String]) -> String {
    let mut statement = format!("SELECT pg_catalog.set_config('lock_timeout', '{LOCK_TIMEOUT}', true)");
    for payload in payloads {
        statement.push_str(", pg_catalog.pg_notify(");
        push_literal(&mut statement, channel);
        statement.push_str(", ");
        push_literal(&mut statement, payload);
        statement.push(')');
    }
    statement
}
