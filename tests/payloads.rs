//! Types of every shape: zero-sized, large, over-aligned, without `Clone`, with and without `Drop`.

use std::collections::HashSet;
use std::fmt::Debug;
use std::num::NonZeroU8;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

use doorbell::ring::{Start, Subscriber, TryRecvError, channel};
use testkit::threads::{block_on, join_all};

/// Sends `make(0..)` through rings of several sizes by value, by reference and in batches, with and without lag.
fn travels<T: Clone + Debug + PartialEq + Send + Sync + 'static>(make: impl Fn(u64) -> T) {
    for capacity in [1, 2, 3, 8, 70] {
        let (publisher, mut by_value) = channel::<T>(capacity);
        let mut by_ref = by_value.clone();
        let mut by_batch = by_value.clone();
        let mut lagging = by_value.clone();
        for round in 0..5 * capacity as u64 {
            assert_eq!(publisher.publish(make(round)), round + 1);
            assert_eq!(by_value.try_recv(), Ok(make(round)));
            assert_eq!(*by_ref.try_recv_ref().unwrap(), make(round));
            if by_batch.backlog() == capacity as u64 {
                let first = by_batch.position();
                let mut seq = first;
                while let Ok(batch) = by_batch.try_recv_batch(capacity) {
                    for value in batch {
                        assert_eq!(*value, make(seq - 1));
                        seq += 1;
                    }
                }
                assert_eq!(seq, round + 2);
            }
        }
        let Err(TryRecvError::Lagged(lagged)) = lagging.try_recv() else {
            panic!("the subscriber lags");
        };
        assert_eq!(block_on(lagging.recv()), Ok(make(lagged.resume_at - 1)));
        drop(publisher);
        assert_eq!(by_value.try_recv(), Err(TryRecvError::Closed));
    }
}

#[test]
fn zero_sized_values_work() {
    travels(|_| ());
    travels(|_| [0u64; 0]);
}

#[test]
fn small_and_odd_sizes_work() {
    travels(|number| number as u8);
    travels(|number| number % 2 == 0);
    travels(|number| NonZeroU8::new(number as u8));
    travels(|number| [number as u8; 3]);
    travels(|number| (number as u8, number, number as u16));
    travels(|number| Some(Box::new(number)).filter(|number| **number % 3 > 0));
}

#[test]
fn large_values_work() {
    travels(|number| [number as u8; 4096]);
    travels(|number| Box::new([number; 512]));
}

#[test]
fn heap_allocated_values_work() {
    travels(|number| number.to_string());
    travels(|number| vec![number; number as usize % 10]);
    travels(Arc::new);
}

#[repr(align(128))]
#[derive(Debug, Clone, PartialEq)]
struct TwoLines(u8);

#[repr(align(4096))]
#[derive(Debug, Clone, PartialEq)]
struct Page(u64);

#[repr(align(64))]
#[derive(Debug, Clone, PartialEq)]
struct AlignedNothing;

fn is_aligned<T>(value: &T) {
    assert_eq!(std::ptr::from_ref(value).addr() % align_of::<T>(), 0);
}

#[test]
fn over_aligned_values_work() {
    travels(|number| TwoLines(number as u8));
    travels(Page);
    travels(|_| AlignedNothing);
}

fn stays_aligned<T: Send + Sync + 'static>(make: impl Fn(u64) -> T) {
    let (publisher, mut subscriber) = channel(5);
    // A held reference, so that some values are diverted to overflow cells.
    let mut holder = subscriber.clone();
    publisher.publish(make(0));
    let held = holder.try_recv_ref().unwrap();
    is_aligned(&*held);
    for number in 1..50 {
        publisher.publish(make(number));
        if number % 3 == 0 {
            while let Ok(batch) = subscriber.try_recv_batch(5) {
                batch.for_each(is_aligned);
            }
        }
    }
}

#[test]
fn references_are_aligned() {
    stays_aligned(|number| TwoLines(number as u8));
    stays_aligned(Page);
    stays_aligned(|_| AlignedNothing);
    stays_aligned(|number| number as u16);
}

/// Neither `Clone` nor `Copy`: it can only be read in place.
#[derive(Debug)]
struct Unique(u64);

#[test]
fn values_without_clone_are_read_by_reference() {
    let (publisher, mut subscriber) = channel::<Unique>(4);
    publisher.publish(Unique(1));
    publisher.publish_batch([Unique(2), Unique(3)]);
    publisher.publish_with(Unique);
    let held = subscriber.try_recv_ref().unwrap();
    assert_eq!((held.seq(), held.0), (1, 1));
    drop(held);
    assert_eq!(block_on(subscriber.recv_ref()).unwrap().0, 2);
    assert_eq!(subscriber.recv_ref_blocking().unwrap().0, 3);
    let batch = block_on(subscriber.recv_batch(10)).unwrap();
    assert_eq!(batch.map(|value| value.0).collect::<Vec<_>>(), [4]);
    assert!(matches!(subscriber.try_recv_batch(1), Err(TryRecvError::Empty)));
    drop(publisher);
    assert!(subscriber.recv_batch_blocking(1).is_err());
}

#[test]
fn trait_objects_and_closures_work() {
    type Job = Box<dyn Fn(u64) -> u64 + Send + Sync>;
    let (publisher, subscriber) = channel::<Job>(8);
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let mut subscriber = subscriber.clone();
            thread::spawn(move || {
                let mut sum = 0;
                while let Ok(job) = subscriber.recv_ref_blocking() {
                    sum += job(10);
                }
                sum
            })
        })
        .collect();
    for factor in 1..=8 {
        publisher.publish(Box::new(move |number| number * factor));
    }
    drop(publisher);
    assert_eq!(join_all(workers), [360, 360, 360]);
}

static NOTHINGS: AtomicI64 = AtomicI64::new(0);

/// A zero-sized type that counts its instances.
#[derive(Debug)]
struct CountedNothing;

impl CountedNothing {
    fn new() -> Self {
        NOTHINGS.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Clone for CountedNothing {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl Drop for CountedNothing {
    fn drop(&mut self) {
        NOTHINGS.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn zero_sized_values_are_dropped_once() {
    let (publisher, mut subscriber) = channel(3);
    let mut holder = subscriber.clone();
    publisher.publish(CountedNothing::new());
    let held = holder.try_recv_ref().unwrap();
    for _ in 0..20 {
        publisher.publish(CountedNothing::new());
        drop(subscriber.try_recv());
        assert!(NOTHINGS.load(Ordering::SeqCst) <= 3 * 2 + 2);
    }
    assert_eq!(held.seq(), 1);
    drop(held);
    drop((publisher, subscriber, holder));
    assert_eq!(NOTHINGS.load(Ordering::SeqCst), 0);
}

#[test]
fn references_of_one_batch_have_different_addresses() {
    let (publisher, mut subscriber) = channel::<u64>(64);
    publisher.publish_batch(vec![7; 64]);
    let mut places = HashSet::new();
    while let Ok(batch) = subscriber.try_recv_batch(64) {
        places.extend(batch.map(|value| std::ptr::from_ref(value).addr()));
    }
    assert_eq!(places.len(), 64);
}

#[test]
fn every_capacity_up_to_two_hundred_works() {
    for capacity in 1..=200 {
        let (publisher, mut subscriber) = channel::<String>(capacity);
        assert_eq!(publisher.capacity(), capacity);
        assert_eq!(subscriber.capacity(), capacity);
        for number in 0..2 * capacity {
            publisher.publish(number.to_string());
        }
        let mut fresh: Subscriber<String> = publisher.subscribe_from(Start::Oldest);
        let kept: Vec<_> = fresh.try_iter().map(Result::unwrap).collect();
        assert_eq!(
            kept,
            (capacity..2 * capacity)
                .map(|number| number.to_string())
                .collect::<Vec<_>>()
        );
        assert!(matches!(subscriber.try_recv(), Err(TryRecvError::Lagged(_))));
    }
}
