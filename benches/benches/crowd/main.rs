//! Crowds of subscribers that rest or are slow: what they cost the publisher, and a subscriber that keeps up.
//!
//! ```sh
//! cargo bench --bench crowd                             # all of it, about a minute on 2 cores
//! cargo bench --bench crowd -- at_different_places      # one kind of crowd
//! cargo bench --bench crowd -- references --rounds 15
//! ```
//!
//! `docs/benchmarks.md` says what each figure means.

mod clients;
mod kinds;
mod memory;
mod one_thread;
mod references;
mod worst;

use doorbell_perf::rounds::{Measure, Rounds, Unit};

fn main() {
    let Some(rounds) = Rounds::start("crowd", 7) else {
        return;
    };
    one_thread::compare(&rounds);
    references::compare(&rounds);
    memory::count(&rounds);
    clients::compare(&rounds);
}

const PUBLISH: Measure = measure("publish", Unit::Time);
/// A publish after the laps in which the crowd comes to rest.
const SETTLED: Measure = measure("settled", Unit::Time);
const RECEIVE: Measure = measure("receive", Unit::Time);
const LONGEST: Measure = measure("longest", Unit::Time);
const DELIVERED: Measure = measure("delivered", Unit::Rate);
const LOST: Measure = measure("lost", Unit::Loss);

const fn measure(name: &'static str, unit: Unit) -> Measure {
    Measure { name, unit }
}
