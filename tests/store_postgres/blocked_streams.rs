//! P36: what a role without any right on the store can delay by taking the locks of streams.

use std::time::{Duration, Instant};

use doorbell::bus::{FleetEvent, StreamEvent as _};
use doorbell::store::{PostgresStore, Store as _, StoreError};
use futures::future::join_all;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgConnection};
use testkit::within::within;

use crate::append_concurrency::wait_for_lock_waiter;
use crate::store_suite::event;
use crate::support::Store;

/// A session of a role that may do nothing but connect. It holds the locks of streams until it is terminated.
struct Stranger {
    role: String,
    session: PgConnection,
}

impl Stranger {
    async fn connect(store: &Store) -> Self {
        let role = format!("{}_stranger", store.database.name());
        store.psql(&format!("CREATE ROLE {role} LOGIN"));
        let options: PgConnectOptions = store.database.url().parse().unwrap();
        let mut session = PgConnection::connect_with(&options.username(&role)).await.unwrap();
        let append = "SELECT doorbell.append('a', '{}')";
        let refused = sqlx::query(append).execute(&mut session).await.unwrap_err();
        assert_eq!(refused.as_database_error().unwrap().code().as_deref(), Some("42501"));
        Self { role, session }
    }

    /// Computes the lock's ID as `lock_stream` does.
    async fn lock(&mut self, stream_key: &str) {
        let lock = "SELECT pg_advisory_lock(hashtextextended($1 COLLATE \"C\", hashtextextended('doorbell', 0)))";
        sqlx::query(lock)
            .bind(stream_key)
            .execute(&mut self.session)
            .await
            .unwrap();
    }

    /// Does what docs/operations.md advises.
    fn terminate(self, store: &Store) {
        let terminated = store.psql(
            "SELECT DISTINCT holder.usename, pg_terminate_backend(holder.pid, 10000)
            FROM pg_stat_activity waiter
            CROSS JOIN LATERAL unnest(pg_blocking_pids(waiter.pid)) AS blocking (pid)
            JOIN pg_stat_activity holder ON holder.pid = blocking.pid
            WHERE waiter.wait_event_type = 'Lock' AND waiter.wait_event = 'advisory'
                AND waiter.datname = current_database()",
        );
        assert_eq!(terminated.trim(), format!("{}|t", self.role));
        store.psql(&format!("DROP ROLE {}", self.role));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p36_locks_of_a_role_without_rights_delay_only_appends_to_their_streams() {
    let store = Store::fresh().await;
    let mut stranger = Stranger::connect(&store).await;
    // Many more streams than there are connections.
    let locked: Vec<String> = (0..64).map(|number| format!("locked-{number}")).collect();
    for stream_key in &locked {
        stranger.lock(stream_key).await;
    }
    let pool = PgPoolOptions::new()
        .max_connections(3)
        .acquire_timeout(Duration::from_secs(5));
    let pool = pool.connect(&store.database.url()).await.unwrap();
    let patient = PostgresStore::<FleetEvent>::builder()
        .lock_timeout(Duration::from_secs(50))
        .build(pool);
    let blocked: Vec<_> = locked
        .iter()
        .map(|stream_key| {
            let (store, event) = (patient.clone(), event(stream_key, "x"));
            tokio::spawn(async move { store.append(event).await })
        })
        .collect();
    wait_for_lock_waiter(&store).await;
    // Long enough for every blocked append to have used a connection.
    let (started, mut round) = (Instant::now(), 0);
    while started.elapsed() < Duration::from_millis(1500) {
        round += 1;
        let appends = ["one", "two", "three"].map(|key| patient.append(event(key, "x")));
        for appended in join_all(appends).await {
            assert_eq!(appended.unwrap().seq(), 2 * round - 1);
        }
        let batch = ["one", "two", "three"].map(|key| event(key, "x"));
        for appended in patient.append_batch(batch.into()).await.unwrap() {
            assert_eq!(appended.seq(), 2 * round);
        }
        assert!(patient.replay(&locked[0], 0, 10).await.unwrap().records.is_empty());
    }
    assert_eq!(patient.trim("one", 2 * round).await.unwrap(), 2 * round);
    assert!(blocked.iter().all(|append| !append.is_finished()));
    stranger.terminate(&store);
    within("the appends to the locked streams", async {
        for append in blocked {
            assert_eq!(append.await.unwrap().unwrap().seq(), 1);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p36_appends_to_a_locked_stream_fail_with_a_typed_error_in_time() {
    const LOCK_TIMEOUT: Duration = Duration::from_millis(300);
    const APPENDS: u32 = 60;
    let store = Store::fresh().await;
    let mut stranger = Stranger::connect(&store).await;
    stranger.lock("one").await;
    let impatient = PostgresStore::<FleetEvent>::builder()
        .lock_timeout(LOCK_TIMEOUT)
        .build(store.pool().clone());
    let started = Instant::now();
    let appends = (0..APPENDS).map(|number| impatient.append(event("one", &number.to_string())));
    for refused in join_all(appends).await {
        assert!(matches!(refused, Err(StoreError::LockTimeout)), "{refused:?}");
    }
    // Twice the timeout, plus what a busy machine may take; far less than the timeout for each of them.
    let took = started.elapsed();
    assert!(took < LOCK_TIMEOUT * APPENDS / 3, "{took:?}");

    let waiting = tokio::spawn({
        let store = (*store).clone();
        async move { store.append(event("one", "x")).await }
    });
    wait_for_lock_waiter(&store).await;
    stranger.terminate(&store);
    assert_eq!(within("the append", waiting).await.unwrap().unwrap().seq(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p36_retention_trims_the_streams_that_are_not_locked() {
    let store = Store::fresh().await;
    let impatient = PostgresStore::<FleetEvent>::builder()
        .lock_timeout(Duration::from_millis(300))
        .build(store.pool().clone());
    let streams: Vec<String> = (0..20).map(|number| format!("stream-{number:02}")).collect();
    let locked = [&streams[0], &streams[7], &streams[19]];
    let mut stranger = Stranger::connect(&store).await;
    for number in 1..=4 {
        let batch = streams.iter().map(|stream_key| event(stream_key, &number.to_string()));
        store.append_batch(batch.collect()).await.unwrap();
    }
    for stream_key in locked {
        stranger.lock(stream_key).await;
    }
    let kept = |stream_key: &str| {
        store.psql(&format!(
            "SELECT count(*) FROM doorbell.events WHERE stream_key = '{stream_key}'"
        ))
    };
    let refused = within("keep_last", impatient.keep_last(3)).await;
    assert!(matches!(refused, Err(StoreError::LockTimeout)), "{refused:?}");
    for stream_key in &streams {
        let expected = if locked.contains(&stream_key) { "4" } else { "3" };
        assert_eq!(kept(stream_key).trim(), expected, "{stream_key}");
    }
    let refused = within("trim_older_than", impatient.trim_older_than(Duration::ZERO)).await;
    assert!(matches!(refused, Err(StoreError::LockTimeout)), "{refused:?}");
    for stream_key in &streams {
        let expected = if locked.contains(&stream_key) { "4" } else { "0" };
        assert_eq!(kept(stream_key).trim(), expected, "{stream_key}");
    }

    let waiting = tokio::spawn({
        let store = (*store).clone();
        async move { store.keep_last(0).await }
    });
    wait_for_lock_waiter(&store).await;
    stranger.terminate(&store);
    assert_eq!(within("keep_last", waiting).await.unwrap().unwrap(), 12);
}
