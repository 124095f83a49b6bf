//! User code that calls into the same channel from `Drop`, `Clone`, wakers, closures and iterators.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread;

use doorbell::ring::{Builder, Publisher, Start, Subscriber, TryRecvError, Wake, WeakPublisher, channel};
use testkit::threads::{eventually, must_end};
use testkit::tracked::{DropCounter, Tracked};
use testkit::wakers::{WakeCounter, callback_waker};

/// Runs a closure when it is dropped (and when it is cloned).
struct Hooked {
    tracked: Tracked,
    on_drop: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Hooked {
    fn new(tracked: Tracked, on_drop: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self {
            tracked,
            on_drop: Some(Box::new(on_drop)),
        }
    }

    fn plain(tracked: Tracked) -> Self {
        Self { tracked, on_drop: None }
    }
}

impl Drop for Hooked {
    fn drop(&mut self) {
        if let Some(on_drop) = self.on_drop.take() {
            on_drop();
        }
    }
}

/// Publishes values whose drop calls `act` until each has run, then checks that every value is dropped once.
fn values_whose_drop(act: impl Fn(&Publisher<Hooked>) + Send + Sync + 'static) {
    must_end(move || {
        let counter = DropCounter::new();
        let act = Arc::new(act);
        for capacity in [1, 2, 7] {
            let ran = Arc::new(AtomicU64::new(0));
            let (publisher, mut subscriber) = channel::<Hooked>(capacity);
            for id in 0..60 {
                let (weak, act, ran) = (publisher.downgrade(), Arc::clone(&act), Arc::clone(&ran));
                publisher.publish(Hooked::new(counter.value(id), move || {
                    ran.fetch_add(1, Ordering::SeqCst);
                    // The channel is closed when the last values are dropped.
                    if let Some(publisher) = weak.upgrade() {
                        act(&publisher);
                    }
                }));
                while let Ok(held) = subscriber.try_recv_ref() {
                    held.tracked.id();
                }
            }
            let stats = subscriber.stats();
            assert_eq!(stats.received + stats.skipped + stats.void, subscriber.position() - 1);
            drop((publisher, subscriber));
            assert_eq!(ran.load(Ordering::SeqCst), 60);
            assert_eq!(counter.alive(), 0);
        }
    });
}

#[test]
fn a_value_may_publish_when_dropped() {
    let counter = DropCounter::new();
    values_whose_drop(move |publisher| {
        publisher.publish(Hooked::plain(counter.value(1_000)));
    });
}

#[test]
fn a_value_may_publish_a_whole_lap_when_dropped() {
    let counter = DropCounter::new();
    values_whose_drop(move |publisher| {
        let batch: Vec<_> = (0..20).map(|id| Hooked::plain(counter.value(id))).collect();
        publisher.publish_batch(batch);
    });
}

#[test]
fn a_value_may_subscribe_and_receive_when_dropped() {
    values_whose_drop(|publisher| {
        let mut subscriber = publisher.subscribe_from(Start::Oldest);
        if let Ok(held) = subscriber.try_recv_ref() {
            held.tracked.id();
        }
        if let Ok(batch) = subscriber.resubscribe().try_recv_batch(5) {
            assert_eq!(batch.count(), 0);
        }
    });
}

#[test]
fn values_may_hold_handles_of_their_own_channel() {
    enum Handle {
        Nothing,
        Publisher(Publisher<Handle>),
        Subscriber(Mutex<Subscriber<Handle>>),
        Weak(WeakPublisher<Handle>),
    }
    must_end(|| {
        let (publisher, mut subscriber) = channel::<Handle>(3);
        for turn in 0..50 {
            publisher.publish(match turn % 3 {
                0 => Handle::Publisher(publisher.clone()),
                1 => Handle::Subscriber(Mutex::new(publisher.subscribe())),
                _ => Handle::Weak(publisher.downgrade()),
            });
        }
        // Overwriting the values drops the handles inside `publish`.
        for _ in 0..20 {
            publisher.publish(Handle::Nothing);
        }
        assert_eq!((publisher.stats().publishers, publisher.subscriber_count()), (1, 1));
        drop(publisher);
        loop {
            match subscriber.try_recv_ref() {
                Ok(held) => match &*held {
                    Handle::Nothing => {}
                    Handle::Publisher(publisher) => assert!(publisher.next_seq() > 1),
                    Handle::Subscriber(subscriber) => assert!(subscriber.lock().unwrap().position() > 0),
                    Handle::Weak(weak) => assert!(weak.upgrade().is_none()),
                },
                Err(TryRecvError::Closed) => break,
                Err(TryRecvError::Empty) => panic!("Empty on a closed channel"),
                Err(TryRecvError::Lagged(_)) => {}
            }
        }
    });
}

/// Its clone publishes many laps before it reads its own value.
struct Publishing {
    tracked: Tracked,
    publisher: Option<WeakPublisher<Publishing>>,
}

impl Clone for Publishing {
    fn clone(&self) -> Self {
        if let Some(publisher) = self.publisher.as_ref().and_then(WeakPublisher::upgrade) {
            for _ in 0..50 {
                publisher.publish(Self {
                    tracked: self.tracked.clone(),
                    publisher: None,
                });
            }
        }
        Self {
            tracked: self.tracked.clone(),
            publisher: None,
        }
    }
}

#[test]
fn a_clone_may_publish_many_laps() {
    must_end(|| {
        let counter = DropCounter::new();
        for capacity in [1, 2, 5, 16] {
            let (publisher, mut subscriber) = channel(capacity);
            for id in 0..20 {
                publisher.publish(Publishing {
                    tracked: counter.value(id),
                    publisher: Some(publisher.downgrade()),
                });
                let got = loop {
                    match subscriber.try_recv_seq() {
                        Ok((_, value)) => break value,
                        Err(TryRecvError::Lagged(_)) => {}
                        Err(error) => panic!("{error:?}"),
                    }
                };
                assert!(got.tracked.id() <= id);
            }
            drop((publisher, subscriber));
            assert_eq!(counter.alive(), 0);
        }
    });
}

#[test]
fn closures_may_use_the_channel() {
    must_end(|| {
        for capacity in [1u64, 2, 3, 8] {
            let (publisher, mut subscriber) = channel::<u64>(capacity as usize);
            let inner = publisher.clone();
            let seq = publisher.publish_with(|outer| {
                assert_eq!(subscriber.try_recv(), Err(TryRecvError::Empty));
                assert_eq!(inner.publish(1), outer + 1);
                assert_eq!(inner.publish_batch([2, 3]), outer + 2..outer + 4);
                assert_eq!(inner.publish_with(|nested| inner.publish(nested)), outer + 4);
                let mut late = inner.subscribe();
                assert_eq!(late.position(), outer + 6);
                assert_eq!(late.try_recv(), Err(TryRecvError::Empty));
                drop(late);
                drop(inner);
                100
            });
            assert_eq!(seq, 1);
            let expected = [(1, 100), (2, 1), (3, 2), (4, 3), (5, 6), (6, 5)];
            let got: Vec<_> = std::iter::from_fn(|| {
                loop {
                    match subscriber.try_recv_seq() {
                        Ok(pair) => return Some(pair),
                        Err(TryRecvError::Lagged(_)) => {}
                        Err(_) => return None,
                    }
                }
            })
            .collect();
            // Each value has its own seq; a small ring retains only the last ones.
            assert_eq!(got, expected[6 - got.len()..]);
            assert_eq!(got.len() as u64, capacity.min(6));
        }
    });
}

#[test]
fn a_closure_may_drop_every_other_handle() {
    must_end(|| {
        let (publisher, subscriber) = channel::<u64>(4);
        let other = publisher.clone();
        let (mut kept, waiting) = (subscriber.clone(), subscriber.clone());
        let waiter = thread::spawn(move || {
            let mut waiting = waiting;
            waiting.recv_blocking()
        });
        publisher.publish_with(move |_| {
            drop((other, subscriber));
            8
        });
        assert_eq!(waiter.join().unwrap(), Ok(8));
        drop(publisher);
        assert_eq!(kept.try_recv(), Ok(8));
        assert_eq!(kept.try_recv(), Err(TryRecvError::Closed));
    });
}

#[test]
fn batch_iterators_may_use_the_channel() {
    must_end(|| {
        for capacity in [1usize, 4, 64] {
            let (publisher, mut subscriber) = channel::<u64>(capacity);
            let (inner, mut reader) = (publisher.clone(), publisher.subscribe());
            let seqs = publisher.publish_batch((0..10u32).map(|number| {
                inner.publish(1_000 + u64::from(number));
                while reader.try_recv().is_ok() {}
                u64::from(number)
            }));
            // The batch claimed its ten seqs first; the events that the iterator published follow.
            assert_eq!(seqs, 1..11);
            assert_eq!(publisher.next_seq(), 21);
            let mut last = 0;
            loop {
                match subscriber.try_recv_seq() {
                    Ok((seq, value)) => {
                        assert_eq!(value, if seq <= 10 { seq - 1 } else { 1_000 + seq - 11 });
                        last = seq;
                    }
                    Err(TryRecvError::Lagged(_)) => {}
                    Err(_) => break,
                }
            }
            assert_eq!(last, 20);
        }
    });
}

/// What the wakers below do with the channel.
type Act = fn(&WeakPublisher<u64>);

const ACTS: [Act; 3] = [
    |weak| {
        if let Some(publisher) = weak.upgrade() {
            publisher.publish(1_000);
        }
    },
    |weak| {
        if let Some(publisher) = weak.upgrade() {
            let mut fresh = publisher.subscribe_from(Start::Oldest);
            while fresh.try_recv().is_ok() {}
            drop(publisher.subscribe());
        }
    },
    |weak| {
        if let Some(publisher) = weak.upgrade() {
            let mut waiting = publisher.subscribe();
            let wake_counter = WakeCounter::new();
            assert!(
                waiting
                    .poll_recv(&mut Context::from_waker(&wake_counter.waker()))
                    .is_pending()
            );
        }
    },
];

#[test]
fn wakers_may_use_the_channel_when_woken_and_when_dropped() {
    must_end(|| {
        for wake in [Wake::Cascade, Wake::All] {
            for (ring, drop_act) in ACTS
                .iter()
                .flat_map(|ring| ACTS.iter().map(move |drop_act| (*ring, *drop_act)))
            {
                call_back(wake, ring, drop_act);
            }
        }
    });
}

fn call_back(wake: Wake, ring: Act, on_drop: Act) {
    let (publisher, subscriber) = Builder::new(32).wake(wake).channel::<u64>().unwrap();
    let wakes = Arc::new(AtomicU64::new(0));
    let mut waiting: Vec<_> = (0..6).map(|_| subscriber.clone()).collect();
    for waiting in &mut waiting {
        let (on_wake, dropped, wakes) = (publisher.downgrade(), publisher.downgrade(), Arc::clone(&wakes));
        let on_ring = move || {
            wakes.fetch_add(1, Ordering::SeqCst);
            ring(&on_wake);
        };
        let waker = callback_waker(on_ring, move || on_drop(&dropped));
        assert_eq!(waiting.poll_recv(&mut Context::from_waker(&waker)), Poll::Pending);
    }
    publisher.publish(1);
    eventually("every waiter is woken", || wakes.load(Ordering::SeqCst) >= 6);
    for waiting in &mut waiting {
        assert_eq!(waiting.try_recv(), Ok(1));
    }
    // Replacing a waker, cancelling a wait and closing also drop wakers.
    for waiting in &mut waiting {
        while waiting.try_recv().is_ok() {}
        for _ in 0..3 {
            let dropped = publisher.downgrade();
            let waker = callback_waker(|| {}, move || on_drop(&dropped));
            let _ = waiting.poll_recv(&mut Context::from_waker(&waker));
        }
    }
    drop(waiting);
    let mut last = subscriber;
    let dropped = publisher.downgrade();
    while last.try_recv().is_ok() {}
    let waker = callback_waker(|| {}, move || on_drop(&dropped));
    let _ = last.poll_recv(&mut Context::from_waker(&waker));
    drop((waker, publisher));
    while last.try_recv() != Err(TryRecvError::Closed) {
        thread::yield_now();
    }
}

#[test]
fn a_waker_may_drop_the_other_waiters() {
    must_end(|| {
        let (publisher, subscriber) = Builder::new(4).wake(Wake::All).channel::<u64>().unwrap();
        let waiting: Arc<Mutex<Vec<Subscriber<u64>>>> = Arc::default();
        for _ in 0..5 {
            let mut one = subscriber.clone();
            let all = Arc::clone(&waiting);
            let waker = callback_waker(move || all.lock().unwrap().clear(), || {});
            assert!(one.poll_recv(&mut Context::from_waker(&waker)).is_pending());
            waiting.lock().unwrap().push(one);
        }
        publisher.publish(1);
        eventually("the other waiters are dropped", || publisher.subscriber_count() == 1);
    });
}
