//! The ring, its subscribers waiting by one of its strategies.

use doorbell::ring::{Builder, Publisher as RingPublisher, RecvError, Subscriber as RingSubscriber, WaitStrategy};

use super::{Channel, Counts, Publisher, Subscriber, ended};
use doorbell_perf::channels::settings::{BATCH, CAPACITY, Message};

/// Receives by `recv_blocking`, one message at a time.
pub(crate) struct Doorbell(pub(crate) WaitStrategy);

/// Receives by `recv_batch_blocking`, by reference.
pub(crate) struct DoorbellBatch(pub(crate) WaitStrategy);

/// A subscriber that receives in batches.
pub(crate) struct Batched(RingSubscriber<Message>);

fn open(
    strategy: WaitStrategy,
    publishers: usize,
    subscribers: usize,
) -> (Vec<RingPublisher<Message>>, Vec<RingSubscriber<Message>>) {
    let (publisher, _) = Builder::new(CAPACITY).wait(strategy).channel().expect("a valid ring");
    let subscribers = (0..subscribers).map(|_| publisher.subscribe()).collect();
    (vec![publisher; publishers], subscribers)
}

impl Channel for Doorbell {
    type Publisher = RingPublisher<Message>;
    type Subscriber = RingSubscriber<Message>;

    fn open(self, publishers: usize, subscribers: usize) -> (Vec<Self::Publisher>, Vec<Self::Subscriber>) {
        open(self.0, publishers, subscribers)
    }
}

impl Channel for DoorbellBatch {
    type Publisher = RingPublisher<Message>;
    type Subscriber = Batched;

    fn open(self, publishers: usize, subscribers: usize) -> (Vec<Self::Publisher>, Vec<Self::Subscriber>) {
        let (publishers, subscribers) = open(self.0, publishers, subscribers);
        (publishers, subscribers.into_iter().map(Batched).collect())
    }
}

impl Publisher for RingPublisher<Message> {
    #[inline]
    fn publish(&mut self, message: Message) {
        RingPublisher::publish(self, message);
    }
}

impl Subscriber for RingSubscriber<Message> {
    #[inline]
    fn receive(&mut self, _most: u64, counts: &mut Counts) {
        match self.recv_blocking() {
            Ok(message) => counts.receive(&message),
            Err(RecvError::Lagged(lagged)) => counts.skipped += lagged.skipped,
            Err(error) => ended(error),
        }
    }
}

impl Subscriber for Batched {
    #[inline]
    fn receive(&mut self, most: u64, counts: &mut Counts) {
        match self.0.recv_batch_blocking(most.min(BATCH) as usize) {
            Ok(batch) => {
                for message in batch {
                    counts.receive(message);
                }
            }
            Err(RecvError::Lagged(lagged)) => counts.skipped += lagged.skipped,
            Err(error) => ended(error),
        }
    }
}
