//! Connections are terminated while events are committed.

use doorbell::bus::{BusState, EventBus as _};
use throwaway_postgres::Server;

use crate::bus_support::progress::Progress;
use crate::bus_support::writer::Writer;
use crate::bus_support::{LISTENER, blocking, builder, bus, event, listener, store, until};

/// The `application_name` of the subscriber's listener.
const OURS: &str = "the subscriber's listener";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p01_recovery_from_a_terminated_listener_needs_no_new_event() {
    let server = Server::start().unwrap();
    let store = store(&server.url()).await;
    let here = builder(&server.url(), &store)
        .listen(listener(&server.url()).application_name(OURS))
        .connect()
        .await
        .unwrap();
    let there = bus(&server.url()).await;
    let mut all = here.subscribe_all_ready().await.unwrap();
    let mut one = here.subscribe("agent-1");
    one.ready().await.unwrap();
    for seq in 1..=20 {
        server.terminate_backends(OURS).unwrap();
        // Its notification falls into the outage, and no event follows it.
        let stamped = there
            .append_and_publish(crate::bus_support::note("agent-1", "hello"))
            .await
            .unwrap();
        assert_eq!(stamped.seq, seq);
        assert_eq!(*event(&mut one).await, stamped);
        assert_eq!(*event(&mut all).await, stamped);
        until(&here, BusState::Live).await;
    }
    assert!(here.listen_stats().unwrap().disconnects >= 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p01_listeners_are_terminated_under_load() {
    let server = std::sync::Arc::new(Server::start().unwrap());
    let (here, there) = (bus(&server.url()).await, bus(&server.url()).await);
    let mut all = Progress::of(here.subscribe_all_ready().await.unwrap(), 1);
    let mut own = Progress::of(there.subscribe_all_ready().await.unwrap(), 1);
    let streams = ["agent-1", "agent-2"];
    let mut writers = streams.map(|stream| Writer::start(there.clone(), stream, 0));
    for _ in 0..10 {
        for writer in &mut writers {
            writer.committed(20).await;
        }
        let server = server.clone();
        blocking(move || server.terminate_backends(LISTENER).unwrap()).await;
    }
    for (stream, writer) in streams.into_iter().zip(writers) {
        let last = writer.stop().await;
        all.reaches(stream, last).await;
        own.reaches(stream, last).await;
    }
}

/// Terminates the listeners and the pools' connections while they are in use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p01_all_connections_are_terminated_under_load() {
    let server = std::sync::Arc::new(Server::start().unwrap());
    let (here, there) = (bus(&server.url()).await, bus(&server.url()).await);
    let mut all = Progress::of(here.subscribe_all_ready().await.unwrap(), 1);
    let mut writer = Writer::start(there.clone(), "agent-1", 0);
    for _ in 0..10 {
        writer.committed(20).await;
        let server = server.clone();
        blocking(move || {
            server
                .psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
                .unwrap();
        })
        .await;
    }
    let last = writer.stop().await;
    all.reaches("agent-1", last).await;
}
