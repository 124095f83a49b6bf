//! The listener's log: one line per change of state, regardless of the number of attempts. One test, because the subscriber is
//! global to the process.

mod listen_support;

use doorbell::listen::{ListenMultiplexer, ListenState};
use testkit::log_lines::LogLines;
use testkit::within::within;
use throwaway_postgres::{Server, Stop};
use tracing::Level;

use listen_support::until;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p10_logs_one_line_per_change_of_state() {
    let lines = LogLines::default();
    let of_listener = lines
        .subscriber(|metadata| metadata.target().starts_with("doorbell::listen") && *metadata.level() <= Level::INFO);
    tracing::subscriber::set_global_default(of_listener).unwrap();
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
    let messages: Vec<_> = lines.take().into_iter().map(|line| line.message).collect();
    assert_eq!(
        messages,
        [
            "listening for notifications",
            "the listener lost its connection; reconnecting",
            "listening for notifications",
            "the listener has shut down",
        ]
    );
}
