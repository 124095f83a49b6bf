//! The shortest and the longest durations that can be set.

use std::time::Duration;

use doorbell::bus::{BusError, BusState};
use doorbell::listen::{Backoff, ListenBuilder, ListenError, ListenMultiplexer};
use doorbell::store::{PostgresStore, Store as _};
use testkit::within::within;
use throwaway_postgres::Database;

use crate::bus_support::{LISTENER, builder, event, listener, note, store, until};

const ZERO: Duration = Duration::ZERO;
const MAX: Duration = Duration::MAX;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p42_every_duration_of_a_bus_is_refused_or_works() {
    let database = Database::fresh().unwrap();
    let url = database.url();
    let store = store(&url).await;
    for refused in [
        builder(&url, &store).sweep_interval(ZERO),
        builder(&url, &store).poll_interval(ZERO),
        builder(&url, &store).notify_interval(MAX),
    ] {
        assert!(matches!(refused.start(), Err(BusError::InvalidSetting { .. })));
    }
    let longest = builder(&url, &store).sweep_interval(MAX).poll_interval(MAX);
    let bus = longest.notify_interval(ZERO).connect().await.unwrap();
    let mut all = bus.subscribe_all_ready().await.unwrap();
    until(&bus, BusState::Live).await;
    let end = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{LISTENER}' AND datname = current_database()"
    );
    let mut changes = bus.health_changes();
    database.psql(&end).unwrap();
    let lost = changes.wait_for(|health| health.state == BusState::Polling);
    drop(within("the loss of the connection", lost).await.unwrap());
    // The reconnect asks for a sweep; then they are never due again.
    until(&bus, BusState::Live).await;
    bus.append_and_publish(note("agent-1", "hello")).await.unwrap();
    assert_eq!(event(&mut all).await.seq, 1);
}

/// The setters of a listener, each with one duration.
fn listeners(url: &str, time: Duration) -> [(&'static str, ListenBuilder); 7] {
    let backoff = Backoff {
        max_delay: time,
        long_outage_after: time,
        long_outage_max_delay: time,
    };
    let second = Duration::from_secs(1);
    [
        ("interval", listener(url).heartbeat(time, second)),
        ("deadline", listener(url).heartbeat(second, time)),
        ("connect_timeout", listener(url).connect_timeout(time)),
        ("subscribe_timeout", listener(url).subscribe_timeout(time)),
        ("notify_timeout", listener(url).notify_timeout(time)),
        ("unlisten_delay", listener(url).unlisten_delay(time)),
        ("backoff", listener(url).backoff(backoff)),
    ]
}

async fn exchange(listener: &ListenMultiplexer) -> Result<(), ListenError> {
    let mut subscription = within("a subscription", listener.subscribe("a")).await?;
    within("a notification sent", listener.notify("a", "hello")).await?;
    within("a notification", subscription.recv()).await.unwrap();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p42_every_duration_of_a_listener_is_refused_or_works() {
    let database = Database::fresh().unwrap();
    for (setting, builder) in listeners(&database.url(), MAX) {
        let listener = builder.connect().await.unwrap();
        exchange(&listener)
            .await
            .unwrap_or_else(|error| panic!("{setting}: {error}"));
    }
    for (setting, builder) in listeners(&database.url(), ZERO) {
        let listener = match builder.connect().await {
            Ok(listener) => listener,
            Err(ListenError::Config(error)) => {
                assert!(error.to_string().contains(setting), "{error}");
                continue;
            }
            Err(other) => panic!("{setting}: {other}"),
        };
        assert!(["subscribe_timeout", "notify_timeout", "unlisten_delay", "backoff"].contains(&setting));
        match exchange(&listener).await {
            Ok(()) => {}
            Err(ListenError::NotReady { .. } | ListenError::Timeout { .. }) => assert!(setting.ends_with("timeout")),
            Err(other) => panic!("{setting}: {other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p42_every_duration_of_a_store_works() {
    let database = Database::fresh().unwrap();
    store(&database.url()).await;
    for (lock, response) in [(ZERO, MAX), (MAX, MAX), (Duration::from_secs(5), ZERO)] {
        let builder = PostgresStore::builder().lock_timeout(lock).response_timeout(response);
        let store = builder.connect(&database.url()).await.unwrap();
        let appended = within("an append", store.append(note("agent-1", "hello"))).await;
        // Within a millisecond the server may not answer.
        assert!(
            appended.is_ok() || response == ZERO,
            "{lock:?} {response:?}: {appended:?}"
        );
        let trimmed = within("a trim", store.trim_older_than(MAX)).await;
        assert!(
            trimmed.is_ok() || response == ZERO,
            "{lock:?} {response:?}: {trimmed:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p41_a_panic_of_the_function_that_returns_the_options_is_a_failed_attempt() {
    let listener = ListenMultiplexer::builder().config_source(|| panic!("planted"));
    let error = within("an attempt", listener.connect()).await.unwrap_err();
    assert!(
        matches!(&error, ListenError::Config(error) if error.to_string().contains("planted")),
        "{error}"
    );
}
