//! The memory bound: the ring's storage, the values in it, and what subscribers, publishers and held references add.
//!
//! Everything happens on one thread, so its count of allocated bytes is exact.

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

/// Twice the capacity in slots of this type, a cache line for each, and a constant for the channel itself.
fn storage_bound<T>(capacity: usize) -> i64 {
    (2 * capacity * (size_of::<T>() + 64) + 16_384) as i64
}

/// The bytes that one subscriber or publisher may add.
const PER_HANDLE: i64 = 2_048;

/// The bytes that stay for reuse when the value of an overflow cell is freed; up to twice as many cells are made as are used at once.
const CELL: i64 = 32;

/// The bytes allocated during `body` and not freed by its end.
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
fn an_idle_ring_stays_within_the_storage_bound() {
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
fn dropping_the_channel_frees_everything() {
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
fn many_subscribers_of_a_large_ring_cost_little_memory() {
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
                // Some subscribers read everything, some a little, some nothing.
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
fn overwritten_values_free_their_heap_memory() {
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
fn readers_retain_at_most_what_they_announced() {
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

/// Holds what `hold` takes for `laps` laps and returns the most bytes that were in use during that time.
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
    // Later publishes free what the reference had held.
    while subscriber.try_recv() != Err(TryRecvError::Empty) {}
    fill(&publisher, 6 * capacity as u64);
    let left = live_bytes() - before;
    let cells = most / size_of::<Block>() as i64;
    assert!(
        left <= PER_HANDLE + 2 * CELL * cells,
        "{left} bytes are still in use after the reference was dropped"
    );
    assert!(idle[0].try_recv().is_err());
    most
}

#[test]
fn a_reference_held_for_many_laps_costs_one_interval() {
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
fn a_held_reference_costs_one_interval_for_every_way_to_publish() {
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
fn a_long_batch_beside_a_held_reference_stays_within_the_bound() {
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
fn a_batch_held_for_many_laps_costs_one_interval() {
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
fn a_publisher_stuck_for_many_laps_stays_within_the_bound() {
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
        assert!(left <= PER_HANDLE, "capacity {capacity}: {left} bytes are still in use");
        drop(subscriber);
    }
}

/// Repeats `cycle` many times and checks that memory does not grow.
fn flat(what: &str, mut cycle: impl FnMut()) {
    (0..100).for_each(|_| cycle());
    let (bytes, ()) = grown(|| (0..5_000).for_each(|_| cycle()));
    assert!(bytes.abs() <= PER_HANDLE, "{what}: memory grew by {bytes} bytes");
}

#[test]
fn creating_and_dropping_handles_does_not_grow_memory() {
    let (publisher, mut subscriber) = channel::<u64>(16);
    let waker = WakeCounter::new().waker();
    flat("publishers", || drop(publisher.clone()));
    flat("weak publishers", || drop(publisher.downgrade().upgrade()));
    flat("subscribers", || drop(publisher.subscribe_from(Start::Oldest)));
    flat("clones", || drop(subscriber.clone()));
    flat("many subscribers at a time", || {
        drop((0..20).map(|_| subscriber.clone()).collect::<Vec<_>>())
    });
    flat("subscribers with unread events", || {
        let mut fresh = subscriber.clone();
        publisher.publish(1);
        assert_eq!(fresh.try_recv(), Ok(1));
        assert_eq!(subscriber.try_recv(), Ok(1));
    });
    flat("cancelled waits", || {
        let mut wait = pin!(subscriber.recv());
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    });
    flat("subscribers that are dropped while they wait", || {
        let mut fresh = publisher.subscribe();
        assert!(fresh.poll_recv(&mut Context::from_waker(&waker)).is_pending());
    });
    flat("panicking closures", || {
        must_panic(|| publisher.publish_with(|_| planned_panic()))
    });
}

#[test]
fn finished_and_cancelled_waits_leave_no_waker_behind() {
    let (publisher, subscriber) = channel::<u64>(16);
    let wake_counter = WakeCounter::new();
    let mut waiting: Vec<_> = (0..10).map(|_| subscriber.clone()).collect();
    for _ in 0..3 {
        let waker = wake_counter.waker();
        for waiting in &mut waiting {
            assert!(waiting.poll_recv(&mut Context::from_waker(&waker)).is_pending());
        }
    }
    // At most one for each waiter, however often it was polled.
    assert!(Arc::strong_count(&wake_counter) <= 11);
    drop(waiting);
    assert_eq!(Arc::strong_count(&wake_counter), 1);
    publisher.publish(1);
    assert_eq!(wake_counter.wakes(), 0);
}
