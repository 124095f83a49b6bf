//! Follows a channel to its end by any way of receiving and checks order, exactly-once and conservation.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use doorbell::ring::{Lagged, Publisher, RecvError, RecvTimeoutError, Subscriber, TryRecvError};

use super::{Dice, block_on, may_panic, panic_as_told};

/// A value that says who published it and its how manieth it is, after checking that it is whole.
pub(crate) trait Signed: Clone + Send + Sync + 'static {
    fn sign(publisher: u64, number: u64) -> Self;
    fn signature(&self) -> (u64, u64);
}

impl Signed for super::sealed::Sealed {
    fn sign(publisher: u64, number: u64) -> Self {
        Self::new(publisher, number)
    }

    fn signature(&self) -> (u64, u64) {
        self.open()
    }
}

impl Signed for String {
    fn sign(publisher: u64, number: u64) -> Self {
        format!("{publisher}:{number}:{}", "x".repeat((number % 50) as usize))
    }

    fn signature(&self) -> (u64, u64) {
        let mut parts = self.split(':').map(|part| part.parse::<u64>());
        let (Some(Ok(publisher)), Some(Ok(number))) = (parts.next(), parts.next()) else {
            panic!("a damaged string: {self:?}");
        };
        assert_eq!(*self, Self::sign(publisher, number), "a damaged string");
        (publisher, number)
    }
}

/// Which value each seq carried, as first seen; everybody else must see the same.
#[derive(Debug)]
pub(crate) struct Roll {
    first_seq: u64,
    seen: Box<[AtomicU64]>,
}

/// In the roll, a seq that never got a value.
const VOID: u64 = u64::MAX;

impl Roll {
    pub(crate) fn new(first_seq: u64, seqs: usize) -> Self {
        Self {
            first_seq,
            seen: (0..seqs).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn enter(&self, seq: u64, word: u64) {
        let place = &self.seen[(seq - self.first_seq) as usize];
        if let Err(first) = place.compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed) {
            assert_eq!(first, word, "seq {seq} is not the same for everybody");
        }
    }

    pub(crate) fn value(&self, seq: u64, (publisher, number): (u64, u64)) {
        self.enter(seq, (publisher + 1) << 40 | number);
    }

    pub(crate) fn void(&self, seq: u64) {
        self.enter(seq, VOID);
    }
}

/// Publishes `count` seqs in changing ways and enters each in the roll; returns how many became void.
pub(crate) fn publish_all<T: Signed>(publisher: &Publisher<T>, me: u64, count: u64, roll: &Roll) -> u64 {
    let mut dice = Dice::new(me);
    let (mut claimed, mut number, mut voids) = (0, 0, 0);
    let mut last = 0;
    while claimed < count {
        let left = count - claimed;
        let seqs = match dice.below(8) {
            0 => {
                let size = (1 + dice.below(40)).min(left);
                let seqs = publisher.publish_batch(
                    (number..number + size)
                        .map(|number| T::sign(me, number))
                        .collect::<Vec<_>>(),
                );
                seqs.clone()
                    .zip(number..)
                    .for_each(|(seq, number)| roll.value(seq, (me, number)));
                number += size;
                seqs
            }
            1 => {
                // Now and then the others go on for a long while between claim and publication.
                let pause = if dice.below(16) == 0 { dice.below(60) } else { 0 };
                let seq = publisher.publish_with(|_| {
                    (0..pause).for_each(|_| thread::yield_now());
                    T::sign(me, number)
                });
                roll.value(seq, (me, number));
                number += 1;
                seq..seq + 1
            }
            2 if dice.below(4) == 0 => {
                let mut void = 0;
                let published = may_panic(|| {
                    publisher.publish_with(|seq| {
                        void = seq;
                        panic_as_told()
                    })
                });
                assert_eq!(published, None);
                roll.void(void);
                voids += 1;
                void..void + 1
            }
            _ => {
                let seq = publisher.publish(T::sign(me, number));
                roll.value(seq, (me, number));
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

/// What one subscriber got, in the end.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) received: u64,
    pub(crate) skipped: u64,
    pub(crate) void: u64,
    pub(crate) lag_events: u64,
    pub(crate) end: u64,
}

struct Auditor<'a> {
    roll: &'a Roll,
    last_seq: u64,
    last_number: HashMap<u64, u64>,
    account: Account,
}

impl Auditor<'_> {
    fn value<T: Signed>(&mut self, seq: Option<u64>, value: &T) {
        let (publisher, number) = value.signature();
        if let Some(seq) = seq {
            assert!(seq > self.last_seq, "{seq} after {}", self.last_seq);
            self.last_seq = seq;
            self.roll.value(seq, (publisher, number));
        }
        if let Some(last) = self.last_number.insert(publisher, number) {
            assert!(number > last, "{number} after {last} of publisher {publisher}");
        }
        self.account.received += 1;
    }

    fn lagged(&mut self, lagged: Lagged) {
        assert_eq!(lagged.first_missed + lagged.skipped, lagged.resume_at, "{lagged:?}");
        assert!(lagged.skipped > 0, "{lagged:?}");
        assert!(
            lagged.first_missed > self.last_seq,
            "{lagged:?} after {}",
            self.last_seq
        );
        self.last_seq = lagged.resume_at - 1;
        self.account.skipped += lagged.skipped;
        self.account.lag_events += 1;
    }

    /// Whether the end is reached.
    fn ends<V, E: Into<Outcome>>(&mut self, result: Result<V, E>) -> bool {
        match result.map_err(Into::into) {
            Ok(_) => {}
            Err(Outcome::Nothing) => thread::yield_now(),
            Err(Outcome::Lagged(lagged)) => self.lagged(lagged),
            Err(Outcome::Closed) => return true,
        }
        false
    }
}

/// The three error types in one.
enum Outcome {
    Nothing,
    Lagged(Lagged),
    Closed,
}

impl From<TryRecvError> for Outcome {
    fn from(error: TryRecvError) -> Self {
        match error {
            TryRecvError::Empty => Self::Nothing,
            TryRecvError::Lagged(lagged) => Self::Lagged(lagged),
            TryRecvError::Closed => Self::Closed,
        }
    }
}

impl From<RecvError> for Outcome {
    fn from(error: RecvError) -> Self {
        match error {
            RecvError::Lagged(lagged) => Self::Lagged(lagged),
            RecvError::Closed => Self::Closed,
        }
    }
}

impl From<RecvTimeoutError> for Outcome {
    fn from(error: RecvTimeoutError) -> Self {
        match error {
            RecvTimeoutError::Timeout => Self::Nothing,
            RecvTimeoutError::Lagged(lagged) => Self::Lagged(lagged),
            RecvTimeoutError::Closed => Self::Closed,
        }
    }
}

/// Receives until the channel is closed or `enough` says so; panics when anything is out of order, torn, lost or counted wrongly.
pub(crate) fn follow<T: Signed>(
    subscriber: &mut Subscriber<T>,
    roll: &Roll,
    way: Way,
    mut enough: impl FnMut(&Account) -> bool,
) -> Account {
    let start = subscriber.position();
    let base = subscriber.stats();
    let mut dice = Dice::new(start ^ 0xD1CE);
    let mut auditor = Auditor {
        roll,
        last_seq: start.saturating_sub(1),
        last_number: HashMap::new(),
        account: Account::default(),
    };
    while !enough(&auditor.account) {
        if step(subscriber, &mut auditor, way, &mut dice) {
            break;
        }
    }
    let stats = subscriber.stats();
    let account = Account {
        void: stats.void - base.void,
        end: subscriber.position(),
        ..auditor.account
    };
    assert_eq!(stats.received - base.received, account.received);
    assert_eq!(stats.skipped - base.skipped, account.skipped);
    assert_eq!(stats.lag_events - base.lag_events, account.lag_events);
    let advanced = subscriber.position() - start;
    assert_eq!(
        account.received + account.skipped + account.void,
        advanced,
        "nothing vanishes"
    );
    account
}

fn step<T: Signed>(subscriber: &mut Subscriber<T>, auditor: &mut Auditor<'_>, way: Way, dice: &mut Dice) -> bool {
    let max = 1 + dice.below(80) as usize;
    let take = dice.below(80) as usize;
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
            let way = WAYS[dice.below(9) as usize];
            step(subscriber, auditor, way, dice)
        }
    }
}

/// Takes up to `take` of the batch, and looks at each value again at the end, when it may long have been overwritten.
fn audit_batch<T: Signed>(mut batch: doorbell::ring::Batch<'_, T>, auditor: &mut Auditor<'_>, take: usize) {
    let pause = if take.is_multiple_of(16) { take / 2 } else { 0 };
    let mut held = Vec::new();
    while held.len() < take
        && let Some((seq, value)) = batch.next_seq()
    {
        auditor.value(Some(seq), value);
        held.push((value, value.signature()));
    }
    drop(batch);
    (0..pause).for_each(|_| thread::yield_now());
    for (value, signature) in held {
        assert_eq!(value.signature(), signature, "changed while held");
    }
}
