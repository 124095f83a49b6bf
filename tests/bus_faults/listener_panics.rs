//! A listener whose task panics, here because a `tracing` subscriber does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use doorbell::bus::{BusError, BusState};
use doorbell::listen::ListenError;
use throwaway_postgres::Database;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::bus_support::log_lines::second_dispatch;
use crate::bus_support::{LISTENER, bus, expect_end, until};

/// Panics at the next line of the listener, once it is armed.
#[derive(Clone, Default)]
struct PanicsOnce(Arc<AtomicBool>);

impl Subscriber for PanicsOnce {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("doorbell::listen")
    }

    fn event(&self, _: &Event<'_>) {
        // Relaxed: everything is on one thread.
        assert!(!self.0.swap(false, Ordering::Relaxed), "a planted panic");
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

// On one thread, so that the subscriber gets the listener's lines.
#[tokio::test]
async fn p41_a_listener_that_panics_closes_the_bus() {
    let database = Database::fresh().unwrap();
    let panics = PanicsOnce::default();
    let _second = second_dispatch();
    let _subscriber = tracing::subscriber::set_default(panics.clone());
    let bus = bus(&database.url()).await;
    let mut all = bus.subscribe_all_ready().await.unwrap();
    until(&bus, BusState::Live).await;
    panics.0.store(true, Ordering::Relaxed); // as above
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
