//! No channel, only a counter: the cost of the harness, which is a lower bound for every channel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::{Channel, Counts, Publisher, Subscriber};
use doorbell_perf::channels::settings::Message;

/// Subscribers yield their time slice until the counter has moved.
pub(crate) struct NoChannel;

/// Publishes by incrementing the counter.
pub(crate) struct Counter(Arc<AtomicU64>);

/// Receives by reading the counter.
pub(crate) struct Follower(Arc<AtomicU64>);

impl Channel for NoChannel {
    type Publisher = Counter;
    type Subscriber = Follower;

    fn open(self, publishers: usize, subscribers: usize) -> (Vec<Self::Publisher>, Vec<Self::Subscriber>) {
        let counter = Arc::new(AtomicU64::new(0));
        let publishers = (0..publishers).map(|_| Counter(counter.clone())).collect();
        let subscribers = (0..subscribers).map(|_| Follower(counter.clone())).collect();
        (publishers, subscribers)
    }
}

impl Publisher for Counter {
    #[inline]
    fn publish(&mut self, _message: Message) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

impl Subscriber for Follower {
    #[inline]
    fn receive(&mut self, most: u64, counts: &mut Counts) {
        let available = self.0.load(Ordering::Acquire) - counts.position();
        if available == 0 {
            thread::yield_now();
        }
        for number in counts.position()..counts.position() + available.min(most) {
            counts.receive(&[number, 0, 0, 0]);
        }
    }
}
