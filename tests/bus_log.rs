//! The log of a bus during an outage: one warning per change of state, whatever lies between the bus and the server. One test, because the
//! subscriber is global to the process.

mod bus_support;

use std::sync::Arc;
use std::time::Duration;

use doorbell::bus::{BusState, DistributedBus, EventBus as _};
use doorbell::store::PostgresStore;
use testkit::log_lines::LogLines;
use throwaway_postgres::{Pooler, Server, Stop};
use tokio::time::sleep;
use tracing::Level;

use bus_support::{NEVER, blocking, listener, note, until};

/// How long the server is down: long enough for many attempts of each task, and for the store's response timeout.
const OUTAGE: Duration = Duration::from_secs(12);

/// The warnings of one bus: the listener's, and the health's on the way down and back. sqlx adds one for each connection of the pools that was
/// just given back when its server went.
const PER_BUS: usize = 4;
const SQLX_PER_BUS: usize = 2;

/// A bus to which events are appended all the time.
async fn appending(url: &str, mode: &str) -> DistributedBus {
    let store = PostgresStore::builder().transaction_pooler(mode == "transaction");
    let store = Arc::new(store.connect(url).await.unwrap());
    let bus = DistributedBus::builder(store)
        .url(url)
        .listen(listener(url))
        .sweep_interval(NEVER)
        .start()
        .unwrap();
    let one = bus.subscribe("agent-1");
    one.ready().await.unwrap();
    until(&bus, live(mode)).await;
    tokio::spawn({
        let bus = bus.clone();
        async move {
            loop {
                let _ = bus.append_and_publish(note("agent-1", "hello")).await; // fails during the outage
                sleep(Duration::from_millis(100)).await;
            }
        }
    });
    bus
}

/// The state of a healthy bus.
fn live(mode: &str) -> BusState {
    match mode {
        "transaction" => BusState::Polling,
        _ => BusState::Live,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p39_an_outage_logs_one_warning_per_change_of_state() {
    let warnings = LogLines::default();
    let server = Server::start().unwrap();
    bus_support::store(&server.url()).await; // migrates
    tracing::subscriber::set_global_default(warnings.subscriber(|metadata| *metadata.level() <= Level::WARN)).unwrap();
    let session = Pooler::session_mode(&server).unwrap();
    let transaction = Pooler::transaction_mode(&server).unwrap();
    let urls = [
        ("direct", server.url()),
        ("session", session.url()),
        ("transaction", transaction.url()),
    ];
    let mut buses = Vec::new();
    for (mode, url) in urls {
        buses.push((mode, appending(&url, mode).await));
    }
    warnings.take();
    let server = blocking(move || {
        server.stop(Stop::Fast).unwrap();
        server
    })
    .await;
    for (_, bus) in &buses {
        until(bus, BusState::Down).await;
    }
    sleep(OUTAGE).await;
    let _server = blocking(move || {
        server.start_again().unwrap();
        server
    })
    .await;
    for (mode, bus) in &buses {
        until(bus, live(mode)).await;
    }
    let lines = warnings.take().into_iter();
    let lines: Vec<String> = lines
        .map(|line| format!("{}: {}{}", line.target, line.message, line.fields))
        .collect();
    let text = lines.join("\n");
    println!("{text}");
    let own = lines.iter().filter(|line| line.starts_with("doorbell::")).count();
    assert!(own <= buses.len() * PER_BUS, "{own} warnings:\n{text}");
    let foreign = lines.len() - own;
    assert!(
        foreign <= buses.len() * SQLX_PER_BUS,
        "{foreign} warnings of sqlx:\n{text}"
    );
}
