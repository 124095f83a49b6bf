//! The store over Postgres against a real server: the suite of all stores, and what only Postgres has.

use std::sync::Arc;

use doorbell::store::Store as _;

mod appending;
mod changing;
mod schemas;
mod sql;
#[allow(dead_code, reason = "each test binary uses a part")]
#[path = "../store_suite/mod.rs"]
mod store_suite;
mod support;
mod terminated;
mod trimming;
mod turns;

use store_suite::{Abilities, event};
use support::Store;

/// One store for all of the suite: each part finds it emptied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_suite_over_postgres() {
    let store = Store::fresh().await;
    let abilities = Abilities {
        atomic_batches: true,
        checks_keys: true,
        knows_history: true,
    };
    let fresh = async || {
        store.psql("TRUNCATE doorbell.events, doorbell.low_water_marks");
        Arc::new((*store).clone()) as Arc<dyn doorbell::store::Store>
    };
    store_suite::run(fresh, abilities).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_with_nul_is_refused_before_it_is_sent() {
    let store = Store::fresh().await;
    let mut transaction = store.pool().begin().await.unwrap();
    let refused = store.append_in(&mut transaction, event("a", "a\0b")).await;
    assert!(
        matches!(refused, Err(doorbell::store::StoreError::Encode { .. })),
        "{refused:?}"
    );
    assert_eq!(
        store.append_in(&mut transaction, event("a", "fine")).await.unwrap().seq,
        1
    );
    transaction.commit().await.unwrap();
    assert_eq!(store.high_water("a").await.unwrap(), 1);
}

/// The streams of each case have names of their own, in one store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_operations_beside_a_plain_map() {
    use proptest::strategy::{Strategy as _, ValueTree as _};
    let store = Store::fresh().await;
    let mut runner = proptest::test_runner::TestRunner::default();
    for case in 0..40 {
        let ops = store_suite::reference::ops().new_tree(&mut runner).unwrap().current();
        println!("{ops:?}");
        let trim = async |key: &str, through| store.trim(key, through).await.unwrap();
        store_suite::reference::run(&*store, trim, &case.to_string(), ops).await;
    }
}
