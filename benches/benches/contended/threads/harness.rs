//! Publisher and subscriber threads that live for a whole measurement, so that starting and stopping them is not timed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use super::{Channel, Counts, Publisher, Subscriber};
use doorbell_perf::channels::settings::{BURST, CAPACITY, message, sum_of_numbers};

/// How publishers behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// They send [`BURST`] messages together and wait until every subscriber has them. No message may be lost.
    Bursts,
    /// They send as fast as they can.
    FlatOut,
}

impl Pace {
    /// The messages of one round. An iteration is one round.
    pub(crate) fn round(self) -> u64 {
        match self {
            Pace::Bursts => BURST,
            Pace::FlatOut => 4 * CAPACITY as u64,
        }
    }
}

/// The threads of one measurement.
pub(crate) struct Harness {
    shared: Arc<Shared>,
    publishers: Vec<JoinHandle<()>>,
    subscribers: Vec<JoinHandle<Counts>>,
    published: u64,
}

struct Shared {
    pace: Pace,
    publishers: usize,
    subscribers: usize,
    command: Mutex<Command>,
    command_changed: Condvar,
    outcome: Mutex<Outcome>,
    all_completed: Condvar,
    /// How many times a subscriber has finished a round.
    finished: AtomicU64,
    /// The publishers that wait for the end of a round.
    waiting: OnceLock<Vec<Thread>>,
}

/// What the threads do next. The number distinguishes a new command from an old one.
#[derive(Clone, Copy)]
struct Command {
    number: u64,
    rounds: u64,
    stop: bool,
}

/// How many subscribers have completed the command, and when the last one did.
struct Outcome {
    completed: usize,
    at: Instant,
}

impl Harness {
    pub(crate) fn start<C: Channel>(channel: C, publishers: usize, subscribers: usize, pace: Pace) -> Self {
        let shared = Arc::new(Shared {
            pace,
            publishers,
            subscribers,
            command: Mutex::new(Command {
                number: 0,
                rounds: 0,
                stop: false,
            }),
            command_changed: Condvar::new(),
            outcome: Mutex::new(Outcome {
                completed: 0,
                at: Instant::now(),
            }),
            all_completed: Condvar::new(),
            finished: AtomicU64::new(0),
            waiting: OnceLock::new(),
        });
        let (publishing, receiving) = channel.open(publishers, subscribers);
        let subscribers = receiving
            .into_iter()
            .map(|end| spawn(&shared, |shared| subscribe(end, shared)))
            .collect();
        let publishers: Vec<_> = publishing
            .into_iter()
            .enumerate()
            .map(|(index, end)| spawn(&shared, move |shared| publish(end, index, shared)))
            .collect();
        let threads = publishers.iter().map(|publisher| publisher.thread().clone()).collect();
        shared.waiting.set(threads).expect("set once");
        Self {
            shared,
            publishers,
            subscribers,
            published: 0,
        }
    }

    /// The time of `rounds` rounds, from just before the publishers start until the last subscriber has received the last
    /// message or learned that it is lost.
    pub(crate) fn run(&mut self, rounds: u64) -> Duration {
        self.published += rounds * self.shared.pace.round();
        self.shared.outcome().completed = 0;
        let started = Instant::now();
        self.shared.send(rounds, false);
        let mut outcome = self.shared.outcome();
        while outcome.completed < self.shared.subscribers {
            outcome = self
                .shared
                .all_completed
                .wait(outcome)
                .unwrap_or_else(PoisonError::into_inner);
        }
        outcome.at.duration_since(started)
    }

    /// Ends the threads, checks that each subscriber accounts for every message once, and returns the fraction that was lost.
    pub(crate) fn stop(self) -> f64 {
        self.shared.send(0, true);
        for publisher in self.publishers {
            publisher.join().expect("a publisher's thread");
        }
        let deliveries = self.published * self.subscribers.len() as u64;
        let mut lost = 0;
        for subscriber in self.subscribers {
            let counts = subscriber.join().expect("a subscriber's thread");
            assert_eq!(
                counts.position(),
                self.published,
                "messages received or reported as lost"
            );
            if counts.skipped == 0 {
                assert_eq!(counts.sum, sum_of_numbers(0, self.published), "sum of the numbers");
            }
            lost += counts.skipped;
        }
        lost as f64 / deliveries.max(1) as f64
    }
}

impl Shared {
    fn send(&self, rounds: u64, stop: bool) {
        let mut command = self.command.lock().unwrap_or_else(PoisonError::into_inner);
        *command = Command {
            number: command.number + 1,
            rounds,
            stop,
        };
        self.command_changed.notify_all();
    }

    /// Waits for the command after the one with this number.
    fn next_command(&self, number: u64) -> Command {
        let command = self.command.lock().unwrap_or_else(PoisonError::into_inner);
        *self
            .command_changed
            .wait_while(command, |command| command.number == number)
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn outcome(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called by each subscriber that has every message of a round. The last one wakes the publishers.
    fn finish_round(&self) {
        let finished = self.finished.fetch_add(1, Ordering::AcqRel) + 1;
        if finished.is_multiple_of(self.subscribers as u64) {
            for publisher in self.waiting.get().into_iter().flatten() {
                publisher.unpark();
            }
        }
    }

    /// Returns when all subscribers have finished this many rounds.
    fn wait_for_round(&self, rounds: u64) {
        while self.finished.load(Ordering::Acquire) < rounds * self.subscribers as u64 {
            thread::park();
        }
    }
}

fn spawn<R: Send + 'static>(shared: &Arc<Shared>, work: impl FnOnce(&Shared) -> R + Send + 'static) -> JoinHandle<R> {
    let shared = shared.clone();
    thread::spawn(move || work(&shared))
}

/// Publishes every message whose number belongs to this publisher: together they send each number once.
fn publish(mut publisher: impl Publisher, index: usize, shared: &Shared) {
    let share = shared.pace.round() / shared.publishers as u64;
    let mut command = shared.next_command(0);
    let mut number = index as u64;
    let mut round = 0;
    while !command.stop {
        for _ in 0..command.rounds {
            for _ in 0..share {
                publisher.publish(message(number));
                number += shared.publishers as u64;
            }
            round += 1;
            if shared.pace == Pace::Bursts {
                shared.wait_for_round(round);
            }
        }
        command = shared.next_command(command.number);
    }
}

fn subscribe(mut subscriber: impl Subscriber, shared: &Shared) -> Counts {
    let mut counts = Counts::default();
    let mut goal = 0;
    let mut command = shared.next_command(0);
    while !command.stop {
        for _ in 0..command.rounds {
            goal += shared.pace.round();
            while counts.position() < goal {
                subscriber.receive(goal - counts.position(), &mut counts);
            }
            if shared.pace == Pace::Bursts {
                assert_eq!(counts.skipped, 0, "lost by a subscriber of paced publishers");
                shared.finish_round();
            }
        }
        let mut outcome = shared.outcome();
        outcome.completed += 1;
        outcome.at = Instant::now();
        if outcome.completed == shared.subscribers {
            shared.all_completed.notify_one();
        }
        drop(outcome);
        command = shared.next_command(command.number);
    }
    counts
}
