//! Where a statement runs: on any connection of the pool, or, behind a transaction pooler, in a transaction of its own.

use sqlx::Postgres;
use sqlx::Row as _;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;

use super::error::{Doing, store_error};
use super::{PostgresStore, Shared};
use crate::store::StoreError;

impl<E> PostgresStore<E> {
    /// Runs a statement that stands alone, and gives its rows.
    pub(super) async fn run(&self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>, sqlx::Error> {
        let Shared {
            pool,
            transaction_pooler,
            ..
        } = &*self.shared;
        if !transaction_pooler {
            return query.fetch_all(pool).await;
        }
        // A statement is prepared in one exchange and run in the next. In between the pooler may put another server behind the
        // connection, unless a transaction holds it.
        let mut transaction = pool.begin().await?;
        let rows = query.persistent(false).fetch_all(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(rows)
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
