//! A subscriber process: to all streams, to single ones, quick and slow, and to some in turns.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use doorbell::bus::{BusState, DistributedBus, EventBus as _, FleetEvent, OnSlow, SubscribeOptions};
use doorbell::store::{PostgresStore, Store};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::account::Account;
use super::subscriptions::{Heads, Pace, follow, hop, sum_up, visit};
use super::{STREAMS, builder, connect, stream};
use crate::child::{LIMIT, end, runtime, say};
use testkit::random::Rng;

/// What a subscriber process has had.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Report {
    /// Of each subscription that keeps one.
    pub accounts: Vec<(String, Account)>,
    pub summary: String,
}

type Tasks = JoinSet<Option<(String, Account)>>;

pub(super) fn run(url: &str, seed: u64) {
    runtime().block_on(async {
        let store = connect(url).await;
        let bus = builder(url, &store).start().unwrap();
        let (tell, heads) = watch::channel(None);
        let mut tasks = Tasks::new();
        start(&bus, seed, &heads, &mut tasks).await;
        say("ready");
        tokio::select! {
            () = end() => {}
            // None ends before it is told how far to go, unless it fails.
            failed = tasks.join_next() => panic!("{failed:?}"),
        }
        let begun = Instant::now();
        tell.send_replace(Some(reached(&store).await));
        let accounts = timeout(LIMIT, tasks.join_all()).await.expect("all have arrived");
        let complete = begun.elapsed();
        is_sound(&bus).await;
        let accounts: Vec<_> = accounts.into_iter().flatten().collect();
        let summary = summary(&bus, &accounts, complete);
        say(&serde_json::to_string(&Report { accounts, summary }).unwrap());
        bus.shutdown().await;
    });
}

/// Starts all subscriptions. Those that are to have everything are ready when this returns.
async fn start(bus: &DistributedBus, seed: u64, heads: &watch::Receiver<Heads>, tasks: &mut Tasks) {
    let mut rng = Rng::with_seed(seed);
    let report = SubscribeOptions::new().on_slow(OnSlow::Report);

    let all = bus.subscribe_all_ready().await.unwrap();
    let all_slow = bus.subscribe_all();
    let all_report = bus.subscribe_all_with(report);
    for subscription in [&all_slow, &all_report] {
        subscription.ready().await.unwrap();
    }
    tasks.spawn(named("all streams", follow(all, None, Pace::Quick, heads.clone())));
    tasks.spawn(named(
        "all streams, slow",
        follow(all_slow, None, Pace::Slow(rng.fork()), heads.clone()),
    ));
    let sum = sum_up(all_report, rng.fork(), heads.clone());
    tasks.spawn(async move {
        sum.await;
        None
    });
    for n in 0..4 {
        let key = stream(n);
        // Slow ones beside the quick ones, so that they share a ring.
        for (name, options, pace) in [
            ("one stream", SubscribeOptions::new(), Pace::Quick),
            ("one stream, slow", SubscribeOptions::new(), Pace::Slow(rng.fork())),
            ("one stream, slow, reports", report, Pace::Slow(rng.fork())),
        ] {
            let one = bus.subscribe_with(&key, options);
            one.ready().await.unwrap();
            tasks.spawn(named(name, follow(one, Some(key.clone()), pace, heads.clone())));
        }
    }
    for n in 4..8 {
        let hops = hop(bus.clone(), stream(n), rng.fork(), heads.clone());
        tasks.spawn(named("one stream, with breaks", hops));
    }
    for n in 8..STREAMS {
        let visits = visit(bus.clone(), stream(n), rng.fork(), heads.clone());
        tasks.spawn(async move {
            visits.await;
            None
        });
    }
}

async fn named(name: &str, account: impl Future<Output = Account>) -> Option<(String, Account)> {
    Some((name.to_owned(), account.await))
}

/// How far the streams reach, now that everything has come to rest.
async fn reached(store: &Arc<PostgresStore>) -> BTreeMap<String, u64> {
    let keys: Vec<Arc<str>> = (0..STREAMS).map(|n| stream(n).into()).collect();
    loop {
        // The server may just have been started again.
        match Store::<FleetEvent>::high_waters(&**store, &keys).await {
            Ok(heads) => return keys.iter().map(|key| key.to_string()).zip(heads).collect(),
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Returns when the bus says that all is well.
async fn is_sound(bus: &DistributedBus) {
    let mut changes = bus.health_changes();
    let live = changes.wait_for(|health| health.state == BusState::Live);
    match timeout(LIMIT, live).await {
        Ok(live) => drop(live.expect("the bus is there")),
        Err(_) => panic!("the bus is not sound again: {:?}", bus.health()),
    }
    assert_eq!(bus.stats().rewinds, 0, "no history was replaced");
}

fn summary(bus: &DistributedBus, accounts: &[(String, Account)], complete: Duration) -> String {
    let stats = bus.stats();
    let missing: u64 = accounts.iter().map(|(_, account)| account.missing()).sum();
    format!(
        "complete after {complete:.1?}; slow ones were told of {missing} missing events; {} missed_recovered, {} lags, {} failed reads, {} losses",
        stats.missed_recovered,
        stats.lags,
        stats.failed_reads,
        bus.listen_stats().map_or(0, |stats| stats.disconnects),
    )
}
