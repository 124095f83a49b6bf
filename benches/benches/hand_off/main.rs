//! The hand-off between two cores: one-way latency, publishing flat out, and subscribers that keep up; each thread pinned, each
//! loss counted.
//!
//! ```sh
//! cargo bench --bench hand_off                        # all of it, about a minute and a half on 2 cores
//! cargo bench --bench hand_off -- one_way             # one group of works
//! cargo bench --bench hand_off -- flat_out --rounds 25
//! ```
//!
//! `docs/benchmarks.md` says what each figure means.

mod current_thread_runtime;
mod flat_out;
mod keep_up;
mod one_thread;
mod one_way;

use std::time::Duration;

use doorbell_perf::bench::is_measuring;
use doorbell_perf::rounds::{Measure, Rounds, Unit};

fn main() {
    let Some(rounds) = Rounds::start("hand_off", 9) else {
        return;
    };
    one_way::compare(&rounds);
    flat_out::compare(&rounds);
    keep_up::compare(&rounds);
    one_thread::compare(&rounds);
}

const TIME: Measure = measure("", Unit::Time);
const PUBLISH: Measure = measure("publish", Unit::Time);
const RECEIVE: Measure = measure("receive", Unit::Time);
const DELIVERED: Measure = measure("delivered", Unit::Rate);
const LOST: Measure = measure("lost", Unit::Loss);

const fn measure(name: &'static str, unit: Unit) -> Measure {
    Measure { name, unit }
}

/// The length of a measurement, or almost none where nothing is measured.
fn length(milliseconds: u64) -> Duration {
    if is_measuring() {
        Duration::from_millis(milliseconds)
    } else {
        Duration::from_millis(1)
    }
}
