//! Creating the tables and functions, and checking that they exist.

use sqlx::migrate::MigrateError;
use sqlx::{AssertSqlSafe, Connection as _};

use super::PostgresStore;
use super::execute::{BEGIN_READ_WRITE, only_row};
use super::migration_script::{self, MIGRATIONS, hex};
use super::schema::Schema;
use crate::store::StoreError;

/// How a standby refuses a transaction that is to be writable.
const FEATURE_NOT_SUPPORTED: &str = "0A000";

/// What the SQL function `installation()` returns.
struct Installation {
    /// The versions and hexadecimal checksums of the migrations that have run, in order.
    migrations: Vec<(i64, String)>,
    /// Whether the transaction IDs in the tables are this database's.
    bound: bool,
    /// The tables on which row-level security applies to this role.
    restricted_tables: Vec<String>,
}

impl<E> PostgresStore<E> {
    /// Creates the schema with its tables and functions, or brings them up to date. Everything happens in one transaction. Any
    /// number of processes may call this concurrently. [`migration_sql`](crate::store::migration_sql) generates the same as a
    /// script.
    ///
    /// If there is nothing to do, this takes one round trip, and any role that may use the store may call it. Otherwise the caller must
    /// be the store's owner, or becomes it. The schema and everything in it must belong to the owner, its members or superusers.
    ///
    /// Waits for a lock at most as long as [`lock_timeout`](super::PostgresStoreBuilder::lock_timeout).
    ///
    /// Also call this after a dump was restored. The dump contains transaction IDs of another server; until they are replaced,
    /// [`changed_since`](crate::store::Store::changed_since) always lists all streams. Only the owner of the tables can replace
    /// them; for another role, this logs a warning and succeeds.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`]; [`StoreError::ReadOnly`] on a standby; [`StoreError::Forbidden`] if the role lacks a privilege,
    /// or is not the owner of a store that must be migrated, or if row-level security applies to it; [`StoreError::UnsafeSchema`], also
    /// if the role is a superuser and the owner is not; [`StoreError::LockTimeout`], for example while another process migrates;
    /// [`StoreError::Other`] if a migration that was run differs from this build's.
    ///
    /// ```no_run
    /// # async fn run(store: doorbell::store::PostgresStore) -> Result<(), doorbell::store::StoreError> {
    /// store.migrate().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let unbound = match self.installation().await {
            Ok(installation) if installation.is_complete()? => {
                if installation.bound {
                    return Ok(());
                }
                true
            }
            Ok(_) | Err(StoreError::NotMigrated { .. }) => false,
            Err(error) => return Err(error),
        };
        match self.run_migrations().await {
            Err(error @ StoreError::Forbidden { .. }) if unbound => {
                tracing::warn!("only the owner of the tables can rebind them after a dump was restored: {error}");
                Ok(())
            }
            result => result,
        }
    }

    /// Takes as long as the migrations take.
    async fn run_migrations(&self) -> Result<(), StoreError> {
        let acquired = self.inner.connections.acquire().await;
        let mut connection = acquired.map_err(|error| self.read_error(error))?;
        let failed = |error| self.read_error(error);
        let begun = connection.begin_with(BEGIN_READ_WRITE).await;
        let mut transaction =
            begun.map_err(
                |error| match error.as_database_error().and_then(|error| error.code()).as_deref() {
                    Some(FEATURE_NOT_SUPPORTED) => StoreError::ReadOnly,
                    _ => failed(error),
                },
            )?;
        // Without prepared statements, so it also works behind a transaction pooler.
        for statement in migration_script::statements(&self.inner.schema, self.inner.lock_timeout_ms) {
            let statement = sqlx::raw_sql(AssertSqlSafe(statement));
            statement.execute(&mut *transaction).await.map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)
    }

    /// Checks that all migrations of this build have been run, in one round trip. Migrations of newer builds do no harm. Any role
    /// that may use the store may call this.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotMigrated`] if a migration is missing; [`StoreError::Forbidden`] if the role lacks the privilege to look, or
    /// if row-level security applies to it; [`StoreError::UnsafeSchema`], also if the role is a superuser and the owner is not;
    /// [`StoreError::Unavailable`].
    ///
    /// ```no_run
    /// # async fn run(store: doorbell::store::PostgresStore) -> Result<(), doorbell::store::StoreError> {
    /// store.check_migrated().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn check_migrated(&self) -> Result<(), StoreError> {
        let installation = self.installation().await?;
        installation.check_version(&self.inner.schema)
    }

    async fn installation(&self) -> Result<Installation, StoreError> {
        let statements = migration_script::checked_installation(&self.inner.schema);
        let row = self.fetch_raw(statements).await.and_then(only_row);
        let row = row.map_err(|error| self.read_error(error))?;
        let versions: Vec<i64> = self.get(&row, 0)?;
        let checksums: Vec<String> = self.get(&row, 1)?;
        let installation = Installation {
            migrations: versions.into_iter().zip(checksums).collect(),
            bound: self.get(&row, 2)?,
            restricted_tables: self.get(&row, 3)?,
        };
        installation.check_row_security(&self.inner.schema)?;
        Ok(installation)
    }
}

impl Installation {
    /// Whether all migrations of this build have been run.
    fn is_complete(&self) -> Result<bool, StoreError> {
        for migration in MIGRATIONS.iter() {
            match self
                .migrations
                .iter()
                .find(|(version, _)| *version == migration.version)
            {
                None => return Ok(false),
                Some((_, checksum)) if *checksum != hex(&migration.checksum) => {
                    return Err(StoreError::other(MigrateError::VersionMismatch(migration.version)));
                }
                Some(_) => {}
            }
        }
        Ok(true)
    }

    /// Whether the migrations include the last one that this build needs.
    fn check_version(&self, schema: &Schema) -> Result<(), StoreError> {
        let applied = self.migrations.last().map(|(version, _)| *version);
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

    /// Events that a policy hides would look lost to readers and already appended to writers.
    fn check_row_security(&self, schema: &Schema) -> Result<(), StoreError> {
        if self.restricted_tables.is_empty() {
            return Ok(());
        }
        Err(StoreError::Forbidden {
            schema: schema.name().to_owned(),
            reason: format!(
                "row-level security applies to this role on {}, and could hide events",
                self.restricted_tables.join(", ")
            ),
        })
    }
}
