//! Code of the caller's that panics: only the call that runs it is hurt.

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

/// Whether `call` made a planned panic.
fn panics<R>(call: impl FnOnce() -> R) -> bool {
    may_panic(call).is_none()
}

#[test]
fn build_panics_leave_a_void() {
    let publisher = ClusterEventPublisher::with_capacity(capacity(4));
    let mut stream = publisher.subscribe(0);
    publisher.emit(|meta| meta.cluster_seq);
    assert!(panics(|| publisher.emit(|_| planned_panic())));
    assert_eq!(publisher.current_seq(), 3, "the number is used up");
    publisher.emit(|meta| meta.cluster_seq);
    assert_eq!(drain(&mut stream), [Ok(1), Ok(3)]);
}

#[tokio::test]
async fn build_panic_wakes_who_waits_for_the_next() {
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
fn clone_panics_in_emit_leave_a_void_and_no_event() {
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
    assert_eq!(counter.alive(), 0, "each is dropped once");
}

#[test]
fn clone_panics_in_a_stream_have_received_nothing() {
    let (breaks, counter) = (Arc::new(AtomicBool::new(false)), DropCounter::new());
    let publisher = ClusterEventPublisher::with_capacity(capacity(4));
    let (mut stream, mut other) = (publisher.subscribe(0), publisher.subscribe(0));
    publisher.emit(|meta| Fragile::new(counter.value(meta.cluster_seq), &breaks));
    breaks.store(true, Ordering::Relaxed);
    assert!(panics(|| poll(&mut stream)));
    breaks.store(false, Ordering::Relaxed);
    for stream in [&mut stream, &mut other] {
        let Poll::Ready(Some(Ok(event))) = poll(stream) else {
            panic!("the event is still there")
        };
        assert_eq!(event.event.id(), 1);
    }
}

#[test]
fn clock_panics_use_no_number() {
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
fn snapshot_panics_leave_nothing() {
    let publisher = ClusterEventPublisher::<u64>::with_capacity(capacity(4));
    assert!(panics(|| publisher.splice(|_| planned_panic())));
    assert!(panics(|| futures::executor::block_on(
        publisher.splice_async(async |_| planned_panic())
    )));
    assert_eq!(publisher.subscriber_count(), 0);
}

#[test]
fn resync_goes_on_after_a_snapshot_that_panicked() {
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
    assert!(panics(|| poll(&mut console)), "in the function");
    assert!(panics(|| poll(&mut console)), "in its future");
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
fn drop_panics_of_a_displaced_event_come_after_the_broadcast() {
    let publisher = ClusterEventPublisher::with_capacity(capacity(2));
    let disarmed = |mut bomb: Bomb| bomb.armed = false;
    let mut seen = 0;
    let mut stream = publisher.subscribe(0);
    let mut hurt = 0;
    for _ in 0..20 {
        match catch_unwind(AssertUnwindSafe(|| publisher.emit(|_| Bomb { armed: true }))) {
            Ok(bomb) => disarmed(bomb),
            Err(_) => hurt += 1,
        }
        for item in drain(&mut stream) {
            let Ok(bomb) = item else { panic!("nobody lags") };
            disarmed(bomb);
            seen += 1;
        }
    }
    assert_eq!(seen, 20, "each was broadcast");
    assert!(hurt > 10, "each drop but those of the last is noticed");
    assert!(
        panics(|| drop((stream, publisher))),
        "the last are dropped with the channel"
    );
}
