//! The whole story in 10,000 random schedules: a service changes and emits, consoles splice, follow, lag and splice again, and at
//! the end each holds exactly the state of the service. Steps of all parties alternate at rng, also within a splice: before
//! the snapshot is read, and after. A reference says what each poll must answer, to the number.

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

/// Runs every schedule, and says which one failed.
fn every_schedule(run: impl Fn(&mut Rng)) {
    for seed in 1..=SCHEDULES {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(&mut Rng::with_seed(seed))));
        if let Err(panic) = outcome {
            eprintln!("in schedule {seed}");
            resume_unwind(panic);
        }
    }
}

/// Lets a splice go on by one step; between its steps others take theirs.
async fn breathe() {
    let mut over = false;
    std::future::poll_fn(move |_| {
        if std::mem::replace(&mut over, true) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

type Splice<S, E> = Pin<Box<dyn Future<Output = Spliced<S, E>>>>;

/// What was emitted under each number from 1 on; `None` for a void.
#[derive(Default)]
struct History(Vec<Option<u64>>);

/// What a stream at `position` must answer, and where it stands then.
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
    /// In the middle of a splice.
    Splicing(Splice<State, Change>),
    Following {
        state: State,
        deltas: Deltas<Change>,
        position: u64,
    },
}

#[test]
fn marked_consoles_hold_exactly_the_state() {
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
                    breathe().await;
                    let snapshot = service.marked(&seam);
                    breathe().await;
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
                    // The number is used up under the lock, and the state stays as it is.
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
        // Nobody emits any more: everybody catches up.
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
    assert!(lags.into_inner() > SCHEDULES / 2, "the schedules hardly ever lag");
}

/// One step of a console; 1 if it lagged, and begins a splice therefore.
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
            let (answer, stands_at) = expected(history, size, *position);
            assert_eq!(poll(deltas), answer.map(Some), "at {position}");
            *position = stands_at;
            match answer {
                Poll::Ready(Ok(change)) => state.apply(change.value),
                Poll::Ready(Err(_)) => {
                    assert_eq!(poll(deltas), Poll::Ready(None), "ended for good");
                    *console = Console::Splicing(splice());
                    return 1;
                }
                Poll::Pending => {}
            }
            0
        }
    }
}

/// A change that can be applied again without harm: the new value of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Set {
    key: u64,
    value: u64,
}

type Table = BTreeMap<u64, u64>;

#[test]
fn unmarked_consoles_with_idempotent_deltas_end_with_the_state() {
    every_schedule(|rng| {
        let size = 1 + rng.u64(..8) as usize;
        let publisher = ClusterEventPublisher::with_capacity(capacity(size));
        let table = Arc::new(Mutex::new(Table::new()));
        // Each emitter has a key of its own; it changes the table first, and emits at some later step.
        let mut owed: Vec<Option<Set>> = vec![None; 3];
        let splice = || -> Splice<Table, Set> {
            let (publisher, table) = (publisher.clone(), table.clone());
            Box::pin(async move {
                let snapshot = async |_seam: Seam| {
                    breathe().await;
                    let snapshot = table.lock().unwrap().clone();
                    breathe().await;
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
            let emitter = rng.u64(..owed.len() as u64) as usize;
            if last_round || rng.one_in(2) {
                if let Some(set) = owed[emitter].take() {
                    publisher.emit(|_| set);
                } else if !last_round {
                    value += 1;
                    let set = Set {
                        key: emitter as u64,
                        value,
                    };
                    table.lock().unwrap().insert(set.key, set.value);
                    owed[emitter] = Some(set);
                }
            }
            let caught_up = follow(&mut splicing, &mut following, splice);
            if last_round && caught_up && owed.iter().all(Option::is_none) {
                break;
            }
            last_round |= value == STEPS / 2;
        }
        let (console, _) = following.expect("it has caught up");
        assert_eq!(console, *table.lock().unwrap());
    });
}

/// One step of a console; true if there is nothing to read.
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
        Poll::Ready(None) => panic!("the publisher is there"),
        Poll::Pending => return true,
    }
    false
}
