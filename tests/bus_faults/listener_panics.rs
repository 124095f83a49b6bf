//! A listener whose task panics, here because a `tracing` subscriber does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use doorbell::bus::{BusError, BusState};
use doorbell::listen::ListenError;
use testkit::log_lines::OnLine;
use throwaway_postgres::Database;

use crate::bus_support::{LISTENER, bus, expect_end, until};

// On one thread, so that the subscriber gets the listener's lines.
#[tokio::test]
async fn p41_a_listener_that_panics_closes_the_bus() {
    let database = Database::fresh().unwrap();
    let armed = Arc::new(AtomicBool::new(false));
    let panics_once = {
        let armed = Arc::clone(&armed);
        OnLine::new(
            |metadata| metadata.target().starts_with("doorbell::listen"),
            // Relaxed: everything is on one thread.
            move |_| assert!(!armed.swap(false, Ordering::Relaxed), "a planted panic"),
        )
    };
    let _subscriber = tracing::subscriber::set_default(panics_once);
    let bus = bus(&database.url()).await;
    let mut all = bus.subscribe_all_ready().await.unwrap();
    until(&bus, BusState::Live).await;
    armed.store(true, Ordering::Relaxed); // as above
    let end = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{LISTENER}' AND datname = current_database()"
    );
    database.psql(&end).unwrap();
    let health = until(&bus, BusState::Closed).await;
    assert!(
        matches!(health.reason, Some(BusError::Listen(ListenError::Panicked))),
        "{health:?}"
    );
    expect_end(&mut all).await;
}
