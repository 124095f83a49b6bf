//! P21, P22: what roles with the rights of `migrations/grants.sql` can do, what they are refused, and row-level security.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use doorbell::bus::{BusEvent, DistributedBus, FleetEvent};
use doorbell::store::{PostgresStore, Store as _, StoreError, migration_sql};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use testkit::within::eventually;
use throwaway_postgres::Database;

use crate::store_suite::event;

const GRANTS: &str = include_str!("../../migrations/grants.sql");

/// A database, and roles that exist for one test.
pub(crate) struct Roles {
    prefix: String,
    names: Vec<String>,
    pub(crate) database: Database,
}

impl Roles {
    pub(crate) fn fresh(names: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let database = Database::fresh().unwrap();
        // Roles belong to the cluster.
        // Relaxed: each test only needs a distinct number.
        let prefix = format!("{}_{}", database.name(), COUNT.fetch_add(1, Ordering::Relaxed));
        let names: Vec<String> = names.iter().map(|name| format!("{prefix}_{name}")).collect();
        for name in &names {
            database.psql(&format!("CREATE ROLE {name}")).unwrap();
        }
        Self {
            prefix,
            names,
            database,
        }
    }

    /// The full name of a role.
    pub(crate) fn name(&self, role: &str) -> String {
        format!("{}_{role}", self.prefix)
    }

    /// Runs `grants.sql` with a role for each right.
    pub(crate) fn grant(&self, schema: &str, rights: &[(&str, &str)]) {
        self.grant_as("", schema, rights);
    }

    /// The same, where `grants.sql` fails.
    pub(crate) fn grant_refused(&self, schema: &str, rights: &[(&str, &str)]) -> String {
        let script = self.grants("", schema, rights);
        self.database.psql(&script).unwrap_err().to_string()
    }

    /// The same, as another role than the superuser.
    fn grant_as(&self, set_role: &str, schema: &str, rights: &[(&str, &str)]) {
        self.database.psql(&self.grants(set_role, schema, rights)).unwrap();
    }

    fn grants(&self, set_role: &str, schema: &str, rights: &[(&str, &str)]) -> String {
        let mut script = format!("{set_role}\\set schema '{schema}'\n");
        for (right, role) in rights {
            script.push_str(&format!("\\set {right} {}\n", self.name(role)));
        }
        script + GRANTS
    }

    /// Connections with the rights of a role.
    async fn pool(&self, role: &str) -> PgPool {
        let options: PgConnectOptions = self.database.url().parse().unwrap();
        let options = options.options([("role", self.name(role))]);
        let pool = PgPoolOptions::new().max_connections(3);
        pool.connect_with(options).await.unwrap()
    }

    pub(crate) async fn store(&self, schema: &str, role: &str) -> PostgresStore {
        let builder = PostgresStore::<FleetEvent>::builder().schema(schema).unwrap();
        builder.build(self.pool(role).await)
    }
}

impl Drop for Roles {
    fn drop(&mut self) {
        for name in &self.names {
            self.database
                .psql(&format!("DROP OWNED BY {name} CASCADE; DROP ROLE {name}"))
                .ok();
        }
    }
}

fn forbidden<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    match result {
        Err(error @ StoreError::Forbidden { .. }) => {
            assert!(!error.is_transient());
            assert!(error.to_string().contains("migrations/grants.sql"), "{error}");
            error.to_string()
        }
        other => panic!("{other:?}"),
    }
}

const ROLES: [&str; 4] = ["writer", "reader", "trimmer", "nothing"];

/// Prepares a store with events, and one role for each right.
async fn store_with_roles(schema: &str) -> Roles {
    let roles = Roles::fresh(&["owner", "writer", "reader", "trimmer", "nothing"]);
    roles.grant(schema, &[("owner", "owner")]);
    let owner = roles.store(schema, "owner").await;
    owner.migrate().await.unwrap();
    roles.grant(
        schema,
        &[("writer", "writer"), ("reader", "reader"), ("trimmer", "trimmer")],
    );
    for payload in ["1", "2", "3"] {
        owner.append(event("a", payload)).await.unwrap();
    }
    roles
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p22_each_role_can_do_what_it_is_for_and_nothing_else() {
    for schema in ["doorbell", "Other \"one\""] {
        let roles = store_with_roles(schema).await;
        for role in ROLES {
            let store = roles.store(schema, role).await;
            let mut allowed = BTreeSet::new();
            let mut record = |operation: &'static str, result: Result<(), StoreError>| match result {
                Ok(()) => {
                    allowed.insert(operation);
                }
                refused => drop(forbidden(refused)),
            };
            record("check_migrated", store.check_migrated().await);
            record("migrate", store.migrate().await);
            record("append", store.append(event("a", "x")).await.map(drop));
            let batch = vec![event("a", "x"), event("b", "x")];
            record("append_batch", store.append_batch(batch).await.map(drop));
            for isolation in ["READ COMMITTED", "SERIALIZABLE"] {
                let begin = sqlx::AssertSqlSafe(format!("BEGIN ISOLATION LEVEL {isolation}"));
                let mut transaction = store.pool().begin_with(begin).await.unwrap();
                let appended = store.append_in_notifying(&mut transaction, event("c", "x")).await;
                transaction.rollback().await.unwrap();
                record("append_in", appended.map(drop));
            }
            record("replay", store.replay("a", 0, 10).await.map(drop));
            record("high_water", store.high_water("a").await.map(drop));
            record("event_ids", store.event_ids(&[("a".into(), 1)]).await.map(drop));
            record("list_streams", store.changed_since(None, 10).await.map(drop));
            let watermark = roles.store(schema, "reader").await.changed_since(None, 10).await;
            let watermark = watermark.unwrap().unwrap().watermark;
            record(
                "changed_since",
                store.changed_since(Some(&watermark), 10).await.map(drop),
            );
            record("trim", store.trim("a", 1).await.map(drop));
            record("keep_last", store.keep_last(2).await.map(drop));
            record("trim_older_than", store.trim_older_than(Duration::ZERO).await.map(drop));
            let expected: &[&str] = match role {
                "writer" => &[
                    "append",
                    "append_batch",
                    "append_in",
                    "high_water",
                    "event_ids",
                    "list_streams",
                ],
                "reader" => &["replay", "high_water", "event_ids", "list_streams", "changed_since"],
                "trimmer" => &[
                    "high_water",
                    "event_ids",
                    "list_streams",
                    "changed_since",
                    "trim",
                    "keep_last",
                    "trim_older_than",
                ],
                _ => &[],
            };
            let checks: &[&str] = if role == "nothing" {
                &[]
            } else {
                &["check_migrated", "migrate"]
            };
            assert_eq!(allowed, expected.iter().chain(checks).copied().collect(), "{role}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p22_no_role_can_change_the_history_by_sql() {
    let roles = store_with_roles("doorbell").await;
    // Each statement with the roles that may run it.
    let statements: &[(&str, &[&str])] = &[
        ("SELECT doorbell.append('s', '{}', notify => true)", &["writer"]),
        (
            "SELECT doorbell.append_many(array['s'], array['{}'::jsonb])",
            &["writer"],
        ),
        (
            "SELECT doorbell.try_append_records(array['s'], array['{}'::jsonb])",
            &["writer"],
        ),
        ("SELECT doorbell.trim_stream('a', 1)", &["trimmer"]),
        (
            "SELECT doorbell.rebind_after_restore()",
            &["writer", "reader", "trimmer"],
        ),
        ("SELECT payload FROM doorbell.events", &["reader"]),
        ("SELECT previous_id FROM doorbell.events", &["reader"]),
        ("SELECT event_id FROM doorbell.events", &["reader", "trimmer", "writer"]),
        ("UPDATE doorbell.events SET payload = '{}'", &[]),
        ("UPDATE doorbell.events SET seq = seq + 1", &[]),
        (
            "INSERT INTO doorbell.events (stream_key, seq, xid, payload) VALUES ('z', 1, '3', '{}')",
            &[],
        ),
        (
            "INSERT INTO doorbell.events (stream_key, seq, payload) VALUES ('a', 4, '{}')",
            &[],
        ),
        (
            "INSERT INTO doorbell.events (stream_key, payload) VALUES ('z', '{}')",
            &[],
        ),
        ("DELETE FROM doorbell.events WHERE stream_key = 'a' AND seq = 1", &[]),
        ("TRUNCATE doorbell.events", &[]),
        ("UPDATE doorbell.low_water_marks SET low_water = 9", &[]),
        ("UPDATE doorbell.low_water_marks SET stream_key = 'x'", &[]),
        ("INSERT INTO doorbell.low_water_marks VALUES ('y', 1, '3')", &[]),
        ("INSERT INTO doorbell.low_water_marks (stream_key) VALUES ('y')", &[]),
        ("DELETE FROM doorbell.low_water_marks", &[]),
        ("DELETE FROM doorbell.history_identity", &[]),
        ("UPDATE doorbell.history_identity SET id = gen_random_uuid()", &[]),
        ("DELETE FROM doorbell.migrations", &[]),
        ("UPDATE doorbell.migrations SET checksum = ''", &[]),
        ("ALTER TABLE doorbell.events ENABLE ROW LEVEL SECURITY", &[]),
        ("ALTER TABLE doorbell.events DISABLE TRIGGER ALL", &[]),
        (
            "CREATE TRIGGER t BEFORE INSERT ON doorbell.events EXECUTE FUNCTION suppress_redundant_updates_trigger()",
            &[],
        ),
        ("CREATE TABLE doorbell.mine (id int)", &[]),
        ("CREATE FUNCTION doorbell.mine() RETURNS int LANGUAGE sql RETURN 1", &[]),
        ("DROP FUNCTION doorbell.history_identity()", &[]),
        ("ALTER FUNCTION doorbell.history_identity() SECURITY DEFINER", &[]),
        ("DROP SCHEMA doorbell CASCADE", &[]),
        ("LOCK TABLE doorbell.events IN ROW EXCLUSIVE MODE", &[]),
        ("LOCK TABLE doorbell.events IN ACCESS EXCLUSIVE MODE", &[]),
        ("LOCK TABLE doorbell.low_water_marks IN ACCESS EXCLUSIVE MODE", &[]),
        ("SELECT FROM doorbell.events FOR KEY SHARE", &[]),
    ];
    for role in ROLES {
        let pool = roles.pool(role).await;
        for (statement, allowed) in statements {
            let mut transaction = pool.begin().await.unwrap();
            let run = sqlx::raw_sql(*statement).execute(&mut *transaction).await;
            transaction.rollback().await.unwrap();
            match run {
                Ok(_) => assert!(allowed.contains(&role), "{role} can run: {statement}"),
                Err(error) => {
                    let code = error
                        .as_database_error()
                        .and_then(|error| error.code().map(String::from));
                    assert_eq!(code.as_deref(), Some("42501"), "{role}: {statement}: {error}");
                    assert!(!allowed.contains(&role), "{role} cannot run: {statement}: {error}");
                }
            }
        }
    }
}

/// Functions that run with the rights of the owner are the ones that are listed here, look up names only in pg_catalog, and can be called
/// only by roles to which they were granted, even where a dump was restored without its privileges.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p22_functions_with_the_rights_of_the_owner_are_few_and_closed() {
    let roles = store_with_roles("doorbell").await;
    let psql = |sql: &str| roles.database.psql(sql).unwrap();
    let with_owners_rights = "SELECT proname, array_to_string(proconfig, ' ') LIKE 'search_path=pg_catalog, pg_temp%', \
                              has_function_privilege('public', oid, 'EXECUTE') FROM pg_proc \
                              WHERE pronamespace = 'doorbell'::regnamespace AND prosecdef ORDER BY 1";
    let closed = ["append_record|t|f", "append_records|t|f", "trim_stream|t|f"];
    assert_eq!(psql(with_owners_rights).lines().collect::<Vec<_>>(), closed);
    for function in ["append_record", "append_records", "trim_stream"] {
        psql(&format!("GRANT EXECUTE ON FUNCTION doorbell.{function} TO PUBLIC"));
    }
    assert_ne!(psql(with_owners_rights).lines().collect::<Vec<_>>(), closed);
    roles.grant("doorbell", &[("reader", "reader")]);
    assert_eq!(psql(with_owners_rights).lines().collect::<Vec<_>>(), closed);
}

/// In a schema that the store shares, `grants.sql` changes nothing of others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p22_the_rights_of_other_functions_in_the_schema_are_left_alone() {
    let roles = Roles::fresh(&["app"]);
    let psql = |sql: &str| roles.database.psql(sql).unwrap();
    psql(
        "CREATE FUNCTION public.of_admins() RETURNS int LANGUAGE sql RETURN 1;
          REVOKE EXECUTE ON FUNCTION public.of_admins FROM PUBLIC;
          CREATE FUNCTION public.of_everybody() RETURNS int LANGUAGE sql SECURITY DEFINER RETURN 1;
          CREATE PROCEDURE public.procedure() LANGUAGE sql AS 'SELECT 1';",
    );
    let builder = PostgresStore::<FleetEvent>::builder().schema("public").unwrap();
    builder
        .connect(&roles.database.url())
        .await
        .unwrap()
        .migrate()
        .await
        .unwrap();
    roles.grant("public", &[("writer", "app"), ("reader", "app"), ("trimmer", "app")]);
    let may_execute = |function: &str| {
        psql(&format!(
            "SELECT has_function_privilege('{}', 'public.{function}()', 'EXECUTE')",
            roles.name("app")
        ))
    };
    assert_eq!(may_execute("of_admins"), "f");
    assert_eq!(may_execute("of_everybody"), "t");
    // The script names every function of the store.
    let functions = psql(
        "SELECT string_agg(DISTINCT proname, ',' ORDER BY proname) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
         AND NOT prosecdef AND proname NOT IN ('of_admins', 'procedure')",
    );
    assert!(
        GRANTS.contains(&format!("\\set callers_functions '{functions}'")),
        "{functions}"
    );
}

/// The usual application: one role that appends and reads, and calls `migrate()` at its start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p22_a_bus_runs_with_the_rights_of_writer_and_reader() {
    let roles = Roles::fresh(&["owner", "app"]);
    // An owner that cannot create schemas.
    roles.grant("doorbell", &[("owner", "owner")]);
    let script = migration_sql("doorbell").unwrap();
    let owner = roles.name("owner");
    roles.database.psql(&format!("SET ROLE {owner};\n{script}")).unwrap();
    // The owner can grant the other rights.
    roles.grant_as(
        &format!("SET ROLE {owner};\n"),
        "doorbell",
        &[("writer", "app"), ("reader", "app")],
    );
    let store = roles.store("doorbell", "app").await;
    store.migrate().await.unwrap();
    store.check_migrated().await.unwrap();
    let builder = DistributedBus::builder(std::sync::Arc::new(store.clone()));
    let bus = builder.url(&roles.database.url()).pool(store.pool().clone());
    let bus = bus.sweep_interval(Duration::from_millis(100)).connect().await.unwrap();
    let mut all = bus.subscribe_all_ready().await.unwrap();
    for seq in 1..=20 {
        bus.append_and_publish(event("a", "x")).await.unwrap();
        match all.recv().await {
            Some(BusEvent::Event(event)) => assert_eq!(event.seq, seq),
            other => panic!("{other:?}"),
        }
    }
    bus.shutdown().await;
}

/// `grants.sql` grants EXECUTE, which every role has by default.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p22_the_rights_suffice_where_functions_are_not_everybodys() {
    let roles = Roles::fresh(&["owner", "app"]);
    let owner = roles.name("owner");
    let revoke = format!("ALTER DEFAULT PRIVILEGES FOR ROLE {owner} REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC");
    roles.database.psql(&revoke).unwrap();
    roles.grant("doorbell", &[("owner", "owner")]);
    roles.store("doorbell", "owner").await.migrate().await.unwrap();
    let app = roles.store("doorbell", "app").await;
    forbidden(app.check_migrated().await);
    roles.grant("doorbell", &[("writer", "app"), ("reader", "app"), ("trimmer", "app")]);
    app.check_migrated().await.unwrap();
    app.append(event("a", "1")).await.unwrap();
    app.append(event("a", &"large".repeat(1000))).await.unwrap();
    assert_eq!(app.replay("a", 0, 10).await.unwrap().records.len(), 2);
    assert_eq!(app.keep_last(0).await.unwrap(), 2);
}

/// Row-level security is enabled while a bus runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p21_events_that_become_hidden_are_not_reported_as_lost() {
    let roles = Roles::fresh(&["owner", "app"]);
    roles.grant("doorbell", &[("owner", "owner")]);
    roles.store("doorbell", "owner").await.migrate().await.unwrap();
    roles.grant("doorbell", &[("writer", "app"), ("reader", "app")]);
    let store = roles.store("doorbell", "app").await;
    let builder = DistributedBus::builder(std::sync::Arc::new(store.clone()));
    let bus = builder.url(&roles.database.url()).pool(store.pool().clone());
    let bus = bus.sweep_interval(Duration::from_millis(50)).connect().await.unwrap();
    let mut subscriptions = [bus.subscribe_all_ready().await.unwrap(), bus.subscribe_from("a", 0)];
    let mut expect = async |seq: u64| {
        for subscription in &mut subscriptions {
            match subscription.recv().await {
                Some(BusEvent::Event(event)) => assert_eq!(event.seq, seq),
                other => panic!("{other:?}"),
            }
        }
    };
    for seq in 1..=3 {
        bus.append_and_publish(event("a", "x")).await.unwrap();
        expect(seq).await;
    }
    let psql = |sql: &str| roles.database.psql(sql).unwrap();
    psql("ALTER TABLE doorbell.events ENABLE ROW LEVEL SECURITY");
    let failed_reads = bus.stats().failed_reads;
    forbidden(store.replay("a", 0, 10).await);
    // Committed by another process meanwhile.
    psql(r#"SELECT doorbell.append('a', '{"agent_id": "a", "type": "agent_connected"}', notify => true)"#);
    eventually("the reads fail", || bus.stats().failed_reads > failed_reads + 3).await;
    assert_eq!(bus.stats().rewinds, 0);
    psql("ALTER TABLE doorbell.events DISABLE ROW LEVEL SECURITY");
    expect(4).await;
    bus.append_and_publish(event("a", "x")).await.unwrap();
    expect(5).await;
    assert_eq!(bus.stats().rewinds, 0);
    bus.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p22_after_a_restore_only_the_owner_rebinds_and_others_still_start() {
    let roles = store_with_roles("doorbell").await;
    // As in a restored dump.
    let unbind = "UPDATE doorbell.history_identity SET system_identifier = 1";
    let identity = "SELECT doorbell.history_identity() IS NULL";
    roles.database.psql(unbind).unwrap();
    for role in ["writer", "reader", "trimmer"] {
        let store = roles.store("doorbell", role).await;
        store.migrate().await.unwrap();
        store.check_migrated().await.unwrap();
        assert_eq!(roles.database.psql(identity).unwrap(), "t");
    }
    roles.store("doorbell", "owner").await.migrate().await.unwrap();
    assert_eq!(roles.database.psql(identity).unwrap(), "f");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p22_a_role_that_may_not_migrate_gets_a_typed_error() {
    let roles = Roles::fresh(&["owner", "app"]);
    let store = roles.store("doorbell", "app").await;
    // The schema is missing.
    forbidden(store.migrate().await);
    roles.grant("doorbell", &[("owner", "owner")]);
    roles.store("doorbell", "owner").await.migrate().await.unwrap();
    forbidden(store.check_migrated().await);
    roles.grant("doorbell", &[("reader", "app")]);
    store.migrate().await.unwrap();
    // A migration is missing.
    roles
        .database
        .psql("DELETE FROM doorbell.migrations WHERE version = 5")
        .unwrap();
    forbidden(store.migrate().await);
    let missing = store.check_migrated().await;
    assert!(matches!(missing, Err(StoreError::NotMigrated { .. })), "{missing:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p21_row_level_security_that_could_hide_events_is_a_typed_error() {
    let roles = Roles::fresh(&["owner", "app"]);
    roles.grant("doorbell", &[("owner", "owner")]);
    let owner = roles.store("doorbell", "owner").await;
    owner.migrate().await.unwrap();
    roles.grant("doorbell", &[("writer", "app"), ("reader", "app"), ("trimmer", "app")]);
    let app = roles.store("doorbell", "app").await;
    app.append(event("a", "1")).await.unwrap();
    let psql = |sql: &str| roles.database.psql(sql).unwrap();
    for table in ["events", "low_water_marks", "history_identity", "migrations"] {
        psql(&format!("ALTER TABLE doorbell.{table} ENABLE ROW LEVEL SECURITY"));
        // A policy may hide some rows only.
        for policy in [
            "",
            "CREATE POLICY some_rows ON doorbell.events USING (stream_key <> 'a')",
        ] {
            psql(policy);
            let message = forbidden(app.check_migrated().await);
            assert!(
                message.contains(&format!("row-level security applies to this role on {table}")),
                "{message}"
            );
            forbidden(app.migrate().await);
            if table == "events" {
                // What was running already does not take hidden events for lost.
                forbidden(app.replay("a", 0, 10).await);
                forbidden(app.high_water("a").await);
                forbidden(app.event_ids(&[("a".into(), 1)]).await);
                forbidden(app.changed_since(None, 10).await);
                forbidden(app.keep_last(1).await);
                forbidden(app.trim_older_than(Duration::ZERO).await);
            }
            if table == "low_water_marks" {
                forbidden(app.replay("a", 0, 10).await);
            }
            psql("DROP POLICY IF EXISTS some_rows ON doorbell.events");
        }
        // The owner is exempt, unless it is forced.
        owner.check_migrated().await.unwrap();
        psql(&format!("ALTER TABLE doorbell.{table} FORCE ROW LEVEL SECURITY"));
        forbidden(owner.migrate().await);
        if table == "events" {
            forbidden(app.append(event("a", "2")).await);
            forbidden(app.append_batch(vec![event("a", "2"), event("b", "2")]).await);
            forbidden(app.trim("a", 1).await);
        }
        // So is a role with BYPASSRLS.
        psql(&format!("ALTER ROLE {} BYPASSRLS", roles.name("app")));
        app.check_migrated().await.unwrap();
        app.migrate().await.unwrap();
        psql(&format!("ALTER ROLE {} NOBYPASSRLS", roles.name("app")));
        psql(&format!(
            "ALTER TABLE doorbell.{table} DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY"
        ));
    }
    app.check_migrated().await.unwrap();
    assert_eq!(app.append(event("a", "2")).await.unwrap().seq, 2);
}
