//! One round: a paced publisher, its subscribers, and the histograms.

use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use tokio::runtime::Runtime;

use doorbell_perf::channels::lossy::{Received, Wait};
use doorbell_perf::latencies::Latencies;

/// The second word of a message.
const WARM_UP: u64 = 0;
const COUNTED: u64 = 1;

/// How subscribers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Receivers {
    /// A thread each, which blocks
    Threads,
    /// A tokio task each, on a runtime with a worker per core
    Tasks,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) receivers: Receivers,
    pub(crate) subscribers: usize,
    /// Messages per second.
    pub(crate) rate: u64,
    pub(crate) capacity: usize,
    pub(crate) length: Duration,
}

/// The result of one or several rounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measurement {
    /// Nanoseconds from due to received.
    pub(crate) latency: Latencies,
    /// Nanoseconds from due to published: what the harness itself adds to every latency.
    pub(crate) lateness: Latencies,
    pub(crate) lost: u64,
}

impl Measurement {
    pub(crate) fn add(&mut self, other: Self) {
        self.latency += &other.latency;
        self.lateness += &other.lateness;
        self.lost += other.lost;
    }
}

/// Measures one round.
pub(crate) fn round<C: Wait>(setting: Setting) -> Measurement {
    let (mut publisher, subscribers) = C::open(setting.capacity, setting.subscribers);
    let epoch = Instant::now();
    let team = Subscribers::start::<C>(setting, subscribers, epoch);
    let mut sum = Measurement::default();
    publish::<C>(&mut publisher, setting, epoch, &mut sum.lateness);
    drop(publisher);
    for part in team.join() {
        sum.add(part);
    }
    sum
}

fn publish<C: Wait>(publisher: &mut C::Publisher, setting: Setting, epoch: Instant, lateness: &mut Latencies) {
    let messages = setting.length.as_nanos() * u128::from(setting.rate) / 1_000_000_000;
    let warm_up = messages / 10;
    let start = Instant::now();
    for message in 0..messages {
        // Computed from the start, so that a late message does not delay later ones.
        let due = start + Duration::from_nanos((message * 1_000_000_000 / u128::from(setting.rate)) as u64);
        wait_until(due);
        lateness.record(due.elapsed());
        let counted = if message < warm_up { WARM_UP } else { COUNTED };
        C::publish(publisher, [(due - epoch).as_nanos() as u64, counted, 0, 0]);
    }
}

/// Sleeps, then spins for the rest, because a sleeping thread wakes late.
fn wait_until(due: Instant) {
    const OVERSLEEP: Duration = Duration::from_micros(150);
    loop {
        let left = due.saturating_duration_since(Instant::now());
        match left.checked_sub(OVERSLEEP) {
            _ if left.is_zero() => return,
            Some(sleep) if !sleep.is_zero() => thread::sleep(sleep),
            _ => thread::yield_now(),
        }
    }
}

/// The subscribers of a round, running.
enum Subscribers {
    Threads(Vec<thread::JoinHandle<Measurement>>),
    Tasks(Runtime, Vec<tokio::task::JoinHandle<Measurement>>),
}

impl Subscribers {
    fn start<C: Wait>(setting: Setting, subscribers: Vec<C::Subscriber>, epoch: Instant) -> Self {
        let subscribers = subscribers.into_iter();
        match setting.receivers {
            Receivers::Threads => {
                let start = |subscriber| thread::spawn(move || follow_blocking::<C>(subscriber, epoch));
                Self::Threads(subscribers.map(start).collect())
            }
            Receivers::Tasks => {
                let runtime = Runtime::new().expect("a runtime starts");
                let start = |subscriber| runtime.spawn(follow::<C>(subscriber, epoch));
                let tasks = subscribers.map(start).collect();
                Self::Tasks(runtime, tasks)
            }
        }
    }

    fn join(self) -> Vec<Measurement> {
        const PANICKED: &str = "a subscriber panicked";
        match self {
            Self::Threads(threads) => threads
                .into_iter()
                .map(|thread| thread.join().expect(PANICKED))
                .collect(),
            Self::Tasks(runtime, tasks) => tasks
                .into_iter()
                .map(|task| runtime.block_on(task).expect(PANICKED))
                .collect(),
        }
    }
}

fn follow_blocking<C: Wait>(mut subscriber: C::Subscriber, epoch: Instant) -> Measurement {
    let mut part = Measurement::default();
    while count(C::receive_blocking(&mut subscriber), epoch, &mut part) {}
    part
}

async fn follow<C: Wait>(mut subscriber: C::Subscriber, epoch: Instant) -> Measurement {
    let mut part = Measurement::default();
    while count(C::receive(&mut subscriber).await, epoch, &mut part) {}
    part
}

/// Returns false once the channel is closed.
fn count(received: Received, epoch: Instant, part: &mut Measurement) -> bool {
    match received {
        Received::Message([due, COUNTED, ..]) => {
            let latency = epoch.elapsed().saturating_sub(Duration::from_nanos(due));
            part.latency.record(latency);
        }
        Received::Message(_) | Received::Empty => {}
        Received::Lost(messages) => part.lost += messages,
        Received::Closed => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use doorbell_perf::channels::lossy::{Doorbell, Tokio};

    use super::*;

    #[test]
    fn every_message_after_the_warm_up_is_measured() {
        for receivers in [Receivers::Threads, Receivers::Tasks] {
            let length = Duration::from_millis(20);
            let setting = Setting {
                receivers,
                subscribers: 3,
                rate: 10_000,
                capacity: 256,
                length,
            };
            for measurement in [round::<Doorbell>(setting), round::<Tokio>(setting)] {
                assert_eq!(measurement.lateness.count(), 200);
                assert_eq!((measurement.latency.count(), measurement.lost), (3 * 180, 0));
            }
        }
    }
}
