//! Sequence numbers under concurrency: without gaps and in commit order, whatever waits, fails or rolls back.

use std::sync::Arc;
use std::time::Duration;

use doorbell::bus::{FleetEvent, StreamEvent};
use doorbell::store::{PostgresStore, Store as _, StoreError};
use sqlx::postgres::PgPoolOptions;

use crate::store_suite::{event, high_waters, read_all};
use crate::support::Store;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writers_leave_no_gap() {
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
                    assert!(seq > last, "a writer's own numbers must increase");
                    last = seq;
                }
            })
        })
        .collect();
    // read_all checks that no concurrent read sees a gap.
    let mut seen = 0;
    while seen < 32 * 30 {
        seen += read_all(&*store, "one", seen, 100).await.len() as u64;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(store.high_water("one").await.unwrap(), 32 * 30);
}

/// P11, P12: an open transaction blocks appends to its own stream, but neither reads nor other streams, and no later number becomes
/// visible before its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p11_p12_an_open_transaction_delays_only_appends_to_its_stream() {
    let store = Store::fresh().await;
    // An unrelated transaction stays open throughout.
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
    wait_for_lock_waiter(&store).await;
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

/// Waits until a session of this database waits for an advisory lock.
pub(crate) async fn wait_for_lock_waiter(store: &Store) {
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
async fn p14_a_rollback_leaves_neither_events_nor_gaps() {
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
    assert_eq!(high_waters(&*store, &["a".into(), "b".into()]).await, [1, 0]);
    assert_eq!(store.append(event("a", "2").with_seq(2)).await.unwrap().seq, 2);
}

/// A conflict aborts the transaction, unless a savepoint contains it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_savepoint_contains_a_conflict() {
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
async fn batches_with_the_same_streams_in_any_order_do_not_deadlock() {
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
                    // Multiplying with a number that is coprime to 11 gives each batch another order.
                    let step = (writer + round) % 10 + 1;
                    let batch: Vec<FleetEvent> = (0..11)
                        .map(|index| event(&format!("stream-{}", index * step % 11), "x"))
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
    assert_eq!(high_waters(&*store, &keys).await, [8 * 40; 11]);
}

/// A transaction with one snapshot does not see concurrent appends, so it cannot assign the next number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_with_one_snapshot_fails_if_the_stream_has_changed() {
    let store = Store::fresh().await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let begin = || sqlx::AssertSqlSafe(format!("BEGIN ISOLATION LEVEL {level}"));
        store.append(event(level, "1")).await.unwrap();
        // Without concurrent changes it succeeds.
        let mut undisturbed = store.pool().begin_with(begin()).await.unwrap();
        assert_eq!(
            store.append_in(&mut undisturbed, event(level, "2")).await.unwrap().seq,
            2
        );
        undisturbed.commit().await.unwrap();
        // An append after the snapshot.
        let mut late = store.pool().begin_with(begin()).await.unwrap();
        sqlx::query("SELECT count(*) FROM pg_class")
            .execute(&mut *late)
            .await
            .unwrap();
        store.append(event(level, "3")).await.unwrap();
        let refused = store.append_in(&mut late, event(level, "x")).await;
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
        store.append(event(level, "4")).await.unwrap();
        let refused = store
            .append_batch_in(&mut late, vec![event(level, "x"), event(level, "y")])
            .await;
        assert!(
            matches!(refused, Err(StoreError::Serialization)),
            "{level}: {refused:?}"
        );
        late.rollback().await.unwrap();
        // An append and a trim after the snapshot: no event is left to conflict with.
        let mut late = store.pool().begin_with(begin()).await.unwrap();
        sqlx::query("SELECT count(*) FROM pg_class")
            .execute(&mut *late)
            .await
            .unwrap();
        store.append(event(level, "5")).await.unwrap();
        store.trim(level, 5).await.unwrap();
        let refused = store.append_in(&mut late, event(level, "x")).await;
        assert!(
            matches!(refused, Err(StoreError::Serialization)),
            "{level}: {refused:?}"
        );
        late.rollback().await.unwrap();
        assert_eq!(store.append(event(level, "6")).await.unwrap().seq, 6);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_stays_locked_is_a_lock_timeout() {
    let store = Store::fresh().await;
    let impatient = PostgresStore::<FleetEvent>::builder()
        .lock_timeout(Duration::from_millis(50))
        .build(store.pool().clone());
    let mut holder = store.pool().begin().await.unwrap();
    store.append_in(&mut holder, event("a", "1")).await.unwrap();
    let refused = impatient.append(event("a", "2")).await;
    assert!(matches!(refused, Err(StoreError::LockTimeout)), "{refused:?}");
    let refused = impatient.append_batch(vec![event("b", "2"), event("a", "2")]).await;
    assert!(matches!(refused, Err(StoreError::LockTimeout)), "{refused:?}");
    assert!(matches!(impatient.trim("a", 1).await, Err(StoreError::LockTimeout)));
    holder.commit().await.unwrap();
    assert_eq!(impatient.append(event("a", "2")).await.unwrap().seq, 2);
    assert_eq!(impatient.high_water("b").await.unwrap(), 0);
    // The session's own lock_timeout is unchanged.
    let mut transaction = store.pool().begin().await.unwrap();
    sqlx::query("SET LOCAL lock_timeout = '1234ms'")
        .execute(&mut *transaction)
        .await
        .unwrap();
    impatient.append_in(&mut transaction, event("a", "3")).await.unwrap();
    let after: String = sqlx::query_scalar("SELECT current_setting('lock_timeout')")
        .fetch_one(&mut *transaction)
        .await
        .unwrap();
    assert_eq!(after, "1234ms");
}

/// Of two transactions that append to two streams in opposite orders, one fails and the other commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_fails_one_of_its_transactions() {
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
    wait_for_lock_waiter(&store).await;
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

/// Appends must not leave dead row versions, which an old snapshot would keep.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_snapshot_does_not_slow_down_appends() {
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
    // Each append is a transaction inside the server, without waiting for the disk, so that neither this process nor the network nor
    // the disk is measured. The procedure returns the median duration of a thousand appends.
    let script = "
        CREATE PROCEDURE append_thousand(OUT median float8) LANGUAGE plpgsql AS $$
        DECLARE started timestamptz; durations float8[] := '{}';
        BEGIN
            SET synchronous_commit = off;
            FOR i IN 1..1000 LOOP
                started := clock_timestamp();
                PERFORM doorbell.append('hot', '{\"agent_id\": \"hot\", \"type\": \"agent_connected\"}');
                durations := durations || extract(epoch FROM clock_timestamp() - started)::float8;
                COMMIT;
            END LOOP;
            SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY t) INTO median FROM unnest(durations) AS t;
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
    // The first thousand warm up. Compare the best of three at either end, because the machine may be busy.
    let best = |medians: &[f64]| medians.iter().copied().fold(f64::INFINITY, f64::min);
    let (first, last) = (best(&medians[1..4]), best(&medians[97..]));
    assert!(last <= 2.0 * first, "{:.1} µs, then {:.1} µs", first * 1e6, last * 1e6);
    report.commit().await.unwrap();
}
