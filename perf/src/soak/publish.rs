//! A publisher that publishes in every way.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use doorbell::ring::Publisher;

use super::payload::Payload;

/// Events of one batch.
pub(crate) const BATCH: u64 = 16;

/// Publishes until `stop`: bursts longer and shorter than the ring, and pauses in which all subscribers park.
pub(crate) fn publish_until(stop: &AtomicBool, publisher: &Publisher<Payload>, seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let longest = 2 * publisher.capacity().max(500) as u64;
    while !stop.load(Ordering::Relaxed) {
        // Publishers are also created and dropped.
        let publisher = publisher.clone();
        for _ in 0..dice.below(longest) {
            publish_somehow(&publisher, &mut dice);
        }
        thread::sleep(Duration::from_micros(dice.below(2_000)));
    }
}

fn publish_somehow(publisher: &Publisher<Payload>, dice: &mut Dice) {
    let word = dice.next();
    match dice.below(1_000) {
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

/// xorshift64, with a fixed seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}
