//! Channels received from tokio tasks: each subscriber is a task, two workers run them all.

mod async_broadcast;
mod tokio;

pub(crate) use self::async_broadcast::AsyncBroadcast;
pub(crate) use self::tokio::Tokio;

use std::future::Future;

use ::tokio::runtime::{Builder, Runtime};

use super::settings::Message;

/// A channel to compare.
pub(crate) trait Channel {
    /// Its publishing end.
    type Publisher: Publisher;
    /// Its receiving end.
    type Subscriber: Subscriber;

    /// A channel with this many subscribers.
    fn open(self, subscribers: usize) -> (Self::Publisher, Vec<Self::Subscriber>);
}

/// A publishing end.
pub(crate) trait Publisher: Send + 'static {
    /// Publishes one message.
    fn publish(&mut self, message: Message);
}

/// A receiving end.
pub(crate) trait Subscriber: Send + 'static {
    /// Waits for a message and takes it, and in batches those behind it. `None` once the channel is closed.
    fn take(&mut self) -> impl Future<Output = Option<Taken>> + Send;
}

/// What one receive brought.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    /// How many messages.
    pub(crate) count: u64,
    /// The sum of their numbers.
    pub(crate) sum: u64,
}

impl Taken {
    /// One message.
    #[inline]
    pub(crate) fn one(message: &Message) -> Self {
        Self {
            count: 1,
            sum: message[0],
        }
    }

    /// Adds what another receive brought.
    #[inline]
    pub(crate) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

/// The runtime of all task benches: two workers, whatever the machine has.
pub(crate) fn two_workers() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .expect("a runtime")
}

/// Stops a bench whose publisher is paced, and which would measure a broken run.
#[cold]
#[inline(never)]
pub(crate) fn lost(what: impl std::fmt::Debug) -> ! {
    panic!("a subscriber of a paced publisher lost messages: {what:?}")
}
