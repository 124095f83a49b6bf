//! Random sequences of operations on one thread, compared with a plain sequential reference that predicts every result.
//!
//! More cases or other seeds: `PROPTEST_CASES=20000 PROPTEST_RNG_SEED=7 cargo test --test reference_model`.

#[path = "reference_model/claiming.rs"]
mod claiming;
#[path = "reference_model/harness.rs"]
mod harness;
#[path = "reference_model/held.rs"]
mod held;
#[path = "reference_model/model.rs"]
mod model;
#[path = "reference_model/ops.rs"]
mod ops;
#[path = "reference_model/receive.rs"]
mod receive;

use proptest::test_runner::{Config, RngSeed, TestRunner};

use crate::harness::Harness;
use crate::ops::script;

/// The same cases in every run, unless the environment sets others.
fn config(cases: u32) -> Config {
    let mut config = Config::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
        config.rng_seed = RngSeed::Fixed(1);
    }
    config.failure_persistence = None;
    config
}

fn check(one_publisher: bool) {
    let outcome = TestRunner::new(config(1_500)).run(&script(one_publisher), |script| {
        Harness::run_script(&script);
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

#[test]
fn many_publishers_match_the_reference() {
    check(false);
}

#[test]
fn one_publisher_matches_the_reference() {
    check(true);
}
