//! A subscriber process: subscriptions to all streams and to single ones, fast and slow, permanent and repeated.

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
use super::subscriptions::{Heads, Pace, count_lags, follow, resume_repeatedly, subscribe_anywhere};
use super::{STREAMS, builder, connect, stream};
use crate::child::{LIMIT, print_line, runtime, stdin_closed};
use testkit::random::Rng;

/// What the process received.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Report {
    /// Names and accounts of the subscriptions that follow their streams from the first event to the last.
    pub accounts: Vec<(String, Account)>,
    pub summary: String,
}

type Tasks = JoinSet<Option<(String, Account)>>;

pub(super) fn run(url: &str, seed: u64) {
    runtime().block_on(async {
        let store = connect(url).await;
        let bus = builder(url, &store).start().unwrap();
        let (set_heads, heads) = watch::channel(None);
        let mut tasks = Tasks::new();
        start(&bus, seed, &heads, &mut tasks).await;
        print_line("ready");
        tokio::select! {
            () = stdin_closed() => {}
            // None ends before it knows the heads, unless it fails.
            failed = tasks.join_next() => panic!("{failed:?}"),
        }
        let begun = Instant::now();
        // Before that, the store may read from a standby.
        wait_until_live(&bus).await;
        set_heads.send_replace(Some(read_heads(&store).await));
        let accounts = timeout(LIMIT, tasks.join_all())
            .await
            .expect("every subscription completes");
        let complete = begun.elapsed();
        wait_until_live(&bus).await;
        let accounts: Vec<_> = accounts.into_iter().flatten().collect();
        let summary = summary(&bus, &accounts, complete);
        print_line(&serde_json::to_string(&Report { accounts, summary }).unwrap());
        bus.shutdown().await;
    });
}

/// Starts all subscriptions. Those that must receive every event are ready when this returns.
async fn start(bus: &DistributedBus, seed: u64, heads: &watch::Receiver<Heads>, tasks: &mut Tasks) {
    let mut rng = Rng::with_seed(seed);
    let report = SubscribeOptions::new().on_slow(OnSlow::Report);

    let all = bus.subscribe_all_ready().await.unwrap();
    let all_slow = bus.subscribe_all();
    let all_report = bus.subscribe_all_with(report);
    for subscription in [&all_slow, &all_report] {
        subscription.ready().await.unwrap();
    }
    tasks.spawn(named(
        "all streams",
        follow(bus.clone(), all, None, Pace::Fast, heads.clone()),
    ));
    tasks.spawn(named(
        "all streams, slow",
        follow(bus.clone(), all_slow, None, Pace::Slow(rng.fork()), heads.clone()),
    ));
    let counting = count_lags(all_report, rng.fork(), heads.clone());
    tasks.spawn(async move {
        counting.await;
        None
    });
    for n in 0..4 {
        let key = stream(n);
        // Fast and slow subscriptions share a ring.
        for (name, options, pace) in [
            ("one stream", SubscribeOptions::new(), Pace::Fast),
            ("one stream, slow", SubscribeOptions::new(), Pace::Slow(rng.fork())),
            ("one stream, slow, reports", report, Pace::Slow(rng.fork())),
        ] {
            let one = bus.subscribe_with(&key, options);
            one.ready().await.unwrap();
            tasks.spawn(named(
                name,
                follow(bus.clone(), one, Some(key.clone()), pace, heads.clone()),
            ));
        }
    }
    for n in 4..8 {
        let resuming = resume_repeatedly(bus.clone(), stream(n), rng.fork(), heads.clone());
        tasks.spawn(named("one stream, resumed", resuming));
    }
    for n in 8..STREAMS {
        let subscribing = subscribe_anywhere(bus.clone(), stream(n), rng.fork(), heads.clone());
        tasks.spawn(async move {
            subscribing.await;
            None
        });
    }
}

async fn named(name: &str, account: impl Future<Output = Account>) -> Option<(String, Account)> {
    Some((name.to_owned(), account.await))
}

/// The last number of each stream, once all publishers have ended.
async fn read_heads(store: &Arc<PostgresStore>) -> BTreeMap<String, u64> {
    let keys: Vec<Arc<str>> = (0..STREAMS).map(|n| stream(n).into()).collect();
    loop {
        // The server may be restarting.
        match Store::<FleetEvent>::heads(&**store, &keys).await {
            Ok(heads) => {
                let seqs = heads.streams.into_iter().map(|head| head.seq);
                return keys.iter().map(|key| key.to_string()).zip(seqs).collect();
            }
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Waits until the bus reports that it is live.
async fn wait_until_live(bus: &DistributedBus) {
    let mut changes = bus.health_changes();
    let live = changes.wait_for(|health| health.state == BusState::Live);
    match timeout(LIMIT, live).await {
        Ok(live) => drop(live.expect("the bus is running")),
        Err(_) => panic!("the bus did not become live again: {:?}", bus.health()),
    }
    assert_eq!(bus.stats().rewinds, 0, "no history was replaced");
}

fn summary(bus: &DistributedBus, accounts: &[(String, Account)], complete: Duration) -> String {
    let stats = bus.stats();
    let missing: u64 = accounts.iter().map(|(_, account)| account.missing()).sum();
    format!(
        "complete after {complete:.1?}; {missing} events announced as missing; {} missed and recovered, {} lags, {} failed reads, {} disconnects",
        stats.missed_recovered,
        stats.lags,
        stats.failed_reads,
        bus.listen_stats().map_or(0, |stats| stats.disconnects),
    )
}
