//! The subscriptions of a process. Each stops the process at the first item that does not fit.

use std::collections::BTreeMap;
use std::time::Duration;

use doorbell::bus::{BusEvent, BusSubscription, DistributedBus, OnSlow, SubscribeOptions};
use tokio::sync::watch;
use tokio::time::sleep;

use super::account::{Account, record};
use testkit::account::{Holes, Sequence};
use testkit::random::{Rng, RngExt as _};

/// How far the streams reach when everything has come to rest; until then, nothing.
pub(super) type Heads = Option<BTreeMap<String, u64>>;

/// How a subscriber reads.
pub(super) enum Pace {
    /// As fast as it can: it never misses anything.
    Quick,
    /// Slower than events come, until the end.
    Slow(Rng),
}

impl Pace {
    /// Rests after an item, unless the end has come.
    async fn rest(&mut self, heads: &mut watch::Receiver<Heads>) {
        let Self::Slow(rng) = self else { return };
        if heads.borrow().is_some() {
            return;
        }
        let time = if rng.percent(1) {
            rng.millis(0..3_000)
        } else {
            rng.millis(0..40)
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
                account.record(of.as_deref(), &item);
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
pub(super) async fn hop(bus: DistributedBus, key: String, mut rng: Rng, mut heads: watch::Receiver<Heads>) -> Account {
    let mut account = Account::default();
    loop {
        let mut subscription = bus.subscribe_from(&key, account.last(&key));
        for _ in 0..rng.u64(..40) {
            if is_complete(&account, Some(&key), &heads.borrow_and_update()) {
                return account;
            }
            tokio::select! {
                item = subscription.recv() => account.record(Some(&key), &item.expect("the bus lives")),
                _ = heads.changed() => {}
                () = sleep(rng.millis(1..300)) => break,
            }
        }
        if rng.percent(20) {
            drop(subscription);
            sleep(rng.millis(1..200)).await;
        }
    }
}

/// Comes and goes, starts anywhere, and looks only whether what it gets has no hole that was not announced.
pub(super) async fn visit(bus: DistributedBus, key: String, mut rng: Rng, heads: watch::Receiver<Heads>) {
    let mut highest = 0;
    while heads.borrow().is_none() {
        let (mut options, mut numbers) = match rng.u64(..4) {
            0 => (SubscribeOptions::new().after(0), Sequence::after(0)),
            1 => {
                let after = rng.u64(..highest + 1);
                (SubscribeOptions::new().after(after), Sequence::after(after))
            }
            _ => (SubscribeOptions::new(), Sequence::from_first()),
        };
        if rng.percent(50) {
            options = options.on_slow(OnSlow::Report);
        }
        let is_slow = rng.percent(30);
        let mut subscription = bus.subscribe_with(&key, options);
        if rng.percent(30) {
            continue; // gone before it was ready
        }
        for _ in 0..rng.u64(..30) {
            tokio::select! {
                item = subscription.recv() => record(&mut numbers, &item.expect("the bus lives")),
                () = sleep(rng.millis(1..100)) => break,
            }
            if is_slow {
                sleep(rng.millis(0..100)).await;
            }
        }
        highest = highest.max(numbers.last());
        drop(subscription);
        sleep(Duration::from_millis(rng.u64(..20))).await;
    }
}

/// Reads all streams slowly and wants to be told how much it misses: that and what it gets is all there was.
pub(super) async fn sum_up(mut subscription: BusSubscription, rng: Rng, mut heads: watch::Receiver<Heads>) {
    let mut account = testkit::account::Account::new(Sequence::from_first().holes(Holes::Allowed));
    let mut passed = 0;
    let mut pace = Pace::Slow(rng);
    loop {
        let all = heads.borrow_and_update().as_ref().map(|heads| heads.values().sum());
        let accounted = account.counts().received + passed;
        if all.is_some_and(|all: u64| accounted >= all) {
            assert_eq!(Some(accounted), all, "received and passed over");
            return;
        }
        tokio::select! {
            item = subscription.recv() => match item.expect("the bus lives") {
                BusEvent::Event(event) => {
                    let numbers = account.stream(&event.agent_id);
                    numbers.received(event.seq);
                    numbers.assert_sound(&event.agent_id);
                }
                BusEvent::Lagged(events) => passed += events,
                other => panic!("{other:?} for one that does not read back"),
            },
            _ = heads.changed() => continue,
        }
        pace.rest(&mut heads).await;
    }
}
