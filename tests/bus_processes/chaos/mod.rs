//! Everything goes wrong at random for a while. At the end every subscriber has every committed event, once, in order.

pub(crate) mod publisher;
pub(crate) mod subscriber;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use doorbell::bus::{DistributedBus, DistributedBusBuilder, FleetEvent};
use doorbell::listen::ListenMultiplexer;
use doorbell::store::PostgresStore;
use throwaway_postgres::{Server, Stop};

use crate::child::{Child, runtime};
use crate::random::Random;

const PUBLISHERS: u64 = 4;
const SUBSCRIBERS: u64 = 3;
/// All publishers write to all of them.
const STREAMS: u64 = 12;

/// The `application_name` of every listener.
const LISTENER: &str = "chaos listener";

fn stream(n: u64) -> String {
    format!("agent:{n}")
}

/// A bus that notices what is wrong soon.
fn builder(url: &str, store: &Arc<PostgresStore>) -> DistributedBusBuilder<FleetEvent> {
    let listener = ListenMultiplexer::builder()
        .url(url)
        .application_name(LISTENER)
        .heartbeat(Duration::from_millis(300), Duration::from_millis(700))
        .connect_timeout(Duration::from_secs(2));
    DistributedBus::builder(store.clone())
        .url(url)
        .listen(listener)
        .sweep_interval(Duration::from_secs(1))
        .stream_capacity(16) // so that subscribers fall behind
        .all_capacity(32)
        .page(16)
}

/// The server may be away at any moment.
async fn connect(url: &str) -> Arc<PostgresStore> {
    loop {
        let builder = PostgresStore::builder().answer_timeout(Duration::from_secs(3));
        match builder.connect(url).await {
            Ok(store) => return Arc::new(store),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// What is done to them.
#[derive(Debug, Default)]
struct Done(BTreeMap<&'static str, u64>);

impl Done {
    fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }
}

pub(crate) fn run(duration: Duration, seed: u64) {
    println!("chaos for {duration:?} with seed {seed}");
    let server = Server::builder().setting("max_connections", 200).start().unwrap();
    let url = server.url();
    runtime().block_on(async {
        PostgresStore::connect(&url).await.unwrap().migrate().await.unwrap();
    });
    let mut random = Random::new(seed);
    let mut subscribers: Vec<_> = (0..SUBSCRIBERS)
        .map(|_| Child::start("subscriber", &[&url, &random.next().to_string()]))
        .collect();
    for subscriber in &subscribers {
        assert_eq!(subscriber.line(), "ready");
    }
    let mut publishers: Vec<_> = (0..PUBLISHERS)
        .map(|_| Child::start("publisher", &[&url, &random.next().to_string()]))
        .collect();
    let mut done = Done::default();
    let begun = Instant::now();
    while begun.elapsed() < duration {
        std::thread::sleep(random.millis(20, 600));
        disturb(&server, &mut publishers, &mut random, &mut done);
        for publisher in &mut publishers {
            // They also end by themselves, between commit and bell.
            if !publisher.runs() {
                done.count("publisher ended before the bell");
                *publisher = Child::start("publisher", &[&url, &random.next().to_string()]);
            }
        }
        for subscriber in &mut subscribers {
            assert!(subscriber.runs(), "a subscriber has failed, with seed {seed}");
        }
    }
    for publisher in &mut publishers {
        publisher.finish();
    }
    for publisher in &mut publishers {
        publisher.ended();
    }
    check_store(&server, seed);
    for subscriber in &mut subscribers {
        subscriber.finish();
    }
    for subscriber in &mut subscribers {
        println!("subscriber: {}", subscriber.line());
        assert!(
            subscriber.ended().success(),
            "a subscriber has failed, with seed {seed}"
        );
    }
    println!("{done:?}");
}

fn disturb(server: &Server, publishers: &mut [Child], random: &mut Random, done: &mut Done) {
    match random.below(100) {
        0..30 => {
            done.count("listeners terminated");
            for pid in server.backends(LISTENER).unwrap() {
                if random.percent(50) {
                    // It may have gone by itself.
                    let _ = server.terminate_backend(pid);
                }
            }
        }
        30..45 => {
            done.count("all connections terminated");
            server
                .psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
                .unwrap();
        }
        45..60 => {
            done.count("server frozen");
            server.freeze().unwrap();
            std::thread::sleep(random.millis(50, 2000));
            server.thaw().unwrap();
        }
        60..70 => {
            done.count("server restarted");
            let how = [Stop::Immediate, Stop::Kill, Stop::Fast];
            server.restart(how[random.below(3) as usize]).unwrap();
        }
        _ => {
            done.count("publisher killed");
            // The loop starts another one.
            publishers[random.below(PUBLISHERS) as usize].kill();
        }
    }
}

/// Numbers without a gap.
fn check_store(server: &Server, seed: u64) {
    let gaps =
        "SELECT count(*) FROM (SELECT 1 FROM doorbell.events GROUP BY stream_key HAVING max(seq) <> count(*)) AS gaps";
    assert_eq!(server.psql(gaps).unwrap(), "0", "with seed {seed}");
    let events = server
        .psql("SELECT count(*), count(DISTINCT stream_key) FROM doorbell.events")
        .unwrap();
    println!("events and streams: {events}");
}
