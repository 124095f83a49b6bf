//! Subscribers of every kind, each with its own counts.

use std::fmt;
use std::time::Duration;

use doorbell::ring::{Lagged, RecvError, Start, Subscriber, TryRecvError, WeakPublisher};

use super::payload::Payload;
use super::publish::Dice;
use crate::units::count;

/// The counts of one subscriber.
#[derive(Debug)]
pub(crate) struct Tally {
    name: &'static str,
    received: u64,
    skipped: u64,
    void: u64,
    lag_events: u64,
    /// The lowest sequence number that may follow.
    next: u64,
    pub(crate) problems: Vec<String>,
}

impl Tally {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            received: 0,
            skipped: 0,
            void: 0,
            lag_events: 0,
            next: 0,
            problems: Vec::new(),
        }
    }

    fn received(&mut self, seq: u64, payload: &Payload) {
        self.received += 1;
        if seq < self.next {
            self.problem(format!("{seq} came after {}", self.next - 1));
        }
        self.next = seq + 1;
        if !payload.is_whole() {
            self.problem(format!("the payload of {seq} is damaged: {payload:?}"));
        }
    }

    fn lagged(&mut self, lagged: Lagged) {
        self.skipped += lagged.skipped;
        self.lag_events += 1;
        if lagged.first_missed < self.next || lagged.resume_at != lagged.first_missed + lagged.skipped {
            self.problem(format!("{lagged:?} while {} was next", self.next));
        }
        self.next = lagged.resume_at;
    }

    /// Compares the counts with the ring's statistics; `start` is the subscriber's first position.
    fn close(&mut self, start: u64, subscriber: &Subscriber<Payload>) {
        let stats = subscriber.stats();
        let advanced = subscriber.position() - start;
        if stats.received + stats.skipped + stats.void != advanced {
            self.problem(format!("advanced by {advanced}, but {stats:?}"));
        }
        self.void += stats.void;
    }

    fn compare(mut self, subscriber: &Subscriber<Payload>) -> Self {
        let stats = subscriber.stats();
        if [stats.received, stats.skipped, stats.lag_events] != [self.received, self.skipped, self.lag_events] {
            self.problem(format!("the ring says {stats:?}, the subscriber {self}"));
        }
        self
    }

    fn problem(&mut self, what: String) {
        /// Enough to diagnose a failure.
        const KEPT: usize = 5;
        if self.problems.len() < KEPT {
            self.problems.push(format!("{}: {what}", self.name));
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            received,
            skipped,
            void,
            lag_events,
            ..
        } = self;
        let [received, skipped, void, lag_events] = [received, skipped, void, lag_events].map(|value| count(*value));
        write!(
            formatter,
            "{name:<18} {received:>14} received  {skipped:>14} skipped  {void:>9} void  {lag_events:>9} lags"
        )
    }
}

/// What a failed receive means for the loop.
fn goes_on(error: RecvError, tally: &mut Tally) -> bool {
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
            Err(error) if goes_on(error, &mut tally) => {}
            Err(_) => break,
        }
    }
    finish(tally, start, &subscriber)
}

fn thread_in_batches(mut subscriber: Subscriber<Payload>) -> Tally {
    let mut tally = Tally::new("thread, batches");
    let start = subscriber.position();
    let mut dice = Dice(7);
    loop {
        match subscriber.recv_batch_blocking(64) {
            Ok(mut batch) => {
                // Items that the batch has not yielded stay unreceived.
                for _ in 0..=dice.below(64) {
                    match batch.next_seq() {
                        Some((seq, payload)) => tally.received(seq, payload),
                        None => break,
                    }
                }
            }
            Err(error) if goes_on(error, &mut tally) => {}
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
            Err(error) if goes_on(error, &mut tally) => {}
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
            Err(error) if goes_on(error, &mut tally) => {}
            Err(_) => break,
        }
    }
    finish(tally, start, &subscriber)
}

/// Lags repeatedly, and sometimes drops a pending receive.
pub(crate) async fn slow_task(mut subscriber: Subscriber<Payload>) -> Tally {
    let mut tally = Tally::new("task, slow");
    let start = subscriber.position();
    let mut dice = Dice(11);
    loop {
        let patience = Duration::from_micros(dice.below(3_000));
        match tokio::time::timeout(patience, subscriber.recv_seq()).await {
            Ok(Ok((seq, payload))) => {
                tally.received(seq, &payload);
                if dice.below(16) == 0 {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
            Ok(Err(error)) if goes_on(error, &mut tally) => {}
            Ok(Err(_)) => break,
            // Dropping the future loses nothing.
            Err(_) => {}
        }
    }
    finish(tally, start, &subscriber)
}

/// Subscribes, takes some events and leaves, from every kind of start, until the channel is closed.
pub(crate) fn come_and_go(publisher: &WeakPublisher<Payload>) -> Tally {
    let mut tally = Tally::new("come and go");
    let mut dice = Dice(13);
    while let Some(publisher) = publisher.upgrade() {
        let start = match dice.below(3) {
            0 => Start::Latest,
            1 => Start::Oldest,
            _ => Start::After(
                publisher
                    .next_seq()
                    .saturating_sub(dice.below(3 * publisher.capacity() as u64)),
            ),
        };
        let mut subscriber = publisher.subscribe_from(start);
        drop(publisher);
        let first = subscriber.position();
        tally.next = first;
        for _ in 0..dice.below(300) {
            match subscriber.try_recv_seq() {
                Ok((seq, payload)) => tally.received(seq, &payload),
                Err(TryRecvError::Lagged(lagged)) => tally.lagged(lagged),
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        tally.close(first, &subscriber);
        std::thread::sleep(Duration::from_micros(dice.below(200)));
    }
    tally
}
