//! The drop-in for `tokio::sync::broadcast`.

use doorbell::broadcast::error::TryRecvError;
use doorbell::broadcast::{Receiver, Sender, channel};

use super::{Channel, Lossy, broken};
use crate::channels::payload::Payload;
use crate::channels::settings::CAPACITY;

/// A sender and its receivers.
pub struct DropIn<T> {
    sender: Sender<T>,
    receivers: Vec<Receiver<T>>,
}

impl<T: Payload> DropIn<T> {
    /// A channel with this many receivers; at least one, as for tokio.
    pub fn open(receivers: usize) -> Self {
        let (sender, _) = channel(CAPACITY);
        let receivers = (0..receivers).map(|_| sender.subscribe()).collect();
        Self { sender, receivers }
    }
}

impl<T: Payload> Channel<T> for DropIn<T> {
    #[inline]
    fn publish(&mut self, value: T) {
        if self.sender.send(value).is_err() {
            broken("no receiver");
        }
    }

    #[inline]
    fn receive(&mut self) -> T {
        self.receivers[0].try_recv().unwrap_or_else(|error| broken(error))
    }
}

impl<T: Payload> Lossy for DropIn<T> {
    fn account(&mut self) -> u64 {
        let mut count = 0;
        loop {
            match self.receivers[0].try_recv() {
                Ok(_) => count += 1,
                Err(TryRecvError::Lagged(skipped)) => count += skipped,
                Err(_) => return count,
            }
        }
    }
}
