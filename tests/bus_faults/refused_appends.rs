//! Appends that the store refuses, whatever the event.

use doorbell::bus::{BusError, BusState, DistributedBus, StreamEvent as _};
use doorbell::store::StoreError;
use testkit::within::within;
use throwaway_postgres::Database;
use tracing::Level;
use tracing::instrument::WithSubscriber as _;

use crate::bus_support::log_lines::{of_bus, take_state_changes};
use crate::bus_support::{bus, event, note, until, until_health};
use testkit::log_lines::LogLines;

/// Makes every append fail with this SQLSTATE, as a server that lacks a resource does.
fn refuse(database: &Database, sqlstate: &str) {
    let refuse = format!(
        "CREATE OR REPLACE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN RAISE EXCEPTION ''refused with {sqlstate}'' USING ERRCODE = ''{sqlstate}''; END'; \
         CREATE OR REPLACE TRIGGER refuse BEFORE INSERT ON doorbell.events FOR EACH ROW EXECUTE FUNCTION public.refuse()"
    );
    database.psql(&refuse).unwrap();
}

fn allow(database: &Database) {
    database.psql("DROP TRIGGER refuse ON doorbell.events").unwrap();
}

async fn append(bus: &DistributedBus) -> Result<u64, StoreError> {
    match within("an append", bus.append_and_publish(note("agent-1", "hello"))).await {
        Ok(event) => Ok(event.seq()),
        Err(BusError::Store(error)) => Err(error),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p34_a_bus_whose_appends_are_refused_is_read_only_until_one_succeeds() {
    let database = Database::fresh().unwrap();
    let (here, there) = (bus(&database.url()).await, bus(&database.url()).await);
    let mut all = here.subscribe_all_ready().await.unwrap();
    append(&here).await.unwrap();
    event(&mut all).await;
    // Full disk; too many connections; out of memory; read-only; no right; statement and transaction timeout.
    for sqlstate in ["53100", "53300", "53200", "25006", "42501", "57014", "25P04"] {
        until(&here, BusState::Live).await;
        until(&there, BusState::Live).await;
        let lines = LogLines::default();
        refuse(&database, sqlstate);
        async {
            for _ in 0..5 {
                append(&here).await.unwrap_err();
            }
        }
        .with_subscriber(lines.subscriber(of_bus))
        .await;
        let health = here.health();
        assert_eq!(health.state, BusState::ReadOnly, "{sqlstate}: {health:?}");
        assert!(health.reason.is_some(), "{sqlstate}");
        assert_eq!(take_state_changes(&lines), [Level::WARN], "{sqlstate}");
        assert_eq!(there.health().state, BusState::Live, "only this bus has tried");
        allow(&database);
        append(&here).await.unwrap();
        assert_eq!(here.health().state, BusState::Live, "{sqlstate}");
        event(&mut all).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p34_an_append_that_fails_for_its_own_reason_leaves_the_bus_live() {
    let database = Database::fresh().unwrap();
    let bus = bus(&database.url()).await;
    until(&bus, BusState::Live).await;
    append(&bus).await.unwrap();
    let refused = [
        note("agent-1", "a number that is not the next").with_seq(7),
        note("", "no key"),
        note("agent-1", "a character that the server cannot store: \0"),
    ];
    for event in refused.iter().cycle().take(9) {
        bus.append_and_publish(event.clone()).await.unwrap_err();
    }
    assert_eq!(bus.health().state, BusState::Live);
    // A stream without a next number concerns nobody else.
    database
        .psql("INSERT INTO doorbell.events (stream_key, seq, event_id, payload) VALUES ('full', 9223372036854775807, gen_random_uuid(), '{}')")
        .unwrap();
    for _ in 0..3 {
        bus.append_and_publish(note("full", "no number")).await.unwrap_err();
        assert_eq!(bus.health().state, BusState::Live);
    }
    // Contention is no reason either.
    for sqlstate in ["55P03", "40P01", "40001"] {
        refuse(&database, sqlstate);
        for _ in 0..3 {
            append(&bus).await.unwrap_err();
        }
        allow(&database);
        assert_eq!(bus.health().state, BusState::Live, "{sqlstate}");
    }
    // A single failure may be that of a connection.
    for _ in 0..3 {
        refuse(&database, "53100");
        append(&bus).await.unwrap_err();
        allow(&database);
        append(&bus).await.unwrap();
        assert_eq!(bus.health().state, BusState::Live);
    }
}

/// A receiver of the health's changes gets each new reason, not only each new state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_reason_alone_is_signalled() {
    let database = Database::fresh().unwrap();
    let bus = bus(&database.url()).await;
    let since = until(&bus, BusState::Live).await.since;
    for reason in ["53100", "53300"] {
        refuse(&database, reason);
        for _ in 0..2 {
            append(&bus).await.unwrap_err();
        }
        let changed = until_health(&bus, reason, |health| {
            health
                .reason
                .as_ref()
                .is_some_and(|error| error.to_string().contains(reason))
        });
        let health = changed.await;
        assert_eq!(health.state, BusState::ReadOnly);
        assert!(health.since > since);
    }
    let mut changes = bus.health_changes();
    changes.mark_unchanged();
    refuse(&database, "53200");
    append(&bus).await.unwrap_err();
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    append(&bus).await.unwrap_err();
    assert!(!changes.has_changed().unwrap(), "the same reason");
}
