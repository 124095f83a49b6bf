//! Running the store's statements: on any connection of the pool or, behind a transaction pooler, each in its own transaction.

use std::io;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Connection as _, PgConnection, Postgres, Row as _};
use tokio::time::timeout;

use super::error::{Operation, store_error};
use super::{Inner, PostgresStore};
use crate::store::StoreError;

impl<E> PostgresStore<E> {
    pub(super) async fn fetch_all(&self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>, sqlx::Error> {
        self.fetch_within(self.inner.response_timeout, query).await
    }

    /// For a statement that always returns one row.
    pub(super) async fn fetch_one(&self, query: Query<'_, Postgres, PgArguments>) -> Result<PgRow, sqlx::Error> {
        self.fetch_all(query).await?.pop().ok_or(sqlx::Error::RowNotFound)
    }

    /// For a statement that locks streams and always returns one row.
    pub(super) async fn fetch_one_locking(
        &self,
        query: Query<'_, Postgres, PgArguments>,
    ) -> Result<PgRow, sqlx::Error> {
        let mut rows = self.fetch_within(self.locking_timeout(), query).await?;
        rows.pop().ok_or(sqlx::Error::RowNotFound)
    }

    /// How long a statement that locks streams may take.
    pub(super) fn locking_timeout(&self) -> Duration {
        let lock_timeout = Duration::from_millis(self.inner.lock_timeout_ms.unsigned_abs().into());
        self.inner.response_timeout.saturating_add(lock_timeout)
    }

    async fn fetch_within(
        &self,
        limit: Duration,
        query: Query<'_, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let Inner {
            connections,
            transaction_pooler,
            ..
        } = &*self.inner;
        let mut connection = connections.acquire().await?;
        match timeout(limit, fetch_rows(&mut connection, query, *transaction_pooler)).await {
            Ok(rows) => {
                let rows = rows?;
                connections.give_back(connection);
                Ok(rows)
            }
            Err(_) => {
                // The response may still arrive, so no other statement may use this connection.
                connection.close_on_drop();
                Err(timeout_error(limit))
            }
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

/// For a statement that always returns one row.
pub(super) async fn fetch_row(
    connection: &mut PgConnection,
    query: Query<'_, Postgres, PgArguments>,
    transaction_pooler: bool,
) -> Result<PgRow, sqlx::Error> {
    let mut rows = fetch_rows(connection, query, transaction_pooler).await?;
    rows.pop().ok_or(sqlx::Error::RowNotFound)
}

async fn fetch_rows(
    connection: &mut PgConnection,
    query: Query<'_, Postgres, PgArguments>,
    transaction_pooler: bool,
) -> Result<Vec<PgRow>, sqlx::Error> {
    if !transaction_pooler {
        return query.fetch_all(connection).await;
    }
    // sqlx prepares a statement in one exchange and executes it in the next. The pooler may switch servers in between, unless a
    // transaction is open.
    let mut transaction = connection.begin().await?;
    let rows = query.persistent(false).fetch_all(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(rows)
}

/// Without a limit, a frozen server or a dead network path would block a statement until the kernel gives up, for hours.
pub(super) fn timeout_error(limit: Duration) -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(
        io::ErrorKind::TimedOut,
        format!("no response within {limit:?}"),
    ))
}
