//! `Ref`s held on every slot of the ring: what they cost the publisher and another subscriber.

use doorbell::ring::{Start, Subscriber, channel};
use doorbell_perf::bench::is_measuring;
use doorbell_perf::channels::settings::{CAPACITY, message};
use doorbell_perf::rounds::{Contender, Rounds};

use super::one_thread::{Times, pinned};
use super::{LONGEST, PUBLISH, RECEIVE, SETTLED};

/// A ring has at most two slots for an event retained (contract, C7.1).
pub(crate) const SLOTS: usize = 2 * CAPACITY;

pub(crate) fn compare(rounds: &Rounds) {
    let contender = |candidate, held| {
        Contender::new("references", candidate, move || {
            pinned(|| measure(held, message, || {}))
        })
    };
    rounds.compare(
        [PUBLISH, SETTLED, RECEIVE, LONGEST],
        &[
            contender("doorbell", SLOTS),
            contender("doorbell_beside_one", 1),
            contender("doorbell_beside_none", 0),
        ],
    );
}

/// Publishes and receives while this many references are held, each to another event. `check` is called after each receive.
pub(crate) fn measure<T>(held: usize, make: impl Fn(u64) -> T, mut check: impl FnMut()) -> [f64; 4]
where
    T: Clone + Send + Sync + 'static,
{
    let events = if is_measuring() { 40_000 } else { 4_000 };
    let (publisher, mut healthy) = channel(CAPACITY);
    let mut exchange = |number| {
        publisher.publish(make(number));
        assert!(healthy.try_recv().is_ok(), "the event just published");
    };
    (0..SLOTS as u64).for_each(&mut exchange);
    let next = publisher.next_seq();
    let mut holders: Vec<Subscriber<T>> = (0..held as u64)
        .map(|place| publisher.subscribe_from(Start::After(next + place - 1)))
        .collect();
    let mut references = Vec::with_capacity(held);
    for (number, holder) in holders.iter_mut().enumerate() {
        exchange(number as u64);
        references.push(holder.try_recv_ref().expect("the event just published"));
    }
    // One lap in which publishers find every slot held.
    (0..SLOTS as u64).for_each(&mut exchange);
    let mut times = Times::new(events);
    for number in 0..u64::from(events) {
        let event = make(number);
        let published = times.publish(|| publisher.publish(event));
        let received = times.receive(published, || healthy.try_recv());
        assert!(received.is_ok(), "the event just published");
        check();
    }
    drop(references);
    times.each()
}
