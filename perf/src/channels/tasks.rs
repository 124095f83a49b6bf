//! Channels received from tokio tasks: each subscriber is a task, on two workers.

#[cfg(feature = "benches")]
mod async_broadcast;
mod doorbell;
mod drop_in;
mod tokio;

#[cfg(feature = "benches")]
pub use self::async_broadcast::AsyncBroadcast;
pub use self::doorbell::{Doorbell, DoorbellBatch};
pub use self::drop_in::DropIn;
pub use self::tokio::Tokio;

use std::future::Future;

use ::tokio::runtime::{Builder, Runtime};

use super::settings::{BATCH, Message};

/// A channel to compare.
pub trait Channel {
    /// Its publishing end.
    type Publisher: Publisher;
    /// Its receiving end.
    type Subscriber: Subscriber;

    /// A channel with this many subscribers.
    fn open(self, subscribers: usize) -> (Self::Publisher, Vec<Self::Subscriber>);
}

/// A publishing end.
pub trait Publisher: Send + 'static {
    /// Publishes one message.
    fn publish(&mut self, message: Message);
}

/// A receiving end.
pub trait Subscriber: Send + 'static {
    /// Waits for a message and takes it; a batch also takes those behind it. `None` once the channel is closed.
    fn take(&mut self) -> impl Future<Output = Option<Taken>> + Send;
}

/// A receiving end that can also take a message without waiting.
pub trait TrySubscriber: Subscriber {
    /// Takes a message if there is one.
    fn try_take(&mut self) -> Option<Taken>;
}

/// The same channel, received by tasks that take up to [`BATCH`] messages without waiting once one has arrived: the fastest
/// way to catch up on a channel without batches.
pub struct Drained<C>(pub C);

impl<C> Channel for Drained<C>
where
    C: Channel<Subscriber: TrySubscriber>,
{
    type Publisher = C::Publisher;
    type Subscriber = Drained<C::Subscriber>;

    fn open(self, subscribers: usize) -> (Self::Publisher, Vec<Self::Subscriber>) {
        let (publisher, subscribers) = self.0.open(subscribers);
        (publisher, subscribers.into_iter().map(Drained).collect())
    }
}

impl<S: TrySubscriber> Subscriber for Drained<S> {
    #[inline]
    async fn take(&mut self) -> Option<Taken> {
        let mut all = self.0.take().await?;
        while all.count < BATCH {
            match self.0.try_take() {
                Some(taken) => all.add(taken),
                None => break,
            }
        }
        Some(all)
    }
}

/// The result of one receive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taken {
    /// How many messages.
    pub count: u64,
    /// The sum of their numbers.
    pub sum: u64,
}

impl Taken {
    /// One message.
    #[inline]
    pub fn one(message: &Message) -> Self {
        Self {
            count: 1,
            sum: message[0],
        }
    }

    /// Adds the result of another receive.
    #[inline]
    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

/// The runtime of all task benches: two workers, whatever the hardware.
pub fn two_workers() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .expect("a runtime")
}

/// Stops a bench with a paced publisher that lost messages.
#[cold]
#[inline(never)]
pub fn lost(what: impl std::fmt::Debug) -> ! {
    panic!("a subscriber of a paced publisher lost messages: {what:?}")
}
