//! The drop-in, waking all subscribers as tokio does, or in a cascade.

use doorbell::broadcast::error::{RecvError, TryRecvError};
use doorbell::broadcast::{Receiver, Sender, channel_with};
use doorbell::ring::Wake;

use super::{Channel, Publisher, Subscriber, Taken, TrySubscriber, lost};
use crate::channels::settings::{CAPACITY, Message};

/// Receives by `recv`, one message at a time.
pub struct DropIn(pub Wake);

impl Channel for DropIn {
    type Publisher = Sender<Message>;
    type Subscriber = Receiver<Message>;

    fn open(self, subscribers: usize) -> (Self::Publisher, Vec<Self::Subscriber>) {
        let (sender, _) = channel_with(CAPACITY, self.0);
        let receivers = (0..subscribers).map(|_| sender.subscribe()).collect();
        (sender, receivers)
    }
}

impl Publisher for Sender<Message> {
    #[inline]
    fn publish(&mut self, message: Message) {
        if self.send(message).is_err() {
            lost("no receiver");
        }
    }
}

impl Subscriber for Receiver<Message> {
    #[inline]
    async fn take(&mut self) -> Option<Taken> {
        match self.recv().await {
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
