//! P23: the generated script, run by psql, and `migrate()` make the same store.

use doorbell::bus::FleetEvent;
use doorbell::store::{PostgresStore, Store as _, StoreError, migration_sql};
use throwaway_postgres::Database;

use crate::store_suite::event;

async fn store(database: &Database, schema: &str) -> PostgresStore {
    let builder = PostgresStore::<FleetEvent>::builder().schema(schema).unwrap();
    builder.connect(&database.url()).await.unwrap()
}

/// Everything in a schema, one line each, without its name.
fn catalog(database: &Database, schema: &str) -> String {
    let name = schema.replace('\'', "''");
    let namespace = format!("(SELECT oid FROM pg_namespace WHERE nspname = '{name}')");
    let description = database
        .psql(&format!(
            "SET search_path = pg_catalog;
            SELECT c.relname, c.relkind, c.relpersistence, c.relrowsecurity, c.relreplident, c.relowner, c.relacl, c.reloptions
            FROM pg_class c WHERE c.relnamespace = {namespace} ORDER BY 1;
            SELECT c.relname, a.attnum, a.attname, a.atttypid, a.attnotnull, a.attcollation, pg_get_expr(d.adbin, d.adrelid)
            FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (c.oid, a.attnum)
            WHERE c.relnamespace = {namespace} AND a.attnum > 0 ORDER BY 1, 2;
            SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
            WHERE c.relnamespace = {namespace} ORDER BY 1;
            SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = {namespace} ORDER BY 1;
            SELECT pg_get_functiondef(p.oid), p.proowner, p.proacl FROM pg_proc p WHERE p.pronamespace = {namespace}
            ORDER BY p.proname, pg_get_function_identity_arguments(p.oid);
            SELECT version, description, success, checksum, execution_time > 0 FROM \"{schema}\".migrations ORDER BY version;
            SELECT nspowner, nspacl FROM pg_namespace WHERE nspname = '{name}';"
        ))
        .unwrap();
    let literal = schema.replace('\\', "\\\\");
    description
        .replace(&format!("\"{schema}\""), "S")
        .replace(&literal, "S")
        .replace(schema, "S")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p23_psql_and_migrate_make_the_same_store_and_accept_each_others() {
    let database = Database::fresh().unwrap();
    for (by_psql, by_migrate) in [("by_psql", "by_migrate"), ("One $do$ \\n", "Two $do$ \\n")] {
        let script = migration_sql(by_psql).unwrap();
        database.psql(&script).unwrap();
        let stores = [store(&database, by_psql).await, store(&database, by_migrate).await];
        let missing = stores[1].check_migrated().await;
        assert!(matches!(missing, Err(StoreError::NotMigrated { .. })), "{missing:?}");
        stores[1].migrate().await.unwrap();
        let (one, two) = (catalog(&database, by_psql), catalog(&database, by_migrate));
        assert!(one.contains("append_record") && one.lines().count() > 100, "{one}");
        assert_same_lines(&one, &two);
        for (store, schema) in stores.iter().zip([by_psql, by_migrate]) {
            store.check_migrated().await.unwrap();
            store.migrate().await.unwrap();
            database.psql(&migration_sql(schema).unwrap()).unwrap();
            assert_eq!(store.append(event("a", "x")).await.unwrap().seq, 1);
            // Nothing was run again.
            assert_same_lines(&catalog(&database, schema), &one);
            assert_eq!(store.high_water("a").await.unwrap(), 1);
        }
    }
}

/// Reports only the first line that differs.
fn assert_same_lines(left: &str, right: &str) {
    for (left, right) in left.lines().zip(right.lines()) {
        assert_eq!(left, right);
    }
    assert_eq!(left.lines().count(), right.lines().count());
}

/// An older build's script is one that ends earlier.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p23_an_older_store_is_upgraded_by_the_script_and_by_migrate() {
    let database = Database::fresh().unwrap();
    for schema in ["by_script", "by_migrate"] {
        let script = migration_sql(schema).unwrap();
        let (older, _) = script.split_once("\n-- Migration 5").unwrap();
        database.psql(&format!("{older}\nEND\n$do$;\nCOMMIT;")).unwrap();
        let store = store(&database, schema).await;
        assert_eq!(store.append(event("a", "x")).await.unwrap().seq, 1);
        let outdated = store.check_migrated().await;
        assert!(
            matches!(&outdated, Err(error @ StoreError::NotMigrated { .. }) if error.to_string().contains("is 4, this build needs 5")),
            "{outdated:?}"
        );
        if schema == "by_script" {
            database.psql(&script).unwrap();
        } else {
            store.migrate().await.unwrap();
        }
        store.check_migrated().await.unwrap();
        assert_eq!(store.keep_last(0).await.unwrap(), 1);
    }
    assert_same_lines(&catalog(&database, "by_script"), &catalog(&database, "by_migrate"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p23_a_migration_that_differs_from_the_recorded_one_is_refused() {
    let database = Database::fresh().unwrap();
    let script = migration_sql("doorbell").unwrap();
    database.psql(&script).unwrap();
    database
        .psql("UPDATE doorbell.migrations SET checksum = '' WHERE version = 2")
        .unwrap();
    let refused = database.psql(&script).unwrap_err().to_string();
    assert!(refused.contains("migration 2 was run with another text"), "{refused}");
    let refused = store(&database, "doorbell").await.migrate().await.unwrap_err();
    assert!(
        refused.to_string().contains("migration 2 was previously applied"),
        "{refused}"
    );
}

/// The settings of the session that runs it do not matter. (Those of the role would last for other tests.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p23_the_script_does_not_depend_on_settings() {
    let database = Database::fresh().unwrap();
    let settings = "SET default_transaction_isolation = serializable; SET default_transaction_read_only = on; \
                    SET standard_conforming_strings = off; SET search_path = public, pg_catalog; SET client_encoding = LATIN1; \
                    SET quote_all_identifiers = on;";
    let schema = "sélect";
    for _ in 0..2 {
        database
            .psql(&format!("{settings}\n{}", migration_sql(schema).unwrap()))
            .unwrap();
    }
    database
        .psql(&format!(
            "ALTER DATABASE \"{}\" SET quote_all_identifiers = on",
            database.name()
        ))
        .unwrap();
    let store = store(&database, schema).await;
    store.check_migrated().await.unwrap();
    assert_eq!(store.append(event("a", "x")).await.unwrap().seq, 1);
}

/// Nothing in the name of a schema is run as SQL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p23_a_schema_may_have_any_name_that_postgres_accepts() {
    let database = Database::fresh().unwrap();
    let hostile = "CREATE SCHEMA injected; --";
    for (number, schema) in [
        format!("t\n{hostile}"),
        format!("t\r{hostile}"),
        format!("t\";{hostile}"),
        format!("t';{hostile}"),
        format!("t\\';{hostile}"),
        format!("t*/{hostile}"),
        format!("t$do${hostile}"),
        format!("@schema_name@;{hostile}"),
    ]
    .iter()
    .enumerate()
    {
        let by_script = number % 2 == 1;
        if by_script {
            database.psql(&migration_sql(schema).unwrap()).unwrap();
        }
        let store = store(&database, schema).await;
        store.migrate().await.unwrap();
        store.check_migrated().await.unwrap();
        assert_eq!(store.append(event("a", "x")).await.unwrap().seq, 1, "{schema:?}");
        let injected = "SELECT count(*) FROM pg_namespace WHERE nspname = 'injected'";
        assert_eq!(database.psql(injected).unwrap(), "0", "{schema:?}");
        if !by_script {
            // The script accepts what migrate() has made.
            database.psql(&migration_sql(schema).unwrap()).unwrap();
        }
    }
}

/// As psql with `ON_ERROR_ROLLBACK` does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p23_a_client_that_goes_on_after_an_error_commits_nothing() {
    let database = Database::fresh().unwrap();
    // The first migration creates all tables but one.
    database
        .psql("CREATE SCHEMA doorbell; CREATE TABLE doorbell.history_identity ()")
        .unwrap();
    let script = migration_sql("doorbell").unwrap();
    database
        .psql(&format!(
            "\\set ON_ERROR_STOP off\n\\set ON_ERROR_ROLLBACK on\n{script}"
        ))
        .ok();
    let relations = "SELECT string_agg(relname, ' ') FROM pg_class WHERE relnamespace = 'doorbell'::regnamespace";
    assert_eq!(database.psql(relations).unwrap(), "history_identity");
}
