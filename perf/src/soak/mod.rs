//! `soak`: every way to publish and receive at once, for a chosen time. Fails if an event or a drop is lost, or if memory grows.

mod memory;
mod payload;
mod publish;
mod subscribe;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use doorbell::ring::{self, Publisher};
use tokio::runtime::Runtime;

use self::memory::Memory;
use self::payload::Payload;
use self::subscribe::Tally;
use crate::units::{count, from_one_to, print};

/// Publish and subscribe in every way at once, and check conservation, payloads and memory
///
/// Threads publish in bursts, with pauses, batches and panicking closures; threads and tasks receive by value, by reference
/// and in batches, one of them slowly; others subscribe and unsubscribe all the time.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Duration, in seconds
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    duration: f64,

    /// Publishing threads
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=1000))]
    publishers: u64,

    /// Subscribers of each of the six ways to receive
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=1000))]
    subscribers: u64,

    /// Events that the ring retains
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = from_one_to(1 << 24))]
    capacity: usize,
}

/// How often memory is sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let length = Duration::try_from_secs_f64(options.duration).map_err(|error| format!("--duration: {error}"))?;
    let runtime = Runtime::new().map_err(|error| format!("cannot start a runtime: {error}"))?;
    let (publisher, first) = ring::channel::<Payload>(options.capacity);
    let stop = AtomicBool::new(false);
    let mut memory = Memory::new(length / 5, live_bound(options));
    let tallies = thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut tasks = Vec::new();
        for _ in 0..options.subscribers {
            for way in subscribe::THREADS {
                let subscriber = first.clone();
                threads.push(scope.spawn(move || way(subscriber)));
            }
            tasks.push(runtime.spawn(subscribe::task_by_value(first.clone())));
            tasks.push(runtime.spawn(subscribe::task_in_batches(first.clone())));
            tasks.push(runtime.spawn(subscribe::slow_task(first.clone())));
        }
        drop(first);
        let weak = publisher.downgrade();
        threads.push(scope.spawn(move || subscribe::short_subscriptions(&weak)));
        for seed in 1..=options.publishers {
            let (publisher, stop) = (publisher.clone(), &stop);
            scope.spawn(move || publish::publish_until(stop, &publisher, seed));
        }
        watch(length, &publisher, &mut memory);
        stop.store(true, Ordering::Relaxed);
        drop(publisher);
        const PANICKED: &str = "a subscriber panicked";
        let threads = threads.into_iter().map(|thread| thread.join().expect(PANICKED));
        let tasks = tasks.into_iter().map(|task| runtime.block_on(task).expect(PANICKED));
        threads.chain(tasks).collect::<Vec<Tally>>()
    });
    drop(runtime);
    conclude(&tallies, &memory)
}

/// Payloads that may be alive at once, by clause 7 of `docs/contract.md`: one in each slot; two overflow cells for each slot
/// that a reader has announced or a suspended publisher owns; and what readers and publishers hold.
fn live_bound(options: &Options) -> u64 {
    let capacity = options.capacity as u64;
    let slots = 2 * capacity;
    let in_batches = 2 * options.subscribers;
    let singly = 4 * options.subscribers + 1;
    let announced = in_batches * capacity.min(64) + singly * capacity.div_ceil(8).min(64);
    let owned = options.publishers * publish::BATCH;
    let in_hand = in_batches + singly + options.publishers * (2 * publish::BATCH + 1);
    slots + 2 * slots.min(announced + owned) + in_hand
}

fn watch(length: Duration, publisher: &Publisher<Payload>, memory: &mut Memory) {
    let start = Instant::now();
    let mut lines = 0;
    while start.elapsed() < length {
        thread::sleep(SAMPLE_INTERVAL.min(length.saturating_sub(start.elapsed())));
        memory.sample(start.elapsed());
        let seconds = start.elapsed().as_secs();
        if seconds > lines {
            lines = seconds;
            let stats = publisher.stats();
            print(&format!(
                "{seconds:>6} s  {:>14} published  {:>9} void  {:>3} subscribers  {memory}\n",
                count(stats.published),
                count(stats.void),
                stats.subscribers,
            ));
        }
    }
}

fn conclude(tallies: &[Tally], memory: &Memory) -> Result<(), String> {
    print("\n");
    for tally in tallies {
        print(&format!("{tally}\n"));
    }
    let mut problems: Vec<String> = tallies.iter().flat_map(Tally::problems).collect();
    problems.extend(memory.problems());
    if payload::live() != 0 {
        problems.push(format!("{} payloads were never dropped", payload::live()));
    }
    if problems.is_empty() {
        print("\nevery event accounted for, every payload whole and dropped once, memory flat\n");
        Ok(())
    } else {
        Err(problems.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_soak_finds_nothing() {
        let options = Options {
            duration: 0.5,
            publishers: 2,
            subscribers: 1,
            capacity: 4096,
        };
        run(&options).expect("everything is accounted for");
    }
}
