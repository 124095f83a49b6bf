//! Channels driven from one thread, where no subscriber waits.

#[cfg(feature = "benches")]
mod async_broadcast;
#[cfg(feature = "benches")]
mod disruptor;
mod doorbell;
mod drop_in;
#[cfg(feature = "benches")]
mod photon;
mod tokio;

#[cfg(feature = "benches")]
pub use self::async_broadcast::AsyncBroadcast;
#[cfg(feature = "benches")]
pub use self::disruptor::{DisruptorMulti, DisruptorSingle};
pub use self::doorbell::Doorbell;
pub use self::drop_in::DropIn;
#[cfg(feature = "benches")]
pub use self::photon::{PhotonMulti, PhotonSingle};
pub use self::tokio::Tokio;

use super::payload::Payload;
use super::settings::BATCH;

/// A publisher and at least one subscriber, which receives what was published before; the other subscribers are idle.
pub trait Channel<T: Payload> {
    /// Publishes one value.
    fn publish(&mut self, value: T);

    /// Receives the next value by value.
    fn receive(&mut self) -> T;

    /// Reads the number of the next value by reference, where the channel can.
    #[inline]
    fn read(&mut self) -> u64 {
        self.receive().number()
    }

    /// Publishes [`BATCH`] values with the numbers from `first`, as a batch where the channel can.
    #[inline]
    fn publish_batch(&mut self, first: u64) {
        for number in first..first + BATCH {
            self.publish(T::make(number));
        }
    }

    /// Reads [`BATCH`] values as a batch and by reference, where the channel can; returns the sum of their numbers.
    #[inline]
    fn read_batch(&mut self) -> u64 {
        (0..BATCH).fold(0, |sum, _| sum.wrapping_add(self.read()))
    }
}

/// A channel whose subscribers may lag.
pub trait Lossy {
    /// Drains one subscriber. Returns how many messages it received or was reported to have lost.
    fn account(&mut self) -> u64;
}

/// Stops a bench that would measure a broken channel.
#[cold]
#[inline(never)]
pub fn broken(what: impl std::fmt::Debug) -> ! {
    panic!("a message that was published did not come: {what:?}")
}
