//! P17: to whom the schema of a store and the things in it belong. P36: who can keep a migration waiting.

use std::time::Duration;

use doorbell::bus::FleetEvent;
use doorbell::store::{PostgresStore, Store as _, StoreError, migration_sql};
use testkit::within::within;
use throwaway_postgres::Database;

use crate::rights::Roles;
use crate::store_suite::event;

/// A table `migrations` with a trigger that makes its owner a superuser, if it can.
const TRAP: &str = "CREATE TABLE {schema}.migrations (version bigint PRIMARY KEY, description text, installed_on timestamptz,
        success boolean, checksum bytea, execution_time bigint);
    CREATE FUNCTION {schema}.trap() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        EXECUTE 'ALTER ROLE {stranger} SUPERUSER';
        RETURN new;
    END $$;
    CREATE TRIGGER trap BEFORE INSERT ON {schema}.migrations FOR EACH ROW EXECUTE FUNCTION {schema}.trap();
    CREATE FUNCTION {schema}.installation(text, OUT versions bigint[], OUT checksums text[], OUT bound boolean, OUT restricted_tables text[])
    LANGUAGE plpgsql AS $$
    BEGIN
        EXECUTE 'ALTER ROLE {stranger} SUPERUSER';
    END $$;
    GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO PUBLIC;";

fn refused(result: Result<(), StoreError>, reasons: &[&str]) {
    let error = result.unwrap_err();
    assert!(
        matches!(error, StoreError::UnsafeSchema { .. }) && !error.is_transient(),
        "{error:?}"
    );
    for reason in reasons {
        assert!(error.to_string().contains(reason), "{reason}: {error}");
    }
}

/// The store as a superuser.
async fn superusers(database: &Database, schema: &str) -> PostgresStore {
    let builder = PostgresStore::<FleetEvent>::builder().schema(schema).unwrap();
    builder.connect(&database.url()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p17_a_schema_of_another_role_is_refused_before_anything_in_it_runs() {
    let roles = Roles::fresh(&["stranger", "owner"]);
    let (database, stranger, owner) = (&roles.database, roles.name("stranger"), roles.name("owner"));
    let trap = TRAP.replace("{stranger}", &stranger).replace("{schema}", "doorbell");
    let own_schema = format!("CREATE SCHEMA doorbell AUTHORIZATION {stranger}; SET ROLE {stranger}; {trap}");
    database.psql(&own_schema).unwrap();
    for everybodys in ["", "GRANT ALL ON SCHEMA doorbell TO PUBLIC"] {
        database.psql(everybodys).unwrap();
        for store in [
            superusers(database, "doorbell").await,
            roles.store("doorbell", "owner").await,
        ] {
            for result in [store.migrate().await, store.check_migrated().await] {
                let error = result.unwrap_err();
                let refused = matches!(error, StoreError::UnsafeSchema { .. } | StoreError::Forbidden { .. });
                assert!(refused, "{error:?}");
            }
        }
        for role in ["", &format!("SET ROLE {owner};")] {
            let script = migration_sql("doorbell").unwrap();
            let error = database.psql(&format!("{role}\n{script}")).unwrap_err().to_string();
            assert!(error.contains(&stranger), "{error}");
        }
        refused(superusers(database, "doorbell").await.migrate().await, &[&stranger]);
        let error = roles.grant_refused("doorbell", &[("owner", "owner")]);
        assert!(error.contains("belongs to another role"), "{error}");
    }
    let is_superuser = format!("SELECT rolsuper FROM pg_roles WHERE rolname = '{stranger}'");
    assert_eq!(database.psql(&is_superuser).unwrap(), "f");
    let recorded = "SELECT count(*) FROM doorbell.migrations";
    assert_eq!(database.psql(recorded).unwrap(), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p17_what_others_have_created_is_refused_after_create_was_revoked() {
    let roles = Roles::fresh(&["stranger"]);
    let (database, stranger) = (&roles.database, roles.name("stranger"));
    let psql = |sql: &str| database.psql(sql).unwrap();
    let as_stranger = |sql: &str| psql(&format!("SET ROLE {stranger}; {sql}"));
    psql(&format!("GRANT CREATE ON SCHEMA public TO {stranger}"));
    as_stranger(&TRAP.replace("{stranger}", &stranger).replace("{schema}", "public"));
    as_stranger("CREATE FUNCTION public.lock_stream(text) RETURNS void LANGUAGE sql RETURN NULL");
    let store = superusers(database, "public").await;
    refused(store.migrate().await, &[&stranger]);
    psql(&format!("REVOKE CREATE ON SCHEMA public FROM {stranger}"));
    refused(store.migrate().await, &["TRIGGER on public.migrations", &stranger]);
    as_stranger("REVOKE TRIGGER ON public.migrations FROM PUBLIC");
    refused(store.migrate().await, &["belongs to the role", &stranger]);
    refused(store.check_migrated().await, &["belongs to the role", &stranger]);
    as_stranger("DROP TABLE public.migrations");
    let function = format!("function public.lock_stream(text) belongs to {stranger}");
    refused(
        store.migrate().await,
        &[
            &function,
            "function public.trap()",
            "Drop what other roles have created",
        ],
    );
    psql(&format!("DROP OWNED BY {stranger}"));
    store.migrate().await.unwrap();
    store.check_migrated().await.unwrap();
    assert_eq!(store.append(event("a", "1")).await.unwrap().seq, 1);

    // After the migration.
    let changes = [
        (
            "GRANT CREATE ON SCHEMA public TO {role}",
            "REVOKE CREATE ON SCHEMA public FROM {role}",
            "CREATE on the schema",
        ),
        (
            "ALTER FUNCTION public.high_waters OWNER TO {role}",
            "ALTER FUNCTION public.high_waters OWNER TO CURRENT_USER",
            "high_waters",
        ),
        (
            "ALTER TABLE public.events OWNER TO {role}",
            "ALTER TABLE public.events OWNER TO CURRENT_USER",
            "relation public.events",
        ),
        (
            "CREATE SCHEMA other AUTHORIZATION {role}; SET ROLE {role};
            CREATE FUNCTION other.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END'; RESET ROLE;
            CREATE TRIGGER t BEFORE INSERT ON public.events FOR EACH ROW EXECUTE FUNCTION other.f()",
            "DROP TRIGGER t ON public.events; DROP SCHEMA other CASCADE",
            "function other.f() of trigger t on public.events",
        ),
        (
            "GRANT TRIGGER ON public.events TO {role}",
            "REVOKE TRIGGER ON public.events FROM {role}",
            "TRIGGER on public.events",
        ),
        // Created while that was granted.
        (
            "CREATE SCHEMA other AUTHORIZATION {role}; GRANT TRIGGER ON public.events TO {role}; SET ROLE {role};
            CREATE FUNCTION other.f() RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RETURN true; END';
            CREATE TRIGGER t BEFORE UPDATE ON public.events FOR EACH ROW WHEN (other.f())
                EXECUTE FUNCTION pg_catalog.suppress_redundant_updates_trigger(); RESET ROLE;
            REVOKE TRIGGER ON public.events FROM {role}",
            "DROP TRIGGER t ON public.events; DROP SCHEMA other CASCADE",
            "function other.f() of trigger t on public.events",
        ),
    ];
    for (unsafe_change, undo, reason) in changes {
        psql(&unsafe_change.replace("{role}", &stranger));
        refused(store.check_migrated().await, &[reason, &stranger]);
        refused(store.migrate().await, &[reason, &stranger]);
        psql(&undo.replace("{role}", &stranger));
        store.check_migrated().await.unwrap();
    }
}

/// PostgreSQL 16 has members that can neither use the rights of a role nor become it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p17_a_member_that_cannot_become_the_owner_is_another_role() {
    let roles = Roles::fresh(&["owner", "member"]);
    let (owner, member) = (roles.name("owner"), roles.name("member"));
    let psql = |sql: &str| roles.database.psql(sql).unwrap();
    roles.grant("doorbell", &[("owner", "owner")]);
    let store = roles.store("doorbell", "owner").await;
    store.migrate().await.unwrap();
    psql(&format!(
        "GRANT {owner} TO {member}; GRANT CREATE ON SCHEMA doorbell TO {member}"
    ));
    store.check_migrated().await.unwrap();
    if psql("SELECT current_setting('server_version_num')::int >= 160000") == "f" {
        return;
    }
    psql(&format!("GRANT {owner} TO {member} WITH INHERIT false, SET false"));
    refused(store.check_migrated().await, &["CREATE on the schema", &member]);
    psql(&format!("GRANT {owner} TO {member} WITH INHERIT true, SET false"));
    store.check_migrated().await.unwrap();
    psql(&format!("GRANT {owner} TO {member} WITH INHERIT false, SET true"));
    store.check_migrated().await.unwrap();
}

/// Its functions use the schema by its former name, which another role may have taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p17_a_renamed_schema_is_refused() {
    let database = Database::fresh().unwrap();
    superusers(&database, "doorbell").await.migrate().await.unwrap();
    database.psql("ALTER SCHEMA doorbell RENAME TO prod").unwrap();
    superusers(&database, "doorbell").await.migrate().await.unwrap();
    let renamed = superusers(&database, "prod").await;
    refused(
        renamed.check_migrated().await,
        &["was renamed", "use the schema doorbell"],
    );
    refused(renamed.migrate().await, &["was renamed"]);
    let script = database.psql(&migration_sql("prod").unwrap());
    assert!(script.unwrap_err().to_string().contains("was renamed"));
    database
        .psql("DROP SCHEMA doorbell CASCADE; ALTER SCHEMA prod RENAME TO doorbell")
        .unwrap();
    superusers(&database, "doorbell").await.check_migrated().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_table_migrations_of_another_product_is_a_typed_error() {
    let database = Database::fresh().unwrap();
    database
        .psql("CREATE TABLE public.migrations (id bigint, migration text, batch int)")
        .unwrap();
    let store = superusers(&database, "public").await;
    for result in [store.migrate().await, store.check_migrated().await] {
        refused(result, &["not the one of an event store", "Use another schema"]);
    }
}

/// The members of a store's owner can become it, so they are trusted; superusers use no store of another role.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_belongs_to_the_role_that_migrates_it() {
    let roles = Roles::fresh(&["owner", "member", "app"]);
    let psql = |sql: &str| roles.database.psql(sql).unwrap();
    roles.grant("doorbell", &[("owner", "owner")]);
    roles.store("doorbell", "owner").await.migrate().await.unwrap();
    roles.grant("doorbell", &[("reader", "app")]);
    let owner = "SELECT DISTINCT pg_get_userbyid(o) FROM (SELECT proowner FROM pg_proc WHERE pronamespace = 'doorbell'::regnamespace
                 UNION ALL SELECT relowner FROM pg_class WHERE relnamespace = 'doorbell'::regnamespace
                 UNION ALL SELECT nspowner FROM pg_namespace WHERE nspname = 'doorbell') AS o (o)";
    assert_eq!(psql(owner), roles.name("owner"));
    refused(
        superusers(&roles.database, "doorbell").await.migrate().await,
        &[&roles.name("owner")],
    );
    let app = roles.store("doorbell", "app").await;
    app.check_migrated().await.unwrap();
    psql(&format!(
        "ALTER TABLE doorbell.low_water_marks OWNER TO {}",
        roles.name("member")
    ));
    refused(
        app.check_migrated().await,
        &["relation doorbell.low_water_marks belongs to"],
    );
    psql(&format!("GRANT {} TO {}", roles.name("owner"), roles.name("member")));
    app.check_migrated().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p36_a_migration_waits_for_no_other_role_and_not_for_long() {
    let database = Database::fresh().unwrap();
    let builder = PostgresStore::<FleetEvent>::builder().lock_timeout(Duration::from_millis(100));
    let store = builder.connect(&database.url()).await.unwrap();
    let mut holder = store.pool().begin().await.unwrap();
    let run = |sql: &'static str| sqlx::raw_sql(sql);
    // Any role may take any advisory lock; migrations once took this one.
    run("SELECT pg_advisory_xact_lock(7237125663275445356)")
        .execute(&mut *holder)
        .await
        .unwrap();
    store.migrate().await.unwrap();
    holder.rollback().await.unwrap();
    // A transaction that creates the schema, or migrates it.
    for (prepare, held) in [
        ("DROP SCHEMA doorbell CASCADE", "CREATE SCHEMA doorbell"),
        ("CREATE SCHEMA doorbell", "CREATE TABLE doorbell.migrations ()"),
        ("", "LOCK TABLE doorbell.migrations IN SHARE ROW EXCLUSIVE MODE"),
    ] {
        database.psql(prepare).unwrap();
        let mut holder = store.pool().begin().await.unwrap();
        run(held).execute(&mut *holder).await.unwrap();
        let blocked = within("the migration gives up", store.migrate()).await;
        assert!(matches!(blocked, Err(StoreError::LockTimeout)), "{held}: {blocked:?}");
        holder.rollback().await.unwrap();
        if held.starts_with("CREATE TABLE") {
            store.migrate().await.unwrap();
            database.psql("DELETE FROM doorbell.migrations WHERE version = 0; UPDATE doorbell.history_identity SET database = 1").unwrap();
        }
    }
    store.migrate().await.unwrap();
}
