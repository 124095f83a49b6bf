//! The listener's log: one line per change of state, regardless of the number of attempts. One test, because the subscriber is
//! global to the process.

mod listen_support;

use std::fmt;
use std::sync::{Arc, Mutex};

use doorbell::listen::{ListenMultiplexer, ListenState};
use testkit::within::within;
use throwaway_postgres::{Server, Stop};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use listen_support::until;

/// Records the listener's messages at `INFO` and above.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("doorbell::listen") && *metadata.level() <= Level::INFO
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        self.0.lock().unwrap().push(message.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p10_logs_one_line_per_change_of_state() {
    let lines = Lines::default();
    tracing::subscriber::set_global_default(lines.clone()).unwrap();
    let server = Server::start().unwrap();
    let mux = ListenMultiplexer::connect(&server.url()).await.unwrap();
    server.stop(Stop::Fast).unwrap();
    let mut changes = mux.health_changes();
    within("ten failed attempts", async {
        while mux.stats().failed_connects < 10 {
            changes.changed().await.unwrap();
        }
    })
    .await;
    server.start_again().unwrap();
    until(&mux, "the recovery", |health| health.state == ListenState::Healthy).await;
    mux.shutdown().await;
    assert_eq!(
        *lines.0.lock().unwrap(),
        [
            "listening for notifications",
            "the listener lost its connection; reconnecting",
            "listening for notifications",
            "the listener has shut down",
        ]
    );
}
