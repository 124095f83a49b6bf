//! P17: other roles have put functions, operators, types and relations with the names of built-in ones into schemas of the
//! session's search path.

mod bus_support;

use std::sync::Arc;
use std::time::Duration;

use doorbell::bus::{BusState, DistributedBus, EventBus as _, FleetEvent};
use doorbell::listen::{ListenItem, ListenMultiplexer};
use doorbell::store::{PostgresStore, Store, StoreError};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection as _, Executor as _};
use testkit::within::{eventually, within};
use throwaway_postgres::{Database, Server};

use crate::bus_support::{builder, expect, note, until};

/// For everything in `pg_catalog`, something in the schema `evil` that the server prefers to it if `evil` comes first on the search
/// path. Each use is counted as a call of a function of `evil`.
const TWINS: &str = include_str!("bus_hostile_path/shadowing_objects.sql");

const CALLS: &str = "SELECT string_agg(funcname || ': ' || calls, ', ' ORDER BY funcname) FROM pg_stat_user_functions \
                     WHERE schemaname = 'evil' AND calls > 0";

/// A server on which the role `app` owns the database `app` and looks everything up in `evil` first.
fn hostile_server() -> (Server, String) {
    let server = Server::builder().setting("track_functions", "all").start().unwrap();
    server
        .psql("CREATE ROLE app LOGIN; CREATE DATABASE app OWNER app")
        .unwrap();
    server.psql_in("app", TWINS).unwrap();
    server
        .psql("ALTER ROLE app SET search_path = evil, pg_catalog, public")
        .unwrap();
    let url = server.url_for("app").replace("//postgres@", "//app@");
    assert!(url.contains("//app@"), "{url}");
    (server, url)
}

/// Waits for all sessions of `app` to end, and so to report their calls.
async fn sessions_end(server: &Server) {
    eventually("the sessions end", || {
        let sessions = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'";
        server.psql(sessions).unwrap() == "0"
    })
    .await;
}

/// The calls that sessions of `app` have made.
async fn calls(server: &Server) -> String {
    sessions_end(server).await;
    server.psql_in("app", CALLS).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p17_a_hostile_search_path_changes_nothing() {
    let (server, url) = hostile_server();
    live_the_life_of_a_store(&url).await;
    assert_eq!(
        calls(&server).await,
        "",
        "the store's statements call functions of others"
    );
    live_the_life_of_a_bus(&server, &url).await;
    assert_eq!(
        calls(&server).await,
        "",
        "the bus's statements call functions of others"
    );

    // The twins do count.
    for (statement, twin) in [
        ("SELECT length('a'::pg_catalog.text)", "length: "),
        ("SELECT max(1), pg_catalog.now()", "max: "),
        ("SELECT unnest(ARRAY[1])", "unnest: "),
        ("SELECT 1 + 1", "operator +: "),
        ("SELECT 1 IN (2)", "operator =: "),
        ("SELECT 'a'::text", "type text: "),
        ("SELECT FROM pg_class", "relation pg_class: "),
    ] {
        let mut session = sqlx::PgConnection::connect(&url).await.unwrap();
        session.execute(sqlx::raw_sql(statement)).await.unwrap();
        session.close().await.unwrap();
        let calls = calls(&server).await;
        assert!(calls.contains(twin), "{statement}: {calls}");
    }
}

/// The store's own role has created twins in the store's own schema, before and after the migration.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p17_twins_in_the_stores_own_schema_change_nothing() {
    let server = Server::builder().setting("track_functions", "all").start().unwrap();
    server.psql("CREATE ROLE app LOGIN").unwrap();
    let twins = TWINS.replace("CREATE SCHEMA", "CREATE SCHEMA IF NOT EXISTS");
    let twins = format!("SET ROLE app; {}", twins.replace("evil", "doorbell"));
    // The store has no function with the name of one in pg_catalog.
    let twins_called = "SELECT string_agg(funcname || ': ' || calls, ', ') FROM pg_stat_user_functions f
         WHERE funcname ~ '^(operator|type|relation) ' OR EXISTS (
             SELECT FROM pg_proc p WHERE p.proname = f.funcname AND p.pronamespace = 'pg_catalog'::regnamespace)";
    for database in ["twins_first", "store_first"] {
        server.psql(&format!("CREATE DATABASE {database} OWNER app")).unwrap();
        let url = server.url_for(database).replace("//postgres@", "//app@");
        if database == "store_first" {
            let store = PostgresStore::connect(&url).await.unwrap();
            store.migrate().await.unwrap();
            store.pool().close().await;
        }
        server.psql_in(database, &twins).unwrap();
        live_the_life_of_a_store(&url).await;
        sessions_end(&server).await;
        assert_eq!(server.psql_in(database, twins_called).unwrap(), "", "{database}");
        // The twins do count.
        server
            .psql_in(database, "SET search_path = doorbell; SELECT unnest(ARRAY[1])")
            .unwrap();
        eventually("the call is counted", || {
            server.psql_in(database, twins_called).unwrap().contains("unnest: 1")
        })
        .await;
    }
}

/// Every statement of the store, and every function.
async fn live_the_life_of_a_store(url: &str) {
    for transaction_pooler in [false, true] {
        let schema = if transaction_pooler {
            "behind a pooler"
        } else {
            "doorbell"
        };
        let store = PostgresStore::<FleetEvent>::builder()
            .schema(schema)
            .unwrap()
            .lock_timeout(Duration::from_millis(50))
            .transaction_pooler(transaction_pooler);
        let store = store.connect(url).await.unwrap();
        store.migrate().await.unwrap();
        store.migrate().await.unwrap();
        store.check_migrated().await.unwrap();
        assert_eq!(store.append(note("a", "1")).await.unwrap().seq, 1);
        let batch = vec![note("b", "1"), note("a", "2"), note("b", "2")];
        let seqs: Vec<u64> = store
            .append_batch(batch)
            .await
            .unwrap()
            .iter()
            .map(|event| event.seq)
            .collect();
        assert_eq!(seqs, [1, 2, 2]);
        let refused = store
            .append(FleetEvent {
                seq: 7,
                ..note("a", "not the next")
            })
            .await;
        assert!(
            matches!(refused, Err(StoreError::SeqConflict { expected: 3, .. })),
            "{refused:?}"
        );

        let mut transaction = store.pool().begin().await.unwrap();
        assert_eq!(store.append_in(&mut transaction, note("a", "3")).await.unwrap().seq, 3);
        store
            .append_in_notifying(&mut transaction, note("a", "4"))
            .await
            .unwrap();
        let locked = store.append(note("a", "waits")).await;
        assert!(matches!(locked, Err(StoreError::LockTimeout)), "{locked:?}");
        store
            .append_batch_in(&mut transaction, vec![note("c", "1"), note("c", "2")])
            .await
            .unwrap();
        store
            .append_batch_in_notifying(&mut transaction, vec![note("c", "3"), note("b", "3")])
            .await
            .unwrap();
        transaction.commit().await.unwrap();
        for level in ["REPEATABLE READ", "SERIALIZABLE"] {
            let begin = sqlx::AssertSqlSafe(format!("BEGIN ISOLATION LEVEL {level}"));
            let mut transaction = store.pool().begin_with(begin).await.unwrap();
            store.append_in(&mut transaction, note("d", level)).await.unwrap();
            transaction.commit().await.unwrap();
        }
        let appends = (0..20).map(|n| {
            let store = store.clone();
            tokio::spawn(async move { store.append(note(&format!("group-{}", n % 7), "x")).await })
        });
        for append in appends.collect::<Vec<_>>() {
            append.await.unwrap().unwrap();
        }

        assert_eq!(store.replay("a", 0, 10).await.unwrap().records.len(), 4);
        let all = store.changed_since(None, 2).await.unwrap().unwrap();
        assert!(all.more && all.complete);
        let mut changes = store.changed_since(Some(&all.watermark), 100).await.unwrap().unwrap();
        assert_eq!(all.streams.len() + changes.streams.len(), 11);
        for key in ["a", "b", "c"] {
            store.append(note(key, "later")).await.unwrap();
        }
        for streams in [2, 1] {
            changes = store.changed_since(Some(&changes.watermark), 2).await.unwrap().unwrap();
            assert_eq!((changes.streams.len(), changes.complete), (streams, false));
        }
        let ids = store.event_ids(&[("a".into(), 1), ("a".into(), 99)]).await.unwrap();
        assert!(ids[0].is_some() && ids[1].is_none());
        assert_eq!(store.trim("a", 1).await.unwrap(), 1);
        assert_eq!(store.keep_last(3).await.unwrap(), 3);
        assert!(store.trim_older_than(Duration::ZERO).await.unwrap() > 20);
        assert_eq!(store.high_water("a").await.unwrap(), 5);

        // As psql and triggers call them, with all defaults.
        let mut session = store.pool().acquire().await.unwrap();
        for call in [
            "append('x', '{}', notify => true)",
            "append_many(array['y', 'x'], array['{}', '{}']::pg_catalog.jsonb[], notify => true)",
            "notify_events('x', 1)",
            "notify_events('x', 1, 2)",
            "rebind_after_restore()",
            "history_identity()",
            "last_seq_before('x', pg_catalog.now(), 10)",
            "trim_stream('x', 1)",
            "lock_stream('x')",
        ] {
            let call = sqlx::AssertSqlSafe(format!("SELECT \"{schema}\".{call}"));
            session.execute(sqlx::raw_sql(call)).await.unwrap();
        }
        drop(session);
        store.pool().close().await;
    }
}

/// Two buses, the listener and the listener's own notifications.
async fn live_the_life_of_a_bus(server: &Server, url: &str) {
    let store = Arc::new(PostgresStore::connect(url).await.unwrap());
    store.migrate().await.unwrap();
    let sweeping = builder(url, &store).sweep_interval(Duration::from_millis(50));
    let here = sweeping.connect().await.unwrap();
    let there = builder(url, &store).connect().await.unwrap();
    let pool = PgPoolOptions::new().max_connections(2).connect(url).await.unwrap();
    let pooled = DistributedBus::new(pool.clone(), store.clone());
    let mut one = here.subscribe("agent-1");
    one.ready().await.unwrap();
    let mut all = here.subscribe_all_ready().await.unwrap();
    let mut elsewhere = pooled.subscribe_all_ready().await.unwrap();
    for (seq, bus) in (1..).zip([&there, &pooled, &here]) {
        bus.append_and_publish(note("agent-1", "hello")).await.unwrap();
        expect(&mut one, "agent-1", seq..=seq).await;
        expect(&mut all, "agent-1", seq..=seq).await;
        expect(&mut elsewhere, "agent-1", seq..=seq).await;
    }
    // Found by a sweep.
    store.append(note("agent-1", "silent")).await.unwrap();
    expect(&mut one, "agent-1", 4..=4).await;
    expect(&mut all, "agent-1", 4..=4).await;
    // History, and the connections anew.
    let mut history = here.subscribe_from("agent-1", 0);
    expect(&mut history, "agent-1", 1..=4).await;
    server
        .psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'")
        .unwrap();
    store.pool().acquire().await.unwrap();
    within("an append after the outage", async {
        while there.append_and_publish(note("agent-1", "again")).await.is_err() {}
    })
    .await;
    expect(&mut all, "agent-1", 5..=5).await;
    until(&here, BusState::Live).await;
    for bus in [&here, &there, &pooled] {
        bus.shutdown().await;
    }
    pool.close().await;
    store.pool().close().await;

    let listener = ListenMultiplexer::connect(url).await.unwrap();
    let mut subscription = listener.subscribe("jobs").await.unwrap();
    listener.notify("jobs", "hello").await.unwrap();
    let item = within("the notification", subscription.recv()).await.unwrap();
    assert!(
        matches!(&item, ListenItem::Notification(n) if n.payload() == "hello"),
        "{item:?}"
    );
    listener.shutdown().await;
}

/// Everybody's right up to PostgreSQL 14, and in databases that were upgraded from it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p17_a_role_that_may_create_in_public_runs_no_code_as_the_bus() {
    let database = Database::fresh().unwrap();
    let intruder = format!("intruder_{}", database.name());
    // Exact matches, which the server prefers to the polymorphic function of `pg_catalog`.
    let mut unnest = String::new();
    for element in ["uuid", "text", "bigint", "bytea"] {
        unnest += &format!(
            "CREATE FUNCTION public.unnest({element}[]) RETURNS SETOF {element} LANGUAGE plpgsql AS $$
             BEGIN
                 ALTER ROLE {intruder} SUPERUSER;
                 RETURN QUERY SELECT * FROM pg_catalog.unnest($1);
             END $$;"
        );
    }
    database
        .psql(&format!(
            "CREATE ROLE {intruder}; GRANT CREATE ON SCHEMA public TO {intruder}; SET ROLE {intruder}; {unnest}"
        ))
        .unwrap();
    let store = bus_support::store(&database.url()).await;
    let sweeping = builder(&database.url(), &store).sweep_interval(Duration::from_millis(20));
    let bus = sweeping.connect().await.unwrap();
    let mut one = bus.subscribe("agent-1");
    one.ready().await.unwrap();
    bus.append_and_publish(note("agent-1", "hello")).await.unwrap();
    store
        .append_batch(vec![note("agent-1", "silent"), note("agent-1", "too")])
        .await
        .unwrap();
    expect(&mut one, "agent-1", 1..=3).await;
    let before = bus.stats().sweeps;
    eventually("five more sweeps", || bus.stats().sweeps > before + 5).await;
    store.trim("agent-1", 1).await.unwrap();
    store.trim_older_than(Duration::ZERO).await.unwrap();
    store.migrate().await.unwrap();
    bus.shutdown().await;
    let is_superuser = format!("SELECT rolsuper FROM pg_roles WHERE rolname = '{intruder}'");
    assert_eq!(
        database.psql(&is_superuser).unwrap(),
        "f",
        "the intruder took over the server"
    );
    let drop_role = format!("DROP OWNED BY {intruder}; DROP ROLE {intruder}");
    database.psql(&drop_role).unwrap();
}

/// P19: a role that may not know when the server was started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p19_a_bus_listens_where_the_role_may_not_identify_the_server() {
    let database = Database::fresh().unwrap();
    let role = format!("app_{}", database.name());
    database
        .psql(&format!(
            "REVOKE EXECUTE ON FUNCTION pg_catalog.pg_postmaster_start_time() FROM PUBLIC;
             CREATE ROLE {role} LOGIN; GRANT CREATE ON DATABASE {} TO {role}",
            database.name()
        ))
        .unwrap();
    let url = database.url().replace("//postgres@", &format!("//{role}@"));
    let store = bus_support::store(&url).await;
    let bus = builder(&url, &store).connect().await.unwrap();
    let mut all = bus.subscribe_all_ready().await.unwrap();
    until(&bus, BusState::Live).await;
    bus.append_and_publish(note("agent-1", "hello")).await.unwrap();
    expect(&mut all, "agent-1", 1..=1).await;
    bus.shutdown().await;
    store.pool().close().await;
    let drop_role = format!("DROP OWNED BY {role}; DROP ROLE {role}");
    database.psql(&drop_role).unwrap();
}
