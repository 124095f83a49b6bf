//! The server refuses the login of the bus's role.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use doorbell::bus::{BusError, BusState, EventBus as _};
use doorbell::store::{PostgresStore, StoreError};
use sqlx::postgres::PgPoolOptions;
use throwaway_postgres::Server;
use tokio::time::sleep;

use crate::bus_support::{builder, note, until};

/// How long the login is refused.
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// The maximum delay of the back-off, and a margin for a busy machine.
const RECOVERED: Duration = Duration::from_secs(8);

/// The attempts of one back-off in [`REFUSED_FOR`]: the first one, and then one every 2.5 s at most.
const ATTEMPTS: usize = 5;

async fn refuse(refuse: &str, accept: &str, message: &str, store: impl AsyncFn(&str) -> PostgresStore) {
    let server = Server::builder().password("root").start().unwrap();
    server.psql("CREATE ROLE app SUPERUSER LOGIN PASSWORD 'right'").unwrap();
    let url = format!("postgres://app:right@127.0.0.1:{}/postgres", server.port());
    let store = Arc::new(store(&url).await);
    store.migrate().await.unwrap();
    let bus = builder(&url, &store).connect().await.unwrap();
    let mut subscriptions = Vec::new();
    for stream in 0..50 {
        let subscription = bus.subscribe(&format!("agent-{stream}"));
        subscription.ready().await.unwrap();
        subscriptions.push(subscription);
    }
    until(&bus, BusState::Live).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let (bus, stop) = (bus.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut refused = 0;
                while !stop.load(Ordering::Relaxed) {
                    match bus.append_and_publish(note(&format!("agent-{writer}"), "hello")).await {
                        Err(BusError::Store(StoreError::LoginRefused { .. })) => refused += 1,
                        Ok(_) | Err(BusError::Store(StoreError::Unavailable { .. })) => {}
                        Err(error) => panic!("{error:?}"),
                    }
                    sleep(Duration::from_millis(20)).await;
                }
                refused
            })
        })
        .collect();
    let refusals = || server.log().matches(message).count();
    server.psql(refuse).unwrap();
    server
        .psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'")
        .unwrap();
    let more = bus.subscribe("agent-new");
    let health = until(&bus, BusState::Down).await;
    assert!(health.reason.is_some());
    sleep(REFUSED_FOR).await;
    let counted = refusals();
    println!("{counted} refusals within {REFUSED_FOR:?}");
    assert!(counted >= 2, "the log has other messages than {message:?}");
    assert!(
        counted <= 2 * ATTEMPTS,
        "{counted} refusals: the listener and the store have one back-off each"
    );
    server.psql(accept).unwrap();
    let accepted = Instant::now();
    more.ready().await.unwrap();
    until(&bus, BusState::Live).await;
    bus.append_and_publish(note("agent-new", "hello")).await.unwrap();
    assert!(accepted.elapsed() < RECOVERED, "{:?}", accepted.elapsed());
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        assert!(writer.await.unwrap() > 100, "appends are refused at once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p38_a_wrong_password_is_tried_as_often_as_one_back_off_allows() {
    refuse(
        "ALTER ROLE app PASSWORD 'other'",
        "ALTER ROLE app PASSWORD 'right'",
        "FATAL:  password authentication failed for user \"app\"",
        async |url| PostgresStore::connect(url).await.unwrap(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p38_a_role_without_login_is_tried_as_often_as_one_back_off_allows() {
    refuse(
        "ALTER ROLE app NOLOGIN",
        "ALTER ROLE app LOGIN",
        "FATAL:  role \"app\" is not permitted to log in",
        async |url| {
            let pool = PgPoolOptions::new().max_connections(8);
            PostgresStore::new(pool.connect(url).await.unwrap())
        },
    )
    .await;
}
