//! The ring.

use doorbell::ring::{Publisher, Subscriber, TryRecvError, channel};

use super::{Channel, Lossy, broken};
use crate::channels::payload::Payload;
use crate::channels::settings::{BATCH, CAPACITY};

/// A publisher and its subscribers.
pub struct Doorbell<T: Payload> {
    publisher: Publisher<T>,
    subscribers: Vec<Subscriber<T>>,
}

impl<T: Payload> Doorbell<T> {
    /// A ring with this many subscribers.
    pub fn open(subscribers: usize) -> Self {
        let (publisher, _) = channel(CAPACITY);
        let subscribers = (0..subscribers).map(|_| publisher.subscribe()).collect();
        Self { publisher, subscribers }
    }
}

impl<T: Payload> Channel<T> for Doorbell<T> {
    #[inline]
    fn publish(&mut self, value: T) {
        self.publisher.publish(value);
    }

    #[inline]
    fn receive(&mut self) -> T {
        self.subscribers[0].try_recv().unwrap_or_else(|error| broken(error))
    }

    #[inline]
    fn read(&mut self) -> u64 {
        self.subscribers[0]
            .try_recv_ref()
            .unwrap_or_else(|error| broken(error))
            .number()
    }

    #[inline]
    fn publish_batch(&mut self, first: u64) {
        self.publisher
            .publish_batch((0..BATCH as u32).map(|index| T::make(first + u64::from(index))));
    }

    /// A batch may be cut short where the subscriber's announcement ends, so it can take more than one.
    #[inline]
    fn read_batch(&mut self) -> u64 {
        let (mut sum, mut left) = (0_u64, BATCH);
        while left > 0 {
            let batch = self.subscribers[0]
                .try_recv_batch(left as usize)
                .unwrap_or_else(|error| broken(error));
            for value in batch {
                sum = sum.wrapping_add(value.number());
                left -= 1;
            }
        }
        sum
    }
}

impl<T: Payload> Lossy for Doorbell<T> {
    fn account(&mut self) -> u64 {
        let mut count = 0;
        loop {
            match self.subscribers[0].try_recv() {
                Ok(_) => count += 1,
                Err(TryRecvError::Lagged(lagged)) => count += lagged.skipped,
                Err(_) => return count,
            }
        }
    }
}
