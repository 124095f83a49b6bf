//! The migrations as one SQL script. [`migrate`](super::PostgresStore::migrate) runs the same statements.

use std::fmt::Write as _;

use sqlx::migrate::{Migration, Migrator};

use super::error::UNSAFE_SCHEMA;
use super::execute::BEGIN_READ_WRITE;
use super::schema::{InvalidSchemaName, Schema};
use crate::pg::quote::push_literal;

pub(super) static MIGRATIONS: Migrator = sqlx::migrate!("./migrations");

/// The advisory lock that is held while any schema of the database is migrated: "doorbell" in ASCII.
const LOCK_ID: i64 = 0x646f_6f72_6265_6c6c;

/// Generates the SQL script that creates a [`PostgresStore`](super::PostgresStore) in a schema, or brings it up to date: for
/// databases in which the application's role may not create tables.
///
/// The script does what [`migrate`](super::PostgresStore::migrate) does, in one transaction, and records it in the same place. It
/// runs the migrations that are missing, so the same script installs, upgrades, and does no harm when it is run again. Any
/// client that runs several statements can run it; with psql: `psql -v ON_ERROR_STOP=1 -f doorbell.sql`. The example
/// `migration_sql` prints it.
///
/// # Errors
///
/// Returns an error if Postgres would refuse or truncate the schema's name.
///
/// ```
/// let script = doorbell::store::migration_sql(doorbell::store::DEFAULT_SCHEMA)?;
/// assert!(script.contains("CREATE SCHEMA \"doorbell\""));
/// # Ok::<_, doorbell::store::InvalidSchemaName>(())
/// ```
pub fn migration_sql(schema: &str) -> Result<String, InvalidSchemaName> {
    let schema = Schema::new(schema)?;
    Ok(format!(
        "-- The event store of doorbell {}: creates it in schema {}, or brings it up to date. Can be run again.\n\
         {BEGIN_READ_WRITE};\n\
         SET LOCAL client_encoding = 'UTF8';\n\
         {}\
         COMMIT;\n",
        env!("CARGO_PKG_VERSION"),
        // A line feed would end the comment.
        schema.quoted().replace(['\n', '\r'], " "),
        statements(&schema)
    ))
}

/// What is to be run in a transaction that was begun with [`BEGIN_READ_WRITE`]: after waiting for the lock, each statement must see what the
/// previous holder of the lock has committed.
pub(super) fn statements(schema: &Schema) -> String {
    let mut script = format!(
        "SET LOCAL search_path = pg_catalog, pg_temp;\n\
         SET LOCAL standard_conforming_strings = on;\n\
         {}\
         -- The functions keep this path to find their tables.\n\
         SET LOCAL search_path = {}, pg_temp;\n",
        execute(&create_schema(schema)),
        schema.quoted(),
    );
    for migration in MIGRATIONS.iter() {
        write!(
            script,
            "\n-- Migration {}: {}\n{}",
            migration.version,
            migration.description,
            execute(&run_once(migration))
        )
        .ok();
    }
    // After a dump was restored.
    script.push('\n');
    script.push_str(&execute("BEGIN\n    PERFORM rebind_after_restore();\nEND\n"));
    script
}

/// `CREATE SCHEMA IF NOT EXISTS` requires the privilege to create schemas even if the schema exists.
///
/// The application may keep its own sqlx migrations in the same schema, so the store's are recorded in a table with another name.
fn create_schema(schema: &Schema) -> String {
    let mut name = String::new();
    push_literal(&mut name, schema.name());
    let schema = schema.quoted();
    format!(
        "BEGIN\n    \
             PERFORM pg_advisory_xact_lock({LOCK_ID});\n    \
             IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = {name}) THEN\n        \
                 CREATE SCHEMA {schema};\n    \
             ELSIF has_schema_privilege('public', {name}, 'CREATE') THEN\n        \
                 RAISE EXCEPTION 'every role may create objects in the schema; nothing was changed' USING ERRCODE = '{UNSAFE_SCHEMA}',\n            \
                     HINT = 'Use another schema, or REVOKE CREATE ON SCHEMA ... FROM PUBLIC.';\n    \
             END IF;\n    \
             IF NOT EXISTS (SELECT FROM pg_tables WHERE schemaname = {name} AND tablename = 'migrations') THEN\n        \
                 CREATE TABLE {schema}.migrations (\n            \
                     version        bigint PRIMARY KEY,\n            \
                     description    text        NOT NULL,\n            \
                     installed_on   timestamptz NOT NULL DEFAULT now(),\n            \
                     success        boolean     NOT NULL,\n            \
                     checksum       bytea       NOT NULL,\n            \
                     -- In nanoseconds.\n            \
                     execution_time bigint      NOT NULL\n        \
                 );\n    \
             END IF;\n\
         END\n"
    )
}

/// Runs a migration and records it, unless it has been recorded.
fn run_once(migration: &Migration) -> String {
    let version = migration.version;
    let checksum = hex(&migration.checksum);
    let mut description = String::new();
    push_literal(&mut description, &migration.description);
    let sql = dollar_quoted("sql", migration.sql.as_str());
    format!(
        "DECLARE\n    \
             recorded bytea := (SELECT checksum FROM migrations WHERE version = {version});\n    \
             started timestamptz := clock_timestamp();\n\
         BEGIN\n    \
             IF recorded IS NULL THEN\n        \
                 EXECUTE {sql};\n        \
                 INSERT INTO migrations (version, description, success, checksum, execution_time)\n        \
                 VALUES ({version}, {description}, true, '\\x{checksum}', date_part('epoch', clock_timestamp() - started) * 1e9);\n    \
             ELSIF recorded <> '\\x{checksum}' THEN\n        \
                 RAISE EXCEPTION 'migration {version} was run with another text than this build''s; nothing was changed';\n    \
             END IF;\n\
         END\n"
    )
}

fn execute(block: &str) -> String {
    format!("DO {};\n", dollar_quoted("do", &format!("\n{block}")))
}

/// A string literal with a tag that the text does not contain.
fn dollar_quoted(tag: &str, text: &str) -> String {
    let mut delimiter = format!("${tag}$");
    for number in 1.. {
        if !text.contains(&delimiter) {
            break;
        }
        delimiter = format!("${tag}{number}$");
    }
    format!("{delimiter}{text}{delimiter}")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").ok();
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_contains_every_migration_with_its_checksum() {
        let script = migration_sql("doorbell").unwrap();
        assert!(MIGRATIONS.iter().count() >= 5);
        for migration in MIGRATIONS.iter() {
            assert!(script.contains(migration.sql.as_str()), "{}", migration.version);
            assert!(script.contains(&hex(&migration.checksum)), "{}", migration.version);
        }
    }

    #[test]
    fn a_literal_is_delimited_by_what_it_does_not_contain() {
        assert_eq!(dollar_quoted("do", "x"), "$do$x$do$");
        assert_eq!(dollar_quoted("do", "$do$ $do1$"), "$do2$$do$ $do1$$do2$");
        assert!(migration_sql("pg_x").is_err());
        assert!(migration_sql("a$do$\nb").unwrap().starts_with("-- The event store"));
    }
}
