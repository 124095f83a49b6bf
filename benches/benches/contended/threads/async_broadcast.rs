//! `async_broadcast` in overflow mode, received by blocking.

use async_broadcast::{Receiver, RecvError, Sender, broadcast};

use super::{Channel, Counts, Publisher, Subscriber, ended};
use doorbell_perf::channels::settings::{CAPACITY, Message};

/// Subscribers wait in `recv_blocking`.
pub(crate) struct AsyncBroadcast;

impl Channel for AsyncBroadcast {
    type Publisher = Sender<Message>;
    type Subscriber = Receiver<Message>;

    fn open(self, publishers: usize, subscribers: usize) -> (Vec<Self::Publisher>, Vec<Self::Subscriber>) {
        let (mut sender, receiver) = broadcast(CAPACITY);
        sender.set_overflow(true);
        (vec![sender; publishers], vec![receiver; subscribers])
    }
}

impl Publisher for Sender<Message> {
    #[inline]
    fn publish(&mut self, message: Message) {
        if let Err(error) = self.try_broadcast(message) {
            ended(error);
        }
    }
}

impl Subscriber for Receiver<Message> {
    #[inline]
    fn receive(&mut self, _most: u64, counts: &mut Counts) {
        match self.recv_blocking() {
            Ok(message) => counts.receive(&message),
            Err(RecvError::Overflowed(skipped)) => counts.skipped += skipped,
            Err(error) => ended(error),
        }
    }
}
