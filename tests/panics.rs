//! User code that panics within a call: in closures, iterators, `Clone`, `Drop` and wakers. Only that call is affected.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use doorbell::ring::{Builder, Publisher, Start, Subscriber, TryRecvError, Wake, channel};
use testkit::panics::{may_panic, must_panic, panic_message, planned_panic};
use testkit::threads::{block_on, eventually, must_end};
use testkit::tracked::{DropCounter, Tracked};
use testkit::wakers::{PanicsIn, WakeCounter, panicking_waker};

/// The ids of all events up to `Empty` or `Closed`. Panics on lag.
fn drain(subscriber: &mut Subscriber<Tracked>) -> Vec<u64> {
    std::iter::from_fn(|| match subscriber.try_recv() {
        Ok(value) => Some(value.id()),
        Err(TryRecvError::Lagged(lagged)) => panic!("{lagged:?}"),
        Err(_) => None,
    })
    .collect()
}

#[test]
fn a_closure_that_panics_leaves_a_void() {
    let counter = DropCounter::new();
    let (publisher, mut subscriber) = channel(8);
    publisher.publish(counter.value(1));
    must_panic(|| publisher.publish_with(|_| planned_panic()));
    must_panic(|| publisher.publish_with(|_| planned_panic()));
    assert_eq!(publisher.publish(counter.value(4)), 4);
    assert_eq!(
        subscriber.try_recv_seq().map(|(seq, value)| (seq, value.id())),
        Ok((1, 1))
    );
    assert_eq!(
        subscriber.try_recv_seq().map(|(seq, value)| (seq, value.id())),
        Ok((4, 4))
    );
    let stats = subscriber.stats();
    assert_eq!((stats.received, stats.void, stats.skipped), (2, 2, 0));
    assert_eq!((publisher.stats().published, publisher.stats().void), (2, 2));
}

#[test]
fn a_panic_in_a_batch_fold_leaves_the_rest_unreceived() {
    let counter = DropCounter::new();
    let (publisher, mut subscriber) = channel(8);
    publisher.publish_batch([1, 2, 3, 4, 5, 6].map(|id| counter.value(id)));
    must_panic(|| {
        let batch = subscriber.try_recv_batch(8).unwrap();
        batch.for_each(|value| {
            if value.id() == 3 {
                planned_panic();
            }
        });
    });
    // As in a loop, the events passed to the closure are received, and the rest is not.
    assert_eq!(subscriber.position(), 4);
    assert_eq!(publisher.stats().slowest_position, Some(4));
    assert_eq!(drain(&mut subscriber), [4, 5, 6]);
}

#[test]
fn a_void_does_not_hold_up_waiting_subscribers() {
    must_end(|| {
        let (publisher, mut subscriber) = channel(4);
        let waiting = thread::spawn(move || subscriber.recv_blocking());
        must_panic(|| publisher.publish_with(|_| planned_panic()));
        must_panic(|| publisher.publish_with(|_| planned_panic()));
        publisher.publish(7);
        assert_eq!(waiting.join().unwrap(), Ok(7));
    });
}

#[test]
fn a_panic_that_drops_the_last_publisher_closes_the_channel() {
    must_end(|| {
        let (publisher, mut subscriber) = channel::<u8>(4);
        let waiting = thread::spawn(move || subscriber.recv_blocking());
        must_panic(move || publisher.publish_with(|_| planned_panic()));
        assert!(waiting.join().unwrap().is_err());
    });
}

#[test]
fn a_ring_full_of_voids_is_empty() {
    let (publisher, mut subscriber) = channel::<u64>(3);
    let mut late = publisher.subscribe();
    for _ in 0..3 {
        must_panic(|| publisher.publish_with(|_| planned_panic()));
    }
    assert_eq!(subscriber.try_recv(), Err(TryRecvError::Empty));
    for _ in 0..3 {
        must_panic(|| publisher.publish_with(|_| planned_panic()));
    }
    // Voids that were overwritten unseen count as skipped.
    assert!(
        matches!(late.try_recv(), Err(TryRecvError::Lagged(lagged)) if lagged.first_missed == 1 && lagged.skipped == 3)
    );
    for subscriber in [&mut subscriber, &mut late] {
        while subscriber.try_recv() != Err(TryRecvError::Empty) {}
    }
    publisher.publish(7);
    for subscriber in [&mut subscriber, &mut late] {
        assert_eq!(subscriber.try_recv(), Ok(7));
        let stats = subscriber.stats();
        assert_eq!((stats.received, stats.skipped + stats.void), (1, 6));
    }
}

/// Yields `good` values, then calls `then`.
struct Faulty<F> {
    counter: DropCounter,
    claims: usize,
    good: u64,
    then: F,
}

impl<F: FnMut() -> Option<Tracked>> Iterator for Faulty<F> {
    type Item = Tracked;

    fn next(&mut self) -> Option<Tracked> {
        if self.good == 0 {
            return (self.then)();
        }
        self.good -= 1;
        Some(self.counter.value(self.good))
    }
}

impl<F: FnMut() -> Option<Tracked>> ExactSizeIterator for Faulty<F> {
    fn len(&self) -> usize {
        if self.claims == usize::MAX {
            planned_panic();
        }
        self.claims
    }
}

fn batch_leaves(claims: usize, good: u64, panics: bool, received: u64, void: u64) {
    let counter = DropCounter::new();
    let (publisher, mut subscriber) = channel(16);
    let faulty = Faulty {
        counter: counter.clone(),
        claims,
        good,
        then: || if panics { planned_panic() } else { None },
    };
    let outcome = may_panic(|| publisher.publish_batch(faulty));
    assert_eq!(outcome.is_none(), panics);
    publisher.publish(counter.value(99));
    let ids = drain(&mut subscriber);
    assert_eq!(
        ids,
        (0..good).rev().take(received as usize).chain([99]).collect::<Vec<_>>()
    );
    let stats = subscriber.stats();
    assert_eq!((stats.received, stats.void, stats.skipped), (received + 1, void, 0));
    drop((publisher, subscriber));
    assert_eq!(counter.alive(), 0);
}

#[test]
fn a_batch_iterator_with_a_wrong_length_leaves_voids() {
    batch_leaves(5, 2, false, 2, 3);
    batch_leaves(5, 2, true, 2, 3);
    batch_leaves(5, 0, true, 0, 5);
    batch_leaves(5, 9, false, 5, 0);
    batch_leaves(0, 3, false, 0, 0);
    batch_leaves(usize::MAX, 3, true, 0, 0);
}

/// Its clone panics while `panics` is set.
#[derive(Debug)]
struct PanicsInClone {
    tracked: Tracked,
    panics: Arc<AtomicBool>,
}

impl Clone for PanicsInClone {
    fn clone(&self) -> Self {
        if self.panics.load(Ordering::SeqCst) {
            planned_panic();
        }
        Self {
            tracked: self.tracked.clone(),
            panics: Arc::clone(&self.panics),
        }
    }
}

/// Makes `clone` panic during one receive, and checks the subscriber's state after it.
fn clone_panics_in(receive: impl Fn(&mut Subscriber<PanicsInClone>)) {
    let counter = DropCounter::new();
    let panics = Arc::new(AtomicBool::new(false));
    let (publisher, mut subscriber) = channel(4);
    let mut other = subscriber.clone();
    let publish = |id| {
        publisher.publish(PanicsInClone {
            tracked: counter.value(id),
            panics: Arc::clone(&panics),
        })
    };
    publish(1);
    publish(2);
    panics.store(true, Ordering::SeqCst);
    must_panic(|| receive(&mut subscriber));
    panics.store(false, Ordering::SeqCst);
    let stats = subscriber.stats();
    assert_eq!(stats.received + stats.skipped + stats.void, subscriber.position() - 1);
    // No event is lost: the next receive returns the one that was not returned.
    assert_eq!(subscriber.position(), 1);
    for id in [1, 2] {
        assert_eq!(subscriber.try_recv().unwrap().tracked.id(), id);
        assert_eq!(other.try_recv().unwrap().tracked.id(), id);
    }
    // The panic left nothing announced, held or locked.
    for id in 3..40 {
        publish(id);
    }
    assert!(matches!(subscriber.try_recv(), Err(TryRecvError::Lagged(_))));
    assert!(subscriber.try_recv().is_ok());
    drop((publisher, subscriber, other));
    assert_eq!(counter.alive(), 0);
}

#[test]
fn a_clone_that_panics_has_received_nothing() {
    clone_panics_in(|subscriber| drop(subscriber.try_recv()));
    clone_panics_in(|subscriber| drop(subscriber.try_recv_seq()));
    clone_panics_in(|subscriber| drop(subscriber.recv_blocking()));
    clone_panics_in(|subscriber| drop(subscriber.recv_timeout(Duration::ZERO)));
    clone_panics_in(|subscriber| drop(block_on(subscriber.recv())));
    clone_panics_in(|subscriber| drop(block_on(subscriber.recv_seq())));
    clone_panics_in(|subscriber| drop(subscriber.poll_recv(&mut Context::from_waker(Waker::noop()))));
    clone_panics_in(|subscriber| drop(block_on(subscriber.recv_lossy())));
    clone_panics_in(|subscriber| drop(subscriber.try_iter().next()));
}

/// Its drop panics if it is armed, unless the thread is already panicking.
struct PanicsInDrop {
    tracked: Tracked,
    armed: bool,
}

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        if self.armed && !thread::panicking() {
            planned_panic();
        }
    }
}

#[test]
fn a_publish_succeeds_although_the_displaced_value_panics() {
    let counter = DropCounter::new();
    for capacity in [1, 2, 3, 8, 20] {
        let (publisher, mut subscriber) = channel(capacity);
        let (mut panics, mut expected) = (0, 1);
        for seq in 1..=200 {
            let value = PanicsInDrop {
                tracked: counter.value(seq),
                armed: seq % 3 == 0,
            };
            panics += usize::from(may_panic(|| publisher.publish(value)).is_none());
            // The value is published although dropping the displaced value made the call panic.
            let held = subscriber.try_recv_ref().unwrap();
            assert_eq!((held.seq(), held.tracked.id()), (expected, seq));
            expected += 1;
        }
        assert!(panics > 0, "no armed value was displaced");
        assert_eq!(publisher.stats().published, 200);
        assert_eq!(subscriber.stats().received, 200);
        drop(publisher);
        may_panic(|| drop(subscriber));
        assert_eq!(counter.alive(), 0, "capacity {capacity}");
    }
}

#[test]
fn a_batch_is_published_although_displaced_values_panic() {
    let counter = DropCounter::new();
    let (publisher, mut subscriber) = channel(8);
    let mut ids = 0..;
    let mut claimed = 0;
    for round in 0..30 {
        let batch: Vec<_> = ids
            .by_ref()
            .take(5)
            .map(|id| PanicsInDrop {
                tracked: counter.value(id),
                armed: id % 4 == round % 4,
            })
            .collect();
        may_panic(|| publisher.publish_batch(batch));
        claimed += 5;
        assert_eq!(publisher.next_seq(), claimed + 1);
        while let Ok(held) = subscriber.try_recv_ref() {
            assert_eq!(held.tracked.id(), held.seq() - 1);
        }
        assert_eq!(
            subscriber.position(),
            claimed + 1,
            "a seq of the batch was left unfinished"
        );
    }
    let stats = subscriber.stats();
    assert_eq!((stats.received + stats.void, stats.skipped), (claimed, 0));
    drop(publisher);
    may_panic(|| drop(subscriber));
    assert_eq!(counter.alive(), 0);
}

#[test]
fn dropping_the_channel_drops_every_value_although_some_panic() {
    let counter = DropCounter::new();
    for armed in [0..1u64, 3..4, 0..8, 7..8] {
        let (publisher, subscriber) = channel(8);
        for id in 0..8 {
            publisher.publish(PanicsInDrop {
                tracked: counter.value(id),
                armed: armed.contains(&id),
            });
        }
        drop(subscriber);
        must_panic(|| drop(publisher));
        assert_eq!(counter.alive(), 0, "armed {armed:?}");
    }
}

/// One waiter has a waker that panics, three have sound ones: these three receive every message.
fn bad_waker_among_good_ones(fault: PanicsIn, wake: Wake) {
    must_end(move || {
        let (publisher, subscriber) = Builder::new(8).wake(wake).channel::<u64>().unwrap();
        let mut others: Vec<_> = (0..3).map(|_| subscriber.clone()).collect();
        let wake_counters: Vec<_> = others.iter().map(|_| WakeCounter::new()).collect();
        let mut faulty = subscriber;
        let handles = {
            let (waker, handles) = panicking_waker(fault);
            for round in 1..=20 {
                let faulty_first = round % 2 == 0;
                if faulty_first {
                    may_panic(|| faulty.poll_recv(&mut Context::from_waker(&waker)).is_pending());
                }
                let seen: Vec<_> = wake_counters.iter().map(|wake_counter| wake_counter.wakes()).collect();
                for (other, wake_counter) in others.iter_mut().zip(&wake_counters) {
                    let waker = wake_counter.waker();
                    assert!(other.poll_recv(&mut Context::from_waker(&waker)).is_pending());
                }
                if !faulty_first {
                    may_panic(|| faulty.poll_recv(&mut Context::from_waker(&waker)).is_pending());
                }
                may_panic(|| publisher.publish(round));
                assert_eq!(publisher.next_seq(), round + 1);
                for ((other, wake_counter), seen) in others.iter_mut().zip(&wake_counters).zip(seen) {
                    wake_counter.wait_beyond(seen);
                    assert_eq!(other.try_recv(), Ok(round));
                }
                may_panic(|| assert_eq!(faulty.try_recv(), Ok(round)));
                if faulty.position() == round {
                    // The receive itself panicked, because it dropped the waker.
                    assert_eq!(faulty.try_recv(), Ok(round));
                }
            }
            may_panic(|| drop(waker));
            handles
        };
        may_panic(|| drop(faulty));
        drop((publisher, others));
        // The watchdog thread may still be waking.
        eventually("no waker is left behind", || handles.load(Ordering::SeqCst) == 0);
    });
}

#[test]
fn a_waker_that_panics_when_woken_does_not_affect_others() {
    bad_waker_among_good_ones(PanicsIn::Wake, Wake::Cascade);
    bad_waker_among_good_ones(PanicsIn::Wake, Wake::All);
}

#[test]
fn a_waker_that_panics_when_cloned_does_not_affect_others() {
    bad_waker_among_good_ones(PanicsIn::Clone, Wake::Cascade);
    bad_waker_among_good_ones(PanicsIn::Clone, Wake::All);
}

#[test]
fn a_waker_that_panics_when_dropped_does_not_affect_others() {
    bad_waker_among_good_ones(PanicsIn::Drop, Wake::Cascade);
    bad_waker_among_good_ones(PanicsIn::Drop, Wake::All);
}

#[test]
fn a_cancelled_wait_leaves_no_waker_behind_although_its_drop_panics() {
    let (publisher, mut subscriber) = channel::<u64>(4);
    let (waker, handles) = panicking_waker(PanicsIn::Drop);
    for _ in 0..10 {
        may_panic(|| {
            let mut wait = pin!(subscriber.recv());
            assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        });
        assert_eq!(
            handles.load(Ordering::SeqCst),
            1,
            "the cancelled wait left its waker behind"
        );
    }
    must_panic(|| drop(waker));
    publisher.publish(5);
    assert_eq!(subscriber.try_recv(), Ok(5));
}

#[test]
fn close_wakes_every_waiter_although_some_wakers_panic() {
    must_end(|| {
        let (publisher, subscriber) = channel::<u64>(4);
        let mut faulty: Vec<_> = (0..3)
            .map(|_| (subscriber.clone(), panicking_waker(PanicsIn::Wake).0))
            .collect();
        let mut good: Vec<_> = (0..3).map(|_| (subscriber.clone(), WakeCounter::new())).collect();
        for ((faulty, bad), (good, wake_counter)) in faulty.iter_mut().zip(&mut good) {
            assert!(faulty.poll_recv(&mut Context::from_waker(bad)).is_pending());
            assert!(
                good.poll_recv(&mut Context::from_waker(&wake_counter.waker()))
                    .is_pending()
            );
        }
        may_panic(|| drop(publisher));
        for (good, wake_counter) in &mut good {
            wake_counter.wait_beyond(0);
            assert_eq!(good.try_recv(), Err(TryRecvError::Closed));
        }
        for (faulty, _) in &mut faulty {
            assert_eq!(faulty.try_recv(), Err(TryRecvError::Closed));
        }
    });
}

#[test]
fn a_panicking_reader_releases_its_reference() {
    let counter = DropCounter::new();
    let (publisher, mut subscriber): (Publisher<Tracked>, _) = channel(4);
    for id in 1..=4 {
        publisher.publish(counter.value(id));
    }
    must_panic(|| {
        let held = subscriber.try_recv_ref().unwrap();
        assert_eq!(held.id(), 1);
        planned_panic()
    });
    must_panic(|| {
        let mut batch = subscriber.try_recv_batch(3).unwrap();
        assert_eq!(batch.next().unwrap().id(), 2);
        planned_panic()
    });
    assert_eq!(subscriber.position(), 3);
    for id in 5..=100 {
        publisher.publish(counter.value(id));
    }
    assert!(matches!(subscriber.try_recv(), Err(TryRecvError::Lagged(lagged)) if lagged.first_missed == 3));
    let mut fresh = publisher.subscribe_from(Start::Oldest);
    assert_eq!(drain(&mut fresh), [97, 98, 99, 100]);
}

#[test]
fn invalid_arguments_panic() {
    assert!(!panic_message(|| channel::<u8>(0)).is_empty());
    assert!(!panic_message(|| channel::<u8>(usize::MAX)).is_empty());
    let wake_counter = WakeCounter::new();
    let (_publisher, mut subscriber) = channel::<u8>(1);
    let waker = wake_counter.waker();
    assert_eq!(subscriber.poll_recv(&mut Context::from_waker(&waker)), Poll::Pending);
    assert_eq!(wake_counter.wakes(), 0, "no call could wake anybody");
}
