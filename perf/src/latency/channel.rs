//! The two channels behind one trait. Both receive by value, one message at a time.

use std::future::Future;

use doorbell::ring;
use tokio::sync::broadcast;

/// 32 bytes: when the message was due, in nanoseconds since the round's epoch, and whether it counts.
pub(crate) type Message = [u64; 4];

/// The result of a receive.
pub(crate) enum Received {
    Message(Message),
    Lost(u64),
    Closed,
}

/// A broadcast channel of [`Message`].
pub(crate) trait Channel: 'static {
    type Publisher: Send + 'static;
    type Subscriber: Send + 'static;

    fn open(capacity: usize) -> (Self::Publisher, Self::Subscriber);
    fn another(subscriber: &Self::Subscriber) -> Self::Subscriber;
    fn publish(publisher: &Self::Publisher, message: Message);
    fn receive_blocking(subscriber: &mut Self::Subscriber) -> Received;
    fn receive(subscriber: &mut Self::Subscriber) -> impl Future<Output = Received> + Send;
}

/// `doorbell::ring`.
pub(crate) struct Doorbell;

impl Channel for Doorbell {
    type Publisher = ring::Publisher<Message>;
    type Subscriber = ring::Subscriber<Message>;

    fn open(capacity: usize) -> (Self::Publisher, Self::Subscriber) {
        ring::channel(capacity)
    }

    fn another(subscriber: &Self::Subscriber) -> Self::Subscriber {
        subscriber.clone()
    }

    fn publish(publisher: &Self::Publisher, message: Message) {
        publisher.publish(message);
    }

    fn receive_blocking(subscriber: &mut Self::Subscriber) -> Received {
        doorbell_received(subscriber.recv_blocking())
    }

    async fn receive(subscriber: &mut Self::Subscriber) -> Received {
        doorbell_received(subscriber.recv().await)
    }
}

fn doorbell_received(outcome: Result<Message, ring::RecvError>) -> Received {
    match outcome {
        Ok(message) => Received::Message(message),
        Err(ring::RecvError::Lagged(lagged)) => Received::Lost(lagged.skipped),
        Err(ring::RecvError::Closed) => Received::Closed,
    }
}

/// `tokio::sync::broadcast`.
pub(crate) struct Tokio;

impl Channel for Tokio {
    type Publisher = broadcast::Sender<Message>;
    type Subscriber = broadcast::Receiver<Message>;

    fn open(capacity: usize) -> (Self::Publisher, Self::Subscriber) {
        broadcast::channel(capacity)
    }

    fn another(subscriber: &Self::Subscriber) -> Self::Subscriber {
        subscriber.resubscribe()
    }

    fn publish(publisher: &Self::Publisher, message: Message) {
        // Fails without receivers, which is fine here.
        let _ = publisher.send(message);
    }

    fn receive_blocking(subscriber: &mut Self::Subscriber) -> Received {
        tokio_received(subscriber.blocking_recv())
    }

    async fn receive(subscriber: &mut Self::Subscriber) -> Received {
        tokio_received(subscriber.recv().await)
    }
}

fn tokio_received(outcome: Result<Message, broadcast::error::RecvError>) -> Received {
    match outcome {
        Ok(message) => Received::Message(message),
        Err(broadcast::error::RecvError::Lagged(skipped)) => Received::Lost(skipped),
        Err(broadcast::error::RecvError::Closed) => Received::Closed,
    }
}
