//! Shutdown: prompt, whatever is subscribed, and with nothing left behind.

use std::time::{Duration, Instant};

use doorbell::bus::{BusError, BusState, EventBus as _};
use testkit::within::eventually;
use throwaway_postgres::Database;

use crate::bus_support::{builder, expect, expect_end, listener, note, store};

const A_SECOND: Duration = Duration::from_secs(1);

/// The number of connections to the database, apart from psql's own.
fn connections(database: &Database) -> usize {
    let count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    database.psql(count).unwrap().parse().unwrap()
}

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p16_a_shut_down_bus_leaves_nothing_behind() {
    let database = Database::fresh().unwrap();
    let tasks = alive_tasks();
    let store = store(&database.url()).await;
    let bus = builder(&database.url(), &store).connect().await.unwrap();
    let mut all = bus.subscribe_all_ready().await.unwrap();
    let mut ones: Vec<_> = (0..100).map(|n| bus.subscribe(&format!("agent-{n}"))).collect();
    for one in &ones {
        one.ready().await.unwrap();
    }
    bus.append_and_publish(note("agent-1", "hello")).await.unwrap();
    expect(&mut all, "agent-1", 1..=1).await;
    let begun = Instant::now();
    bus.shutdown().await;
    expect_end(&mut all).await;
    for (n, one) in ones.iter_mut().enumerate() {
        if n == 1 {
            expect(one, "agent-1", 1..=1).await; // delivered before the shutdown
        }
        expect_end(one).await;
    }
    assert!(begun.elapsed() < A_SECOND, "{:?}", begun.elapsed());
    assert_eq!(bus.health().state, BusState::Closed);
    assert!(matches!(
        bus.append_and_publish(note("agent-1", "hello")).await,
        Err(BusError::Closed)
    ));
    assert!(matches!(bus.subscribe_all_ready().await, Err(BusError::Closed)));
    // The bus does not close the store.
    store.pool().close().await;
    drop(bus);
    eventually("the end of all connections and tasks", || {
        connections(&database) == 0 && alive_tasks() == tasks
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p16_a_dropped_bus_leaves_nothing_behind() {
    let database = Database::fresh().unwrap();
    let tasks = alive_tasks();
    let store = store(&database.url()).await;
    let bus = builder(&database.url(), &store).connect().await.unwrap();
    let mut all = bus.subscribe_all_ready().await.unwrap();
    let handle = bus.clone();
    handle.append_and_publish(note("agent-1", "hello")).await.unwrap();
    drop(bus);
    handle.append_and_publish(note("agent-1", "hello")).await.unwrap();
    let begun = Instant::now();
    drop(handle);
    expect(&mut all, "agent-1", 1..=2).await;
    expect_end(&mut all).await;
    store.pool().close().await;
    eventually("the end of all connections and tasks", || {
        connections(&database) == 0 && alive_tasks() == tasks
    })
    .await;
    assert!(begun.elapsed() < 2 * A_SECOND, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p16_a_bus_shuts_down_in_time_while_the_server_is_frozen() {
    let server = throwaway_postgres::Server::start().unwrap();
    let store = store(&server.url()).await;
    let bus = builder(&server.url(), &store)
        .listen(listener(&server.url()))
        .connect()
        .await
        .unwrap();
    let mut all = bus.subscribe_all_ready().await.unwrap();
    server.freeze().unwrap();
    let mut published = note("agent-1", "hello");
    published.seq = 1;
    bus.publish(published);
    let begun = Instant::now();
    bus.shutdown().await;
    expect_end(&mut all).await;
    // Pending notifications get one second.
    assert!(begun.elapsed() < 2 * A_SECOND, "{:?}", begun.elapsed());
    server.thaw().unwrap();
}
