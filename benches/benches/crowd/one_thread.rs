//! A publish, and the receive of a healthy subscriber after it, beside a crowd, on one thread.

use std::mem;
use std::thread;
use std::time::{Duration, Instant};

use doorbell_perf::bench::is_measuring;
use doorbell_perf::channels::lossy::{Doorbell, DropIn, Join, Received, Tokio};
use doorbell_perf::channels::settings::{CAPACITY, message};
use doorbell_perf::clock::clock_cost;
use doorbell_perf::pin::pin;
use doorbell_perf::rounds::{Contender, Rounds};

use super::kinds::{Channel, Kind, receive_one};
use super::worst::Worst;
use super::{LONGEST, PUBLISH, RECEIVE, SETTLED};

pub(crate) fn compare(rounds: &Rounds) {
    let sizes: &[usize] = if is_measuring() {
        &[1, 16, 64, 256, 1_000, 10_000, 100_000]
    } else {
        &[1, 64]
    };
    let mut worst = Worst::default();
    for kind in Kind::ALL {
        let contenders: Vec<_> = sizes
            .iter()
            .flat_map(|&size| {
                [
                    contender::<Doorbell>("doorbell", kind, size),
                    contender::<DropIn>("drop_in", kind, size),
                    contender::<Tokio>("tokio", kind, size),
                ]
            })
            .collect();
        let outcomes = rounds.compare([PUBLISH, SETTLED, RECEIVE, LONGEST], &contenders);
        worst.add(sizes, outcomes);
    }
    worst.record();
}

fn contender<C: Join>(candidate: &'static str, kind: Kind, size: usize) -> Contender<'static, 4> {
    let work = format!("{}_{size}", kind.name());
    Contender::new(work, candidate, move || pinned(|| measure::<C>(kind, size)))
}

/// Runs on the first core.
pub(crate) fn pinned<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            pin(0);
            work()
        });
        thread.join().expect("a measuring thread")
    })
}

/// See [`Times::each`]. Begins when the crowd has just stopped, so it includes the laps in which the publisher notices that.
fn measure<C: Join>(kind: Kind, size: usize) -> [f64; 4] {
    let events = if is_measuring() { 40_000 } else { 4_000 };
    let mut channel = Channel::<C>::open(CAPACITY, kind, size);
    let mut times = Times::new(events);
    let mut slow = 0;
    for event in 0..events {
        let number = channel.next();
        let published = times.publish(|| C::publish(&mut channel.publisher, message(number)));
        let received = times.receive(published, || C::try_receive(&mut channel.healthy));
        match received {
            Received::Message(message) if message[0] == number => {}
            other => panic!("not message {number}: {other:?}"),
        }
        if kind == Kind::Slow && event % 20 == 19 {
            receive_one::<C>(&mut channel.crowd[slow]);
            slow = (slow + 1) % size;
        }
    }
    // Tokio's receivers receive everything when they are dropped: minutes for a crowd of this size.
    mem::forget(channel.crowd);
    times.each()
}

/// What publishes and receives took.
pub(crate) struct Times {
    events: u32,
    published: u32,
    publishing: Duration,
    /// The first half of `publishing`.
    first_half: Duration,
    receiving: Duration,
    longest: Duration,
}

impl Times {
    pub(crate) fn new(events: u32) -> Self {
        Self {
            events,
            published: 0,
            publishing: Duration::ZERO,
            first_half: Duration::ZERO,
            receiving: Duration::ZERO,
            longest: Duration::ZERO,
        }
    }

    /// Returns when the publish was over.
    #[inline]
    pub(crate) fn publish<R>(&mut self, publish: impl FnOnce() -> R) -> Instant {
        let started = Instant::now();
        publish();
        let ended = Instant::now();
        let time = ended - started;
        self.publishing += time;
        self.longest = self.longest.max(time);
        self.published += 1;
        if self.published == self.events / 2 {
            self.first_half = self.publishing;
        }
        ended
    }

    #[inline]
    pub(crate) fn receive<R>(&mut self, started: Instant, receive: impl FnOnce() -> R) -> R {
        let received = receive();
        self.receiving += started.elapsed();
        received
    }

    /// Nanoseconds per publish, per publish of the second half, per receive, and of the longest publish. All but the last
    /// without the clock's own cost.
    pub(crate) fn each(&self) -> [f64; 4] {
        assert_eq!(self.published, self.events, "events published");
        let each = |time: Duration, events| (time.as_nanos() as f64 / f64::from(events) - clock_cost()).max(0.5);
        [
            each(self.publishing, self.events),
            each(self.publishing - self.first_half, self.events - self.events / 2),
            each(self.receiving, self.events),
            self.longest.as_nanos() as f64,
        ]
    }
}
