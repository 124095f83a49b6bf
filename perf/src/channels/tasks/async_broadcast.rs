//! `async_broadcast` in overflow mode, with unboxed futures.

use async_broadcast::{Receiver, RecvError, Sender, TryRecvError, broadcast};

use super::{Channel, Publisher, Subscriber, Taken, TrySubscriber, lost};
use crate::channels::settings::{CAPACITY, Message};

/// Receives by `recv_direct`, one message at a time.
pub struct AsyncBroadcast;

impl Channel for AsyncBroadcast {
    type Publisher = Sender<Message>;
    type Subscriber = Receiver<Message>;

    fn open(self, subscribers: usize) -> (Self::Publisher, Vec<Self::Subscriber>) {
        let (mut sender, receiver) = broadcast(CAPACITY);
        sender.set_overflow(true);
        (sender, vec![receiver; subscribers])
    }
}

impl Publisher for Sender<Message> {
    #[inline]
    fn publish(&mut self, message: Message) {
        if let Err(error) = self.try_broadcast(message) {
            lost(error);
        }
    }
}

impl Subscriber for Receiver<Message> {
    #[inline]
    async fn take(&mut self) -> Option<Taken> {
        match self.recv_direct().await {
            Ok(message) => Some(Taken::one(&message)),
            Err(RecvError::Closed) => None,
            Err(error) => lost(error),
        }
    }
}

impl TrySubscriber for Receiver<Message> {
    #[inline]
    fn try_take(&mut self) -> Option<Taken> {
        match self.try_recv() {
            Ok(message) => Some(Taken::one(&message)),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
            Err(error) => lost(error),
        }
    }
}
