//! The subscriptions of a subscriber process. Each panics, and so ends the process, at the first unexpected item.

use std::collections::BTreeMap;
use std::time::Duration;

use doorbell::bus::{BusEvent, BusSubscription, DistributedBus, OnSlow, SubscribeOptions};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::account::{Account, record};
use testkit::account::{Holes, Sequence};
use testkit::random::{Rng, RngExt as _};

/// The last number of each stream; `None` until all publishers have ended.
pub(super) type Heads = Option<BTreeMap<String, u64>>;

/// How a subscriber reads.
pub(super) enum Pace {
    /// As fast as it can. It must not miss anything.
    Fast,
    /// More slowly than events are published, until the heads are known.
    Slow(Rng),
}

impl Pace {
    /// Pauses after an item, unless the heads are known.
    async fn pause(&mut self, heads: &mut watch::Receiver<Heads>) {
        let Self::Slow(rng) = self else { return };
        if heads.borrow().is_some() {
            return;
        }
        let length = if rng.percent(1) {
            rng.millis(0..3_000)
        } else {
            rng.millis(0..40)
        };
        tokio::select! {
            () = sleep(length) => {}
            _ = heads.changed() => {}
        }
    }
}

/// Keeps one subscription, to one stream or to all, from the first event to the last.
pub(super) async fn follow(
    bus: DistributedBus,
    mut subscription: BusSubscription,
    of: Option<String>,
    mut pace: Pace,
    mut heads: watch::Receiver<Heads>,
) -> Account {
    let mut account = Account::default();
    let mut received = Instant::now();
    loop {
        if is_complete(&account, of.as_deref(), &heads.borrow_and_update()) {
            return account;
        }
        tokio::select! {
            item = subscription.recv() => {
                let item = item.expect("the bus is running");
                account.record(of.as_deref(), &item);
                if let Pace::Fast = pace {
                    assert!(
                        matches!(item, BusEvent::Event(_)),
                        "a fast subscription got {item:?}, {:.1?} after the item before; the bus: {:?}, {:?}",
                        received.elapsed(),
                        bus.health(),
                        bus.stats(),
                    );
                    received = Instant::now();
                }
                pace.pause(&mut heads).await;
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

/// Repeatedly subscribes where it stopped, receives some events, and unsubscribes.
pub(super) async fn resume_repeatedly(
    bus: DistributedBus,
    key: String,
    mut rng: Rng,
    mut heads: watch::Receiver<Heads>,
) -> Account {
    let mut account = Account::default();
    loop {
        let mut subscription = bus.subscribe_from(&key, account.last(&key));
        for _ in 0..rng.u64(..40) {
            if is_complete(&account, Some(&key), &heads.borrow_and_update()) {
                return account;
            }
            tokio::select! {
                item = subscription.recv() => account.record(Some(&key), &item.expect("the bus is running")),
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

/// Repeatedly subscribes, with random starts and options. Checks only that the items of each subscription have no unannounced hole.
pub(super) async fn subscribe_anywhere(bus: DistributedBus, key: String, mut rng: Rng, heads: watch::Receiver<Heads>) {
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
            continue; // dropped before it is ready
        }
        for _ in 0..rng.u64(..30) {
            tokio::select! {
                item = subscription.recv() => record(&mut numbers, &item.expect("the bus is running")),
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

/// Reads all streams slowly and skips ahead when it lags: received and skipped events must add up to all.
pub(super) async fn count_lags(mut subscription: BusSubscription, rng: Rng, mut heads: watch::Receiver<Heads>) {
    let mut account = testkit::account::Account::new(Sequence::from_first().holes(Holes::Allowed));
    let mut skipped = 0;
    let mut pace = Pace::Slow(rng);
    loop {
        let all = heads.borrow_and_update().as_ref().map(|heads| heads.values().sum());
        let accounted = account.counts().received + skipped;
        if all.is_some_and(|all: u64| accounted >= all) {
            assert_eq!(Some(accounted), all, "received and skipped");
            return;
        }
        tokio::select! {
            item = subscription.recv() => match item.expect("the bus is running") {
                BusEvent::Event(event) => {
                    let numbers = account.stream(&event.agent_id);
                    numbers.received(event.seq);
                    numbers.assert_sound(&event.agent_id);
                }
                BusEvent::Lagged(events) => skipped += events,
                other => panic!("a subscription that skips ahead got {other:?}"),
            },
            _ = heads.changed() => continue,
        }
        pace.pause(&mut heads).await;
    }
}
