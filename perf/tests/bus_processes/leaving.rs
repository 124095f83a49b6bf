//! P16: processes that end with subscriptions live.

use std::sync::Arc;
use std::time::{Duration, Instant};

use doorbell::bus::{DistributedBus, EventBus as _};
use doorbell::store::PostgresStore;
use throwaway_postgres::Server;

use doorbell_perf::child::{Child, LIMIT, end, runtime, say};

/// How many subscriptions the process has.
const SUBSCRIPTIONS: usize = 200;

/// How soon nothing of it is left; and the time that a busy machine needs to look.
const SOON: Duration = Duration::from_secs(2);

pub(crate) fn p16_a_process_that_shuts_down_leaves_nothing_behind() {
    let server = Server::start().unwrap();
    let mut child = start(&server, "shutdown");
    let begun = Instant::now();
    child.finish();
    assert_eq!(child.line(), format!("{SUBSCRIPTIONS} streams have ended"));
    assert!(child.ended().success());
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    nobody_is_connected(&server, begun);
}

pub(crate) fn p16_a_process_that_just_ends_leaves_nothing_behind() {
    let server = Server::start().unwrap();
    let mut child = start(&server, "return");
    let begun = Instant::now();
    child.finish();
    assert!(child.ended().success());
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    nobody_is_connected(&server, begun);
}

pub(crate) fn p16_a_process_that_is_killed_leaves_nothing_behind() {
    let server = Server::start().unwrap();
    let mut child = start(&server, "return");
    let begun = Instant::now();
    child.kill();
    nobody_is_connected(&server, begun);
}

/// A process with subscriptions, which are ready.
fn start(server: &Server, how: &str) -> Child {
    let child = Child::start("leaver", &[&server.url(), how]);
    assert_eq!(child.line(), "ready");
    assert!(connections(server) >= 2, "its listener and its store");
    child
}

fn connections(server: &Server) -> usize {
    let count =
        "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    server.psql(count).unwrap().parse().unwrap()
}

fn nobody_is_connected(server: &Server, begun: Instant) {
    while connections(server) > 0 {
        assert!(begun.elapsed() < SOON, "connections stay");
    }
}

/// Ends by `shutdown` or by returning, as `how` says, when its standard input ends.
pub(crate) fn leaver(url: &str, how: &str) {
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
        say("ready");
        end().await;
        if how == "return" {
            return; // with everything still alive
        }
        bus.shutdown().await;
        store.pool().close().await;
        let mut ended = 0;
        for stream in streams {
            tokio::time::timeout(LIMIT, stream).await.unwrap().unwrap();
            ended += 1;
        }
        say(&format!("{ended} streams have ended"));
    });
}
