//! Creating the tables and functions, and checking that they exist.

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{Connection as _, PgConnection};

use super::error::{Operation, store_error};
use super::schema::Schema;
use crate::store::StoreError;

static MIGRATIONS: Migrator = sqlx::migrate!("./migrations");

/// The advisory lock that is held while any schema of the database is migrated: "doorbell" in ASCII.
const LOCK_ID: i64 = 0x646f_6f72_6265_6c6c;

/// Runs the pending migrations in one transaction.
///
/// Behind a transaction pooler, the session may contain prepared statements of other clients with the names that sqlx uses, so
/// the statements are deallocated before and after.
pub(super) async fn migrate(
    connection: &mut PgConnection,
    schema: &Schema,
    transaction_pooler: bool,
) -> Result<(), StoreError> {
    let failed = |error| store_error(error, schema, Operation::Read);
    let mut transaction = connection.begin().await.map_err(failed)?;
    if transaction_pooler {
        deallocate_prepared_statements(&mut transaction).await.map_err(failed)?;
    }
    // Before anything else is looked up: the session's path may lead to functions, operators and types of other roles. Reverts at
    // the end of the transaction.
    sqlx::raw_sql("SET LOCAL search_path = pg_catalog, pg_temp")
        .execute(&mut *transaction)
        .await
        .map_err(failed)?;
    sqlx::query("SELECT pg_catalog.pg_advisory_xact_lock($1)")
        .bind(LOCK_ID)
        .execute(&mut *transaction)
        .await
        .map_err(failed)?;
    // `CREATE SCHEMA IF NOT EXISTS` requires the privilege to create schemas even if the schema exists.
    let exists: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1)")
        .bind(schema.name())
        .fetch_one(&mut *transaction)
        .await
        .map_err(failed)?;
    if !exists {
        let create = sqlx::AssertSqlSafe(format!("CREATE SCHEMA {}", schema.quoted()));
        sqlx::query(create).execute(&mut *transaction).await.map_err(failed)?;
    }
    // The functions keep this path, to find their tables.
    let path = format!("SET LOCAL search_path = {}, pg_temp", schema.quoted());
    sqlx::raw_sql(sqlx::AssertSqlSafe(path))
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
        deallocate_prepared_statements(&mut transaction).await.map_err(failed)?;
    }
    transaction.commit().await.map_err(failed)
}

async fn deallocate_prepared_statements(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::raw_sql("DEALLOCATE ALL").execute(connection).await.map(drop)
}

/// The application may keep its own sqlx migrations in the same schema, so the store's are recorded in a table with another name.
/// A database that a newer build has migrated is fine.
fn migrator(schema: &Schema) -> Migrator {
    let mut migrator = Migrator::with_migrations(MIGRATIONS.iter().cloned().collect());
    migrator.dangerous_set_table_name(format!("{}.migrations", schema.quoted()));
    migrator.set_ignore_missing(true).set_locking(false);
    migrator
}

/// Whether the migrations up to `applied` include all that this build needs.
pub(super) fn check(applied: Option<i64>, schema: &Schema) -> Result<(), StoreError> {
    let needed = MIGRATIONS.iter().map(|migration| migration.version).max();
    if applied >= needed {
        return Ok(());
    }
    let number = |version: Option<i64>| version.unwrap_or(0);
    Err(StoreError::NotMigrated {
        schema: schema.name().to_owned(),
        reason: format!(
            "its last migration is {}, this build needs {}",
            number(applied),
            number(needed)
        ),
    })
}
