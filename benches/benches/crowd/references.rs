//! `Ref`s held on every slot of the ring: what they cost the publisher, another subscriber, and in memory.

use std::sync::atomic::{AtomicU64, Ordering};

use doorbell::ring::{Start, Subscriber, channel};
use doorbell_perf::bench;
use doorbell_perf::bench::is_measuring;
use doorbell_perf::channels::settings::{CAPACITY, Message, message};
use doorbell_perf::rounds::{Contender, Rounds};

use super::one_thread::{Times, pinned};
use super::{LONGEST, PUBLISH, RECEIVE, SETTLED};

/// A ring has at most two slots for an event retained (contract, C7.1).
const SLOTS: usize = 2 * CAPACITY;

pub(crate) fn compare(rounds: &Rounds) {
    let contender =
        |candidate, held| Contender::new("references", candidate, move || pinned(|| measure(held, message).0));
    let outcomes = rounds.compare(
        [PUBLISH, SETTLED, RECEIVE, LONGEST],
        &[
            contender("doorbell", SLOTS),
            contender("doorbell_beside_one", 1),
            contender("doorbell_beside_none", 0),
        ],
    );
    if !outcomes.is_empty() {
        let alive = measure(SLOTS, Counted::new).1;
        // Slots, and two overflow cells for each that is pinned (contract, C7.2), where an announcement pins up to 64.
        let bound = (3 * SLOTS + 64) as u64;
        assert!(alive <= bound, "{alive} events in memory");
        bench::remark(
            "crowd/references_publish/doorbell",
            &format!("{alive} events in memory at most, of {bound} allowed; {CAPACITY} retained, {SLOTS} held"),
        );
    }
}

/// Publishes and receives while this many references are held, each to another event. Returns what both took, and the largest
/// number of [`Counted`] in memory.
fn measure<T: Clone + Send + Sync + 'static>(held: usize, make: impl Fn(u64) -> T) -> ([f64; 4], u64) {
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
    let mut most_alive = 0;
    for number in 0..u64::from(events) {
        let event = make(number);
        let published = times.publish(|| publisher.publish(event));
        let received = times.receive(published, || healthy.try_recv());
        assert!(received.is_ok(), "the event just published");
        most_alive = most_alive.max(ALIVE.load(Ordering::Relaxed));
    }
    drop(references);
    (times.each(), most_alive)
}

/// The number of [`Counted`] in memory.
static ALIVE: AtomicU64 = AtomicU64::new(0);

/// A message that is counted while it exists.
struct Counted(Message);

impl Counted {
    fn new(number: u64) -> Self {
        ALIVE.fetch_add(1, Ordering::Relaxed);
        Self(message(number))
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Self::new(self.0[0])
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::Relaxed);
    }
}
