//! `photon_ring`: plain data only.

use photon_ring::{MpPublisher, Pod, Publisher, Subscriber, TryRecvError, channel, channel_mpmc};

use super::{Channel, Lossy, broken};
use crate::channels::payload::Payload;
use crate::channels::settings::{BATCH, CAPACITY};

/// The ring with a shared publisher.
pub struct PhotonMulti<T: Payload + Pod> {
    publisher: MpPublisher<T>,
    subscribers: Vec<Subscriber<T>>,
}

/// The ring with an exclusive publisher.
pub struct PhotonSingle<T: Payload + Pod> {
    publisher: Publisher<T>,
    subscribers: Vec<Subscriber<T>>,
}

impl<T: Payload + Pod> PhotonMulti<T> {
    /// A ring with this many subscribers.
    pub fn open(subscribers: usize) -> Self {
        let (publisher, ring) = channel_mpmc(CAPACITY);
        Self {
            publisher,
            subscribers: (0..subscribers).map(|_| ring.subscribe()).collect(),
        }
    }
}

impl<T: Payload + Pod> PhotonSingle<T> {
    /// A ring with this many subscribers.
    pub fn open(subscribers: usize) -> Self {
        let (publisher, ring) = channel(CAPACITY);
        Self {
            publisher,
            subscribers: (0..subscribers).map(|_| ring.subscribe()).collect(),
        }
    }
}

impl<T: Payload + Pod> Channel<T> for PhotonMulti<T> {
    #[inline]
    fn publish(&mut self, value: T) {
        self.publisher.publish(value);
    }

    #[inline]
    fn receive(&mut self) -> T {
        receive(&mut self.subscribers[0])
    }

    #[inline]
    fn read_batch(&mut self) -> u64 {
        read_batch(&mut self.subscribers[0])
    }
}

impl<T: Payload + Pod> Channel<T> for PhotonSingle<T> {
    #[inline]
    fn publish(&mut self, value: T) {
        self.publisher.publish(value);
    }

    #[inline]
    fn receive(&mut self) -> T {
        receive(&mut self.subscribers[0])
    }

    #[inline]
    fn publish_batch(&mut self, first: u64) {
        let values: [T; BATCH as usize] = std::array::from_fn(|index| T::make(first + index as u64));
        self.publisher.publish_batch(&values);
    }

    #[inline]
    fn read_batch(&mut self) -> u64 {
        read_batch(&mut self.subscribers[0])
    }
}

impl<T: Payload + Pod> Lossy for PhotonMulti<T> {
    fn account(&mut self) -> u64 {
        account(&mut self.subscribers[0])
    }
}

impl<T: Payload + Pod> Lossy for PhotonSingle<T> {
    fn account(&mut self) -> u64 {
        account(&mut self.subscribers[0])
    }
}

#[inline]
fn receive<T: Pod>(subscriber: &mut Subscriber<T>) -> T {
    subscriber.try_recv().unwrap_or_else(|error| broken(error))
}

#[inline]
fn read_batch<T: Payload + Pod>(subscriber: &mut Subscriber<T>) -> u64 {
    let mut values: [T; BATCH as usize] = std::array::from_fn(|_| T::make(0));
    let count = subscriber.recv_batch(&mut values);
    if count != values.len() {
        broken(count);
    }
    values.iter().fold(0, |sum, value| sum.wrapping_add(value.number()))
}

fn account<T: Pod>(subscriber: &mut Subscriber<T>) -> u64 {
    let mut count = 0;
    loop {
        match subscriber.try_recv() {
            Ok(_) => count += 1,
            Err(TryRecvError::Lagged { skipped }) => count += skipped,
            Err(TryRecvError::Empty) => return count,
        }
    }
}
