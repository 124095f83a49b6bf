//! Connection strings with several hosts: listener, store and notifications read them alike.

use std::sync::Arc;
use std::time::{Duration, Instant};

use doorbell::bus::{BusError, BusState, DistributedBus};
use doorbell::listen::ListenMultiplexer;
use doorbell::store::{PostgresStore, Store as _, StoreError};
use testkit::within::{eventually, within};
use throwaway_postgres::Server;
use tokio::net::TcpListener;

use crate::bus_support::writer::append;
use crate::bus_support::{NEVER, expect, listener, note, until};

/// The URL of two servers, in this order.
pub(crate) fn both(first: &Server, second: &Server) -> String {
    let (first, second) = (first.port(), second.port());
    format!("postgres://postgres@127.0.0.1:{first},127.0.0.1:{second}/postgres")
}

/// The same, in each form.
fn forms(first: &Server, second: &Server, attrs: &str) -> [String; 3] {
    let (one, two) = (first.port(), second.port());
    [
        format!("{}?target_session_attrs={attrs}", both(first, second)),
        format!("host=localhost,127.0.0.1 port={one},{two} user=postgres dbname=postgres target_session_attrs={attrs}"),
        format!(
            "hostaddr=127.0.0.1,127.0.0.1 port={one},{two} user=postgres dbname=postgres target_session_attrs={attrs}"
        ),
    ]
}

/// A bus whose listener, store and notifications have this connection string.
async fn bus(connection_string: &str) -> DistributedBus {
    let store = PostgresStore::connect(connection_string).await.unwrap();
    DistributedBus::builder(Arc::new(store))
        .url(connection_string)
        .listen(listener(connection_string))
        .sweep_interval(NEVER)
        .poll_interval(Duration::from_millis(50))
        .start()
        .unwrap()
}

/// The sessions of clients, other than the one that asks.
fn sessions(server: &Server) -> u32 {
    let count =
        "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    server.psql(count).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p37_listener_store_and_notifications_mean_the_same_by_several_hosts() {
    let primary = Server::start().unwrap();
    let there = crate::bus_support::bus(&primary.url()).await;
    let standby = primary.standby().unwrap();
    primary.wait_for_standby(&standby).unwrap();
    let mut theirs = there.subscribe_all_ready().await.unwrap();
    let mut seq = 0;
    for (first, second) in [(&primary, &standby), (&standby, &primary)] {
        for connection_string in forms(first, second, "read-write") {
            let bus = bus(&connection_string).await;
            let mut all = bus.subscribe_all_ready().await.unwrap();
            until(&bus, BusState::Live).await;
            for _ in 0..5 {
                seq += 1;
                append(&bus, "agent-1", seq).await;
                expect(&mut all, "agent-1", seq..=seq).await;
                expect(&mut theirs, "agent-1", seq..=seq).await; // by its notification: there are no sweeps
            }
            assert_eq!(sessions(&standby), 0, "{connection_string}");
            bus.shutdown().await;
        }
    }
    let before = sessions(&primary);
    for connection_string in forms(&standby, &primary, "any") {
        let bus = bus(&connection_string).await;
        let health = until(&bus, BusState::Polling).await;
        assert!(health.reason.unwrap().to_string().contains("standby"));
        let refused = bus.append_and_publish(note("agent-1", "no")).await;
        assert!(
            matches!(refused, Err(BusError::Store(StoreError::ReadOnly))),
            "{refused:?}"
        );
        // Sessions of earlier buses may still be ending, but none has begun.
        eventually(&connection_string, || sessions(&primary) <= before).await;
        bus.shutdown().await;
    }
    for connection_string in forms(&primary, &standby, "any") {
        let bus = bus(&connection_string).await;
        until(&bus, BusState::Live).await;
        seq += 1;
        append(&bus, "agent-1", seq).await;
        bus.shutdown().await;
    }
    for connection_string in forms(&primary, &standby, "read-only") {
        let store = PostgresStore::connect(&connection_string).await.unwrap();
        primary.wait_for_standby(&standby).unwrap();
        assert_eq!(store.high_water("agent-1").await.unwrap(), seq);
        // Sessions of earlier buses may still be ending, but none has begun.
        eventually(&connection_string, || sessions(&primary) <= before).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p37_a_host_that_does_not_answer_keeps_no_other_from_being_tried() {
    let server = Server::start().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap(); // the system accepts, and nobody answers
    let silent = silent.local_addr().unwrap().port();
    let connection_string = format!(
        "host=127.0.0.1,127.0.0.1 port={silent},{} user=postgres dbname=postgres",
        server.port()
    );
    let begun = Instant::now();
    let store = PostgresStore::connect(&connection_string);
    let mux = ListenMultiplexer::builder().url(&connection_string).connect();
    let (store, mux) = within("both connections", async { tokio::join!(store, mux) }).await;
    store.unwrap();
    mux.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn p37_connection_strings_that_no_server_can_meet_are_typed_errors() {
    for (connection_string, reason) in [
        ("host=a,b,c port=1,2 user=u", "3 hosts and 2 ports"),
        ("host=a,b hostaddr=127.0.0.1 user=u", "2 hosts and 1 hostaddrs"),
        ("host=a user=u target_session_attrs=perhaps", "target_session_attrs"),
    ] {
        let store = within("the refusal", PostgresStore::connect(connection_string))
            .await
            .unwrap_err();
        let listener = ListenMultiplexer::builder().url(connection_string).start().unwrap_err();
        for error in [store.to_string(), listener.to_string()] {
            assert!(error.contains(reason), "{connection_string}: {error}");
        }
    }
}
