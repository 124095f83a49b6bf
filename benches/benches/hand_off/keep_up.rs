//! A subscriber that keeps up with a paced publisher: what each publish and each receive takes. Both spin, each on its core.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use doorbell_perf::channels::lossy::{Channel, Doorbell, DropIn, PhotonMulti, PhotonSingle, Received, Tokio};
use doorbell_perf::channels::settings::{CAPACITY, message};
use doorbell_perf::clock::CallTimes;
use doorbell_perf::pin::pin;
use doorbell_perf::rounds::{Contender, Rounds};

use super::{DELIVERED, LOST, PUBLISH, RECEIVE, length};

pub(crate) fn compare(rounds: &Rounds) {
    for (rate, milliseconds) in [(1_000, 250), (100_000, 100), (1_000_000, 100)] {
        rounds.compare(
            [PUBLISH, RECEIVE, DELIVERED, LOST],
            &[
                contender::<Doorbell>(rate, milliseconds, "doorbell"),
                contender::<DropIn>(rate, milliseconds, "drop_in"),
                contender::<Tokio>(rate, milliseconds, "tokio"),
                contender::<PhotonMulti>(rate, milliseconds, "photon_mp"),
                contender::<PhotonSingle>(rate, milliseconds, "photon_sp"),
            ],
        );
    }
}

fn contender<C: Channel>(rate: u32, milliseconds: u64, candidate: &'static str) -> Contender<'static, 4> {
    let work = format!("keep_up_{}k", rate / 1_000);
    Contender::new(work, candidate, move || run::<C>(rate, length(milliseconds)))
}

fn run<C: Channel>(rate: u32, length: Duration) -> [f64; 4] {
    let (mut publisher, mut subscribers) = C::open(CAPACITY, 1);
    let subscriber = subscribers.remove(0);
    let events = (length.as_secs_f64() * f64::from(rate)).ceil() as u32;
    let warm_up = events / 10;
    let is_over = AtomicBool::new(false);
    let is_over = &is_over;
    thread::scope(|scope| {
        let publishing = scope.spawn(move || {
            pin(0);
            let mut times = CallTimes::default();
            let started = Instant::now();
            for number in 0..events {
                // Due times follow from the start, so that a late event does not delay later ones.
                let due = Duration::from_secs(1) * number / rate;
                while started.elapsed() < due {}
                let before = Instant::now();
                C::publish(&mut publisher, message(u64::from(number)));
                let time = before.elapsed();
                if number >= warm_up {
                    times.record(time);
                }
            }
            is_over.store(true, Ordering::Release);
            (times, started.elapsed())
        });
        let receiving = scope.spawn(move || receive::<C>(subscriber, u64::from(warm_up), is_over));
        let (publishes, elapsed) = publishing.join().expect("the publisher's thread");
        let (receives, received, lost) = receiving.join().expect("the subscriber's thread");
        assert_eq!(
            received + lost,
            u64::from(events),
            "messages received or reported as lost"
        );
        [
            publishes.typical(),
            receives.typical(),
            elapsed.as_nanos() as f64 / received as f64,
            lost as f64 / f64::from(events),
        ]
    })
}

/// Returns the times of the receives that found an event, and the numbers of events received and lost.
fn receive<C: Channel>(mut subscriber: C::Subscriber, warm_up: u64, is_over: &AtomicBool) -> (CallTimes, u64, u64) {
    pin(1);
    let mut times = CallTimes::default();
    let (mut received, mut lost) = (0, 0);
    loop {
        // Read before the channel is found empty, so that nothing is published afterwards.
        let was_over = is_over.load(Ordering::Acquire);
        let before = Instant::now();
        let outcome = C::try_receive(&mut subscriber);
        let time = before.elapsed();
        match outcome {
            Received::Message(message) => {
                assert_eq!(message[0], received + lost, "the next message");
                received += 1;
                if message[0] >= warm_up {
                    times.record(time);
                }
            }
            Received::Lost(count) => lost += count,
            Received::Empty if !was_over => {}
            Received::Empty | Received::Closed => return (times, received, lost),
        }
    }
}
