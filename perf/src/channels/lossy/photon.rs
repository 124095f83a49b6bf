//! `photon_ring`, whose subscribers cannot wait but by trying again.

use photon_ring::{MpPublisher, Publisher, Subscriber, TryRecvError, channel, channel_mpmc};

use super::{Channel, Received};
use crate::channels::settings::Message;

/// The ring with a shared publisher.
#[derive(Clone, Copy, Debug)]
pub struct PhotonMulti;

/// The ring with an exclusive publisher.
#[derive(Clone, Copy, Debug)]
pub struct PhotonSingle;

impl Channel for PhotonMulti {
    type Publisher = MpPublisher<Message>;
    type Subscriber = Subscriber<Message>;

    fn open(capacity: usize, subscribers: usize) -> (Self::Publisher, Vec<Self::Subscriber>) {
        let (publisher, ring) = channel_mpmc(capacity);
        (publisher, (0..subscribers).map(|_| ring.subscribe()).collect())
    }

    #[inline]
    fn publish(publisher: &mut Self::Publisher, message: Message) {
        MpPublisher::publish(publisher, message);
    }

    #[inline]
    fn try_receive(subscriber: &mut Self::Subscriber) -> Received {
        try_receive(subscriber)
    }
}

impl Channel for PhotonSingle {
    type Publisher = Publisher<Message>;
    type Subscriber = Subscriber<Message>;

    fn open(capacity: usize, subscribers: usize) -> (Self::Publisher, Vec<Self::Subscriber>) {
        let (publisher, ring) = channel(capacity);
        (publisher, (0..subscribers).map(|_| ring.subscribe()).collect())
    }

    #[inline]
    fn publish(publisher: &mut Self::Publisher, message: Message) {
        Publisher::publish(publisher, message);
    }

    #[inline]
    fn try_receive(subscriber: &mut Self::Subscriber) -> Received {
        try_receive(subscriber)
    }
}

#[inline]
fn try_receive(subscriber: &mut Subscriber<Message>) -> Received {
    match subscriber.try_recv() {
        Ok(message) => Received::Message(message),
        Err(TryRecvError::Empty) => Received::Empty,
        Err(TryRecvError::Lagged { skipped }) => Received::Lost(skipped),
    }
}
