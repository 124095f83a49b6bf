//! Migrations and schemas: concurrency, unusual names, missing migrations, unreachable servers.

use doorbell::bus::FleetEvent;
use doorbell::store::{PostgresStore, Store as _, StoreError};
use throwaway_postgres::Database;

use crate::store_suite::event;
use crate::support::Store;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_migrations_succeed() {
    let database = Database::fresh().unwrap();
    let migrating: Vec<_> = (0..8)
        .map(|_| {
            let url = database.url();
            tokio::spawn(async move {
                let store = PostgresStore::connect(&url).await.unwrap();
                store.migrate().await.unwrap();
                store.append(event("a", "x")).await.unwrap();
            })
        })
        .collect();
    for task in migrating {
        task.await.unwrap();
    }
    let store = PostgresStore::connect(&database.url()).await.unwrap();
    store.migrate().await.unwrap();
    assert_eq!(store.high_water("a").await.unwrap(), 8);
    assert_eq!(
        database.psql("SELECT count(*) FROM doorbell.history_identity").unwrap(),
        "1"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemas_with_unusual_names_are_independent() {
    let database = Database::fresh().unwrap();
    let longest = "s".repeat(63);
    let names = [
        "doorbell",
        "Doorbell",
        "public",
        "with space",
        "quo\"te",
        "se;mi",
        "a.b",
        "sélect",
        "select",
        "%I",
        "a, b",
        &longest,
    ];
    let mut stores = Vec::new();
    for name in names {
        let builder = PostgresStore::<FleetEvent>::builder().schema(name).unwrap();
        let store = builder.connect(&database.url()).await.unwrap();
        let early = store.append(event("a", "x")).await;
        assert!(
            matches!(early, Err(StoreError::NotMigrated { .. })),
            "{name}: {early:?}"
        );
        store.migrate().await.unwrap();
        store.migrate().await.unwrap();
        store.check_migrated().await.unwrap();
        assert_eq!(store.append(event("a", name)).await.unwrap().seq, 1);
        stores.push(store);
    }
    // Locking a stream in one schema does not lock the stream of that name in another.
    let mut holder = stores[0].pool().begin().await.unwrap();
    stores[0].append_in(&mut holder, event("a", "held")).await.unwrap();
    for (store, name) in stores.iter().zip(names).skip(1) {
        assert_eq!(store.append(event("a", name)).await.unwrap().seq, 2);
        let page = store.replay("a", 0, 10).await.unwrap();
        assert_eq!(
            page.records[0].event,
            Ok(FleetEvent {
                seq: 1,
                ..event("a", name)
            })
        );
        assert_eq!(store.changed_since(None, 10).await.unwrap().unwrap().streams.len(), 1);
    }
    holder.rollback().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_migration_is_a_typed_error() {
    let database = Database::fresh().unwrap();
    let store = PostgresStore::connect(&database.url()).await.unwrap();
    let not_migrated = |result: Result<(), StoreError>| match result {
        Err(StoreError::NotMigrated { schema, reason }) => {
            assert_eq!(schema, "doorbell");
            reason
        }
        other => panic!("{other:?}"),
    };
    not_migrated(store.check_migrated().await);
    not_migrated(store.append(event("a", "x")).await.map(drop));
    not_migrated(store.append_batch(vec![event("a", "x")]).await.map(drop));
    not_migrated(store.replay("a", 0, 1).await.map(drop));
    not_migrated(store.high_water("a").await.map(drop));
    not_migrated(store.changed_since(None, 1).await.map(drop));
    not_migrated(store.event_ids(&[("a".into(), 1)]).await.map(drop));
    not_migrated(store.trim("a", 1).await.map(drop));
    store.migrate().await.unwrap();
    // As an older build would have left it.
    database
        .psql("DELETE FROM doorbell.migrations WHERE version > 1")
        .unwrap();
    assert_eq!(
        not_migrated(store.check_migrated().await),
        "its last migration is 1, this build needs 5"
    );
    // As a newer build would have left it.
    database
        .psql("INSERT INTO doorbell.migrations SELECT 9000, 'later', now(), true, '', 1")
        .unwrap();
    store.check_migrated().await.unwrap();
}

/// The application keeps its own sqlx migrations in the same schema.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migrations_coexist_with_those_of_the_application() {
    let store = Store::fresh().await;
    store.psql("CREATE TABLE _sqlx_migrations (version bigint PRIMARY KEY); INSERT INTO _sqlx_migrations VALUES (42)");
    let public = PostgresStore::<FleetEvent>::builder()
        .schema("public")
        .unwrap()
        .build(store.pool().clone());
    public.migrate().await.unwrap();
    assert_eq!(public.append(event("a", "x")).await.unwrap().seq, 1);
    // Migrating leaves the session's search path unchanged.
    let search_path: String = sqlx::query_scalar("SHOW search_path")
        .fetch_one(store.pool())
        .await
        .unwrap();
    assert_eq!(search_path, "\"$user\", public");
}

/// P17: the schema is on the search path of the store's functions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p17_a_schema_in_which_every_role_may_create_objects_is_refused() {
    let database = Database::fresh().unwrap();
    // The default up to PostgreSQL 14.
    database.psql("GRANT CREATE ON SCHEMA public TO PUBLIC").unwrap();
    let builder = PostgresStore::<FleetEvent>::builder().schema("public").unwrap();
    let store = builder.connect(&database.url()).await.unwrap();
    let refused = store.migrate().await;
    assert!(
        matches!(&refused, Err(StoreError::UnsafeSchema { schema, reason }) if schema == "public" && reason.contains("PUBLIC")),
        "{refused:?}"
    );
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(database.psql(tables).unwrap(), "0");
    database.psql("REVOKE CREATE ON SCHEMA public FROM PUBLIC").unwrap();
    store.migrate().await.unwrap();
    assert_eq!(store.append(event("a", "x")).await.unwrap().seq, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_server_is_a_typed_error() {
    // Nothing listens on the port of a server that has stopped.
    let url = throwaway_postgres::Server::start().unwrap().url();
    let refused = PostgresStore::connect(&url).await;
    let refused = refused.unwrap_err();
    assert!(matches!(refused, StoreError::Unavailable { .. }), "{refused:?}");
    assert!(refused.to_string().contains("Connection refused"), "{refused}");
    for invalid in ["postgres://[", "host=localhost user", ""] {
        let refused = PostgresStore::connect(invalid).await.unwrap_err();
        assert!(refused.to_string().contains("connection string"), "{refused}");
    }
    // P15: all connections of the pool are in use.
    let store = Store::fresh().await;
    let options = sqlx::postgres::PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(std::time::Duration::from_secs(2));
    let pool = options.connect(&store.database.url()).await.unwrap();
    let narrow = PostgresStore::new(pool.clone());
    let taken = pool.acquire().await.unwrap();
    let refused = narrow.append(event("a", "x")).await;
    assert!(
        matches!(&refused, Err(error @ StoreError::Unavailable { .. }) if error.is_transient()),
        "{refused:?}"
    );
    drop(taken);
    assert_eq!(narrow.append(event("a", "x")).await.unwrap().seq, 1);
}

/// P10: the pooler may assign another server session to each transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p10_the_store_works_behind_a_transaction_pooler() {
    let server = throwaway_postgres::Server::start().unwrap();
    let pooler = throwaway_postgres::Pooler::transaction_mode(&server).unwrap();
    let builder = PostgresStore::<FleetEvent>::builder().transaction_pooler(true);
    let store = builder.connect(&pooler.url()).await.unwrap();
    store.migrate().await.unwrap();
    store.migrate().await.unwrap();
    let clients: Vec<_> = (0..8)
        .map(|client| {
            let url = pooler.url();
            tokio::spawn(async move {
                let builder = PostgresStore::<FleetEvent>::builder().transaction_pooler(true);
                let store = builder.connect(&url).await.unwrap();
                store.check_migrated().await.unwrap();
                store.migrate().await.unwrap();
                let own = format!("client-{client}");
                for number in 1..=40 {
                    assert_eq!(store.append(event(&own, "x")).await.unwrap().seq, 2 * number - 1);
                    let batch = vec![event("all", "x"), event(&own, "y")];
                    assert_eq!(store.append_batch(batch).await.unwrap()[1].seq, 2 * number);
                    assert_eq!(
                        store.replay(&own, 0, 100).await.unwrap().records.len() as u64,
                        2 * number
                    );
                    assert_eq!(store.high_water(&own).await.unwrap(), 2 * number);
                    assert!(store.event_ids(&[(own.as_str().into(), 1)]).await.unwrap()[0].is_some());
                }
                store.changed_since(None, 100).await.unwrap().unwrap().streams.len()
            })
        })
        .collect();
    for client in clients {
        assert!(client.await.unwrap() >= 2);
    }
    assert_eq!(store.high_water("all").await.unwrap(), 8 * 40);
    assert_eq!(store.keep_last(10).await.unwrap(), 8 * 70 + 310);
}
