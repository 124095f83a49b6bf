//! Sends the queued notifications, so that no caller waits for the server.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::shared::SharedBus;
use crate::bus::{BusError, StreamEvent};
use crate::pg::backoff::Retry;
use crate::pg::encoding;
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
            let mut batch = shared.notify_queue.take();
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
                Err(NotSent::Untranslatable(character)) if batch.remove_streams_with(&character) > 0 => {
                    // The store cannot hold such streams, so nobody waits for them. The rest is sent at once.
                    tracing::debug!(character, "the server cannot store a character of a stream's key");
                    shared.notify_queue.put_back(batch);
                }
                Err(error) => {
                    let error = error.into_error();
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

/// Why a batch was not sent.
pub(super) enum NotSent {
    /// The server cannot store this character.
    Untranslatable(String),
    Failed(BusError),
}

impl NotSent {
    pub(super) fn into_error(self) -> BusError {
        match self {
            Self::Untranslatable(character) => BusError::NotificationsNotSent {
                reason: format!("the server cannot store the character {character:?}"),
            },
            Self::Failed(error) => error,
        }
    }
}

pub(super) async fn send<E: StreamEvent>(shared: &SharedBus<E>, payloads: &[String]) -> Result<(), NotSent> {
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
                Err(encoding::untranslatable(&error)
                    .map_or_else(|| NotSent::Failed(refused(&error)), NotSent::Untranslatable))
            }
            Err(_) => {
                // The answer may still arrive, so the connection must not be reused.
                connection.close_on_drop();
                let reason = format!("no answer within {SERVER_TIMEOUT:?}");
                Err(NotSent::Failed(StoreError::Unavailable { reason }.into()))
            }
        };
    }
    let listener = shared.listener().map_err(NotSent::Failed)?;
    for payload in payloads {
        let sent = listener.notify(&shared.settings.channel, payload).await;
        sent.map_err(|error| NotSent::Failed(error.into()))?;
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
