//! What ten thousand idle subscriptions cost: memory, CPU time, connections and statements.

use std::sync::Arc;
use std::time::Duration;

use doorbell::bus::{BusEvent, DistributedBus, EventBus as _};
use doorbell::store::PostgresStore;
use throwaway_postgres::Server;

use doorbell_perf::child::{Child, LIMIT, print_line, runtime, stdin_closed};

const SUBSCRIPTIONS: usize = 10_000;
const STREAMS: usize = 1_000;

/// Longer than a sweep interval and a heartbeat.
const IDLE: Duration = Duration::from_secs(6);

pub(crate) fn ten_thousand_idle_subscriptions_cost_next_to_nothing() {
    let server = Server::builder().setting("log_statement", "all").start().unwrap();
    let child = Child::start("idle-subscriber", &[&server.url()]);
    let kib: u64 = child.line().parse().unwrap();
    let statements = || server.log().lines().filter(|line| line.contains("LOG:  ")).count();
    let (before, cpu) = (statements(), child.cpu_time());
    std::thread::sleep(IDLE);
    let (statements, cpu) = (statements() - before, child.cpu_time() - cpu);
    let connections = server
        .psql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
        .unwrap();
    println!(
        "{SUBSCRIPTIONS} idle subscriptions: {} MiB, {connections} connections; in {IDLE:?} {statements} statements, {cpu:?} of CPU",
        kib / 1024
    );
    assert!(kib < 64 * 1024, "{kib} KiB");
    assert!(connections.parse::<u64>().unwrap() <= 5, "{connections} connections");
    // Two sweeps and two heartbeats at most.
    assert!(statements < 40, "{statements} statements");
    assert!(cpu < IDLE / 20, "{cpu:?}");
    // Every subscription still works.
    let append = "SELECT doorbell.append('agent-' || n, jsonb_build_object('agent_id', 'agent-' || n, 'type', 'agent_connected')) \
               FROM generate_series(0, 999) AS n";
    server.psql(append).unwrap();
    server
        .psql("SELECT count(doorbell.notify_events('agent-' || n, 1)::text) FROM generate_series(0, 999) AS n")
        .unwrap();
    assert_eq!(child.line(), format!("{SUBSCRIPTIONS} received"));
}

/// Reports how many KiB the subscriptions use, and later how many of them received an event.
pub(crate) fn idle_subscriber(url: &str) {
    runtime().block_on(async {
        let store = PostgresStore::connect(url).await.unwrap();
        store.migrate().await.unwrap();
        let bus = DistributedBus::connect(url, Arc::new(store)).await.unwrap();
        // Exclude what the bus costs without subscriptions.
        bus.subscribe("warm").ready().await.unwrap();
        let before = resident();
        let mut subscriptions: Vec<_> = (0..SUBSCRIPTIONS)
            .map(|n| bus.subscribe(&format!("agent-{}", n % STREAMS)))
            .collect();
        for subscription in &subscriptions {
            subscription.ready().await.unwrap();
        }
        // Poll each, so that it stores its waker.
        let mut polled = std::task::Context::from_waker(std::task::Waker::noop());
        for subscription in &mut subscriptions {
            assert!(subscription.poll_recv(&mut polled).is_pending());
        }
        print_line(&(resident() - before).to_string());
        let mut received = 0;
        for subscription in &mut subscriptions {
            let item = tokio::time::timeout(LIMIT, subscription.recv()).await;
            assert!(matches!(item, Ok(Some(BusEvent::Event(_)))), "{item:?}");
            received += 1;
        }
        print_line(&format!("{received} received"));
        stdin_closed().await;
    });
}

/// This process's resident size, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
