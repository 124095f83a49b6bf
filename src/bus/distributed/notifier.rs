//! Sends the doorbells, off every caller's path.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::shared::SharedBus;
use crate::bus::{BusError, StreamEvent};
use crate::pg::backoff::Retry;
use crate::pg::quote::push_literal;
use crate::store::StoreError;

/// How long a bell waits for a connection of the pool, before it goes over the listening connection.
const POOL_PATIENCE: Duration = Duration::from_millis(50);

/// How long the server may take. Longer than the lock timeout, so that a busy queue is told from a dead server.
const SERVER_PATIENCE: Duration = Duration::from_secs(3);

/// How long a bell waits behind somebody else's commit: notifications are queued one commit at a time, in the whole cluster.
const LOCK_TIMEOUT: &str = "1s";

/// Keeps bells apart: one that comes soon after another waits for its turn, and takes along what comes meanwhile.
struct Pace {
    spacing: Duration,
    due: Instant,
}

impl Pace {
    fn new(spacing: Duration) -> Self {
        Self {
            spacing,
            due: Instant::now(),
        }
    }

    /// Not slept through in advance: the runtime's clock ticks in milliseconds, and would hold up the bell that comes in time.
    async fn turn(&self) {
        if Instant::now() < self.due {
            tokio::time::sleep_until(self.due).await;
        }
    }

    fn rings(&mut self) {
        self.due = Instant::now() + self.spacing;
    }
}

pub(super) async fn ring<E: StreamEvent>(inner: Arc<SharedBus<E>>) {
    let mut backoff = Retry::new(Duration::from_millis(20), Duration::from_secs(1));
    let mut pace = Pace::new(inner.settings.notify_interval);
    loop {
        inner.notify_queue.arrived().await;
        while !inner.notify_queue.is_empty() {
            pace.turn().await;
            let batch = inner.notify_queue.take();
            pace.rings();
            let payloads = batch.payloads();
            match send(&inner, &payloads).await {
                Ok(()) => {
                    inner.counters.notifications_sent.add(payloads.len() as u64);
                    backoff.reset();
                }
                Err(error) => {
                    tracing::debug!(%error, "a doorbell could not be rung, trying again");
                    inner.notify_queue.put_back(batch);
                    backoff.wait().await;
                }
            }
        }
    }
}

pub(super) async fn send<E: StreamEvent>(inner: &SharedBus<E>, payloads: &[String]) -> Result<(), BusError> {
    if let Some(connections) = inner.connections.get()
        && let Ok(Ok(mut connection)) = timeout(POOL_PATIENCE, connections.acquire()).await
    {
        // The simple protocol needs no prepared statement, so it goes through every pooler.
        let statement = statement(&inner.settings.channel, payloads);
        let statement = sqlx::raw_sql(sqlx::AssertSqlSafe(statement));
        return match timeout(SERVER_PATIENCE, statement.execute(&mut **connection)).await {
            Ok(Ok(_)) => {
                connections.give_back(connection);
                Ok(())
            }
            Ok(Err(error)) => Err(StoreError::other(error).into()),
            Err(_) => {
                // Its answer may still come, so nobody else is to have this connection.
                connection.close_on_drop();
                Err(StoreError::Unavailable {
                    reason: format!("no answer within {SERVER_PATIENCE:?}"),
                }
                .into())
            }
        };
    }
    let listener = inner.listener()?;
    for payload in payloads {
        listener.notify(&inner.settings.channel, payload).await?;
    }
    Ok(())
}

/// One statement is one transaction: it waits for the queue once, and not for the disk.
fn statement(channel: &str, payloads: &[String]) -> String {
    let mut statement = format!("SELECT set_config('lock_timeout', '{LOCK_TIMEOUT}', true)");
    for payload in payloads {
        statement.push_str(", pg_notify(");
        push_literal(&mut statement, channel);
        statement.push_str(", ");
        push_literal(&mut statement, payload);
        statement.push(')');
    }
    statement
}
