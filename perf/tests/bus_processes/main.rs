//! The clustered bus in several processes. They are this program in other roles, so it defines its own `main`.
//!
//! ```sh
//! cargo test -p doorbell-perf --all-features --test bus_processes               # all tests, chaos for one minute
//! cargo test -p doorbell-perf --all-features --test bus_processes p04           # tests whose names contain a word
//! cargo test -p doorbell-perf --all-features --test bus_processes -- chaos 600 7    # ten minutes of chaos, with seed 7
//! ```

mod idle_subscriptions;
mod killed_publisher;
mod process_exit;

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use doorbell_perf::chaos::{self, Plan, Servers};
use doorbell_perf::child::Child;

/// How long `chaos_loses_nothing` takes.
const CHAOS: Duration = Duration::from_secs(60);

/// The time between two progress lines.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// Names and functions of the tests.
const TESTS: &[(&str, fn())] = &[
    (
        "p04_a_publisher_is_killed_between_commit_and_notification",
        killed_publisher::p04_a_publisher_is_killed_between_commit_and_notification,
    ),
    (
        "p16_a_process_that_shuts_down_leaves_nothing_behind",
        process_exit::p16_a_process_that_shuts_down_leaves_nothing_behind,
    ),
    (
        "p16_a_process_that_just_ends_leaves_nothing_behind",
        process_exit::p16_a_process_that_just_ends_leaves_nothing_behind,
    ),
    (
        "p16_a_process_that_is_killed_leaves_nothing_behind",
        process_exit::p16_a_process_that_is_killed_leaves_nothing_behind,
    ),
    (
        "ten_thousand_idle_subscriptions_cost_next_to_nothing",
        idle_subscriptions::ten_thousand_idle_subscriptions_cost_next_to_nothing,
    ),
    ("chaos_loses_nothing", chaos_loses_nothing),
];

fn chaos_loses_nothing() {
    run_chaos(CHAOS, testkit::random::seed());
}

fn run_chaos(duration: Duration, seed: u64) {
    println!("chaos for {duration:?} with seed {seed}");
    let mut servers = Servers::start().unwrap();
    let plan = Plan::dense(duration, seed);
    let mut next_line = Duration::ZERO;
    let outcome = chaos::run(&plan, &servers.url(), Some(&mut servers), |progress| {
        if progress.elapsed >= next_line {
            next_line = progress.elapsed + BETWEEN_LINES;
            let ids = |children: &[Child]| children.iter().map(Child::id).collect::<Vec<_>>();
            println!(
                "{:.0?}: {} events committed, {} faults; publishers {:?}, subscribers {:?}",
                progress.elapsed,
                progress.committed,
                progress.faults,
                ids(progress.publishers),
                ids(progress.subscribers),
            );
        }
    });
    let outcome = outcome.unwrap_or_else(|failure| panic!("with seed {seed}: {failure}"));
    println!("{outcome}");
    assert!(
        outcome.trimmed > 0 || duration < CHAOS,
        "retention removed nothing, so no `Gap` was tested"
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
        ["child", "idle-subscriber", url] => idle_subscriptions::idle_subscriber(url),
        ["child", "subscriber-until-exit", url, exit] => process_exit::subscriber(url, exit),
        ["chaos", seconds] => run_chaos(Duration::from_secs(number(seconds)), testkit::random::seed()),
        ["chaos", seconds, seed] => run_chaos(Duration::from_secs(number(seconds)), number(seed)),
        _ => return run_tests(&words),
    }
    ExitCode::SUCCESS
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is not a number"))
}

/// Runs the tests whose names contain one of the words, or all without words. Like the standard harness, but ignores its flags.
fn run_tests(words: &[&str]) -> ExitCode {
    let filters: Vec<&str> = words.iter().filter(|word| !word.starts_with('-')).copied().collect();
    let selected = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter));
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in TESTS.iter().filter(|(name, _)| selected(name)) {
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
