//! `photon_ring` with shared publishers; its subscribers only spin, in one of several ways.

use std::sync::Arc;

use photon_ring::{MpPublisher, WaitStrategy, channel_mpmc};

use super::{Channel, Counts, Publisher, Subscriber};
use doorbell_perf::channels::settings::{CAPACITY, Message};

/// Subscribers spin by this strategy.
pub(crate) struct Photon(pub(crate) WaitStrategy);

/// A subscriber and its wait strategy.
pub(crate) struct Spinning {
    subscriber: photon_ring::Subscriber<Message>,
    strategy: WaitStrategy,
}

impl Channel for Photon {
    type Publisher = Arc<MpPublisher<Message>>;
    type Subscriber = Spinning;

    fn open(self, publishers: usize, subscribers: usize) -> (Vec<Self::Publisher>, Vec<Self::Subscriber>) {
        let (publisher, ring) = channel_mpmc(CAPACITY);
        let publisher = Arc::new(publisher);
        let subscribers = (0..subscribers)
            .map(|_| Spinning {
                subscriber: ring.subscribe(),
                strategy: self.0,
            })
            .collect();
        ((0..publishers).map(|_| publisher.clone()).collect(), subscribers)
    }
}

impl Publisher for Arc<MpPublisher<Message>> {
    #[inline]
    fn publish(&mut self, message: Message) {
        MpPublisher::publish(self, message);
    }
}

impl Subscriber for Spinning {
    /// Waiting skips lag silently, but counts it.
    #[inline]
    fn receive(&mut self, _most: u64, counts: &mut Counts) {
        let message = self.subscriber.recv_with(self.strategy);
        counts.receive(&message);
        counts.skipped = self.subscriber.total_lagged();
    }
}
