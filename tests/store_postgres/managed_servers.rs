//! Servers that lack functions, publish all tables, or are a copy of another server.

use std::time::Duration;

use doorbell::store::{PostgresStore, Store as _};
use throwaway_postgres::Database;

use crate::changed_since::heads;
use crate::store_suite::{all_changes, event};

/// Functions that identify the server. Managed services lack some of them.
const IDENTIFYING_FUNCTIONS: [&str; 4] = [
    "pg_control_system()",
    "pg_postmaster_start_time()",
    "pg_walfile_name(pg_lsn)",
    "pg_current_wal_lsn()",
];

/// A database without these functions.
fn database_without(functions: &[&str]) -> Database {
    let database = Database::fresh().unwrap();
    for function in functions {
        let (name, _) = function.split_once('(').unwrap();
        let rename = format!("ALTER FUNCTION pg_catalog.{function} RENAME TO {name}_is_missing");
        database.psql(&rename).unwrap();
    }
    database
}

/// Appends, trims and lists changes; whether changes are listed since a watermark.
async fn use_store(store: &PostgresStore) -> bool {
    store.migrate().await.unwrap();
    store.migrate().await.unwrap();
    store.check_migrated().await.unwrap();
    for key in ["a", "b"] {
        store
            .append_batch(vec![event(key, "1"), event(key, "2")])
            .await
            .unwrap();
    }
    store.trim("a", 1).await.unwrap();
    let (mut all, watermark, complete) = all_changes(store, None, 1).await;
    all.sort();
    assert_eq!((all, complete), (heads(&[("a", 2), ("b", 2)]), true));
    store.append(event("b", "3")).await.unwrap();
    let (changed, _, complete) = all_changes(store, Some(&watermark), 1).await;
    assert!(changed.contains(&heads(&[("b", 3)])[0]), "{changed:?}");
    assert_eq!(changed.len(), if complete { 2 } else { 1 });
    !complete
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_works_where_functions_that_identify_the_server_are_missing() {
    for (missing, lists_changes) in [
        (&IDENTIFYING_FUNCTIONS[..1], true),
        (&IDENTIFYING_FUNCTIONS[1..2], false),
        (&IDENTIFYING_FUNCTIONS[2..], true),
        (&IDENTIFYING_FUNCTIONS[..], false),
    ] {
        let database = database_without(missing);
        let store = PostgresStore::connect(&database.url()).await.unwrap();
        assert_eq!(use_store(&store).await, lists_changes, "without {missing:?}");
        store.pool().close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_works_where_the_role_may_not_identify_the_server() {
    let database = Database::fresh().unwrap();
    let role = format!("app_{}", database.name());
    for function in IDENTIFYING_FUNCTIONS {
        let revoke = format!("REVOKE EXECUTE ON FUNCTION pg_catalog.{function} FROM PUBLIC");
        database.psql(&revoke).unwrap();
    }
    let grant = format!(
        "CREATE ROLE {role} LOGIN; GRANT CREATE ON DATABASE {} TO {role}",
        database.name()
    );
    database.psql(&grant).unwrap();
    let url = database.url().replace("//postgres@", &format!("//{role}@"));
    let store = PostgresStore::connect(&url).await.unwrap();
    assert!(!use_store(&store).await);
    store.pool().close().await;
    database
        .psql(&format!("DROP OWNED BY {role}; DROP ROLE {role}"))
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_works_where_all_tables_are_published() {
    let database = Database::fresh().unwrap();
    database
        .psql("SET client_min_messages = error; CREATE PUBLICATION everything FOR ALL TABLES")
        .unwrap();
    let store = PostgresStore::connect(&database.url()).await.unwrap();
    assert!(use_store(&store).await);
    assert!(store.trim_older_than(Duration::ZERO).await.unwrap() > 0);
    // As after a restore.
    database
        .psql("UPDATE doorbell.history_identity SET database = 1")
        .unwrap();
    store.migrate().await.unwrap();
    let is_bound = "SELECT doorbell.history_identity() IS NOT NULL";
    assert_eq!(database.psql(is_bound).unwrap(), "t");
}

/// The server has another system identifier, but its transaction IDs continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_pg_upgrade_all_streams_are_listed_until_the_store_is_migrated() {
    let database = Database::fresh().unwrap();
    let store = PostgresStore::connect(&database.url()).await.unwrap();
    assert!(use_store(&store).await);
    let watermark = all_changes(&store, None, 10).await.1;
    // pg_upgrade keeps the row as it is, with its xmin.
    database
        .psql(
            "BEGIN;
             UPDATE doorbell.history_identity SET system_identifier = system_identifier + 1;
             UPDATE doorbell.history_identity SET bound_by = xmin;
             COMMIT",
        )
        .unwrap();
    let (all, _, complete) = all_changes(&store, Some(&watermark), 10).await;
    assert_eq!((all.len(), complete), (2, true));
    store.migrate().await.unwrap();
    let watermark = all_changes(&store, None, 10).await.1;
    store.append(event("a", "3")).await.unwrap();
    let (changed, _, complete) = all_changes(&store, Some(&watermark), 10).await;
    assert_eq!((changed, complete), (heads(&[("a", 3)]), false));
}

/// The server does not tell its system identifier, and the dump is of the same server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_dump_is_recognized_without_a_system_identifier() {
    let database = database_without(&IDENTIFYING_FUNCTIONS[..1]);
    let store = PostgresStore::connect(&database.url()).await.unwrap();
    assert!(use_store(&store).await);
    let watermark = all_changes(&store, None, 10).await.1;
    let server = database.server().unwrap();
    let name = format!("{}_restored", database.name());
    server.restore(&name, &server.dump(database.name()).unwrap()).unwrap();
    server
        .psql_in(&name, "ALTER FUNCTION pg_catalog.pg_control_system() RENAME TO missing")
        .unwrap();
    let restored = PostgresStore::connect(&server.url_for(&name)).await.unwrap();
    let (all, watermark, complete) = all_changes(&restored, Some(&watermark), 10).await;
    assert_eq!((all.len(), complete), (2, true));
    assert!(all_changes(&restored, Some(&watermark), 10).await.2);
    restored.migrate().await.unwrap();
    let watermark = all_changes(&restored, None, 10).await.1;
    assert!(!all_changes(&restored, Some(&watermark), 10).await.2);
    restored.pool().close().await;
    server.psql(&format!("DROP DATABASE {name}")).unwrap();
}

/// A dump of the data alone, restored into tables that belong to their server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_of_another_server_is_not_taken_for_this_servers() {
    let database = Database::fresh().unwrap();
    let store = PostgresStore::connect(&database.url()).await.unwrap();
    assert!(use_store(&store).await);
    database
        .psql("INSERT INTO doorbell.history_identity (system_identifier, database, bound_by) SELECT 1, database, '7' FROM doorbell.history_identity")
        .unwrap();
    let watermark = all_changes(&store, None, 10).await.1;
    assert!(all_changes(&store, Some(&watermark), 10).await.2);
    store.migrate().await.unwrap();
    let watermark = all_changes(&store, None, 10).await.1;
    assert!(!all_changes(&store, Some(&watermark), 10).await.2);
}
