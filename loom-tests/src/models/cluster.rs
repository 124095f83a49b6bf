//! Cluster events: the seam between a snapshot and its deltas, against concurrent emitters, lag and panics.
//!
//! The state of the service in these models is the list of all events, which reveals any lost, repeated or reordered event.

use crate::cluster::{ClusterEventPublisher, Resync, Seam, Spliced};
use crate::registry::{Bound, Model};
use crate::sync::Mutex;
use futures_core::Stream;
use futures_core::stream::BoxStream;
use loom::thread;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::UNIX_EPOCH;

pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "cluster_two_emitters",
        clauses: &[10],
        bound: Bound::Preemptions(3),
        run: two_emitters,
    },
    Model {
        name: "cluster_attached_before_emit",
        clauses: &[10],
        bound: Bound::Exhaustive,
        run: attached_before_emit,
    },
    Model {
        name: "cluster_after_seq_in_the_future",
        clauses: &[10],
        bound: Bound::Exhaustive,
        run: after_seq_in_the_future,
    },
    Model {
        name: "cluster_marked_splice_against_emit",
        clauses: &[10],
        bound: Bound::Preemptions(4),
        run: || marked_splice(2, 1),
    },
    Model {
        name: "cluster_marked_splice_against_emits",
        clauses: &[10],
        bound: Bound::Preemptions(3),
        run: || marked_splice(2, 2),
    },
    Model {
        name: "cluster_marked_splice_against_lag",
        clauses: &[10],
        bound: Bound::Preemptions(3),
        run: || marked_splice(1, 2),
    },
    Model {
        name: "cluster_unmarked_splice_against_emit",
        clauses: &[10],
        bound: Bound::Exhaustive,
        run: unmarked_splice,
    },
    Model {
        name: "cluster_build_panics_beside_emit",
        clauses: &[10],
        bound: Bound::Exhaustive,
        run: build_panics,
    },
    Model {
        name: "cluster_resync_against_lag",
        clauses: &[10],
        bound: Bound::Preemptions(3),
        run: resync_against_lag,
    },
];

type Publisher = ClusterEventPublisher<u64>;
type Deltas = BoxStream<'static, Result<u64, crate::cluster::ClusterStreamLagged>>;

/// A publisher whose events are their numbers.
fn publisher(capacity: usize) -> Publisher {
    Publisher::builder(NonZeroUsize::new(capacity).expect("not zero"))
        .clock(|| UNIX_EPOCH)
        .build()
        .expect("a small ring")
}

fn poll<S: Stream + ?Sized>(stream: &mut Pin<Box<S>>) -> Poll<Option<S::Item>> {
    stream.as_mut().poll_next(&mut Context::from_waker(Waker::noop()))
}

/// Reads every item that is ready. Returns the number of skipped events if the stream lagged.
fn drain(deltas: &mut Deltas, seen: &mut Vec<u64>) -> Option<u64> {
    loop {
        match poll(deltas) {
            Poll::Ready(Some(Ok(seq))) => seen.push(seq),
            Poll::Ready(Some(Err(lagged))) => {
                assert_eq!(poll(deltas), Poll::Ready(None), "an ended stream stays ended");
                return Some(lagged.skipped);
            }
            Poll::Ready(None) | Poll::Pending => return None,
        }
    }
}

/// A service that changes its state and emits under one lock.
struct Service {
    publisher: Publisher,
    state: Mutex<Vec<u64>>,
}

impl Service {
    fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self {
            publisher: publisher(capacity),
            state: Mutex::new(Vec::new()),
        })
    }

    fn change(&self) {
        let mut state = self.state.lock();
        let next = state.last().map_or(1, |last| last + 1);
        state.push(next);
        assert_eq!(self.publisher.emit(|meta| meta.cluster_seq), next);
    }

    fn marked(&self, seam: &Seam) -> Vec<u64> {
        let state = self.state.lock();
        seam.mark();
        state.clone()
    }
}

/// No stream sees a higher number before a lower one, and an event is readable once `emit` has returned.
fn two_emitters() {
    let publisher = publisher(2);
    let mut deltas = publisher.subscribe(0);
    let other = publisher.clone();
    let emitter = thread::spawn(move || other.emit(|meta| meta.cluster_seq));
    let own = publisher.emit(|meta| meta.cluster_seq);
    let mut seen = Vec::new();
    if own == 1 {
        assert_eq!(drain(&mut deltas, &mut seen), None);
        assert_eq!(seen.first(), Some(&1));
    }
    let others = emitter.join().unwrap();
    assert_eq!(own + others, 3);
    assert_eq!(drain(&mut deltas, &mut seen), None);
    assert_eq!(seen, [1, 2]);
}

/// A stream sees every event emitted after `subscribe` returned, none emitted before the call, and has no gap in between.
fn attached_before_emit() {
    let publisher = publisher(4);
    publisher.emit(|meta| meta.cluster_seq);
    let other = publisher.clone();
    let emitter = thread::spawn(move || {
        other.emit(|meta| meta.cluster_seq);
    });
    let mut deltas = publisher.subscribe(0);
    let own = publisher.emit(|meta| meta.cluster_seq);
    emitter.join().unwrap();
    let mut seen = Vec::new();
    assert_eq!(drain(&mut deltas, &mut seen), None);
    assert!(seen.contains(&own), "{own} is missing from {seen:?}");
    assert!(seen == [2, 3] || seen == [3], "{seen:?}");
}

/// Events at or below `after_seq` are neither delivered nor counted, even if they are overwritten before the first poll.
fn after_seq_in_the_future() {
    let publisher = publisher(1);
    let other = publisher.clone();
    let emitter = thread::spawn(move || {
        other.emit(|meta| meta.cluster_seq);
        other.emit(|meta| meta.cluster_seq);
    });
    let mut deltas = publisher.subscribe(1);
    emitter.join().unwrap();
    // The stream sees 2 only if it attached before 2 was emitted.
    let mut seen = Vec::new();
    assert_eq!(drain(&mut deltas, &mut seen), None);
    assert!(seen.is_empty() || seen == [2], "{seen:?}");
    publisher.emit(|meta| meta.cluster_seq);
    assert_eq!(drain(&mut deltas, &mut seen), None);
    assert_eq!(seen.last(), Some(&3));
}

/// Each change is in exactly one of the snapshot and the deltas. After a lag, another splice provides the rest.
fn marked_splice(capacity: usize, changes: u64) {
    let service = Service::new(capacity);
    let changing = service.clone();
    let emitter = thread::spawn(move || {
        for _ in 0..changes {
            changing.change();
        }
    });
    let splice = || {
        let Spliced {
            snapshot,
            as_of_seq,
            deltas,
        } = service.publisher.splice(|seam| service.marked(&seam));
        assert_eq!(snapshot.len() as u64, as_of_seq);
        (snapshot, deltas)
    };
    let (mut console, mut deltas) = splice();
    let mut lag = drain(&mut deltas, &mut console);
    emitter.join().unwrap();
    if lag.is_none() {
        lag = drain(&mut deltas, &mut console);
    }
    if let Some(skipped) = lag {
        assert_eq!((capacity, skipped), (1, 1));
        assert!(
            console.is_empty(),
            "only a console that has no event yet can lose the first"
        );
        (console, deltas) = splice();
        assert_eq!(drain(&mut deltas, &mut console), None);
    }
    assert!(console.into_iter().eq(1..=changes));
}

/// The service changes its state, then emits, without a common lock. No event is lost; some may be repeated.
fn unmarked_splice() {
    let publisher = publisher(4);
    let state = Arc::new(Mutex::new(0));
    let (other, changing) = (publisher.clone(), state.clone());
    let emitter = thread::spawn(move || {
        for value in 1..=2 {
            *changing.lock() = value;
            other.emit(|_| value);
        }
    });
    let mut spliced = publisher.splice(|_| *state.lock());
    emitter.join().unwrap();
    let mut seen = Vec::new();
    assert_eq!(drain(&mut spliced.deltas, &mut seen), None);
    for missing in spliced.snapshot + 1..=2 {
        assert!(
            seen.contains(&missing),
            "{missing} is neither in the snapshot, {}, nor in {seen:?}",
            spliced.snapshot
        );
    }
    assert!(seen.is_sorted());
}

/// A void number reaches no stream and blocks none. A seam includes it.
///
/// No lock is held while `build` unwinds: all threads of a model run on one OS thread, so loom would consider the lock poisoned.
fn build_panics() {
    let publisher = publisher(2);
    let mut deltas = publisher.subscribe(0);
    let other = publisher.clone();
    let emitter = thread::spawn(move || {
        let emit = || other.emit(|_| resume_unwind(Box::new("planned")));
        catch_unwind(AssertUnwindSafe(emit)).unwrap_err();
    });
    let own = publisher.emit(|meta| meta.cluster_seq);
    emitter.join().unwrap();
    let mut spliced = publisher.splice(|seam| seam.mark());
    assert_eq!(spliced.snapshot, 2);
    let mut seen = Vec::new();
    assert_eq!(drain(&mut deltas, &mut seen), None);
    assert_eq!(seen, [own]);
    let mut seen = Vec::new();
    assert_eq!(drain(&mut spliced.deltas, &mut seen), None);
    assert_eq!(seen, [0; 0]);
}

/// `resync` takes a new snapshot after a lag, and the console ends with the service's state.
fn resync_against_lag() {
    let service = Service::new(1);
    let source = service.clone();
    let mut items = service
        .publisher
        .resync(move |seam| std::future::ready(source.marked(&seam)));
    let mut console = Vec::new();
    let mut follow = |items: &mut BoxStream<'static, Resync<Vec<u64>, u64>>| {
        while let Poll::Ready(Some(item)) = poll(items) {
            match item {
                Resync::Snapshot(snapshot) => console = snapshot,
                Resync::Delta(seq) => console.push(seq),
            }
        }
        console.clone()
    };
    follow(&mut items);
    let changing = service.clone();
    let emitter = thread::spawn(move || {
        changing.change();
        changing.change();
    });
    follow(&mut items);
    emitter.join().unwrap();
    assert_eq!(follow(&mut items), [1, 2]);
}
