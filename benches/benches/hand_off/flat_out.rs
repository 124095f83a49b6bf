//! Publishers that never pause: what a publish takes, how many events arrive, and how many are lost.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use doorbell::ring::{Subscriber, TryRecvError};
use doorbell_perf::bench::is_measuring;
use doorbell_perf::channels::lossy::{Channel, Doorbell, DropIn, PhotonMulti, PhotonSingle, Received, Tokio, Wait};
use doorbell_perf::channels::settings::{BATCH, CAPACITY, Message, message};
use doorbell_perf::pin::pin;
use doorbell_perf::rounds::{Contender, Rounds, figure};

use super::{DELIVERED, LOST, PUBLISH, length};

pub(crate) fn compare(rounds: &Rounds) {
    let contender = |candidate, run: fn() -> [f64; 3]| Contender::new("flat_out", candidate, run);
    rounds.compare(
        [PUBLISH, DELIVERED, LOST],
        &[
            contender("doorbell", || one_to_one::<Doorbell>(spin::<Doorbell>)),
            contender("doorbell_batch", || one_to_one::<Doorbell>(spin_batch)),
            contender("drop_in", || one_to_one::<DropIn>(spin::<DropIn>)),
            contender("tokio", || one_to_one::<Tokio>(spin::<Tokio>)),
            contender("photon_mp", || one_to_one::<PhotonMulti>(spin::<PhotonMulti>)),
            contender("photon_sp", || one_to_one::<PhotonSingle>(spin::<PhotonSingle>)),
        ],
    );
    for (publishers, subscribers) in [(1, 2), (2, 2), (4, 4)] {
        let shape = Shape {
            publishers,
            subscribers,
        };
        rounds.compare(
            [PUBLISH, DELIVERED, LOST],
            &[
                shape.contender::<Doorbell>("spinning", "doorbell", spin::<Doorbell>),
                shape.contender::<DropIn>("spinning", "drop_in", spin::<DropIn>),
                shape.contender::<Tokio>("spinning", "tokio", spin::<Tokio>),
                shape.contender::<PhotonMulti>("spinning", "photon_mp", spin::<PhotonMulti>),
                shape.contender::<Doorbell>("yielding", "doorbell", yielding::<Doorbell>),
                shape.contender::<DropIn>("yielding", "drop_in", yielding::<DropIn>),
                shape.contender::<Tokio>("yielding", "tokio", yielding::<Tokio>),
                shape.contender::<PhotonMulti>("yielding", "photon_mp", yielding::<PhotonMulti>),
                shape.contender::<Doorbell>("blocking", "doorbell", blocking::<Doorbell>),
                shape.contender::<DropIn>("blocking", "drop_in", blocking::<DropIn>),
                shape.contender::<Tokio>("blocking", "tokio", blocking::<Tokio>),
            ],
        );
    }
}

/// How many publish and subscribe.
#[derive(Clone, Copy)]
struct Shape {
    publishers: usize,
    subscribers: usize,
}

impl Shape {
    fn contender<C>(self, wait: &str, candidate: &'static str, step: impl Step<C>) -> Contender<'static, 3>
    where
        C: Channel<Publisher: Clone>,
    {
        let Self {
            publishers,
            subscribers,
        } = self;
        let work = format!("flat_out_{publishers}_to_{subscribers}_{wait}");
        Contender::new(work, candidate, move || {
            let (publisher, subscribing) = C::open(CAPACITY, subscribers);
            run::<C>(vec![publisher; publishers], subscribing, Runs::one(), step)
        })
    }
}

fn one_to_one<C: Channel>(step: impl Step<C>) -> [f64; 3] {
    let (publisher, subscribing) = C::open(CAPACITY, 1);
    run::<C>(vec![publisher], subscribing, Runs::short(), step)
}

/// A receive, and what to do when there is nothing.
trait Step<C: Channel>: Fn(&mut C::Subscriber, &mut Counts) -> State + Copy + Send + 'static {}

impl<C: Channel, F: Fn(&mut C::Subscriber, &mut Counts) -> State + Copy + Send + 'static> Step<C> for F {}

enum State {
    /// There may be more.
    Busy,
    Empty,
    Closed,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    received: u64,
    lost: u64,
    /// Messages whose number is not the next one of a single publisher.
    out_of_order: u64,
}

impl Counts {
    #[inline]
    fn receive(&mut self, message: &Message) {
        self.out_of_order += u64::from(message[0] != self.received + self.lost);
        self.received += 1;
    }

    #[inline]
    fn add(&mut self, received: &Received) -> State {
        match received {
            Received::Message(message) => self.receive(message),
            Received::Lost(lost) => self.lost += lost,
            Received::Empty => return State::Empty,
            Received::Closed => return State::Closed,
        }
        State::Busy
    }
}

/// How long publishers publish. Runs of a millisecond or two are rarely interrupted by the scheduler.
#[derive(Clone, Copy)]
struct Runs {
    count: usize,
    length: Duration,
}

impl Runs {
    fn short() -> Self {
        Self {
            count: if is_measuring() { 60 } else { 2 },
            length: length(2),
        }
    }

    /// For subscribers that block, which cannot tell the end of a run from a pause.
    fn one() -> Self {
        Self {
            count: 1,
            length: length(150),
        }
    }
}

/// Returns nanoseconds per publish, nanoseconds per delivery, and the fraction lost: medians of the runs.
fn run<C: Channel>(
    publishers: Vec<C::Publisher>,
    subscribers: Vec<C::Subscriber>,
    runs: Runs,
    step: impl Step<C>,
) -> [f64; 3] {
    let first_subscriber = publishers.len();
    let start = Start::new(publishers.len() + subscribers.len());
    // How often a publisher has finished a run.
    let finished = AtomicUsize::new(0);
    let (start, finished) = (&start, &finished);
    thread::scope(|scope| {
        let publish = |(index, mut publisher)| {
            scope.spawn(move || {
                pin(index);
                let mut number = 0;
                let publish_once = |run| {
                    start.wait(run);
                    let (started, first) = (Instant::now(), number);
                    while started.elapsed() < runs.length {
                        for _ in 0..64 {
                            C::publish(&mut publisher, message(number));
                            number += 1;
                        }
                    }
                    let elapsed = started.elapsed();
                    finished.fetch_add(1, Ordering::Release);
                    (number - first, elapsed)
                };
                (0..runs.count).map(publish_once).collect::<Vec<_>>()
            })
        };
        let publishers: Vec<_> = publishers.into_iter().enumerate().map(publish).collect();
        let subscribe = |(index, mut subscriber)| {
            scope.spawn(move || {
                pin(first_subscriber + index);
                let mut counts = Counts::default();
                let receive_all = |run| {
                    start.wait(run);
                    loop {
                        // Read before the channel is found empty, so that nothing is published afterwards.
                        let is_over = finished.load(Ordering::Acquire) == (run + 1) * first_subscriber;
                        match step(&mut subscriber, &mut counts) {
                            State::Busy => {}
                            State::Empty if !is_over => {}
                            State::Empty | State::Closed => return counts,
                        }
                    }
                };
                (0..runs.count).map(receive_all).collect::<Vec<_>>()
            })
        };
        let subscribers: Vec<_> = subscribers.into_iter().enumerate().map(subscribe).collect();
        let published: Vec<_> = publishers
            .into_iter()
            .map(|publisher| publisher.join().expect("a publisher's thread"))
            .collect();
        let counts: Vec<_> = subscribers
            .into_iter()
            .map(|subscriber| subscriber.join().expect("a subscriber's thread"))
            .collect();
        medians(&published, &counts)
    })
}

/// The medians of the runs. What publishers published is given for each run, what subscribers received up to its end.
fn medians(published: &[Vec<(u64, Duration)>], counts: &[Vec<Counts>]) -> [f64; 3] {
    let (mut total, mut before) = (0, vec![Counts::default(); counts.len()]);
    let (mut publish, mut delivered, mut losses) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..published[0].len() {
        let events: u64 = published.iter().map(|runs| runs[run].0).sum();
        let elapsed = published.iter().map(|runs| runs[run].1).max().unwrap_or_default();
        total += events;
        let (mut received, mut lost) = (0, 0);
        for (counts, before) in counts.iter().map(|runs| runs[run]).zip(&mut before) {
            assert_eq!(
                counts.received + counts.lost,
                total,
                "messages received or reported as lost"
            );
            if published.len() == 1 {
                assert_eq!(counts.out_of_order, 0, "messages repeated or out of order");
            }
            received += counts.received - before.received;
            lost += counts.lost - before.lost;
            *before = counts;
        }
        let elapsed = elapsed.as_nanos() as f64;
        publish.push(elapsed / events as f64);
        delivered.push(elapsed / received as f64);
        losses.push(lost as f64 / (lost + received) as f64);
    }
    [publish, delivered, losses].map(|samples| figure(samples).median)
}

/// Lets threads begin a run at the same moment.
struct Start {
    barrier: Barrier,
    threads: usize,
    /// How many threads have begun, in all runs.
    ready: AtomicUsize,
}

impl Start {
    fn new(threads: usize) -> Self {
        Self {
            barrier: Barrier::new(threads),
            threads,
            ready: AtomicUsize::new(0),
        }
    }

    fn wait(&self, run: usize) {
        // Threads that have slept begin with a whole time slice.
        self.barrier.wait();
        self.ready.fetch_add(1, Ordering::Relaxed);
        while self.ready.load(Ordering::Relaxed) < (run + 1) * self.threads {
            // Others may need this core.
            thread::yield_now();
        }
    }
}

#[inline]
fn spin<C: Channel>(subscriber: &mut C::Subscriber, counts: &mut Counts) -> State {
    counts.add(&C::try_receive(subscriber))
}

/// Batches of up to 64, by reference.
#[inline]
fn spin_batch(subscriber: &mut Subscriber<Message>, counts: &mut Counts) -> State {
    match subscriber.try_recv_batch(BATCH as usize) {
        Ok(batch) => {
            batch.for_each(|message| counts.receive(message));
            State::Busy
        }
        Err(TryRecvError::Lagged(lagged)) => counts.add(&Received::Lost(lagged.skipped)),
        Err(TryRecvError::Empty) => State::Empty,
        Err(TryRecvError::Closed) => State::Closed,
    }
}

#[inline]
fn yielding<C: Channel>(subscriber: &mut C::Subscriber, counts: &mut Counts) -> State {
    let state = counts.add(&C::try_receive(subscriber));
    if let State::Empty = state {
        thread::yield_now();
    }
    state
}

#[inline]
fn blocking<C: Wait>(subscriber: &mut C::Subscriber, counts: &mut Counts) -> State {
    counts.add(&C::receive_blocking(subscriber))
}
