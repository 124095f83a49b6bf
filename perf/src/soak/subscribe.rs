//! Subscribers of every kind, each with its own counts.

use std::fmt;
use std::time::Duration;

use doorbell::ring::{Lagged, RecvError, Start, Subscriber, TryRecvError, WeakPublisher};
use testkit::account::{Holes, Sequence};
use testkit::random::{Rng, RngExt as _};

use super::payload::Payload;
use crate::units::count;

/// What one subscriber received and skipped.
#[derive(Debug)]
pub(crate) struct Tally {
    name: &'static str,
    /// Holes are void sequence numbers; [`close`](Tally::close) compares them with the ring's count.
    seqs: Sequence,
    void: u64,
}

impl Tally {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            seqs: Sequence::at(0).holes(Holes::Allowed),
            void: 0,
        }
    }

    fn received(&mut self, seq: u64, payload: &Payload) {
        self.seqs.received(seq);
        if !payload.is_whole() {
            self.seqs
                .differ(format!("the payload of {seq} is damaged: {payload:?}"));
        }
    }

    fn lagged(&mut self, lagged: Lagged) {
        self.seqs.skipped(lagged.first_missed, lagged.skipped);
        if lagged.resume_at != lagged.first_missed + lagged.skipped {
            self.seqs.differ(format!("{lagged:?} does not add up"));
        }
    }

    /// Compares the subscriber's progress with the ring's statistics; `start` is the subscriber's first position.
    fn close(&mut self, start: u64, subscriber: &Subscriber<Payload>) {
        let stats = subscriber.stats();
        let advanced = subscriber.position() - start;
        if stats.received + stats.skipped + stats.void != advanced {
            self.seqs.differ(format!("advanced by {advanced}, but {stats:?}"));
        }
        self.void += stats.void;
    }

    fn compare(mut self, subscriber: &Subscriber<Payload>) -> Self {
        let stats = subscriber.stats();
        let counts = self.seqs.counts();
        if [stats.received, stats.skipped, stats.lag_events] != [counts.received, counts.skipped, counts.lags] {
            self.seqs
                .differ(format!("the ring counts {stats:?}, the subscriber {self}"));
        }
        self
    }

    /// The first differences, described.
    pub(crate) fn problems(&self) -> impl Iterator<Item = String> {
        let differences = self.seqs.differences().iter();
        differences.map(|difference| format!("{}: {difference}", self.name))
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.seqs.counts();
        let all = [counts.received, counts.skipped, self.void, counts.lags];
        let [received, skipped, void, lags] = all.map(count);
        write!(
            formatter,
            "{:<18} {received:>14} received  {skipped:>14} skipped  {void:>9} void  {lags:>9} lags",
            self.name
        )
    }
}

/// Records a lag. Returns whether to continue: false once the channel is closed.
fn continues_after(error: RecvError, tally: &mut Tally) -> bool {
    match error {
        RecvError::Lagged(lagged) => tally.lagged(lagged),
        RecvError::Closed => return false,
    }
    true
}

fn finish(mut tally: Tally, start: u64, subscriber: &Subscriber<Payload>) -> Tally {
    tally.close(start, subscriber);
    tally.compare(subscriber)
}

/// The subscribers that block a thread.
pub(crate) const THREADS: [fn(Subscriber<Payload>) -> Tally; 3] =
    [thread_by_polling, thread_by_reference, thread_in_batches];

fn thread_by_polling(mut subscriber: Subscriber<Payload>) -> Tally {
    let mut tally = Tally::new("thread, polling");
    let start = subscriber.position();
    loop {
        let seq_and_payload = match subscriber.try_recv_seq() {
            Ok(received) => received,
            Err(TryRecvError::Lagged(lagged)) => {
                tally.lagged(lagged);
                continue;
            }
            Err(TryRecvError::Closed) => break,
            Err(TryRecvError::Empty) => {
                std::thread::sleep(Duration::from_micros(50));
                continue;
            }
        };
        tally.received(seq_and_payload.0, &seq_and_payload.1);
    }
    finish(tally, start, &subscriber)
}

fn thread_by_reference(mut subscriber: Subscriber<Payload>) -> Tally {
    let mut tally = Tally::new("thread, by ref");
    let start = subscriber.position();
    loop {
        match subscriber.recv_ref_blocking() {
            Ok(payload) => tally.received(payload.seq(), &payload),
            Err(error) if continues_after(error, &mut tally) => {}
            Err(_) => break,
        }
    }
    finish(tally, start, &subscriber)
}

fn thread_in_batches(mut subscriber: Subscriber<Payload>) -> Tally {
    let mut tally = Tally::new("thread, batches");
    let start = subscriber.position();
    let mut rng = Rng::with_seed(7);
    loop {
        match subscriber.recv_batch_blocking(64) {
            Ok(mut batch) => {
                // Items that the batch has not yielded stay unreceived.
                for _ in 0..=rng.u64(..64) {
                    match batch.next_seq() {
                        Some((seq, payload)) => tally.received(seq, payload),
                        None => break,
                    }
                }
            }
            Err(error) if continues_after(error, &mut tally) => {}
            Err(_) => break,
        }
    }
    finish(tally, start, &subscriber)
}

pub(crate) async fn task_by_value(mut subscriber: Subscriber<Payload>) -> Tally {
    let mut tally = Tally::new("task, by value");
    let start = subscriber.position();
    loop {
        match subscriber.recv_seq().await {
            Ok((seq, payload)) => tally.received(seq, &payload),
            Err(error) if continues_after(error, &mut tally) => {}
            Err(_) => break,
        }
    }
    finish(tally, start, &subscriber)
}

pub(crate) async fn task_in_batches(mut subscriber: Subscriber<Payload>) -> Tally {
    let mut tally = Tally::new("task, batches");
    let start = subscriber.position();
    loop {
        match subscriber.recv_batch(64).await {
            Ok(mut batch) => {
                while let Some((seq, payload)) = batch.next_seq() {
                    tally.received(seq, payload);
                }
            }
            Err(error) if continues_after(error, &mut tally) => {}
            Err(_) => break,
        }
    }
    finish(tally, start, &subscriber)
}

/// Lags repeatedly, and sometimes drops a pending receive.
pub(crate) async fn slow_task(mut subscriber: Subscriber<Payload>) -> Tally {
    let mut tally = Tally::new("task, slow");
    let start = subscriber.position();
    let mut rng = Rng::with_seed(11);
    loop {
        let limit = Duration::from_micros(rng.u64(..3_000));
        match tokio::time::timeout(limit, subscriber.recv_seq()).await {
            Ok(Ok((seq, payload))) => {
                tally.received(seq, &payload);
                if rng.one_in(16) {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
            Ok(Err(error)) if continues_after(error, &mut tally) => {}
            Ok(Err(_)) => break,
            // Dropping the future loses nothing.
            Err(_) => {}
        }
    }
    finish(tally, start, &subscriber)
}

/// Repeatedly subscribes from every kind of start, receives some events and unsubscribes, until the channel is closed.
pub(crate) fn short_subscriptions(publisher: &WeakPublisher<Payload>) -> Tally {
    let mut tally = Tally::new("short-lived");
    let mut rng = Rng::with_seed(13);
    while let Some(publisher) = publisher.upgrade() {
        let start = match rng.u64(..3) {
            0 => Start::Latest,
            1 => Start::Oldest,
            _ => Start::After(
                publisher
                    .next_seq()
                    .saturating_sub(rng.u64(..3 * publisher.capacity() as u64)),
            ),
        };
        let mut subscriber = publisher.subscribe_from(start);
        drop(publisher);
        let first = subscriber.position();
        tally.seqs.restart_at(first);
        for _ in 0..rng.u64(..300) {
            match subscriber.try_recv_seq() {
                Ok((seq, payload)) => tally.received(seq, &payload),
                Err(TryRecvError::Lagged(lagged)) => tally.lagged(lagged),
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        tally.close(first, &subscriber);
        std::thread::sleep(Duration::from_micros(rng.u64(..200)));
    }
    tally
}
