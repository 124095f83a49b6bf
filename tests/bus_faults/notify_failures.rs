//! Notifications that cannot be sent, or are held back.

use std::sync::Arc;
use std::time::Duration;

use doorbell::bus::{BusError, BusState, DistributedBus};
use sqlx::{Connection as _, PgConnection};
use testkit::within::eventually;
use throwaway_postgres::{Database, Server};

use crate::bus_support::{blocking, builder, bus, event, note, store, until, until_health};

fn is_not_sent(error: Option<&BusError>, reason: &str) -> bool {
    matches!(error, Some(BusError::NotificationsNotSent { reason: r }) if r.contains(reason))
}

async fn until_not_sent(bus: &DistributedBus, reason: &str) {
    until_health(bus, reason, |health| {
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
    let store = store(&server.url()).await;
    let receives = builder(&server.url(), &store).sweep_interval(Duration::from_secs(1));
    let receives = receives.connect().await.unwrap();
    let mut all = receives.subscribe_all_ready().await.unwrap();
    until(&bus, BusState::Live).await;
    until(&receives, BusState::Live).await;
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
    // A bus that sends nothing does not notice, and gets the event with its next sweep.
    event(&mut all).await;
    assert_eq!(receives.stats().missed_recovered, 1);
    assert_eq!(receives.health().state, BusState::Live);
    server.psql("ALTER SYSTEM RESET synchronous_standby_names").unwrap();
    server.psql("SELECT pg_reload_conf()").unwrap();
    held.await.unwrap().unwrap();
    until(&bus, BusState::Live).await;
}

/// A server whose notification queue can be filled: by a session that listens and stays in a transaction, where the queue can be made
/// small, and by functions that say so on versions before 17, where it holds 8 GiB.
struct NotificationQueue {
    server: Server,
    /// The session that does not read.
    stuck: Option<PgConnection>,
}

impl NotificationQueue {
    fn start() -> Self {
        let mut builder = Server::builder();
        if Server::start().unwrap().major_version() >= 17 {
            builder = builder.setting("max_notify_queue_pages", 64);
        }
        let server = builder.start().unwrap();
        Self { server, stuck: None }
    }

    fn is_small(&self) -> bool {
        self.server.major_version() >= 17
    }

    /// Fills it to 98 %: NOTIFY still succeeds.
    async fn nearly_fill(&mut self) {
        if !self.is_small() {
            self.replace("pg_notification_queue_usage()", "float8", "RETURN 0.985;");
            return;
        }
        let mut stuck = PgConnection::connect(&self.server.url()).await.unwrap();
        for statement in ["LISTEN stuck", "BEGIN", "SELECT 1"] {
            sqlx::raw_sql(statement).execute(&mut stuck).await.unwrap();
        }
        self.stuck = Some(stuck);
        let usage = || self.server.psql("SELECT pg_notification_queue_usage()").unwrap();
        while usage().trim().parse::<f64>().unwrap() < 0.98 {
            self.notify_a_page().unwrap();
        }
    }

    /// Fills it up: NOTIFY fails.
    fn fill(&self) {
        if self.is_small() {
            while self.notify_a_page().is_ok() {}
        } else {
            let refuse = "RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000';";
            self.replace("pg_notify(text, text)", "void", refuse);
        }
    }

    fn notify_a_page(&self) -> Result<String, throwaway_postgres::Error> {
        self.server.psql("SELECT pg_notify('stuck', repeat('x', 7900))")
    }

    fn replace(&self, function: &str, result: &str, body: &str) {
        let (name, _) = function.split_once('(').unwrap();
        let replace = format!(
            "ALTER FUNCTION pg_catalog.{function} RENAME TO {name}_original; \
             CREATE FUNCTION pg_catalog.{function} RETURNS {result} LANGUAGE plpgsql AS 'BEGIN {} END'",
            body.replace('\'', "''")
        );
        self.server.psql(&replace).unwrap();
    }

    /// The session reads again.
    async fn empty(&mut self) {
        if let Some(mut stuck) = self.stuck.take() {
            sqlx::raw_sql("COMMIT; UNLISTEN *").execute(&mut stuck).await.unwrap();
            stuck.close().await.unwrap();
            return;
        }
        for function in ["pg_notification_queue_usage()", "pg_notify(text, text)"] {
            let (name, arguments) = function.split_once('(').unwrap();
            let restore = format!(
                "DROP FUNCTION pg_catalog.{function}; \
                 ALTER FUNCTION pg_catalog.{name}_original({arguments} RENAME TO {name}"
            );
            self.server.psql(&restore).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p26_a_full_notification_queue_shows_in_the_health_of_every_bus() {
    let mut queue = NotificationQueue::start();
    let url = queue.server.url();
    let store = store(&url).await;
    let bus = || {
        builder(&url, &store)
            .sweep_interval(Duration::from_millis(500))
            .poll_interval(Duration::from_millis(100))
            .connect()
    };
    let (sends, receives) = (bus().await.unwrap(), bus().await.unwrap());
    let mut all = receives.subscribe_all_ready().await.unwrap();
    until(&sends, BusState::Live).await;
    until(&receives, BusState::Live).await;
    queue.nearly_fill().await;
    // Both know before a NOTIFY fails.
    until_not_sent(&sends, "full").await;
    until_not_sent(&receives, "full").await;
    assert!(receives.health().notification_queue_usage.unwrap() >= 0.98);
    queue.fill();
    let sent = sends.stats().notifications_sent;
    for seq in 1..=3 {
        sends.append_and_publish(note("agent-1", "hello")).await.unwrap();
        assert_eq!(event(&mut all).await.seq, seq);
    }
    until_not_sent(&sends, "too many notifications").await;
    assert_eq!(sends.stats().notifications_sent, sent);
    let sweeps = receives.stats().sweeps;
    eventually("sweeps at the poll interval", || receives.stats().sweeps > sweeps + 3).await;
    queue.empty().await;
    until(&sends, BusState::Live).await;
    until(&receives, BusState::Live).await;
    eventually("the notifications that were held", || {
        sends.stats().notifications_sent > sent
    })
    .await;
}
