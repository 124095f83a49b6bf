//! The Postgres store against a real server: the common suite, and what is specific to Postgres.

use std::sync::Arc;

use doorbell::store::Store as _;

#[path = "store_postgres/append_concurrency.rs"]
mod append_concurrency;
#[path = "store_postgres/blocked_streams.rs"]
mod blocked_streams;
#[path = "store_postgres/changed_since.rs"]
mod changed_since;
#[path = "store_postgres/connection_loss.rs"]
mod connection_loss;
#[path = "store_postgres/group_commit.rs"]
mod group_commit;
#[path = "store_postgres/large_events.rs"]
mod large_events;
#[path = "store_postgres/managed_servers.rs"]
mod managed_servers;
#[path = "store_postgres/manual_rows.rs"]
mod manual_rows;
#[path = "store_postgres/migration_script.rs"]
mod migration_script;
#[path = "store_postgres/migrations.rs"]
mod migrations;
#[path = "store_postgres/owners.rs"]
mod owners;
#[path = "store_postgres/retention.rs"]
mod retention;
#[path = "store_postgres/rights.rs"]
mod rights;
#[path = "store_postgres/settings.rs"]
mod settings;
#[path = "store_postgres/sql_functions.rs"]
mod sql_functions;
#[allow(dead_code, reason = "each test binary uses a part")]
mod store_suite;
#[path = "store_postgres/support.rs"]
mod support;

use store_suite::{Abilities, event};
use support::Store;

/// All parts of the suite share one store, which is emptied before each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_store_passes_the_common_suite() {
    let store = Store::fresh().await;
    let abilities = Abilities {
        atomic_batches: true,
        checks_keys: true,
        tracks_history: true,
    };
    let fresh = async || {
        store.psql("TRUNCATE doorbell.events, doorbell.low_water_marks");
        Arc::new((*store).clone()) as Arc<dyn doorbell::store::Store>
    };
    store_suite::run(fresh, abilities).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_with_nul_is_refused_and_the_transaction_stays_usable() {
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

/// All cases share one store; each uses its own stream keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_store_behaves_like_the_model() {
    use proptest::strategy::{Strategy as _, ValueTree as _};
    let store = Store::fresh().await;
    let mut runner = proptest::test_runner::TestRunner::default();
    for case in 0..40 {
        let ops = store_suite::model::ops().new_tree(&mut runner).unwrap().current();
        println!("{ops:?}");
        let trim = async |key: &str, through| store.trim(key, through).await.unwrap();
        store_suite::model::run(&*store, trim, &case.to_string(), ops).await;
    }
}
