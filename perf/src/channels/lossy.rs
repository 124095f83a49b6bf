//! Channels whose subscribers may lose messages, and say how many. All receive by value, one message at a time.

mod doorbell;
mod drop_in;
#[cfg(feature = "benches")]
mod photon;
mod tokio;

use std::future::Future;

pub use self::doorbell::Doorbell;
pub use self::drop_in::DropIn;
#[cfg(feature = "benches")]
pub use self::photon::{PhotonMulti, PhotonSingle};
pub use self::tokio::Tokio;

use super::settings::Message;

/// The result of a receive.
#[derive(Debug)]
pub enum Received {
    Message(Message),
    /// Nothing to receive now.
    Empty,
    /// This many messages were lost.
    Lost(u64),
    Closed,
}

/// A broadcast channel of [`Message`].
pub trait Channel: 'static {
    type Publisher: Send + 'static;
    type Subscriber: Send + 'static;

    /// A channel with this many subscribers.
    fn open(capacity: usize, subscribers: usize) -> (Self::Publisher, Vec<Self::Subscriber>);
    fn publish(publisher: &mut Self::Publisher, message: Message);
    fn try_receive(subscriber: &mut Self::Subscriber) -> Received;
}

/// A channel that subscribers can join later.
pub trait Join: Channel {
    /// A subscriber of what is published from now on.
    fn subscribe(publisher: &Self::Publisher) -> Self::Subscriber;
}

/// A channel whose subscribers can wait without using the processor.
pub trait Wait: Channel {
    fn receive_blocking(subscriber: &mut Self::Subscriber) -> Received;
    fn receive(subscriber: &mut Self::Subscriber) -> impl Future<Output = Received> + Send;
}
