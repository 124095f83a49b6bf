//! `tokio::sync::broadcast`.

use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::broadcast::{Receiver, Sender, channel};

use super::{Channel, Join, Received, Wait};
use crate::channels::settings::Message;

/// Tokio's channel.
#[derive(Clone, Copy, Debug)]
pub struct Tokio;

impl Channel for Tokio {
    type Publisher = Sender<Message>;
    type Subscriber = Receiver<Message>;

    fn open(capacity: usize, subscribers: usize) -> (Self::Publisher, Vec<Self::Subscriber>) {
        let (sender, _) = channel(capacity);
        let receivers = (0..subscribers).map(|_| sender.subscribe()).collect();
        (sender, receivers)
    }

    #[inline]
    fn publish(sender: &mut Self::Publisher, message: Message) {
        // Fails without receivers, which is fine here.
        let _ = sender.send(message);
    }

    #[inline]
    fn try_receive(receiver: &mut Self::Subscriber) -> Received {
        match receiver.try_recv() {
            Ok(message) => Received::Message(message),
            Err(TryRecvError::Empty) => Received::Empty,
            Err(TryRecvError::Lagged(skipped)) => Received::Lost(skipped),
            Err(TryRecvError::Closed) => Received::Closed,
        }
    }
}

impl Join for Tokio {
    fn subscribe(sender: &Self::Publisher) -> Self::Subscriber {
        sender.subscribe()
    }
}

impl Wait for Tokio {
    #[inline]
    fn receive_blocking(receiver: &mut Self::Subscriber) -> Received {
        received(receiver.blocking_recv())
    }

    #[inline]
    async fn receive(receiver: &mut Self::Subscriber) -> Received {
        received(receiver.recv().await)
    }
}

fn received(outcome: Result<Message, RecvError>) -> Received {
    match outcome {
        Ok(message) => Received::Message(message),
        Err(RecvError::Lagged(skipped)) => Received::Lost(skipped),
        Err(RecvError::Closed) => Received::Closed,
    }
}
