//! Numbers under concurrency: gapless, in the order of commit, whoever waits, fails or rolls back.

use std::sync::Arc;
use std::time::Duration;

use doorbell::bus::{FleetEvent, StreamEvent};
use doorbell::store::{PostgresStore, Store as _, StoreError};
use sqlx::postgres::PgPoolOptions;

use crate::store_suite::{event, read_all};
use crate::support::Store;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_two_writers_leave_no_gap() {
    let store = Store::fresh().await;
    let pool = PgPoolOptions::new()
        .max_connections(32)
        .connect(&store.database.url())
        .await
        .unwrap();
    let wide = PostgresStore::new(pool);
    let writers: Vec<_> = (0..32)
        .map(|writer| {
            let wide = wide.clone();
            tokio::spawn(async move {
                let mut last = 0;
                for number in 0..25 {
                    let text = format!("{writer}:{number}");
                    let seq = if number % 5 == 0 {
                        let batch = vec![event("one", &text), event("one", &text)];
                        wide.append_batch(batch).await.unwrap()[1].seq
                    } else {
                        wide.append(event("one", &text)).await.unwrap().seq
                    };
                    assert!(seq > last, "a writer's own events are in its order");
                    last = seq;
                }
            })
        })
        .collect();
    // A reader meanwhile never meets a hole: read_all checks each page.
    let mut seen = 0;
    while seen < 32 * 30 {
        seen += read_all(&*store, "one", seen, 100).await.len() as u64;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(store.high_water("one").await.unwrap(), 32 * 30);
}

/// P11, P12: a slow transaction holds up its own stream, and neither readers nor other streams; what it appends is visible before
/// any later number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p11_p12_a_slow_transaction() {
    let store = Store::fresh().await;
    // Unrelated, and open throughout.
    store.psql("CREATE TABLE unrelated (id int)");
    let application = sqlx::PgPool::connect(&store.database.url()).await.unwrap();
    let mut unrelated = application.begin().await.unwrap();
    sqlx::query("INSERT INTO unrelated VALUES (1)")
        .execute(&mut *unrelated)
        .await
        .unwrap();

    let mut slow = application.begin().await.unwrap();
    assert_eq!(store.append_in(&mut slow, event("a", "slow")).await.unwrap().seq, 1);
    let fast = tokio::spawn({
        let store = (*store).clone();
        async move { store.append(event("a", "fast")).await.unwrap() }
    });
    wait_for_a_waiter(&store).await;
    assert_eq!(store.append(event("b", "other")).await.unwrap().seq, 1);
    assert!(store.replay("a", 0, 10).await.unwrap().records.is_empty());
    assert!(!fast.is_finished());
    slow.commit().await.unwrap();
    assert_eq!(fast.await.unwrap().seq, 2);
    assert_eq!(
        read_all(&*store, "a", 0, 10).await,
        [event("a", "slow").with_seq(1), event("a", "fast").with_seq(2)]
    );
    unrelated.rollback().await.unwrap();
}

/// Returns once some session waits for an advisory lock of this database.
pub(crate) async fn wait_for_a_waiter(store: &Store) {
    let waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";
    while !sqlx::query_scalar::<_, bool>(waiting)
        .fetch_one(store.pool())
        .await
        .unwrap()
    {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p14_a_rollback_leaves_nothing() {
    let store = Store::fresh().await;
    store.append(event("a", "1")).await.unwrap();
    let mut transaction = store.pool().begin().await.unwrap();
    assert_eq!(
        store.append_in(&mut transaction, event("a", "no")).await.unwrap().seq,
        2
    );
    let batch = vec![event("b", "no"), event("a", "no")];
    let stamped = store.append_batch_in(&mut transaction, batch).await.unwrap();
    assert_eq!((stamped[0].seq, stamped[1].seq), (1, 3));
    transaction.rollback().await.unwrap();
    assert_eq!(store.high_waters(&["a".into(), "b".into()]).await.unwrap(), [1, 0]);
    assert_eq!(store.append(event("a", "2").with_seq(2)).await.unwrap().seq, 2);
}

/// One event that does not fit spoils the transaction, and says why; a savepoint saves the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_inside_a_transaction() {
    use sqlx::Connection as _;
    let store = Store::fresh().await;
    let mut transaction = store.pool().begin().await.unwrap();
    store.append_in(&mut transaction, event("a", "1")).await.unwrap();
    let mut savepoint = transaction.begin().await.unwrap();
    let refused = store.append_in(&mut savepoint, event("a", "x").with_seq(7)).await;
    assert!(
        matches!(
            refused,
            Err(StoreError::SeqConflict {
                expected: 2,
                actual: 7,
                ..
            })
        ),
        "{refused:?}"
    );
    savepoint.rollback().await.unwrap();
    assert_eq!(store.append_in(&mut transaction, event("a", "2")).await.unwrap().seq, 2);
    transaction.commit().await.unwrap();
    assert_eq!(store.high_water("a").await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_over_the_same_streams_in_any_order_do_not_deadlock() {
    let store = Store::fresh().await;
    let pool = PgPoolOptions::new()
        .max_connections(8)
        .connect(&store.database.url())
        .await
        .unwrap();
    let wide = PostgresStore::new(pool);
    let writers: Vec<_> = (0..8_u64)
        .map(|writer| {
            let wide = wide.clone();
            tokio::spawn(async move {
                for round in 0..40_u64 {
                    // A different order for each batch, by multiplying with what has no common factor with 11.
                    let step = (writer + round) % 10 + 1;
                    let batch: Vec<FleetEvent> = (0..11)
                        .map(|place| event(&format!("stream-{}", place * step % 11), "x"))
                        .collect();
                    wide.append_batch(batch).await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let keys: Vec<Arc<str>> = (0..11).map(|number| format!("stream-{number}").into()).collect();
    assert_eq!(store.high_waters(&keys).await.unwrap(), [8 * 40; 11]);
}

/// A transaction with one snapshot does not see what others append, so it must not number: it is told to run again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeatable_read_is_told_to_run_again() {
    let store = Store::fresh().await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let begin = || sqlx::AssertSqlSafe(format!("BEGIN ISOLATION LEVEL {level}"));
        let key = level;
        store.append(event(key, "1")).await.unwrap();
        // Nobody interferes: it works.
        let mut alone = store.pool().begin_with(begin()).await.unwrap();
        assert_eq!(store.append_in(&mut alone, event(key, "2")).await.unwrap().seq, 2);
        alone.commit().await.unwrap();
        // Somebody appended after the snapshot.
        let mut late = store.pool().begin_with(begin()).await.unwrap();
        sqlx::query("SELECT count(*) FROM pg_class")
            .execute(&mut *late)
            .await
            .unwrap();
        store.append(event(key, "3")).await.unwrap();
        let refused = store.append_in(&mut late, event(key, "x")).await;
        assert!(
            matches!(refused, Err(StoreError::Serialization)),
            "{level}: {refused:?}"
        );
        late.rollback().await.unwrap();
        let mut late = store.pool().begin_with(begin()).await.unwrap();
        sqlx::query("SELECT count(*) FROM pg_class")
            .execute(&mut *late)
            .await
            .unwrap();
        store.append(event(key, "4")).await.unwrap();
        let refused = store
            .append_batch_in(&mut late, vec![event(key, "x"), event(key, "y")])
            .await;
        assert!(
            matches!(refused, Err(StoreError::Serialization)),
            "{level}: {refused:?}"
        );
        late.rollback().await.unwrap();
        // Appended and trimmed after the snapshot: no number is left to collide with.
        let mut late = store.pool().begin_with(begin()).await.unwrap();
        sqlx::query("SELECT count(*) FROM pg_class")
            .execute(&mut *late)
            .await
            .unwrap();
        store.append(event(key, "5")).await.unwrap();
        store.trim(key, 5).await.unwrap();
        let refused = store.append_in(&mut late, event(key, "x")).await;
        assert!(
            matches!(refused, Err(StoreError::Serialization)),
            "{level}: {refused:?}"
        );
        late.rollback().await.unwrap();
        assert_eq!(store.append(event(key, "6")).await.unwrap().seq, 6);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_held_too_long_is_a_typed_error() {
    let store = Store::fresh().await;
    let hasty = PostgresStore::<FleetEvent>::builder()
        .lock_timeout(Duration::from_millis(50))
        .build(store.pool().clone());
    let mut holder = store.pool().begin().await.unwrap();
    store.append_in(&mut holder, event("a", "1")).await.unwrap();
    let refused = hasty.append(event("a", "2")).await;
    assert!(matches!(refused, Err(StoreError::LockTimeout)), "{refused:?}");
    let refused = hasty.append_batch(vec![event("b", "2"), event("a", "2")]).await;
    assert!(matches!(refused, Err(StoreError::LockTimeout)), "{refused:?}");
    assert!(matches!(hasty.trim("a", 1).await, Err(StoreError::LockTimeout)));
    holder.commit().await.unwrap();
    assert_eq!(hasty.append(event("a", "2")).await.unwrap().seq, 2);
    assert_eq!(hasty.high_water("b").await.unwrap(), 0);
    // The session's own setting is as it was.
    let mut transaction = store.pool().begin().await.unwrap();
    sqlx::query("SET LOCAL lock_timeout = '1234ms'")
        .execute(&mut *transaction)
        .await
        .unwrap();
    hasty.append_in(&mut transaction, event("a", "3")).await.unwrap();
    let after: String = sqlx::query_scalar("SELECT current_setting('lock_timeout')")
        .fetch_one(&mut *transaction)
        .await
        .unwrap();
    assert_eq!(after, "1234ms");
}

/// Two transactions that append to two streams in opposite orders: one is told, the other goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_is_a_typed_error() {
    let store = Store::fresh().await;
    let mut one = store.pool().begin().await.unwrap();
    let mut other = store.pool().begin().await.unwrap();
    store.append_in(&mut one, event("a", "x")).await.unwrap();
    store.append_in(&mut other, event("b", "x")).await.unwrap();
    let crossed = tokio::spawn({
        let store = (*store).clone();
        async move {
            let result = store.append_in(&mut one, event("b", "x")).await;
            if result.is_ok() {
                one.commit().await.unwrap()
            } else {
                one.rollback().await.unwrap()
            }
            result
        }
    });
    wait_for_a_waiter(&store).await;
    let result = store.append_in(&mut other, event("a", "x")).await;
    if result.is_ok() {
        other.commit().await.unwrap()
    } else {
        other.rollback().await.unwrap()
    }
    let results = [result, crossed.await.unwrap()];
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    assert!(
        results.iter().any(|result| matches!(result, Err(StoreError::Deadlock))),
        "{results:?}"
    );
}

/// The issue's own test: dead versions do not pile up behind an old snapshot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_stay_cheap_behind_an_open_snapshot() {
    let store = Store::fresh().await;
    let mut report = store
        .pool()
        .begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ")
        .await
        .unwrap();
    sqlx::query("SELECT count(*) FROM doorbell.events")
        .execute(&mut *report)
        .await
        .unwrap();
    // One transaction for each, on the server alone, so that neither this process nor the network is measured; it commits without
    // waiting for the disk. The median of each thousand.
    let script = "
        CREATE PROCEDURE append_thousand(OUT median float8) LANGUAGE plpgsql AS $$
        DECLARE began timestamptz; took float8[] := '{}';
        BEGIN
            SET synchronous_commit = off;
            FOR i IN 1..1000 LOOP
                began := clock_timestamp();
                PERFORM doorbell.append('hot', '{\"agent_id\": \"hot\", \"type\": \"agent_connected\"}');
                took := took || extract(epoch FROM clock_timestamp() - began)::float8;
                COMMIT;
            END LOOP;
            SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY t) INTO median FROM unnest(took) AS t;
        END $$";
    store.psql(script);
    let mut connection = store.pool().acquire().await.unwrap();
    let mut medians = Vec::new();
    for _ in 0..100 {
        let median: f64 = sqlx::query_scalar("CALL append_thousand(NULL)")
            .fetch_one(&mut *connection)
            .await
            .unwrap();
        medians.push(median);
    }
    assert_eq!(store.high_water("hot").await.unwrap(), 100_000);
    // The first warms up, on both sides; of each end the better of three, since the machine has other things to do.
    let best = |medians: &[f64]| medians.iter().copied().fold(f64::INFINITY, f64::min);
    let (first, last) = (best(&medians[1..4]), best(&medians[97..]));
    assert!(last <= 2.0 * first, "{:.1} µs, then {:.1} µs", first * 1e6, last * 1e6);
    report.commit().await.unwrap();
}
