//! The memory bound: the ring's storage, the values in it, and what readers, publishers and held references add.
//!
//! Everything here happens on one thread, so that thread's account of its allocations is exact.

use std::pin::pin;
use std::sync::Arc;
use std::task::Context;

use doorbell::ring::{Publisher, Start, Subscriber, TryRecvError, channel};
use testkit::alloc::{CountingAllocator, live_bytes};
use testkit::panics::{must_panic, planned_panic};
use testkit::tracked::{DropCounter, Tracked};
use testkit::wakers::WakeCounter;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

type Block = [u8; 4096];

/// Twice the capacity in nodes of this type, a line of cache for each, and something for the channel itself.
fn storage_bound<T>(capacity: usize) -> i64 {
    (2 * capacity * (size_of::<T>() + 64) + 16_384) as i64
}

/// What a subscriber or a publisher may add by itself.
const PER_HANDLE: i64 = 2_048;

/// The bytes that came to stay during `body`.
fn grown<R>(body: impl FnOnce() -> R) -> (i64, R) {
    let before = live_bytes();
    let result = body();
    (live_bytes() - before, result)
}

fn fill(publisher: &Publisher<Block>, count: u64) {
    for number in 0..count {
        publisher.publish([number as u8; 4096]);
    }
}

#[test]
fn an_idle_ring() {
    for capacity in [1, 2, 3, 100, 1_000] {
        let (bytes, channel) = grown(|| channel::<Block>(capacity));
        assert!(
            bytes <= storage_bound::<Block>(capacity) + 2 * PER_HANDLE,
            "{capacity}: {bytes}"
        );
        drop(channel);
    }
}

#[test]
fn nothing_stays_behind() {
    for capacity in [1, 7, 100] {
        let (bytes, ()) = grown(|| {
            let (publisher, mut subscriber) = channel::<Block>(capacity);
            let mut others: Vec<_> = (0..10).map(|_| subscriber.clone()).collect();
            fill(&publisher, 3 * capacity as u64);
            let held = subscriber.try_recv_batch(64).is_ok();
            fill(&publisher, 3 * capacity as u64);
            others.truncate(5);
            let another = publisher.clone();
            drop(publisher);
            fill(&another, capacity as u64);
            assert!(!held);
        });
        assert_eq!(bytes, 0, "capacity {capacity}");
    }
}

/// R20 in full, lagging readers included.
#[test]
fn large_messages_large_ring_many_subscribers() {
    const CAPACITY: usize = 4_096;
    let (bytes, (publisher, mut subscribers)) = grown(|| {
        let (publisher, subscriber) = channel::<Block>(CAPACITY);
        let subscribers: Vec<Subscriber<Block>> = (0..64).map(|_| subscriber.clone()).collect();
        (publisher, subscribers)
    });
    let bound = storage_bound::<Block>(CAPACITY) + 66 * PER_HANDLE;
    assert!(bytes <= bound, "{bytes} > {bound}");
    let mut most = bytes;
    for lap in 0..3u64 {
        let (more, ()) = grown(|| {
            fill(&publisher, CAPACITY as u64);
            for (index, subscriber) in subscribers.iter_mut().enumerate() {
                // Some read everything, some a little, some nothing.
                for _ in 0..index % 3 * CAPACITY / 64 {
                    if let Ok(batch) = subscriber.try_recv_batch(64) {
                        batch.for_each(drop);
                    }
                }
            }
        });
        most += more;
        assert!(most <= bound, "lap {lap}: {most} > {bound}");
    }
}

#[test]
fn values_on_the_heap_go_when_they_are_overwritten() {
    let counter = DropCounter::new();
    for capacity in [1u64, 5, 64, 300] {
        let (publisher, subscriber) = channel(capacity as usize);
        let lagging: Vec<_> = (0..10).map(|_| subscriber.clone()).collect();
        for id in 0..10 * capacity {
            publisher.publish(counter.value(id));
            assert!(counter.alive() <= 2 * capacity as i64 + 1, "capacity {capacity}");
        }
        drop((publisher, subscriber, lagging));
        assert_eq!(counter.alive(), 0);
    }
}

#[test]
fn readers_hold_at_most_what_they_announced() {
    let counter = DropCounter::new();
    let (publisher, subscriber) = channel(128);
    let mut readers: Vec<_> = (0..8).map(|_| subscriber.clone()).collect();
    for id in 0..10_000 {
        publisher.publish(counter.value(id));
        let reader = &mut readers[id as usize % 8];
        match id % 5 {
            0 => drop(reader.try_recv()),
            1 => drop(reader.try_recv_ref()),
            2 => drop(reader.try_recv_batch(64).map(|batch| batch.take(9).for_each(drop))),
            _ => {}
        }
        assert!(counter.alive() <= 2 * 128 + 8 * 64 + 1);
    }
}

/// Keeps what `hold` takes for a thousand laps and returns the most that came to stay meanwhile.
fn while_held<R>(capacity: usize, laps: u64, hold: impl FnOnce(&mut Subscriber<Block>, &mut dyn FnMut()) -> R) -> i64 {
    let (publisher, mut subscriber) = channel::<Block>(capacity);
    let mut idle: Vec<_> = (0..4).map(|_| subscriber.clone()).collect();
    fill(&publisher, capacity as u64);
    let before = live_bytes();
    let mut most = 0;
    hold(&mut subscriber, &mut || {
        for _ in 0..laps {
            fill(&publisher, capacity as u64);
            most = most.max(live_bytes() - before);
        }
    });
    // Later publishes give back what the reference had held.
    while subscriber.try_recv() != Err(TryRecvError::Empty) {}
    fill(&publisher, 6 * capacity as u64);
    let left = live_bytes() - before;
    assert!(
        left <= PER_HANDLE,
        "{left} bytes are still there after the reference went"
    );
    assert!(idle[0].try_recv().is_err());
    most
}

#[test]
fn one_reference_held_for_many_laps() {
    for (capacity, laps) in [(1, 2_000), (3, 1_000), (64, 300)] {
        let most = while_held(capacity, laps, |subscriber, publish| {
            let held = subscriber.try_recv_ref().unwrap();
            publish();
            assert!(held.iter().all(|byte| *byte == held[0]));
        });
        let bound = storage_bound::<Block>(capacity);
        assert!(most <= bound, "capacity {capacity}: {most} > {bound}");
    }
}

#[test]
fn one_reference_held_whatever_the_way_to_publish() {
    type Publish = fn(&Publisher<Tracked>, Tracked);
    let ways: [Publish; 3] = [
        |publisher, value| drop_seq(publisher.publish(value)),
        |publisher, value| drop_seq(publisher.publish_with(|_| value)),
        |publisher, value| drop_seq(publisher.publish_batch([value]).start),
    ];
    let counter = DropCounter::new();
    for publish in ways {
        for capacity in [1, 4, 50] {
            let (publisher, mut subscriber) = channel(capacity);
            publisher.publish(counter.value(0));
            let held = subscriber.try_recv_ref().unwrap();
            for id in 1..5_000 {
                publish(&publisher, counter.value(id));
                assert!(counter.alive() <= 4 * capacity as i64 + 2, "capacity {capacity}, {id}");
            }
            assert_eq!(held.id(), 0);
        }
        assert_eq!(counter.alive(), 0);
    }
}

fn drop_seq(seq: u64) {
    assert!(seq > 0);
}

#[test]
fn a_long_batch_beside_a_held_reference() {
    let counter = DropCounter::new();
    for capacity in [1usize, 4, 50] {
        let (publisher, mut subscriber) = channel(capacity);
        publisher.publish(counter.value(0));
        let held = subscriber.try_recv_ref().unwrap();
        let bound = 6 * capacity as i64 + 8;
        publisher.publish_batch((1..5_000u32).map(|id| {
            assert!(
                counter.alive() <= bound,
                "capacity {capacity}, {id}: {}",
                counter.alive()
            );
            counter.value(id.into())
        }));
        assert_eq!(held.id(), 0);
    }
    assert_eq!(counter.alive(), 0);
}

#[test]
fn a_whole_batch_held_for_many_laps() {
    for (capacity, laps) in [(8, 500), (64, 100), (200, 40)] {
        let most = while_held(capacity, laps, |subscriber, publish| {
            let held: Vec<&Block> = subscriber.try_recv_batch(64).unwrap().collect();
            publish();
            for (number, block) in held.into_iter().enumerate() {
                assert!(block.iter().all(|byte| *byte == number as u8));
            }
        });
        let bound = storage_bound::<Block>(capacity) + 64 * 4_200;
        assert!(most <= bound, "capacity {capacity}: {most} > {bound}");
    }
}

#[test]
fn a_publisher_stuck_for_many_laps() {
    for (capacity, laps) in [(1, 500), (8, 300), (64, 50)] {
        let (publisher, subscriber) = channel::<Block>(capacity);
        fill(&publisher, 3 * capacity as u64);
        let mut most = 0;
        let before = live_bytes();
        publisher.publish_with(|_| {
            for _ in 0..laps {
                fill(&publisher, capacity as u64);
                most = most.max(live_bytes() - before);
            }
            [7; 4096]
        });
        let bound = storage_bound::<Block>(capacity);
        assert!(most <= bound, "capacity {capacity}: {most} > {bound}");
        fill(&publisher, 6 * capacity as u64);
        let left = live_bytes() - before;
        assert!(left <= PER_HANDLE, "capacity {capacity}: {left} bytes stay");
        drop(subscriber);
    }
}

/// Does `cycle` many times; what it costs must not grow with that.
fn flat(what: &str, mut cycle: impl FnMut()) {
    (0..100).for_each(|_| cycle());
    let (bytes, ()) = grown(|| (0..5_000).for_each(|_| cycle()));
    assert!(bytes.abs() <= PER_HANDLE, "{what}: {bytes} bytes more");
}

#[test]
fn handles_that_come_and_go() {
    let (publisher, mut subscriber) = channel::<u64>(16);
    let waker = WakeCounter::new().waker();
    flat("publishers", || drop(publisher.clone()));
    flat("weak publishers", || drop(publisher.downgrade().upgrade()));
    flat("subscribers", || drop(publisher.subscribe_from(Start::Oldest)));
    flat("clones", || drop(subscriber.clone()));
    flat("many at a time", || {
        drop((0..20).map(|_| subscriber.clone()).collect::<Vec<_>>())
    });
    flat("subscribers with something to read", || {
        let mut fresh = subscriber.clone();
        publisher.publish(1);
        assert_eq!(fresh.try_recv(), Ok(1));
        assert_eq!(subscriber.try_recv(), Ok(1));
    });
    flat("cancelled waits", || {
        let mut wait = pin!(subscriber.recv());
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    });
    flat("subscribers that leave while they wait", || {
        let mut fresh = publisher.subscribe();
        assert!(fresh.poll_recv(&mut Context::from_waker(&waker)).is_pending());
    });
    flat("panicking closures", || {
        must_panic(|| publisher.publish_with(|_| planned_panic()))
    });
}

#[test]
fn waiters_leave_no_waker_behind() {
    let (publisher, subscriber) = channel::<u64>(16);
    let wake_counter = WakeCounter::new();
    let mut waiting: Vec<_> = (0..10).map(|_| subscriber.clone()).collect();
    for _ in 0..3 {
        let waker = wake_counter.waker();
        for waiting in &mut waiting {
            assert!(waiting.poll_recv(&mut Context::from_waker(&waker)).is_pending());
        }
    }
    // One for each waiter at most, however often it was polled.
    assert!(Arc::strong_count(&wake_counter) <= 11);
    drop(waiting);
    assert_eq!(Arc::strong_count(&wake_counter), 1);
    publisher.publish(1);
    assert_eq!(wake_counter.wakes(), 0);
}
