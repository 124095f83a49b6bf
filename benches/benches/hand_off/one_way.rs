//! One-way latency: half of a ping-pong through two channels, between two threads or two tasks.

use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant};

use doorbell_perf::channels::lossy::{Channel, Doorbell, DropIn, PhotonMulti, PhotonSingle, Received, Tokio, Wait};
use doorbell_perf::channels::settings::{CAPACITY, Message};
use doorbell_perf::clock::CallTimes;
use doorbell_perf::pin::{pin, pinned_workers};
use doorbell_perf::rounds::{Contender, Rounds};

use super::{TIME, length};

pub(crate) fn compare(rounds: &Rounds) {
    let contender = |work, candidate, run: fn() -> [f64; 1]| Contender::new(work, candidate, run);
    rounds.compare(
        [TIME],
        &[
            contender("one_way_spinning", "doorbell", || threads::<Doorbell>(spin::<Doorbell>)),
            contender("one_way_spinning", "drop_in", || threads::<DropIn>(spin::<DropIn>)),
            contender("one_way_spinning", "tokio", || threads::<Tokio>(spin::<Tokio>)),
            contender("one_way_spinning", "photon_mp", || {
                threads::<PhotonMulti>(spin::<PhotonMulti>)
            }),
            contender("one_way_spinning", "photon_sp", || {
                threads::<PhotonSingle>(spin::<PhotonSingle>)
            }),
        ],
    );
    rounds.compare(
        [TIME],
        &[
            contender("one_way_yielding", "doorbell", || {
                threads::<Doorbell>(yielding::<Doorbell>)
            }),
            contender("one_way_yielding", "drop_in", || threads::<DropIn>(yielding::<DropIn>)),
            contender("one_way_yielding", "tokio", || threads::<Tokio>(yielding::<Tokio>)),
            contender("one_way_yielding", "photon_mp", || {
                threads::<PhotonMulti>(yielding::<PhotonMulti>)
            }),
            contender("one_way_yielding", "photon_sp", || {
                threads::<PhotonSingle>(yielding::<PhotonSingle>)
            }),
        ],
    );
    rounds.compare(
        [TIME],
        &[
            contender("one_way_parked", "doorbell", || {
                threads::<Doorbell>(blocking::<Doorbell>)
            }),
            contender("one_way_parked", "drop_in", || threads::<DropIn>(blocking::<DropIn>)),
            contender("one_way_parked", "tokio", || threads::<Tokio>(blocking::<Tokio>)),
        ],
    );
    rounds.compare(
        [TIME],
        &[
            contender("one_way_async_1_worker", "doorbell", || tasks::<Doorbell>(1)),
            contender("one_way_async_1_worker", "drop_in", || tasks::<DropIn>(1)),
            contender("one_way_async_1_worker", "tokio", || tasks::<Tokio>(1)),
        ],
    );
    rounds.compare(
        [TIME],
        &[
            contender("one_way_async_2_workers", "doorbell", || tasks::<Doorbell>(2)),
            contender("one_way_async_2_workers", "drop_in", || tasks::<DropIn>(2)),
            contender("one_way_async_2_workers", "tokio", || tasks::<Tokio>(2)),
        ],
    );
}

/// The second word of the last message.
const LAST: u64 = 2;

/// Two threads, one on each core, which wait by `receive`.
fn threads<C: Channel>(receive: fn(&mut C::Subscriber) -> Message) -> [f64; 1] {
    let (mut there, mut at_there) = open::<C>();
    let (mut back, mut at_back) = open::<C>();
    thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            loop {
                let message = receive(&mut at_there);
                C::publish(&mut back, message);
                if message[1] == LAST {
                    break;
                }
            }
        });
        let ping = scope.spawn(move || {
            pin(0);
            let mut clock = Clock::start();
            while let ControlFlow::Continue(message) = clock.next() {
                C::publish(&mut there, message);
                assert_eq!(receive(&mut at_back), message, "the answer");
            }
            clock.one_way()
        });
        [ping.join().expect("the measuring thread")]
    })
}

/// Two tasks on a runtime with this many workers.
fn tasks<C: Wait>(workers: usize) -> [f64; 1] {
    let (mut there, mut at_there) = open::<C>();
    let (mut back, mut at_back) = open::<C>();
    let runtime = pinned_workers(workers);
    runtime.spawn(async move {
        loop {
            let message = expect(C::receive(&mut at_there).await);
            C::publish(&mut back, message);
            if message[1] == LAST {
                break;
            }
        }
    });
    let ping = runtime.spawn(async move {
        let mut clock = Clock::start();
        while let ControlFlow::Continue(message) = clock.next() {
            C::publish(&mut there, message);
            let answer = expect(C::receive(&mut at_back).await);
            assert_eq!(answer, message, "the answer");
        }
        clock.one_way()
    });
    [runtime.block_on(ping).expect("the measuring task")]
}

fn open<C: Channel>() -> (C::Publisher, C::Subscriber) {
    let (publisher, mut subscribers) = C::open(CAPACITY, 1);
    (publisher, subscribers.remove(0))
}

/// Exchanges that are timed together, so that the clock costs little.
const BLOCK: u64 = 16;

/// Times blocks of exchanges and says when to stop. The first tenth of the time is not counted.
struct Clock {
    length: Duration,
    started: Instant,
    block_started: Instant,
    blocks: CallTimes,
    number: u64,
    is_over: bool,
}

impl Clock {
    fn start() -> Self {
        let now = Instant::now();
        Self {
            length: length(60),
            started: now,
            block_started: now,
            blocks: CallTimes::default(),
            number: 0,
            is_over: false,
        }
    }

    /// The next message.
    #[inline]
    fn next(&mut self) -> ControlFlow<(), Message> {
        if self.is_over {
            return ControlFlow::Break(());
        }
        if self.number.is_multiple_of(BLOCK) && self.number > 0 {
            let now = Instant::now();
            let elapsed = now - self.started;
            if elapsed >= self.length / 10 {
                self.blocks.record(now - self.block_started);
            }
            self.block_started = now;
            // The last exchange, which is not counted, only ends the other side.
            self.is_over = elapsed >= self.length;
        }
        let message = [self.number, if self.is_over { LAST } else { 0 }, 0, 0];
        self.number += 1;
        ControlFlow::Continue(message)
    }

    /// Nanoseconds of half an exchange.
    fn one_way(self) -> f64 {
        self.blocks.typical() / (2 * BLOCK) as f64
    }
}

fn spin<C: Channel>(subscriber: &mut C::Subscriber) -> Message {
    loop {
        match C::try_receive(subscriber) {
            Received::Empty => {}
            received => return expect(received),
        }
    }
}

fn yielding<C: Channel>(subscriber: &mut C::Subscriber) -> Message {
    loop {
        match C::try_receive(subscriber) {
            Received::Empty => thread::yield_now(),
            received => return expect(received),
        }
    }
}

fn blocking<C: Wait>(subscriber: &mut C::Subscriber) -> Message {
    expect(C::receive_blocking(subscriber))
}

fn expect(received: Received) -> Message {
    match received {
        Received::Message(message) => message,
        other => panic!("not the only message: {other:?}"),
    }
}
