//! Bringing the tables and functions into being, and seeing that they are there.

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{Connection as _, PgConnection};

use super::error::{Doing, store_error};
use super::schema::Schema;
use crate::store::StoreError;

static MIGRATIONS: Migrator = sqlx::migrate!("./migrations");

/// Whoever migrates any schema of the database holds this advisory lock: "doorbell" in ASCII.
const LOCK: i64 = 0x646f_6f72_6265_6c6c;

/// Runs what has not been run yet, in one transaction.
///
/// Behind a transaction pooler other clients may have left prepared statements of the same names in the session that this
/// transaction gets, and so would this one.
pub(super) async fn migrate(
    connection: &mut PgConnection,
    schema: &Schema,
    transaction_pooler: bool,
) -> Result<(), StoreError> {
    let failed = |error| store_error(error, schema, Doing::Reading);
    let mut transaction = connection.begin().await.map_err(failed)?;
    if transaction_pooler {
        forget_prepared(&mut transaction).await.map_err(failed)?;
    }
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(LOCK)
        .execute(&mut *transaction)
        .await
        .map_err(failed)?;
    // Not `IF NOT EXISTS` alone: that asks for the right to create schemas even if there is nothing to create.
    let exists: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)")
        .bind(schema.name())
        .fetch_one(&mut *transaction)
        .await
        .map_err(failed)?;
    if !exists {
        let create = sqlx::AssertSqlSafe(format!("CREATE SCHEMA {}", schema.quoted()));
        sqlx::query(create).execute(&mut *transaction).await.map_err(failed)?;
    }
    // For this transaction only. The functions keep it: that is how they find their tables.
    sqlx::query("SELECT set_config('search_path', $1, true)")
        .bind(format!("{}, pg_temp", schema.quoted()))
        .execute(&mut *transaction)
        .await
        .map_err(failed)?;
    migrator(schema)
        .run_direct(None, &mut *transaction, false)
        .await
        .map_err(|error| match error {
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => failed(error),
            error => StoreError::other(error),
        })?;
    sqlx::query(&schema.rebind_after_restore)
        .execute(&mut *transaction)
        .await
        .map_err(failed)?;
    if transaction_pooler {
        forget_prepared(&mut transaction).await.map_err(failed)?;
    }
    transaction.commit().await.map_err(failed)
}

async fn forget_prepared(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::raw_sql("DEALLOCATE ALL").execute(connection).await.map(drop)
}

/// The service may keep migrations of its own in the same schema, so ours have a table of their own name. A database that is
/// ahead, since a newer build has migrated it, is fine.
fn migrator(schema: &Schema) -> Migrator {
    let mut migrator = Migrator::with_migrations(MIGRATIONS.iter().cloned().collect());
    migrator.dangerous_set_table_name(format!("{}.migrations", schema.quoted()));
    migrator.set_ignore_missing(true).set_locking(false);
    migrator
}

/// Whether migrations up to `there` are all that this build needs.
pub(super) fn check(there: Option<i64>, schema: &Schema) -> Result<(), StoreError> {
    let needed = MIGRATIONS.iter().map(|migration| migration.version).max();
    if there >= needed {
        return Ok(());
    }
    let number = |version: Option<i64>| version.unwrap_or(0);
    Err(StoreError::NotMigrated {
        schema: schema.name().to_owned(),
        reason: format!(
            "it has migrations up to {}, this build needs {}",
            number(there),
            number(needed)
        ),
    })
}
