//! Where a statement runs: on any connection of the pool, or, behind a transaction pooler, in a transaction of its own.

use std::io;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Connection as _, PgConnection, Postgres, Row as _};
use tokio::time::timeout;

use super::error::{Doing, store_error};
use super::{PostgresStore, SharedStore};
use crate::store::StoreError;

impl<E> PostgresStore<E> {
    /// Runs a statement that stands alone, and gives its rows.
    pub(super) async fn run(&self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>, sqlx::Error> {
        self.run_within(self.shared.answer_timeout, query).await
    }

    async fn run_within(
        &self,
        limit: Duration,
        query: Query<'_, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let SharedStore {
            connections,
            transaction_pooler,
            ..
        } = &*self.shared;
        let mut connection = connections.acquire().await?;
        match timeout(limit, rows(&mut connection, query, *transaction_pooler)).await {
            Ok(answer) => {
                let answer = answer?;
                connections.give_back(connection);
                Ok(answer)
            }
            Err(_) => {
                // Its answer may still come, or never: nobody else is to have this connection.
                connection.close_on_drop();
                Err(no_answer(limit))
            }
        }
    }

    /// The longest that a statement that locks streams may take.
    pub(super) fn lock_limit(&self) -> Duration {
        let lock_timeout = Duration::from_millis(self.shared.lock_timeout_ms.unsigned_abs().into());
        self.shared.answer_timeout.saturating_add(lock_timeout)
    }

    /// The same for a statement that locks streams, and always has one row.
    pub(super) async fn run_locking(&self, query: Query<'_, Postgres, PgArguments>) -> Result<PgRow, sqlx::Error> {
        let mut rows = self.run_within(self.lock_limit(), query).await?;
        rows.pop().ok_or(sqlx::Error::RowNotFound)
    }

    /// The same for a statement that always has one row.
    pub(super) async fn run_one(&self, query: Query<'_, Postgres, PgArguments>) -> Result<PgRow, sqlx::Error> {
        self.run(query).await?.pop().ok_or(sqlx::Error::RowNotFound)
    }

    pub(super) fn get<'r, T>(&self, row: &'r PgRow, column: usize) -> Result<T, StoreError>
    where
        T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        row.try_get(column).map_err(|error| self.read_error(error))
    }

    pub(super) fn read_error(&self, error: sqlx::Error) -> StoreError {
        store_error(error, &self.shared.schema, Doing::Reading)
    }
}

/// Runs a statement that stands alone on a connection.
pub(super) async fn rows(
    connection: &mut PgConnection,
    query: Query<'_, Postgres, PgArguments>,
    transaction_pooler: bool,
) -> Result<Vec<PgRow>, sqlx::Error> {
    if !transaction_pooler {
        return query.fetch_all(connection).await;
    }
    // A statement is prepared in one exchange and run in the next. In between the pooler may put another server behind the
    // connection, unless a transaction holds it.
    let mut transaction = connection.begin().await?;
    let rows = query.persistent(false).fetch_all(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(rows)
}

/// A frozen server, or a line that has gone dead without a word, would be waited for as long as the kernel does: for hours.
pub(super) fn no_answer(limit: Duration) -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(
        io::ErrorKind::TimedOut,
        format!("no answer within {limit:?}"),
    ))
}
