//! A publisher that publishes in every way.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use doorbell::ring::Publisher;
use testkit::random::Rng;

use super::payload::Payload;

/// Events of one batch.
pub(crate) const BATCH: u64 = 16;

/// Publishes until `stop`: bursts longer and shorter than the ring, and pauses in which all subscribers park.
pub(crate) fn publish_until(stop: &AtomicBool, publisher: &Publisher<Payload>, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let longest = 2 * publisher.capacity().max(500) as u64;
    while !stop.load(Ordering::Relaxed) {
        // Publishers are also created and dropped.
        let publisher = publisher.clone();
        for _ in 0..rng.u64(..longest) {
            publish_in_some_way(&publisher, &mut rng);
        }
        thread::sleep(Duration::from_micros(rng.u64(..2_000)));
    }
}

fn publish_in_some_way(publisher: &Publisher<Payload>, rng: &mut Rng) {
    let word = rng.u64(..);
    match rng.u64(..1_000) {
        0 => leave_void(publisher),
        1..50 => {
            let batch: Vec<Payload> = (0..BATCH).map(|at| Payload::new(word ^ at)).collect();
            publisher.publish_batch(batch);
        }
        50..100 => {
            publisher.publish_with(|seq| Payload::new(seq ^ word));
        }
        _ => {
            publisher.publish(Payload::new(word));
        }
    }
}

/// A closure that panics leaves a void sequence number, which readers pass over.
fn leave_void(publisher: &Publisher<Payload>) {
    let publish = || publisher.publish_with(|_| resume_unwind(Box::new("planned")));
    catch_unwind(AssertUnwindSafe(publish)).expect_err("the closure panics");
}
