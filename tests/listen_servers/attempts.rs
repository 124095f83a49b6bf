//! Failing attempts to connect, sources of connection options, and runtimes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use doorbell::listen::{Backoff, ConfigError, ListenConfig, ListenError, ListenMultiplexer, ListenState};
use testkit::within::within;
use throwaway_postgres::{Database, Server};

use crate::listen_support::{notification, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_an_error_and_a_later_right_one_is_used() {
    let server = Server::builder().password("p:w/d? #@&%").start().unwrap();
    let wrong: tokio_postgres::Config = format!("host=127.0.0.1 port={} user=postgres password=wrong", server.port())
        .parse()
        .unwrap();
    let refused = ListenMultiplexer::builder().config(wrong.clone()).connect().await;
    let Err(ListenError::Connect(error)) = refused else {
        panic!("expected a refusal, got {refused:?}");
    };
    assert_eq!(error.sqlstate(), Some("28P01"), "{error}");
    assert!(!format!("{error:?}").contains("wrong"), "the error shows the password");

    // Each attempt gets the options anew. After such errors the delays are long, because only a person can fix them.
    let calls = Arc::new(AtomicU32::new(0));
    let source = {
        let (calls, right) = (calls.clone(), server.url());
        move || match calls.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(wrong.clone().into()),
            1 => Err(ConfigError::new("the secret store does not answer")),
            _ => right.parse::<ListenConfig>(),
        }
    };
    let mux = ListenMultiplexer::builder()
        .config_source(source)
        .backoff(Backoff {
            long_outage_max_delay: Duration::from_millis(100),
            ..Backoff::default()
        })
        .start()
        .unwrap();
    let mut jobs = within("the subscription", mux.subscribe("jobs")).await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 3);
    assert_eq!(mux.stats().failed_connects, 2);
    mux.notify("jobs", "hello").await.unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "hello");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_hosts_databases_and_parameters_are_errors() {
    let database = Database::fresh().unwrap();
    let nowhere = ListenMultiplexer::connect("postgres://nobody.invalid/app").await;
    assert!(
        matches!(nowhere, Err(ListenError::Connect(_) | ListenError::Timeout { .. })),
        "{nowhere:?}"
    );

    let missing = database.url().replace(database.name(), "no_such_database");
    let missing = ListenMultiplexer::connect(&missing).await;
    let Err(ListenError::Connect(error)) = missing else {
        panic!("expected a refusal, got {missing:?}");
    };
    assert_eq!(error.sqlstate(), Some("3D000"));

    for wrong in [
        "",
        "postgres://h:notaport/db",
        "postgres://h/db?sslmode=sometimes",
        "host=h colour=red",
    ] {
        let refused = ListenMultiplexer::connect(wrong).await;
        assert!(
            matches!(refused, Err(ListenError::Config(_) | ListenError::Connect(_))),
            "{wrong:?}: {refused:?}"
        );
    }
    let unset = ListenMultiplexer::builder().start();
    assert!(matches!(unset, Err(ListenError::Config(_))));
}

/// The server accepts the connection and sends nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_to_connect_times_out() {
    let mute = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let started = Instant::now();
    let refused = ListenMultiplexer::builder()
        .url(&format!("postgres://u@{}/db", mute.local_addr().unwrap()))
        .connect_timeout(Duration::from_millis(200))
        .connect()
        .await;
    assert!(matches!(refused, Err(ListenError::Timeout { .. })), "{refused:?}");
    assert!(started.elapsed() < Duration::from_secs(5));
}

/// Without a server, attempts follow the back-off: no busy loop, and no delay above `max_delay`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_follow_the_backoff() {
    let closed = {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.local_addr().unwrap()
    };
    let mux = ListenMultiplexer::builder()
        .url(&format!("postgres://u@{closed}/db"))
        .backoff(Backoff {
            max_delay: Duration::from_millis(40),
            ..Backoff::default()
        })
        .start()
        .unwrap();
    let started = Instant::now();
    let mut changes = mux.health_changes();
    within("thirty failed attempts", async {
        while mux.stats().failed_connects < 30 {
            changes.changed().await.unwrap();
        }
    })
    .await;
    // At least 10 ms apart, on average 20.
    assert!(started.elapsed() >= Duration::from_millis(29 * 10));
    assert_eq!(mux.health().state, ListenState::Disconnected);
}

#[test]
fn starting_outside_a_runtime_is_an_error() {
    let started = ListenMultiplexer::builder().url("postgres://localhost/db").start();
    assert!(matches!(started, Err(ListenError::NoRuntime)));
}

#[test]
fn subscriptions_end_with_the_listeners_runtime() {
    let database = Database::fresh().unwrap();
    let short_lived = tokio::runtime::Runtime::new().unwrap();
    let (mux, mut jobs) = short_lived.block_on(async {
        let mux = ListenMultiplexer::connect(&database.url()).await.unwrap();
        let jobs = mux.subscribe("jobs").await.unwrap();
        mux.notify("jobs", "last").await.unwrap();
        (mux, jobs)
    });
    short_lived.shutdown_timeout(Duration::from_secs(10));
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        assert_eq!(notification(&mut jobs).await.payload(), "last");
        assert!(within("the end", jobs.recv()).await.is_none());
        assert_eq!(mux.health().state, ListenState::Closed);
        within("the shutdown", mux.shutdown()).await;
        assert!(matches!(mux.notify("jobs", "late").await, Err(ListenError::ShutDown)));
    });
}

#[test]
fn the_listener_closes_on_a_runtime_without_timers() {
    let bare = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let (mux, mut jobs) = bare.block_on(async {
        let mux = ListenMultiplexer::builder()
            .url("postgres://localhost:1/app")
            .start()
            .unwrap();
        let jobs = mux.subscribe_lazy("jobs").unwrap();
        (mux, jobs)
    });
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        assert!(within("the end", jobs.recv()).await.is_none());
        within("the shutdown", mux.shutdown()).await;
        assert_eq!(mux.health().state, ListenState::Closed);
    });
}

#[tokio::test]
async fn runs_on_a_single_thread() {
    let database = Database::fresh().unwrap();
    let mux = ListenMultiplexer::connect(&database.url()).await.unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    mux.notify("jobs", "hello").await.unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "hello");
}

/// An operator finds the listener in the server's views.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_session_has_a_name_and_is_idle_outside_any_transaction() {
    let database = Database::fresh().unwrap();
    let mux = ListenMultiplexer::connect(&database.url()).await.unwrap();
    let _jobs = mux.subscribe("jobs").await.unwrap();
    let pid = until(&mux, "the connection", |health| health.server.is_some())
        .await
        .server
        .unwrap()
        .backend_pid;
    let session = "SELECT application_name, state FROM pg_stat_activity WHERE pid = ";
    assert_eq!(
        database.psql(&format!("{session} {pid}")).unwrap(),
        "doorbell listen|idle"
    );
}
