//! A panic in user code affects only the call that runs it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::UNIX_EPOCH;

use doorbell::cluster::{ClusterEventPublisher, Resync};
use futures::StreamExt;
use testkit::panics::{may_panic, planned_panic};
use testkit::tracked::{DropCounter, Tracked};

#[allow(dead_code, reason = "each test file uses a part of it")]
mod cluster_support;

use cluster_support::{capacity, drain, poll};

/// Whether `call` ends in a planned panic.
fn panics<R>(call: impl FnOnce() -> R) -> bool {
    may_panic(call).is_none()
}

#[test]
fn a_panic_in_build_leaves_a_void() {
    let publisher = ClusterEventPublisher::with_capacity(capacity(4));
    let mut stream = publisher.subscribe(0);
    publisher.emit(|meta| meta.cluster_seq);
    assert!(panics(|| publisher.emit(|_| planned_panic())));
    assert_eq!(publisher.current_seq(), 3, "the number stays unused");
    publisher.emit(|meta| meta.cluster_seq);
    assert_eq!(drain(&mut stream), [Ok(1), Ok(3)]);
}

#[tokio::test]
async fn a_panic_in_build_wakes_streams_waiting_for_the_next_event() {
    let publisher = ClusterEventPublisher::with_capacity(capacity(4));
    let mut stream = publisher.subscribe(0);
    let reader = tokio::spawn(async move { stream.next().await });
    tokio::task::yield_now().await;
    assert!(panics(|| publisher.emit(|_| {
        publisher.emit(|meta| meta.cluster_seq);
        planned_panic()
    })));
    assert_eq!(reader.await.unwrap(), Some(Ok(2)));
}

/// An event whose clones can be made to panic.
#[derive(Debug)]
struct Fragile {
    event: Tracked,
    breaks: Arc<AtomicBool>,
}

impl Fragile {
    fn new(event: Tracked, breaks: &Arc<AtomicBool>) -> Self {
        let breaks = breaks.clone();
        Self { event, breaks }
    }
}

impl Clone for Fragile {
    fn clone(&self) -> Self {
        if self.breaks.load(Ordering::Relaxed) {
            planned_panic();
        }
        Self::new(self.event.clone(), &self.breaks)
    }
}

#[test]
fn a_clone_panic_in_emit_leaves_a_void_and_no_event() {
    let (breaks, counter) = (Arc::new(AtomicBool::new(false)), DropCounter::new());
    let publisher = ClusterEventPublisher::with_capacity(capacity(4));
    let mut stream = publisher.subscribe(0);
    let emit = || publisher.emit(|meta| Fragile::new(counter.value(meta.cluster_seq), &breaks));
    breaks.store(true, Ordering::Relaxed);
    assert!(panics(emit));
    assert_eq!(counter.alive(), 0);
    breaks.store(false, Ordering::Relaxed);
    assert_eq!(emit().event.id(), 2);
    let seen: Vec<_> = drain(&mut stream)
        .into_iter()
        .map(|item| item.unwrap().event.id())
        .collect();
    assert_eq!(seen, [2]);
    drop((stream, publisher));
    assert_eq!(counter.alive(), 0, "every event is dropped exactly once");
}

#[test]
fn a_clone_panic_in_a_poll_leaves_the_event_unreceived() {
    let (breaks, counter) = (Arc::new(AtomicBool::new(false)), DropCounter::new());
    let publisher = ClusterEventPublisher::with_capacity(capacity(4));
    let (mut stream, mut other) = (publisher.subscribe(0), publisher.subscribe(0));
    publisher.emit(|meta| Fragile::new(counter.value(meta.cluster_seq), &breaks));
    breaks.store(true, Ordering::Relaxed);
    assert!(panics(|| poll(&mut stream)));
    breaks.store(false, Ordering::Relaxed);
    for stream in [&mut stream, &mut other] {
        let Poll::Ready(Some(Ok(event))) = poll(stream) else {
            panic!("the event is still unreceived")
        };
        assert_eq!(event.event.id(), 1);
    }
}

#[test]
fn a_panicking_clock_uses_no_number() {
    let works = Arc::new(AtomicBool::new(false));
    let clock = works.clone();
    let publisher = ClusterEventPublisher::builder(capacity(4))
        .clock(move || {
            if clock.load(Ordering::Relaxed) {
                UNIX_EPOCH
            } else {
                planned_panic()
            }
        })
        .build()
        .unwrap();
    let mut stream = publisher.subscribe(0);
    assert!(panics(|| publisher.emit(|meta| meta.cluster_seq)));
    assert_eq!(publisher.current_seq(), 1);
    works.store(true, Ordering::Relaxed);
    publisher.emit(|meta| meta.cluster_seq);
    assert_eq!(drain(&mut stream), [Ok(1)]);
}

#[test]
fn a_panicking_snapshot_detaches() {
    let publisher = ClusterEventPublisher::<u64>::with_capacity(capacity(4));
    assert!(panics(|| publisher.splice(|_| planned_panic())));
    assert!(panics(|| futures::executor::block_on(
        publisher.splice_async(async |_| planned_panic())
    )));
    assert_eq!(publisher.subscriber_count(), 0);
}

#[test]
fn resync_continues_after_a_panicking_snapshot() {
    let publisher = ClusterEventPublisher::with_capacity(capacity(4));
    let mut attempts = 0;
    let mut console = publisher.resync(move |seam| {
        attempts += 1;
        assert!(attempts < 4);
        if attempts == 1 {
            planned_panic();
        }
        async move {
            if attempts == 2 {
                planned_panic();
            }
            seam.mark()
        }
    });
    assert!(panics(|| poll(&mut console)), "panic in the function");
    assert!(panics(|| poll(&mut console)), "panic in its future");
    publisher.emit(|meta| meta.cluster_seq);
    assert_eq!(poll(&mut console), Poll::Ready(Some(Resync::Snapshot(1))));
    publisher.emit(|meta| meta.cluster_seq);
    assert_eq!(poll(&mut console), Poll::Ready(Some(Resync::Delta(2))));
}

/// An event whose drop panics, unless the thread is panicking already.
#[derive(Clone)]
struct Bomb {
    armed: bool,
}

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.armed && !std::thread::panicking() {
            planned_panic();
        }
    }
}

#[test]
fn a_drop_panic_of_a_displaced_event_follows_the_broadcast() {
    let publisher = ClusterEventPublisher::with_capacity(capacity(2));
    let disarm = |mut bomb: Bomb| bomb.armed = false;
    let mut seen = 0;
    let mut stream = publisher.subscribe(0);
    let mut panicked = 0;
    for _ in 0..20 {
        match catch_unwind(AssertUnwindSafe(|| publisher.emit(|_| Bomb { armed: true }))) {
            Ok(bomb) => disarm(bomb),
            Err(_) => panicked += 1,
        }
        for item in drain(&mut stream) {
            let Ok(bomb) = item else {
                panic!("the stream does not lag")
            };
            disarm(bomb);
            seen += 1;
        }
    }
    assert_eq!(seen, 20, "every event was broadcast");
    assert!(panicked > 10, "emit panics when dropping a displaced event does");
    assert!(
        panics(|| drop((stream, publisher))),
        "dropping the channel drops the retained events"
    );
}
