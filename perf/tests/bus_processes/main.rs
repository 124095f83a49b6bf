//! The clustered bus in several processes, which are this program in other roles. It has a `main` of its own, to be able to take them.
//!
//! ```sh
//! cargo test -p doorbell-perf --all-features --test bus_processes               # all tests, the chaos for a minute
//! cargo test -p doorbell-perf --all-features --test bus_processes p04           # those whose names contain a word
//! cargo test -p doorbell-perf --all-features --test bus_processes -- chaos 600 7    # ten minutes of chaos, with seed 7
//! ```

mod idling;
mod killed_publisher;
mod leaving;

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use throwaway_postgres::Server;

use doorbell_perf::chaos::{self, Plan};
use doorbell_perf::child::Child;

/// The chaos of a run of all tests.
const CHAOS: Duration = Duration::from_secs(60);

/// The time between two lines of progress.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// One of these is the name of a test.
const TESTS: &[(&str, fn())] = &[
    (
        "p04_a_publisher_is_killed_between_commit_and_notification",
        killed_publisher::p04_a_publisher_is_killed_between_commit_and_notification,
    ),
    (
        "p16_a_process_that_shuts_down_leaves_nothing_behind",
        leaving::p16_a_process_that_shuts_down_leaves_nothing_behind,
    ),
    (
        "p16_a_process_that_just_ends_leaves_nothing_behind",
        leaving::p16_a_process_that_just_ends_leaves_nothing_behind,
    ),
    (
        "p16_a_process_that_is_killed_leaves_nothing_behind",
        leaving::p16_a_process_that_is_killed_leaves_nothing_behind,
    ),
    (
        "ten_thousand_idle_subscriptions_cost_next_to_nothing",
        idling::ten_thousand_idle_subscriptions_cost_next_to_nothing,
    ),
    ("chaos_loses_nothing", chaos_loses_nothing),
];

fn chaos_loses_nothing() {
    run_chaos(CHAOS, testkit::random::seed());
}

fn run_chaos(duration: Duration, seed: u64) {
    println!("chaos for {duration:?} with seed {seed}");
    let server = Server::builder().setting("max_connections", 200).start().unwrap();
    let plan = Plan::dense(duration, seed);
    let mut next_line = Duration::ZERO;
    let outcome = chaos::run(&plan, &server.url(), Some(&server), |glance| {
        if glance.elapsed >= next_line {
            next_line = glance.elapsed + BETWEEN_LINES;
            let numbers = |children: &[Child]| children.iter().map(Child::id).collect::<Vec<_>>();
            println!(
                "{:.0?}: {} events committed, {} faults; publishers {:?}, subscribers {:?}",
                glance.elapsed,
                glance.committed,
                glance.faults,
                numbers(glance.publishers),
                numbers(glance.subscribers),
            );
        }
    });
    println!(
        "{}",
        outcome.unwrap_or_else(|failure| panic!("with seed {seed}: {failure}"))
    );
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if chaos::run_child(&words) {
        return ExitCode::SUCCESS;
    }
    match words[..] {
        ["child", "slow-notifier", url] => killed_publisher::slow_notifier(url),
        ["child", "idler", url] => idling::idler(url),
        ["child", "leaver", url, how] => leaving::leaver(url, how),
        ["chaos", seconds] => run_chaos(Duration::from_secs(number(seconds)), testkit::random::seed()),
        ["chaos", seconds, seed] => run_chaos(Duration::from_secs(number(seconds)), number(seed)),
        _ => return run_tests(&words),
    }
    ExitCode::SUCCESS
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is not a number"))
}

/// Runs the tests whose names contain one of the words, all without any, as the usual harness does; its flags are passed over.
fn run_tests(words: &[&str]) -> ExitCode {
    let filters: Vec<&str> = words.iter().filter(|word| !word.starts_with('-')).copied().collect();
    let chosen = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter));
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in TESTS.iter().filter(|(name, _)| chosen(name)) {
        let begun = Instant::now();
        let ok = catch_unwind(test).is_ok();
        println!(
            "test {name} ... {} ({:.1?})",
            if ok { "ok" } else { "FAILED" },
            begun.elapsed()
        );
        passed += usize::from(ok);
        failed += usize::from(!ok);
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {result}. {passed} passed; {failed} failed; 0 ignored");
    ExitCode::from(u8::from(failed > 0))
}
