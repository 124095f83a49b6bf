//! Receives from a channel until its end, in any way, and checks order, exactly-once delivery, integrity and conservation.

use std::thread;
use std::time::Duration;

use doorbell::ring::{Batch, Lagged, Publisher, RecvError, RecvTimeoutError, Subscriber, TryRecvError};
use testkit::account::{Account, Holes, Sequence};
use testkit::agreement::Agreement;
use testkit::panics::{may_panic, planned_panic};
use testkit::random::Rng;
use testkit::sealed::Identified;
use testkit::threads::block_on;

/// Publishes `count` seqs in changing ways and records each; returns how many became void.
pub(crate) fn publish_all<T: Identified>(publisher: &Publisher<T>, me: u64, count: u64, agreement: &Agreement) -> u64 {
    let mut rng = Rng::with_seed(me);
    let (mut claimed, mut number, mut voids) = (0, 0, 0);
    let mut last = 0;
    while claimed < count {
        let left = count - claimed;
        let seqs = match rng.u64(..8) {
            0 => {
                let size = (1 + rng.u64(..40)).min(left);
                let seqs = publisher.publish_batch(
                    (number..number + size)
                        .map(|number| T::identified(me, number))
                        .collect::<Vec<_>>(),
                );
                seqs.clone()
                    .zip(number..)
                    .for_each(|(seq, number)| agreement.value(seq, (me, number)));
                number += size;
                seqs
            }
            1 => {
                // Sometimes the others publish a lot between claim and publication.
                let pause = if rng.u64(..16) == 0 { rng.u64(..60) } else { 0 };
                let seq = publisher.publish_with(|_| {
                    (0..pause).for_each(|_| thread::yield_now());
                    T::identified(me, number)
                });
                agreement.value(seq, (me, number));
                number += 1;
                seq..seq + 1
            }
            2 if rng.u64(..4) == 0 => {
                let mut void = 0;
                let published = may_panic(|| {
                    publisher.publish_with(|seq| {
                        void = seq;
                        planned_panic()
                    })
                });
                assert_eq!(published, None);
                agreement.void(void);
                voids += 1;
                void..void + 1
            }
            _ => {
                let seq = publisher.publish(T::identified(me, number));
                agreement.value(seq, (me, number));
                number += 1;
                seq..seq + 1
            }
        };
        assert!(seqs.start > last, "an earlier publish returned {last}");
        last = seqs.end - 1;
        claimed += seqs.end - seqs.start;
    }
    voids
}

/// The ways to receive that [`follow`] can use.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    Try,
    Future,
    Timeout,
    Blocking,
    TryRef,
    BlockingRef,
    TryBatch,
    BlockingBatch,
    FutureBatch,
    Mixed,
}

pub(crate) const WAYS: [Way; 10] = [
    Way::Try,
    Way::Future,
    Way::Timeout,
    Way::Blocking,
    Way::TryRef,
    Way::BlockingRef,
    Way::TryBatch,
    Way::BlockingBatch,
    Way::FutureBatch,
    Way::Mixed,
];

/// What a subscriber got.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) received: u64,
    pub(crate) skipped: u64,
    pub(crate) void: u64,
    pub(crate) lag_events: u64,
    pub(crate) end: u64,
}

struct Auditor<'a> {
    agreement: &'a Agreement,
    /// The sequence numbers of the channel; void ones are holes.
    seqs: Sequence,
    /// The numbers that each publisher gives its values; skipped ones are holes.
    publishers: Account<u64>,
}

impl Auditor<'_> {
    fn value<T: Identified>(&mut self, seq: Option<u64>, value: &T) {
        let (publisher, number) = value.identity();
        match seq {
            Some(seq) => {
                self.seqs.received(seq);
                self.agreement.value(seq, (publisher, number));
            }
            None => self.seqs.received_unnumbered(),
        }
        self.seqs.assert_sound("the sequence numbers");
        let numbers = self.publishers.stream(&publisher);
        numbers.received(number);
        numbers.assert_sound(format_args!("publisher {publisher}"));
    }

    fn lagged(&mut self, lagged: Lagged) {
        assert_eq!(lagged.first_missed + lagged.skipped, lagged.resume_at, "{lagged:?}");
        self.seqs.skipped(lagged.first_missed, lagged.skipped);
        self.seqs.assert_sound(format_args!("{lagged:?}"));
    }

    /// Whether the end is reached.
    fn ends<V, E: Into<Failed>>(&mut self, result: Result<V, E>) -> bool {
        match result.map_err(Into::into) {
            Ok(_) => {}
            Err(Failed::Empty) => thread::yield_now(),
            Err(Failed::Lagged(lagged)) => self.lagged(lagged),
            Err(Failed::Closed) => return true,
        }
        false
    }
}

/// The three error types in one.
enum Failed {
    Empty,
    Lagged(Lagged),
    Closed,
}

impl From<TryRecvError> for Failed {
    fn from(error: TryRecvError) -> Self {
        match error {
            TryRecvError::Empty => Self::Empty,
            TryRecvError::Lagged(lagged) => Self::Lagged(lagged),
            TryRecvError::Closed => Self::Closed,
        }
    }
}

impl From<RecvError> for Failed {
    fn from(error: RecvError) -> Self {
        match error {
            RecvError::Lagged(lagged) => Self::Lagged(lagged),
            RecvError::Closed => Self::Closed,
        }
    }
}

impl From<RecvTimeoutError> for Failed {
    fn from(error: RecvTimeoutError) -> Self {
        match error {
            RecvTimeoutError::Timeout => Self::Empty,
            RecvTimeoutError::Lagged(lagged) => Self::Lagged(lagged),
            RecvTimeoutError::Closed => Self::Closed,
        }
    }
}

/// Receives until the channel is closed. Panics when anything is out of order, torn, lost or counted wrongly.
pub(crate) fn follow<T: Identified>(subscriber: &mut Subscriber<T>, agreement: &Agreement, way: Way) -> Outcome {
    let start = subscriber.position();
    let base = subscriber.stats();
    let mut rng = Rng::with_seed(start ^ 0xD1CE);
    let mut auditor = Auditor {
        agreement,
        seqs: Sequence::at(start).holes(Holes::Allowed),
        publishers: Account::new(Sequence::from_first().holes(Holes::Allowed)),
    };
    while !step(subscriber, &mut auditor, way, &mut rng) {}
    let stats = subscriber.stats();
    let counts = auditor.seqs.counts();
    let outcome = Outcome {
        received: counts.received,
        skipped: counts.skipped,
        void: stats.void - base.void,
        lag_events: counts.lags,
        end: subscriber.position(),
    };
    assert_eq!(stats.received - base.received, outcome.received);
    assert_eq!(stats.skipped - base.skipped, outcome.skipped);
    assert_eq!(stats.lag_events - base.lag_events, outcome.lag_events);
    assert_eq!(
        outcome.received + outcome.skipped + outcome.void,
        outcome.end - start,
        "nothing vanishes"
    );
    outcome
}

fn step<T: Identified>(subscriber: &mut Subscriber<T>, auditor: &mut Auditor<'_>, way: Way, rng: &mut Rng) -> bool {
    let max = 1 + rng.u64(..80) as usize;
    let take = rng.u64(..80) as usize;
    match way {
        Way::Try => {
            let result = subscriber.try_recv_seq();
            let result = result.map(|(seq, value)| auditor.value(Some(seq), &value));
            auditor.ends(result)
        }
        Way::Future => {
            let result = block_on(subscriber.recv_seq());
            let result = result.map(|(seq, value)| auditor.value(Some(seq), &value));
            auditor.ends(result)
        }
        Way::Timeout => {
            let result = subscriber.recv_timeout(Duration::from_micros(50));
            let result = result.map(|value| auditor.value(None, &value));
            auditor.ends(result)
        }
        Way::Blocking => {
            let result = subscriber.recv_blocking();
            let result = result.map(|value| auditor.value(None, &value));
            auditor.ends(result)
        }
        Way::TryRef => {
            let result = subscriber.try_recv_ref();
            let result = result.map(|held| auditor.value(Some(held.seq()), &*held));
            auditor.ends(result)
        }
        Way::BlockingRef => {
            let result = subscriber.recv_ref_blocking();
            let result = result.map(|held| auditor.value(Some(held.seq()), &*held));
            auditor.ends(result)
        }
        Way::TryBatch => {
            let result = subscriber.try_recv_batch(max);
            let result = result.map(|batch| audit_batch(batch, auditor, take));
            auditor.ends(result)
        }
        Way::BlockingBatch => {
            let result = subscriber.recv_batch_blocking(max);
            let result = result.map(|batch| audit_batch(batch, auditor, take));
            auditor.ends(result)
        }
        Way::FutureBatch => {
            let result = block_on(subscriber.recv_batch(max));
            let result = result.map(|batch| audit_batch(batch, auditor, take));
            auditor.ends(result)
        }
        Way::Mixed => {
            let way = WAYS[rng.u64(..9) as usize];
            step(subscriber, auditor, way, rng)
        }
    }
}

/// Takes up to `take` values of the batch, and checks each again at the end, when it may have been overwritten.
fn audit_batch<T: Identified>(mut batch: Batch<'_, T>, auditor: &mut Auditor<'_>, take: usize) {
    let pause = if take.is_multiple_of(16) { take / 2 } else { 0 };
    let mut held = Vec::new();
    while held.len() < take
        && let Some((seq, value)) = batch.next_seq()
    {
        auditor.value(Some(seq), value);
        held.push((value, value.identity()));
    }
    drop(batch);
    (0..pause).for_each(|_| thread::yield_now());
    for (value, identity) in held {
        assert_eq!(value.identity(), identity, "changed while held");
    }
}
