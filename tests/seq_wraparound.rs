//! Seqs near every boundary: powers of two, multiples of the capacity, and `MAX_SEQ`.

use doorbell::ring::{
    BuildError, Builder, Lagged, MAX_SEQ, OnLag, Publisher, Start, Subscriber, TryRecvError, channel,
};
use testkit::panics::{must_panic, panic_message, planned_panic};

fn make(capacity: usize, first_seq: u64) -> (Publisher<u64>, Subscriber<u64>) {
    Builder::new(capacity)
        .on_lag(OnLag::Oldest)
        .first_seq(first_seq)
        .channel()
        .unwrap()
}

/// Performs every kind of operation, with values that equal their seqs. Uses `5 * capacity + 4` seqs.
fn tour(capacity: usize, first: u64) {
    let span = capacity as u64;
    let (publisher, mut subscriber) = make(capacity, first);
    let mut lagging = subscriber.clone();
    assert_eq!(
        (publisher.next_seq(), subscriber.position(), publisher.stats().first_seq),
        (first, first, first)
    );
    assert_eq!(subscriber.try_recv(), Err(TryRecvError::Empty));
    // Every event is received before the next is published.
    for seq in first..first + 2 * span {
        assert_eq!(publisher.publish_with(|seq| seq), seq);
        assert_eq!(subscriber.try_recv_seq(), Ok((seq, seq)));
    }
    // The subscriber is lapped, and its lag is exact.
    let next = publisher.next_seq();
    let lost = Lagged {
        skipped: span,
        first_missed: first,
        resume_at: first + span,
    };
    assert_eq!(lagging.try_recv(), Err(TryRecvError::Lagged(lost)));
    assert_eq!(lagging.try_recv_seq(), Ok((first + span, first + span)));
    assert_eq!(lagging.backlog(), span - 1);
    // A batch across the boundary, with voids.
    must_panic(|| publisher.publish_with(|_| planned_panic()));
    let values: Vec<_> = (next + 1..next + 1 + span).collect();
    assert_eq!(publisher.publish_batch(values), next + 1..next + 1 + span);
    let mut oldest = publisher.subscribe_from(Start::Oldest);
    assert_eq!(oldest.position(), next + 1);
    let mut seq = next + 1;
    while let Ok(mut batch) = oldest.try_recv_batch(64) {
        while let Some(pair) = batch.next_seq() {
            assert_eq!(pair, (seq, &seq));
            seq += 1;
        }
    }
    assert_eq!(seq, next + 1 + span);
    // The void was lost before `subscriber` reached it.
    let lost = Lagged {
        skipped: 1,
        first_missed: next,
        resume_at: next + 1,
    };
    assert_eq!(subscriber.try_recv(), Err(TryRecvError::Lagged(lost)));
    // A reference is held for a lap.
    let held = subscriber.try_recv_ref().unwrap();
    let next = publisher.next_seq();
    for seq in next..next + 2 * span {
        assert_eq!(publisher.publish(seq), seq);
    }
    assert_eq!((held.seq(), *held), (next - span, next - span));
    drop(held);
    let lost = Lagged {
        skipped: 2 * span - 1,
        first_missed: next - span + 1,
        resume_at: next + span,
    };
    assert_eq!(subscriber.try_recv(), Err(TryRecvError::Lagged(lost)));
    // `Start::After`.
    let mut after = publisher.subscribe_from(Start::After(next + 2 * span));
    assert_eq!(after.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(publisher.publish(1), next + 2 * span);
    assert_eq!(after.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(publisher.publish(2), next + 2 * span + 1);
    assert_eq!(after.try_recv_seq(), Ok((next + 2 * span + 1, 2)));
    let end = publisher.next_seq();
    assert!(end - first <= 5 * span + 4);
    drop(publisher);
    assert_eq!(after.try_recv(), Err(TryRecvError::Closed));
    for mut reader in [subscriber, lagging, oldest] {
        let start = reader.position();
        let before = reader.stats();
        while reader.try_recv() != Err(TryRecvError::Closed) {}
        let stats = reader.stats();
        let seen = stats.received - before.received + stats.skipped - before.skipped + stats.void - before.void;
        assert_eq!((reader.position(), seen), (end, end - start));
    }
}

const CAPACITIES: [usize; 10] = [1, 2, 3, 4, 5, 7, 8, 63, 64, 100];

#[test]
fn every_operation_works_near_small_multiples_of_the_capacity() {
    for capacity in CAPACITIES {
        for first in (1..40).chain((2..6).flat_map(|laps| {
            let boundary = capacity as u64 * laps;
            boundary.saturating_sub(2).max(1)..boundary + 3
        })) {
            tour(capacity, first);
        }
    }
}

#[test]
fn every_operation_works_near_powers_of_two() {
    for capacity in CAPACITIES {
        for bits in [7, 8, 15, 16, 24, 30, 31, 32, 33, 47, 48, 53, 60, 61] {
            let boundary = 1u64 << bits;
            for before in [0, 1, 2, capacity as u64, 3 * capacity as u64] {
                tour(capacity, boundary.saturating_sub(before).max(1));
            }
        }
    }
}

#[test]
fn every_operation_works_where_laps_overflow_32_bits() {
    for capacity in CAPACITIES {
        // The number of slots is between the capacity and twice the capacity.
        for slots in capacity as u64 + 1..=2 * capacity as u64 {
            for laps in [1u64 << 8, 1 << 16, 1 << 31, 1 << 32, 1 << 33] {
                tour(capacity, slots * laps - 2);
            }
        }
    }
}

#[test]
fn every_operation_works_near_the_last_seq() {
    for capacity in CAPACITIES {
        let room = 5 * capacity as u64 + 4;
        for spare in [0, 1, 2, 7] {
            tour(capacity, MAX_SEQ + 1 - room - spare);
        }
    }
}

#[test]
fn publishing_beyond_the_last_seq_panics_and_affects_nobody() {
    for capacity in [1, 2, 5, 64] {
        let (publisher, mut subscriber) = make(capacity, MAX_SEQ - 2);
        let mut late = publisher.subscribe_from(Start::After(u64::MAX));
        for seq in MAX_SEQ - 2..=MAX_SEQ {
            assert_eq!(publisher.publish(seq), seq);
        }
        for _ in 0..3 {
            panic_message(|| publisher.publish(0));
            panic_message(|| publisher.publish_with(|_| 0));
            panic_message(|| publisher.publish_batch([0, 0]));
        }
        assert_eq!(publisher.next_seq(), MAX_SEQ + 1);
        let kept = capacity.min(3) as u64;
        assert_eq!(subscriber.by_seq(), (MAX_SEQ + 1 - kept..=MAX_SEQ).collect::<Vec<_>>());
        assert_eq!(subscriber.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(subscriber.position(), MAX_SEQ + 1);
        assert_eq!(late.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(publisher.subscribe().position(), MAX_SEQ + 1);
        drop(publisher);
        assert_eq!(subscriber.try_recv(), Err(TryRecvError::Closed));
        assert_eq!(late.try_recv(), Err(TryRecvError::Closed));
    }
}

#[test]
fn a_batch_beyond_the_last_seq_panics() {
    let (publisher, mut subscriber) = make(8, MAX_SEQ - 2);
    panic_message(|| publisher.publish_batch([1, 2, 3, 4]));
    // Whether or not its seqs were claimed, nobody waits for them and none of its events is visible.
    assert_eq!(subscriber.try_recv(), Err(TryRecvError::Empty));
    drop(publisher);
    assert_eq!(subscriber.try_recv(), Err(TryRecvError::Closed));
    assert_eq!(subscriber.stats().received, 0);
}

trait BySeq {
    fn by_seq(&mut self) -> Vec<u64>;
}

impl BySeq for Subscriber<u64> {
    /// The events that are readable now, after any lag.
    fn by_seq(&mut self) -> Vec<u64> {
        let mut got = Vec::new();
        loop {
            match self.try_recv_seq() {
                Ok((seq, value)) => {
                    assert_eq!(seq, value);
                    got.push(seq);
                }
                Err(TryRecvError::Lagged(_)) => {}
                Err(_) => return got,
            }
        }
    }
}

#[test]
fn invalid_first_seqs_are_rejected() {
    for first_seq in [0, MAX_SEQ + 1, u64::MAX] {
        let refused = Builder::new(4).first_seq(first_seq).channel::<u8>().err();
        assert_eq!(
            refused,
            Some(BuildError::FirstSeqOutOfRange {
                first_seq,
                max: MAX_SEQ
            })
        );
    }
    assert!(Builder::new(4).first_seq(MAX_SEQ).channel::<u8>().is_ok());
    assert_eq!(Builder::new(0).channel::<u8>().err(), Some(BuildError::ZeroCapacity));
    assert!(matches!(
        Builder::new(usize::MAX).channel::<u8>().err(),
        Some(BuildError::CapacityTooLarge {
            capacity: usize::MAX,
            ..
        })
    ));
}

#[test]
fn starting_after_any_u64_overflows_nothing() {
    for first in [1, 1 << 32, MAX_SEQ - 20] {
        let (publisher, _subscriber) = make(4, first);
        for _ in 0..10 {
            publisher.publish(0);
        }
        for seq in [MAX_SEQ, MAX_SEQ + 1, u64::MAX - 5, u64::MAX - 4, u64::MAX - 1, u64::MAX] {
            let mut never = publisher.subscribe_from(Start::After(seq));
            assert_eq!(never.try_recv(), Err(TryRecvError::Empty));
            assert_eq!(never.backlog(), 0);
            assert!(never.position() > MAX_SEQ);
            assert_eq!(never.clone().position(), never.position());
            assert!(never.try_recv_batch(10).is_err());
            publisher.publish(0);
            assert_eq!(never.try_recv(), Err(TryRecvError::Empty));
            assert_eq!(never.stats().received + never.stats().skipped + never.stats().void, 0);
        }
        let mut all = publisher.subscribe_from(Start::After(0));
        let retained = publisher.next_seq() - 4;
        let lost = Lagged {
            skipped: retained - first,
            first_missed: first,
            resume_at: retained,
        };
        assert_eq!(all.try_recv(), Err(TryRecvError::Lagged(lost)));
    }
}

#[test]
fn a_huge_headroom_equals_latest() {
    for spare in [4, 5, 1_000, MAX_SEQ, u64::MAX] {
        let builder = Builder::new(4).on_lag(OnLag::Headroom(spare)).first_seq(MAX_SEQ - 50);
        let (publisher, mut subscriber) = builder.channel().unwrap();
        for seq in MAX_SEQ - 50..=MAX_SEQ - 10 {
            publisher.publish(seq);
        }
        let lost = Lagged {
            skipped: 41,
            first_missed: MAX_SEQ - 50,
            resume_at: MAX_SEQ - 9,
        };
        assert_eq!(subscriber.try_recv(), Err(TryRecvError::Lagged(lost)));
        assert_eq!(subscriber.try_recv(), Err(TryRecvError::Empty));
    }
}

#[test]
fn single_publishes_reach_the_last_seq() {
    let (publisher, mut subscriber) = Builder::new(3).first_seq(MAX_SEQ - 9).channel().unwrap();
    for seq in MAX_SEQ - 9..=MAX_SEQ {
        assert_eq!(publisher.publish(seq), seq);
        assert_eq!(subscriber.try_recv_seq(), Ok((seq, seq)));
    }
    panic_message(|| publisher.publish(0));
    panic_message(|| publisher.publish_batch([0]));
    assert_eq!(publisher.publish_batch(Vec::new()), MAX_SEQ + 1..MAX_SEQ + 1);
    assert_eq!(subscriber.try_recv(), Err(TryRecvError::Empty));
    drop(publisher);
    assert_eq!(subscriber.try_recv(), Err(TryRecvError::Closed));
}

#[test]
fn default_channels_start_at_one() {
    let (publisher, subscriber) = channel::<u8>(2);
    assert_eq!((publisher.next_seq(), subscriber.position()), (1, 1));
    assert_eq!(publisher.publish(0), 1);
}
