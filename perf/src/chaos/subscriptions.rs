//! The subscriptions of a process. Each stops the process at the first item that does not fit.

use std::collections::BTreeMap;
use std::time::Duration;

use doorbell::bus::{BusEvent, BusSubscription, DistributedBus, OnSlow, SubscribeOptions};
use tokio::sync::watch;
use tokio::time::sleep;

use super::account::{Account, Stretch};
use crate::random::Random;

/// How far the streams reach when everything has come to rest; until then, nothing.
pub(super) type Heads = Option<BTreeMap<String, u64>>;

/// How a subscriber reads.
pub(super) enum Pace {
    /// As fast as it can: it never misses anything.
    Quick,
    /// Slower than events come, until the end.
    Slow(Random),
}

impl Pace {
    /// Rests after an item, unless the end has come.
    async fn rest(&mut self, heads: &mut watch::Receiver<Heads>) {
        let Self::Slow(random) = self else { return };
        if heads.borrow().is_some() {
            return;
        }
        let time = if random.percent(1) {
            random.millis(0, 3_000)
        } else {
            random.millis(0, 40)
        };
        tokio::select! {
            () = sleep(time) => {}
            _ = heads.changed() => {}
        }
    }
}

/// Stays subscribed from the first event to the last, to one stream or to all.
pub(super) async fn follow(
    mut subscription: BusSubscription,
    of: Option<String>,
    mut pace: Pace,
    mut heads: watch::Receiver<Heads>,
) -> Account {
    let mut account = Account::default();
    loop {
        if is_complete(&account, of.as_deref(), &heads.borrow_and_update()) {
            return account;
        }
        tokio::select! {
            item = subscription.recv() => {
                let item = item.expect("the bus lives");
                account.take(of.as_deref(), &item);
                if matches!(pace, Pace::Quick) {
                    assert!(matches!(item, BusEvent::Event(_)), "{item:?} for a quick one");
                }
                pace.rest(&mut heads).await;
            }
            _ = heads.changed() => {}
        }
    }
}

fn is_complete(account: &Account, of: Option<&str>, heads: &Heads) -> bool {
    heads.as_ref().is_some_and(|heads| {
        let mut wanted = heads.iter().filter(|(key, _)| of.is_none_or(|of| of == *key));
        wanted.all(|(key, head)| account.last(key) >= *head)
    })
}

/// Subscribes, takes some events, leaves, and comes back where it was.
pub(super) async fn hop(
    bus: DistributedBus,
    key: String,
    mut random: Random,
    mut heads: watch::Receiver<Heads>,
) -> Account {
    let mut account = Account::default();
    loop {
        let mut subscription = bus.subscribe_from(&key, account.last(&key));
        for _ in 0..random.below(40) {
            if is_complete(&account, Some(&key), &heads.borrow_and_update()) {
                return account;
            }
            tokio::select! {
                item = subscription.recv() => account.take(Some(&key), &item.expect("the bus lives")),
                _ = heads.changed() => {}
                () = sleep(random.millis(1, 300)) => break,
            }
        }
        if random.percent(20) {
            drop(subscription);
            sleep(random.millis(1, 200)).await;
        }
    }
}

/// Comes and goes, starts anywhere, and looks only whether what it gets has no hole that was not announced.
pub(super) async fn visit(bus: DistributedBus, key: String, mut random: Random, heads: watch::Receiver<Heads>) {
    let mut highest = 0;
    while heads.borrow().is_none() {
        let (mut options, mut stretch) = match random.below(4) {
            0 => (SubscribeOptions::new().after(0), Stretch::after(0)),
            1 => {
                let after = random.below(highest + 1);
                (SubscribeOptions::new().after(after), Stretch::after(after))
            }
            _ => (SubscribeOptions::new(), Stretch::default()),
        };
        if random.percent(50) {
            options = options.on_slow(OnSlow::Report);
        }
        let is_slow = random.percent(30);
        let mut subscription = bus.subscribe_with(&key, options);
        if random.percent(30) {
            continue; // gone before it was ready
        }
        for _ in 0..random.below(30) {
            tokio::select! {
                item = subscription.recv() => stretch.take(&item.expect("the bus lives")),
                () = sleep(random.millis(1, 100)) => break,
            }
            if is_slow {
                sleep(random.millis(0, 100)).await;
            }
        }
        highest = highest.max(stretch.last());
        drop(subscription);
        sleep(Duration::from_millis(random.below(20))).await;
    }
}

/// Reads all streams slowly and wants to be told how much it misses: that and what it gets is all there was.
pub(super) async fn sum_up(mut subscription: BusSubscription, random: Random, mut heads: watch::Receiver<Heads>) {
    let mut last = BTreeMap::new();
    let (mut received, mut passed) = (0, 0);
    let mut pace = Pace::Slow(random);
    loop {
        let all = heads.borrow_and_update().as_ref().map(|heads| heads.values().sum());
        if all.is_some_and(|all: u64| received + passed >= all) {
            assert_eq!(Some(received + passed), all, "received and passed over");
            return;
        }
        tokio::select! {
            item = subscription.recv() => match item.expect("the bus lives") {
                BusEvent::Event(event) => {
                    received += 1;
                    let before = last.insert(event.agent_id.clone(), event.seq);
                    assert!(before < Some(event.seq), "{} after {before:?}", event.seq);
                }
                BusEvent::Lagged(events) => passed += events,
                other => panic!("{other:?} for one that does not read back"),
            },
            _ = heads.changed() => continue,
        }
        pace.rest(&mut heads).await;
    }
}
