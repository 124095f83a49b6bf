//! `tokio::sync::broadcast` outside a runtime.

use std::thread;

use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::broadcast::{self, Receiver, Sender, channel};

use super::{Channel, Counts, Publisher, Subscriber, ended};
use doorbell_perf::channels::settings::{CAPACITY, Message};

/// Subscribers wait in `blocking_recv`.
pub(crate) struct Tokio;

/// Subscribers yield their time slice while the channel is empty. Tokio has no such receive, but it is faster for some works.
pub(crate) struct TokioYielding;

/// A receiver that yields.
pub(crate) struct Yielding(Receiver<Message>);

fn open(publishers: usize, subscribers: usize) -> (Vec<Sender<Message>>, Vec<Receiver<Message>>) {
    let (sender, _) = channel(CAPACITY);
    let receivers = (0..subscribers).map(|_| sender.subscribe()).collect();
    (vec![sender; publishers], receivers)
}

impl Channel for Tokio {
    type Publisher = Sender<Message>;
    type Subscriber = Receiver<Message>;

    fn open(self, publishers: usize, subscribers: usize) -> (Vec<Self::Publisher>, Vec<Self::Subscriber>) {
        open(publishers, subscribers)
    }
}

impl Channel for TokioYielding {
    type Publisher = Sender<Message>;
    type Subscriber = Yielding;

    fn open(self, publishers: usize, subscribers: usize) -> (Vec<Self::Publisher>, Vec<Self::Subscriber>) {
        let (senders, receivers) = open(publishers, subscribers);
        (senders, receivers.into_iter().map(Yielding).collect())
    }
}

impl Publisher for broadcast::Sender<Message> {
    #[inline]
    fn publish(&mut self, message: Message) {
        if self.send(message).is_err() {
            ended("no receiver");
        }
    }
}

impl Subscriber for Receiver<Message> {
    #[inline]
    fn receive(&mut self, _most: u64, counts: &mut Counts) {
        match self.blocking_recv() {
            Ok(message) => counts.receive(&message),
            Err(RecvError::Lagged(skipped)) => counts.skipped += skipped,
            Err(error) => ended(error),
        }
    }
}

impl Subscriber for Yielding {
    #[inline]
    fn receive(&mut self, _most: u64, counts: &mut Counts) {
        match self.0.try_recv() {
            Ok(message) => counts.receive(&message),
            Err(TryRecvError::Empty) => thread::yield_now(),
            Err(TryRecvError::Lagged(skipped)) => counts.skipped += skipped,
            Err(error) => ended(error),
        }
    }
}
