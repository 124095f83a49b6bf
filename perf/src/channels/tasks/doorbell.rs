//! The ring.

use doorbell::ring::{Publisher as RingPublisher, RecvError, Subscriber as RingSubscriber, TryRecvError, channel};

use super::{Channel, Publisher, Subscriber, Taken, TrySubscriber, lost};
use crate::channels::settings::{BATCH, CAPACITY, Message};

/// Receives by `recv`, one message at a time.
pub struct Doorbell;

/// Receives by `recv_batch`, by reference.
pub struct DoorbellBatch;

/// A subscriber that receives in batches.
pub struct Batched(RingSubscriber<Message>);

fn open(subscribers: usize) -> (RingPublisher<Message>, Vec<RingSubscriber<Message>>) {
    let (publisher, _) = channel(CAPACITY);
    let subscribers = (0..subscribers).map(|_| publisher.subscribe()).collect();
    (publisher, subscribers)
}

impl Channel for Doorbell {
    type Publisher = RingPublisher<Message>;
    type Subscriber = RingSubscriber<Message>;

    fn open(self, subscribers: usize) -> (Self::Publisher, Vec<Self::Subscriber>) {
        open(subscribers)
    }
}

impl Channel for DoorbellBatch {
    type Publisher = RingPublisher<Message>;
    type Subscriber = Batched;

    fn open(self, subscribers: usize) -> (Self::Publisher, Vec<Self::Subscriber>) {
        let (publisher, subscribers) = open(subscribers);
        (publisher, subscribers.into_iter().map(Batched).collect())
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
    async fn take(&mut self) -> Option<Taken> {
        match self.recv().await {
            Ok(message) => Some(Taken::one(&message)),
            Err(RecvError::Closed) => None,
            Err(error) => lost(error),
        }
    }
}

impl TrySubscriber for RingSubscriber<Message> {
    #[inline]
    fn try_take(&mut self) -> Option<Taken> {
        match self.try_recv() {
            Ok(message) => Some(Taken::one(&message)),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
            Err(error) => lost(error),
        }
    }
}

impl Subscriber for Batched {
    #[inline]
    async fn take(&mut self) -> Option<Taken> {
        match self.0.recv_batch(BATCH as usize).await {
            Ok(batch) => Some(batch.fold(Taken::default(), |mut all, message| {
                all.add(Taken::one(message));
                all
            })),
            Err(RecvError::Closed) => None,
            Err(error) => lost(error),
        }
    }
}
