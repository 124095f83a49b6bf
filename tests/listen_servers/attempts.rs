//! Attempts to connect that fail, where the settings come from, and the runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use doorbell::listen::{Backoff, ConfigError, ListenConfig, ListenError, ListenMultiplexer, ListenState};
use throwaway_postgres::{Database, Server};

use crate::support::{notification, until, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_an_error_and_a_right_one_later_is_used() {
    let server = Server::builder().password("p:w/d? #@&%").start().unwrap();
    let wrong: tokio_postgres::Config = format!("host=127.0.0.1 port={} user=postgres password=wrong", server.port())
        .parse()
        .unwrap();
    let refused = ListenMultiplexer::builder().config(wrong.clone()).connect().await;
    let Err(ListenError::Connect(error)) = refused else {
        panic!("expected a refusal, got {refused:?}");
    };
    assert_eq!(error.sqlstate(), Some("28P01"), "{error}");
    assert!(!format!("{error:?}").contains("wrong"), "the password shows");

    // The settings are asked for again at each attempt; such attempts are far apart, since only a person can help.
    let asked = Arc::new(AtomicU32::new(0));
    let source = {
        let (asked, right) = (asked.clone(), server.url());
        move || match asked.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(wrong.clone().into()),
            1 => Err(ConfigError::new("the vault does not answer")),
            _ => right.parse::<ListenConfig>(),
        }
    };
    let mux = ListenMultiplexer::builder()
        .config_source(source)
        .backoff(Backoff {
            later: Duration::from_millis(100),
            ..Backoff::default()
        })
        .start()
        .unwrap();
    let mut jobs = within("the subscription", mux.subscribe("jobs")).await.unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    assert_eq!(mux.stats().failed_connects, 2);
    mux.notify("jobs", "heard").await.unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "heard");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_hosts_databases_and_settings_are_errors() {
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

/// A server that takes the connection and says nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_is_bounded() {
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

/// While nobody answers, attempts come at the pace of the back-off: no busy loop, and no growing pause at first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_are_paced() {
    let closed = {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.local_addr().unwrap()
    };
    let mux = ListenMultiplexer::builder()
        .url(&format!("postgres://u@{closed}/db"))
        .backoff(Backoff {
            at_first: Duration::from_millis(40),
            ..Backoff::default()
        })
        .start()
        .unwrap();
    let started = Instant::now();
    let mut changes = mux.health_changes();
    within("thirty attempts", async {
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
fn without_a_runtime_there_is_a_typed_error() {
    let started = ListenMultiplexer::builder().url("postgres://localhost/db").start();
    assert!(matches!(started, Err(ListenError::NoRuntime)));
}

/// The listener ends with its runtime; who holds a subscription elsewhere sees its end.
#[test]
fn the_end_of_the_runtime_ends_subscriptions() {
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

/// A runtime without timers cannot carry a listener: that ends it, and everybody can see so.
#[test]
fn a_runtime_without_timers_ends_the_listener() {
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

/// One runtime thread is enough for everything.
#[tokio::test]
async fn runs_on_a_single_thread() {
    let database = Database::fresh().unwrap();
    let mux = ListenMultiplexer::connect(&database.url()).await.unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    mux.notify("jobs", "heard").await.unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "heard");
}

/// Everything that a person needs to find the listener in the server's views.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_session_has_a_name_and_is_idle_outside_any_transaction() {
    let database = Database::fresh().unwrap();
    let mux = ListenMultiplexer::connect(&database.url()).await.unwrap();
    let _jobs = mux.subscribe("jobs").await.unwrap();
    let pid = until(&mux, "health", |health| health.server.is_some())
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
