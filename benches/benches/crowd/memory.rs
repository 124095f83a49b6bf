//! Events in memory beside `Ref`s held on every slot, and beside subscribers that have drained the ring.

use std::sync::atomic::{AtomicU64, Ordering};

use doorbell::ring::{TryRecvError, channel};
use doorbell_perf::bench;
use doorbell_perf::bench::is_measuring;
use doorbell_perf::channels::settings::{CAPACITY, Message, message};
use doorbell_perf::rounds::Rounds;

use super::references::{self, SLOTS};

/// Announced intervals have at most this many events (contract, C7.2).
const INTERVAL: usize = 64;

/// Counts once, since the numbers do not vary; remarks them beside the times of the same crowds.
pub(crate) fn count(rounds: &Rounds) {
    let wants = |work| {
        ["", "_publish"]
            .iter()
            .any(|measure| rounds.allows(&format!("crowd/{work}{measure}/doorbell")))
    };
    if wants("references") {
        let mut most = 0;
        references::measure(SLOTS, Counted::new, || most = most.max(alive()));
        // Slots, and two overflow cells for each.
        remark("references_publish", most, 3 * SLOTS + INTERVAL);
    }
    if wants("drained_1000") {
        // They have announced the same interval, until it is revoked.
        remark("drained_1000_publish", beside_drained(1_000), SLOTS + 3 * INTERVAL);
    }
}

fn remark(work: &str, most: u64, bound: usize) {
    assert!(most <= bound as u64, "{most} events in memory with {work}");
    bench::remark(
        &format!("crowd/{work}/doorbell"),
        &format!("at most {most} events in memory, of {bound} allowed; {CAPACITY} are retained"),
    );
}

/// The largest number of events in memory beside this many drained subscribers.
fn beside_drained(size: usize) -> u64 {
    let (publisher, mut first) = channel(CAPACITY);
    let mut crowd: Vec<_> = (0..size).map(|_| publisher.subscribe()).collect();
    for number in 0..INTERVAL as u64 / 2 {
        publisher.publish(Counted::new(number));
    }
    for subscriber in crowd.iter_mut().chain([&mut first]) {
        while subscriber.try_recv().is_ok() {}
        assert!(matches!(subscriber.try_recv(), Err(TryRecvError::Empty)), "drained");
    }
    let mut most = 0;
    for number in 0..if is_measuring() { 40_000 } else { 4_000 } {
        publisher.publish(Counted::new(number));
        most = most.max(alive());
    }
    most
}

/// The number of [`Counted`] in memory.
static ALIVE: AtomicU64 = AtomicU64::new(0);

fn alive() -> u64 {
    ALIVE.load(Ordering::Relaxed)
}

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
