//! `photon_ring`: plain data only, so these run with `[u64; 4]` alone.

use photon_ring::{MpPublisher, Publisher, Subscriber, TryRecvError, channel, channel_mpmc};

use super::{Channel, Lossy, broken};
use crate::channels::payload::Payload;
use crate::channels::settings::{BATCH, CAPACITY, Message, message};

/// The ring with a shared publisher.
pub struct PhotonMulti {
    publisher: MpPublisher<Message>,
    subscribers: Vec<Subscriber<Message>>,
}

/// The ring with an exclusive publisher.
pub struct PhotonSingle {
    publisher: Publisher<Message>,
    subscribers: Vec<Subscriber<Message>>,
}

impl PhotonMulti {
    /// A ring with this many subscribers.
    pub fn open(subscribers: usize) -> Self {
        let (publisher, ring) = channel_mpmc(CAPACITY);
        Self {
            publisher,
            subscribers: (0..subscribers).map(|_| ring.subscribe()).collect(),
        }
    }
}

impl PhotonSingle {
    /// A ring with this many subscribers.
    pub fn open(subscribers: usize) -> Self {
        let (publisher, ring) = channel(CAPACITY);
        Self {
            publisher,
            subscribers: (0..subscribers).map(|_| ring.subscribe()).collect(),
        }
    }
}

impl Channel<Message> for PhotonMulti {
    #[inline]
    fn publish(&mut self, value: Message) {
        self.publisher.publish(value);
    }

    #[inline]
    fn receive(&mut self) -> Message {
        receive(&mut self.subscribers[0])
    }

    #[inline]
    fn read_batch(&mut self) -> u64 {
        read_batch(&mut self.subscribers[0])
    }
}

impl Channel<Message> for PhotonSingle {
    #[inline]
    fn publish(&mut self, value: Message) {
        self.publisher.publish(value);
    }

    #[inline]
    fn receive(&mut self) -> Message {
        receive(&mut self.subscribers[0])
    }

    #[inline]
    fn publish_batch(&mut self, first: u64) {
        let values: [Message; BATCH as usize] = std::array::from_fn(|index| message(first + index as u64));
        self.publisher.publish_batch(&values);
    }

    #[inline]
    fn read_batch(&mut self) -> u64 {
        read_batch(&mut self.subscribers[0])
    }
}

impl Lossy for PhotonMulti {
    fn account(&mut self) -> u64 {
        account(&mut self.subscribers[0])
    }
}

impl Lossy for PhotonSingle {
    fn account(&mut self) -> u64 {
        account(&mut self.subscribers[0])
    }
}

#[inline]
fn receive(subscriber: &mut Subscriber<Message>) -> Message {
    subscriber.try_recv().unwrap_or_else(|error| broken(error))
}

#[inline]
fn read_batch(subscriber: &mut Subscriber<Message>) -> u64 {
    let mut values = [[0; 4]; BATCH as usize];
    let count = subscriber.recv_batch(&mut values);
    if count != values.len() {
        broken(count);
    }
    values.iter().fold(0, |sum, value| sum.wrapping_add(value.number()))
}

fn account(subscriber: &mut Subscriber<Message>) -> u64 {
    let mut count = 0;
    loop {
        match subscriber.try_recv() {
            Ok(_) => count += 1,
            Err(TryRecvError::Lagged { skipped }) => count += skipped,
            Err(TryRecvError::Empty) => return count,
        }
    }
}
