//! Running the store's statements: on any connection of the pool that leads to the primary or, behind a transaction pooler, each in its
//! own transaction.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgDatabaseError, PgRow, PgSeverity};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Postgres, Row as _};
use tokio::time::{Instant, timeout, timeout_at};

use super::PostgresStore;
use super::error::{Operation, Refusal, is_lock_timeout, refusal, store_error};
use crate::pg::warm_pool::PooledConnection;
use crate::store::StoreError;

/// How often a statement is repeated that could not be serialized.
const MAX_SERIALIZATION_RETRIES: u32 = 5;

/// How long a statement waits for a stream's lock without a permit.
const SHORT_LOCK_WAIT: Duration = Duration::from_millis(10);

/// Begins a transaction for a statement if the default isolation level of the role or the database does not fit, or behind a
/// transaction pooler. Also works on a standby.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// Begins a transaction for a statement that writes, if transactions are read-only by default. A standby refuses this.
pub(super) const BEGIN_READ_WRITE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";

impl<E> PostgresStore<E> {
    /// Runs a statement. `query` creates it for the server that must run it, the last argument. If the server cannot store a character of
    /// it, `query` creates it anew without: a stream whose key has such a character does not exist, and must not keep the others from
    /// being read.
    pub(super) async fn fetch_all<'q>(
        &self,
        query: impl Fn(Option<Arc<str>>) -> Query<'q, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        loop {
            let connection = self.inner.connections.acquire().await?;
            let fetched = self
                .fetch_on(connection, self.inner.response_timeout, false, &query)
                .await;
            match fetched {
                Err(error) if self.inner.untranslatable.learn(&error) => {}
                fetched => return fetched,
            }
        }
    }

    /// For a statement that always returns one row.
    pub(super) async fn fetch_one<'q>(
        &self,
        query: impl Fn(Option<Arc<str>>) -> Query<'q, Postgres, PgArguments>,
    ) -> Result<PgRow, sqlx::Error> {
        self.fetch_all(query).await.and_then(only_row)
    }

    /// Runs statements without parameters in one round trip, on any server, and returns their rows as text.
    pub(super) async fn fetch_raw(&self, statements: String) -> Result<Vec<PgRow>, sqlx::Error> {
        let mut connection = self.inner.connections.acquire().await?;
        let limit = self.inner.response_timeout;
        let rows = sqlx::raw_sql(AssertSqlSafe(statements)).fetch_all(&mut **connection);
        match timeout(limit, rows).await {
            Ok(Ok(rows)) => {
                self.inner.connections.give_back(connection);
                Ok(rows)
            }
            Ok(Err(error)) => {
                if is_broken(&error) {
                    connection.close_on_drop();
                }
                Err(error)
            }
            Err(_) => {
                connection.close_on_drop();
                Err(timeout_error(limit))
            }
        }
    }

    /// Runs a statement that locks streams and always returns one row. `query` creates it for the server that must run it, and for
    /// a lock timeout in milliseconds.
    ///
    /// Another session may hold a lock for long, so only statements with a permit wait for it, on at most half of the pool's
    /// connections. While all permits are in use, a statement is given up after a short wait, and repeated with a permit. The rest of
    /// the pool stays usable for streams that are not locked.
    pub(super) async fn fetch_one_locking<'q>(
        &self,
        query: impl Fn(Option<Arc<str>>, i32) -> Query<'q, Postgres, PgArguments>,
    ) -> Result<PgRow, sqlx::Error> {
        let lock_timeout = Duration::from_millis(self.inner.lock_timeout_ms.unsigned_abs().into());
        let short_wait = lock_timeout.min(SHORT_LOCK_WAIT);
        let deadline = Instant::now() + lock_timeout;
        let permits = &self.inner.lock_waits;
        let _permit = match permits.try_acquire() {
            Ok(permit) => Some(permit),
            Err(_) => {
                let row = self.fetch_one_waiting(short_wait, &query).await;
                if !row.as_ref().is_err_and(is_lock_timeout) {
                    return row;
                }
                // Without a permit, a last short wait: the lock may have become free long ago.
                let acquired = timeout_at(deadline - short_wait, permits.acquire()).await;
                acquired.ok().and_then(Result::ok)
            }
        };
        let remaining = deadline.saturating_duration_since(Instant::now());
        self.fetch_one_waiting(remaining.max(short_wait), &query).await
    }

    async fn fetch_one_waiting<'q>(
        &self,
        lock_wait: Duration,
        query: impl Fn(Option<Arc<str>>, i32) -> Query<'q, Postgres, PgArguments>,
    ) -> Result<PgRow, sqlx::Error> {
        let connection = self.inner.connections.acquire().await?;
        let limit = self.inner.response_timeout.saturating_add(lock_wait);
        let lock_timeout_ms = lock_timeout_ms(lock_wait);
        let rows = self
            .fetch_on(connection, limit, true, |server| query(server, lock_timeout_ms))
            .await;
        rows.and_then(only_row)
    }

    /// Runs a statement on this connection. If the server refuses it as the wrong server, closes the connection and repeats it on
    /// others: a pool may keep connections to a former primary for long, and nothing was read or written.
    pub(super) async fn fetch_on<'q>(
        &self,
        mut connection: PooledConnection,
        limit: Duration,
        writes: bool,
        query: impl Fn(Option<Arc<str>>) -> Query<'q, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let inner = &*self.inner;
        let mut begin = match inner.transaction_pooler {
            _ if writes && inner.primary.needs_explicit_transactions() => Some(BEGIN_READ_WRITE),
            true => Some(BEGIN),
            false => None,
        };
        let mut serialization_failures = 0;
        // Whether this connection has refused the statement, although it leads to a primary.
        let mut refused_by_primary = false;
        // Each of the pool's connections may lead to the wrong server; the one after them is new.
        let mut wrong_servers = None;
        loop {
            let server = inner.primary.expected();
            let rows = fetch_rows(&mut connection, query(server.clone()), begin, inner.transaction_pooler);
            let error = match timeout(limit, rows).await {
                Ok(Ok(rows)) => {
                    inner.connections.give_back(connection);
                    inner.primary.reached();
                    return Ok(rows);
                }
                Ok(Err(error)) => error,
                Err(_) => {
                    // The response may still arrive, so no other statement may use this connection.
                    connection.close_on_drop();
                    return Err(timeout_error(limit));
                }
            };
            let in_recovery = match refusal(&error) {
                None => {
                    if is_broken(&error) {
                        connection.close_on_drop(); // the pool would ping it, and log that this fails
                    }
                    return Err(error);
                }
                Some(Refusal::Serialization) if serialization_failures < MAX_SERIALIZATION_RETRIES => {
                    serialization_failures += 1;
                    begin = begin.or(Some(BEGIN)); // the session's default is another isolation level
                    continue;
                }
                Some(Refusal::Serialization) => return Err(error),
                // The role or the database may have a setting for it.
                Some(refusal @ (Refusal::ReadOnly | Refusal::NotSupported)) => {
                    match timeout(limit, is_in_recovery(&mut connection)).await {
                        // A standby that has been promoted since may have refused it. If it is refused again, the reason is another.
                        Ok(Ok(false)) if !refused_by_primary => {
                            refused_by_primary = true;
                            continue;
                        }
                        Ok(Ok(false)) if begin == Some(BEGIN_READ_WRITE) || refusal == Refusal::NotSupported => {
                            return Err(error);
                        }
                        Ok(Ok(false)) => {
                            begin = Some(BEGIN_READ_WRITE);
                            inner.primary.use_explicit_transactions();
                            continue;
                        }
                        Ok(Ok(true)) => {
                            begin = begin.and(Some(BEGIN));
                            true
                        }
                        Ok(Err(_)) | Err(_) => {
                            connection.close_on_drop();
                            return Err(error);
                        }
                    }
                }
                Some(Refusal::Standby) => true,
                Some(Refusal::OtherServer) => false,
            };
            connection.close_on_drop();
            drop(connection);
            let left: &mut u32 = wrong_servers.get_or_insert_with(|| inner.connections.pool.size().saturating_add(1));
            match left.checked_sub(1) {
                Some(fewer) => *left = fewer,
                None if in_recovery => {
                    inner.primary.back_off().await;
                    return Err(error);
                }
                // New connections lead to another primary, so the listening connection is the one that has stayed behind.
                None => inner.primary.forget(server.as_deref()),
            }
            connection = inner.connections.acquire().await?;
            refused_by_primary = false;
        }
    }

    pub(super) fn get<'r, T>(&self, row: &'r PgRow, column: usize) -> Result<T, StoreError>
    where
        T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        row.try_get(column).map_err(|error| self.read_error(error))
    }

    pub(super) fn read_error(&self, error: sqlx::Error) -> StoreError {
        store_error(error, &self.inner.schema, Operation::Read)
    }
}

/// The server's `lock_timeout`, where 0 would be none.
pub(super) fn lock_timeout_ms(lock_wait: Duration) -> i32 {
    i32::try_from(lock_wait.as_millis()).unwrap_or(i32::MAX).max(1)
}

/// Whether an error has ended the session.
fn is_broken(error: &sqlx::Error) -> bool {
    match error
        .as_database_error()
        .and_then(|error| error.try_downcast_ref::<PgDatabaseError>())
    {
        Some(error) => matches!(error.severity(), PgSeverity::Fatal | PgSeverity::Panic),
        None => matches!(
            error,
            sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_)
        ),
    }
}

/// The row of a statement that always returns one.
pub(super) fn only_row(mut rows: Vec<PgRow>) -> Result<PgRow, sqlx::Error> {
    rows.pop().ok_or(sqlx::Error::RowNotFound)
}

async fn fetch_rows(
    connection: &mut PgConnection,
    query: Query<'_, Postgres, PgArguments>,
    begin: Option<&'static str>,
    transaction_pooler: bool,
) -> Result<Vec<PgRow>, sqlx::Error> {
    let Some(begin) = begin else {
        return query.fetch_all(connection).await;
    };
    // sqlx prepares a statement in one exchange and executes it in the next. A transaction pooler may switch servers in between,
    // unless a transaction is open.
    let mut transaction = connection.begin_with(begin).await?;
    let rows = query.persistent(!transaction_pooler).fetch_all(&mut *transaction).await;
    let ended = match rows {
        Ok(_) => transaction.commit().await,
        Err(_) => transaction.rollback().await,
    };
    let rows = rows?;
    ended?;
    Ok(rows)
}

async fn is_in_recovery(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let query = sqlx::query_scalar("SELECT pg_catalog.pg_is_in_recovery()").persistent(false);
    query.fetch_one(connection).await
}

/// Without a limit, a frozen server or a dead network path would block a statement until the kernel gives up, for hours.
fn timeout_error(limit: Duration) -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(
        io::ErrorKind::TimedOut,
        format!("no response within {limit:?}"),
    ))
}
