//! The migrations as one SQL script. [`migrate`](super::PostgresStore::migrate) runs the same statements.

use std::fmt::Write as _;

use sqlx::migrate::{Migration, Migrator};

use super::builder::DEFAULT_LOCK_TIMEOUT;
use super::error::UNSAFE_SCHEMA;
use super::execute::BEGIN_READ_WRITE;
use super::schema::{InvalidSchemaName, Schema};
use crate::pg::quote::push_literal;

pub(super) static MIGRATIONS: Migrator = sqlx::migrate!("./migrations");

/// Generates the SQL script that creates a [`PostgresStore`](super::PostgresStore) in a schema, or brings it up to date: for
/// databases in which the application's role may not create tables.
///
/// The script does what [`migrate`](super::PostgresStore::migrate) does, in one transaction, and records it in the same place. It
/// runs the migrations that are missing, so the same script installs, upgrades, and does no harm when it is run again. Run it as the
/// role that is to own the store, or owns it; it refuses a schema in which other roles could put code. It waits at most 5 s for a lock. Any
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
         -- One statement, so that a client that goes on after errors commits nothing.\n\
         {}\
         COMMIT;\n",
        env!("CARGO_PKG_VERSION"),
        // A line feed would end the comment.
        schema.quoted().replace(['\n', '\r'], " "),
        settings(DEFAULT_LOCK_TIMEOUT.as_millis()),
        execute(&(preparation(&schema) + &migrations(&schema))),
    ))
}

/// The two statements that [`migrate`](super::PostgresStore::migrate) runs in a transaction that was begun with [`BEGIN_READ_WRITE`]:
/// after waiting for a lock, each query must see what the previous holder of the lock has committed. The first one waits, and is
/// short, since sqlx logs slow statements.
pub(super) fn statements(schema: &Schema, lock_timeout_ms: i32) -> [String; 2] {
    let preparation = execute(&preparation(schema));
    let lock_timeout_ms = u128::from(lock_timeout_ms.unsigned_abs());
    [settings(lock_timeout_ms) + &preparation, execute(&migrations(schema))]
}

/// What [`check_migrated`](super::PostgresStore::check_migrated) sends, as one message: checks to whom the schema belongs before a
/// function in it is called, then returns the row of `installation()`.
pub(super) fn checked_installation(schema: &Schema) -> String {
    format!(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;\n\
         {}\
         {}\
         SELECT versions, checksums, bound, restricted_tables FROM {}.installation({});\n",
        settings(DEFAULT_LOCK_TIMEOUT.as_millis()),
        execute(&check_owners(schema, Use::Call)),
        schema.quoted(),
        schema.literal(),
    )
}

/// The functions keep the search path of the transaction that creates them.
fn settings(lock_timeout_ms: u128) -> String {
    format!(
        "SET LOCAL search_path = pg_catalog, pg_temp;\n\
         SET LOCAL standard_conforming_strings = on;\n\
         SET LOCAL lock_timeout = '{lock_timeout_ms}ms';\n"
    )
}

/// What a role is about to do with a store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Call,
    Migrate,
}

/// Raises RB004 if a role that is not trusted owns the schema or anything in it, or may create objects in it or triggers on its tables: code
/// that such a role put there could run as every role that uses the store. Trusted are the store's owner, which is the owner of the
/// table `migrations` or, before it exists, this role; the members of the owner that have its rights or can become it; and superusers.
///
/// Refuses to migrate another role's store, whose code would run as this role, and refuses superusers other roles' stores altogether:
/// RB004 for superusers, which nothing else stops, and 42501 for others.
///
/// Runs no code of the schema.
fn check_owners(schema: &Schema, intended: Use) -> String {
    let name = schema.literal();
    let is_superuser = "(SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user)";
    let (missing, runs_as_this_role) = match intended {
        Use::Migrate => ("NULL", "true"),
        Use::Call => (
            "RAISE EXCEPTION 'there is no table migrations in the schema' USING ERRCODE = 'undefined_table'",
            is_superuser,
        ),
    };
    format!(
        r"DECLARE
    schema_id oid := (SELECT n.oid FROM pg_namespace n WHERE n.nspname = {name});
    migrations_id oid := (SELECT c.oid FROM pg_class c WHERE c.relnamespace = schema_id AND c.relname = 'migrations');
    owner name := coalesce(
        (SELECT pg_get_userbyid(c.relowner) FROM pg_class c WHERE c.oid = migrations_id), current_user);
    -- A member that can neither use the owner's rights, nor become the owner, nor make itself able to, is any other role. Up to
    -- PostgreSQL 15, every member can become it.
    membership text := CASE WHEN current_setting('server_version_num')::int < 160000
        THEN 'MEMBER' ELSE 'USAGE, SET, MEMBER WITH ADMIN OPTION' END;
    others text;
BEGIN
    SELECT string_agg(o.description, ', ' ORDER BY o.description) INTO others
    FROM (
        SELECT format('%s belongs to %I', o.what, o.role) AS description
        FROM (
            SELECT 'the schema', pg_get_userbyid(n.nspowner) FROM pg_namespace n WHERE n.oid = schema_id
            UNION ALL
            SELECT 'relation ' || c.oid::regclass, pg_get_userbyid(c.relowner)
            FROM pg_class c WHERE c.relnamespace = schema_id AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
            UNION ALL
            SELECT 'function ' || p.oid::regprocedure, pg_get_userbyid(p.proowner) FROM pg_proc p WHERE p.pronamespace = schema_id
            UNION ALL
            -- The function that it executes, and those in its condition.
            SELECT DISTINCT format('function %s of trigger %I on %s', p.oid::regprocedure, t.tgname, c.oid::regclass), pg_get_userbyid(p.proowner)
            FROM pg_class c JOIN pg_trigger t ON t.tgrelid = c.oid
                JOIN pg_depend d ON d.classid = 'pg_trigger'::regclass AND d.objid = t.oid
                LEFT JOIN pg_operator x ON d.refclassid = 'pg_operator'::regclass AND x.oid = d.refobjid
                JOIN pg_proc p ON p.oid = t.tgfoid OR d.refclassid = 'pg_proc'::regclass AND p.oid = d.refobjid OR p.oid = x.oprcode
            WHERE c.relnamespace = schema_id AND NOT t.tgisinternal
        ) AS o (what, role)
        WHERE NOT pg_has_role(
            -- The database's owner is the only member of pg_database_owner.
            CASE WHEN o.role = 'pg_database_owner'
                THEN (SELECT pg_get_userbyid(d.datdba) FROM pg_database d WHERE d.datname = current_database()) ELSE o.role END,
            owner, membership)
        UNION ALL
        SELECT 'CREATE on the schema is granted to ' || CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
        FROM pg_namespace n CROSS JOIN aclexplode(n.nspacl) AS a
        WHERE n.oid = schema_id AND a.privilege_type = 'CREATE'
            AND (a.grantee = 0 OR a.grantee <> n.nspowner AND NOT pg_has_role(a.grantee, owner, membership))
        UNION ALL
        SELECT format('TRIGGER on %s is granted to %s', c.oid::regclass,
            CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END)
        FROM pg_class c CROSS JOIN aclexplode(c.relacl) AS a
        WHERE c.relnamespace = schema_id AND a.privilege_type = 'TRIGGER'
            AND (a.grantee = 0 OR a.grantee <> c.relowner AND NOT pg_has_role(a.grantee, owner, membership))
        ORDER BY 1 LIMIT 10
    ) AS o;
    IF others IS NOT NULL THEN
        RAISE EXCEPTION 'roles other than its owner % could put their code into it: %', quote_ident(owner), others
            USING ERRCODE = '{UNSAFE_SCHEMA}',
                HINT = 'Nothing was changed. Drop what other roles have created in the schema and revoke CREATE and TRIGGER from them, or use another schema.';
    END IF;
    IF migrations_id IS NULL THEN
        {missing};
    ELSIF {runs_as_this_role} AND NOT pg_has_role(owner, current_user, membership) THEN
        RAISE EXCEPTION 'the store belongs to the role %, whose code would run as %', quote_ident(owner), quote_ident(current_user)
            USING ERRCODE = CASE WHEN {is_superuser} THEN '{UNSAFE_SCHEMA}' ELSE '42501' END,
                HINT = 'Nothing was changed. Connect as that role if it is to own the store, otherwise drop the schema or use another one.';
    ELSIF 6 <> (
        SELECT count(*) FROM pg_attribute a
        WHERE a.attrelid = migrations_id AND NOT a.attisdropped AND (a.attname, a.atttypid) IN (
            ('version', 'bigint'::regtype), ('description', 'text'::regtype),
            ('installed_on', 'timestamp with time zone'::regtype), ('success', 'boolean'::regtype),
            ('checksum', 'bytea'::regtype), ('execution_time', 'bigint'::regtype))
    ) THEN
        RAISE EXCEPTION 'its table migrations is not the one of an event store'
            USING ERRCODE = '{UNSAFE_SCHEMA}', HINT = 'Nothing was changed. Use another schema.';
    END IF;
END;
"
    )
}

/// Creates the schema and the table `migrations`, unless they exist, and locks the table: only the owner can, so no other role can keep
/// a migration waiting.
///
/// `CREATE SCHEMA IF NOT EXISTS` requires the privilege to create schemas even if the schema exists, and fails if another
/// transaction creates it at the same time.
///
/// The application may keep its own sqlx migrations in the same schema, so the store's are recorded in a table with another name.
fn preparation(schema: &Schema) -> String {
    let name = schema.literal();
    let check = check_owners(schema, Use::Migrate);
    let schema = schema.quoted();
    format!(
        r"IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = {name}) THEN
    BEGIN
        CREATE SCHEMA {schema};
    EXCEPTION
        WHEN duplicate_schema OR unique_violation THEN NULL;
    END;
END IF;
{check}IF NOT EXISTS (SELECT FROM pg_tables WHERE schemaname = {name} AND tablename = 'migrations') THEN
    BEGIN
        CREATE TABLE {schema}.migrations (
            version        bigint PRIMARY KEY,
            description    text        NOT NULL,
            installed_on   timestamptz NOT NULL DEFAULT now(),
            success        boolean     NOT NULL,
            checksum       bytea       NOT NULL,
            -- In nanoseconds.
            execution_time bigint      NOT NULL
        );
    EXCEPTION
        WHEN duplicate_table OR unique_violation THEN NULL;
    END;
END IF;
LOCK TABLE {schema}.migrations IN SHARE ROW EXCLUSIVE MODE;
"
    )
}

/// Runs the missing migrations, and binds the tables to this database if they are a restored dump's.
fn migrations(schema: &Schema) -> String {
    let mut blocks = String::new();
    for migration in MIGRATIONS.iter() {
        write!(
            blocks,
            "\n-- Migration {}: {}\n{}",
            migration.version,
            migration.description,
            run_once(schema, migration)
        )
        .ok();
    }
    // The former refuses a schema that was renamed, whose functions use another one.
    let (identifier, literal) = (schema.quoted(), schema.literal());
    blocks
        + &format!(
            "\nPERFORM {identifier}.installation({literal});\n\
             PERFORM {identifier}.rebind_after_restore();\n"
        )
}

/// Runs a migration and records it, unless it has been recorded.
fn run_once(schema: &Schema, migration: &Migration) -> String {
    let version = migration.version;
    let checksum = hex(&migration.checksum);
    let mut description = String::new();
    push_literal(&mut description, &migration.description);
    let sql = dollar_quoted("sql", &text(schema, migration));
    let schema = schema.quoted();
    format!(
        "DECLARE\n    \
             recorded bytea := (SELECT checksum FROM {schema}.migrations WHERE version = {version});\n    \
             started timestamptz := clock_timestamp();\n\
         BEGIN\n    \
             IF recorded IS NULL THEN\n        \
                 EXECUTE {sql};\n        \
                 INSERT INTO {schema}.migrations (version, description, success, checksum, execution_time)\n        \
                 VALUES ({version}, {description}, true, '\\x{checksum}', date_part('epoch', clock_timestamp() - started) * 1e9);\n    \
             ELSIF recorded <> '\\x{checksum}' THEN\n        \
                 RAISE EXCEPTION 'migration {version} was run with another text than this build''s; nothing was changed';\n    \
             END IF;\n\
         END;\n"
    )
}

/// The text of a migration with the schema's name in it.
fn text(schema: &Schema, migration: &Migration) -> String {
    let (identifier, literal) = (schema.quoted(), schema.literal());
    // The function bodies contain the name.
    let delimiter = delimiter("function", &format!("{identifier} {literal}"));
    let template = migration.sql.as_str().replace("$$", &delimiter);
    let mut text = String::new();
    let mut rest = template.as_str();
    // In one pass, for the name may look like a placeholder.
    while let Some((before, from_placeholder)) = rest.split_once("@schema") {
        text.push_str(before);
        if let Some(after) = from_placeholder.strip_prefix("_name@") {
            text.push_str(&literal);
            rest = after;
        } else {
            text.push_str(&identifier);
            rest = from_placeholder.strip_prefix('@').unwrap_or(from_placeholder);
        }
    }
    text.push_str(rest);
    text
}

fn execute(statements: &str) -> String {
    format!("DO {};\n", dollar_quoted("do", &format!("\nBEGIN\n{statements}END\n")))
}

/// A string literal with a tag that the text does not contain.
fn dollar_quoted(tag: &str, text: &str) -> String {
    let delimiter = delimiter(tag, text);
    format!("{delimiter}{text}{delimiter}")
}

fn delimiter(tag: &str, text: &str) -> String {
    let mut delimiter = format!("${tag}$");
    for number in 1.. {
        if !text.contains(&delimiter) {
            break;
        }
        delimiter = format!("${tag}{number}$");
    }
    delimiter
}

pub(super) fn hex(bytes: &[u8]) -> String {
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
            let text = migration.sql.as_str().replace("$$", "$function$");
            let text = text
                .replace("@schema@", "\"doorbell\"")
                .replace("@schema_name@", "E'doorbell'");
            assert!(script.contains(&text) && !text.contains('@'), "{}", migration.version);
            assert!(script.contains(&hex(&migration.checksum)), "{}", migration.version);
        }
    }

    #[test]
    fn the_schema_stands_in_no_comment() {
        // Nothing may follow a `--` but the comment: a line feed in the name would end it.
        let script = migration_sql("a\nb").unwrap();
        for line in script.lines().filter(|line| line.contains("--")) {
            assert!(!line.ends_with("\"a") && !line.ends_with("'a"), "{line}");
        }
        for migration in MIGRATIONS.iter() {
            for line in migration.sql.as_str().lines() {
                let comment = line.split_once("--").map_or("", |(_, comment)| comment);
                assert!(!comment.contains("@schema"), "{line}");
            }
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
