//! A subscriber process: to all streams, to single ones, and to some in turns. Keeps what it gets, and compares it with the store
//! at the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use doorbell::bus::{BusEvent, BusSubscription, DistributedBus, EventBus as _, FleetEvent, FleetEventKind};
use doorbell::store::{PostgresStore, Store};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{STREAMS, builder, connect, stream};
use crate::child::{LIMIT, end, runtime, say};
use crate::random::Random;

/// How far the streams reach when everything has come to rest.
type Heads = Option<BTreeMap<String, u64>>;

pub(crate) fn run(url: &str, seed: u64) {
    runtime().block_on(async {
        let store = connect(url).await;
        let bus = builder(url, &store).start().unwrap();
        let (tell, heads) = watch::channel(None);
        let mut tasks = JoinSet::new();
        let all = bus.subscribe_all_ready().await.unwrap();
        tasks.spawn(follow(all, None, heads.clone()));
        for n in 0..4 {
            let one = bus.subscribe(&stream(n));
            one.ready().await.unwrap();
            tasks.spawn(follow(one, Some(stream(n)), heads.clone()));
        }
        for n in 4..8 {
            let random = Random::new(seed.wrapping_add(n));
            tasks.spawn(hop(bus.clone(), stream(n), random, heads.clone()));
        }
        for n in 8..STREAMS {
            tasks.spawn(churn(
                bus.clone(),
                stream(n),
                Random::new(seed.wrapping_add(n)),
                heads.clone(),
            ));
        }
        say("ready");
        tokio::select! {
            () = end() => {}
            // None ends before it is told how far to go, unless it fails.
            failed = tasks.join_next() => panic!("{failed:?}"),
        }
        let begun = Instant::now();
        let stored = stored(&store).await;
        let reach = stored
            .iter()
            .map(|(key, texts)| (key.clone(), texts.len() as u64))
            .collect();
        tell.send_replace(Some(reach));
        let mut compared = 0;
        while let Some(got) = tokio::time::timeout(LIMIT, tasks.join_next())
            .await
            .expect("all have arrived")
        {
            for (key, texts) in got.unwrap() {
                let there = stored.get(&key).map_or(&[][..], |texts| texts);
                assert_eq!(texts, there, "stream {key:?}");
                compared += texts.len();
            }
        }
        let stats = bus.stats();
        say(&format!(
            "complete after {:?}, {compared} events compared; {} repairs, {} lags, {} failed reads, {} losses",
            begun.elapsed(),
            stats.repairs,
            stats.lags,
            stats.failed_reads,
            bus.listen_stats().map_or(0, |stats| stats.losses),
        ));
    });
}

/// What the store holds, stream by stream.
async fn stored(store: &Arc<PostgresStore>) -> BTreeMap<String, Vec<String>> {
    let mut stored = BTreeMap::new();
    for n in 0..STREAMS {
        let key = stream(n);
        let mut texts = Vec::new();
        loop {
            let after = texts.len() as u64;
            // The server may just have been started again.
            let Ok(page) = Store::<FleetEvent>::replay(&**store, &key, after, 1000).await else {
                continue;
            };
            if page.records.is_empty() {
                break;
            }
            texts.extend(page.records.into_iter().map(|record| text(&record.event.unwrap())));
        }
        stored.insert(key, texts);
    }
    stored
}

fn text(event: &FleetEvent) -> String {
    match &event.kind {
        FleetEventKind::Custom { data, .. } => data.clone(),
        other => panic!("nobody writes {other:?}"),
    }
}

/// What a subscription has brought.
#[derive(Default)]
struct Got(BTreeMap<String, Vec<String>>);

impl Got {
    /// The next item: the next event of its stream, or something is wrong.
    fn take(&mut self, item: Option<BusEvent>) {
        let Some(BusEvent::Event(event)) = item else {
            panic!("expected an event, got {item:?}")
        };
        let texts = self.0.entry(event.agent_id.clone()).or_default();
        assert_eq!(event.seq, texts.len() as u64 + 1, "of stream {:?}", event.agent_id);
        texts.push(text(&event));
    }

    fn count(&self, key: &str) -> u64 {
        self.0.get(key).map_or(0, |texts| texts.len() as u64)
    }

    /// Whether everything has come, of one stream or of all.
    fn is_complete(&self, of: Option<&str>, heads: &Heads) -> bool {
        heads.as_ref().is_some_and(|heads| {
            let mut wanted = heads.iter().filter(|(key, _)| of.is_none_or(|of| of == *key));
            wanted.all(|(key, head)| self.count(key) >= *head)
        })
    }
}

type Texts = BTreeMap<String, Vec<String>>;

/// Stays subscribed from the first event to the last.
async fn follow(mut subscription: BusSubscription, of: Option<String>, mut heads: watch::Receiver<Heads>) -> Texts {
    let mut got = Got::default();
    loop {
        let told = heads.borrow_and_update().clone();
        if got.is_complete(of.as_deref(), &told) {
            return got.0;
        }
        tokio::select! {
            item = subscription.recv() => got.take(item),
            _ = heads.changed() => {}
        }
    }
}

/// Subscribes, takes some events, leaves, and comes back where it was.
async fn hop(bus: DistributedBus, key: String, mut random: Random, mut heads: watch::Receiver<Heads>) -> Texts {
    let mut got = Got::default();
    loop {
        let mut subscription = bus.subscribe_from(&key, got.count(&key));
        for _ in 0..random.below(40) {
            let told = heads.borrow_and_update().clone();
            if got.is_complete(Some(&key), &told) {
                return got.0;
            }
            tokio::select! {
                item = subscription.recv() => got.take(item),
                _ = heads.changed() => {}
                () = tokio::time::sleep(random.millis(1, 300)) => break,
            }
        }
        if random.percent(20) {
            drop(subscription);
            tokio::time::sleep(random.millis(1, 200)).await;
        }
    }
}

/// Comes and goes, and looks only whether what it gets is without a hole. (So it has nothing to compare.)
async fn churn(bus: DistributedBus, key: String, mut random: Random, heads: watch::Receiver<Heads>) -> Texts {
    while heads.borrow().is_none() {
        let mut subscription = bus.subscribe(&key);
        if random.percent(30) {
            continue; // gone before it was ready
        }
        let mut last = None;
        for _ in 0..random.below(10) {
            let item = tokio::select! {
                item = subscription.recv() => item,
                () = tokio::time::sleep(random.millis(1, 100)) => break,
            };
            let Some(BusEvent::Event(event)) = item else {
                panic!("expected an event, got {item:?}")
            };
            assert!(
                last.is_none_or(|last| event.seq == last + 1),
                "{} after {last:?}",
                event.seq
            );
            last = Some(event.seq);
        }
        tokio::task::yield_now().await;
    }
    BTreeMap::new()
}
