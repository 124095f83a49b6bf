//! `doorbell::ring`.

use doorbell::ring::{Publisher, RecvError, Subscriber, TryRecvError, channel};

use super::{Channel, Join, Received, Wait};
use crate::channels::settings::Message;

/// The ring.
#[derive(Clone, Copy, Debug)]
pub struct Doorbell;

impl Channel for Doorbell {
    type Publisher = Publisher<Message>;
    type Subscriber = Subscriber<Message>;

    fn open(capacity: usize, subscribers: usize) -> (Self::Publisher, Vec<Self::Subscriber>) {
        let (publisher, _) = channel(capacity);
        let subscribers = (0..subscribers).map(|_| publisher.subscribe()).collect();
        (publisher, subscribers)
    }

    #[inline]
    fn publish(publisher: &mut Self::Publisher, message: Message) {
        Publisher::publish(publisher, message);
    }

    #[inline]
    fn try_receive(subscriber: &mut Self::Subscriber) -> Received {
        match subscriber.try_recv() {
            Ok(message) => Received::Message(message),
            Err(TryRecvError::Empty) => Received::Empty,
            Err(TryRecvError::Lagged(lagged)) => Received::Lost(lagged.skipped),
            Err(TryRecvError::Closed) => Received::Closed,
        }
    }
}

impl Join for Doorbell {
    fn subscribe(publisher: &Self::Publisher) -> Self::Subscriber {
        publisher.subscribe()
    }
}

impl Wait for Doorbell {
    #[inline]
    fn receive_blocking(subscriber: &mut Self::Subscriber) -> Received {
        received(subscriber.recv_blocking())
    }

    #[inline]
    async fn receive(subscriber: &mut Self::Subscriber) -> Received {
        received(subscriber.recv().await)
    }
}

fn received(outcome: Result<Message, RecvError>) -> Received {
    match outcome {
        Ok(message) => Received::Message(message),
        Err(RecvError::Lagged(lagged)) => Received::Lost(lagged.skipped),
        Err(RecvError::Closed) => Received::Closed,
    }
}
