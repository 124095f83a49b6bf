//! Random schedules of a service and its consoles, 10,000 of them. The service changes its state and emits. Consoles splice,
//! follow, lag and splice again, and must end with exactly the service's state. Steps of the service and the consoles interleave
//! at random, also within a splice, before and after the snapshot is read. A reference model predicts the result of every poll.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use doorbell::cluster::{ClusterEventPublisher, ClusterStreamLagged, Seam, Spliced};
use testkit::random::{Rng, RngExt as _};

#[allow(dead_code, reason = "each test file uses a part of it")]
mod cluster_support;

use cluster_support::{Change, Deltas, Service, State, capacity, poll};

const SCHEDULES: u64 = if cfg!(miri) { 50 } else { 10_000 };
const STEPS: u64 = 60;

/// Runs every schedule, and prints the seed of one that fails.
fn every_schedule(run: impl Fn(&mut Rng)) {
    for seed in 1..=SCHEDULES {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(&mut Rng::with_seed(seed))));
        if let Err(panic) = outcome {
            eprintln!("in schedule {seed}");
            resume_unwind(panic);
        }
    }
}

/// Suspends a splice once, so that other steps can interleave.
async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(move |_| {
        if std::mem::replace(&mut yielded, true) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

type Splice<S, E> = Pin<Box<dyn Future<Output = Spliced<S, E>>>>;

/// The value emitted under each number from 1 on; `None` for a void.
#[derive(Default)]
struct History(Vec<Option<u64>>);

/// The expected result of polling a stream at `position`, and its position afterwards.
fn expected(history: &History, capacity: u64, mut position: u64) -> (Poll<Result<Change, ClusterStreamLagged>>, u64) {
    let next = history.0.len() as u64 + 1;
    loop {
        if position >= next {
            return (Poll::Pending, position);
        }
        if position + capacity < next {
            let skipped = next - capacity - position;
            return (Poll::Ready(Err(ClusterStreamLagged { skipped })), position);
        }
        match history.0[position as usize - 1] {
            Some(value) => return (Poll::Ready(Ok(Change { seq: position, value })), position + 1),
            None => position += 1,
        }
    }
}

enum Console {
    /// A splice is in progress.
    Splicing(Splice<State, Change>),
    Following {
        state: State,
        deltas: Deltas<Change>,
        position: u64,
    },
}

#[test]
fn consoles_with_marked_splices_match_the_service() {
    let lags = RefCell::new(0);
    every_schedule(|rng| {
        let size = 1 + rng.u64(..8);
        let service = Arc::new(Service::new(ClusterEventPublisher::with_capacity(capacity(
            size as usize,
        ))));
        let mut history = History::default();
        let splice = || -> Splice<State, Change> {
            let service = service.clone();
            let publisher = service.publisher.clone();
            Box::pin(async move {
                let snapshot = async |seam: Seam| {
                    yield_once().await;
                    let snapshot = service.marked(&seam);
                    yield_once().await;
                    snapshot
                };
                publisher.splice_async(snapshot).await
            })
        };
        let mut consoles: Vec<_> = (0..1 + rng.u64(..3)).map(|_| Console::Splicing(splice())).collect();
        for _ in 0..STEPS {
            if rng.one_in(2) {
                let value = rng.u64(..1000);
                if rng.one_in(8) {
                    // Uses a number under the lock without changing the state.
                    let _state = service.lock();
                    let emit = || service.publisher.emit(|_| resume_unwind(Box::new("planned")));
                    catch_unwind(AssertUnwindSafe(emit)).unwrap_err();
                    history.0.push(None);
                } else {
                    let change = service.change(value);
                    history.0.push(Some(value));
                    assert_eq!(change.seq, history.0.len() as u64);
                }
            } else {
                let which = rng.u64(..consoles.len() as u64) as usize;
                *lags.borrow_mut() += step(&mut consoles[which], &history, size, splice);
            }
        }
        // No more events: let every console catch up.
        for console in &mut consoles {
            loop {
                step(console, &history, size, splice);
                if let Console::Following { position, state, .. } = console
                    && *position > history.0.len() as u64
                {
                    assert_eq!(*state, *service.lock());
                    break;
                }
            }
        }
    });
    assert!(lags.into_inner() > SCHEDULES / 2, "the schedules rarely lag");
}

/// Takes one step of a console. Returns 1 if it lagged and starts another splice, otherwise 0.
fn step(console: &mut Console, history: &History, size: u64, splice: impl Fn() -> Splice<State, Change>) -> u64 {
    match console {
        Console::Splicing(future) => {
            if let Poll::Ready(spliced) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                *console = Console::Following {
                    state: spliced.snapshot,
                    deltas: spliced.deltas,
                    position: spliced.as_of_seq + 1,
                };
            }
            0
        }
        Console::Following {
            state,
            deltas,
            position,
        } => {
            let (answer, next_position) = expected(history, size, *position);
            assert_eq!(poll(deltas), answer.map(Some), "at position {position}");
            *position = next_position;
            match answer {
                Poll::Ready(Ok(change)) => state.apply(change.value),
                Poll::Ready(Err(_)) => {
                    assert_eq!(poll(deltas), Poll::Ready(None), "an ended stream stays ended");
                    *console = Console::Splicing(splice());
                    return 1;
                }
                Poll::Pending => {}
            }
            0
        }
    }
}

/// An idempotent change: the new value of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Set {
    key: u64,
    value: u64,
}

type Table = BTreeMap<u64, u64>;

#[test]
fn consoles_with_unmarked_splices_match_the_service() {
    every_schedule(|rng| {
        let size = 1 + rng.u64(..8) as usize;
        let publisher = ClusterEventPublisher::with_capacity(capacity(size));
        let table = Arc::new(Mutex::new(Table::new()));
        // Each emitter has its own key. It changes the table first, and emits in a later step.
        let mut unemitted: Vec<Option<Set>> = vec![None; 3];
        let splice = || -> Splice<Table, Set> {
            let (publisher, table) = (publisher.clone(), table.clone());
            Box::pin(async move {
                let snapshot = async |_seam: Seam| {
                    yield_once().await;
                    let snapshot = table.lock().unwrap().clone();
                    yield_once().await;
                    snapshot
                };
                publisher.splice_async(snapshot).await
            })
        };
        let mut splicing = Some(splice());
        let mut following: Option<(Table, Deltas<Set>)> = None;
        let mut value = 0;
        let mut last_round = false;
        loop {
            let emitter = rng.u64(..unemitted.len() as u64) as usize;
            if last_round || rng.one_in(2) {
                if let Some(set) = unemitted[emitter].take() {
                    publisher.emit(|_| set);
                } else if !last_round {
                    value += 1;
                    let set = Set {
                        key: emitter as u64,
                        value,
                    };
                    table.lock().unwrap().insert(set.key, set.value);
                    unemitted[emitter] = Some(set);
                }
            }
            let caught_up = follow(&mut splicing, &mut following, splice);
            if last_round && caught_up && unemitted.iter().all(Option::is_none) {
                break;
            }
            last_round |= value == STEPS / 2;
        }
        let (console, _) = following.expect("the console has caught up");
        assert_eq!(console, *table.lock().unwrap());
    });
}

/// Takes one step of a console. Returns true if there is nothing to read.
fn follow(
    splicing: &mut Option<Splice<Table, Set>>,
    following: &mut Option<(Table, Deltas<Set>)>,
    splice: impl Fn() -> Splice<Table, Set>,
) -> bool {
    if let Some(future) = splicing {
        if let Poll::Ready(spliced) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            *following = Some((spliced.snapshot, spliced.deltas));
            *splicing = None;
        }
        return false;
    }
    let (table, deltas) = following.as_mut().expect("either splicing or following");
    match poll(deltas) {
        Poll::Ready(Some(Ok(set))) => drop(table.insert(set.key, set.value)),
        Poll::Ready(Some(Err(_))) => *splicing = Some(splice()),
        Poll::Ready(None) => panic!("the publisher is alive"),
        Poll::Pending => return true,
    }
    false
}
