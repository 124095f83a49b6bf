//! The cluster clauses of the contract (section 10), on a single thread.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use doorbell::cluster::{
    ClusterEvent, ClusterEventMeta, ClusterEventPublisher, ClusterStreamLagged, Resync, Seam, Spliced,
};
use doorbell::ring::MAX_SEQ;
use futures::{FutureExt, StreamExt};

#[allow(dead_code, reason = "each test file uses a part of it")]
mod cluster_support;

use cluster_support::{Change, Service, State, capacity, drain, poll};

/// A publisher whose events are their numbers.
fn numbers(size: usize) -> ClusterEventPublisher<u64> {
    ClusterEventPublisher::with_capacity(capacity(size))
}

fn emit(publisher: &ClusterEventPublisher<u64>, count: u64) {
    for _ in 0..count {
        publisher.emit(|meta| meta.cluster_seq);
    }
}

fn lagged<T>(skipped: u64) -> Result<T, ClusterStreamLagged> {
    Err(ClusterStreamLagged { skipped })
}

#[test]
fn the_public_signatures_compile() {
    let publisher = ClusterEventPublisher::new(capacity(16));
    let stream: futures::stream::BoxStream<'static, Result<ClusterEvent, ClusterStreamLagged>> = publisher.subscribe(0);
    let event: ClusterEvent = publisher.emit(|meta: ClusterEventMeta| ClusterEvent::PeerConnected {
        meta,
        peer: "alpha".into(),
    });
    let next: u64 = publisher.current_seq();
    assert_eq!((event.meta().cluster_seq, next), (1, 2));
    drop(stream);

    fn clone_and_debug<T: Clone + std::fmt::Debug + Send + Sync>(_: &T) {}
    clone_and_debug(&publisher);
    /// Implements only the required traits.
    #[derive(Clone)]
    struct Opaque;
    clone_and_debug(&ClusterEventPublisher::<Opaque>::with_capacity(capacity(1)));
}

#[test]
fn emit_returns_the_event_that_it_broadcasts() {
    let readings = Arc::new(AtomicU64::new(0));
    let clock = readings.clone();
    let publisher = ClusterEventPublisher::<ClusterEventMeta>::builder(capacity(4))
        .clock(move || UNIX_EPOCH + Duration::from_secs(clock.fetch_add(1, Ordering::Relaxed)))
        .build()
        .unwrap();
    let mut stream = publisher.subscribe(0);
    let emitted: Vec<_> = (0..3).map(|_| publisher.emit(|meta| meta)).collect();
    for (index, meta) in (0..).zip(&emitted) {
        assert_eq!(meta.cluster_seq, index + 1);
        assert_eq!(meta.observed_at, UNIX_EPOCH + Duration::from_secs(index));
    }
    let received: Vec<_> = drain(&mut stream).into_iter().map(Result::unwrap).collect();
    assert_eq!(received, emitted);
    assert_eq!(readings.load(Ordering::Relaxed), 3);
}

#[test]
fn the_default_clock_is_the_system_clock() {
    // Wider than the documented microsecond: the test only has to tell clocks apart.
    const TOLERANCE: Duration = Duration::from_micros(100);
    let publisher = ClusterEventPublisher::<ClusterEventMeta>::with_capacity(capacity(4));
    let started = SystemTime::now();
    let mut after = started;
    while after < started + Duration::from_millis(30) {
        let before = SystemTime::now();
        let meta = publisher.emit(|meta| meta);
        after = SystemTime::now();
        assert!(before - TOLERANCE <= meta.observed_at && meta.observed_at <= after + TOLERANCE);
    }
}

#[test]
fn emitting_without_a_stream_uses_a_number() {
    let publisher = numbers(2);
    emit(&publisher, 1000);
    assert_eq!(publisher.current_seq(), 1001);
    assert_eq!(publisher.subscriber_count(), 0);
}

#[test]
fn current_seq_and_as_of_seq_before_and_after_the_first_emit() {
    let publisher = numbers(2);
    assert_eq!((publisher.current_seq(), publisher.as_of_seq()), (1, 0));
    emit(&publisher, 1);
    assert_eq!((publisher.current_seq(), publisher.as_of_seq()), (2, 1));
    let late = ClusterEventPublisher::<u64>::builder(capacity(2))
        .first_seq(100)
        .build()
        .unwrap();
    assert_eq!((late.current_seq(), late.as_of_seq()), (100, 99));
}

#[test]
fn current_seq_as_after_seq_suppresses_one_event_too_many() {
    let publisher = numbers(8);
    emit(&publisher, 3);
    let mut right = publisher.subscribe(publisher.as_of_seq());
    let mut wrong = publisher.subscribe(publisher.current_seq());
    emit(&publisher, 2);
    assert_eq!(drain(&mut right), [Ok(4), Ok(5)]);
    assert_eq!(drain(&mut wrong), [Ok(5)]);
}

#[test]
fn a_stream_is_attached_when_subscribe_returns() {
    let publisher = numbers(8);
    emit(&publisher, 3);
    let mut stream = publisher.subscribe(0);
    emit(&publisher, 2);
    assert_eq!(
        drain(&mut stream),
        [Ok(4), Ok(5)],
        "only events emitted after subscribe"
    );
}

#[test]
fn events_at_or_below_after_seq_are_suppressed() {
    for emitted_before in [0, 1, 5] {
        for after in [
            0,
            1,
            4,
            5,
            6,
            9,
            11,
            12,
            MAX_SEQ - 1,
            MAX_SEQ,
            MAX_SEQ + 1,
            u64::MAX - 1,
            u64::MAX,
        ] {
            let publisher = numbers(64);
            emit(&publisher, emitted_before);
            let mut stream = publisher.subscribe(after);
            emit(&publisher, 12 - emitted_before);
            let expected: Vec<_> = (1..=12)
                .filter(|seq| *seq > emitted_before.max(after))
                .map(Ok)
                .collect();
            assert_eq!(
                drain(&mut stream),
                expected,
                "{emitted_before} emitted before, after_seq {after}"
            );
        }
    }
}

#[test]
fn a_lagging_stream_yields_the_exact_skip_count_and_ends() {
    for size in [1, 2, 3, 7, 64] {
        for read in [0, 1, size as u64] {
            for beyond in [1, 2, 100] {
                let publisher = numbers(size);
                let mut stream = publisher.subscribe(0);
                emit(&publisher, read);
                assert_eq!(drain(&mut stream).len() as u64, read);
                emit(&publisher, size as u64 + beyond);
                assert_eq!(drain(&mut stream), [lagged(beyond)]);
                emit(&publisher, 1);
                for _ in 0..3 {
                    assert_eq!(poll(&mut stream), Poll::Ready(None), "an ended stream stays ended");
                }
                assert_eq!(publisher.subscriber_count(), 0, "an ended stream is detached");
            }
        }
    }
}

#[test]
fn a_stream_behind_by_the_capacity_does_not_lag() {
    let publisher = numbers(5);
    let mut stream = publisher.subscribe(0);
    emit(&publisher, 5);
    assert_eq!(drain(&mut stream), [1, 2, 3, 4, 5].map(Ok));
}

#[test]
fn suppressed_events_do_not_count_as_lost() {
    for after in 0..=12 {
        let publisher = numbers(4);
        let mut stream = publisher.subscribe(after);
        emit(&publisher, 10);
        // 7 to 10 are retained.
        let lost = 6_u64.saturating_sub(after);
        if lost > 0 {
            assert_eq!(drain(&mut stream), [lagged(lost)], "after {after}");
        } else {
            let expected: Vec<_> = (after + 1..=10).map(Ok).collect();
            assert_eq!(
                drain(&mut stream),
                expected,
                "only suppressed events were lost, up to {after}"
            );
        }
    }
}

#[test]
fn an_overwritten_void_counts_as_skipped_unless_already_passed() {
    let panic_in = |publisher: &ClusterEventPublisher<u64>| {
        let emit = || publisher.emit(|_| std::panic::resume_unwind(Box::new("planned")));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(emit)).unwrap_err();
    };
    let publisher = numbers(4);
    let mut stream = publisher.subscribe(0);
    panic_in(&publisher); // 1
    emit(&publisher, 1);
    assert_eq!(drain(&mut stream), [Ok(2)]);
    panic_in(&publisher); // 3
    emit(&publisher, 5); // 4 to 8, of which 5 to 8 are retained
    assert_eq!(drain(&mut stream), [lagged(2)]);
}

#[test]
fn a_stream_ends_after_the_retained_events() {
    let publisher = numbers(4);
    let mut stream = publisher.subscribe(0);
    let mut future = publisher.subscribe(100);
    emit(&publisher, 3);
    drop(publisher.clone());
    assert_eq!(drain(&mut stream), [Ok(1), Ok(2), Ok(3)]);
    assert_eq!(poll(&mut stream), Poll::Pending);
    emit(&publisher, 2);
    drop(publisher);
    assert_eq!(drain(&mut stream), [Ok(4), Ok(5)]);
    for stream in [&mut stream, &mut future] {
        assert_eq!(poll(stream), Poll::Ready(None));
        assert_eq!(poll(stream), Poll::Ready(None));
    }
}

#[test]
fn a_due_lag_is_reported_before_the_end() {
    let publisher = numbers(2);
    let mut stream = publisher.subscribe(0);
    emit(&publisher, 5);
    drop(publisher);
    assert_eq!(drain(&mut stream), [lagged(3)]);
    assert_eq!(poll(&mut stream), Poll::Ready(None));
}

#[test]
fn resume_delivers_retained_events_or_the_exact_lag() {
    let publisher = numbers(4);
    emit(&publisher, 10);
    for after in 6..=10 {
        let expected: Vec<_> = (after + 1..=10).map(Ok).collect();
        assert_eq!(drain(&mut publisher.resume(after)), expected);
    }
    for after in 0..6 {
        assert_eq!(drain(&mut publisher.resume(after)), [lagged(6 - after)]);
    }
    let mut future = publisher.resume(11);
    emit(&publisher, 2);
    assert_eq!(drain(&mut future), [Ok(12)]);
}

#[test]
fn an_event_emitted_by_build_is_numbered_above_and_published_before() {
    let publisher = numbers(4);
    let mut stream = publisher.subscribe(0);
    let outer = publisher.emit(|meta| {
        assert_eq!(publisher.emit(|meta| meta.cluster_seq), 2);
        assert_eq!(poll(&mut stream), Poll::Pending, "2 is published, 1 is not");
        meta.cluster_seq
    });
    assert_eq!(outer, 1);
    assert_eq!(drain(&mut stream), [Ok(1), Ok(2)]);
}

#[test]
fn events_emitted_by_build_can_overwrite_its_own_event() {
    let publisher = numbers(2);
    let mut stream = publisher.subscribe(0);
    publisher.emit(|meta| {
        emit(&publisher, 3); // 2, 3 and 4; only 3 and 4 are retained
        meta.cluster_seq
    });
    assert_eq!(drain(&mut stream), [lagged(2)]);
}

#[test]
fn a_marked_splice_has_each_change_once() {
    let service = Service::new(ClusterEventPublisher::with_capacity(capacity(16)));
    service.change(1);
    let Spliced {
        snapshot,
        as_of_seq,
        mut deltas,
    } = service.publisher.splice(|seam| {
        service.change(2); // emitted after attaching and included in the snapshot, so suppressed
        let snapshot = service.marked(&seam);
        service.change(3); // after the mark
        snapshot
    });
    assert_eq!(as_of_seq, 2);
    service.change(4);
    let mut console = snapshot;
    for delta in drain(&mut deltas) {
        console.apply(delta.unwrap().value);
    }
    assert_eq!(console, *service.lock());
}

#[test]
fn an_unmarked_splice_repeats_events_and_loses_none() {
    let publisher = numbers(16);
    emit(&publisher, 2);
    let mut spliced = publisher.splice(|_seam| emit(&publisher, 2));
    emit(&publisher, 1);
    assert_eq!(spliced.as_of_seq, 2, "the stream starts before the snapshot");
    assert_eq!(drain(&mut spliced.deltas), [Ok(3), Ok(4), Ok(5)]);
}

#[test]
fn the_last_mark_counts() {
    let publisher = numbers(16);
    let mut spliced = publisher.splice(|seam| {
        emit(&publisher, 2);
        assert_eq!(seam.mark(), 2);
        emit(&publisher, 2);
        assert_eq!(seam.mark(), 4);
        emit(&publisher, 1);
    });
    assert_eq!(spliced.as_of_seq, 4);
    assert_eq!(drain(&mut spliced.deltas), [Ok(5)]);
}

#[test]
fn a_mark_after_the_splice_has_no_effect() {
    let publisher = numbers(16);
    let mut kept: Option<Seam> = None;
    let mut spliced = publisher.splice(|seam| kept = Some(seam));
    emit(&publisher, 2);
    kept.unwrap().mark();
    assert_eq!(drain(&mut spliced.deltas), [Ok(1), Ok(2)]);
}

#[test]
fn lag_after_a_mark_counts_from_the_mark() {
    let publisher = numbers(4);
    let mut spliced = publisher.splice(|seam| {
        emit(&publisher, 20);
        seam.mark(); // the 16 events no longer retained are in the snapshot
    });
    emit(&publisher, 4);
    let mut lagging = publisher.splice(|seam| seam.mark()).deltas;
    assert_eq!(drain(&mut spliced.deltas), [21, 22, 23, 24].map(Ok));
    emit(&publisher, 7);
    assert_eq!(drain(&mut lagging), [lagged(3)]);
}

#[test]
fn an_async_snapshot_can_wait_before_marking() {
    let publisher = numbers(16);
    emit(&publisher, 1);
    let (release, released) = futures::channel::oneshot::channel::<()>();
    let mut splice = pin!(publisher.splice_async(async |seam| {
        released.await.unwrap();
        seam.mark()
    }));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(splice.as_mut().poll(&mut cx).is_pending());
    emit(&publisher, 2);
    release.send(()).unwrap();
    let mut spliced = splice.now_or_never().unwrap();
    assert_eq!(spliced.snapshot, 3);
    emit(&publisher, 1);
    assert_eq!(drain(&mut spliced.deltas), [Ok(4)]);
}

#[test]
fn a_failed_or_cancelled_splice_detaches() {
    let publisher = numbers(16);
    assert_eq!(publisher.try_splice(|_| Err::<(), _>("no")).unwrap_err(), "no");
    let failed = publisher.try_splice_async(async |_| Err::<(), _>("no"));
    assert_eq!(failed.now_or_never().unwrap().unwrap_err(), "no");
    {
        let mut never = pin!(publisher.splice_async(|_| std::future::pending::<()>()));
        assert!(
            never
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
        assert_eq!(publisher.subscriber_count(), 1);
    }
    assert_eq!(publisher.subscriber_count(), 0);
    let mut spliced = publisher.try_splice(|seam| Ok::<_, ()>(seam.mark())).unwrap();
    let mut also = publisher
        .try_splice_async(async |seam: Seam| Ok::<_, ()>(seam.mark()))
        .now_or_never()
        .unwrap()
        .unwrap();
    emit(&publisher, 1);
    assert_eq!(drain(&mut spliced.deltas), [Ok(1)]);
    assert_eq!(drain(&mut also.deltas), [Ok(1)]);
}

#[test]
fn futures_and_streams_are_send() {
    fn assert_send<T: Send>(value: T) -> T {
        value
    }
    let publisher = numbers(16);
    let state = Arc::new(tokio::sync::Mutex::new(0));
    let source = state.clone();
    drop(assert_send(publisher.splice_async(async |seam: Seam| {
        let state = state.lock().await;
        seam.mark();
        *state
    })));
    drop(assert_send(publisher.resync(move |seam| {
        let source = source.clone();
        async move {
            let state = source.lock().await;
            seam.mark();
            *state
        }
    })));
    drop(assert_send(publisher.splice(|_| ())));
}

/// A `resync` stream of `service` with marked snapshots.
fn follow(service: &Arc<Service>) -> futures::stream::BoxStream<'static, Resync<State, Change>> {
    let source = service.clone();
    service
        .publisher
        .resync(move |seam| std::future::ready(source.marked(&seam)))
}

#[test]
fn resync_takes_a_new_snapshot_after_a_lag() {
    let service = Arc::new(Service::new(ClusterEventPublisher::with_capacity(capacity(4))));
    let mut console = follow(&service);
    let mut state = State::default();
    let mut snapshots = 0;
    for burst in [0, 3, 4, 5, 1, 100, 2] {
        for value in 0..burst {
            service.change(value);
        }
        while let Poll::Ready(Some(item)) = poll(&mut console) {
            match item {
                Resync::Snapshot(snapshot) => {
                    snapshots += 1;
                    state = snapshot;
                }
                Resync::Delta(change) => state.apply(change.value),
            }
        }
        assert_eq!(state, *service.lock());
    }
    assert_eq!(snapshots, 3, "the first, and one after the bursts of 5 and of 100");
}

#[test]
fn resync_ends_when_the_last_publisher_is_dropped() {
    let publisher = numbers(2);
    let mut console = publisher.resync(|seam| std::future::ready(seam.mark()));
    assert_eq!(poll(&mut console), Poll::Ready(Some(Resync::Snapshot(0))));
    emit(&publisher, 5);
    drop(publisher);
    // The lag is found only now: one last snapshot includes everything.
    assert_eq!(poll(&mut console), Poll::Ready(Some(Resync::Snapshot(5))));
    assert_eq!(poll(&mut console), Poll::Ready(None));
    assert_eq!(poll(&mut console), Poll::Ready(None));
}

#[test]
fn resync_continues_after_a_failed_snapshot() {
    let publisher = numbers(4);
    let attempts = Arc::new(Mutex::new(vec![Ok(()), Err("again"), Err("no")]));
    let mut console = publisher.try_resync(move |seam| {
        let outcome = attempts.lock().unwrap().pop().unwrap();
        std::future::ready(outcome.map(|()| seam.mark()))
    });
    assert_eq!(poll(&mut console), Poll::Ready(Some(Err("no"))));
    emit(&publisher, 1);
    assert_eq!(poll(&mut console), Poll::Ready(Some(Err("again"))));
    assert_eq!(poll(&mut console), Poll::Ready(Some(Ok(Resync::Snapshot(1)))));
    emit(&publisher, 1);
    assert_eq!(poll(&mut console), Poll::Ready(Some(Ok(Resync::Delta(2)))));
}

#[test]
fn out_of_range_capacities_and_first_numbers_are_rejected() {
    let too_large = ClusterEventPublisher::<u64>::builder(capacity(usize::MAX)).build();
    assert!(too_large.is_err());
    let beyond = ClusterEventPublisher::<u64>::builder(capacity(1))
        .first_seq(MAX_SEQ + 1)
        .build();
    assert!(beyond.is_err());
}

#[test]
fn emitting_beyond_the_last_number_panics() {
    let publisher = ClusterEventPublisher::<u64>::builder(capacity(2))
        .first_seq(MAX_SEQ)
        .build()
        .unwrap();
    let mut stream = publisher.subscribe(MAX_SEQ - 1);
    let mut beyond = publisher.subscribe(u64::MAX);
    emit(&publisher, 1);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| emit(&publisher, 1))).unwrap_err();
    assert_eq!((publisher.current_seq(), publisher.as_of_seq()), (MAX_SEQ + 1, MAX_SEQ));
    assert_eq!(drain(&mut stream), [Ok(MAX_SEQ)]);
    assert_eq!(poll(&mut beyond), Poll::Pending);
}

#[tokio::test]
async fn a_waiting_stream_is_woken() {
    let publisher = numbers(4);
    let mut stream = publisher.subscribe(1);
    let reader = tokio::spawn(async move { stream.next().await });
    tokio::task::yield_now().await;
    emit(&publisher, 2);
    assert_eq!(reader.await.unwrap(), Some(Ok(2)));
}
