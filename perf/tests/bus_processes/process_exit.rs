//! P16: processes that end while they have subscriptions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use doorbell::bus::{DistributedBus, EventBus as _};
use doorbell::store::PostgresStore;
use throwaway_postgres::Server;

use doorbell_perf::child::{Child, LIMIT, print_line, runtime, stdin_closed};

/// The number of subscriptions of the process.
const SUBSCRIPTIONS: usize = 200;

/// The time limit for the process and its connections to end, with slack for a busy machine.
const EXIT_LIMIT: Duration = Duration::from_secs(2);

pub(crate) fn p16_a_process_that_shuts_down_leaves_nothing_behind() {
    let server = Server::start().unwrap();
    let mut child = start(&server, "shutdown");
    let begun = Instant::now();
    child.close_stdin();
    assert_eq!(child.line(), format!("{SUBSCRIPTIONS} streams have ended"));
    assert!(child.wait().success());
    assert!(begun.elapsed() < EXIT_LIMIT, "{:?}", begun.elapsed());
    wait_until_disconnected(&server, begun);
}

pub(crate) fn p16_a_process_that_just_ends_leaves_nothing_behind() {
    let server = Server::start().unwrap();
    let mut child = start(&server, "return");
    let begun = Instant::now();
    child.close_stdin();
    assert!(child.wait().success());
    assert!(begun.elapsed() < EXIT_LIMIT, "{:?}", begun.elapsed());
    wait_until_disconnected(&server, begun);
}

pub(crate) fn p16_a_process_that_is_killed_leaves_nothing_behind() {
    let server = Server::start().unwrap();
    let mut child = start(&server, "return");
    let begun = Instant::now();
    child.kill();
    wait_until_disconnected(&server, begun);
}

/// Starts a process and waits until its subscriptions are ready.
fn start(server: &Server, exit: &str) -> Child {
    let child = Child::start("subscriber-until-exit", &[&server.url(), exit]);
    assert_eq!(child.line(), "ready");
    assert!(connections(server) >= 2, "its listener and its store");
    child
}

fn connections(server: &Server) -> usize {
    let count =
        "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    server.psql(count).unwrap().parse().unwrap()
}

fn wait_until_disconnected(server: &Server, begun: Instant) {
    while connections(server) > 0 {
        assert!(
            begun.elapsed() < EXIT_LIMIT,
            "{} connections are still open",
            connections(server)
        );
    }
}

/// Subscribes, and ends when its standard input is closed: by `shutdown`, or by returning from `main` if `exit` is `return`.
pub(crate) fn subscriber(url: &str, exit: &str) {
    runtime().block_on(async {
        let store = PostgresStore::connect(url).await.unwrap();
        store.migrate().await.unwrap();
        let store = Arc::new(store);
        let bus = DistributedBus::connect(url, store.clone()).await.unwrap();
        let mut streams = Vec::new();
        for n in 0..SUBSCRIPTIONS {
            let mut subscription = bus.subscribe(&format!("agent-{n}"));
            subscription.ready().await.unwrap();
            streams.push(tokio::spawn(
                async move { while subscription.recv().await.is_some() {} },
            ));
        }
        print_line("ready");
        stdin_closed().await;
        if exit == "return" {
            return; // with the bus and its subscriptions still open
        }
        bus.shutdown().await;
        store.pool().close().await;
        let mut ended = 0;
        for stream in streams {
            tokio::time::timeout(LIMIT, stream).await.unwrap().unwrap();
            ended += 1;
        }
        print_line(&format!("{ended} streams have ended"));
    });
}
