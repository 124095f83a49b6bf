//! Channels between threads: publishers and subscribers wait in the way their channel provides.

mod async_broadcast;
mod disruptor;
mod doorbell;
mod drop_in;
mod harness;
mod no_channel;
mod photon;
mod tokio;

pub(crate) use self::async_broadcast::AsyncBroadcast;
pub(crate) use self::disruptor::Disruptor;
pub(crate) use self::doorbell::{Doorbell, DoorbellBatch};
pub(crate) use self::drop_in::{DropIn, DropInYielding};
pub(crate) use self::harness::{Harness, Pace};
pub(crate) use self::no_channel::NoChannel;
pub(crate) use self::photon::Photon;
pub(crate) use self::tokio::{Tokio, TokioYielding};

use doorbell_perf::channels::settings::Message;

/// A channel to compare.
pub(crate) trait Channel {
    /// Its publishing end.
    type Publisher: Publisher;
    /// Its receiving end.
    type Subscriber: Subscriber;

    /// A channel with this many publishers and subscribers.
    fn open(self, publishers: usize, subscribers: usize) -> (Vec<Self::Publisher>, Vec<Self::Subscriber>);
}

/// A publishing end.
pub(crate) trait Publisher: Send + 'static {
    /// Publishes one message.
    fn publish(&mut self, message: Message);
}

/// A receiving end.
pub(crate) trait Subscriber: Send + 'static {
    /// Waits for the next message or messages, at most `most` of them, and adds to `counts` what was received and lost.
    fn receive(&mut self, most: u64, counts: &mut Counts);
}

/// What a subscriber received, and what its channel reported as lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Messages received.
    pub(crate) received: u64,
    /// Messages lost.
    pub(crate) skipped: u64,
    /// The sum of the numbers received.
    pub(crate) sum: u64,
}

impl Counts {
    /// The number of messages accounted for.
    #[inline]
    pub(crate) fn position(&self) -> u64 {
        self.received + self.skipped
    }

    /// Adds a message received.
    #[inline]
    pub(crate) fn receive(&mut self, message: &Message) {
        self.received += 1;
        self.sum = self.sum.wrapping_add(message[0]);
    }
}

/// Stops a bench whose channel closes early.
#[cold]
#[inline(never)]
pub(crate) fn ended(what: impl std::fmt::Debug) -> ! {
    panic!("the channel closed early: {what:?}")
}
