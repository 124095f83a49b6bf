//! `async_broadcast` in overflow mode: a full channel drops its oldest message.

use async_broadcast::{Receiver, Sender, TryRecvError, broadcast};

use super::{Channel, Lossy, broken};
use crate::channels::payload::Payload;
use crate::channels::settings::CAPACITY;

/// A sender and its receivers.
pub struct AsyncBroadcast<T> {
    sender: Sender<T>,
    receivers: Vec<Receiver<T>>,
}

impl<T: Payload> AsyncBroadcast<T> {
    /// A channel with this many receivers, at least one, because it closes with the last one.
    pub fn open(receivers: usize) -> Self {
        let (mut sender, receiver) = broadcast(CAPACITY);
        sender.set_overflow(true);
        Self {
            sender,
            receivers: vec![receiver; receivers],
        }
    }
}

impl<T: Payload> Channel<T> for AsyncBroadcast<T> {
    #[inline]
    fn publish(&mut self, value: T) {
        if let Err(error) = self.sender.try_broadcast(value) {
            broken(error.is_full());
        }
    }

    #[inline]
    fn receive(&mut self) -> T {
        self.receivers[0].try_recv().unwrap_or_else(|error| broken(error))
    }
}

impl<T: Payload> Lossy for AsyncBroadcast<T> {
    fn account(&mut self) -> u64 {
        let mut count = 0;
        loop {
            match self.receivers[0].try_recv() {
                Ok(_) => count += 1,
                Err(TryRecvError::Overflowed(skipped)) => count += skipped,
                Err(_) => return count,
            }
        }
    }
}
