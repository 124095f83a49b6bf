//! Notifications that cannot be sent, or are held back.

use std::sync::Arc;
use std::time::Duration;

use doorbell::bus::{BusError, BusState, DistributedBus};
use testkit::within::eventually;
use throwaway_postgres::{Database, Server};

use crate::bus_support::{blocking, builder, bus, event, note, store, until};

fn is_not_sent(error: Option<&BusError>, reason: &str) -> bool {
    matches!(error, Some(BusError::NotificationsNotSent { reason: r }) if r.contains(reason))
}

async fn until_not_sent(bus: &DistributedBus, reason: &str) {
    // `health_changes()` shows only changes of the state.
    eventually("a health that says why", || {
        let health = bus.health();
        health.state == BusState::Polling && is_not_sent(health.reason.as_ref(), reason)
    })
    .await;
}

/// Both buses notice: the one that sends, and the one that would receive, which polls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p26_a_bus_that_may_not_notify_is_not_live_and_polls() {
    let database = Database::fresh().unwrap();
    let role = format!("app_{}", database.name());
    database
        .psql(&format!(
            "CREATE ROLE \"{role}\" LOGIN; GRANT ALL ON DATABASE \"{}\" TO \"{role}\"",
            database.name()
        ))
        .unwrap();
    let url = database.url().replacen("postgres@", &format!("{role}@"), 1);
    assert!(url.contains(&role), "{url}");
    let store = store(&url).await;
    let bus = || {
        builder(&url, &store)
            .sweep_interval(Duration::from_secs(1))
            .poll_interval(Duration::from_millis(100))
            .connect()
    };
    let (here, there) = (bus().await.unwrap(), bus().await.unwrap());
    let mut all = here.subscribe_all_ready().await.unwrap();
    until(&there, BusState::Live).await;
    let execute = "EXECUTE ON FUNCTION pg_notify(text, text)";
    database.psql(&format!("REVOKE {execute} FROM PUBLIC")).unwrap();
    until_not_sent(&here, "right").await;
    there.append_and_publish(note("agent-1", "hello")).await.unwrap();
    event(&mut all).await;
    until_not_sent(&there, "").await;
    let sweeps = here.stats().sweeps;
    eventually("sweeps at the poll interval", || here.stats().sweeps > sweeps + 3).await;
    database.psql(&format!("GRANT {execute} TO PUBLIC")).unwrap();
    until(&here, BusState::Live).await;
    until(&there, BusState::Live).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p26_a_commit_that_waits_for_a_standby_and_holds_back_notifications_shows_in_the_health() {
    let server = Arc::new(Server::start().unwrap());
    server
        .psql("ALTER DATABASE postgres SET synchronous_commit = local")
        .unwrap();
    let bus = bus(&server.url()).await;
    until(&bus, BusState::Live).await;
    server
        .psql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        .unwrap();
    server.psql("SELECT pg_reload_conf()").unwrap();
    let session = Arc::clone(&server);
    let held = blocking(move || {
        let commit = "SET synchronous_commit = on; BEGIN; CREATE TABLE held (); NOTIFY anything; COMMIT";
        session.psql(commit)
    });
    let held = tokio::spawn(held);
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    eventually("the commit that waits", || server.psql(waits).unwrap().trim() == "1").await;
    bus.append_and_publish(note("agent-1", "hello")).await.unwrap();
    until_not_sent(&bus, "standby").await;
    server.psql("ALTER SYSTEM RESET synchronous_standby_names").unwrap();
    server.psql("SELECT pg_reload_conf()").unwrap();
    held.await.unwrap().unwrap();
    until(&bus, BusState::Live).await;
}
