//! Publishers that never pause: what a publish takes, how many events arrive, and how many are lost.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use doorbell::ring::{Subscriber, TryRecvError};
use doorbell_perf::channels::lossy::{Channel, Doorbell, DropIn, PhotonMulti, PhotonSingle, Received, Tokio, Wait};
use doorbell_perf::channels::settings::{BATCH, CAPACITY, Message, message};
use doorbell_perf::pin::pin;
use doorbell_perf::rounds::{Contender, Rounds};

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
            run::<C>(vec![publisher; publishers], subscribing, step)
        })
    }
}

fn one_to_one<C: Channel>(step: impl Step<C>) -> [f64; 3] {
    let (publisher, subscribing) = C::open(CAPACITY, 1);
    run::<C>(vec![publisher], subscribing, step)
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

#[derive(Default)]
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

/// Returns nanoseconds per publish, nanoseconds per delivery, and the fraction lost. Both times are those of the whole run.
fn run<C: Channel>(publishers: Vec<C::Publisher>, subscribers: Vec<C::Subscriber>, step: impl Step<C>) -> [f64; 3] {
    let length = length(150);
    let threads = publishers.len() + subscribers.len();
    let start = Barrier::new(threads);
    let publishing = AtomicUsize::new(publishers.len());
    let is_over = AtomicBool::new(false);
    let (start, publishing, is_over) = (&start, &publishing, &is_over);
    thread::scope(|scope| {
        let first_subscriber = publishers.len();
        let publish = |(index, mut publisher)| {
            scope.spawn(move || {
                pin(index);
                start.wait();
                let started = Instant::now();
                let mut number = 0;
                while started.elapsed() < length {
                    for _ in 0..256 {
                        C::publish(&mut publisher, message(number));
                        number += 1;
                    }
                }
                let elapsed = started.elapsed();
                if publishing.fetch_sub(1, Ordering::AcqRel) == 1 {
                    is_over.store(true, Ordering::Release);
                }
                (number, elapsed)
            })
        };
        let publishers: Vec<_> = publishers.into_iter().enumerate().map(publish).collect();
        let subscribe = |(index, mut subscriber)| {
            scope.spawn(move || {
                pin(first_subscriber + index);
                start.wait();
                let mut counts = Counts::default();
                loop {
                    // Read before the channel is found empty, so that nothing is published afterwards.
                    let was_over = is_over.load(Ordering::Acquire);
                    match step(&mut subscriber, &mut counts) {
                        State::Busy => {}
                        State::Empty if !was_over => {}
                        State::Empty | State::Closed => return counts,
                    }
                }
            })
        };
        let subscribers: Vec<_> = subscribers.into_iter().enumerate().map(subscribe).collect();
        let published: Vec<_> = publishers
            .into_iter()
            .map(|publisher| publisher.join().expect("a publisher's thread"))
            .collect();
        let total: u64 = published.iter().map(|(number, _)| number).sum();
        let elapsed = published.iter().map(|(_, elapsed)| *elapsed).max().unwrap_or_default();
        let (mut received, mut lost) = (0, 0);
        for subscriber in subscribers {
            let counts = subscriber.join().expect("a subscriber's thread");
            assert_eq!(
                counts.received + counts.lost,
                total,
                "messages received or reported as lost"
            );
            if published.len() == 1 {
                assert_eq!(counts.out_of_order, 0, "messages repeated or out of order");
            }
            received += counts.received;
            lost += counts.lost;
        }
        let elapsed = elapsed.as_nanos() as f64;
        [
            elapsed / total as f64,
            elapsed / received as f64,
            lost as f64 / (lost + received) as f64,
        ]
    })
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
            for message in batch {
                counts.receive(message);
            }
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
